"""The queues of a living instance: what comes in, what is served, what is waited for."""

import asyncio
import errno
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.instance.instance import machine
from tests.instance.lives import Life, alive, spec
from tests.instance.parts import GUEST, OWNER, SlowDisk, refused, settle, virtually
from warren.instance import config, keys
from warren.instance.kvs import put
from warren.instance.simulated import TaskBehavior
from warren.instance.users import User
from warren.journal import MemoryJournal
from warren.lifecycle.states import State
from warren.rfc import jobspec, signed_request
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError

SITE = config.parse(
    """
    [access]
    allow-guest-user = true
    [policy.jobspec.defaults.system]
    queue = "batch"
    [policy.limits]
    job-size.max.nnodes = 4

    [resource.properties]
    debug = "node[2-3]"

    [queues.batch]
    [queues.debug]
    requires = ["debug"]
    [queues.debug.policy]
    limits = { duration = "1h", job-size.max.nnodes = 1 }
    jobspec.defaults.system.duration = "10m"
    [queues.closed]
    policy.access = { allow-user = ["alice"], allow-group = ["staff"] }
    [queues.short]
    parent = "batch"
    """
)
ALONE = config.parse("")


async def ask(life: Life, method: str, **request: Any) -> Mapping[str, Any]:
    return await life.bus.handle().rpc(f"job-manager.{method}", request)


async def start_all(life: Life) -> None:
    await ask(life, "queue-start", start=True, all=True)


def kept(life: Life, job: JobId) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(life.kvs.lookup(keys.job_key(job, "jobspec")))
    return found["attributes"]["system"]  # type: ignore[no-any-return]


def known(names: Mapping[int, User]) -> Any:
    async def who(userid: int) -> User:
        return names[userid]

    return who


# Coming in


@virtually
async def test_a_job_has_the_queue_and_the_time_limit_that_it_does_not_name() -> None:
    async with alive(config=SITE) as life:
        plain = await life.submit()
        debug = await life.submit(attributes={"queue": "debug"})

        assert kept(life, plain)["queue"] == "batch"
        assert kept(life, debug)["duration"] == 600
        assert kept(life, debug)["constraints"] == {"properties": ["debug"]}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"attributes": {"queue": "x"}}, "There is no queue 'x': name one of batch, debug, "),
        ({"nodes": 5, "tasks": 5}, "asks for 5 nnodes, and queue batch allows 4"),
        (
            {"nodes": 2, "tasks": 2, "attributes": {"queue": "debug"}},
            "asks for 2 nnodes, and queue debug allows 1",
        ),
        (
            {"duration": 3601, "attributes": {"queue": "debug"}},
            "a time limit of 1.00028h, and queue debug allows 1h",
        ),
    ],
)
@virtually
async def test_a_job_that_its_queue_does_not_take_is_refused(
    options: dict[str, Any], words: str
) -> None:
    async with alive(config=SITE) as life:
        with pytest.raises(RpcError) as caught:
            await life.submit(**options)
        assert caught.value.errnum == errno.EINVAL
        assert words in str(caught.value)
        assert list(life.manager.jobs()) == []


@virtually
async def test_a_job_names_no_queue_where_there_are_none() -> None:
    async with alive() as life:
        with pytest.raises(RpcError, match="There is no queue 'batch': there are none"):
            await life.submit(attributes={"queue": "batch"})


@pytest.mark.parametrize(
    ("user", "errnum"),
    [
        (User("alice"), 0),
        (User("bob", frozenset({"staff"})), 0),
        (User("bob", frozenset({"users"})), errno.EPERM),
        (User(None), errno.EPERM),
    ],
)
@virtually
async def test_a_queue_is_for_the_users_and_groups_that_it_names(user: User, errnum: int) -> None:
    async with alive(config=SITE, look_up_user=known({GUEST: user})) as life:
        payload = orjson.dumps(spec(attributes={"queue": "closed"}))
        token = f"{signed_request.signed_part(payload, GUEST, 'munge')}.MUNGE:AAAA:"
        asked = life.bus.handle(GUEST).rpc("job-ingest.submit", {"J": token})

        if errnum:
            assert await refused(asked) == errnum
        else:
            assert life.job((await asked)["id"]).userid == GUEST


