"""The work of copy_in and copy_out, by `dws.workflow.driver`."""

from typing import Any

import pytest

from tests.dws.builders import (
    COPY_IN,
    COPY_OUT,
    JOBDW,
    breakdown,
    changes,
    made,
    meta,
    movement,
    need,
    nnf_access,
    nnf_storage,
    workflow,
)
from tests.dws.test_driver import (
    ALL,
    COPYING,
    FINISHED,
    MAY_HEAL,
    NO_ROOM,
    SECOND,
    STORAGE,
    WAITS,
    broken,
    keys,
    seen,
    told,
)
from warren.base.objects import Create, Key, Kind, Write, key_of
from warren.dws import kinds, labels
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.offload import movements
from warren.dws.workflow.copysteps import is_movement_of
from warren.dws.workflow.driver import decide


@pytest.mark.parametrize(("state", "index"), [("DataIn", 1), ("DataOut", 2)])
def test_copying_mounts_the_storage_on_its_rabbits_first(state: str, index: int) -> None:
    writes = decide(seen(workflow(*ALL, state=state), storages=[STORAGE]))

    (found,) = made(writes, kinds.NNF_ACCESS)
    assert key_of(found) == Key("default", "wf-0-servers")
    assert found["spec"]["target"] == "all"
    assert found["spec"]["mountPathPrefix"] == "/mnt/nnf/uid-wf-0"
    assert told(writes) == (WAITS, f"DW Directive {index}: pending mount")


@pytest.mark.parametrize(("state", "index"), [("DataIn", 1), ("DataOut", 2)])
def test_copies_have_the_profile_that_is_pinned(state: str, index: int) -> None:
    own = profile(f"wf-{index}", pinned=True)
    seen_now = seen(
        workflow(*ALL, state=state), **COPYING, pinned_copy_profiles={f"wf-{index}": own}
    )
    first, *_ = made(decide(seen_now), kinds.NNF_DATA_MOVEMENT)

    assert first["spec"]["profileReference"] == {
        "kind": "NnfDataMovementProfile",
        "name": f"wf-{index}",
        "namespace": "default",
    }
    assert first["metadata"]["annotations"] == {
        labels.COPY_PROFILE: '{"command":"rsync $SRC $DEST"}'
    }


def test_a_movement_is_a_workflows_by_its_name() -> None:
    """Its labels a rabbit's agent may change."""
    wf = workflow(*ALL)
    asked = f"{movements.name_prefix(wf)}0123"
    found = {
        name: is_movement_of({"metadata": meta(name, "r0", labels=labels.of_workflow(wf))}, wf)
        for name in ("wf-1-0", asked, "wfx-1-0", "other-1-0", "nnf-copy-offload-node-0123")
    }
    assert [name for name, own in found.items() if own] == ["wf-1-0", asked]


def profile(name: str, namespace: str = "default", **data: Any) -> dict[str, Any]:
    return {
        "metadata": meta(name, namespace),
        "data": {"command": "rsync $SRC $DEST", "statCommand": "stat", **data},
    }


NAMED = COPY_IN + " profile=fast"
SHIPPED = {
    "fast": profile("fast", "nnf-system"),
    "usual": profile("usual", "nnf-system", default=True, command="warren-copy $SRC $DEST"),
}
MADE = {"breakdowns": [breakdown(0, need())]}


@pytest.mark.parametrize(
    ("directive", "command"),
    [(NAMED, "rsync $SRC $DEST"), (COPY_IN, "warren-copy $SRC $DEST")],
)
def test_proposal_pins_the_profile_that_a_copy_names_or_the_default(
    directive: str, command: str
) -> None:
    wf = workflow(JOBDW, directive)
    writes = decide(seen(wf, **MADE, copy_profiles=SHIPPED))
    (copy,) = made(writes, kinds.COPY_PROFILE)

    assert key_of(copy) == Key("default", "wf-1")
    assert copy["data"] == {
        "command": command, "statCommand": "stat", "default": False, "pinned": True,
    }  # fmt: skip
    assert copy["metadata"]["labels"][labels.DIRECTIVE_INDEX] == "1"
    assert copy["metadata"]["ownerReferences"][0]["name"] == "wf"
    assert told(writes) == ("DriverWait", "DW Directive 1: status pending")
    pinned = {"wf-1": copy}
    assert (
        told(decide(seen(wf, **MADE, copy_profiles=SHIPPED, pinned_copy_profiles=pinned)))[0]
        == "Completed"
    )


