"""What users may read, and ask, of jobs: job-info, job-list, job-manager."""

import asyncio
import errno
from typing import Any

import orjson
import pytest

from tests.instance.lives import PLAIN, Life, R, alive, spec
from tests.instance.parts import GUEST, OWNER, SlowDisk, refused, settle, virtually
from warren.instance import keys
from warren.instance.kvs import append, create_namespace, graft, link, put
from warren.lifecycle.states import State
from warren.rfc import eventlog, stdio
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.message import Payload, RpcError

OTHERS = JobId(9 << 24)
"""A job of the guest's."""


async def with_others(life: Life) -> JobId:
    """Submit a job of the owner's, when there is one of the guest's."""
    submitted = {"userid": GUEST, "urgency": 16, "flags": 0, "version": 1}
    kept = spec(name="others")
    stored = [put(keys.of(OTHERS, "jobspec"), orjson.dumps(kept))]
    await life.manager.submit(OTHERS, submitted, kept, stored)
    return await life.submit()


class Watch:
    """Somebody who watches a log of a job."""

    def __init__(self, life: Life, job: JobId, path: str, userid: int = OWNER) -> None:
        self.lines: list[str] = []
        self.errnum: int | None = None
        request = {"id": job, "path": path}
        stream = life.bus.handle(userid).stream("job-info.eventlog-watch", request)
        self._task = asyncio.ensure_future(self._read(stream))

    async def _read(self, stream: Any) -> None:
        try:
            async for told in stream:
                self.lines.append(told["event"])
        except RpcError as error:
            self.errnum = error.errnum

    @property
    def names(self) -> list[str]:
        return [eventlog.decode_line(line).name for line in self.lines]

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
async def test_a_lookup_fails_as_a_whole() -> None:
    async with alive() as life:
        job = await life.submit()
        ask = life.bus.handle().rpc

        for wanted, why in ((["J", "nothing"], errno.ENOENT), (["."], errno.ENOENT)):
            answer = refused(ask("job-info.lookup", {"id": job, "keys": wanted}))
            assert await answer == why


@pytest.mark.parametrize("job", [None, "f1", 5, 1.5, [1]])
@virtually
async def test_there_is_nothing_to_read_of_a_job_that_is_not_there(job: Any) -> None:
    async with alive() as life:
        ask = life.bus.handle().rpc

        assert await refused(ask("job-info.lookup", {"id": job, "keys": []})) == errno.ENOENT
        assert await refused(ask("job-list.list-id", {"id": job})) == errno.ENOENT
        for method in ("raise", "kill", "memo"):
            assert await refused(ask(f"job-manager.{method}", {"id": job})) == errno.ENOENT


@virtually
async def test_users_read_and_change_their_own_jobs_alone() -> None:
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
async def test_the_owner_reads_and_ends_everybodys_jobs() -> None:
    async with alive(generous=False) as life:
        await with_others(life)
        ask = life.bus.handle().rpc

        assert await ask("job-info.lookup", {"id": OTHERS, "keys": ["jobspec"]})
        await ask("job-manager.raise", {"id": OTHERS})
        await life.until(OTHERS)


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
            assert "".join(watch.lines).encode() == life.kvs.lookup(keys.of(job, "eventlog"))


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
async def test_nobody_watches_the_jobs_of_others() -> None:
    async with alive(generous=False) as life:
        job = await with_others(life)
        watch = Watch(life, job, "eventlog", GUEST)
        assert await watch.ended()
        assert watch.errnum == errno.EPERM

        own = Watch(life, OTHERS, "eventlog", GUEST)
        await settle()
        assert own.names == PLAIN[:4]
        await own.stop()


async def execution_begins(life: Life, job: JobId) -> str:
    """Make a job's guest namespace, as execution does."""
    guest = keys.guest(job)
    await life.kvs.commit(
        [create_namespace(guest, OWNER), link(keys.of(job, "guest"), guest)],
    )
    return guest


@virtually
async def test_a_watch_of_the_execution_follows_it_home_and_ends_with_done() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        watch = Watch(life, job, "guest.exec.eventlog")
        guest = await execution_begins(life, job)
        await life.kvs.commit([keys.log_execution(job, Event(1.0, "init"))])
        assert not await watch.ended()
        done = keys.log_execution(job, Event(1.0, "done"))
        await life.kvs.commit([done, graft(keys.of(job, "guest"), guest)])

        assert await watch.ended()
        assert watch.names == ["init", "done"]


