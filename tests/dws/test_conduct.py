"""What the workload manager's side does for one job and its Workflow."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.dws import builders
from tests.dws.builders import (
    BINDING,
    DELETING,
    JOBDW,
    SIZE,
    after,
    breakdown,
    changes,
    computes,
    configuration,
    need,
    raw_workflow,
    removed,
    servers,
    share_of,
    workflow,
)
from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.base.objects import Change, Key, Remove, key_of
from warren.base.placing import HeldFlash
from warren.base.times import rfc3339, rfc3339_micro
from warren.dws import kinds, labels
from warren.dws.binding import Phase
from warren.dws.faults import Fault
from warren.dws.jobs import resources
from warren.dws.jobs.abort import Leftovers
from warren.dws.jobs.conduct import (
    decide,
    depends_on_abort,
    depends_on_held_flash,
    is_finished,
    new_persistent_servers,
)
from warren.dws.jobs.jobactions import (
    SUMMARY_KEY,
    Drain,
    Finish,
    FreeNodes,
    KeepValues,
    Memo,
    RaiseException,
    ReleaseToScheduler,
    RequeueAfter,
    Start,
    Undrain,
)
from warren.dws.jobs.jobsnapshot import Job, JobSnapshot
from warren.dws.jobs.placement import PlacementPolicy
from warren.dws.jobs.timeouts import Timeouts
from warren.dws.jobs.unsavedresults import UnsavedPolicy
from warren.dws.node import InUse, Kept, NodeTrouble
from warren.dws.nodelocal import node_counts_by_rabbit
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.assignments import Servers
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta
from warren.dws.objects.nnfstorages import NnfNodeStorage
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.storages import Storage, StorageSpec, StorageStatus
from warren.dws.objects.workflows import State, Workflow
from warren.dws.offload import copyservice
from warren.dws.offload.copyservice import OffloadService
from warren.dws.workflow import copysteps
from warren.dws.workflow.states import ADVANCE, create_refusal

NODE = {
    "type": "node",
    "count": 2,
    "with": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
}
NOON = 1_790_000_000.0
RAW = {"kind": "Workflow", "metadata": {"name": "wf"}}
SINGLE = need("mgt", 6 * GIB, "AllocateSingleServer")
TOOK = {"elapsedTimeLastState": "1.5s"}


def job(phase: Phase, **more: Any) -> Job:
    return Job(
        id=7,
        phase=phase,
        binding=BINDING,
        userid=1001,
        groupid=1002,
        formatted_id="fX",
        directives=(JOBDW,),
        resources=[NODE],
        nodes=("n0", "n1", "n2"),
        **more,
    )


def seen(the_job: Job, wf: Workflow | None = None, **others: Any) -> JobSnapshot:
    view: dict[str, Any] = {
        "breakdowns": {"wf-0": breakdown(0, need())},
        "servers": {"wf-0": servers()},
        "computes": computes(),
        "configuration": configuration(),
        "min_allocation_bytes": 4 * GIB,
        "now": NOON,
    }
    return JobSnapshot(job=the_job, workflow=wf, raw_workflow=RAW, **{**view, **others})


def at(state: str, ready: bool = True, desired: str | None = None, **status: Any) -> Workflow:
    return workflow(JOBDW, state=state, ready=ready, desired=desired, status={**TOOK, **status})


def marked_as_anothers(phase: Phase, **metadata: Any) -> JobSnapshot:
    """Return what is seen of a job of an instance, and of another one's Workflow of its name."""
    marked = {"labels": {labels.WLM_INSTANCE: "there"}, **metadata}
    wf = workflow(JOBDW, state="PreRun", ready=True, metadata=marked)
    return seen(job(phase), wf, wlm_instance="here")


def asked(actions: list[Any]) -> list[str]:
    """Return the states that the Workflow is asked for."""
    return [str(patch["spec"]["desiredState"]) for patch in changes(actions, kinds.WORKFLOW)]


def notes(actions: list[Any]) -> dict[str, Any]:
    """Return what is kept with the record, but for the summary."""
    noted = [each.values.items() for each in actions if isinstance(each, KeepValues)]
    return {key: value for items in noted for key, value in items if key != SUMMARY_KEY}


@pytest.mark.parametrize("phase", [None, *Phase])
def test_a_workflow_that_goes_is_past_when_it_was_let_go_and_its_job_is_over(
    phase: Phase | None,
) -> None:
    known = None if phase is None else job(phase)
    going = raw_workflow(JOBDW, state="Teardown", ready=True, metadata=DELETING)
    held = {**going, "metadata": {**going["metadata"], "finalizers": [BINDING.finalizer]}}
    alive = raw_workflow(JOBDW, state="Teardown", ready=True)
    over = phase in (None, Phase.OVER)

    assert is_finished(going, known, BINDING.finalizer) is over
    assert not is_finished(held, known, BINDING.finalizer)
    assert not is_finished(alive, known, BINDING.finalizer)
    if over and known is not None:
        wf = read(going, Workflow)
        assert decide(seen(known, wf)) == decide(seen(known)) == []


# Held, and let go


@pytest.mark.parametrize("deleting", [{}, DELETING])
@pytest.mark.parametrize("phase", [Phase.HELD, Phase.QUEUED, Phase.STARTING, Phase.RUNNING])
def test_a_job_is_refused_whose_workflow_is_another_instances(
    phase: Phase, deleting: dict[str, Any]
) -> None:
    words = f"Workflow fluxjob-7 is another instance's, by its label {labels.WLM_INSTANCE}: submit"
    with pytest.raises(Fault, match=words):
        decide(marked_as_anothers(phase, **deleting))


@pytest.mark.parametrize("deleting", [{}, DELETING])
@pytest.mark.parametrize(
    ("phase", "done"), [(Phase.NEW, []), (Phase.ENDING, [Finish()]), (Phase.OVER, [])]
)
def test_a_job_ends_without_touching_another_instances_workflow(
    phase: Phase, done: list[Any], deleting: dict[str, Any]
) -> None:
    assert decide(marked_as_anothers(phase, **deleting)) == done


def test_a_held_job_gets_a_workflow_that_admission_lets_pass() -> None:
    """Statement 002.1: directives go to the driver through the Workflow."""
    actions = decide(seen(job(Phase.HELD)))

    (found,) = builders.made(actions, kinds.WORKFLOW)
    assert key_of(found) == Key("default", "fluxjob-7")
    assert found["metadata"]["finalizers"] == [BINDING.finalizer]
    assert found["spec"] == {
        "desiredState": State.PROPOSAL,
        "dwDirectives": [JOBDW],
        "jobID": "fX",
        "userID": 1001,
        "groupID": 1002,
        "wlmID": "flux",
    }
    assert create_refusal(found) is None
    assert actions[1:] == [Memo({"rabbit_workflow": "fluxjob-7"})]


@pytest.mark.parametrize(
    "wf",
    [at("Proposal", ready=False), workflow(JOBDW, state=None), at("Proposal", desired="Setup")],
)
def test_a_held_job_waits_for_its_proposal(wf: Workflow) -> None:
    """Statement 002.4: nothing is read of breakdowns before they are ready."""
    assert decide(seen(job(Phase.HELD), wf)) == []


def test_a_held_job_is_released_with_flash_beside_each_node() -> None:
    """Statement 000.51: a breakdown says how much each node, or each rabbit, is given."""
    actions = decide(seen(job(Phase.HELD), at("Proposal")))

    (released,) = (each for each in actions if isinstance(each, ReleaseToScheduler))
    (slot,) = released.resources
    assert slot["with"][1] == {"type": "ssd", "count": 4, "exclusive": True}
    assert notes(actions) == {"rabbit_proposal_timing": "1.5s", "rabbit_workflow": RAW}