@virtually
async def test_who_cannot_be_looked_up_now_may_try_again() -> None:
    async def nobody_answers(userid: int) -> User:
        raise TimeoutError

    async with alive(config=SITE, look_up_user=nobody_answers) as life:
        assert await refused(life.submit(attributes={"queue": "closed"})) == errno.EAGAIN


@virtually
async def test_a_disabled_queue_takes_no_jobs_and_says_why() -> None:
    async with alive(config=SITE) as life:
        await ask(life, "queue-enable", name="debug", enable=False, reason="we move")

        with pytest.raises(RpcError, match="job submission to debug is disabled: we move"):
            await life.submit(attributes={"queue": "debug"})
        await life.submit()
        await ask(life, "queue-enable", name="debug", enable=True)
        await life.submit(attributes={"queue": "debug"})


@virtually
async def test_not_even_who_is_not_validated_passes_a_disabled_queue() -> None:
    async with alive() as life:
        await ask(life, "queue-enable", enable=False)

        with pytest.raises(RpcError, match="job submission is disabled"):
            await life.submit_spec(spec(), flags=8)


# Being served


@virtually
async def test_named_queues_wait_to_be_started() -> None:
    async with alive(config=SITE) as life:
        job = await life.submit()
        await settle()
        assert life.job(job).state is State.SCHED

        await ask(life, "queue-start", name="batch", start=True)

        assert (await life.until(job))[-1] == "clean"


@virtually
async def test_what_waits_is_withdrawn_from_the_scheduler_before_a_stop_is_answered() -> None:
    async with alive(config=SITE, generous=False) as life:
        await start_all(life)
        batch, debug = await life.submit(), await life.submit(attributes={"queue": "debug"})
        short = await life.submit(attributes={"queue": "short"})
        await settle()
        assert life.scheduler.waiting.keys() == {batch, debug, short}

        await ask(life, "queue-start", name="batch", start=False)

        assert life.scheduler.waiting.keys() == {debug}
        await ask(life, "queue-start", name="batch", start=True)
        assert life.scheduler.waiting.keys() == {batch, debug, short}


@virtually
async def test_a_job_that_runs_is_not_disturbed_when_its_queue_stops() -> None:
    async with alive(seconds=10) as life:
        job = await life.submit()
        await life.until(job, "start")
        await ask(life, "queue-start", start=False)

        assert "exception" not in await life.until(job)


@virtually
async def test_no_change_is_seen_before_it_is_durable() -> None:
    disk = SlowDisk()
    async with alive(disk) as life:
        change = asyncio.ensure_future(ask(life, "queue-enable", enable=False, reason="why"))
        await settle()
        assert (await ask(life, "queue-status"))["enable"]

        disk.free.set()
        await change

        assert not (await ask(life, "queue-status"))["enable"]


@virtually
async def test_a_change_comes_into_force_also_when_its_client_has_gone() -> None:
    disk = SlowDisk()
    async with alive(disk) as life:
        change = asyncio.ensure_future(ask(life, "queue-enable", enable=False, reason="why"))
        await settle()
        change.cancel()
        await ask(life, "queue-start", start=False, nocheckpoint=True)
        assert (await ask(life, "queue-status"))["enable"]
        disk.free.set()
        await settle()

        assert await ask(life, "queue-status") == {
            "enable": False,
            "start": False,
            "disable_reason": "why",
        }


# Restarts


@virtually
async def test_queues_stand_after_a_restart_as_they_stood_before() -> None:
    journal = MemoryJournal()
    async with alive(journal, config=SITE) as life:
        await start_all(life)
        await ask(life, "queue-start", name="closed", start=False, nocheckpoint=True)
        await ask(life, "queue-start", name="batch", start=False, reason="repair")
        await ask(life, "queue-enable", name="debug", enable=False, reason="we move")
        before = [await ask(life, "queue-status", name=name) for name in SITE.queues]
    async with alive(journal, config=SITE) as life:
        after = [await ask(life, "queue-status", name=name) for name in SITE.queues]

    assert [status["start"] for status in before] == [False, True, False, False]
    assert [status["start"] for status in after] == [False, True, True, False]
    assert after[:2] == before[:2]
    assert after[3] == before[3]


