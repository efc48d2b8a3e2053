"""What a plugin may do, what it hears, and what it costs when it fails."""

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.logs import capture_logs
from tests.harness.virtual import VirtualClock
from tests.instance.lives import PLAIN, Life, R, alive
from tests.instance.parts import GUEST, OWNER, refused, settle, virtually
from warren.instance.config import Config
from warren.instance.jobs.jobtap import (
    UNAVAILABLE,
    AllowedUpdate,
    Callbacks,
    Jobtap,
    Rejected,
    Update,
)
from warren.instance.jobs.plugins import builtin
from warren.instance.jobtables import JobManagerTable
from warren.journal import MemoryJournal
from warren.lifecycle.job import Job
from warren.lifecycle.states import Result, State
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request, RpcError

STATES = ["depend", "priority", "sched", "run", "cleanup", "inactive"]
TOPICS = [
    *["job.create", "job.validate", "job.new", "job.restart", "job.destroy", "job.update"],
    *[f"job.state.{state}" for state in STATES],
    *[f"job.event.{name}" for name in (*PLAIN, "flux-restart", "exception", "jobspec-update")],
    *["job.inactive-add", "job.inactive-remove"],
]


class Ear:
    """A plugin that does what it is told on some topics, and hears of all others."""

    name = "ear"

    def __init__(self, **actions: Callable[..., Any]) -> None:
        self.actions = {topic.replace("_", "."): action for topic, action in actions.items()}
        self.heard: list[str] = []

    def load(self, tap: Jobtap) -> Callbacks:
        self.tap = tap
        heard: dict[str, Callable[..., Any]] = {}
        for topic in TOPICS:
            heard[topic] = lambda job, topic=topic: self.heard.append(topic)
        return {**heard, **{topic: self._told(topic) for topic in self.actions}}

    def _told(self, topic: str) -> Callable[..., Any]:
        def told(*arguments: Any) -> Any:
            self.heard.append(topic)
            return self.actions[topic](self.tap, *arguments)

        return told


class Second(Ear):
    name = "second"


# What it hears


@virtually
async def test_a_plugin_hears_of_everything_once_and_in_order() -> None:
    ear = Ear()
    async with alive(plugins=[ear]) as life:
        await life.until(await life.submit())

        between = {"validate": "depend", "depend": "priority", "priority": "sched"}
        between |= {"alloc": "run", "finish": "cleanup", "clean": "inactive"}
        wanted = ["job.create", "job.validate", "job.new"]
        for name in PLAIN[1:]:
            wanted.append(f"job.event.{name}")
            if name in between:
                wanted.append(f"job.state.{between[name]}")
        assert ear.heard == [*wanted, "job.inactive-add", "job.destroy"]