def test_a_job_is_released_with_the_daemons_that_it_needs_if_there_are_such() -> None:
    wanted = {"wf-0": breakdown(0, need(), requires=["copy-offload"])}

    def released(daemons: list[str] | None) -> ReleaseToScheduler:
        snapshot = seen(job(Phase.HELD), at("Proposal"), breakdowns=wanted, daemons=daemons)
        (found,) = (each for each in decide(snapshot) if isinstance(each, ReleaseToScheduler))
        return found

    for known in (None, ["copy-offload"]):
        assert released(known).daemons == ("copy-offload",)
    with pytest.raises(Fault, match="the daemon 'copy-offload' is not offered by this cluster"):
        released(["other"])


def test_copies_that_the_storage_side_makes_are_no_daemons_matter() -> None:
    service = OffloadService(host="here", port=1, certificate="/cert.pem")
    served = after(configuration(), [copyservice.announce(service)])
    wanted = {"wf-0": breakdown(0, need(), requires=["copy-offload", "other"])}
    snapshot = seen(
        job(Phase.HELD),
        at("Proposal"),
        breakdowns=wanted,
        daemons=["other"],
        configuration=served,
    )
    (found,) = (each for each in decide(snapshot) if isinstance(each, ReleaseToScheduler))
    assert found.daemons == ("other",)


def test_a_job_that_has_its_flash_already_is_released_as_it_is() -> None:
    (released,) = [
        each
        for each in decide(seen(job(Phase.HELD), at("Proposal")))
        if isinstance(each, ReleaseToScheduler)
    ]
    again = Job(id=7, phase=Phase.HELD, binding=BINDING, resources=released.resources)
    assert released in decide(seen(again, at("Proposal")))


def test_a_held_job_that_asks_for_no_nodes_is_a_fault() -> None:
    slots = {**NODE["with"][0], "count": 2}  # type: ignore[index]
    nodeless = Job(id=7, phase=Phase.HELD, binding=BINDING, resources=[slots])
    with pytest.raises(Fault, match="say how many with -N"):
        decide(seen(nodeless, at("Proposal")))


def test_a_queued_job_is_left_alone() -> None:
    assert decide(seen(job(Phase.QUEUED), at("Proposal"))) == []


# Starting


def test_a_job_whose_storage_is_not_asked_for_yet_is_left_alone() -> None:
    assert decide(seen(job(Phase.NEW))) == []
    assert decide(seen(job(Phase.NEW), at("Proposal"))) == []


def test_a_starting_job_says_which_rabbits_hold_its_storage() -> None:
    """Statements 002.8, 002.11: as many allocations as nodes, and the label comes back."""
    actions = decide(seen(job(Phase.STARTING), at("Proposal")))

    assert changes(actions, kinds.SERVERS) == [
        {"spec": {"allocationSets": [share_of(size=4 * GIB, r0=2, r1=1)]}}
    ]
    assert asked(actions) == ["Setup"]
    # The memo is last: no refusal is heeded after it.
    shares, advance, shown = actions
    assert getattr(shares, "kind", None) == kinds.SERVERS
    assert getattr(advance, "kind", None) == kinds.WORKFLOW
    assert shown == Memo({"rabbits": "r[0-1]"})


SERVED = {"servers": {"wf-0": servers(share_of(size=GIB, r0=2, r9=1))}}
SHOWN = {"rabbit_workflow": "fluxjob-7", "rabbits": "r[0-1,9]"}


@pytest.mark.parametrize(
    ("phase", "wf", "memos"),
    [
        (Phase.HELD, at("Proposal"), [Memo({"rabbit_workflow": "fluxjob-7"})]),
        (Phase.STARTING, at("Proposal", desired="Setup"), [Memo({"rabbits": "r[0-1,9]"})]),
        (Phase.STARTING, at("Setup", ready=False), [Memo({"rabbits": "r[0-1,9]"})]),
        (Phase.STARTING, at("Setup"), [Memo({"rabbits": "r[0-1,9]"})]),
        (Phase.STARTING, at("DataIn"), [Memo({"rabbits": "r[0-1,9]"})]),
        (Phase.STARTING, at("PreRun"), [Memo({"rabbits": "r[0-1,9]"})]),
        (Phase.RUNNING, at("PreRun"), []),
    ],
)
def test_a_conductor_shows_what_one_before_it_did_not_come_to(
    phase: Phase, wf: Workflow, memos: list[Memo]
) -> None:
    def shown(**known: Any) -> list[Memo]:
        return [each for each in decide(seen(job(phase), wf, **known)) if isinstance(each, Memo)]

    assert shown(**SERVED) == memos
    assert shown(**SERVED, shown_memos=SHOWN) == []


def test_rabbits_are_not_shown_before_the_servers_that_name_them_are_seen() -> None:
    unseen: list[dict[str, Any]] = [{}, {"servers": {}}]
    for known in unseen:
        actions = decide(seen(job(Phase.STARTING), at("Setup", ready=False), **known))
        assert actions == []


def test_a_starting_job_puts_what_is_shared_where_its_flash_is() -> None:
    needs: dict[str, Any] = {
        "breakdowns": {
            "wf-0": breakdown(0, need("ost", 10 * GIB, "AllocateAcrossServers", count=2)),
            "wf-1": breakdown(1, need("mgt", 6 * GIB, "AllocateSingleServer")),
        },
        "servers": {"wf-0": servers(), "wf-1": servers()},
    }
    starting = seen(job(Phase.STARTING), at("Proposal"), **needs)
    assert depends_on_held_flash(starting)
    flash = (HeldFlash("r0", 2, 1, 11), HeldFlash("r1", 1, 1, 5))
    actions = decide(replace(starting, flash=flash))
    assert [each["spec"]["allocationSets"] for each in changes(actions, kinds.SERVERS)] == [
        [share_of("ost", 5 * GIB, r0=1, r1=1)],
        [share_of("mgt", 6 * GIB, r0=1)],
    ]
    with pytest.raises(Fault, match=r"^the storage cannot be placed because it is 2 alloc"):
        decide(starting)


CREATE = "#DW create_persistent type=xfs capacity=1GiB name=pers"
PERS = Key("default", "pers")


def creating(phase: Phase, *, found: bool, workflow_: Workflow | None = None) -> JobSnapshot:
    """Make a job that creates persistent storage, which it has `found` there or makes."""
    reference = {"kind": "Servers", "name": "pers", "namespace": "default"}
    sets = [msgspec.to_builtins(need())]
    storage = {"lifetime": "persistent", "reference": reference, "allocationSets": sets}
    told = breakdown(0, ready=True, storage=storage, directive=CREATE)
    uid = "another" if found else told.metadata.uid
    maker = msgspec.structs.replace(told.metadata, uid=uid)
    owned = {"name": "pers", "namespace": "default"}
    owned["labels"] = labels.of_owner(kinds.BREAKDOWN, maker)  # type: ignore[assignment]
    instance = {"metadata": owned, "spec": {"name": "pers", "fsType": "xfs", "userID": 1001}}
    own = read({"metadata": builders.meta("pers"), "spec": {"allocationSets": []}}, Servers)
    return seen(
        job(phase),
        workflow_ or at("Proposal"),
        breakdowns={"wf-0": told},
        servers={"pers": own},
        persistent_instances={PERS: read(instance, PersistentStorageInstance)},
    )


def test_what_a_job_creates_is_reserved_and_placed_and_what_it_finds_is_not() -> None:
    """ADR 054: storage that is there already has its flash, and its Servers."""
    for phase in (Phase.HELD, Phase.STARTING):
        assert new_persistent_servers(creating(phase, found=False)) == [PERS]
    assert new_persistent_servers(creating(Phase.RUNNING, found=False)) == []

    (release,) = [
        each
        for each in decide(creating(Phase.HELD, found=False))
        if isinstance(each, ReleaseToScheduler)
    ]
    assert release.resources[0]["with"][1] == {"type": "ssd", "count": 4, "exclusive": True}
    (release,) = [
        each
        for each in decide(creating(Phase.HELD, found=True))
        if isinstance(each, ReleaseToScheduler)
    ]
    assert release.resources == [NODE]

    (patch,) = changes(decide(creating(Phase.STARTING, found=False)), kinds.SERVERS)
    assert patch == {"spec": {"allocationSets": [share_of(size=4 * GIB, r0=2, r1=1)]}}
    actions = decide(creating(Phase.STARTING, found=True))
    assert changes(actions, kinds.SERVERS) == []
    assert asked(actions) == ["Setup"]


