"""What users may read, and ask, of their jobs: job-info, job-manager."""

import asyncio
import errno
import tracemalloc
from typing import Any

import orjson
import pytest

from tests.instance.lives import PLAIN, Life, R, alive, spec
from tests.instance.parts import GUEST, OWNER, SlowDisk, refused, settle, virtually
from warren.instance import config, keys
from warren.instance.jobinfo import CURRENT, INITIAL_SENTINEL, JSON_DECODE, WAITCREATE
from warren.instance.kvs import append, create_namespace, graft, link, put
from warren.journal import MemoryJournal
from warren.lifecycle.states import State
from warren.rfc import eventlog, signed_request, stdio, treeobj
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError

OTHERS = JobId(9 << 24)
"""A job of the guest's."""

SENTINEL = ""
"""What a watch puts down where an answer has no event."""


async def with_others(life: Life) -> JobId:
    """Submit a job of the owner's, when there is one of the guest's."""
    await life.accept(OTHERS, GUEST, name="others")
    return await life.submit()


async def execution_begins(life: Life, job: JobId, userid: int = OWNER) -> str:
    """Make a job's guest namespace, as execution does."""
    guest = keys.guest_namespace(job)
    await life.kvs.commit(
        [create_namespace(guest, userid), link(keys.job_key(job, "guest"), guest)]
    )
    return guest


class Watch:
    """A client that watches a log of a job."""

    def __init__(
        self, life: Life, job: JobId, path: str, userid: int = OWNER, **request: Any
    ) -> None:
        self.lines: list[str] = []
        self.errnum: int | None = None
        request = {"id": job, "path": path, **request}
        stream = life.bus.handle(userid).stream("job-info.eventlog-watch", request)
        self._task = asyncio.ensure_future(self._read(stream))

    async def _read(self, stream: Any) -> None:
        try:
            async for told in stream:
                self.lines.append(told.get("event", SENTINEL))
        except RpcError as error:
            self.errnum = error.errnum

    @property
    def names(self) -> list[str]:
        return [eventlog.decode_line(line).name for line in self.lines if line != SENTINEL]

    async def ended(self) -> bool:
        await settle()
        return self._task.done()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


# job-info.lookup


@virtually
async def test_a_lookup_gives_what_it_is_asked_for() -> None:
    async with alive() as life:
        job = await life.submit()
        await life.until(job)
        request = {"id": job, "keys": ["jobspec", "R", "eventlog"]}
        found = await life.bus.handle().rpc("job-info.lookup", request)

        assert found["id"] == job
        assert orjson.loads(found["R"]) == R
        assert found["jobspec"].startswith("{")
        assert found["eventlog"].count("\n") == len(PLAIN)


@virtually
async def test_a_key_is_looked_up_once_and_no_more_is_given_than_fits_a_message() -> None:
    async with alive() as life:
        job = await life.submit()
        size = len(life.kvs.lookup(keys.job_key(job, "J")))
    async with alive(largest_lookup=size) as life:
        job = await life.submit()
        handle = life.bus.handle()
        asked = {"id": job, "keys": ["J"] * 100}
        assert (await handle.rpc("job-info.lookup", asked)).keys() == {"id", "J"}

        asked = {"id": job, "keys": ["J", "jobspec"]}
        assert await refused(handle.rpc("job-info.lookup", asked)) == errno.EFBIG


@virtually
async def test_a_lookup_fails_as_a_whole() -> None:
    async with alive() as life:
        job = await life.submit()
        ask = life.bus.handle().rpc

        for wanted, why in ((["J", "nothing"], errno.ENOENT), (["."], errno.ENOENT)):
            answer = refused(ask("job-info.lookup", {"id": job, "keys": wanted}))
            assert await answer == why


REFUSED = {"raise": errno.ENOENT, "kill": errno.EINVAL, "memo": errno.ENOENT}
"""What the field says to those who ask something of a job that is over, or is not there."""


@pytest.mark.parametrize("job", [None, "f1", 5, 1.5, [1]])
@virtually
async def test_there_is_nothing_to_read_of_a_job_that_is_not_there(job: Any) -> None:
    async with alive() as life:
        ask = life.bus.handle().rpc

        assert await refused(ask("job-info.lookup", {"id": job, "keys": []})) == errno.ENOENT
        for method, why in REFUSED.items():
            assert await refused(ask(f"job-manager.{method}", {"id": job})) == why


