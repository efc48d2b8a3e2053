"""What users may ask of the job manager, and what comes of it."""

import asyncio
import errno
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import virtual
from tests.harness.virtual import VirtualClock
from tests.instance.lives import PLAIN, Life, R, alive, spec
from tests.instance.parts import GUEST, OWNER, refused, settle, virtually
from warren.instance import keys
from warren.instance.jobs.plugins import builtin
from warren.instance.kvs import put
from warren.journal import MemoryJournal
from warren.lifecycle.states import Result, State
from warren.rfc import resource_set
from warren.rfc.fluid import JobId
from warren.rfc.jobflags import WAITABLE
from warren.rpc import message
from warren.rpc.message import Payload, RpcError

STRANGER = GUEST + 1
DURATION = "attributes.system.duration"


async def ask(life: Life, method: str, who: int = OWNER, /, **payload: Any) -> Payload:
    return await life.bus.handle(who).rpc(f"job-manager.{method}", payload)


async def queued(life: Life, userid: int = GUEST, **options: Any) -> JobId:
    job = await life.submit_as(userid, **options)
    await life.until(job, "priority")
    return job


# Who may

OF_ONE: dict[str, dict[str, Any]] = {
    "raise": {"type": "note", "severity": 7},
    "urgency": {"urgency": 3},
    "update": {"updates": {DURATION: 5}},
    "memo": {"memo": {"a": 1}},
}


@pytest.mark.parametrize("method", OF_ONE)
@virtually
async def test_the_owner_and_a_jobs_user_may_act_on_it_and_no_other(method: str) -> None:
    async with alive(generous=False, plugins=builtin(VirtualClock(), OWNER)) as life:
        job = await queued(life)
        before = life.names(job)
        request = {"id": job, **OF_ONE[method]}

        assert await refused(ask(life, method, STRANGER, **request)) == errno.EPERM
        assert life.names(job) == before
        await ask(life, method, GUEST, **request)
        assert len(life.names(job)) > len(before)
        await ask(life, method, OWNER, **request)


@virtually
async def test_signals_go_to_jobs_of_ones_own() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit_as(GUEST)
        await life.until(job, "start")

        assert await refused(ask(life, "kill", STRANGER, id=job, signum=9)) == errno.EPERM
        await ask(life, "kill", GUEST, id=job, signum=10)
        await ask(life, "kill", OWNER, id=job, signum=12)
        assert life.execution.signals == [(job, 10), (job, 12)]


@pytest.mark.parametrize(
    ("method", "payload"),
    [
        ("purge", {}),
        ("purge-id", {"id": 1}),
        ("jobtap", {"query": True}),
        ("jobtap-query", {"name": "a"}),
    ],
)
@virtually
async def test_some_things_are_for_the_owner(method: str, payload: dict[str, Any]) -> None:
    async with alive() as life:
        assert await refused(ask(life, method, GUEST, **payload)) == errno.EPERM


# What is refused


@pytest.mark.parametrize(
    ("method", "payload", "where"),
    [
        ("raise", {"type": "a b"}, "type"),
        ("raise", {"type": "a=b"}, "type"),
        ("raise", {"type": ""}, "type"),
        ("raise", {"severity": 8}, "severity"),
        ("raise", {"severity": True}, "severity"),
        ("raise", {"note": 7}, "note"),
        ("kill", {}, "signum"),
        ("kill", {"signum": "TERM"}, "signum"),
        ("urgency", {}, "urgency"),
        ("urgency", {"urgency": "high"}, "urgency"),
        ("memo", {"memo": [1]}, "memo"),
        ("memo", {"memo": {"a": 1}, "volatile": "yes"}, "volatile"),
        ("update", {"updates": 5}, "updates"),
    ],
)
@virtually
async def test_a_malformed_request_is_refused_with_the_place_of_the_mistake(
    method: str, payload: dict[str, Any], where: str
) -> None:
    async with alive(generous=False) as life:
        job = await queued(life)
        before = life.job(job)
        with pytest.raises(RpcError, match=where) as caught:
            await ask(life, method, id=job, **payload)

        assert caught.value.errnum == errno.EPROTO
        assert life.job(job) == before