DESTROY = "#DW destroy_persistent name=pers"


def torn_down(
    *drivers: tuple[str, str, bool], directives: tuple[str, ...] = (DESTROY,)
) -> Workflow:
    """Make a Workflow in Teardown: state watched, status and completed of each driver."""
    return workflow(
        *directives,
        state="Teardown",
        ready=False,
        desired="Teardown",
        status={
            "status": "Error",
            "message": "DW Directive 0: in use",
            "drivers": [
                {
                    "driverID": "nnf",
                    "dwdIndex": index,
                    "watchState": state,
                    "status": status,
                    "completed": completed,
                }
                for index, (state, status, completed) in enumerate(drivers)
            ],
        },
    )


def test_a_job_whose_destroy_is_refused_fails_and_ends() -> None:
    """Nothing of the job waits for storage that others use, and may use for long."""
    refused = torn_down(("Teardown", "Error", False))
    ending = replace(job(Phase.ENDING, ran=True), directives=(DESTROY,))
    fail, finish = decide(seen(ending, refused))
    assert isinstance(fail, RaiseException)
    assert fail.severity == 0
    assert "DW Directive 0: in use (in '#DW destroy_persistent name=pers')" in fail.note
    assert finish == Finish()
    assert decide(seen(replace(ending, has_exception_while_ending=True), refused)) == [Finish()]
    over = decide(seen(job(Phase.OVER), refused))
    assert removed(over, kinds.WORKFLOW) == ["default/wf"]


@pytest.mark.parametrize(
    "other",
    [
        torn_down(("Teardown", "Running", False)),
        torn_down(("Proposal", "Error", False)),
        torn_down(("Teardown", "Error", False), directives=(JOBDW,)),
        torn_down(
            ("Teardown", "Error", False), ("Teardown", "Error", False), directives=(DESTROY, JOBDW)
        ),
    ],
)
def test_what_is_a_jobs_own_and_does_not_go_is_waited_for(other: Workflow) -> None:
    actions = decide(seen(job(Phase.ENDING, ran=True), other))
    assert Finish() not in actions
    assert not removed(decide(seen(job(Phase.OVER), other)), kinds.WORKFLOW)


def test_a_job_that_has_no_storage_may_be_on_nodes_without_a_rabbit() -> None:
    strange = replace(job(Phase.STARTING), nodes=("n9",), directives=(DESTROY,))
    actions = decide(seen(strange, at("Proposal"), breakdowns={}, servers={}))
    assert asked(actions) == ["Setup"]


def test_where_the_scheduler_knows_no_flash_jobs_are_released_as_they_are() -> None:
    actions = decide(
        seen(job(Phase.HELD), at("Proposal"), policy=PlacementPolicy(scheduler_places_flash=False))
    )
    (released,) = (each for each in actions if isinstance(each, ReleaseToScheduler))
    assert (released.resources, released.constraints) == ([NODE], {})


def test_where_the_scheduler_knows_no_flash_storage_is_on_the_nodes_rabbits() -> None:
    starting = seen(
        job(Phase.STARTING),
        at("Proposal"),
        breakdowns={"wf-0": breakdown(0, need("ost", 12 * GIB, "AllocateAcrossServers", count=3))},
    )
    actions = decide(replace(starting, policy=PlacementPolicy(scheduler_places_flash=False)))
    (patch,) = changes(actions, kinds.SERVERS)
    (found,) = patch["spec"]["allocationSets"]
    assert {each["name"] for each in found["storage"]} <= {"r0", "r1"}
    assert sum(each["allocationCount"] for each in found["storage"]) == 3
    with pytest.raises(Fault, match="no flash"):
        decide(starting)


def test_a_job_that_asks_for_more_than_a_site_allows_is_told_so() -> None:
    held = seen(
        job(Phase.HELD), at("Proposal"), policy=PlacementPolicy(max_gib_per_node={"xfs": 3})
    )
    with pytest.raises(UserMistake, match=r"4 GiB of xfs .* have 3 GiB at most"):
        decide(held)
    decide(replace(held, policy=PlacementPolicy(max_gib_per_node={"xfs": 4})))


def test_storage_is_on_rabbits_of_no_node_where_the_site_lets_it() -> None:
    place = {"kind": "Servers", "name": "wf-0", "namespace": "default"}
    access = [{"type": "network", "priority": "mandatory"}]
    first = {
        "access": access,
        "reference": {**place, "fieldPath": "servers.spec.allocationSets[0]"},
    }
    starting = seen(
        job(Phase.STARTING),
        at("Proposal"),
        breakdowns={
            "wf-0": breakdown(
                0,
                need("ost", 12 * GIB, "AllocateAcrossServers", count=3),
                compute={"constraints": {"location": [first]}},
            )
        },
        flash=(HeldFlash("r0", 2, 1, 4), HeldFlash("r1", 1, 1, 0), HeldFlash("r9", 0, 1, 8)),
        policy=PlacementPolicy(allow_any_rabbit=True),
    )
    actions = decide(starting)
    (patch,) = changes(actions, kinds.SERVERS)
    assert patch["spec"]["allocationSets"] == [share_of("ost", 4 * GIB, r0=1, r9=2)]
    assert Memo({"rabbits": "r[0-1,9]"}) in actions
    with pytest.raises(Fault, match="cannot be placed"):
        decide(replace(starting, policy=PlacementPolicy()))


@pytest.mark.parametrize(
    "other",
    [
        seen(job(Phase.STARTING), at("Proposal")),
        seen(job(Phase.STARTING), at("Setup"), breakdowns={"wf-0": breakdown(0, SINGLE)}),
        seen(job(Phase.HELD), at("Proposal"), breakdowns={"wf-0": breakdown(0, SINGLE)}),
    ],
)
def test_flash_is_looked_up_only_where_it_matters(other: JobSnapshot) -> None:
    assert not depends_on_held_flash(other)


def test_storage_of_more_than_the_floor_is_as_large_as_it_is_needed() -> None:
    actions = decide(seen(job(Phase.STARTING), at("Proposal"), min_allocation_bytes=1))
    ((allocated,),) = [each["spec"]["allocationSets"] for each in changes(actions, kinds.SERVERS)]
    assert allocated["allocationSize"] == SIZE


def test_then_it_says_which_nodes_mount_it() -> None:
    """Statement 000.19: the Computes name the job's nodes."""
    actions = decide(seen(job(Phase.STARTING), at("Setup")))
    assert changes(actions, kinds.COMPUTES) == [
        {"data": [{"name": "n0"}, {"name": "n1"}, {"name": "n2"}]}
    ]
    assert notes(actions) == {"rabbit_setup_timing": "1.5s"}
    assert asked(actions) == ["DataIn"]


def test_then_its_data_is_in_and_it_asks_for_the_mounts() -> None:
    actions = decide(seen(job(Phase.STARTING), at("DataIn")))
    assert notes(actions) == {"rabbit_datain_timing": "1.5s"}
    assert asked(actions) == ["PreRun"]


def test_then_its_tasks_start_with_the_workflows_variables() -> None:
    actions = decide(seen(job(Phase.STARTING), at("PreRun", env={"DW_JOB_my_fs": "/m"})))
    assert actions == [KeepValues({"rabbit_prerun_timing": "1.5s"}), Start({"DW_JOB_my_fs": "/m"})]