@virtually
async def test_users_read_and_change_their_own_jobs_alone() -> None:
    """Statement 003.20: services allow guests selective access to the primary namespace."""
    async with alive(generous=False) as life:
        job = await with_others(life)
        guest, stranger = life.bus.handle(GUEST).rpc, life.bus.handle(GUEST + 1).rpc

        for ask, asked in ((guest, job), (stranger, job), (stranger, OTHERS)):
            request = {"id": asked, "keys": ["jobspec"], "signum": 9, "memo": {"a": 1}}
            for topic in ("job-info.lookup", "job-manager.raise", "job-manager.kill"):
                assert await refused(ask(topic, request)) == errno.EPERM
            assert await refused(ask("job-manager.memo", request)) == errno.EPERM
        assert await guest("job-info.lookup", {"id": OTHERS, "keys": ["jobspec"]})
        assert await guest("job-manager.raise", {"id": OTHERS}) == {}


@virtually
async def test_the_owner_reads_and_ends_all_users_jobs() -> None:
    async with alive(generous=False) as life:
        await with_others(life)
        ask = life.bus.handle().rpc

        assert await ask("job-info.lookup", {"id": OTHERS, "keys": ["jobspec"]})
        await ask("job-manager.raise", {"id": OTHERS})
        await life.until(OTHERS)


@virtually
async def test_a_guest_reads_what_was_stored_of_its_job() -> None:
    """Statement 003.21: a service gives guests R, J, jobspec and eventlog of their jobs."""
    async with alive(config=config.parse("access.allow-guest-user = true")) as life:
        payload = orjson.dumps(spec())
        # The signature is not looked at here.
        token = f"{signed_request.signed_part(payload, GUEST, 'munge')}.MUNGE:AAAA:"
        guest = life.bus.handle(GUEST).rpc
        job = JobId((await guest("job-ingest.submit", {"J": token}))["id"])
        await life.until(job)
        stored = ["R", "J", "jobspec", "eventlog"]
        kept = {key: life.kvs.lookup(keys.job_key(job, key)).decode() for key in stored}

        found = dict(await guest("job-info.lookup", {"id": job, "keys": stored}))
        assert found.pop("id") == job
        assert {key: value for key, value in found.items() if key != "R"} == {
            key: value for key, value in kept.items() if key != "R"
        }
        assert orjson.loads(found["R"]) == orjson.loads(kept["R"])


@virtually
async def test_directories_say_what_they_hold_and_missing_keys_that_they_are_missing() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        guest = await execution_begins(life, job)
        await life.kvs.commit(
            [put("tools.totalview", b"t", guest), put("application", b"a", guest)]
        )

        async def told(key: str) -> str:
            with pytest.raises(RpcError) as caught:
                await life.bus.handle().rpc("job-info.lookup", {"id": job, "keys": [key]})
            return f"{caught.value.errnum}: {caught.value}"

        assert await told("nothing") == f"{errno.ENOENT}: the job has no nothing"
        assert await told("guest") == (
            f"{errno.EISDIR}: guest is a directory; it holds application, tools"
        )


@pytest.mark.parametrize("key", ["", ".", "..", ".R", "R.", "guest..output", "...R", "R\n"])
@virtually
async def test_what_is_no_key_leads_nowhere(key: str) -> None:
    async with alive() as life:
        job = await life.submit()
        await life.until(job)
        watch = Watch(life, job, key, flags=0)
        with pytest.raises(RpcError, match=r"is no key|has no") as caught:
            await life.bus.handle().rpc("job-info.lookup", {"id": job, "keys": [key]})

        assert caught.value.errnum == errno.ENOENT
        assert ("is no key" in str(caught.value)) == (not all(key.split(".")))
        assert await watch.ended()
        assert watch.errnum == errno.ENOENT