@pytest.mark.parametrize("who", [OWNER, GUEST])
@pytest.mark.parametrize("severity", [0, 7])
@virtually
async def test_nobody_says_for_the_scheduler_that_a_job_has_lost_its_resources(
    who: int, severity: int
) -> None:
    said = {"type": "scheduler-restart", "severity": severity}
    async with alive(seconds=100) as life:
        job = await life.submit_as(GUEST)
        await life.until(job, "start")
        for method, where in (("raise", {"id": job}), ("raiseall", {"userid": GUEST})):
            with pytest.raises(RpcError, match="only the instance raises") as caught:
                await ask(life, method, who, **where, **said)
            assert caught.value.errnum == errno.EINVAL

        assert (await life.until(job)).count("free") == 1
        assert life.job(job).result is Result.COMPLETED


@pytest.mark.parametrize(
    ("method", "payload"),
    [("kill", {"signum": 65}), ("kill", {"signum": 0}), ("urgency", {"urgency": 32})],
)
@virtually
async def test_a_number_out_of_range_is_refused_with_the_errno_of_the_field(
    method: str, payload: dict[str, Any]
) -> None:
    async with alive(generous=False) as life:
        job = await queued(life)
        assert await refused(ask(life, method, id=job, **payload)) == errno.EINVAL
        assert await refused(ask(life, method, id=job + 1, **payload)) == errno.EINVAL


@virtually
async def test_what_changes_nothing_is_done_at_once() -> None:
    async with alive(generous=False) as life:
        job = await queued(life)
        before = life.job(job)
        assert await ask(life, "memo", id=job, memo={}) == {}
        assert await ask(life, "update", id=job, updates={}) == {}
        assert life.job(job) == before


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
names = st.sampled_from(
    [
        *["type", "severity", "note", "signum", "urgency", "updates", "memo", "volatile"],
        *["userid", "states", "dry_run", "age_limit", "num_limit", "batch", "force", "name"],
    ]
)
methods = st.sampled_from(
    [
        *["raise", "raiseall", "kill", "killall", "urgency", "update", "memo", "wait", "purge"],
        *["purge-id", "getattr", "stats-get", "alloc-query", "resource-status", "jobtap"],
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(methods, st.dictionaries(names, values)), max_size=8), st.booleans())
def test_whatever_is_asked_is_answered_or_refused(
    asked: list[tuple[str, dict[str, Any]]], ours: bool
) -> None:
    async def story() -> None:
        async with alive(plugins=builtin(VirtualClock(), OWNER), generous=False) as life:
            about = {"id": await queued(life, OWNER)} if ours else {}
            for method, payload in asked:
                with suppress(RpcError):
                    async with asyncio.timeout(1):
                        await ask(life, method, **about, **payload)
            await settle()

    virtual.run(story())


# Urgency and memos


@virtually
async def test_urgency_holds_and_hurries_jobs() -> None:
    async with alive(generous=False) as life:
        job = await queued(life)

        assert await ask(life, "urgency", id=job, urgency=0) == {"old_urgency": 16}
        await settle()
        assert (life.job(job).priority, life.scheduler.waiting) == (0, {})
        await ask(life, "urgency", id=job, urgency=31)
        await settle()
        assert life.scheduler.waiting[job]["priority"] == 2**32 - 1
        assert life.log(job)[-2].context == {"urgency": 31, "userid": OWNER}


@virtually
async def test_guests_do_not_hurry_beyond_the_usual() -> None:
    async with alive(generous=False) as life:
        job = await queued(life)

        assert await refused(ask(life, "urgency", GUEST, id=job, urgency=17)) == errno.EPERM
        await ask(life, "urgency", GUEST, id=job, urgency=16)


@virtually
async def test_a_job_that_has_its_resources_has_no_urgency() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit()
        await life.until(job, "start")

        assert await refused(ask(life, "urgency", id=job, urgency=1)) == errno.EINVAL


