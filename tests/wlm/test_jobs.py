"""The embedded instance as a workload manager, and its RPCs to the letter."""

import asyncio
import base64
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import orjson
import pytest
from msgspec.structs import replace

from tests.harness import virtual
from tests.harness.logs import capture_logs
from tests.harness.world import DIRECTIVES, World, opened
from warren.base.errors import UserMistake
from warren.daemons.compose import Control
from warren.dws.binding import Phase
from warren.dws.jobs.jobsnapshot import Job
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result, State
from warren.rfc import jobspec, treeobj
from warren.rpc.bus import Method
from warren.rpc.message import Cred, Payload, Request, RpcError
from warren.wlm import codec
from warren.wlm import jobs as jobs_module
from warren.wlm.jobs import FluxJobs, UnknownUser

DW = {"dw": "\n".join(DIRECTIVES)}


def in_a_world(action: Callable[[World, Control], Awaitable[None]], **play: Any) -> None:
    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(**play)) as world:
            await world.live(lambda control: action(world, control))

    virtual.run(main())


def test_requests_that_are_repeated_change_nothing() -> None:
    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: len(world.seen) == 4)
        handle = control.instance.bus.handle()
        before = world.eventlog(control, job)
        for topic, payload in (
            ("resource-update", {"id": job, "resources": [], "exclude": None}),
            ("prolog-remove", {"id": job, "variables": {}}),
            ("epilog-remove", {"id": job}),
        ):
            assert await handle.rpc(f"job-manager.dws.{topic}", payload) == {}
        assert world.eventlog(control, job) == before
        await world.ended(control, job)

    in_a_world(action)


def test_a_client_that_asks_for_a_poll_is_answered_at_once() -> None:
    """coral2-spec section 3: dws.watch_test has an empty reply."""

    async def action(world: World, control: Control) -> None:
        assert await control.instance.bus.handle().rpc("dws.watch_test", {}) == {}

    in_a_world(action)


def test_a_request_that_is_malformed_is_refused_with_its_path() -> None:
    async def action(world: World, control: Control) -> None:
        handle = control.instance.bus.handle()
        said = r"received malformed request: .*variables.*\. Plugin and conductor may be of differ"
        with pytest.raises(RpcError, match=said):
            await handle.rpc("job-manager.dws.prolog-remove", {"id": 1, "variables": {"a": 3}})

    in_a_world(action)


@pytest.mark.parametrize("answer", [{}, {"success": "yes"}, {"success": False, "errstr": 3}])
def test_an_answer_of_another_version_is_told_and_costs_no_job(answer: Payload) -> None:
    async def action(world: World, control: Control) -> None:
        async def odd(request: Request) -> Payload:
            return answer

        control.instance.bus.unregister("dws")
        topics = ("create", "setup", "post_run", "teardown", "abort")
        control.instance.bus.register("dws", dict.fromkeys(topics, Method(odd)))
        job = await world.submit(control, attributes=DW)
        assert (await world.ended(control, job)).job.result is Result.COMPLETED

    with capture_logs("error") as logs:
        in_a_world(action)
    told = [each["reason"] for each in logs if "not understood" in each["event"]]
    assert told
    assert all("may be of different versions" in each for each in told)


def test_guests_may_not_let_jobs_go() -> None:
    async def action(world: World, control: Control) -> None:
        guest = control.instance.bus.handle(control.instance.bus.owner + 1)
        with pytest.raises(RpcError, match="instance owner"):
            await guest.rpc("job-manager.dws.epilog-remove", {"id": 1})

    in_a_world(action)


def test_the_conductor_tells_which_jobs_it_leads() -> None:
    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: len(world.seen) == 4)
        told = await control.instance.bus.handle().rpc("dws.status")
        assert told == {"success": True, "workflows": [job]}
        await world.ended(control, job)

    in_a_world(action)


def test_a_create_request_for_a_job_that_is_known_is_answered_at_once() -> None:
    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: len(world.seen) == 4)
        request = codec.Create(jobid=job, userid=1, dw_directives=[], resources=[])
        answer = await control.instance.bus.handle().rpc("dws.create", codec.write(request))
        assert answer == {"success": True}
        await world.ended(control, job)

    in_a_world(action)


