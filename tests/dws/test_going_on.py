"""Jobs that go on without nodes whose storage fails: what is told, and what is left out."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.dws import builders
from tests.dws import test_driver as of_driver
from tests.dws import test_persistent as of_persistent
from tests.dws.builders import (
    JOBDW,
    breakdown,
    changes,
    computes,
    need,
    nnf_storage,
    servers,
    share_of,
    workflow,
)
from tests.dws.test_conduct import SINGLE, at, job, seen
from warren.dws import kinds, labels, tolerance
from warren.dws.binding import Phase
from warren.dws.jobs.conduct import decide
from warren.dws.jobs.jobactions import Drain, RaiseException, RequeueAfter
from warren.dws.jobs.jobsnapshot import JobSnapshot
from warren.dws.jobs.timeouts import Timeouts
from warren.dws.objects.breakdowns import AllocationNeed
from warren.dws.persistent.instances import InstanceSnapshot
from warren.dws.workflow import driver

OF_R0, OF_R1 = (
    {"label": "xfs", "storage": {rabbit: {"ready": True, "allocationSize": 5}}}
    for rabbit in ("r0", "r1")
)
"""What one of the rabbits has made of the storage."""


def in_setup(
    status: str = "TransientCondition", *needs: AllocationNeed, **more: Any
) -> JobSnapshot:
    view: dict[str, Any] = {"seconds_in_trouble": 20.0, **more}
    found = servers(share_of(r0=2, r1=1), allocationSets=view.pop("made", [OF_R0]))
    return seen(
        job(Phase.STARTING, max_lost_nodes=view.pop("max_lost_nodes", 1)),
        at("Setup", ready=False, status=status, message="no"),
        breakdowns={"wf-0": breakdown(0, *(needs or (need(),)))},
        servers={"wf-0": found},
        **view,
    )


def failures(actions: list[Any]) -> list[tuple[str, int]]:
    return [(each.type, each.severity) for each in actions if isinstance(each, RaiseException)]


@pytest.mark.parametrize("status", ["TransientCondition", "Error"])
def test_in_setup_a_job_goes_on_without_the_nodes_of_a_rabbit_that_makes_nothing(
    status: str,
) -> None:
    actions = decide(in_setup(status))

    assert actions[0] == RaiseException(tolerance.EXCEPTION, "n2", severity=1)
    (patch,) = changes(actions, kinds.WORKFLOW)
    assert patch["spec"] == {"forceReady": True}
    assert patch["metadata"]["annotations"] == {labels.LOST_NODES: "n2"}
    assert not any(isinstance(each, Drain) for each in actions)


@pytest.mark.parametrize(
    "found",
    [
        in_setup("TransientCondition", need(), SINGLE),
        in_setup("TransientCondition", SINGLE),
        in_setup(max_lost_nodes=0),
        in_setup(max_lost_nodes=1, made=[OF_R1]),  # loses two
        in_setup(max_lost_nodes=3, made=[]),  # loses all
        in_setup(configuration=None),
    ],
)
def test_a_job_fails_that_cannot_do_without(found: JobSnapshot) -> None:
    actions = decide(found)

    assert failures(actions) == [("exception", 0)]
    assert changes(actions, kinds.WORKFLOW) == []


@pytest.mark.parametrize(("limit", "wait"), [(None, 6.0), (30.0, 26.0)])
def test_other_nodes_have_some_time_after_the_first_error(limit: float | None, wait: float) -> None:
    found = in_setup("Error", seconds_in_trouble=4.0, timeouts=Timeouts(transient=limit))
    assert decide(found) == [RequeueAfter(wait)]


def test_of_a_state_that_is_over_anyhow_nothing_is_told() -> None:
    forced = workflow(
        JOBDW, state="Setup", spec={"forceReady": True}, status={"status": "Error", "message": "no"}
    )
    assert decide(seen(job(Phase.STARTING, max_lost_nodes=1), forced)) == []


def test_how_many_nodes_a_job_may_lose_is_noted_on_its_workflow() -> None:
    (made,) = builders.made(decide(seen(job(Phase.HELD, max_lost_nodes=2))), kinds.WORKFLOW)
    assert made["metadata"]["annotations"] == {labels.FAILURE_TOLERANCE: "2"}
    (made,) = builders.made(decide(seen(job(Phase.HELD))), kinds.WORKFLOW)
    assert "annotations" not in made["metadata"]


# What drivers do then


def environment(state: str) -> Any:
    forced = workflow(JOBDW, state=state, spec={"forceReady": True})
    (patch,) = changes(list(driver.decide(of_driver.seen(forced))), kinds.WORKFLOW)
    return patch["status"].get("env")


def test_a_job_whose_mounts_are_not_waited_for_is_told_where_they_are() -> None:
    assert environment("PreRun")["DW_JOB_my_fs"] == "/mnt/nnf/uid-wf-0"
    assert environment("Setup") is None


@pytest.mark.parametrize(("nodes", "rest"), [(10, ""), (11, " and 1 more"), (13, " and 3 more")])
def test_nodes_that_the_system_does_not_have_are_named_the_first_of_them(
    nodes: int, rest: str
) -> None:
    names = [f"x{number:02}" for number in range(nodes)]
    found = of_driver.seen(workflow(JOBDW, state="PreRun"), storages=[nnf_storage(("r0", 1))])
    found = replace(found, computes=computes("n0", *names), wiring={"n0": "r0"})
    _, message = of_driver.told(list(driver.decide(found)))
    assert message.endswith(f"SystemConfiguration: {', '.join(names[:10])}{rest}")


# Persistent storage that is made


def test_a_workflow_that_makes_an_instance_gets_its_breakdown() -> None:
    writes = driver.decide(of_persistent.seen(workflow(of_persistent.CREATE, state="Proposal")))
    (made,) = builders.made(list(writes), kinds.BREAKDOWN)
    assert made["spec"]["directive"] == of_persistent.CREATE


@pytest.mark.parametrize("lacks", ["breakdown", "storage", "servers"])
def test_storage_of_an_instance_is_made_when_all_is_there_that_it_is_made_of(lacks: str) -> None:
    of_it = None if lacks == "servers" else of_persistent.the_servers()
    here = InstanceSnapshot(
        object=of_persistent.psi("Creating", metadata=of_persistent.MADE), servers=of_it
    )
    unready = breakdown(0, directive=of_persistent.CREATE)
    known = {
        "breakdown": [],
        "storage": [unready],
        "servers": [of_persistent.broken_down()],
    }
    wf = workflow(of_persistent.CREATE, state="Setup")
    writes = driver.decide(of_persistent.seen(wf, here, breakdowns=known[lacks]))
    assert builders.made(list(writes), kinds.NNF_STORAGE) == []
    words = "waits for its DirectiveBreakdown and Servers"
    assert of_persistent.told(writes)[1] == f"DW Directive 0: {words}"


@pytest.mark.parametrize(
    ("of_it", "ready"),
    [
        (None, False),
        (of_persistent.the_storage(ready=False), False),
        (of_persistent.the_storage(ready=True), True),
    ],
)
def test_a_user_of_an_instance_waits_for_its_storage(of_it: Any, ready: bool) -> None:
    here = replace(of_persistent.whole("Active", of_persistent.USER), storage=of_it)
    writes = driver.decide(of_persistent.seen(workflow(of_persistent.USE, state="Setup"), here))
    assert of_persistent.is_ready(writes) is ready