def test_without_a_default_the_copier_makes_copies() -> None:
    fast = {"fast": SHIPPED["fast"]}
    writes = decide(seen(workflow(JOBDW, COPY_IN), **MADE, copy_profiles=fast))
    assert told(writes) == ("Completed", "")
    assert made(writes, kinds.COPY_PROFILE) == []


def test_a_profile_of_copies_that_is_not_there_is_the_users_error() -> None:
    writes = decide(seen(workflow(JOBDW, NAMED), **MADE, copy_profiles={}))
    assert told(writes)[0] == "Error"
    assert "There is no profile of copies named 'fast' here" in told(writes)[1]


def test_a_profile_that_cannot_be_used_is_told_in_proposal() -> None:
    bad = {"fast": profile("fast", "nnf-system", command="dcp | $SRC $DEST")}
    writes = decide(seen(workflow(JOBDW, NAMED), **MADE, copy_profiles=bad))
    assert told(writes)[0] == "Error"
    assert "NnfDataMovementProfile fast cannot be used: data.command" in told(writes)[1]


def test_a_pinned_profile_that_is_gone_is_not_replaced_by_another_way_to_copy() -> None:
    writes = decide(seen(workflow(JOBDW, NAMED, state="DataIn"), **COPYING))
    assert told(writes)[0] == "Error"
    assert "the NnfDataMovementProfile wf-1 is gone" in told(writes)[1]


@pytest.mark.parametrize(("state", "index"), [("DataIn", 1), ("DataOut", 2)])
def test_then_each_allocation_has_its_copy(state: str, index: int) -> None:
    writes = decide(seen(workflow(*ALL, state=state), **COPYING))
    assert keys(made(writes, kinds.NNF_DATA_MOVEMENT)) == [
        f"r0/wf-{index}-0",
        f"r0/wf-{index}-1",
        f"r1/wf-{index}-0",
    ]
    assert told(writes) == (WAITS, f"DW Directive {index}: 3 data movements to finish")


def test_a_copy_without_storage_whose_proposal_was_forced_is_the_users_error() -> None:
    writes = decide(seen(workflow(COPY_IN, state="DataIn")))
    assert told(writes) == (
        "Error",
        "DW Directive 0: User error: this job has no jobdw named 'my-fs'",
    )


def test_only_the_copies_that_are_missing_are_made() -> None:
    some = [movement(1, "r0", 0, state="Running"), movement(1, "r0", 1, **FINISHED)]
    writes = decide(seen(workflow(*ALL, state="DataIn"), **COPYING, movements=some))
    assert keys(made(writes, kinds.NNF_DATA_MOVEMENT)) == ["r1/wf-1-0"]
    assert told(writes) == (WAITS, "DW Directive 1: 2 data movements to finish")


def test_rabbits_that_have_unmounted_mount_again_for_the_first_copy_out() -> None:
    """Case 07a of the vectors, in DataOut."""
    done = nnf_access("servers", desired="unmounted", state="unmounted", ready=True)
    wf = workflow(JOBDW, COPY_IN, COPY_OUT, COPY_OUT, state="DataOut")
    storage = nnf_storage(("r0", 1), ready=True)
    writes = decide(seen(wf, storages=[storage], accesses=[done]))
    assert changes(writes, kinds.NNF_ACCESS) == [
        {
            "metadata": {
                "labels": {labels.DIRECTIVE_INDEX: "2", labels.TEARDOWN_STATE: "Teardown"}
            },
            "spec": {"desiredState": "mounted", "teardownState": "Teardown"},
        }
    ]
    assert not made(writes, kinds.NNF_DATA_MOVEMENT)
    again = nnf_access("servers", state="unmounted", ready=True)
    late = decide(seen(wf, storages=[storage], accesses=[again]))
    assert not made(late, kinds.NNF_DATA_MOVEMENT)
    assert not changes(late, kinds.NNF_ACCESS)