@pytest.mark.parametrize("state", [*ADVANCE])
def test_a_starting_job_waits_for_each_state(state: State) -> None:
    assert decide(seen(job(Phase.STARTING), at(state, ready=False))) == []


def test_a_starting_job_whose_workflow_is_further_waits() -> None:
    assert decide(seen(job(Phase.STARTING), at("PostRun"))) == []


@pytest.mark.parametrize(
    ("state", "others", "fault"),
    [
        ("Proposal", {"servers": {}}, "the Servers wf-0 are gone"),
        ("Proposal", {"configuration": None}, "node n0 is wired to no rabbit"),
        ("Setup", {"computes": None}, "the job's Computes are gone"),
    ],
)
def test_a_job_whose_storage_cannot_be_placed_cannot_go_on(
    state: str, others: dict[str, Any], fault: str
) -> None:
    with pytest.raises(Fault, match=fault):
        decide(seen(job(Phase.STARTING), at(state), **others))


def test_nodes_are_counted_by_the_rabbit_they_are_wired_to() -> None:
    assert node_counts_by_rabbit(["n2", "n0", "n1"], configuration()) == {"r0": 2, "r1": 1}
    with pytest.raises(Fault, match="node stray is wired to no rabbit"):
        node_counts_by_rabbit(["n0", "stray"], configuration())


# Running and ending


def test_a_running_job_is_left_alone() -> None:
    assert decide(seen(job(Phase.RUNNING, ran=True), at("PreRun"))) == []


@pytest.mark.parametrize(
    ("state", "following", "kept"),
    [
        ("PreRun", "PostRun", {}),
        ("PostRun", "DataOut", {"rabbit_postrun_timing": "1.5s"}),
        ("DataOut", "Teardown", {"rabbit_dataout_timing": "1.5s", "rabbit_workflow": RAW}),
    ],
)
def test_a_job_that_ran_unmounts_copies_out_and_tears_down(
    state: str, following: str, kept: dict[str, Any]
) -> None:
    actions = decide(seen(job(Phase.ENDING, ran=True), at(state)))
    assert asked(actions) == [following]
    assert notes(actions) == kept


@pytest.mark.parametrize("state", ["PreRun", "PostRun", "DataOut", "Teardown"])
def test_an_ending_job_waits_for_each_state(state: str) -> None:
    assert decide(seen(job(Phase.ENDING, ran=True), at(state, ready=False))) == []


@pytest.mark.parametrize(
    ("facts", "wf"),
    [
        ({}, at("Proposal", ready=False)),
        ({}, at("Setup")),
        ({"failed": True}, at("PreRun", ready=False)),
        (
            {"ran": True, "has_failed_while_ending": True, "failed": True},
            at("DataOut", ready=False),
        ),
        ({"ran": True, "failed": True}, at("PostRun", ready=False, status="Error")),
    ],
)
def test_a_job_that_did_not_run_or_was_given_up_is_torn_down_at_once(
    facts: dict[str, Any], wf: Workflow
) -> None:
    actions = decide(seen(job(Phase.ENDING, **facts), wf))
    assert asked(actions) == ["Teardown"]
    assert notes(actions) == {"rabbit_workflow": RAW}
    assert any(SUMMARY_KEY in each.values for each in actions if isinstance(each, KeepValues))


def test_a_job_that_failed_after_it_had_run_still_copies_out() -> None:
    actions = decide(seen(job(Phase.ENDING, ran=True, failed=True), at("PostRun")))
    assert asked(actions) == ["DataOut"]


def test_a_job_is_let_go_when_its_storage_is_torn_down() -> None:
    actions = decide(seen(job(Phase.ENDING, ran=True), at("Teardown")))
    assert actions == [KeepValues({"rabbit_teardown_timing": "1.5s"}), Finish()]


# Over


def test_a_workflow_without_a_job_is_torn_down() -> None:
    assert asked(decide(seen(job(Phase.OVER), at("PreRun", ready=False)))) == ["Teardown"]


def test_a_workflow_is_let_go_of_in_the_request_for_its_teardown() -> None:
    names = [BINDING.finalizer, labels.WORKFLOW_FINALIZER]
    for phase, state in (
        (Phase.OVER, "Setup"),
        (Phase.ENDING, "PreRun"),
        (Phase.ENDING, "DataOut"),
    ):
        held = workflow(JOBDW, state=state, ready=True, metadata={"finalizers": names})
        actions = decide(seen(job(phase, ran=state == "DataOut"), held))
        assert changes(actions, kinds.WORKFLOW) == [
            {
                "spec": {"desiredState": "Teardown"},
                "metadata": {"finalizers": [labels.WORKFLOW_FINALIZER]},
            }
        ]


def test_it_is_waited_for() -> None:
    assert decide(seen(job(Phase.OVER), at("Teardown", ready=False))) == []


def test_then_it_is_let_go_of_and_removed() -> None:
    torn = workflow(
        JOBDW,
        state="Teardown",
        ready=True,
        metadata={"finalizers": [BINDING.finalizer, labels.WORKFLOW_FINALIZER]},
    )
    actions = decide(seen(job(Phase.OVER), torn))
    assert changes(actions, kinds.WORKFLOW) == [
        {"metadata": {"finalizers": [labels.WORKFLOW_FINALIZER]}}
    ]
    assert removed(actions, kinds.WORKFLOW) == ["default/wf"]


def test_one_that_was_let_go_of_is_removed_without_another_write() -> None:
    torn = workflow(
        JOBDW,
        state="Teardown",
        ready=True,
        metadata={"finalizers": [labels.WORKFLOW_FINALIZER]},
    )
    actions = decide(seen(job(Phase.OVER), torn))
    assert changes(actions, kinds.WORKFLOW) == []
    assert removed(actions, kinds.WORKFLOW) == ["default/wf"]


# Trouble

ERROR = {"status": "Error", "message": "DW Directive 0: no room"}
TRANSIENT = {"status": "TransientCondition", "message": "DW Directive 0: busy"}
ALIVE = [Phase.HELD, Phase.QUEUED, Phase.STARTING, Phase.RUNNING]


@pytest.mark.parametrize("phase", ALIVE)
def test_an_error_of_the_workflow_ends_the_job_in_its_words(phase: Phase) -> None:
    assert decide(seen(job(phase), at("Setup", ready=False, **ERROR))) == [
        RaiseException(
            "exception",
            "DWS/Rabbit interactions failed: workflow hit an error: DW Directive 0: no room "
            f"(in {JOBDW!r})",
        )
    ]


@pytest.mark.parametrize("phase", ALIVE)
def test_an_error_is_told_once(phase: Phase) -> None:
    told = decide(seen(job(phase, failed=True), at("Setup", ready=False, **ERROR)))
    assert not [each for each in told if isinstance(each, RaiseException)]


def test_an_error_while_ending_is_told_and_what_is_left_is_torn_down() -> None:
    actions = decide(seen(job(Phase.ENDING, ran=True), at("DataOut", ready=False, **ERROR)))
    assert isinstance(actions[0], RaiseException)
    assert asked(actions) == ["Teardown"]


@pytest.mark.parametrize("state", ["PostRun", "DataOut"])
def test_an_error_while_ending_is_told_to_a_job_that_had_failed_before(state: str) -> None:
    wf = at(state, ready=False, **ERROR)
    told = [
        [
            isinstance(each, RaiseException)
            for each in decide(seen(job(Phase.ENDING, **facts), wf))
        ].count(True)
        for facts in ({"ran": True, "failed": True}, {"ran": True, "has_failed_while_ending": True})
    ]
    assert told == [1, 0]


@pytest.mark.parametrize("state", ["Setup", "DataIn", "PreRun"])
def test_an_error_that_kept_tasks_from_starting_is_not_told_again_while_ending(state: str) -> None:
    actions = decide(seen(job(Phase.ENDING, failed=True), at(state, ready=False, **ERROR)))
    assert not any(isinstance(each, RaiseException) for each in actions)
    assert asked(actions) == ["Teardown"]


