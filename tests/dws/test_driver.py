"""The work behind each state of a Workflow."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.dws.builders import (
    COPY_IN,
    COPY_OUT,
    DELETING,
    JOBDW,
    NOW,
    STAMP,
    after,
    breakdown,
    changes,
    computes,
    error,
    lustre,
    made,
    meta,
    movement,
    need,
    nnf_access,
    nnf_storage,
    rabbit,
    servers,
    share_of,
    workflow,
)
from warren.base.objects import Change, Key, Write, key_of
from warren.base.times import rfc3339_micro
from warren.dws import kinds, labels
from warren.dws.containerauth import TokenSecrets
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import State, Workflow
from warren.dws.workflow.driver import HANDLERS, decide, is_final, needs_live_read
from warren.dws.workflow.workflowsnapshot import WorkflowSnapshot

ALL = (JOBDW, COPY_IN, COPY_OUT)
SECOND = "#DW jobdw type=xfs capacity=2GiB name=other"


def seen(wf: Workflow, **others: Any) -> WorkflowSnapshot:
    """Make a view of a Workflow whose children are given as lists."""
    named: dict[str, Any] = {
        kind: {each.metadata.name: each for each in others.pop(kind, ())}
        for kind in ("breakdowns", "servers", "storages", "accesses")
    }
    return WorkflowSnapshot(
        workflow=wf,
        **named,
        movements=others.pop("movements", ()),
        computes=computes(),
        file_systems=others.pop("file_systems", [lustre()]),
        rabbits={"r0": rabbit("r0"), "r1": rabbit("r1")},
        dependents=others.pop("dependents", ()),
        mount_prefix="/mnt/nnf",
        now=NOW,
        **others,
    )


def told(writes: list[Write]) -> tuple[str, str]:
    """Return the status and message of the Workflow that are written."""
    (patch,) = changes(writes, kinds.WORKFLOW)
    return patch["status"]["status"], patch["status"]["message"]


def driver(writes: list[Write], index: int) -> dict[str, Any]:
    """Return an entry of the drivers that are written."""
    (patch,) = changes(writes, kinds.WORKFLOW)
    return dict(patch["status"]["drivers"][index])


def keys(objects: list[Any]) -> list[str]:
    return [str(key_of(obj)) for obj in objects]


# Entering and leaving


def test_a_new_workflow_gets_its_computes_a_finalizer_and_its_first_state() -> None:
    new = workflow(state=None, metadata={"finalizers": ["other"]}, status={"computes": None})

    writes = decide(seen(new))

    (found,) = made(writes, kinds.COMPUTES)
    assert key_of(found) == Key("default", "wf")
    assert found["data"] == []
    assert found["metadata"]["ownerReferences"][0]["uid"] == "uid-wf"
    (patch,) = changes(writes, kinds.WORKFLOW)
    assert patch["metadata"]["finalizers"] == sorted(["other", labels.WORKFLOW_FINALIZER])
    assert patch["status"]["computes"]["name"] == "wf"
    assert patch["status"]["state"] == "Proposal"
    assert patch["spec"] == {"forceReady": False}


def test_a_workflow_whose_computes_are_not_written_down_is_prepared_again() -> None:
    writes = decide(seen(workflow(state="Proposal", status={"computes": None})))

    (patch,) = changes(writes, kinds.WORKFLOW)
    assert "state" not in patch["status"]
    assert made(writes, kinds.COMPUTES)


def test_a_newly_desired_state_is_entered_in_one_write_with_what_its_work_waits_for() -> None:
    wf = workflow(JOBDW, state="Proposal", desired="Setup", ready=True)

    writes = decide(seen(wf, breakdowns=[breakdown(0, need())], servers=[GIVEN]))

    # The state first: its time goes by, also where its work cannot be asked for.
    assert [each.kind for each in writes] == [kinds.WORKFLOW, kinds.NNF_STORAGE]
    (patch,) = changes(writes, kinds.WORKFLOW)
    assert patch["spec"] == {"forceReady": False}
    assert patch["status"]["state"] == "Setup"
    assert patch["status"]["desiredStateChange"] == rfc3339_micro(NOW)
    assert (patch["status"]["ready"], *told(writes)) == (
        False,
        WAITS,
        "DW Directive 0: allocation set not ready",
    )
    assert driver(writes, 0)["status"] == "Completed"
    assert driver(writes, 1)["status"] == "Running"


def test_a_newly_desired_state_that_has_no_work_is_entered_and_ready_in_one_write() -> None:
    writes = decide(seen(workflow(JOBDW, state="Setup", desired="DataIn", ready=True)))

    (patch,) = changes(writes, kinds.WORKFLOW)
    assert [each.kind for each in writes] == [kinds.WORKFLOW]
    assert patch["status"]["state"] == "DataIn"
    assert patch["status"]["ready"]
    assert patch["status"]["elapsedTimeLastState"] == "0s"


def test_force_ready_is_of_the_state_that_it_was_set_in() -> None:
    wf = workflow(JOBDW, state="Setup", desired="DataIn", ready=True, spec={"forceReady": True})

    (patch,) = changes(decide(seen(wf)), kinds.WORKFLOW)
    assert patch["status"]["message"] == ""


@pytest.mark.parametrize("state", [each for each in State if each is not State.PROPOSAL])
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"accesses": [nnf_access(error=error())], "storages": [nnf_storage(metadata=DELETING)]},
        {"movements": [movement(1)], "dependents": [None]},
    ],
)
def test_a_ready_workflow_is_left_alone_whatever_its_children_are(
    state: State, others: dict[str, Any]
) -> None:
    """`changes.has_nothing_to_decide` says so of such a Workflow."""
    view = seen(workflow(*ALL, state=state, ready=True), **others)
    assert decide(view) == []
    assert not needs_live_read(view)


def test_nothing_follows_what_is_written_to_a_workflow_but_for_preparation() -> None:
    """What asks for no look at itself: its preparation, containers and tokens do."""
    container = "#DW container name=c profile=p"
    assert is_final(seen(workflow(*ALL, state="Setup")))
    assert is_final(seen(workflow(*ALL, state="Proposal")))
    unprepared = workflow(*ALL, state=None)
    assert not is_final(seen(unprepared))
    assert is_final(seen(workflow(*ALL, state=None, metadata=DELETING)))
    assert not is_final(seen(workflow(*ALL, container, state="Setup")))
    assert not is_final(seen(workflow(*ALL, state="Setup"), token_secrets=TokenSecrets()))


@pytest.mark.parametrize("state", [*State])
def test_a_state_without_directives_is_ready_at_once(state: State) -> None:
    writes = decide(seen(workflow(state=state)))
    assert told(writes) == ("Completed", "")
    (patch,) = changes(writes, kinds.WORKFLOW)
    assert patch["status"]["ready"]


@pytest.mark.parametrize(
    ("state", "command"),
    [
        (State.SETUP, "copy_in"),
        (State.DATA_IN, "jobdw"),
        (State.DATA_IN, "copy_out"),
        (State.DATA_OUT, "copy_in"),
    ],
)
def test_a_command_without_work_in_a_state_is_not_in_the_table(state: State, command: str) -> None:
    assert (state, command) not in HANDLERS


def test_every_write_of_the_workflow_is_made_on_what_was_seen() -> None:
    for wf in (workflow(state=None), workflow(JOBDW), workflow(state="Setup", desired="DataIn")):
        for write in decide(seen(wf)):
            if isinstance(write, Change):
                assert write.resource_version == "7"


# Proposal


def test_proposal_makes_a_breakdown_of_each_jobdw() -> None:
    writes = decide(seen(workflow(JOBDW, COPY_IN, SECOND)))

    found = made(writes, kinds.BREAKDOWN)
    assert keys(found) == ["default/wf-0", "default/wf-2"]
    assert found[1]["spec"] == {"directive": SECOND, "userID": 1001}
    assert found[0]["metadata"]["labels"][labels.DIRECTIVE_INDEX] == "0"
    assert told(writes) == ("DriverWait", "DW Directive 2: status pending")
    assert driver(writes, 0)["status"] == "Running"


def test_proposal_is_ready_when_its_breakdowns_are() -> None:
    writes = decide(seen(workflow(*ALL), breakdowns=[breakdown(0, need())]))

    assert told(writes) == ("Completed", "")
    (patch,) = changes(writes, kinds.WORKFLOW)
    assert patch["status"]["directiveBreakdowns"] == [
        {"kind": "DirectiveBreakdown", "name": "wf-0", "namespace": "default"}
    ]
    assert driver(writes, 0) == {
        "driverID": "nnf",
        "taskID": "",
        "dwdIndex": 0,
        "watchState": "Proposal",
        "lastHB": 0,
        "completed": True,
        "status": "Completed",
        "completeTime": STAMP,
    }


def test_a_breakdown_that_failed_is_an_error_of_its_directive() -> None:
    failed = breakdown(0, error=error("no such profile", "Fatal", "User"))
    writes = decide(seen(workflow(JOBDW), breakdowns=[failed]))
    assert told(writes) == ("Error", "DW Directive 0: User error: no such profile")
    assert driver(writes, 0)["error"] == "no such profile"


def test_directives_that_do_not_fit_each_other_are_the_users_error() -> None:
    writes = decide(seen(workflow(COPY_IN)))
    assert told(writes) == (
        "Error",
        "DW Directive 0: User error: This job has no jobdw named 'my-fs'.",
    )


def test_each_directive_is_told_its_own_mistake() -> None:
    # Upstream says `DW Directive 0` whichever it is.
    wrong = COPY_IN.replace("my_fs", "other")
    writes = decide(seen(workflow(JOBDW, wrong, wrong.replace("/lus", "/nope"))))
    first, second, third = (driver(writes, index) for index in (0, 5, 8))
    assert [each["dwdIndex"] for each in (first, second, third)] == [0, 1, 2]
    assert [each["status"] for each in (first, second, third)] == ["Running", "Error", "Error"]
    assert second["message"].startswith("User error: This job has no jobdw named")
    assert third["message"].startswith("User error: No global file system")


def test_a_container_cannot_run_here_and_its_author_is_told_in_proposal() -> None:
    writes = decide(seen(workflow("#DW container name=ab profile=cd")))
    assert told(writes)[1].startswith("DW Directive 0: User error: Containers cannot run here")


RAW = "#DW jobdw type=raw capacity=1GiB name=blocks"


def test_a_user_who_may_not_have_raw_volumes_is_told_so_in_proposal() -> None:
    writes = decide(seen(workflow(RAW)))

    status, message = told(writes)
    assert status == "Error"
    assert "raw are for root alone here" in message
    assert not made(writes, kinds.BREAKDOWN)


@pytest.mark.parametrize("userid", [0, 1001])
def test_where_rabbits_have_directories_raw_volumes_are_refused_with_that_reason(
    userid: int,
) -> None:
    kept = read({"metadata": meta("r0", labels={labels.RAW_VOLUMES: "none"})}, Storage)
    view = replace(seen(workflow(RAW, spec={"userID": userid})), rabbits={"r0": kept})

    assert told(decide(view)) == (
        "Error",
        "DW Directive 0: User error: Volumes of type raw cannot be made here: a raw volume is a "
        "block device, and the rabbits' volumes are directories. Try type=xfs, or ask an admin "
        "for rabbits with block devices.",
    )


def test_root_may_have_raw_volumes_anywhere_and_users_where_rabbits_offer_them() -> None:
    offering = {
        name: read({"metadata": meta(name, labels={labels.RAW_VOLUMES: "true"})}, Storage)
        for name in ("r0", "r1")
    }

    for view in (
        seen(workflow(RAW, spec={"userID": 0})),
        replace(seen(workflow(RAW)), rabbits=offering),
    ):
        assert made(decide(view), kinds.BREAKDOWN)


class Counted(Mapping[str, Storage]):
    """Many rabbits, that remember which of them were looked at."""

    def __init__(self) -> None:
        self.looked_at: list[str] = []

    def __getitem__(self, name: str) -> Storage:
        self.looked_at.append(name)
        return rabbit(name)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all rabbits are looked at")

    def __len__(self) -> int:
        return 720


@pytest.mark.parametrize("state", ["Proposal", "Setup"])
def test_a_job_costs_no_look_at_rabbits_that_are_not_its_own(state: str) -> None:
    rabbits = Counted()
    wf = workflow(JOBDW, state=state)
    view = seen(wf, breakdowns=[breakdown(0, need())], servers=[servers(share_of(r1=1))])

    assert decide(replace(view, rabbits=rabbits))
    assert rabbits.looked_at == ([] if state == "Proposal" else ["r1"])


def test_a_forced_state_is_ready_although_its_work_is_not_done() -> None:
    writes = decide(seen(workflow(JOBDW, spec={"forceReady": True})))
    assert told(writes) == ("Completed", "Forced Ready")


# What each state waits for

GIVEN = servers(share_of(r0=2, r1=1))
STORAGE = nnf_storage(("r0", 2), ("r1", 1), ready=True)
ON_RABBITS = nnf_access("servers", state="mounted", ready=True)
COPYING = {"storages": [STORAGE], "accesses": [ON_RABBITS]}
FINISHED: dict[str, Any] = {"state": "Finished", "status": "Success"}
NO_ROOM: dict[str, Any] = {"state": "Finished", "status": "Failed", "message": "no room"}
WAITS, MAY_HEAL, DONE = "DriverWait", "TransientCondition", "Completed"


def copies(*states: dict[str, Any], index: int = 1) -> list[NnfDataMovement]:
    places = [("r0", 0), ("r0", 1), ("r1", 0)]
    return [
        movement(index, rabbit, number, **state)
        for (rabbit, number), state in zip(places, states, strict=True)
    ]


def broken(severity: str, **more: str) -> dict[str, Any]:
    return {"error": error(severity=severity, **more)}


TOLD: list[tuple[str, dict[str, Any], str, str]] = [
    ("Proposal", {"breakdowns": [breakdown()]}, WAITS, "0: status pending"),
    (
        "Proposal",
        {"breakdowns": [breakdown(0, **broken("Fatal", type="User"))]},
        "Error",
        "0: User error: broke",
    ),
    ("Setup", {}, WAITS, "0: waits for its DirectiveBreakdown and Servers"),
    ("Setup", {"servers": [GIVEN]}, WAITS, "0: waits for its DirectiveBreakdown and Servers"),
    ("Setup", {"storages": [nnf_storage()]}, WAITS, "0: allocation set not ready"),
    ("Setup", {"storages": [nnf_storage(ready=True)]}, DONE, ""),
    ("Setup", {"storages": [nnf_storage(**broken("Minor"))]}, WAITS, "0: Internal error: broke"),
    ("Setup", {"storages": [nnf_storage(**broken("Major"))]}, MAY_HEAL, "0: Internal error: broke"),
    ("Setup", {"storages": [nnf_storage(**broken("Fatal"))]}, "Error", "0: Internal error: broke"),
    ("DataIn", {}, MAY_HEAL, "1: Internal error: the storage my-fs is gone"),
    (
        "DataIn",
        {"storages": [STORAGE], "accesses": [nnf_access("servers")]},
        WAITS,
        "1: pending mount",
    ),
    (
        "DataIn",
        {"storages": [STORAGE], "accesses": [nnf_access("servers", **broken("Fatal"))]},
        "Error",
        "1: Internal error: broke",
    ),
    (
        "DataIn",
        {**COPYING, "file_systems": []},
        MAY_HEAL,
        "1: Internal error: no global file system contains '/lus/in/' any more",
    ),
    (
        "DataIn",
        {**COPYING, "movements": copies(FINISHED, {"state": "Running"}, {})},
        WAITS,
        "1: 2 data movements to finish",
    ),
    (
        "DataIn",
        {**COPYING, "movements": copies({}, {}, NO_ROOM)},
        "Error",
        "1: User error: data movement operation failed during 'DataIn', message: r1: no room",
    ),
    (
        "DataIn",
        {**COPYING, "movements": copies({**NO_ROOM, "status": "Cancelled"}, {}, {})},
        "Error",
        "1: User error: data movement operation failed during 'DataIn', message: r0: no room",
    ),
    (
        "DataIn",
        {**COPYING, "movements": [*copies(FINISHED, FINISHED, FINISHED), movement(2)]},
        DONE,
        "",
    ),
    (
        "DataOut",
        {**COPYING, "movements": copies(NO_ROOM, {"state": "Running"}, {}, index=2)},
        WAITS,
        "2: 2 data movements to finish",
    ),
    (
        "DataOut",
        {**COPYING, "movements": [*copies(NO_ROOM, FINISHED, FINISHED, index=2), movement(3)]},
        WAITS,
        "2: has failed, and waits for other copies to end: data movement operation failed during "
        "'DataOut', message: r0: no room",
    ),
    (
        "DataOut",
        {**COPYING, "movements": copies(FINISHED, NO_ROOM, FINISHED, index=2)},
        "Error",
        "2: User error: data movement operation failed during 'DataOut', message: r0: no room",
    ),
    (
        "DataOut",
        {
            **COPYING,
            "movements": copies({**NO_ROOM, **broken("Fatal")}, FINISHED, FINISHED, index=2),
        },
        "Error",
        "2: Internal error: data movement operation failed during 'DataOut', message: r0: no room",
    ),
    (
        "PreRun",
        {"accesses": [nnf_access("servers", desired="unmounted", state="mounted", ready=True)]},
        WAITS,
        "0: pending unmount",
    ),
    ("PreRun", {"accesses": [nnf_access()]}, WAITS, "0: pending mount"),
    ("PreRun", {"accesses": [nnf_access(state="mounted")]}, WAITS, "0: pending mount"),
    ("PreRun", {"accesses": [nnf_access(ready=True)]}, WAITS, "0: pending mount"),
    ("PreRun", {"accesses": [nnf_access(state="mounted", ready=True)]}, DONE, ""),
    (
        "PostRun",
        {"accesses": [nnf_access(desired="unmounted", state="mounted", ready=True)]},
        WAITS,
        "0: pending unmount",
    ),
    (
        "PostRun",
        {"accesses": [nnf_access(desired="unmounted", **broken("Major", message="busy"))]},
        MAY_HEAL,
        "0: Internal error: busy",
    ),
    (
        "PostRun",
        {"accesses": [nnf_access(desired="unmounted", state="unmounted", ready=True)]},
        DONE,
        "",
    ),
    ("PostRun", {}, DONE, ""),
    (
        "Teardown",
        {"accesses": [nnf_access(deleting=True, **broken("Major", message="busy"))]},
        MAY_HEAL,
        "0: Internal error: busy",
    ),
    (
        "Teardown",
        {"storages": [nnf_storage(metadata=DELETING, **broken("Major", message="in use"))]},
        MAY_HEAL,
        "0: Internal error: in use",
    ),
    ("Teardown", {}, DONE, ""),
]


@pytest.mark.parametrize(("state", "others", "status", "message"), TOLD)
def test_a_state_tells_what_it_waits_for_and_of_what_went_wrong(
    state: str, others: dict[str, Any], status: str, message: str
) -> None:
    wf = workflow(*ALL, state=state)

    writes = decide(seen(wf, **others))

    assert told(writes) == (status, f"DW Directive {message}" if message else "")
    assert [each.kind for each in writes] == [kinds.WORKFLOW]
    assert writes == decide(seen(wf, **others))
    assert decide(seen(after(wf, writes), **others)) == []


def test_an_error_that_heals_is_forgotten() -> None:
    wf = workflow(JOBDW, state="Setup")
    failed = seen(wf, storages=[nnf_storage(error=error())])
    later = seen(after(wf, decide(failed)), storages=[nnf_storage()])

    writes = decide(later)

    assert told(writes) == (WAITS, "DW Directive 0: allocation set not ready")
    assert "error" not in driver(writes, 1)


# What each state makes


def test_setup_makes_the_storage_that_the_workload_manager_has_assigned() -> None:
    wf = workflow(JOBDW, state="Setup")

    writes = decide(seen(wf, breakdowns=[breakdown(0, need())], servers=[GIVEN]))

    (found,) = made(writes, kinds.NNF_STORAGE)
    assert key_of(found) == Key("default", "wf-0")
    assert found["spec"]["fileSystemType"] == "xfs"
    assert (found["spec"]["userID"], found["spec"]["groupID"]) == (1001, 1002)
    (allocated,) = found["spec"]["allocationSets"]
    assert allocated["nodes"] == [{"name": "r0", "count": 2}, {"name": "r1", "count": 1}]
    assert told(writes) == (WAITS, "DW Directive 0: allocation set not ready")


def test_servers_that_are_filled_in_wrongly_are_the_workload_managers_error() -> None:
    wrong = servers(share_of(size=5, r0=1))
    writes = decide(
        seen(workflow(JOBDW, state="Setup"), breakdowns=[breakdown(0, need())], servers=[wrong])
    )
    assert not made(writes, kinds.NNF_STORAGE)
    assert told(writes) == (
        "Error",
        "DW Directive 0: WLM error: Servers wf-0: an allocation of set xfs has 5 bytes, and "
        "1388314624 are needed",
    )


def test_prerun_lets_the_rabbits_unmount_first() -> None:
    writes = decide(seen(workflow(*ALL, state="PreRun"), accesses=[ON_RABBITS]))
    assert changes(writes, kinds.NNF_ACCESS) == [{"spec": {"desiredState": "unmounted"}}]
    assert not made(writes, kinds.NNF_ACCESS)
    at_it = nnf_access("servers", desired="unmounted", state="unmounted", ready=False)
    assert not made(
        decide(seen(workflow(*ALL, state="PreRun"), accesses=[at_it])), kinds.NNF_ACCESS
    )
    done = nnf_access("servers", desired="unmounted", state="unmounted", ready=True)
    (found,) = made(decide(seen(workflow(*ALL, state="PreRun"), accesses=[done])), kinds.NNF_ACCESS)
    assert key_of(found).name == "wf-0-computes"


def test_prerun_then_mounts_on_the_computes() -> None:
    writes = decide(seen(workflow(JOBDW, state="PreRun")))

    (found,) = made(writes, kinds.NNF_ACCESS)
    assert key_of(found) == Key("default", "wf-0-computes")
    assert found["spec"]["target"] == "single"
    assert found["spec"]["mountPath"] == "/mnt/nnf/uid-wf-0"
    assert found["spec"]["clientReference"]["name"] == "wf"


def test_prerun_names_the_jobs_storage_to_the_job() -> None:
    mounted = [nnf_access(index=index, state="mounted", ready=True) for index in (0, 2)]

    writes = decide(seen(workflow(JOBDW, COPY_IN, SECOND, state="PreRun"), accesses=mounted))

    (patch,) = changes(writes, kinds.WORKFLOW)
    assert patch["status"]["ready"]
    assert patch["status"]["env"] == {
        "DW_JOB_my_fs": "/mnt/nnf/uid-wf-0",
        "DW_JOB_other": "/mnt/nnf/uid-wf-2",
        "DW_JOB_XFS": "/mnt/nnf/uid-wf-0",
        "DW_JOBS": "my-fs:/mnt/nnf/uid-wf-0,other:/mnt/nnf/uid-wf-2",
    }


def test_prerun_with_one_of_two_mounts_is_not_ready() -> None:
    mounted = nnf_access(state="mounted", ready=True)
    writes = decide(seen(workflow(JOBDW, SECOND, state="PreRun"), accesses=[mounted]))
    assert told(writes) == (WAITS, "DW Directive 1: pending mount")
    assert driver(writes, 2)["completed"]


def test_postrun_asks_the_computes_to_unmount() -> None:
    mounted = nnf_access(state="mounted", ready=True)

    writes = decide(seen(workflow(JOBDW, state="PostRun"), accesses=[mounted]))

    assert changes(writes, kinds.NNF_ACCESS) == [{"spec": {"desiredState": "unmounted"}}]
    assert told(writes) == (WAITS, "DW Directive 0: pending unmount")


def test_entries_keep_the_fields_that_are_not_known_here() -> None:
    wf = workflow(JOBDW, state="Setup")
    entry = {**wf.status.drivers[1], "taskID": "42", "novel": True}
    drivers = [*wf.status.drivers[:1], entry, *wf.status.drivers[2:]]
    changed = workflow(JOBDW, state="Setup", status={"drivers": drivers})

    writes = decide(seen(changed, storages=[nnf_storage(ready=True)]))

    assert driver(writes, 1)["novel"] is True
    assert driver(writes, 1)["taskID"] == "42"
    assert driver(writes, 0) == wf.status.drivers[0]


# Computes


WIRING = {"n0": "r0", "n1": "r0", "login": ""}


def with_nodes(wf: Workflow, *nodes: str, **others: Any) -> WorkflowSnapshot:
    return replace(seen(wf, **others), computes=computes(*nodes), wiring=WIRING)


def test_nodes_that_the_system_does_not_have_are_named_before_anything_is_mounted() -> None:
    """dws-spec section 4: names must be in the SystemConfiguration."""
    wf = workflow(JOBDW, state="PreRun")

    writes = decide(with_nodes(wf, "n0", "nope", "login", *(f"x{number}" for number in range(11))))

    assert not made(writes, kinds.NNF_ACCESS)
    assert told(writes) == (
        "Error",
        "DW Directive 0: WLM error: Computes wf names nodes that are not in the "
        "SystemConfiguration: nope, x0, x1, x2, x3, x4, x5, x6, x7, x8 and 2 more",
    )
    assert made(decide(with_nodes(wf, "n0", "login")), kinds.NNF_ACCESS)
    assert made(decide(replace(with_nodes(wf, "nope"), wiring=None)), kinds.NNF_ACCESS)


def test_computes_that_are_known_in_setup_need_allocations_on_their_rabbits() -> None:
    wf = workflow(JOBDW, state="Setup")
    given = {"breakdowns": [breakdown(0, need())], "servers": [servers(share_of(r0=1))]}

    assert made(decide(with_nodes(wf, "n0", "login", **given)), kinds.NNF_STORAGE)
    writes = decide(with_nodes(wf, "n0", "n1", **given))
    assert not made(writes, kinds.NNF_STORAGE)
    assert "r0 has 1 allocation of set xfs for 2 compute nodes" in told(writes)[1]