@virtually
async def test_after_a_restart_it_hears_of_active_jobs_and_of_no_state_that_they_are_in() -> None:
    journal, ear = MemoryJournal(), Ear()
    async with alive(journal, generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")
        over = await life.submit()
        await life.cancel(over)
        await life.until(over)
    async with alive(journal, generous=False, plugins=[ear]) as life:
        await life.until(job, "flux-restart")

        assert ear.heard == [
            *["job.create", "job.new", "job.restart", "job.event.flux-restart"],
            *["job.state.priority", "job.event.priority", "job.state.sched"],
        ]


@virtually
async def test_who_subscribes_twice_hears_once_and_again_after_a_restart() -> None:
    heard: list[str] = []

    def subscribe(tap: Jobtap, job: Job) -> None:
        tap.subscribe(job.id)
        tap.subscribe(job.id)

    def event(tap: Jobtap, job: Job, event: Event) -> None:
        heard.append(event.name)

    actions: dict[str, Callable[..., Any]] = {"job.new": subscribe, "job.event.*": event}
    journal, plugin, deaf = MemoryJournal(), Ear(), Second()
    plugin.actions, deaf.actions = actions, {"job.event.*": event}
    async with alive(journal, generous=False, plugins=[plugin, deaf]) as life:
        job = await life.submit()
        await life.until(job, "priority")
    assert heard == PLAIN[1:4]
    async with alive(journal, generous=False, plugins=[plugin, deaf]) as life:
        await life.until(job, "flux-restart")
        assert heard == [*PLAIN[1:4], "flux-restart", "priority"]
        plugin.tap.unsubscribe(job)
        await life.cancel(job)
        await life.until(job)
        assert heard == [*PLAIN[1:4], "flux-restart", "priority"]


# What it knows


@virtually
async def test_a_plugin_looks_jobs_up() -> None:
    found: list[Any] = []

    def look(tap: Jobtap, job: Job) -> None:
        found.append(tap.lookup(job.id))
        assert tap.event_posted(job.id, "alloc")
        assert not tap.event_posted(job.id, "clean")
        found.append(tap.result(job.id))

    async with alive(plugins=[Ear(job_event_finish=look)]) as life:
        job = await life.submit(name="a")
        await life.until(job)

        seen, result = found
        assert (seen.id, seen.userid, seen.urgency, seen.priority) == (job, OWNER, 16, 16)
        assert (seen.state, seen.prev_state) == (State.CLEANUP, State.SCHED)
        assert (seen.entry.name, seen.end_event.name) == ("finish", "finish")
        assert seen.r == {key: value for key, value in R.items() if key != "scheduling"}
        assert result is Result.COMPLETED


@virtually
async def test_what_happened_before_a_restart_has_happened() -> None:
    journal, ear = MemoryJournal(), Ear()
    async with alive(journal, seconds=100) as life:
        job = await life.submit()
        await life.until(job, "start")
    async with alive(journal, seconds=100, plugins=[ear]) as life:
        assert ear.tap.event_posted(job, "start")
        assert ear.tap.job(job) == life.job(job)
        assert ear.tap.job(JobId(5)) is None
        assert errnum(lambda: ear.tap.lookup(JobId(5))) == errno.ENOENT
        assert errnum(lambda: ear.tap.result(job)) == errno.EINVAL
        assert errnum(lambda: ear.tap.result(JobId(5))) == errno.ENOENT


def errnum(action: Callable[[], object]) -> int:
    with pytest.raises(RpcError) as caught:
        action()
    return caught.value.errnum


@virtually
async def test_what_a_plugin_keeps_with_a_job_is_its_own_and_goes_with_it() -> None:
    one, two = Ear(), Second()
    async with alive(plugins=[one, two], generous=False) as life:
        job = await life.submit()
        one.tap.aux_set(job, "a", 1)
        assert (one.tap.aux_get(job, "a"), two.tap.aux_get(job, "a")) == (1, None)
        await life.cancel(job)
        await life.until(job)
        assert errnum(lambda: one.tap.aux_get(job, "a")) == errno.ENOENT


# What it may not


@virtually
async def test_what_a_jobs_state_does_not_allow_is_refused_and_changes_nothing() -> None:
    ear = Ear()
    async with alive(plugins=[ear], seconds=100) as life:
        job = await life.submit()
        await life.until(job, "start")
        before, tap = life.names(job), ear.tap

        for action in (
            lambda: tap.dependency_add(job, "a"),
            lambda: tap.prolog_start(job, "a"),
            lambda: tap.prolog_finish(job, "a", 0),
            lambda: tap.epilog_start(job, "a"),
            lambda: tap.epilog_finish(job, "a", 0),
            lambda: tap.set_flag(job, "purple"),
            lambda: tap.raise_exception(job, "a", 9, ""),
            lambda: tap.reprioritize_job(job, 5),
            lambda: tap.update_jobspec(job, {"attributes.system.duration": 5}),
            lambda: tap.update_jobspec(job, {}),
            lambda: tap.post(job, "priority", {"priority": -1}),
            lambda: tap.post(job, "noted\n", {}),
            lambda: tap.post(job, "noted", {"a": object()}),
            lambda: tap.allocate(job, R),
        ):
            assert errnum(action) == errno.EINVAL
        assert errnum(lambda: tap.dependency_remove(job, "a")) == errno.ENOENT
        await settle()
        assert life.names(job) == before


@virtually
async def test_a_dependency_holds_once() -> None:
    ear = Ear(job_state_depend=lambda tap, job: tap.dependency_add(job.id, "a"))
    async with alive(plugins=[ear]) as life:
        job = await life.submit()
        ear.tap.dependency_add(job, "b")
        ear.tap.dependency_add(job, "a")
        ear.tap.dependency_remove(job, "a")
        assert errnum(lambda: ear.tap.dependency_add(job, "a")) == errno.EEXIST
        await settle()
        assert [event.context for event in life.log(job)[2:]] == [
            *[{"description": name} for name in ("a", "b", "a")]
        ]


# Priorities


@virtually
async def test_a_plugin_says_where_a_job_stands() -> None:
    answers: dict[int, Any] = {}
    ear = Ear()
    ear.actions = {"job.priority.get": lambda tap, job: answers.get(job.userid)}
    async with alive(plugins=[ear], generous=False) as life:
        answers[GUEST] = 5
        mine, theirs = await life.submit(), await life.submit_as(GUEST)
        await settle()
        assert (life.job(mine).priority, life.job(theirs).priority) == (16, 5)

        answers[GUEST] = 50
        ear.tap.reprioritize_all()
        ear.tap.reprioritize_job(mine, 7)
        ear.tap.reprioritize_job(mine, 7)
        await settle()
        assert life.scheduler.prioritized == [(theirs, 50), (mine, 7)]
        assert life.job(mine).state is State.SCHED


@virtually
async def test_a_job_waits_until_its_priority_can_be_said() -> None:
    answers: list[Any] = [UNAVAILABLE]
    ear = Ear()
    ear.actions = {"job.priority.get": lambda tap, job: answers[0]}
    async with alive(plugins=[ear]) as life:
        job = await life.submit()
        await asyncio.sleep(10)
        assert life.job(job).state is State.PRIORITY

        answers[0] = 3
        ear.tap.reprioritize_all()
        await life.until(job)


# Changes


@virtually
async def test_a_plugin_allows_a_change_and_looks_at_what_comes_of_it() -> None:
    seen: list[Any] = []

    def allow(tap: Jobtap, job: Job, update: Update) -> AllowedUpdate:
        seen.append(update.value)
        return AllowedUpdate(updates={"attributes.system.b": 2}, check_feasibility=True)

    def validate(tap: Jobtap, job: Job) -> None:
        if tap.jobspec(job.id)["attributes"]["system"].get("a") == "bad":
            raise Rejected("a is bad")

    async def feasible(request: Request) -> Payload:
        if request.payload["jobspec"]["attributes"]["system"]["a"] == "huge":
            raise RpcError(errno.EINVAL, "nobody has as much")
        return {}

    ear = Ear()
    ear.actions = {"job.update.attributes.system.a": allow, "job.validate": validate}
    async with alive(plugins=[ear], generous=False) as life:
        job = await life.submit()
        ask = life.bus.handle().rpc

        def change(value: Any) -> Any:
            return ask("job-manager.update", {"id": job, "updates": {"attributes.system.a": value}})

        await change(1)
        life.bus.register("feasibility", {"check": Method(feasible)})
        for value, why in (("bad", "a is bad"), ("huge", "nobody has as much")):
            with pytest.raises(RpcError, match=why):
                await change(value)
        assert seen == [1, "bad", "huge"]
        found = ear.tap.jobspec(job)["attributes"]["system"]
        assert (found["a"], found["b"]) == (1, 2)
        assert life.names(job).count("jobspec-update") == 1
        assert ear.heard.count("job.update") == 1


# Services


@virtually
async def test_a_service_of_a_plugin_is_the_owners_unless_it_says_otherwise() -> None:
    async def answer(request: Request) -> Payload:
        return {}

    class Server(Ear):
        def load(self, tap: Jobtap) -> Callbacks:
            tap.register({"closed": Method(answer, guest=True)})
            tap.register_ex({"open": Method(answer, guest=True)})
            return {"plugin.query": lambda: {"a": 1}}

    async with alive(plugins=[Server()]) as life:
        guest, owner = life.bus.handle(GUEST).rpc, life.bus.handle().rpc
        assert await refused(guest("job-manager.ear.closed")) == errno.EPERM
        assert await guest("job-manager.ear.open") == await owner("job-manager.ear.closed") == {}
        queried = await owner("job-manager.jobtap-query", {"name": "ear"})
        assert queried == {"name": "ear", "a": 1}


@virtually
async def test_plugins_call_each_other() -> None:
    one, two = Ear(), Second()
    one.actions, two.actions = {"x.y": lambda tap, job, n: n}, {"x.y": lambda tap, job, n: n + 1}
    async with alive(plugins=[one, two], generous=False) as life:
        job = await life.submit()
        assert one.tap.call(job, "x.y", 1) == [1, 2]


def test_two_plugins_have_two_names() -> None:
    async def story() -> None:
        async with alive(plugins=[Ear(), Ear()]):
            pass

    with pytest.raises(ValueError, match="there is a plugin ear already"):
        asyncio.run(story())


# When it fails


def fail(tap: Jobtap, *arguments: Any) -> None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("topic", ["job.create", "job.validate", "job.new", "job.dependency.x"])
@virtually
async def test_a_plugin_that_fails_where_jobs_come_in_refuses_the_job(topic: str) -> None:
    ear = Ear()
    ear.actions = {topic: fail}
    async with alive(plugins=[ear]) as life:
        attributes = {"dependencies": [{"scheme": "x", "value": ""}]}
        with pytest.raises(RpcError, match=f"plugin ear failed on {topic}"):
            await life.submit(attributes=attributes if "dependency" in topic else {})
        assert list(life.manager.jobs()) == []
        assert ear.heard[-1] == "job.destroy"


@pytest.mark.parametrize(
    "topic", ["job.state.depend", "job.state.sched", "job.state.run", "job.event.start"]
)
@virtually
async def test_a_plugin_that_fails_ends_the_job_and_no_other(topic: str) -> None:
    failed: list[JobId] = []

    def fail_once(tap: Jobtap, job: Job) -> None:
        if not failed or job.id in failed:
            failed.append(job.id)
            raise RuntimeError("a bug")

    ear = Ear()
    ear.actions = {topic: fail_once}
    async with alive(plugins=[ear], seconds=100) as life:
        bad, good = await life.submit(), await life.submit()
        await life.until(bad)
        await life.until(good)

        fatal = life.job(bad).fatal_exception
        assert fatal is not None
        assert fatal.type == "plugin"
        assert fatal.note == f"plugin ear failed on {topic}: the instance's log says why"
        assert life.job(good).result is Result.COMPLETED
        assert life.scheduler.given == {}


@pytest.mark.parametrize(
    "topic",
    [
        *["job.event.exception", "job.state.cleanup", "job.state.inactive", "job.destroy"],
        *["job.inactive-add", "job.event.clean", "job.event.free", "job.priority.get"],
    ],
)
@virtually
async def test_a_job_ends_though_a_plugin_fails_at_its_end(topic: str) -> None:
    ear = Ear()
    ear.actions = {topic: fail}
    async with alive(plugins=[ear], seconds=100) as life:
        job = await life.submit()
        await life.until(job, "start")
        await life.cancel(job)
        await life.until(job)

        assert life.job(job).result is Result.CANCELED
        assert life.names(job).count("exception") == 1


# Resources of one's own


async def bypassing(life: Life, who: int = OWNER, r: Any = R) -> JobId:
    return await life.submit_as(who, attributes={"alloc-bypass": {"R": r}})


@virtually
async def test_an_action_at_a_moment_that_fails_is_told_and_costs_no_other() -> None:
    done: list[int] = []
    ear = Ear()

    def fail() -> None:
        raise KeyError("a bug")

    async with alive(plugins=[ear]) as life:
        ear.tap.call_at(0.0, fail)
        ear.tap.call_at(0.0, lambda: done.append(1))
        with capture_logs() as logs:
            await settle()
        assert done == [1]
        assert [each["event"] for each in logs] == ["action of a timer failed"]
        await life.until(await life.submit())


@virtually
async def test_a_job_may_bring_its_resources() -> None:
    journal = MemoryJournal()
    plugins = builtin(VirtualClock(), OWNER)
    async with alive(journal, plugins=plugins, generous=False, seconds=100) as life:
        job = await bypassing(life)
        await life.until(job, "start")
        assert life.names(job)[:3] == ["submit", "set-flags", "validate"]
        assert life.scheduler.waiting == life.scheduler.given == {}
    async with alive(journal, plugins=builtin(VirtualClock(), OWNER)) as life:
        await life.until(job)
        assert life.scheduler.given == {}
        assert life.job(job).result is Result.COMPLETED


@virtually
async def test_resources_of_ones_own_are_for_the_owner_and_must_be_some() -> None:
    async with alive(plugins=builtin(VirtualClock(), OWNER)) as life:
        assert await refused(bypassing(life, GUEST)) == errno.EINVAL
        for r in (5, {}, {"version": 1}, None):
            assert await refused(bypassing(life, r=r)) == errno.EINVAL


# The configuration


@virtually
async def test_a_plugin_is_told_the_configuration() -> None:
    told: list[Config] = []
    ear = Ear()
    ear.actions = {"conf.update": lambda tap, config: told.append(config)}
    config = Config(job_manager=JobManagerTable(inactive_num_limit=5))
    async with alive(plugins=[ear], config=config):
        assert told == [config]
