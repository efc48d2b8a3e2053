"""Whatever a job manager has lived through, its logs tell the same."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.harness import virtual
from tests.harness.virtual import EPOCH, VirtualClock
from tests.instance.lives import Life, Perilog, alive
from tests.instance.parts import OWNER, settle
from warren.instance.jobs.plugins.after import After
from warren.instance.jobs.plugins.begin_time import BeginTime
from warren.instance.jobs.plugins.singleton import Singleton
from warren.instance.jobs.plugins.updates import Updates
from warren.journal import MemoryJournal
from warren.lifecycle.job import Job, replay
from warren.lifecycle.states import State
from warren.rfc import fluid
from warren.rfc.fluid import JobId
from warren.rfc.jobflags import DEBUG, WAITABLE
from warren.rpc.message import RpcError

Action = tuple[str, int, int]
"""What is done, to which job, and a number of which it makes what it likes."""

ACTIONS = ["submit", "submit", "wait", "raise", "urgency", "memo", "update", "explain", "give"]
EVENTS = ["noted", "set-flags", "epilog-start", "exception", "partial-free", "release", "finish"]
CONTEXTS: dict[str, dict[str, Any]] = {
    "set-flags": {"flags": ["debug"]},
    "epilog-start": {"description": "x"},
    "exception": {"type": "oom", "severity": 3},
    "release": {"ranks": "0", "final": False},
    "finish": {"status": 7},
}
actions = st.lists(
    st.tuples(st.sampled_from([*ACTIONS, *EVENTS]), st.integers(0, 5), st.integers(0, 5)),
    min_size=3,
    max_size=25,
)


async def submit(life: Life, jobs: Sequence[JobId], about: int, number: int) -> JobId:
    wanted = [
        {"scheme": "singleton", "value": ""},
        {"scheme": "begin-time", "value": str(EPOCH + 50 * number)},
    ][: number % 3]
    if jobs and number > 2:
        scheme = ["afterany", "afterok", "afternotok"][number % 3]
        wanted.append({"scheme": scheme, "value": fluid.f58(jobs[about % len(jobs)])})
    attributes = {"dependencies": wanted} if wanted else {}
    flags = [0, WAITABLE, DEBUG][about % 3]
    return await life.submit_as(OWNER, flags, name=f"job{about % 2}", attributes=attributes)


async def do(life: Life, perilog: Perilog, jobs: list[JobId], action: Action) -> None:
    what, about, number = action
    if what == "submit" or not jobs:
        jobs.append(await submit(life, jobs, about, number))
        return
    job = jobs[about % len(jobs)]
    request: dict[str, dict[str, Any]] = {
        "raise": {"type": "cancel", "severity": number % 2},
        "urgency": {"urgency": number},
        "memo": {"memo": {"a": {"b": number}}},
        "update": {"updates": {"attributes.system.duration": number}},
    }
    if what == "wait":
        await asyncio.sleep(20 * number)
    elif what == "give":
        await life.scheduler.give(job)
    elif what == "explain" and job in life.scheduler.waiting:
        life.scheduler.explain(job, f"reason {number}")
    elif what in request:
        await life.bus.handle().rpc(f"job-manager.{what}", {"id": job, **request[what]})
    elif what == "partial-free":
        perilog.tap.release(job, {0})  # by the event alone, the scheduler would not know of it
    elif what in EVENTS:
        life.manager.post(job, what, CONTEXTS.get(what, {}))


def durable(job: Job) -> Job:
    """A job without what only the living know."""
    return replace(job, annotations={})


@settings(max_examples=60, deadline=None)
@given(actions)
def test_the_logs_of_a_life_tell_what_was_lived(actions: list[Action]) -> None:
    """Statement 003.29: a restart recovers the state of all jobs from their eventlogs."""

    async def story() -> None:
        journal, jobs = MemoryJournal(), list[JobId]()
        before = parts()
        async with alive(journal, plugins=before, generous=False, seconds=30) as life:
            for action in actions:
                with suppress(RpcError):
                    await do(life, before[-1], jobs, action)
            await settle()
            lived = {job: durable(life.job(job)) for job in jobs}
            for job in jobs:
                assert durable(replay(job, life.log(job))) == lived[job]
            specs = {each.job.id: each.jobspec for each in life.manager.jobs()}
        after = parts()
        async with alive(journal, plugins=after, generous=False, seconds=30) as life:
            for job in jobs:
                found = life.manager.find(job)
                assert found is not None
                assert found.jobspec == specs[job]
                if lived[job].state is State.INACTIVE:
                    assert durable(found.job) == lived[job]
                else:
                    assert found.job.dependencies <= lived[job].dependencies
                    assert found.job.ever_dependencies == lived[job].ever_dependencies
                    assert found.job.flags == lived[job].flags
            # Of one that waits no more it is forgotten what it has waited for.
            waiting = {id for id in jobs if life.job(id).dependencies}
            for one, other in zip(waits(before), waits(after), strict=True):
                assert known(one, waiting) == known(other, waiting)

    virtual.run(story())


def parts() -> list[Any]:
    return [
        After(OWNER),
        BeginTime(),
        Singleton(),
        Updates(VirtualClock()),
        Perilog(),
    ]


def waits(plugins: Sequence[Any]) -> list[dict[JobId, Any]]:
    """What the plugins know of jobs that wait."""
    after, begin_time, singleton, *_ = plugins
    moments = {job: len(cancels) for job, cancels in begin_time._cancels.items()}
    return [after._waiting, moments, singleton._keys]


def known(told: dict[JobId, Any], waiting: set[JobId]) -> dict[JobId, Any]:
    return {job: told[job] for job in told if job in waiting}