@pytest.mark.parametrize("key", ["a" * 4096, ".".join("a" * 64)])
@virtually
async def test_the_longest_and_the_deepest_key_that_a_user_writes_is_found(key: str) -> None:
    async with alive(seconds=100) as life:
        job = await life.submit_as(GUEST)
        guest = await execution_begins(life, job, GUEST)
        entries = [{"key": key, "flags": 0, "dirent": treeobj.val(b"x")}]
        ask = life.bus.handle(GUEST).rpc
        await ask("kvs.commit", {"namespace": guest, "ops": entries})

        wanted = f"guest.{key}"
        found = await ask("job-info.lookup", {"id": job, "keys": [wanted]})
        assert found == {"id": job, wanted: "x"}


@pytest.mark.parametrize(
    "key", ["a" * 5000, ".".join("a" * 100), "guest." + "a" * 4097, "guest." + ".".join("a" * 65)]
)
@virtually
async def test_a_key_that_is_too_long_or_too_deep_is_not_looked_for(key: str) -> None:
    """One of a million names stopped all others for half a minute."""
    async with alive() as life:
        job = await life.submit()
        await life.until(job)
        watch = Watch(life, job, key)  # which waits for what is not there
        lookup = life.bus.handle().rpc("job-info.lookup", {"id": job, "keys": [key]})
        with pytest.raises(RpcError, match="more than 4096 characters or 64 names") as caught:
            await lookup

        assert caught.value.errnum == errno.EINVAL
        assert await watch.ended()
        assert watch.errnum == errno.EINVAL


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys": None},
        {"keys": "R"},
        {"keys": [5]},
        {"keys": ["R"], "flags": 4},
        {"keys": ["R"], "flags": "2"},
    ],
)
@virtually
async def test_a_lookup_of_another_form_is_refused(wrong: dict[str, Any]) -> None:
    async with alive() as life:
        job = await life.submit()
        ask = life.bus.handle().rpc("job-info.lookup", {"id": job, **wrong})

        assert await refused(ask) == errno.EPROTO


DATA = {
    "data.trace": b"of a service",
    "guest.output": b"printed",
    "guest.rcd": b"of a guest's service",
    "guest.application": b"of the application",
    "guest.tools.totalview": b"of a tool",
}


@virtually
async def test_the_owner_of_a_job_reads_all_of_it_while_it_lives_and_afterwards() -> None:
    """Statement 003.38: other guest services store data under <service>.
    Statement 003.39: the application stores data under application.
    Statement 003.40: tools store data under tools.<name>.
    """
    async with alive(generous=False) as life:
        await with_others(life)
        guest = await execution_begins(life, OTHERS, GUEST)
        await life.kvs.commit([put(keys.job_key(OTHERS, "data.trace"), DATA["data.trace"])])
        own = {key.removeprefix("guest."): value for key, value in DATA.items() if "guest" in key}
        steps = [
            {"key": key, "flags": 0, "dirent": treeobj.val(value)} for key, value in own.items()
        ]
        commit = {"namespace": guest, "ops": steps}
        await life.bus.handle(GUEST).rpc("kvs.commit", commit)
        request = {"id": OTHERS, "keys": list(DATA)}
        expected = {"id": OTHERS, **{key: value.decode() for key, value in DATA.items()}}

        for _ in range(2):
            for user in (OWNER, GUEST):
                assert await life.bus.handle(user).rpc("job-info.lookup", request) == expected
            stranger = life.bus.handle(GUEST + 1).rpc("job-info.lookup", request)
            assert await refused(stranger) == errno.EPERM
            await life.kvs.commit([graft(keys.job_key(OTHERS, "guest"), guest)])


@virtually
async def test_a_guest_can_make_no_link_out_of_its_job() -> None:
    async with alive(generous=False) as life:
        job = await with_others(life)
        guest = await execution_begins(life, OTHERS, GUEST)
        ask = life.bus.handle(GUEST).rpc
        for target in (treeobj.symlink("."), treeobj.symlink(keys.job_key(job, "R"), "primary")):
            operation = {"key": "way", "flags": 0, "dirent": target}
            linking = ask("kvs.commit", {"namespace": guest, "ops": [operation]})
            assert await refused(linking) == errno.EPERM

        for key in ("guest.way", "guest.way.R", f"guest.{keys.job_key(job, 'R')}"):
            lookup = ask("job-info.lookup", {"id": OTHERS, "keys": [key]})
            assert await refused(lookup) == errno.ENOENT