def test_an_error_of_the_state_before_is_not_told_as_one_of_teardown() -> None:
    torn = at("DataIn", ready=False, desired="Teardown", **ERROR)
    actions = decide(seen(job(Phase.ENDING, failed=True), torn))
    assert not any(isinstance(each, RaiseException) for each in actions)


@pytest.mark.parametrize("failed", [False, True])
def test_an_error_in_teardown_is_told_and_waited_for_and_fails_nothing(failed: bool) -> None:
    torn = at("Teardown", ready=False, **ERROR)
    told, _ = decide(seen(job(Phase.ENDING, ran=True, failed=failed), torn))
    assert isinstance(told, RaiseException)
    assert told.severity == 1
    warned = job(Phase.ENDING, ran=True, failed=failed, has_exception_while_ending=True)
    assert decide(seen(warned, torn)) == [FreeNodes(("n0", "n1", "n2"))]


def test_nodes_that_have_let_go_are_given_back_while_flash_cannot_be() -> None:
    torn = at("Teardown", ready=False, **ERROR)
    warned = job(Phase.ENDING, ran=True, has_exception_while_ending=True)

    assert decide(seen(warned, torn, mounted_nodes={"n1"})) == [FreeNodes(("n0", "n2"))]
    assert decide(seen(warned, torn, mounted_nodes={"n0", "n1", "n2"})) == []


@pytest.mark.parametrize(
    ("state", "given"), [("Teardown", [FreeNodes(("n0", "n2"))]), ("DataOut", [])]
)
def test_nodes_are_given_back_while_a_deleted_workflow_does_not_go(
    state: str, given: list[Any]
) -> None:
    going = workflow(JOBDW, state=state, metadata=DELETING)
    ending = job(Phase.ENDING, ran=True, has_failed_while_ending=True)

    assert decide(seen(ending, going, mounted_nodes={"n1"})) == given


def test_nodes_are_not_given_back_early_while_nothing_is_wrong() -> None:
    torn = at("Teardown", ready=False, status="DriverWait")
    assert decide(seen(job(Phase.ENDING, ran=True), torn)) == []


def test_errors_are_not_told_when_the_job_is_over() -> None:
    actions = decide(seen(job(Phase.OVER), at("DataOut", ready=False, **ERROR)))
    assert asked(actions) == ["Teardown"]
    assert len(actions) == 1


@pytest.mark.parametrize(
    ("transient", "actions"),
    [
        (None, []),
        (0.0, [RequeueAfter(10.0)]),
        (7.5, [RequeueAfter(2.5)]),
        (
            10.0,
            [
                RaiseException(
                    "exception",
                    "DWS/Rabbit interactions failed: workflow in 'TransientCondition' state too "
                    f"long: DW Directive 0: busy (in {JOBDW!r})",
                )
            ],
        ),
    ],
)
def test_a_condition_that_may_heal_is_given_time(
    transient: float | None, actions: list[Any]
) -> None:
    wf = at("Setup", ready=False, **TRANSIENT)
    assert decide(seen(job(Phase.STARTING), wf, seconds_in_trouble=transient)) == actions


def test_an_ending_job_goes_on_while_its_condition_may_heal() -> None:
    wf = at("DataOut", ready=False, **TRANSIENT)
    assert decide(seen(job(Phase.ENDING, ran=True), wf, seconds_in_trouble=1.0)) == [
        RequeueAfter(9.0)
    ]


# A Workflow that is gone, or torn down


@pytest.mark.parametrize("ready", [False, True])
@pytest.mark.parametrize("phase", ALIVE)
@pytest.mark.parametrize("state", ["Setup", "Teardown"])
def test_a_workflow_that_a_user_or_an_admin_tears_down_ends_the_job(
    phase: Phase, state: str, ready: bool
) -> None:
    """Also before its controllers have taken that up."""
    torn = at(state, ready=ready, desired="Teardown")
    taken = "Workflow wf is torn down: a user or an admin has asked for it"
    assert decide(seen(job(phase), torn)) == [RaiseException("dws", taken)]
    # One that has failed is told nothing: it knows why it ends.
    assert decide(seen(job(phase, failed=True), torn)) == []


@pytest.mark.parametrize("phase", [Phase.NEW, Phase.ENDING, Phase.OVER])
@pytest.mark.parametrize("facts", [{}, {"failed": True, "cancelled": True}])
def test_the_teardown_that_ends_a_job_is_not_told_to_it(phase: Phase, facts: Any) -> None:
    for torn in (at("Teardown", ready=False), at("PreRun", ready=False, desired="Teardown")):
        assert decide(seen(job(phase, **facts), torn)) == []


@pytest.mark.parametrize(
    ("phase", "directives"),
    [(Phase.STARTING, (JOBDW,)), (Phase.RUNNING, (JOBDW,)), (Phase.QUEUED, (JOBDW, CREATE))],
)
def test_a_workflow_that_was_deleted_ends_the_job(
    phase: Phase, directives: tuple[str, ...]
) -> None:
    gone = "Workflow fluxjob-7 is gone: a user or an admin has deleted it"
    the_job = replace(job(phase), directives=directives)
    assert decide(seen(the_job)) == [RaiseException("dws", gone)]
    assert decide(seen(replace(the_job, failed=True))) == []


def test_persistent_storage_that_a_job_creates_does_not_outlive_its_first_workflow() -> None:
    """The second one might find it before it goes."""
    held = {**DELETING, "finalizers": [BINDING.finalizer]}
    going = workflow(JOBDW, CREATE, metadata=held)
    for phase in (Phase.HELD, Phase.QUEUED):
        creating = replace(job(phase), directives=(JOBDW, CREATE))
        assert RaiseException("dws", "Workflow wf was deleted") in decide(seen(creating, going))


@pytest.mark.parametrize(
    ("directive", "noted"),
    [("#DW persistentdw name=pers", {labels.SUBMITTED_AT: rfc3339_micro(NOON)}), (JOBDW, None)],
)
def test_a_workflow_says_when_a_job_was_submitted_that_uses_persistent_storage(
    directive: str, noted: Any
) -> None:
    held = replace(job(Phase.HELD, submitted=NOON), directives=(directive,))
    (found,) = builders.made(decide(seen(held)), kinds.WORKFLOW)

    assert found["metadata"].get("annotations") == noted


def test_a_queued_job_that_has_lost_its_workflow_gets_another_one() -> None:
    """Users want (c2#487): a restart that loses Workflows does not end all that wait."""
    queued = replace(job(Phase.QUEUED), nodes=())
    (found,) = builders.made(decide(seen(queued)), kinds.WORKFLOW)

    assert key_of(found) == Key("default", "fluxjob-7")
    assert found["metadata"]["annotations"] == {labels.MADE_ANEW: "yes"}
    assert found["spec"]["dwDirectives"] == [JOBDW]
    assert decide(seen(replace(queued, failed=True))) == []


def test_a_job_that_is_about_to_begin_its_tasks_does_not_go_on_without_its_storage() -> None:
    """Its prologs are over, its tasks have not begun: it is in no other phase than before them."""
    (told,) = decide(seen(job(Phase.QUEUED)))
    assert told == RaiseException(
        "dws", "Workflow fluxjob-7 is gone: a user or an admin has deleted it"
    )
    going = workflow(JOBDW, metadata={**DELETING, "finalizers": [BINDING.finalizer]})
    assert RaiseException("dws", "Workflow wf was deleted") in decide(
        seen(job(Phase.QUEUED), going)
    )


