"""Where jobs, Workflows, nodes and rabbits do not agree, and what repairs it."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tests.dws.builders import BINDING, JOBDW, meta, rabbit, workflow
from warren.base.objects import Change
from warren.dws import kinds, labels, tolerance
from warren.dws.jobs import abort
from warren.dws.jobs.jobaudit import (
    Difference,
    JobAuditSnapshot,
    UndrainNode,
    differences,
    remedies,
)
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import NodeLink, Storage, StorageAccess
from warren.dws.rabbits import nodedrains, outofservice
from warren.dws.rabbits.outofservice import ServiceAction

GONE = "default/fluxjob-7"


def found(
    jobs: Mapping[int, str | None] | None = None,
    workflows: tuple[Any, ...] = (),
    storages: tuple[Storage, ...] = (),
    mounts: tuple[ClientMount, ...] = (),
    drained: Mapping[str, str] | None = None,
    instance: str = "here",
) -> list[Difference]:
    observed = JobAuditSnapshot(
        workflow_name_by_job=jobs or {},
        workflows=workflows,
        storages=storages,
        mounts=mounts,
        drain_reasons=drained or {},
        wlm_instance=instance,
    )
    return differences(observed, BINDING.job_id, lambda number: f"f{number}", 0.0)


def of(name: str, state: str = "PreRun", **options: Any) -> Any:
    carried = options.pop("labels", {})
    return workflow(JOBDW, state=state, metadata={"name": name, "labels": carried}, **options)


def mounted(node: str, state: str = "mounted") -> ClientMount:
    spec = {
        "node": node,
        "desiredState": "unmounted",
        "mounts": [{"mountPath": "/mnt/x", "device": {"type": "lvm"}, "type": "xfs"}],
    }
    status = {"mounts": [{"state": state, "ready": True}], "allReady": True}
    return read({"metadata": meta("m", node), "spec": spec, "status": status}, ClientMount)


def disabled(by: str = abort.DISABLED_BY, cause: str | None = GONE, **annotations: str) -> Storage:
    storage = rabbit("r0")
    change = outofservice.change(storage, ServiceAction.DISABLE, by=by, now=0.0, reason="stuck")
    patch: Any = change.patch
    carried = {**patch["metadata"]["annotations"], **annotations}
    if cause is not None:
        carried[labels.DISABLED_FOR] = cause
    changed = msgspec.structs.replace(storage.metadata, annotations=carried)
    spec = msgspec.structs.replace(storage.spec, state="Disabled")
    return msgspec.structs.replace(storage, metadata=changed, spec=spec)


def test_where_all_agree_nothing_is_found() -> None:
    assert found({7: "fluxjob-7"}, (of("fluxjob-7"), of("slurm-9")), (rabbit("r0"),)) == []


def test_a_workflow_whose_job_is_over_is_torn_down() -> None:
    (one,) = found({}, (of("fluxjob-7"),))

    assert (one.about, one.why) == (
        "Workflow fluxjob-7", "its job f7 is over, and it is not torn down",
    )  # fmt: skip
    assert isinstance(one.remedy, Change)
    assert one.remedy.kind == kinds.WORKFLOW
    assert one.remedy.patch == {"spec": {"desiredState": "Teardown"}}


@pytest.mark.parametrize(
    ("mark", "instance", "told"),
    [("here", "here", 1), ("there", "here", 0), ("there", "", 0)],
)
@pytest.mark.parametrize("state", ["PreRun", "Teardown"])
def test_a_workflow_of_another_instance_is_no_difference(
    state: str, mark: str, instance: str, told: int
) -> None:
    said = {"status": "Error", "message": "in use"}
    theirs = of("fluxjob-7", state, status=said, labels={labels.WLM_INSTANCE: mark})
    assert len(found({}, (theirs,), instance=instance)) == told


def test_a_teardown_that_goes_on_is_no_difference_and_one_in_trouble_is_told() -> None:
    assert found({}, (of("fluxjob-7", "Teardown", ready=False),)) == []
    said = {"status": "Error", "message": "in use"}
    (one,) = found({}, (of("fluxjob-7", "Teardown", ready=False, status=said),))

    assert one.why == "its job f7 is over; its Teardown says: in use"
    assert one.remedy is None


def test_a_job_whose_workflow_is_gone_is_told() -> None:
    (one,) = found({7: "fluxjob-7", 8: None})

    assert (one.about, one.remedy) == ("job f7", None)
    assert "its Workflow fluxjob-7 is gone" in one.why


@pytest.mark.parametrize(
    "reason", [abort.DRAIN_REASON, nodedrains.DRAIN_REASON, tolerance.DRAIN_REASON]
)
def test_a_node_of_which_nothing_is_left_is_undrained(reason: str) -> None:
    (one,) = found(drained={"n0": reason}, mounts=(mounted("n1"), mounted("n0", "unmounted")))

    assert one.why == f"is drained ({reason}), and nothing of that is left"
    assert remedies([one]) == [UndrainNode("n0")]


def test_a_node_that_is_still_stuck_stays_drained() -> None:
    lost = rabbit("r0", access=StorageAccess(computes=(NodeLink(name="n1", status="Failed"),)))
    stuck, cut = found(
        storages=(lost,),
        mounts=(mounted("n0"),),
        drained={"n0": abort.DRAIN_REASON, "n1": nodedrains.DRAIN_REASON, "n2": "dimm"},
    )

    assert (stuck.about, stuck.remedy) == ("node n0", None)
    assert "still has storage mounted" in stuck.why
    assert (cut.about, cut.remedy) == ("node n1", None)


def test_a_rabbit_that_holds_nothing_any_more_is_enabled() -> None:
    (one,) = found(storages=(disabled(),))

    assert one.why == "is Disabled (stuck), and nothing of that is left"
    assert isinstance(one.remedy, Change)
    assert one.remedy.patch["spec"] == {"state": "Enabled"}


def test_a_rabbit_that_holds_it_or_failed_its_test_stays_disabled() -> None:
    (holds,) = found({7: None}, (of("fluxjob-7"),), (disabled(),))
    (failed,) = found(storages=(disabled(**{labels.SELF_TEST: "failed"}),))

    assert (holds.remedy, failed.remedy) == (None, None)
    assert holds.why.endswith("and still holds that")


def test_what_admins_have_disabled_is_no_difference() -> None:
    assert found(storages=(disabled(by="ann"), disabled(cause=None))) == []
