"""The life of a rabbit job, event by event (coral2-spec section 3, section 4)."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, World, opened
from warren.controllers.localnode import LocalNode
from warren.daemons.compose import Control
from warren.dws.node import Copy, CopyFailed, Progress
from warren.instance import keys
from warren.instance.jobs.manager import InactiveJob
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedNode
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus
from warren.rpc.message import Payload, Request, RpcError


@dataclass
class Trail:
    """What happened, in order: requests, events of the job, and what its Workflow was like."""

    steps: list[str] = field(default_factory=list)
    requests: dict[str, Payload] = field(default_factory=dict)
    workflows: list[dict[str, Any]] = field(default_factory=list)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The context of each event; of several of a name, the last."""

    def of(self, *prefixes: str) -> list[str]:
        return [step for step in self.steps if step.startswith(prefixes)]

    def order(self, *steps: str) -> None:
        """See that steps were taken in this order."""
        assert [step for step in self.steps if step in steps] == list(steps)

    async def follow(self, world: World, control: Control, job: JobId) -> None:
        seen = 0
        while True:
            log = world.eventlog(control, job)
            for event in log[seen:]:
                self.steps.append(f"event {event.name}")
                self.events[event.name] = dict(event.context)
            seen = len(log)
            self._look(world, control)
            await world._written.wait()

    def _look(self, world: World, control: Control) -> None:
        found = dict(world.workflow(control))
        if not found:
            if self.workflows and self.workflows[-1]:
                self.steps.append("workflow gone")
                self.workflows.append({})
            return
        self.workflows.append(found)
        status = found.get("status") or {}
        steps = [f"wanted {found['spec']['desiredState']}"]
        if status.get("ready"):
            steps.append(f"reached {status['state']}")
        self.steps += [step for step in steps if step not in self.steps]


@pytest.fixture
def trail(monkeypatch: pytest.MonkeyPatch) -> Trail:
    found = Trail()
    rpc = Bus.rpc

    async def recorded(bus: Bus, request: Request) -> Payload:
        if request.topic.startswith(("dws.", "job-manager.dws.")):
            found.steps.append(f"rpc {request.topic}")
            found.requests.setdefault(request.topic, request.payload)
        return await rpc(bus, request)

    monkeypatch.setattr(Bus, "rpc", recorded)
    return found


def lived(
    trail: Trail,
    directives: Sequence[str] = DIRECTIVES,
    meanwhile: Callable[[World, Control, JobId], Awaitable[None]] | None = None,
    machine: Callable[[World], Callable[[str, str], LocalNode]] | None = None,
) -> tuple[InactiveJob, dict[str, bytes]]:
    """Have a job live; return how it ended, and its keys in the KVS."""

    async def main() -> tuple[InactiveJob, dict[str, bytes]]:
        async with opened(play=lambda *_: TaskBehavior(seconds=10)) as world:
            if machine is not None:
                world.machine = machine(world)

            async def life(control: Control) -> tuple[InactiveJob, dict[str, bytes]]:
                attributes = {"dw": "\n".join(directives)}
                job = await world.submit(control, attributes=attributes)
                following = asyncio.ensure_future(trail.follow(world, control, job))
                if meanwhile is not None:
                    await meanwhile(world, control, job)
                ended = await world.ended(control, job)
                await asyncio.sleep(1)
                following.cancel()
                await world.assert_nothing_left(control)
                kvs = control.instance.kvs
                place = keys.job_key(job, "").rstrip(".")
                names = [name for name in kvs.names(place) if name.startswith("rabbit")]
                return ended, {name: kvs.lookup(f"{place}.{name}") for name in names}

            found = await world.live(life)
            assert found is not None
            return found

    return virtual.run(main())


STATES = ("Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown")


def test_what_each_of_the_two_does_is_done_when_the_other_has_done_its_part(trail: Trail) -> None:
    """Statements 000.2, 000.9: each state is asked for, and is reached before the next one is."""
    lived(trail)

    steps = [f"{step} {state}" for state in STATES for step in ("wanted", "reached")]
    assert trail.of("wanted", "reached") == steps


def test_a_job_has_one_workflow_from_its_submission_to_its_end(trail: Trail) -> None:
    """Statement 000.1: one Workflow per job holds its directives.

    Statement 000.11: it is made in DEPEND, and Proposal is asked for.
    """
    ended, _ = lived(trail)

    assert {each["metadata"]["uid"] for each in trail.workflows if each} == {
        trail.workflows[0]["metadata"]["uid"]
    }
    assert trail.workflows[0]["spec"]["dwDirectives"] == DIRECTIVES
    assert trail.workflows[0]["metadata"]["name"] == f"fluxjob-{ended.job.id}"
    assert trail.workflows[0]["spec"]["desiredState"] == "Proposal"
    trail.order("event dependency-add", "wanted Proposal", "event depend")