def test_what_was_wrong_with_a_job_before_it_ended_answers_no_question_about_its_end() -> None:
    """The plugin asked about its end meanwhile, and would raise the same once more."""

    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        jobs = FluxJobs(control.instance.bus.handle(), os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await world.until(lambda: (known := jobs.job(job)) and known.phase is Phase.ENDING)
        now = jobs.job(job)
        assert now is not None
        answer = asked("post_run", codec.PostRun(jobid=job, run_started=True), jobs)
        await asyncio.sleep(0)

        jobs.answer_requests(replace(now, phase=Phase.HELD), "it is too large")
        await asyncio.sleep(1)
        assert not answer.done()
        jobs.answer_requests(now, None)
        assert await answer == {"success": True}

        running.cancel()
        await world.ended(control, job)

    in_a_world(action)


def test_the_flash_of_a_job_is_told_rabbit_by_rabbit_and_of_no_job_there_is_none() -> None:
    """Statement 000.63: which rabbits each job holds is known."""

    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: len(world.seen) == 4)
        jobs = FluxJobs(control.instance.bus.handle(), os.getuid())
        told = await jobs.flash(Job(id=job, phase=Phase.STARTING, binding=codec.BINDING))
        assert [(each.rabbit, each.node_count, each.gib) for each in told] == [("rabbit-0", 4, 8)]
        assert await jobs.flash(Job(id=1, phase=Phase.STARTING, binding=codec.BINDING)) == ()
        await world.ended(control, job)

    in_a_world(action)


def test_an_exception_during_the_epilog_skips_what_is_left_to_do() -> None:
    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(
            lambda: (world.workflow(control).get("status") or {}).get("state") == "PostRun"
        )
        await world.cancel(control, job)
        await world.ended(control, job)
        names = control.instance.kvs.names(f"job.{'.'.join(['0000', '0000', '0100', '0000'])}")
        assert "rabbit_dataout_timing" not in names
        assert not any(copy.index for copy in world.copies())

    in_a_world(action)


def test_an_epilog_timeout_lets_the_job_go_before_its_storage() -> None:
    """Statement 000.59: the option epilog-timeout."""

    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(
            lambda: (world.workflow(control).get("status") or {}).get("state") == "DataOut"
        )
        request = {"id": job, "type": "dws-epilog-timeout", "severity": 0, "note": ""}
        await control.instance.bus.handle().rpc("job-manager.raise", request)
        await asyncio.sleep(0)
        found = control.instance.manager.find(job)
        assert found is not None
        assert found.job.state is State.INACTIVE
        assert world.workflow(control)
        await world.ended(control, job)
        await world.assert_nothing_left(control)

    in_a_world(action)


def asked(method: str, message: msgspec.Struct, jobs: FluxJobs) -> asyncio.Future[Payload]:
    """Ask something as the plugin does."""
    served = jobs.methods()[method]
    assert isinstance(served, Method)
    cred = Cred(userid=os.getuid(), is_owner=True)
    request = Request(topic=f"dws.{method}", payload=codec.write(message), cred=cred)
    return asyncio.ensure_future(served.answer(request))


class _Telling:
    """A handle whose journal tells of one job, breaks off, and begins anew without a word."""

    def __init__(self, told: list[Payload], again: list[Payload] | None = None) -> None:
        self._told = [told, again or []]
        self.begun = 0
        self.broken = asyncio.Event()
        self.broken.set()

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        if topic == "kvs.lookup":
            return {"val": treeobj.val(b'"here"')}
        raise RpcError(errno.ECONNRESET)

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        self.begun += 1
        for entry in self._told[self.begun - 1]:
            yield entry
        if self.begun == 1:
            await self.broken.wait()
            raise RpcError(errno.EOVERFLOW)
        await asyncio.sleep(3600)


def submitted(number: int = 7, userid: int = 0, version: int = 1) -> Payload:
    """Return what the journal tells of a job that was submitted."""
    context = {"userid": userid, "urgency": 16, "flags": 0, "version": version}
    submit = {"timestamp": 1.0, "name": "submit", "context": context}
    spec = jobspec.make(["true"], nodes=1, attributes={"dw": "#DW jobdw"})
    return {"id": number, "eventlog_seq": 0, "events": [submit], "jobspec": spec}


def news(number: int, *events: tuple[str, Payload]) -> Payload:
    """Return what the journal tells of a job later."""
    told = [{"timestamp": 2.0, "name": name, "context": context} for name, context in events]
    return {"id": number, "eventlog_seq": 1, "events": told}


VALIDATED: tuple[str, Payload] = ("validate", {})
HELD: tuple[str, Payload] = ("dependency-add", {"description": codec.DEPENDENCY})