# Updates


async def update(life: Life, job: JobId, name: str, **context: Any) -> None:
    """Post an update, and let it be durable."""
    life.manager.post(job, name, context)
    await life.manager.wait_committed()
    await settle()


@pytest.mark.parametrize(
    ("key", "damage", "words"),
    [
        ("jobspec", b"{", "the job's jobspec is damaged: "),
        ("R", b"\xff", "the job's R is damaged: "),
        ("R", b"[]", "the job's eventlog is damaged: "),
        ("eventlog", b'{"resource-update":1}\n', "the job's eventlog is damaged: "),
        ("eventlog", b"\xff resource-update\n", "the job's eventlog is damaged: "),
    ],
)
@virtually
async def test_what_cannot_be_read_of_a_job_is_told_as_damaged(
    key: str, damage: bytes, words: str
) -> None:
    async with alive(seconds=10) as life:
        job = await life.submit(duration=60.0)
        await life.until(job, "start")
        life.manager.post(job, "resource-update", {"expiration": 2000})
        await life.until(job)
        await life.kvs.commit([put(keys.job_key(job, key), damage)])
        wanted = "R" if key == "eventlog" else key
        ask = life.bus.handle()

        lookup = {"id": job, "keys": [wanted], "flags": CURRENT}
        update = {"id": job, "key": wanted}
        for asking in (
            ask.rpc("job-info.lookup", lookup),
            ask.rpc("job-info.update-lookup", update),
            anext(ask.stream("job-info.update-watch", update)),
        ):
            with pytest.raises(RpcError, match=words):
                await asking
        as_written = await ask.rpc("job-info.lookup", {"id": job, "keys": [key]})
        assert as_written[key] == damage.decode(errors="replace")


@virtually
async def test_a_lookup_gives_the_first_version_or_the_current_one_as_text_or_as_json() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit(duration=60.0)
        await life.until(job, "start")
        await update(life, job, "jobspec-update", **{"attributes.system.duration": 90.0})
        await update(life, job, "resource-update", expiration=1000.0)
        await update(life, job, "resource-update", expiration=2000.0)

        async def looked_up(flags: int) -> tuple[Any, Any, Any]:
            request = {"id": job, "keys": ["jobspec", "R", "eventlog"], "flags": flags}
            found = await life.bus.handle().rpc("job-info.lookup", request)
            return found["jobspec"], found["R"], found["eventlog"]

        for flags, duration, expiration in ((0, 60.0, None), (CURRENT, 90.0, 2000.0)):
            texts, values = await looked_up(flags), await looked_up(flags | JSON_DECODE)
            assert orjson.loads(texts[0]) == values[0]
            assert orjson.loads(texts[1]) == values[1]
            assert texts[2] == values[2]
            assert values[0]["attributes"]["system"]["duration"] == duration
            assert expiration_of(values[1]) == (expiration or expiration_of(R))


def expiration_of(r: Any) -> Any:
    return r["execution"].get("expiration")


@virtually
async def test_updates_are_told_as_they_come_until_the_job_is_over() -> None:
    async with alive(seconds=10) as life:
        job = await life.submit()
        await life.until(job, "start")
        ask = life.bus.handle().stream
        told: list[Any] = []

        async def read() -> None:
            async for answer in ask("job-info.update-watch", {"id": job, "key": "R", "flags": 0}):
                told.append(expiration_of(answer["R"]))

        reading = asyncio.ensure_future(read())
        await settle()
        await update(life, job, "memo", a=1)
        await update(life, job, "resource-update", expiration=1000.0)
        await update(life, job, "resource-update", expiration=2000.0)
        await life.until(job)
        await settle()

        assert reading.done()
        assert told == [expiration_of(R), 1000.0, 2000.0]
        late = [
            answer["R"] async for answer in ask("job-info.update-watch", {"id": job, "key": "R"})
        ]
        now = await life.bus.handle().rpc("job-info.update-lookup", {"id": job, "key": "R"})
        assert late == [now["R"]]
        assert now["R"]["execution"]["expiration"] == 2000.0