def test_the_plugin_and_the_conductor_speak_at_these_moments(trail: Trail) -> None:
    """Statement 000.3: the plugin sees submit, alloc, run and cleanup, and is spoken to.

    Statements 000.14, 000.60: the dependency goes with resource-update.
    Statement 000.18: the prolog dws-setup begins, and dws.setup is asked.
    Statement 000.28: the epilog dws-epilog begins when the tasks are gone, and dws.post_run asked.
    """
    lived(trail)

    assert trail.of("rpc") == [
        "rpc dws.create",
        "rpc job-manager.dws.resource-update",
        "rpc dws.setup",
        "rpc job-manager.dws.prolog-remove",
        "rpc dws.post_run",
        "rpc job-manager.dws.epilog-remove",
    ]
    trail.order(
        "reached Proposal",
        "rpc job-manager.dws.resource-update",
        "event dependency-remove",
        "event alloc",
        "event prolog-start",
        "rpc dws.setup",
        "wanted Setup",
    )
    trail.order("event finish", "event epilog-start", "rpc dws.post_run", "wanted PostRun")
    assert trail.events["dependency-remove"]["description"] == "dws-create"
    assert trail.events["prolog-start"]["description"] == "dws-setup"
    assert trail.events["epilog-start"]["description"] == "dws-epilog"


def test_tasks_start_when_the_computes_have_mounted(trail: Trail) -> None:
    """Statements 000.25, 000.27: PreRun is ready, then the variables come, then the prolog ends."""
    lived(trail)

    trail.order(
        "reached PreRun",
        "rpc job-manager.dws.prolog-remove",
        "event dws_environment",
        "event prolog-finish",
        "event start",
    )


def test_a_job_is_let_go_when_its_storage_is_gone_and_its_workflow_after_it(trail: Trail) -> None:
    """Statement 000.35: Teardown is done, then epilog-remove, then the job is INACTIVE.

    Statement 000.36: then the Workflow is deleted.
    """
    lived(trail)

    trail.order(
        "reached Teardown",
        "rpc job-manager.dws.epilog-remove",
        "event epilog-finish",
        "event free",
        "event clean",
        "workflow gone",
    )


def test_a_workflow_is_let_go_of_when_teardown_begins(trail: Trail) -> None:
    """Statement 000.34: the finalizer goes as soon as Teardown begins."""
    lived(trail)

    for each in filter(None, trail.workflows):
        ours = "flux-framework.readthedocs.io/workflow" in each["metadata"]["finalizers"]
        assert ours == (each["spec"]["desiredState"] != "Teardown")


def test_each_state_and_the_workflow_itself_are_kept_with_the_job(trail: Trail) -> None:
    """Statements 000.20, 000.23, 000.30: how long Setup, DataIn and PostRun took is in the KVS.

    Statement 000.33: so is the Workflow as it was before Teardown.
    """
    _, kept = lived(trail)

    timings = {f"rabbit_{each.lower()}_timing" for each in STATES}
    assert set(kept) == {"rabbit_workflow", "rabbit_storage", *timings}
    workflow = orjson.loads(kept["rabbit_workflow"])
    assert workflow["status"]["state"] == "DataOut"
    assert workflow["kind"] == "Workflow"


def test_a_job_without_copies_passes_these_states_at_once(trail: Trail) -> None:
    """Statement 000.22: without copy_in, DataIn is done at once."""
    lived(trail, DIRECTIVES[:1])

    reached = {
        each["status"]["state"]: each["status"].get("elapsedTimeLastState")
        for each in trail.workflows
        if each and each["status"]["ready"]
    }
    assert float(reached["DataIn"].removesuffix("s")) < 0.1
    assert trail.of("reached") == [f"reached {state}" for state in STATES]


@pytest.mark.parametrize("state", STATES[:4])
def test_a_job_that_is_cancelled_before_it_runs_goes_straight_to_teardown(
    trail: Trail, state: str
) -> None:
    """Statements 000.10, 000.31: from any state, without PostRun and DataOut."""

    async def cancelled(world: World, control: Control, job: JobId) -> None:
        await world.until(lambda: f"wanted {state}" in trail.steps)
        await world.cancel(control, job)

    ended, _ = lived(trail, meanwhile=cancelled)

    assert ended.job.result is Result.CANCELED
    assert trail.of("wanted")[-1] == "wanted Teardown"
    assert not trail.of("wanted PostRun", "wanted DataOut")
    if state != "Proposal":
        assert trail.requests["dws.post_run"]["run_started"] is False