def deep(depth: int) -> Payload:
    found: Payload = {"a": 1}
    for _ in range(depth):
        found = {"a": found}
    return found


_ALL_TOLD: Payload = {"id": -1, "events": []}


def test_a_job_that_was_purged_while_the_instance_was_away_is_looked_at() -> None:
    """Nothing else tells that it is over."""

    async def life() -> None:
        looked_at: list[int] = []
        jobs = FluxJobs(_Telling([submitted(), _ALL_TOLD], [_ALL_TOLD]), os.getuid())
        jobs.listen(looked_at.append)
        running = asyncio.ensure_future(jobs.run())
        await jobs.wait_synced()
        looked_at.clear()
        await asyncio.sleep(10)

        assert (looked_at, jobs.job(7)) == ([7], None)
        running.cancel()

    virtual.run(life())


def test_a_job_that_is_released_by_its_user_is_looked_at_as_it_is_now() -> None:
    async def life() -> None:
        held = {**submitted()["events"][0]}
        held["context"] = {**held["context"], "urgency": 0}
        told = [{**submitted(), "events": [held]}, news(7, VALIDATED, HELD), _ALL_TOLD]
        looked_at: list[int] = []
        told += [news(7, ("urgency", {"urgency": each})) for each in (5, 16)]
        jobs = FluxJobs(_Telling(told), os.getuid())
        jobs.listen(lambda number: looked_at.append(_urgency(jobs, number)))
        running = asyncio.ensure_future(jobs.run())
        await asyncio.sleep(0.1)

        assert looked_at[-2:] == [5, 16]
        running.cancel()

    virtual.run(life())


def _urgency(jobs: FluxJobs, number: int) -> int:
    job = jobs.job(number)
    return -1 if job is None else job.urgency