@virtually
async def test_a_watch_of_updates_holds_no_version_of_its_own() -> None:
    """A user has thousands of watches, and a jobspec has megabytes."""
    long = "x" * 2**21
    async with alive(generous=False) as life:
        job = await life.submit_spec(spec(attributes={"notes": long}))
        await life.until(job, "priority")
        told: list[bool] = []

        async def watch() -> None:
            asked = {"id": job, "key": "jobspec"}
            async for answer in life.bus.handle().stream("job-info.update-watch", asked):
                told.append(long in str(answer))
                del answer

        tracemalloc.start()
        try:
            watches = [asyncio.ensure_future(watch()) for _ in range(8)]
            await settle()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert told == [True] * 8
        assert held < 2 * len(long)
        for each in watches:
            each.cancel()


@virtually
async def test_only_what_can_be_updated_is_watched_and_by_whom_it_belongs_to() -> None:
    async with alive(generous=False) as life:
        job = await with_others(life)
        for topic in ("job-info.update-lookup", "job-info.update-watch"):

            def ask(userid: int, job: JobId, key: Any, topic: str = topic) -> Any:
                handle, request = life.bus.handle(userid), {"id": job, "key": key}
                if topic.endswith("lookup"):
                    return handle.rpc(topic, request)
                return anext(handle.stream(topic, request))

            assert await refused(ask(OWNER, job, "J")) == errno.EINVAL
            assert await refused(ask(OWNER, job, "R")) == errno.ENOENT
            assert await refused(ask(GUEST, job, "jobspec")) == errno.EPERM
            assert (await ask(GUEST, OTHERS, "jobspec"))["jobspec"]["version"] == 1


# job-info.eventlog-watch


@virtually
async def test_a_watch_of_the_eventlog_ends_with_clean() -> None:
    async with alive() as life:
        job = await life.submit()
        early = Watch(life, job, "eventlog")
        assert not await early.ended()
        await life.until(job)
        late = Watch(life, job, "eventlog")

        for watch in (early, late):
            assert await watch.ended()
            assert watch.names == PLAIN
            assert "".join(watch.lines).encode() == life.kvs.lookup(keys.job_key(job, "eventlog"))


@virtually
async def test_a_watch_does_not_end_before_the_last_event_is_durable() -> None:
    disk = SlowDisk()
    disk.free.set()
    async with alive(disk, seconds=1) as life:
        job = await life.submit()
        await life.until(job, "start")
        disk.free.clear()
        await asyncio.sleep(2)
        assert life.job(job).state is State.INACTIVE
        watch = Watch(life, job, "eventlog")
        assert not await watch.ended()

        disk.free.set()
        assert await watch.ended()
        assert watch.names == PLAIN


@virtually
async def test_guests_do_not_watch_the_jobs_of_others() -> None:
    async with alive(generous=False) as life:
        job = await with_others(life)
        watch = Watch(life, job, "eventlog", GUEST)
        assert await watch.ended()
        assert watch.errnum == errno.EPERM

        own = Watch(life, OTHERS, "eventlog", GUEST)
        await settle()
        assert own.names == PLAIN[:4]
        await own.stop()


@virtually
async def test_a_watch_of_the_execution_follows_it_home_and_ends_with_done() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        watch = Watch(life, job, "guest.exec.eventlog")
        guest = await execution_begins(life, job)
        await life.kvs.commit([keys.append_execution_event(job, Event(1.0, "init"))])
        assert not await watch.ended()
        done = keys.append_execution_event(job, Event(1.0, "done"))
        await life.kvs.commit([done, graft(keys.job_key(job, "guest"), guest)])

        assert await watch.ended()
        assert watch.names == ["init", "done"]


@virtually
async def test_a_watch_of_the_output_ends_when_every_stream_is_closed() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        watch = Watch(life, job, "guest.output")
        guest = await execution_begins(life, job)
        streams = [("stdout", 0), ("stdout", 1), ("stderr", 0), ("stderr", 1)]
        events = [stdio.header_event(1.0, 2), stdio.data_event(1.0, "stdout", 1, b"hello")]
        for event in (*events, *(stdio.eof_event(1.0, *stream) for stream in streams)):
            assert not await watch.ended()
            await life.kvs.commit([append("output", eventlog.encode(event).encode(), guest)])

        assert await watch.ended()
        assert watch.names == ["header", *["data"] * 5]


