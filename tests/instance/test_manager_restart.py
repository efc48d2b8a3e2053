"""The job manager after a restart: every job goes on from wherever its log ends."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from tests.instance.lives import PLAIN, Perilog, R, alive, spec
from tests.instance.parts import OWNER, opened, settle, virtually
from warren.instance import keys
from warren.instance.kvs import append, create_namespace, link, put
from warren.journal import MemoryJournal
from warren.lifecycle.states import Result, State
from warren.rfc import eventlog, fluid
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId

JOB = JobId(5 << 24)

CONTEXTS: dict[str, dict[str, Any]] = {
    "submit": {"userid": OWNER, "urgency": 16, "flags": 0, "version": 1},
    "dependency-add": {"description": "wait"},
    "dependency-remove": {"description": "wait"},
    "priority": {"priority": 16},
    "alloc": {"annotations": {}},
    "prolog-start": {"description": "before"},
    "prolog-finish": {"description": "before", "status": 0},
    "exception": {"type": "cancel", "severity": 0, "note": "enough"},
    "jobspec-update": {"attributes.system.duration": 7.0},
    "epilog-start": {"description": "after"},
    "epilog-finish": {"description": "after", "status": 0},
    "release": {"ranks": "all", "final": True},
}

STORIES = {
    "plain": PLAIN,
    "cancelled while it waits": [*PLAIN[:4], "exception", "clean"],
    "cancelled before it starts": [*PLAIN[:5], "exception", "free", "clean"],
    "cancelled while it runs": [*PLAIN[:6], "exception", *PLAIN[6:]],
}

TASK_SIGNALS = [
    *["submit", "validate", "dependency-add", "dependency-remove", "depend", "priority"],
    *["alloc", "prolog-start", "prolog-finish", "start", "finish", "epilog-start"],
    *["epilog-finish", "release", "free", "clean"],
]
"""The story of a job with a dependency, a prolog and an epilog."""


async def stored(
    names: Sequence[str],
    job: JobId = JOB,
    exception: Mapping[str, Any] = CONTEXTS["exception"],
    /,
    **replaced: bytes,
) -> MemoryJournal:
    """A journal in which a job's log ends somewhere."""
    contexts = {
        **CONTEXTS,
        "finish": {"status": 15 if "exception" in names else 0},
        "exception": exception,
    }
    events = [Event(1000.0 + at, name, contexts.get(name, {})) for at, name in enumerate(names)]
    values = {
        "J": b"signed",
        "jobspec": orjson.dumps(spec(name="kept")),
        "eventlog": "".join(eventlog.encode(event) for event in events).encode(),
        **({"R": orjson.dumps(R)} if "alloc" in names else {}),
        **replaced,
    }
    journal = MemoryJournal()
    async with opened(journal) as kvs:
        await kvs.commit(
            [put(keys.job_key(job, key), value) for key, value in values.items() if value]
        )
    return journal


def cuts(story: Sequence[str]) -> list[Any]:
    """Every place where a log may end: a submit is never without its validate."""
    return [pytest.param(story[:end], id=story[end - 1]) for end in range(2, len(story) + 1)]


@pytest.mark.parametrize("story", STORIES)
@virtually
async def test_a_job_goes_on_from_wherever_its_log_ends(story: str) -> None:
    """Statement 003.29: after a restart each job's eventlog is replayed."""
    for end in range(2, len(STORIES[story]) + 1):
        names = STORIES[story][:end]
        async with alive(await stored(names)) as life:
            all_names = await life.until(JOB)

            assert all_names[:end] == names
            assert all_names[-1] == "clean"
            once = [name for name in all_names if name not in ("priority", "flux-restart")]
            assert len(once) == len(set(once)), all_names
            wanted = Result.CANCELED if "exception" in names else Result.COMPLETED
            assert life.job(JOB).result is wanted
            assert life.scheduler.given == life.scheduler.waiting == {}
            assert len(life.execution.started) <= 1


@pytest.mark.parametrize("names", cuts(TASK_SIGNALS))
@virtually
async def test_what_a_plugin_held_when_it_died_it_lets_go_of_again(names: list[str]) -> None:
    async with alive(await stored(names), plugins=[Perilog()]) as life:
        all_names = await life.until(JOB)

        assert all_names[: len(names)] == names
        once = [name for name in all_names if name not in ("priority", "flux-restart")]
        assert sorted(once) == sorted(name for name in TASK_SIGNALS if name != "priority")


@virtually
async def test_a_job_that_waits_is_asked_for_again() -> None:
    """Statement 003.30: the scheduler goes by the jobspec that is in the KVS."""
    async with alive(await stored(PLAIN[:4]), generous=False) as life:
        await life.until(JOB, "flux-restart")

        assert life.names(JOB) == [*PLAIN[:4], "flux-restart", "priority"]
        assert life.scheduler.waiting[JOB]["t_submit"] == 1000.0
        assert life.scheduler.waiting[JOB]["userid"] == OWNER
        assert life.scheduler.waiting[JOB]["jobspec"] == spec(name="kept")