@virtually
async def test_a_user_adds_only_so_much_to_a_jobs_log_but_ends_it_always() -> None:
    async with alive(generous=False, plugins=builtin(VirtualClock(), OWNER)) as life:
        job = await queued(life)
        large = ask(life, "memo", GUEST, id=job, memo={"a": "x" * 2**14})
        assert await refused(large) == errno.EFBIG

        for _ in range(1000):
            life.manager.post(job, "memo", {"a": 1})
        await settle()
        for method in OF_ONE:
            asked = ask(life, method, GUEST, id=job, **OF_ONE[method])
            assert await refused(asked) == errno.ENOSPC
        note = {"type": "note", "severity": 7}
        assert (await ask(life, "raiseall", GUEST, **note))["count"] == 0
        await ask(life, "memo", id=job, memo={"a": 1})  # the owner's own affair
        await ask(life, "raise", GUEST, id=job, type="cancel", severity=0)
        await life.until(job, "clean")


@virtually
async def test_the_log_of_no_job_is_longer_than_readers_of_the_journal_can_read() -> None:
    """A conductor of its own process would lose its connection, again and again, for all jobs."""
    async with alive(generous=False) as life:
        job = await queued(life, attributes={"a": "y" * 3 * 2**20})
        size = 2**14
        while await taken(life, job, size) is False:
            size -= 2**8
        while await taken(life, job, size):
            pass
        journal = life.bus.handle().stream("job-manager.events-journal", {})
        told = await anext(aiter(journal))

        assert told["id"] == job
        assert len(told["events"]) == 1000
        assert len(bytes(message.pack(told))) < message.LONGEST_MESSAGE


async def taken(life: Life, job: JobId, size: int) -> bool | None:
    """Return whether a note of so many bytes is taken; None where the log is full."""
    try:
        await ask(life, "raise", GUEST, id=job, type="a", severity=7, note="x" * size)
    except RpcError as error:
        return None if error.errnum == errno.ENOSPC else False
    return True


@virtually
async def test_a_memo_may_be_forgotten_with_the_next_restart() -> None:
    journal = MemoryJournal()
    async with alive(journal, generous=False) as life:
        job = await queued(life, OWNER)
        await ask(life, "memo", id=job, memo={"kept": 1, "gone": {"a": 1}})
        await ask(life, "memo", id=job, memo={"gone": {"a": None}})
        told = Followed(life)
        await settle()
        await ask(life, "memo", id=job, memo={"short": 2}, volatile=True)

        assert life.job(job).memo == {"kept": 1, "short": 2}
        assert told.entries[-1]["events"][0]["name"] == "memo"
        await told.stop()
    async with alive(journal, generous=False) as life:
        assert life.job(job).memo == {"kept": 1}


class Followed:
    """What a reader of the journal was told."""

    def __init__(self, life: Life, **wanted: Any) -> None:
        self.entries: list[Payload] = []
        self._task = asyncio.ensure_future(self._read(life, wanted))

    async def _read(self, life: Life, wanted: Mapping[str, Any]) -> None:
        stream = life.bus.handle().stream("job-manager.events-journal", wanted)
        async for entry in stream:
            self.entries.append(entry)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


# The journal


@virtually
async def test_a_reader_gets_the_events_that_it_wants() -> None:
    async with alive(seconds=100) as life:
        over = await life.submit()
        await life.until(over)
        job = await life.submit()
        await life.until(job, "start")
        few = Followed(life, allow={"submit": 1, "finish": 1})
        most = Followed(life, deny={"priority": 1})
        full = Followed(life, full=True)
        await life.until(job)

        assert names_of(few, job) == ["submit", "finish"]
        assert names_of(most, job) == [name for name in PLAIN if name != "priority"]
        assert names_of(full, job) == names_of(full, over) == PLAIN
        assert [entry["id"] for entry in full.entries[:3]] == [over, job, -1]
        assert "R" in full.entries[0]
        for each in (few, most, full):
            await each.stop()


def names_of(told: Followed, job: JobId) -> list[str]:
    return [
        event["name"] for entry in told.entries if entry["id"] == job for event in entry["events"]
    ]


# Changes


@virtually
async def test_another_duration_sends_a_waiting_job_through_the_queue_again() -> None:
    async with alive(generous=False, plugins=builtin(VirtualClock(), OWNER)) as life:
        job = await queued(life)
        await ask(life, "update", GUEST, id=job, updates={DURATION: 60})
        await settle()

        assert life.names(job) == [*PLAIN[:4], "jobspec-update", "priority"]
        assert life.scheduler.waiting[job]["jobspec"]["attributes"]["system"]["duration"] == 60