@virtually
async def test_a_job_waits_through_a_restart_for_its_queue_to_be_started() -> None:
    journal = MemoryJournal()
    async with alive(journal, config=SITE) as life:
        job = await life.submit()
    async with alive(journal, config=SITE) as life:
        await settle()
        assert life.job(job).state is State.SCHED
        assert life.scheduler.waiting == {}
        await start_all(life)
        await life.until(job)


@virtually
async def test_a_checkpoint_that_cannot_be_read_leaves_queues_as_they_are_at_first() -> None:
    journal = MemoryJournal()
    async with alive(journal) as life:
        await ask(life, "queue-enable", enable=False)
        await life.kvs.commit([put("checkpoint.queues", b"[")])
    async with alive(journal) as life:
        assert await ask(life, "queue-status") == {"enable": True, "start": True}


@virtually
async def test_jobs_of_a_queue_that_is_no_more_wait_and_are_told_once() -> None:
    journal = MemoryJournal()
    async with alive(journal, config=SITE) as life:
        job = await life.submit(attributes={"queue": "debug"})
    fewer = config.parse("[queues.batch]")
    for _ in range(2):
        async with alive(journal, config=fewer) as life:
            await start_all(life)
            await settle()
            assert life.scheduler.waiting == {}
            assert life.job(job).state is State.SCHED
            [problem] = life.job(job).exceptions
            assert (problem.type, problem.severity) == ("queue", 4)
            assert "its queue debug is not configured any more" in problem.note
    async with alive(journal, config=SITE) as life:
        await start_all(life)
        await life.until(job)


@virtually
async def test_jobs_from_before_there_were_queues_wait_and_are_told_once() -> None:
    journal = MemoryJournal()
    async with alive(journal, generous=False) as life:
        job = await life.submit()
    async with alive(journal, config=SITE) as life:
        await start_all(life)
        await settle()
        assert life.scheduler.waiting == {}
        assert "it has no queue" in life.job(job).exceptions[0].note


@virtually
async def test_a_job_that_runs_outlives_its_queue() -> None:
    journal = MemoryJournal()
    async with alive(journal, config=SITE, seconds=10) as life:
        await start_all(life)
        job = await life.submit(attributes={"queue": "debug"})
        await life.until(job, "start")
    async with alive(journal, config=config.parse("[queues.batch]")) as life:
        assert "exception" not in await life.until(job)


NAMES = st.sampled_from([*SITE.queues])
ACTIONS = st.one_of(
    st.tuples(st.just("submit"), NAMES),
    st.tuples(st.just("start"), NAMES),
    st.tuples(st.just("stop"), NAMES),
    st.tuples(st.just("stop for now"), NAMES),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(ACTIONS, max_size=5), min_size=1, max_size=4))
def test_those_jobs_are_before_the_scheduler_whose_queues_are_started(
    lives: list[list[tuple[str, str]]],
) -> None:
    @virtually
    async def live() -> None:
        journal = MemoryJournal()
        jobs: dict[JobId, str] = {}
        lasting: set[str] = set()
        for actions in lives:
            started = set(lasting)
            async with alive(
                journal, config=SITE, generous=False, look_up_user=known(alices)
            ) as life:
                for action, name in actions:
                    if action == "submit":
                        jobs[await life.submit(attributes={"queue": name})] = name
                        await settle()
                    else:
                        change = {"name": name, "start": action == "start"}
                        await ask(life, "queue-start", nocheckpoint="now" in action, **change)
                    if action == "start":
                        started.add(name)
                        lasting.add(name)
                    elif action != "submit":
                        started.discard(name)
                    if action == "stop":
                        lasting.discard(name)
                    served = started - ({"short"} if "batch" not in started else set())
                    assert life.scheduler.waiting.keys() == {
                        job for job, queue in jobs.items() if queue in served
                    }

    alices = {OWNER: User("alice")}
    live()


# Waiting


@virtually
async def test_idle_waits_for_those_that_run_and_says_how_many_wait() -> None:
    async with alive(config=SITE, seconds=10) as life:
        await start_all(life)
        running = await life.submit()
        await life.until(running, "start")
        await ask(life, "queue-start", start=False, all=True)
        await life.submit()
        await life.submit(attributes={"queue": "debug"})

        assert await ask(life, "idle") == {"pending": 2}
        assert life.names(running)[-1] == "clean"