@virtually
async def test_a_watch_of_the_output_ends_when_every_stream_is_closed() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        watch = Watch(life, job, "guest.output")
        guest = await execution_begins(life, job)
        streams = [("stdout", 0), ("stdout", 1), ("stderr", 0), ("stderr", 1)]
        events = [stdio.header(1.0, 2), stdio.data(1.0, "stdout", 1, b"hello")]
        for event in (*events, *(stdio.eof(1.0, *stream) for stream in streams)):
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
        header = eventlog.encode(stdio.header(1.0, 1)).encode()
        await life.kvs.commit([append("output", header, guest)])
        await life.until(job)

        assert await watch.ended()
        assert watch.names == ["header"]


# job-list


async def listed(life: Life, userid: int = OWNER, **request: Any) -> list[Payload]:
    answer = await life.bus.handle(userid).rpc("job-list.list", request)
    jobs: list[Payload] = answer["jobs"]
    return jobs


@virtually
async def test_others_jobs_are_not_in_a_users_list() -> None:
    async with alive(generous=False) as life:
        job = await with_others(life)

        assert [each["id"] for each in await listed(life, GUEST)] == [OTHERS]
        assert await listed(life, GUEST + 1) == []
        assert {each["id"] for each in await listed(life)} == {OTHERS, job}
        one = life.bus.handle(GUEST).rpc("job-list.list-id", {"id": job})
        assert await refused(one) == errno.ENOENT


@virtually
async def test_a_job_is_described_with_the_attributes_of_rfc_43() -> None:
    async with alive() as life:
        asked = spec(name="solver", tasks=2, duration=60.0)
        job = await life.submit_spec(asked, urgency=20)
        await life.until(job)
        answer = await life.bus.handle().rpc("job-list.list-id", {"id": job})

        found = answer["job"]
        times = [found[f"t_{name}"] for name in ("submit", "depend", "sched", "run", "inactive")]
        assert times == sorted(times)
        expected = {
            "id": job,
            "userid": OWNER,
            "urgency": 20,
            "priority": 20,
            "state": 64,
            "name": "solver",
            "ntasks": 2,
            "nnodes": 1,
            "nodelist": "node0",
            "ranks": "0",
            "duration": 60.0,
            "exception_occurred": False,
            "result": 1,
            "success": True,
            "waitstatus": 0,
        }
        assert {name: found.get(name) for name in expected} == expected
        assert "exception_type" not in found


@virtually
async def test_what_is_not_known_of_a_job_is_left_out() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        (found,) = await listed(life)

        unknown = {"t_run", "nodelist", "ranks", "result", "waitstatus", "annotations"}
        assert not unknown & set(found)
        assert found["state"] == 8


@virtually
async def test_annotations_and_memos_are_shown() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        life.scheduler.explain(job, "waits")
        request = {"id": job, "memo": {"note": "mine", "gone": None}}
        await life.bus.handle().rpc("job-manager.memo", request)
        (found,) = await listed(life)

        expected = {"sched": {"reason_pending": "waits"}, "user": {"note": "mine"}}
        assert found["annotations"] == expected


@virtually
async def test_the_gravest_exception_is_shown_and_of_equals_the_first() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        for type_, severity in (("light", 5), ("grave", 2), ("also", 2), ("lighter", 7)):
            await life.cancel(job, type_, severity)
        (found,) = await listed(life)

        assert found["exception_occurred"] is True
        shown = [found[f"exception_{name}"] for name in ("type", "severity", "note")]
        assert shown == ["grave", 2, "enough"]


@virtually
async def test_those_who_wait_come_first_and_the_latest_of_those_who_do_not() -> None:
    async with alive(generous=False, seconds=100) as life:
        over = [await life.submit(), await life.submit()]
        for job in over:
            await life.cancel(job)
            await life.until(job)
            await asyncio.sleep(1)
        running = [await life.submit(), await life.submit()]
        for job in running:
            await life.scheduler.give(job)
            await life.until(job, "start")
            await asyncio.sleep(1)
        low = [await life.submit_spec(spec(), urgency=1) for _ in range(2)]
        high = await life.submit_spec(spec(), urgency=31)
        await settle()

        order = [each["id"] for each in await listed(life)]
        assert order == [high, *low, *reversed(running), *reversed(over)]
        assert [each["id"] for each in await listed(life, max_entries=2)] == order[:2]
        assert [each["id"] for each in await listed(life, states=64)] == order[-2:]
        assert [each["id"] for each in await listed(life, states=8 | 16)] == order[:-2]


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
        assert life.job(job).problems == ()


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

        assert await refused(ask) == errno.EPROTO
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

        for method in ("raise", "kill", "memo"):
            with pytest.raises(RpcError, match="job is inactive") as caught:
                await life.bus.handle().rpc(f"job-manager.{method}", {"id": job})
            assert caught.value.errnum == errno.ENOENT


@pytest.mark.parametrize("memo", [None, {}, [], "note"])
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