@virtually
async def test_another_duration_of_a_running_job_is_another_expiration() -> None:
    journal = MemoryJournal()
    started = resource_set.encode_nodes(
        [resource_set.NodeResources(0, "node0", (0,))], starttime=1_790_000_000.0
    )
    async with alive(journal, generous=False, plugins=builtin(VirtualClock(), OWNER)) as life:
        job = await life.submit()
        await life.until(job, "priority")
        life.scheduler.waiting.pop(job)
        life.scheduler.given[job] = started
        await life.kvs.commit(r_of(job, started))
        life.manager.alloc_response({"id": job, "type": 0, "R": started})
        await ask(life, "update", id=job, updates={DURATION: 500})

        end = 1_790_000_500.0
        assert {"jobspec-update", "resource-update"} < set(life.names(job))
        assert life.scheduler.expirations == life.execution.expirations == [(job, end)]
        found = life.manager.find(job)
        assert found is not None
        assert found.r is not None
        assert found.r["execution"]["expiration"] == end
    async with alive(journal, plugins=builtin(VirtualClock(), OWNER)) as life:
        assert life.scheduler.given[job]["execution"]["expiration"] == end


def r_of(job: JobId, r: Payload) -> Any:
    return [put(keys.job_key(job, "R"), orjson.dumps(r))]


@pytest.mark.parametrize(
    ("updates", "why"),
    [
        ({"attributes.system.queue": "a"}, "There is no queue 'a'"),
        ({"attributes.system.bank": "a"}, "update of attributes.system.bank not supported"),
        ({DURATION: "long"}, "not a number"),
        ({DURATION: -1}, "of at least 0"),
        ({DURATION: 5, "tasks": []}, "tasks is not a list"),
        ({DURATION: 5, "version": 1}, "update of version not supported"),
        ({"attributes": {}}, "update of attributes not supported"),
        ({"attributes.system.job.name": ""}, "not a name"),
    ],
)
@virtually
async def test_a_change_that_no_plugin_allows_is_refused_as_a_whole(
    updates: dict[str, Any], why: str
) -> None:
    async with alive(generous=False, plugins=builtin(VirtualClock(), OWNER)) as life:
        job = await queued(life)
        before = life.job(job)
        with pytest.raises(RpcError, match=why) as caught:
            await ask(life, "update", id=job, updates=updates)

        assert caught.value.errnum == errno.EINVAL
        assert life.job(job) == before


@virtually
async def test_what_the_owner_has_changed_the_user_does_not_change_back() -> None:
    async with alive(generous=False, plugins=builtin(VirtualClock(), OWNER)) as life:
        job = await queued(life)
        await ask(life, "update", OWNER, id=job, updates={DURATION: 60})

        assert life.job(job).immutable
        again = ask(life, "update", GUEST, id=job, updates={DURATION: 6})
        assert await refused(again) == errno.EPERM
        await ask(life, "update", OWNER, id=job, updates={DURATION: 6})


@virtually
async def test_guests_do_not_prolong_jobs_that_run() -> None:
    async with alive(seconds=100, plugins=builtin(VirtualClock(), OWNER)) as life:
        job = await life.submit_as(GUEST)
        await life.until(job, "start")

        for updates in ({DURATION: 60}, {"attributes.system.job.name": "b"}):
            assert await refused(ask(life, "update", GUEST, id=job, updates=updates)) == 22


# Many jobs


@virtually
async def test_exceptions_come_over_all_jobs_of_a_user() -> None:
    async with alive(generous=False) as life:
        mine, others = await queued(life), await queued(life, STRANGER)
        held = await queued(life)
        await ask(life, "urgency", id=held, urgency=0)
        cancel = {"type": "cancel", "severity": 0}

        dry = await ask(life, "raiseall", GUEST, dry_run=True, **cancel)
        assert dry == {"count": 2, "errors": 0}
        asked = ask(life, "raiseall", GUEST, userid=STRANGER, **cancel)
        assert await refused(asked) == errno.EPERM
        assert await refused(ask(life, "raiseall", GUEST, userid=-1, **cancel)) == errno.EPERM
        only = await ask(life, "raiseall", GUEST, states=State.RUN.bit, **cancel)
        assert only == {"count": 0, "errors": 0}
        await ask(life, "raiseall", GUEST, **cancel)
        assert life.job(mine).result is life.job(held).result is Result.CANCELED
        assert life.job(others).state is State.SCHED
        assert await ask(life, "raiseall", userid=-1, **cancel) == {"count": 1, "errors": 0}