@virtually
async def test_idle_waits_for_the_scheduler_to_let_go() -> None:
    async with alive(generous=False) as life:
        job = await life.submit()
        idle = asyncio.ensure_future(ask(life, "idle"))
        await asyncio.sleep(60)
        assert not idle.done()

        await ask(life, "queue-start", start=False)

        assert await idle == {"pending": 1}
        assert life.job(job).state is State.SCHED


@virtually
async def test_drain_waits_until_all_jobs_are_gone() -> None:
    async with alive(config=SITE, seconds=10) as life:
        jobs = [await life.submit(), await life.submit(attributes={"queue": "debug"})]
        drained = asyncio.ensure_future(ask(life, "drain"))
        await asyncio.sleep(60)
        assert not drained.done()
        await start_all(life)

        assert await drained == {}
        assert [life.names(job)[-1] for job in jobs] == ["clean", "clean"]


@virtually
async def test_one_queue_is_waited_for_alone() -> None:
    async with alive(config=SITE, seconds=10) as life:
        await ask(life, "queue-start", name="debug", start=True)
        await life.submit()
        job = await life.submit(attributes={"queue": "debug"})

        assert await ask(life, "idle", name="debug") == {"pending": 0}
        assert await ask(life, "drain", name="debug") == {}
        assert life.names(job)[-1] == "clean"
        assert await ask(life, "idle", name="batch") == {"pending": 1}


@virtually
async def test_what_waits_and_what_runs_is_counted() -> None:
    async with alive(config=SITE, generous=False, seconds=10) as life:
        await ask(life, "queue-start", name="debug", start=True)
        running = await life.submit(attributes={"queue": "debug"})
        await settle()
        await life.scheduler.give(running)
        await life.submit(attributes={"queue": "debug"})
        await life.submit()
        await settle()

        assert await ask(life, "alloc-query") == {
            "queue_length": 1,
            "alloc_pending": 1,
            "running": 1,
        }


# Asking


@virtually
async def test_queues_are_listed_by_name_and_the_nameless_one_is_not() -> None:
    async with alive(config=SITE) as life:
        assert await ask(life, "queue-list") == {"queues": ["batch", "debug", "closed", "short"]}
    async with alive() as life:
        assert await ask(life, "queue-list") == {"queues": []}


@virtually
async def test_a_virtual_queue_is_blocked_by_its_parent() -> None:
    async with alive(config=SITE) as life:
        await ask(life, "queue-start", name="short", start=True)

        assert await ask(life, "queue-status", name="short") == {
            "enable": True,
            "start": False,
            "stop_reason": "it was never started",
            "blocked": "parent",
            "parent": "batch",
        }


@pytest.mark.parametrize(
    ("method", "request_", "errnum", "words"),
    [
        ("queue-status", {"name": "x"}, errno.EINVAL, "There is no queue 'x'"),
        ("queue-status", {}, errno.EINVAL, "There are named queues: name one of batch"),
        ("queue-status", {"name": 5}, errno.EPROTO, "takes name as a string"),
        ("queue-enable", {"name": "batch"}, errno.EPROTO, "takes enable as true or false"),
        ("queue-enable", {"enable": False}, errno.EINVAL, "or say all of them"),
        ("queue-start", {"start": 1, "all": True}, errno.EPROTO, "takes start as true or false"),
        ("queue-start", {"start": True, "name": "x"}, errno.EINVAL, "There is no queue 'x'"),
        ("queue-start", {"start": True, "all": True, "reason": 5}, errno.EPROTO, "reason"),
        ("drain", {"name": "x"}, errno.EINVAL, "There is no queue 'x'"),
    ],
)
@virtually
async def test_what_is_not_asked_rightly_changes_nothing(
    method: str, request_: dict[str, Any], errnum: int, words: str
) -> None:
    journal = MemoryJournal()
    async with alive(journal, config=SITE) as life:
        with pytest.raises(RpcError) as caught:
            await ask(life, method, **request_)
        await settle()
    assert caught.value.errnum == errnum
    assert words in str(caught.value)
    assert journal.records == []