def test_a_job_that_is_about_to_be_told_anew_is_not_taken_to_be_over() -> None:
    async def life() -> None:
        handle = _Telling([submitted(), _ALL_TOLD])
        jobs = FluxJobs(handle, os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await jobs.wait_synced()
        assert jobs.job(7) is not None
        await asyncio.sleep(10)

        assert handle.begun == 2
        assert jobs.job(7) is not None
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await jobs.wait_synced()
        running.cancel()

    virtual.run(life())


def test_an_event_that_is_not_understood_costs_no_other_job() -> None:
    """The journal tells it again to each new client."""
    bad: Sequence[tuple[str, Payload]] = (
        ("memo", deep(64)),
        ("release", {"ranks": "0"}),
        ("start", {}),
        VALIDATED,
        HELD,
    )

    async def life() -> None:
        handle = _Telling(
            [
                *(submitted(1), submitted(2), submitted(3, version=9)),
                *(news(3, VALIDATED), news(1, *bad), news(2, VALIDATED), _ALL_TOLD, news(2, HELD)),
                submitted(4),
            ]
        )
        jobs = FluxJobs(handle, os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await asyncio.sleep(0.1)

        assert not running.done(), running.exception()
        assert set(jobs.job_ids()) == {1, 2, 4}
        for number in (1, 2):
            seen = jobs.job(number)
            assert seen is not None
            assert seen.phase is Phase.HELD
        running.cancel()

    with capture_logs("error") as logs:
        virtual.run(life())
    assert [(each["job"], each["name"]) for each in logs] == [(3, "submit"), (1, "memo")]
    assert "32 deep" in logs[1]["reason"]


def test_what_users_write_beside_their_jobs_is_not_asked_for() -> None:
    """Memos of a guest may be longer than any message that is read."""

    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        await world.until(lambda: len(world.seen) == 4)
        handle = control.instance.bus.handle()
        names: list[str] = []

        class Noting:
            rpc = staticmethod(handle.rpc)

            async def stream(
                self, topic: str, payload: Payload | None = None
            ) -> AsyncIterator[Payload]:
                async with aclosing(handle.stream(topic, payload)) as entries:  # type: ignore[type-var]
                    async for entry in entries:
                        names.extend(each["name"] for each in entry["events"])
                        yield entry

        await handle.rpc("job-manager.memo", {"id": job, "memo": {"early": "x"}})
        jobs = FluxJobs(Noting(), os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await jobs.wait_synced()
        await handle.rpc("job-manager.memo", {"id": job, "memo": {"late": "x"}})
        await world.ended(control, job)
        running.cancel()

        assert "submit" in names
        assert "clean" in names
        assert "memo" not in names

    in_a_world(action)


def test_a_user_without_an_entry_costs_no_other_job() -> None:
    """An account that was removed, or a directory service that is away."""
    unknown = 4_000_000_017
    told: list[int] = []
    seen: list[Job | None] = []

    async def life() -> None:
        handle = _Telling(
            [
                *(_ALL_TOLD, submitted(1, unknown), news(1, VALIDATED), submitted(2)),
                *(news(1, HELD), news(2, VALIDATED, HELD)),
            ]
        )
        jobs = FluxJobs(handle, os.getuid())
        jobs.listen(lambda job: seen.append(jobs.job(job)))
        jobs.listen(told.append)
        running = asyncio.ensure_future(jobs.run())
        await asyncio.sleep(0.1)

        assert not running.done(), running.exception()
        first, second = jobs.job(1), jobs.job(2)
        assert first is not None
        assert second is not None
        assert (first.phase, second.phase) == (Phase.HELD, Phase.HELD)
        jobs.check_allowed(second)
        words = f"User {unknown} has no entry in the password file"
        for seconds in (200.0, 200.0):
            with pytest.raises(UnknownUser, match=words):
                jobs.check_allowed(first)
            await asyncio.sleep(seconds)
        with pytest.raises(UserMistake, match=words):
            jobs.check_allowed(first)
        running.cancel()

    virtual.run(life())
    assert told == [each.id for each in seen if each is not None] == [1, 2, 1, 2]


def test_a_user_who_is_known_again_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of users may be away for a moment, in which no job is to fail."""
    known = jobs_module._primary_group

    def away(userid: int) -> int:
        raise KeyError(userid)

    async def life() -> None:
        handle = _Telling([_ALL_TOLD, submitted(1), news(1, VALIDATED, HELD)])
        jobs = FluxJobs(handle, os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await asyncio.sleep(0.1)
        monkeypatch.setattr(jobs_module, "_primary_group", away)
        first = jobs.job(1)
        assert first is not None
        with pytest.raises(UnknownUser):
            jobs.check_allowed(first)
        monkeypatch.setattr(jobs_module, "_primary_group", known)
        first = jobs.job(1)
        assert first is not None
        jobs.check_allowed(first)
        running.cancel()

    virtual.run(life())


def test_a_held_job_of_a_user_without_an_entry_fails_with_the_reason() -> None:
    unknown = 4_000_000_017

    async def action(world: World, control: Control) -> None:
        job = await world.submit(control, attributes=DW)
        over = await world.ended(control, job)
        (problem,) = over.job.exceptions
        assert problem.type == codec.DEPENDENCY
        assert f"User {unknown} has no entry in the password file" in problem.note

    async def main() -> None:
        async with opened() as world:
            world.owner = unknown
            await world.live(lambda control: action(world, control))

    virtual.run(main())


def test_a_listener_that_fails_costs_neither_the_others_nor_other_jobs() -> None:
    told: list[int] = []

    def fails(job: int) -> None:
        raise ValueError("a bug")

    async def life() -> None:
        jobs = FluxJobs(_Telling([submitted(1), submitted(2), _ALL_TOLD]), os.getuid())
        jobs.listen(fails)
        jobs.listen(told.append)
        running = asyncio.ensure_future(jobs.run())
        await asyncio.sleep(0.1)

        assert not running.done(), running.exception()
        running.cancel()

    with capture_logs("error") as logs:
        virtual.run(life())
    assert told == [1, 2]
    assert [(each["event"], each["job"]) for each in logs] == [
        ("listener failed", 1),
        ("listener failed", 2),
    ]


class _Raising(_Telling):
    """A handle that has exceptions raised, and knows of them."""

    def __init__(self, told: list[Payload]) -> None:
        super().__init__(told)
        self.raised: list[Payload] = []

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        if topic == "kvs.lookup":
            return await super().rpc(topic, payload)
        assert topic == "job-manager.raise"
        assert payload is not None
        self.raised.append(payload)
        return {}

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        for entry in self._told[0]:
            yield entry
        await asyncio.sleep(3600)


CANCELLED: tuple[str, Payload] = ("exception", {"type": "cancel", "severity": 0, "note": ""})
REFUSED: tuple[str, Payload] = (
    "exception",
    {"type": codec.DEPENDENCY, "severity": 0, "note": "no such profile"},
)
ENDS: tuple[str, Payload] = ("epilog-start", {"description": codec.EPILOG})


def test_what_fails_while_its_end_is_asked_about_is_raised_by_us() -> None:
    """The plugin may have asked before, and then takes a refusal to come of that."""

    async def life() -> None:
        events = (VALIDATED, HELD, CANCELLED, ENDS)
        handle = _Raising([submitted(7), news(7, *events), _ALL_TOLD])
        jobs = FluxJobs(handle, os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await jobs.wait_synced()
        now = jobs.job(7)
        assert now is not None
        answer = asked("post_run", codec.PostRun(jobid=7, run_started=True), jobs)
        await asyncio.sleep(0)

        for _ in range(2):  # there is no news of it yet
            await jobs.raise_exception(now, "exception", "copy_out has failed")
            jobs.answer_requests(now, None)
        told = {"type": "exception", "severity": 0, "note": "copy_out has failed"}
        assert handle.raised == [{"id": 7, **told}]
        assert await answer == {"success": True}
        running.cancel()

    virtual.run(life())


def test_what_fails_while_a_job_is_held_is_the_answer_to_the_plugin() -> None:
    async def life() -> None:
        handle = _Raising([submitted(7), news(7, VALIDATED, HELD), _ALL_TOLD])
        jobs = FluxJobs(handle, os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await jobs.wait_synced()
        now = jobs.job(7)
        assert now is not None
        create = codec.Create(jobid=7, userid=0, dw_directives=[], resources=[])
        answer = asked("create", create, jobs)
        await asyncio.sleep(0)

        await jobs.raise_exception(now, codec.DEPENDENCY, "no such profile")
        assert await answer == {"success": False, "errstr": "no such profile"}
        assert handle.raised == []

        # The plugin may have dropped it, and does not ask again: that is seen later.
        wait = await jobs.raise_exception(now, codec.DEPENDENCY, "no such profile")
        assert wait is not None
        assert handle.raised == []
        await asyncio.sleep(wait)
        for _ in range(2):
            assert await jobs.raise_exception(now, codec.DEPENDENCY, "no such profile") is None
        told = {"type": codec.DEPENDENCY, "severity": 0, "note": "no such profile"}
        assert handle.raised == [{"id": 7, **told}]
        running.cancel()

    virtual.run(life())


def test_a_job_that_has_failed_since_it_was_looked_at_does_not_fail_once_more() -> None:
    """As when the plugin has raised the exception that the answer to its question was."""

    async def life() -> None:
        told = [submitted(7), news(7, VALIDATED, HELD), news(7, REFUSED), _ALL_TOLD]
        handle = _Raising(told)
        jobs = FluxJobs(handle, os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await jobs.wait_synced()
        now = jobs.job(7)
        assert now is not None
        assert now.failed
        before = replace(now, phase=Phase.HELD, failed=False)

        assert await jobs.raise_exception(before, codec.DEPENDENCY, "no such profile") is None
        assert handle.raised == []
        running.cancel()

    virtual.run(life())


def test_a_plugin_that_asks_about_what_was_raised_already_does_not_raise_it_once_more() -> None:
    """The journal may have told of the job before the plugin's question comes."""

    async def life() -> None:
        handle = _Raising([submitted(7), news(7, VALIDATED, HELD), _ALL_TOLD])
        jobs = FluxJobs(handle, os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await jobs.wait_synced()
        now = jobs.job(7)
        assert now is not None
        await jobs.raise_exception(now, codec.DEPENDENCY, "no such profile")
        create = codec.Create(jobid=7, userid=0, dw_directives=[], resources=[])
        answer = asked("create", create, jobs)
        await asyncio.sleep(0)

        jobs.answer_requests(now, "no such profile")
        assert await answer == {"success": True}
        assert len(handle.raised) == 1
        running.cancel()

    virtual.run(life())


def test_a_question_that_is_asked_again_is_answered_once_and_the_earlier_do_not_wait() -> None:
    """While the API is away nothing is answered, and the plugin asks again every minute."""

    async def life() -> None:
        handle = _Raising([submitted(7), news(7, VALIDATED, HELD), _ALL_TOLD])
        jobs = FluxJobs(handle, os.getuid())
        running = asyncio.ensure_future(jobs.run())
        await jobs.wait_synced()
        create = codec.Create(jobid=7, userid=0, dw_directives=[], resources=[])
        teardown = asked("teardown", codec.JobRequest(jobid=7), jobs)
        answers = []
        for _ in range(100):
            answers.append(asked("create", create, jobs))
            await asyncio.sleep(60)

        *earlier, last = answers
        assert [each.done() for each in answers] == [True] * 99 + [False]
        for each in earlier:
            assert isinstance(error := each.exception(), RpcError)
            assert error.errnum == errno.EAGAIN
        assert not teardown.done()

        now = jobs.job(7)
        assert now is not None
        jobs.answer_requests(now, None)
        assert [await last, await teardown] == [{"success": True}] * 2
        running.cancel()

    virtual.run(life())


def test_an_instance_is_marked_by_what_stays_over_restarts_and_another_otherwise() -> None:
    async def main() -> None:
        marks: list[list[str]] = []
        for _ in range(2):
            async with opened() as world:
                lives: list[str] = []

                async def life(control: Control, lives: list[str] = lives) -> None:
                    jobs = FluxJobs(control.instance.bus.handle(), control.instance.bus.owner)
                    following = asyncio.ensure_future(jobs.run())
                    await jobs.wait_synced()
                    lives.append(jobs.instance)
                    following.cancel()

                await world.live(life)
                await world.live(life)
                marks.append(lives)

        (first, again), (second, _) = marks
        assert first == again
        assert first != second

    virtual.run(main())


class _Full(_Telling):
    """A handle whose journal tells of one job, and whose KVS has no room."""

    def __init__(self, refusal: RpcError | None) -> None:
        super().__init__([submitted(), _ALL_TOLD], [submitted(), _ALL_TOLD])
        self.kept: str | None = None
        self.room = asyncio.Event()
        self.broken.clear()
        self._refusal = refusal

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        if topic == "kvs.lookup":
            if self.kept is None:
                raise RpcError(errno.ENOENT)
            return {"val": {"data": self.kept}}
        assert topic == "kvs.commit"
        if self._refusal is not None and not self.room.is_set():
            raise self._refusal
        await self.room.wait()
        self.kept = (payload or {})["ops"][0]["dirent"]["data"]
        return {}


@pytest.mark.parametrize("refusal", [RpcError(errno.ENOSPC, "the disk is full"), None])
def test_an_instance_without_room_for_its_mark_has_none_until_its_journal_is_followed_anew(
    refusal: RpcError | None,
) -> None:
    async def main() -> None:
        handle = _Full(refusal)
        jobs = FluxJobs(handle, 0)
        following = asyncio.ensure_future(jobs.run())
        await asyncio.wait_for(jobs.wait_synced(), 60)
        assert list(jobs.job_ids()) == [7]
        assert jobs.instance == ""
        handle.room.set()
        handle.broken.set()
        await asyncio.sleep(5)
        assert jobs.instance
        assert orjson.loads(base64.b64decode(handle.kept or "")) == jobs.instance
        following.cancel()

    virtual.run(main())


def test_an_instance_that_is_lost_before_its_mark_is_kept_is_asked_again() -> None:
    async def main() -> None:
        handle = _Full(RpcError(errno.ECONNRESET))
        jobs = FluxJobs(handle, 0)
        following = asyncio.ensure_future(jobs.run())
        await asyncio.sleep(60)
        assert handle.begun == 0
        handle.room.set()
        await asyncio.wait_for(jobs.wait_synced(), 60)
        assert jobs.instance
        following.cancel()

    virtual.run(main())


def test_a_job_was_ended_by_its_epilogs_limit_where_the_instance_or_its_owner_says_so() -> None:
    """A guest's word disables no rabbit, whatever else has ended the job."""

    async def action(world: World, control: Control) -> None:
        owner = control.instance.bus.owner
        jobs = FluxJobs(control.instance.bus.handle(), owner)

        async def ended_by_timeout(**raised: Any) -> bool:
            number = await world.submit(control)
            context = {"type": "dws-epilog-timeout", "severity": 0, "note": "", **raised}
            control.instance.manager.processor.post(
                control.instance.manager.active_job(number), "exception", context
            )
            await world.ended(control, number)
            return await jobs.ended_by_epilog_timeout(
                Job(id=number, phase=Phase.OVER, binding=codec.BINDING)
            )

        assert await ended_by_timeout()
        assert await ended_by_timeout(userid=owner)
        assert not await ended_by_timeout(userid=owner + 1)
        assert not await ended_by_timeout(severity=1)
        assert not await ended_by_timeout(type="cancel", userid=owner)
        assert not await jobs.ended_by_epilog_timeout(
            Job(id=1, phase=Phase.OVER, binding=codec.BINDING)
        )

    in_a_world(action)