RESERVED = resources.rewrite([NODE], [need()], 4 * GIB).resources
GROWN = need(size=5 * GIB)
CHANGED = r"has lost its Workflow, and what its #DW directives need has changed"


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.STARTING])
def test_by_that_one_it_has_what_was_reserved_for_it_and_no_more(phase: Phase) -> None:
    """The profile of its directives may be another one than it was."""
    anew = workflow(JOBDW, ready=True, metadata={"annotations": {labels.MADE_ANEW: "yes"}})
    again = seen(replace(job(phase), resources=RESERVED), anew)

    assert asked(decide(again)) == (["Setup"] if phase is Phase.STARTING else [])
    more = replace(again, breakdowns={"wf-0": breakdown(0, GROWN)})
    with pytest.raises(Fault, match=CHANGED):
        decide(more)
    with pytest.raises(Fault, match=CHANGED):
        decide(replace(again, breakdowns={"wf-0": breakdown(0, need(), SINGLE)}))
    decide(replace(more, policy=PlacementPolicy(scheduler_places_flash=False)))
    decide(replace(more, workflow=at("Proposal")))
    if phase is Phase.QUEUED:
        decide(replace(more, workflow=msgspec.structs.replace(anew, status=at("Setup").status)))


def test_what_of_a_second_workflow_is_not_seen_yet_is_not_taken_to_be_nothing() -> None:
    named = [{"kind": "DirectiveBreakdown", "name": "wf-0", "namespace": "default"}]
    noted = {"annotations": {labels.MADE_ANEW: "yes"}}
    status = {"directiveBreakdowns": named}
    anew = workflow(JOBDW, ready=True, metadata=noted, status=status)
    queued = replace(job(Phase.QUEUED), resources=RESERVED)

    assert decide(seen(queued, anew)) == []
    with pytest.raises(Fault, match="DirectiveBreakdown wf-0 is gone"):
        decide(seen(queued, anew, breakdowns={}))


@pytest.mark.parametrize(
    ("the_job", "actions"),
    [
        (job(Phase.HELD, failed=True), []),
        (job(Phase.ENDING), [Finish()]),
        (job(Phase.ENDING, failed=True), [Finish()]),
        (job(Phase.OVER), []),
    ],
)
def test_a_job_that_ends_needs_no_workflow(the_job: Job, actions: list[Any]) -> None:
    assert decide(seen(the_job)) == actions


@pytest.mark.parametrize("phase", [*Phase])
@pytest.mark.parametrize("failed", [False, True])
def test_a_workflow_in_deletion_is_let_go_of_whatever_the_job_does(
    phase: Phase, failed: bool
) -> None:
    going = workflow(JOBDW, state="Setup", metadata={**DELETING, "finalizers": [BINDING.finalizer]})
    # Before it has resources, a job gets another one.
    nodes = () if phase in (Phase.HELD, Phase.QUEUED) else ("n0",)
    actions = decide(seen(replace(job(phase, failed=failed), nodes=nodes), going))
    told = RaiseException("dws", "Workflow wf was deleted")  # an ENDING job here has not run
    fails = phase in (Phase.NEW, Phase.STARTING, Phase.RUNNING)
    assert (told in actions) == (fails and not failed)
    assert changes(actions, kinds.WORKFLOW) == [{"metadata": {"finalizers": []}}]
    assert len(actions) == 1 + (told in actions)


@pytest.mark.parametrize(
    ("state", "ready", "fails"),
    [
        ("PreRun", True, True),
        ("PostRun", True, True),
        ("DataOut", False, True),
        ("DataOut", True, False),
        ("Teardown", False, False),
    ],
)
def test_a_workflow_in_deletion_fails_the_job_whose_data_it_has_not_copied_out(
    state: str, ready: bool, fails: bool
) -> None:
    metadata = {**DELETING, "finalizers": [BINDING.finalizer]}
    going = workflow(JOBDW, state=state, ready=ready, metadata=metadata)
    actions = decide(seen(job(Phase.ENDING, ran=True), going))
    told = RaiseException("dws", "Workflow wf was deleted")
    assert (told in actions) == fails
    assert told not in decide(
        seen(job(Phase.ENDING, ran=True, has_failed_while_ending=True), going)
    )


def test_a_workflow_in_deletion_is_let_go_of_once() -> None:
    going = workflow(JOBDW, state="Setup", metadata=DELETING)
    assert decide(seen(job(Phase.ENDING), going)) == []


@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize("phase", [*Phase])
@pytest.mark.parametrize("state", list(ADVANCE))
def test_a_workflow_is_only_ever_asked_for_the_next_state_or_the_last(
    phase: Phase, state: State, ran: bool
) -> None:
    actions = decide(seen(job(phase, ran=ran), at(state)))
    assert set(asked(actions)) <= {ADVANCE[state], State.TEARDOWN}
    assert len(changes(actions, kinds.WORKFLOW)) <= 1


# Too long


def overdue(state: str, seconds: float, phase: Phase = Phase.STARTING, **others: Any) -> list[Any]:
    """Decide on a job whose Workflow has been in a state for so many seconds."""
    moment = rfc3339_micro(NOON - seconds)
    status = {"desiredStateChange": moment, **others.pop("status", {})}
    known = {"annotations": {labels.ENDED_AT: moment}}
    wf = workflow(JOBDW, state=state, status=status, metadata=known)
    about = {"ran": True} if phase is Phase.ENDING else {}
    timeouts = Timeouts(setup=10, prerun=10, postrun=10, teardown_after=100)
    view = {"timeouts": timeouts, **others.pop("view", {})}
    return decide(seen(job(phase, **{**about, **others}), wf, **view))


def test_a_state_that_takes_too_long_ends_the_job_which_hears_what_was_waited_for() -> None:
    """Statement 000.56: the setup timeout.

    Statement 000.24: the prerun timeout, where no failure is tolerated.
    """
    late = overdue("Setup", 10, status={"message": "allocation set not ready"})
    words = "File system creation took too long: it waits for Setup on r[0-1]: "
    assert late == [RaiseException("dws-timeout", f"{words}allocation set not ready")]
    late = overdue("PreRun", 11)
    words = "timed out waiting for mounts: it waits for PreRun on n[0-2]"
    assert late == [RaiseException("dws-timeout", words)]


def test_before_it_does_it_is_looked_at_when_it_would() -> None:
    assert overdue("Setup", 7.5) == [RequeueAfter(2.5)]
    busy = overdue("Setup", 9, status=TRANSIENT, view={"seconds_in_trouble": 8.0})
    assert busy == [RequeueAfter(2.0), RequeueAfter(1.0)]


def test_an_unmount_that_takes_too_long_is_the_end_of_what_was_to_be_copied_out() -> None:
    """Statement 000.57: the postrun timeout."""
    (late,) = overdue("PostRun", 10, Phase.ENDING)
    assert (late.type, late.severity) == ("rabbit-timeout", 0)
    assert late.note.startswith("unmounts timed out, skipping data movement: it waits for PostRun")
    # By its exception the job is abandoned.
    torn = overdue("PostRun", 10, Phase.ENDING, has_failed_while_ending=True)
    assert asked(torn) == ["Teardown"]


def test_copies_that_take_too_long_are_given_up_and_the_job_has_not_failed() -> None:
    """Statement 000.58: teardown_after."""
    late = overdue("DataOut", 100, Phase.ENDING)
    assert [type(each) for each in late] == [RaiseException, KeepValues, Change]
    assert (late[0].type, late[0].severity) == ("teardown-timeout", 1)
    assert asked(late) == ["Teardown"]
    assert overdue("DataOut", 100, Phase.ENDING, view={"last_copy_progress_at": NOON - 40}) == [
        RequeueAfter(60.0)
    ]
    # The job was told, and then the conductor was started again.
    again = overdue("DataOut", 101, Phase.ENDING, has_exception_while_ending=True)
    assert [type(each) for each in again] == [KeepValues, Change]
    # What is asked for anyway is asked for once.
    dropped = {"cancelled": True, "unsaved_policy": UnsavedPolicy.DROP}
    assert asked(overdue("DataOut", 100, Phase.ENDING, **dropped)) == ["Teardown"]