@virtually
async def test_guests_may_look_and_change_nothing() -> None:
    async with alive(config=SITE) as life:
        guest = life.bus.handle(GUEST)
        assert (await guest.rpc("job-manager.queue-list"))["queues"]
        assert (await guest.rpc("job-manager.queue-status", {"name": "batch"}))["enable"]
        assert await guest.rpc("job-manager.alloc-query")
        for method in ("drain", "idle"):
            assert await refused(guest.rpc(f"job-manager.{method}")) == errno.EPERM
        for method, what in (("queue-enable", "enable"), ("queue-start", "start")):
            change = {"name": "batch", what: True}
            assert await refused(guest.rpc(f"job-manager.{method}", change)) == errno.EPERM


# Updates


@pytest.mark.parametrize(
    ("updates", "owner", "result"),
    [
        (
            {"attributes.system.queue": "debug"},
            False,
            {
                "attributes.system.queue": "debug",
                "attributes.system.constraints": {"properties": ["debug"]},
            },
        ),
        ({"attributes.system.duration": 60}, False, None),
        ({"attributes.system.duration": 7200, "attributes.system.queue": "batch"}, False, None),
        ({"attributes.system.queue": "x"}, True, "There is no queue 'x'"),
        ({"attributes.system.duration": -1}, True, "attributes.system.duration is not a number"),
        (
            {"attributes.system.queue": "debug", "attributes.system.duration": 7200},
            False,
            "queue debug allows 1h",
        ),
        ({"attributes.system.queue": "closed"}, False, "not open to bob"),
    ],
)
@virtually
async def test_an_update_is_judged_as_a_submission_is(
    updates: dict[str, Any], owner: bool, result: Any
) -> None:
    async with alive(config=SITE, look_up_user=known({GUEST: User("bob")})) as life:
        job = jobspec.update(spec(duration=600), {"attributes.system.queue": "batch"})
        asked = life.queues.resolve_updates(job, updates, GUEST, by_owner=owner)
        if isinstance(result, str):
            with pytest.raises(RpcError, match=result):
                await asked
        else:
            assert await asked == (result or updates)


@virtually
async def test_a_job_in_a_closed_queue_may_change_but_not_come_from_another_one() -> None:
    async with alive(config=SITE) as life:
        job = life.queues.with_queue_defaults(spec(duration=600, attributes={"queue": "debug"}))
        await ask(life, "queue-enable", enable=False, all=True, reason="we move")
        shorter, away = {"attributes.system.duration": 60}, {"attributes.system.queue": "batch"}

        assert await life.queues.resolve_updates(job, shorter, GUEST, by_owner=False) == shorter
        with pytest.raises(RpcError, match="job submission to batch is disabled: we move"):
            await life.queues.resolve_updates(job, away, GUEST, by_owner=False)
        assert (
            await life.queues.resolve_updates(job, away, OWNER, by_owner=True)
        ).keys() > away.keys()


@virtually
async def test_the_owner_is_not_held_to_the_limits_of_a_queue() -> None:
    async with alive(config=SITE, look_up_user=known({})) as life:
        job = jobspec.update(spec(duration=600), {"attributes.system.queue": "debug"})
        longer = {"attributes.system.duration": 1e6}

        assert await life.queues.resolve_updates(job, longer, GUEST, by_owner=True) == longer


# With real parts


@virtually
async def test_jobs_of_every_queue_live_their_whole_lives() -> None:
    async with machine(TaskBehavior(seconds=3)) as world, world.instance(settings=SITE) as flux:
        owner = flux.bus.handle()
        jobs = [
            await flux.submit(),
            await flux.submit(attributes={"queue": "debug"}, duration=60),
            await flux.submit(attributes={"queue": "short"}, nodes=2, tasks=4),
            await flux.submit(nodes=None, tasks=3),
        ]
        await owner.rpc("job-manager.queue-start", {"start": True, "all": True})
        await owner.rpc("job-manager.drain")

        assert [flux.job(job).wait_status for job in jobs] == [0, 0, 0, 0]
        assert [flux.names(job)[-1] for job in jobs] == ["clean"] * 4