@virtually
async def test_a_job_that_waits_is_asked_for_once() -> None:
    async with alive(await stored(PLAIN[:4]), generous=False) as life:
        await life.until(JOB, "flux-restart")

        assert life.scheduler.waiting[JOB]["priority"] == 16
        assert life.scheduler.asked == [JOB]


@virtually
async def test_the_scheduler_hears_which_jobs_have_resources_before_any_asks_for_some() -> None:
    """Statement 003.33: after a restart the eventlog says that R is allocated."""
    journal = await stored(PLAIN[:6])
    other = await stored(PLAIN[:4], JobId(4 << 24))
    journal.records += other.records
    async with alive(journal, seconds=100, generous=False) as life:
        await settle()

        assert list(life.scheduler.given) == [JOB]
        assert list(life.scheduler.waiting) == [JobId(4 << 24)]


@pytest.mark.parametrize(("end", "reattach"), [("alloc", False), ("start", True), ("finish", True)])
@virtually
async def test_execution_is_asked_to_take_up_what_has_started(end: str, reattach: bool) -> None:
    """Statement 003.34: execution goes by R and the jobspec that are in the KVS."""
    names = PLAIN[: PLAIN.index(end) + 1]
    async with alive(await stored(names), seconds=100) as life:
        (start,) = life.execution.started

        assert start["reattach"] is reattach
        assert start["R"] == R
        assert start["jobspec"] == spec(name="kept")
        assert life.execution.asked_at_restart == [JOB]


@pytest.mark.parametrize("end", ["priority", "release", "free"])
@virtually
async def test_execution_is_not_asked_for_what_is_over_or_has_not_begun(end: str) -> None:
    names = PLAIN[: PLAIN.index(end) + 1]
    async with alive(await stored(names), generous=False) as life:
        assert life.execution.started == []
        assert life.execution.asked_at_restart == []


@virtually
async def test_execution_hears_again_of_an_exception_that_ends_the_tasks() -> None:
    async with alive(await stored([*PLAIN[:6], "exception"]), seconds=100) as life:
        await life.until(JOB)

        assert life.execution.told == [(JOB, "cancel")]


@virtually
async def test_what_was_being_started_when_it_was_cancelled_is_let_go_of_by_execution_first() -> (
    None
):
    journal = await stored([*TASK_SIGNALS[:9], "exception"])
    async with opened(journal) as kvs:
        await kvs.commit([create_namespace(keys.guest_namespace(JOB), OWNER)])
    async with alive(journal, plugins=[Perilog()], seconds=100) as life:
        names = await life.until(JOB)

        (start,) = life.execution.started
        assert start["reattach"] is False
        assert life.execution.told == [(JOB, "cancel")]
        assert names.index("finish") < names.index("epilog-start") < names.index("free")
        assert names.index("release") < names.index("free")


@virtually
async def test_a_job_that_is_over_is_known_and_left_alone() -> None:
    async with alive(await stored(PLAIN)) as life:
        await settle()

        assert life.job(JOB).state is State.INACTIVE
        assert life.job(JOB).result is Result.COMPLETED
        assert life.names(JOB) == PLAIN


@virtually
async def test_resources_that_were_written_down_and_not_given_are_not_believed() -> None:
    """Statement 003.33: after a restart the eventlog says that R is not allocated."""
    journal = await stored(PLAIN[:4], R=orjson.dumps(R))
    async with alive(journal, generous=False) as life:
        found = life.manager.find(JOB)

        assert found is not None
        assert found.r is None
        assert life.scheduler.given == {}


@virtually
async def test_what_was_changed_in_a_jobspec_stays_changed() -> None:
    names = [*PLAIN[:2], "jobspec-update", *PLAIN[2:4]]
    async with alive(await stored(names), generous=False) as life:
        await life.until(JOB, "flux-restart")

        asked = life.scheduler.waiting[JOB]["jobspec"]
        assert asked["attributes"]["system"]["duration"] == 7.0


@virtually
async def test_two_restarts_are_no_worse_than_one() -> None:
    journal = await stored(PLAIN[:6])
    for _ in range(3):
        async with alive(journal, seconds=100) as life:
            await settle()
            assert life.names(JOB) == PLAIN[:6]
    async with alive(journal) as life:
        assert await life.until(JOB) == PLAIN


@pytest.mark.parametrize("severity", [0, 7])
@pytest.mark.parametrize("at", ["alloc", "start", "finish", "release"])
@virtually
async def test_a_job_has_its_resources_whatever_its_user_has_said_of_the_scheduler(
    at: str, severity: int
) -> None:
    """Logs from before such exceptions were refused have them for ever."""
    end = PLAIN.index(at) + 1
    said = {"type": "scheduler-restart", "severity": severity, "note": "", "userid": OWNER + 1}
    journal = await stored([*PLAIN[:end], "exception"], JOB, said)
    async with alive(journal, seconds=100) as life:
        all_names = await life.until(JOB)

        # By a scheduler that takes back what it knows to be the job's, and nothing else.
        assert all_names.count("free") == 1
        assert life.scheduler.given == {}