def test_a_job_of_which_a_copy_has_failed_fails_where_its_others_take_too_long() -> None:
    driver = {"driverID": "nnf", "dwdIndex": 0, "watchState": "DataOut"}
    status = {"drivers": [{**driver, "message": f"{copysteps.FAILED_MESSAGE}: broke"}]}
    (late,) = overdue("DataOut", 100, Phase.ENDING, status=status)
    assert (late.type, late.severity) == ("teardown-timeout", 0)
    # By its exception the job is abandoned.
    torn = overdue("DataOut", 100, Phase.ENDING, status=status, has_failed_while_ending=True)
    assert asked(torn) == ["Teardown"]


def test_a_job_that_is_told_already_is_not_told_again() -> None:
    assert overdue("Setup", 10, failed=True) == []
    error = overdue("Setup", 10, status=ERROR)
    assert [each.type for each in error] == ["exception"]


def test_dataout_is_asked_for_with_the_moment_at_which_postrun_began() -> None:
    wf = at("PostRun", desiredStateChange=rfc3339_micro(NOON - 5))
    (patch,) = changes(decide(seen(job(Phase.ENDING, ran=True), wf)), kinds.WORKFLOW)
    assert patch["metadata"]["annotations"] == {labels.ENDED_AT: rfc3339_micro(NOON - 5)}


# Let go before its storage


HOLDING = servers(
    allocationSets=[
        {
            "label": "xfs",
            "storage": {
                "r0": {"allocationSize": 5},
                "r1": {"allocationSize": 0},
                "r2": {"allocationSize": 5},
            },
        }
    ]
)

FAILED = NodeTrouble("Input/output error").as_error()
WAITED_FOR = InUse("in use by process 7").as_error()
KEPT = Kept("kept by process 7").as_error()


def rabbit(name: str = "r0", state: str = "Enabled", status: str = "Ready") -> Storage:
    return Storage(
        metadata=Meta(name=name, namespace="default", resource_version="7"),
        spec=StorageSpec(state=state),
        status=StorageStatus(status=status),
    )


A_LUSTRE = {"type": "lustre", "lustre": {"fileSystemName": "f", "mgsAddresses": "a"}}
HPES_VOLUME = {"type": "lvm", "lvm": {"volumeGroup": "uid-0-xfs-0_0", "logicalVolume": "lv"}}
OWN = {"labels": {labels.TARGET_OWNER: "uid-wf"}}
FOREIGN = {"labels": {labels.TARGET_OWNER: "an-instance"}}


def mount_on(
    node: str, desired: str, error: Any = None, device: Any = None, **metadata: Any
) -> ClientMount:
    """Return a mount that is there still."""
    lvm = {"volumeGroup": "r0", "logicalVolume": "v"}
    one = {"mountPath": "/m", "type": "xfs", "device": device or {"type": "lvm", "lvm": lvm}}
    raw = {
        "metadata": {"name": "m", "namespace": node, **metadata},
        "spec": {"node": node, "desiredState": desired, "mounts": [one]},
        "status": {"mounts": [{"state": desired}], "allReady": False, "error": error},
    }
    return read(raw, ClientMount)


def going_share(error: Any = None, **metadata: Any) -> NnfNodeStorage:
    """Return a share on a rabbit that is to give it back."""
    raw = {
        "metadata": {"name": "s", "namespace": "r0", **DELETING, **metadata},
        "spec": {"count": 1, "capacity": 5, "fileSystemType": "xfs"},
        "status": {"error": error},
    }
    return read(raw, NnfNodeStorage)


def let_go(state: str = "Teardown", **leftovers: Any) -> JobSnapshot:
    storages = {"r0": rabbit("r0"), "r2": rabbit("r2")}
    return seen(
        job(Phase.OVER),
        at(state, ready=False),
        leftovers=Leftovers(**{"seconds": 300.0, "storages": storages, **leftovers}),
        computes=computes("n0", "n1"),
        servers={"wf-0": HOLDING},
    )


def out_of_service(view: JobSnapshot) -> tuple[list[str], list[str]]:
    """Return the nodes that are drained, and the rabbits that are Disabled."""
    actions = decide(view)
    drained = [node for each in actions if isinstance(each, Drain) for node in each.nodes]
    disabled = [
        each.key.name for each in actions if isinstance(each, Change) and each.kind == kinds.STORAGE
    ]
    return drained, disabled


@pytest.mark.parametrize("state", ["PostRun", "DataOut", "Teardown"])
def test_what_hangs_with_the_storage_of_a_job_that_was_let_go_is_kept_from_others(
    state: str,
) -> None:
    """Nodes that do not unmount it, and the rabbits whose flash that is."""
    mounts = [mount_on("n1", "unmounted"), mount_on("r0", "unmounted")]
    disabled, drained, marked = decide(let_go(state, mounts=mounts))

    assert drained == Drain(("n1",), "failed to unmount rabbit")
    assert isinstance(disabled, Change)
    assert (disabled.kind, disabled.key.name) == (kinds.STORAGE, "r0")
    assert disabled.patch["spec"] == {"state": "Disabled"}
    assert isinstance(marked, Change)
    noted = marked.patch["metadata"]["annotations"]
    assert noted == {labels.ABORTED: rfc3339(NOON), labels.ABORTED_NODES: "n[0-1]"}


@pytest.mark.parametrize(
    ("share", "disabled"),
    [
        (going_share(), ["r0"]),
        (going_share(FAILED), ["r0"]),
        # It was to say by now what came of that.
        (going_share(WAITED_FOR), ["r0"]),
        (going_share(KEPT), []),
        # Copies are at work, or the controllers away: nothing was asked of the rabbit.
        (going_share(deletionTimestamp=None), []),
    ],
)
def test_a_rabbit_is_disabled_that_gives_no_flash_back_unless_it_is_in_use(
    share: NnfNodeStorage, disabled: list[str]
) -> None:
    """A user who keeps their own flash open took their rabbits from all others."""
    assert out_of_service(let_go(shares=[share])) == ([], disabled)


@pytest.mark.parametrize(
    ("mount", "drained", "disabled"),
    [
        (mount_on("n1", "unmounted", FAILED), ["n1"], ["r0"]),
        (mount_on("n1", "mounted", **DELETING), ["n1"], ["r0"]),
        # It was not asked to unmount, which says nothing of the rabbit.
        (mount_on("n1", "mounted"), ["n1"], []),
        (mount_on("n1", "unmounted", WAITED_FOR), ["n1"], ["r0"]),
        (mount_on("n1", "unmounted", KEPT), [], []),
        (mount_on("r0", "unmounted", FAILED), [], ["r0"]),
        (mount_on("r0", "unmounted", WAITED_FOR), [], ["r0"]),
        (mount_on("r0", "unmounted", KEPT), [], []),
        # Of a Lustre any rabbit may keep it.
        (mount_on("n1", "unmounted", device=A_LUSTRE), ["n1"], ["r0", "r2"]),
        (mount_on("n1", "unmounted", device=A_LUSTRE, **OWN), ["n1"], ["r0", "r2"]),
        # But none of the job's, if it is another's.
        (mount_on("n1", "unmounted", device=A_LUSTRE, **FOREIGN), ["n1"], []),
    ],
)
def test_a_mount_that_hangs_takes_its_node_and_its_rabbit_out_of_service_unless_it_is_in_use(
    mount: ClientMount, drained: list[str], disabled: list[str]
) -> None:
    assert out_of_service(let_go(mounts=[mount])) == (drained, disabled)