@pytest.mark.parametrize("path", ["guest.exec.eventlog", "guest.output", "guest.input"])
@virtually
async def test_a_watch_of_what_never_came_ends_with_the_job(path: str) -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        early = Watch(life, job, path)
        assert not await early.ended()
        await life.cancel(job)
        await life.until(job)
        late = Watch(life, job, path)

        for watch in (early, late):
            assert await watch.ended()
            assert (watch.lines, watch.errnum) == ([], None)


@virtually
async def test_a_watch_of_an_output_that_is_cut_off_ends_with_the_job() -> None:
    async with alive() as life:
        job = await life.submit()
        watch = Watch(life, job, "guest.output")
        guest = await execution_begins(life, job)
        header = eventlog.encode(stdio.header_event(1.0, 1)).encode()
        await life.kvs.commit([append("output", header, guest)])
        await life.until(job)

        assert await watch.ended()
        assert watch.names == ["header"]


@virtually
async def test_a_watch_waits_for_a_log_only_if_it_is_to() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        hasty, patient = (
            Watch(life, job, "guest.output", flags=flags) for flags in (0, WAITCREATE)
        )
        assert await hasty.ended()
        assert hasty.errnum == errno.ENOENT
        assert not await patient.ended()

        there = Watch(life, job, "eventlog", flags=0)
        assert not await there.ended()
        assert there.names == PLAIN[:4]
        for watch in (patient, there):
            await watch.stop()


@virtually
async def test_a_sentinel_parts_what_was_there_from_what_comes() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await settle()
        flags = WAITCREATE | INITIAL_SENTINEL
        begun, empty = (
            Watch(life, job, path, flags=flags) for path in ("eventlog", "guest.exec.eventlog")
        )
        await settle()
        guest = await execution_begins(life, job)
        await life.kvs.commit([keys.append_execution_event(job, Event(1.0, "done"))])
        await life.kvs.commit([graft(keys.job_key(job, "guest"), guest)])
        await life.cancel(job)
        await life.until(job)

        for watch, before in ((begun, 4), (empty, 0)):
            assert await watch.ended()
            assert [line == SENTINEL for line in watch.lines].index(True) == before
            assert watch.lines.count(SENTINEL) == 1
            assert len(watch.lines) > before + 1


@virtually
async def test_a_long_log_is_told_whole_before_the_sentinel() -> None:
    async with alive() as life:
        job = await life.submit()
        guest = await execution_begins(life, job)
        lines = [f"{number} {'é' * (number % 300)}\n" for number in range(3000)]
        text = "".join(lines).encode()
        await life.kvs.commit([append("log", text, guest), append("log", b"begun", guest)])
        watch = Watch(life, job, "guest.log", flags=WAITCREATE | INITIAL_SENTINEL)
        await settle()
        assert watch.lines == [*lines, SENTINEL]

        await life.kvs.commit([append("log", b" and ended\n", guest)])
        await settle()
        assert watch.lines[-1] == "begun and ended\n"
        await watch.stop()


@virtually
async def test_a_watch_holds_nothing_of_a_line_that_has_not_ended() -> None:
    """A user has thousands of watches, and a log has as many bytes as a namespace."""
    line = b"\xf0\x9f\x90\xb0" * 2**20
    async with alive() as life:
        job = await life.submit()
        guest = await execution_begins(life, job)
        await life.kvs.commit([append("log", line, guest)])
        tracemalloc.start()
        try:
            watches = [Watch(life, job, "guest.log") for _ in range(8)]
            await settle()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < len(line)

        for _ in range(3):
            await life.kvs.commit([append("log", line, guest)])
        assert [await watch.ended() for watch in watches] == [True] * 8
        assert [watch.errnum for watch in watches] == [errno.EFBIG] * 8