# Ids


@virtually
async def test_ids_ascend_over_restarts() -> None:
    """Statement 003.14: the number of a job is unique, over restarts too."""
    journal = MemoryJournal()
    seen = []
    for _ in range(4):
        async with alive(journal) as life:
            seen += [await life.submit(), await life.submit()]

    assert seen == sorted(set(seen))


@virtually
async def test_the_id_of_a_lost_job_is_not_given_again() -> None:
    journal = MemoryJournal()
    async with alive(journal) as life:
        lost = await life.submit()
    async with opened(journal) as kvs:
        await kvs.commit([put(keys.job_key(lost, "eventlog"), b"rubbish")])
    async with alive(journal) as life:
        await settle()
        assert life.manager.find(lost) is None
    async with alive(journal) as life:
        assert await life.submit() > lost


# Lost and found


LOST = {
    "no jobspec": {"jobspec": b""},
    "no eventlog": {"eventlog": b""},
    "a jobspec that is no JSON": {"jobspec": b"{"},
    "a jobspec that is no object": {"jobspec": b"5"},
    "an eventlog that is no eventlog": {"eventlog": b"rubbish\n"},
    "an eventlog that is cut off": {"eventlog": b'{"timestamp":1.0,"name":"submit"'},
    "an eventlog that is not UTF-8": {"eventlog": b"\xff\n"},
    "a log that does not begin with submit": {"eventlog": b'{"timestamp":1.0,"name":"start"}\n'},
    "a submit that lacks its user": {"eventlog": b'{"timestamp":1.0,"name":"submit"}\n'},
    "resources that are no JSON": {"R": b"rubbish"},
}


@pytest.mark.parametrize("replaced", LOST.values(), ids=LOST)
@virtually
async def test_a_job_that_cannot_be_replayed_is_put_aside_and_the_rest_goes_on(
    replaced: dict[str, bytes],
) -> None:
    well = JobId(4 << 24)
    journal = await stored(PLAIN[:6], JOB, **replaced)
    journal.records += (await stored(PLAIN[:6], well)).records
    async with alive(journal) as life:
        assert await life.until(well) == PLAIN

        assert life.manager.find(JOB) is None
        assert life.kvs.names("job.0000.0000.0500") == []
        place = f"job-lost+found.job.{fluid.f58plain(JOB)}"
        kept = {key: life.kvs.get(f"{place}.{key}") for key in life.kvs.names(place)}
        assert kept["J"] == b"signed"
        assert kept.get("eventlog", b"") == replaced.get("eventlog", kept.get("eventlog"))


@virtually
async def test_a_job_that_was_never_validated_is_put_aside() -> None:
    async with alive(await stored(["submit"])) as life:
        await settle()

        assert life.manager.find(JOB) is None
        assert life.kvs.names("job-lost+found.job") == [fluid.f58plain(JOB)]


@virtually
async def test_an_event_that_is_not_allowed_where_it_stands_makes_a_job_unreplayable() -> None:
    async with alive(await stored(["submit", "validate", "start"])) as life:
        await settle()

        assert life.manager.find(JOB) is None
        assert life.kvs.names("job-lost+found.job") == [fluid.f58plain(JOB)]


@virtually
async def test_what_a_lost_job_has_printed_is_kept_with_it() -> None:
    journal = await stored(PLAIN[:6], eventlog=b"rubbish")
    guest = keys.guest_namespace(JOB)
    async with opened(journal) as kvs:
        await kvs.commit([create_namespace(guest, OWNER), link(keys.job_key(JOB, "guest"), guest)])
        await kvs.commit([append("output", b"printed", guest)])
    for _ in range(2):
        async with alive(journal) as life:
            await settle()

            place = f"job-lost+found.job.{fluid.f58plain(JOB)}"
            assert life.kvs.get(f"{place}.guest.output") == b"printed"
            assert life.kvs.owner(guest) is None
            assert life.kvs.names("job") == []


@virtually
async def test_what_is_no_job_at_all_does_not_keep_jobs_from_starting() -> None:
    journal = await stored(PLAIN[:6])
    async with opened(journal) as kvs:
        await kvs.commit([put("job.not.a.job.id", b"x"), put("job.note", b"x")])
    async with alive(journal) as life:
        assert await life.until(JOB) == PLAIN
        assert life.kvs.get("job.not.a.job.id") == b"x"


@virtually
async def test_a_lost_job_is_lost_once() -> None:
    journal = await stored(PLAIN[:6], eventlog=b"rubbish")
    for _ in range(3):
        async with alive(journal) as life:
            await settle()
            assert life.kvs.names("job-lost+found.job") == [fluid.f58plain(JOB)]