@virtually
async def test_others_have_their_turn_while_all_jobs_of_a_user_are_cancelled() -> None:
    async with alive(generous=False) as life:
        jobs = [await queued(life) for _ in range(200)]
        cancelled: list[int] = []

        async def count() -> None:
            while True:
                active = [each for each in life.manager.active() if not each.pending_events]
                cancelled.append(len(jobs) - len(active))
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        asked = {"type": "cancel", "severity": 0}
        assert await ask(life, "raiseall", GUEST, **asked) == {"count": 200, "errors": 0}
        counting.cancel()
        assert cancelled[0] == 0
        assert 0 < min(filter(None, cancelled)) <= 100


@virtually
async def test_exceptions_over_all_jobs_fill_no_log_however_many_come_at_once() -> None:
    """Those that end jobs are not counted, but only the first one of a job ends it."""
    async with alive(generous=False) as life:
        jobs = [await queued(life) for _ in range(51)]
        # The last one does not end when it is cancelled, as a job in its epilog.
        life.scheduler.deaf = True
        last = life.manager.active_job(jobs[-1])
        charged: list[object] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(life.manager, "charge", lambda entry, size: charged.append(entry))
            asked = {"type": "cancel", "severity": 0}
            await asyncio.gather(*(ask(life, "raiseall", GUEST, **asked) for _ in range(1200)))

        exceptions = [each for each in last.events if each.name == "exception"]
        assert 900 < len(exceptions) <= 1000
        assert len(last.events) <= 1000
        assert charged.count(last) == len(exceptions) - 1


@virtually
async def test_an_exception_that_has_no_room_keeps_no_other_job_from_its_end() -> None:
    async with alive(generous=False) as life:
        life.scheduler.deaf = True
        over, job = await queued(life), await queued(life)
        asked = {"type": "cancel", "severity": 0}
        await ask(life, "raise", GUEST, id=over, **asked)

        def full(entry: object, size: int) -> None:
            raise RpcError(errno.ENOSPC, "no room")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(life.manager, "charge", full)
            assert await ask(life, "raiseall", GUEST, **asked) == {"count": 2, "errors": 1}
        assert life.job(job).fatal_exception is not None
        assert life.names(over).count("exception") == 1