@virtually
async def test_the_input_ends_when_it_is_closed_and_other_logs_with_their_job() -> None:
    async with alive(seconds=10) as life:
        job = await life.submit()
        guest = await execution_begins(life, job)
        events = [Event(1.0, "header", {}), Event(1.0, "data", {"stream": "stdin", "eof": True})]
        entries = "".join(map(eventlog.encode, events)).encode()
        await life.kvs.commit([append(key, entries, guest) for key in ("input", "tools.log")])
        closed, open_ = (Watch(life, job, f"guest.{key}") for key in ("input", "tools.log"))

        assert await closed.ended()
        assert not await open_.ended()
        await life.until(job)
        assert await open_.ended()
        assert closed.names == open_.names == ["header", "data"]


@virtually
async def test_a_log_that_is_none_is_refused_where_its_end_is_looked_for() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        guest = await execution_begins(life, job)
        await life.kvs.commit([append("output", b"words\n", guest)])
        watch = Watch(life, job, "guest.output")

        assert await watch.ended()
        assert (watch.lines, watch.errnum) == (["words\n"], errno.EPROTO)


@pytest.mark.parametrize("wrong", [{"path": 5}, {"flags": 4}, {"flags": None}])
@virtually
async def test_a_watch_of_another_form_is_refused(wrong: dict[str, Any]) -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        watch = Watch(life, job, **{"path": "eventlog", **wrong})

        assert await watch.ended()
        assert watch.errnum == errno.EPROTO


@virtually
async def test_a_watch_begun_after_a_restart_goes_on_where_the_log_was() -> None:
    journal = MemoryJournal()
    async with alive(journal, generous=False) as life:
        job = await life.submit()
        await execution_begins(life, job)
        await life.kvs.commit([keys.append_execution_event(job, Event(1.0, "init"))])
    async with alive(journal, generous=False) as life:
        watch = Watch(life, job, "guest.exec.eventlog")
        await settle()
        assert watch.names == ["init"]
        done = keys.append_execution_event(job, Event(1.0, "done"))
        await life.kvs.commit([done, graft(keys.job_key(job, "guest"), keys.guest_namespace(job))])

        assert await watch.ended()
        assert watch.names == ["init", "done"]


# job-manager


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": ""},
        {"type": "two words"},
        {"type": "a=b"},
        {"type": 5},
        {"severity": 8},
        {"severity": -1},
        {"severity": "grave"},
    ],
)
@virtually
async def test_an_exception_that_rfc_21_does_not_know_is_refused(wrong: dict[str, Any]) -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        ask = life.bus.handle().rpc("job-manager.raise", {"id": job, **wrong})

        assert await refused(ask) == errno.EPROTO
        assert life.job(job).exceptions == ()


@virtually
async def test_an_exception_says_who_has_raised_it() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.cancel(job)

        context = {"type": "cancel", "severity": 0, "note": "enough", "userid": OWNER}
        exception = next(event for event in life.log(job) if event.name == "exception")
        assert exception.context == context


@pytest.mark.parametrize("signum", [None, 0, 65, -9, "KILL"])
@virtually
async def test_what_is_no_signal_is_refused(signum: Any) -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        await life.until(job, "start")
        ask = life.bus.handle().rpc("job-manager.kill", {"id": job, "signum": signum})

        assert await refused(ask) == (errno.EINVAL if type(signum) is int else errno.EPROTO)
        assert life.execution.signals == []


@virtually
async def test_only_running_jobs_get_signals() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        ask = life.bus.handle().rpc("job-manager.kill", {"id": job, "signum": 9})

        assert await refused(ask) == errno.EINVAL


@virtually
async def test_nothing_can_be_done_to_a_job_that_is_over() -> None:
    async with alive() as life:
        job = await life.submit()
        await life.until(job)

        for method, why in REFUSED.items():
            with pytest.raises(RpcError, match="job is inactive") as caught:
                await life.bus.handle().rpc(f"job-manager.{method}", {"id": job})
            assert caught.value.errnum == why


@pytest.mark.parametrize("memo", [None, [], "note"])
@virtually
async def test_what_is_no_memo_is_refused(memo: Any) -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        ask = life.bus.handle().rpc("job-manager.memo", {"id": job, "memo": memo})

        assert await refused(ask) == errno.EPROTO


@virtually
async def test_the_journal_is_the_owners() -> None:
    async with alive() as life:
        stream = life.bus.handle(GUEST).stream("job-manager.events-journal")

        assert await refused(anext(stream)) == errno.EPERM