class Failing(SimulatedNode):
    """A node that cannot copy."""

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        raise CopyFailed("No space left on device")
        yield


def test_an_error_of_the_workflow_ends_the_job_and_leads_to_teardown(trail: Trail) -> None:
    """Statement 000.53: a fatal exception, then Teardown."""

    def failing(world: World) -> Callable[[str, str], LocalNode]:
        return lambda node, rabbit: Failing(node, world.flash[rabbit])

    ended, _ = lived(trail, machine=failing)

    assert ended.job.result is Result.FAILED
    assert trail.events["exception"]["severity"] == 0
    assert "DWS/Rabbit interactions failed" in trail.events["exception"]["note"]
    assert trail.of("wanted")[-2:] == ["wanted DataIn", "wanted Teardown"]


def test_proposal_ends_with_a_breakdown_of_each_directive_that_is_storage(trail: Trail) -> None:
    """Statement 000.12: directives are validated, and storage is broken down."""
    lived(trail)

    first = next(each for each in trail.workflows if each and each["status"].get("ready"))
    assert [each["name"] for each in first["status"]["directiveBreakdowns"]] == [
        f"{first['metadata']['name']}-0"
    ]


# The messages


def test_the_requests_have_the_fields_of_the_interface(trail: Trail) -> None:
    """Statement 000.38: create tells user, directives, resources and tolerance.

    Statements 000.39, 000.40: setup brings R, and post_run whether tasks were started.
    Statements 000.43, 000.44, 000.45: what the conductor asks.
    """
    ended, _ = lived(trail)
    job = int(ended.job.id)

    create = trail.requests["dws.create"]
    assert create["jobid"] == job
    assert create["userid"] == os.getuid()
    assert create["dw_directives"] == "\n".join(DIRECTIVES)
    assert create["resources"][0]["type"] == "node"
    assert create["failure_tolerance"] == 0
    setup = trail.requests["dws.setup"]
    assert setup["jobid"] == job
    assert setup["R"]["execution"]["nodelist"] == ["compute-[00-03]"]
    assert trail.requests["dws.post_run"] == {"jobid": job, "run_started": True}
    update = trail.requests["job-manager.dws.resource-update"]
    assert update["id"] == job
    assert update["resources"] == trail.events["jobspec-update"]["resources"]
    assert "exclude" in update
    remove = trail.requests["job-manager.dws.prolog-remove"]
    assert remove["id"] == job
    assert remove["variables"] == trail.events["dws_environment"]["variables"]
    assert trail.requests["job-manager.dws.epilog-remove"] == {"id": job}


def test_the_job_is_bound_to_flash_of_its_own_chassis(trail: Trail) -> None:
    """Statements 000.13, 000.16: a slot `rabbit` holds nodes, as they were, and ssds."""
    lived(trail)

    asked = trail.requests["dws.create"]["resources"]
    slot, *others = trail.requests["job-manager.dws.resource-update"]["resources"]
    assert others == []
    assert (slot["type"], slot["label"], slot["count"]) == ("slot", "rabbit", asked[0]["count"])
    node, ssd = slot["with"]
    assert node == asked[0] | {"count": 1}
    assert (ssd["type"], ssd["exclusive"]) == ("ssd", True)


def test_an_exception_after_the_run_has_teardown_asked_for(trail: Trail) -> None:
    """Statement 000.41: dws.teardown, when an exception comes in the epilog."""

    async def cancelled(world: World, control: Control, job: JobId) -> None:
        await world.until(lambda: "wanted PostRun" in trail.steps)
        await world.cancel(control, job)

    lived(trail, meanwhile=cancelled)

    assert trail.requests["dws.teardown"] == {"jobid": trail.requests["dws.create"]["jobid"]}
    assert trail.of("wanted")[-1] == "wanted Teardown"


def test_a_job_without_directives_and_one_with_empty_ones_have_no_workflow(trail: Trail) -> None:
    """Statement 000.61: only an attribute that is not empty counts."""

    async def main() -> None:
        async with opened() as world:

            async def life(control: Control) -> None:
                job = await world.submit(control)
                await world.ended(control, job)
                assert trail.steps == []
                with pytest.raises(RpcError, match="no #DW directive"):
                    await world.submit(control, attributes={"dw": ""})

            await world.live(life)

    virtual.run(main())
    assert trail.steps == []