@pytest.mark.parametrize(
    "waiting",
    [
        {"mounts": [mount_on("n1", "unmounted", WAITED_FOR)]},
        {"mounts": [mount_on("r0", "unmounted", WAITED_FOR)]},
        {"shares": [going_share(WAITED_FOR)]},
        {"shares": None, "mounts": [mount_on("n1", "unmounted", WAITED_FOR)]},
        {"shares": [going_share(FAILED), going_share(WAITED_FOR)]},
    ],
)
@pytest.mark.parametrize("deleted", [False, True])
def test_what_an_agent_waits_for_is_looked_at_again_before_anything_is_out_of_service(
    waiting: dict[str, Any], deleted: bool
) -> None:
    """Whatever fails was taken for in use while the agent waited, and nobody looked again."""
    view = let_go(seconds=299.0, **waiting)
    if deleted:
        metadata = {**DELETING, "finalizers": [BINDING.finalizer]}
        going = workflow(JOBDW, state="Teardown", metadata=metadata)
        view = replace(view, workflow=going)

    assert decide(view) == [RequeueAfter(30.0)]


@pytest.mark.parametrize(
    "settled_leftovers",
    [
        {"mounts": [mount_on("n1", "unmounted", KEPT)]},
        {"mounts": [mount_on("n1", "unmounted", FAILED)]},
        {"shares": [going_share(FAILED)]},
        {"shares": [going_share(WAITED_FOR, deletionTimestamp=None)]},
        {},
    ],
)
def test_nothing_else_is_waited_for(settled_leftovers: dict[str, Any]) -> None:
    actions = decide(let_go(seconds=0.0, **settled_leftovers))

    assert not any(isinstance(each, RequeueAfter) for each in actions)


@pytest.mark.parametrize(
    ("mount", "wiring", "disabled"),
    [
        (("n1", HPES_VOLUME, {}), {"n1": "r2"}, ["r2"]),
        (("n1", HPES_VOLUME, {}), {}, ["r0", "r2"]),
        # Mounts of rabbits say by their namespace whose they are.
        (("r0", HPES_VOLUME, {}), {}, ["r0"]),
        # It is on a rabbit that has nothing of the job.
        (("n1", HPES_VOLUME, {}), {"n1": "r7"}, []),
        (("n1", None, {}), {"n1": "r2"}, ["r0"]),
        # What is another's tells on rabbits that it is on, and on no others.
        (("n1", HPES_VOLUME, FOREIGN), {"n1": "r2"}, ["r2"]),
        (("n1", HPES_VOLUME, FOREIGN), {}, []),
        (("n1", None, FOREIGN), {}, ["r0"]),
    ],
)
def test_a_mount_that_hangs_is_of_its_nodes_rabbit_if_its_volume_does_not_say(
    mount: tuple[str, Any, Any], wiring: dict[str, str], disabled: list[str]
) -> None:
    """HPE's volume groups are called by UIDs: their rabbits stayed in service."""
    node, device, metadata = mount
    mounts = [mount_on(node, "unmounted", FAILED, device, **metadata)]

    assert out_of_service(let_go(mounts=mounts, rabbits_of_nodes=wiring))[1] == disabled


def test_a_node_that_is_out_of_reach_says_nothing_of_its_rabbit() -> None:
    mounts = [mount_on("n1", "unmounted")]

    assert out_of_service(let_go(mounts=mounts, unreachable_nodes={"n1"})) == (["n1"], [])


@pytest.mark.parametrize(
    ("status", "disabled"),
    [("Offline", ["r0"]), ("Failed", ["r0"]), ("Ready", []), ("Drained", [])],
)
def test_a_rabbit_that_is_not_heard_of_is_disabled_with_flash_of_such_a_job(
    status: str, disabled: list[str]
) -> None:
    """What was in use when it was heard of last is not known to be so now."""
    storages = {"r0": rabbit(status=status), "r1": rabbit("r1", status="Offline")}
    view = let_go(shares=[going_share(KEPT)], storages=storages)

    assert out_of_service(view) == ([], disabled)


def test_a_deleted_workflow_of_a_job_that_was_let_go_takes_its_nodes_out_of_service_too() -> None:
    metadata = {**DELETING, "finalizers": [BINDING.finalizer]}
    going = workflow(JOBDW, state="Teardown", metadata=metadata)
    view = replace(let_go(mounts=[mount_on("n1", "mounted")]), workflow=going)
    drained, marked = decide(view)

    assert drained == Drain(("n1",), "failed to unmount rabbit")
    assert isinstance(marked, Change)
    # Afterwards it is let go of.
    assert changes(decide(replace(view, leftovers=None)), kinds.WORKFLOW) == [
        {"metadata": {"finalizers": []}}
    ]


@pytest.mark.parametrize(
    ("marked", "kept"), [(True, ["rabbit_workflow", SUMMARY_KEY]), (False, [])]
)
def test_of_a_job_that_was_let_go_before_its_storage_a_record_is_kept(
    marked: bool, kept: list[str]
) -> None:
    metadata = {"annotations": {labels.ABORTED: "before"} if marked else {}}
    late = workflow(JOBDW, state="PostRun", metadata=metadata)

    actions = decide(seen(job(Phase.OVER), late))

    assert [key for each in actions if isinstance(each, KeepValues) for key in each.values] == kept
    assert asked(actions) == ["Teardown"]


def test_a_rabbit_that_is_disabled_keeps_its_reason() -> None:
    view = let_go(shares=[going_share()], storages={"r0": rabbit(state="Disabled")})

    assert out_of_service(view) == ([], [])


@pytest.mark.parametrize(
    ("phase", "ready", "metadata", "asks"),
    [
        (Phase.OVER, False, {}, True),
        (Phase.ENDING, False, {}, False),
        (Phase.OVER, True, {}, False),
        (Phase.OVER, False, DELETING, True),
        (Phase.OVER, False, {"annotations": {labels.ABORTED: "before"}}, False),
    ],
)
def test_a_record_is_read_of_jobs_that_are_over_before_their_storage_alone(
    phase: Phase, ready: bool, metadata: Any, asks: bool
) -> None:
    wf = workflow(JOBDW, state="Teardown", ready=ready, metadata=metadata)

    assert depends_on_abort(seen(job(phase), wf)) is asks


# Copies that are kept with the record


def copied(name: str, status: str, state: str = "Finished") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"source": {"path": "/a"}, "destination": {"path": "/b"}},
        "status": {"state": state, "status": status},
    }


COPIES = [copied("a", "Success"), copied("b", "Failed"), copied("c", "", "Running")]


@pytest.mark.parametrize(
    ("most", "kept"), [(0, None), (1, ["b"]), (2, ["b", "a"]), (9, ["b", "a", "c"])]
)
def test_as_many_copies_are_kept_as_a_site_wants_those_that_failed_first(
    most: int, kept: list[str] | None
) -> None:
    view = seen(
        job(Phase.ENDING, ran=True), at("DataOut"), max_recorded_movements=most, movements=COPIES
    )
    found = notes(decide(view)).get("rabbit_datamovements")

    assert (found and [each["metadata"]["name"] for each in found]) == kept


def test_nodes_of_a_job_that_was_let_go_return_when_its_storage_is_gone() -> None:
    """Where a site wants it, and no other such job has them."""
    marked = {"annotations": {labels.ABORTED: "before"}}
    view = seen(
        job(Phase.OVER),
        workflow(JOBDW, state="Teardown", ready=True, metadata=marked),
        computes=computes("n0", "n1"),
        return_to_service=True,
    )
    undrained, removed = decide(view)

    assert undrained == Undrain(("n0", "n1"), "failed to unmount rabbit")
    assert isinstance(removed, Remove)
    assert decide(replace(view, nodes_shared_with_aborted={"n0"}))[0] == Undrain(
        ("n1",), "failed to unmount rabbit"
    )
    assert decide(replace(view, nodes_shared_with_aborted={"n0", "n1"})) == [removed]
    assert decide(replace(view, return_to_service=False)) == [removed]
    # What its end was waited for has nothing to return.
    unmarked = workflow(JOBDW, state="Teardown", ready=True)
    assert not any(isinstance(each, Undrain) for each in decide(replace(view, workflow=unmarked)))