@virtually
async def test_all_jobs_of_a_user_are_cancelled_though_the_client_hangs_up() -> None:
    async with alive(generous=False) as life:
        jobs = [await queued(life) for _ in range(200)]
        asking = asyncio.ensure_future(ask(life, "raiseall", GUEST, type="cancel", severity=0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert any(entry.job.fatal_exception is None for entry in life.manager.active())
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await settle()
        assert {life.job(job).result for job in jobs} == {Result.CANCELED}


@virtually
async def test_signals_to_all_jobs_go_in_turns_and_to_none_that_has_ended_meanwhile() -> None:
    async with alive(seconds=100) as life:
        jobs = [await life.submit_as(GUEST) for _ in range(101)]
        await life.until(jobs[-1], "start")
        asking = asyncio.ensure_future(ask(life, "killall", GUEST, signum=10))
        await asyncio.sleep(0)
        assert len(life.execution.signals) == 50
        life.manager.post(jobs[-1], "exception", {"type": "cancel", "severity": 0})
        life.manager.post(jobs[-1], "finish", {"status": 0})
        await asking

        assert life.execution.signals == [(job, 10) for job in jobs[:-1]]


@virtually
async def test_signals_go_to_all_running_jobs_of_a_user() -> None:
    async with alive(seconds=100) as life:
        mine, others = await life.submit_as(GUEST), await life.submit_as(STRANGER)
        await life.until(others, "start")

        assert await ask(life, "killall", GUEST, signum=10) == {"count": 1, "errors": 0}
        assert await refused(ask(life, "killall", GUEST, signum=10, userid=-1)) == errno.EPERM
        dry = await ask(life, "killall", signum=10, userid=-1, dry_run=True)
        assert dry["count"] == len(life.manager.active())
        assert life.execution.signals == [(mine, 10)]


# Waiting


@virtually
async def test_a_job_is_waited_for_once() -> None:
    journal = MemoryJournal()
    async with alive(journal, seconds=100) as life:
        job, plain = await life.submit_as(OWNER, WAITABLE), await life.submit()
        asked = asyncio.ensure_future(ask(life, "wait", id=job))
        await settle()
        assert not asked.done()
        assert await refused(ask(life, "wait", id=plain)) == errno.ECHILD
        assert await refused(ask(life, "wait", id=job)) == errno.ECHILD
        assert await refused(ask(life, "wait", id=-1)) == errno.ECHILD

        assert await asked == {"id": job, "success": True, "errstr": ""}
        assert await refused(ask(life, "wait", id=job)) == errno.ECHILD
    async with alive(journal) as life:
        assert await refused(ask(life, "wait", id=job)) == errno.ECHILD


@virtually
async def test_any_job_may_be_waited_for_after_a_restart_too() -> None:
    journal = MemoryJournal()
    async with alive(journal) as life:
        first = await life.submit_as(OWNER, WAITABLE)
        await life.until(first)
    async with alive(journal, generous=False) as life:
        second = await life.submit_as(OWNER, WAITABLE)
        await life.until(second, "priority")
        assert (await ask(life, "wait", id=-1))["id"] == first
        asked = asyncio.ensure_future(ask(life, "wait", id=2**64 - 1))
        await settle()
        await life.cancel(second)
        answer = await asked
        assert answer == {"id": second, "success": False, "errstr": "cancel: enough"}


@virtually
async def test_who_stops_waiting_takes_nothing() -> None:
    async with alive(seconds=100) as life:
        job = await life.submit_as(OWNER, WAITABLE)
        asked = asyncio.ensure_future(ask(life, "wait", id=job))
        await settle()
        asked.cancel()
        await life.until(job)

        assert (await ask(life, "wait", id=job))["id"] == job


@virtually
async def test_guests_wait_for_jobs_of_their_own() -> None:
    async with alive() as life:
        job = await life.submit_as(GUEST, WAITABLE)
        assert await refused(ask(life, "wait", STRANGER, id=job)) == errno.EPERM
        assert await refused(ask(life, "wait", GUEST, id=-1)) == errno.ECHILD
        assert (await ask(life, "wait", GUEST, id=job))["success"] is True


# The job manager itself


@virtually
async def test_the_job_manager_tells_of_itself() -> None:
    async with alive(seconds=100, plugins=builtin(VirtualClock(), OWNER)) as life:
        over = await life.submit()
        await life.until(over)
        held = await queued_behind(life)
        runs = await life.submit()
        await life.until(runs, "start")

        assert await ask(life, "getattr", name="max_jobid") == {"value": runs}
        assert await refused(ask(life, "getattr", name="x")) == errno.ENOENT
        told = await ask(life, "alloc-query")
        assert told == {"queue_length": 1, "alloc_pending": 0, "running": 1}
        stats = await ask(life, "stats-get")
        assert (stats["active_jobs"], stats["inactive_jobs"]) == (2, 1)
        assert stats["max_jobid"] == max(over, held, runs)
        status = await ask(life, "resource-status")
        assert status["allocated"]["execution"]["R_lite"] == R["execution"]["R_lite"]
        plugins = (await ask(life, "jobtap", query=True))["plugins"]
        assert "dependency-after" in plugins
        assert await ask(life, "jobtap-query", name=plugins[0]) == {"name": plugins[0]}
        assert await refused(ask(life, "jobtap-query", name="x")) == errno.ENOENT
        assert await refused(ask(life, "jobtap", load="/tmp/x.py")) == errno.ENOSYS


async def queued_behind(life: Life) -> JobId:
    job = JobId(life.manager.max_jobid() + 1)
    submitted = {"userid": OWNER, "urgency": 0, "flags": 0, "version": 1}
    await life.manager.submit(job, submitted, spec(), [])
    return job