# What fails while others have something to save

OTHER_OUT = "#DW copy_out source=$DW_JOB_other/out destination=/lus/more"
TWO_OUT = (JOBDW, SECOND, COPY_OUT, OTHER_OUT)
FAILED_COPY = {"movements": [movement(2, **NO_ROOM)], "status": {"state": "mounted", "ready": True}}
FAILED_MOUNT = {"movements": [], "status": broken("Fatal", message="broke")}
MOUNTED = {"state": "mounted", "ready": True}


def dataout(
    failed: dict[str, Any], second: dict[str, Any] | None, *others: NnfDataMovement
) -> list[Write]:
    """Decide where the first copy_out has failed, and rabbits mount what the second copies."""
    accesses = [nnf_access("servers", **failed["status"])]
    if second is not None:
        accesses.append(nnf_access("servers", index=1, **second))
    view = seen(
        workflow(*TWO_OUT, state="DataOut"),
        storages=[nnf_storage(("r0", 1), index=number, ready=True) for number in (0, 1)],
        accesses=accesses,
        movements=[*failed["movements"], *others],
    )
    return decide(view)


@pytest.mark.parametrize("failed", [FAILED_COPY, FAILED_MOUNT])
@pytest.mark.parametrize(
    ("second", "others", "made_kind"),
    [
        (None, (), kinds.NNF_ACCESS),
        ({"state": "unmounted"}, (), None),
        (broken("Minor"), (), None),
        (MOUNTED, (), kinds.NNF_DATA_MOVEMENT),
        (MOUNTED, (movement(3),), None),
        (MOUNTED, (movement(3, state="Running"),), None),
        # What is late may heal, and what has begun may end well.
        (broken("Major"), (movement(3, state="Running"),), None),
    ],
)
def test_a_copy_out_that_failed_is_told_when_the_others_have_begun_and_ended(
    failed: dict[str, Any],
    second: dict[str, Any] | None,
    others: tuple[NnfDataMovement, ...],
    made_kind: Kind | None,
) -> None:
    writes = dataout(failed, second, *others)
    assert told(writes)[0] == (MAY_HEAL if second == broken("Major") else WAITS)
    assert [write.kind for write in writes if isinstance(write, Create)] == (
        [made_kind] if made_kind else []
    )


@pytest.mark.parametrize("failed", [FAILED_COPY, FAILED_MOUNT])
@pytest.mark.parametrize(
    ("second", "others"),
    [
        (MOUNTED, (movement(3, **FINISHED),)),
        # Two that have failed do not wait for each other, nor for what is on a rabbit that is lost.
        (MOUNTED, (movement(3, **NO_ROOM),)),
        (broken("Fatal"), ()),
        (broken("Fatal"), (movement(3, state="Running"),)),
        (broken("Major"), ()),
    ],
)
def test_a_copy_out_that_failed_waits_for_no_other_that_has_ended_or_cannot_begin(
    failed: dict[str, Any], second: dict[str, Any], others: tuple[NnfDataMovement, ...]
) -> None:
    assert told(dataout(failed, second, *others))[0] == "Error"


def test_a_copy_out_that_failed_says_so_while_it_waits_for_others() -> None:
    writes = dataout(FAILED_MOUNT, MOUNTED, movement(3, state="Running"))
    (patch,) = changes(writes, kinds.WORKFLOW)
    (entry,) = [
        each for each in patch["status"]["drivers"]
        if each["dwdIndex"] == FAILED_INDEX and each["watchState"] == "DataOut"
    ]  # fmt: skip
    assert entry["status"] == "Running"
    assert entry["message"] == "has failed, and waits for other copies to end: broke"


FAILED_INDEX = TWO_OUT.index(COPY_OUT)
