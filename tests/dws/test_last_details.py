"""Decisions at their edges: what is not seen yet, raw volumes, orders of writes, limits."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.dws import accesses, test_driver
from tests.dws.builders import (
    BINDING,
    COPY_IN,
    DELETING,
    JOBDW,
    changes,
    client_mount,
    computes,
    error,
    lustre,
    made,
    meta,
    movement,
    need,
    needed,
    nnf_access,
    nnf_storage,
    profile,
    share,
    workflow,
)
from warren.base.objects import Change, Create
from warren.directives.parse import parse
from warren.dws import kinds, labels
from warren.dws.access import nnfaccess
from warren.dws.binding import Phase
from warren.dws.breakdown import directivebreakdown
from warren.dws.copies.datamovement import movements
from warren.dws.copies.retries import Retries
from warren.dws.copies.slots import WaitingCopy, next_copies
from warren.dws.faults import Fault
from warren.dws.jobs import conduct
from warren.dws.jobs.jobsnapshot import Job, JobSnapshot
from warren.dws.jobs.placement import allocation_sets
from warren.dws.jobs.waits import reason
from warren.dws.node import InUse, NodeTrouble, Progress
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import State
from warren.dws.storage import nnfstorage, storageprofiles
from warren.dws.storage.nnfstorage import decide as stored
from warren.dws.workflow import driver
from warren.dws.workflow.states import create_refusal, update_refusal

# Mounts


def test_computes_that_are_not_filled_in_yet_are_no_computes_at_all() -> None:
    writes = nnfaccess.decide(accesses.seen(nnf_access(), computes=computes()))

    assert made(writes, kinds.CLIENT_MOUNT) == []
    told = accesses.status(writes)
    assert not told["ready"]
    assert told["error"]["debugMessage"] == "the job's Computes are not there yet"


@pytest.mark.parametrize("node_storages", [[], [share("r0", 2)], [share("r1", 1)]])
@pytest.mark.parametrize("clients", ["computes", "servers"])
def test_half_of_a_storage_is_not_mounted(node_storages: list[Any], clients: str) -> None:
    writes = nnfaccess.decide(accesses.seen(nnf_access(clients), node_storages=node_storages))

    assert made(writes, kinds.CLIENT_MOUNT) == []
    assert "not all of the storage is there" in accesses.status(writes)["error"]["debugMessage"]


def test_rabbits_mount_without_any_computes() -> None:
    writes = nnfaccess.decide(accesses.seen(nnf_access("servers"), computes=None))
    assert len(made(writes, kinds.CLIENT_MOUNT)) == 2


@pytest.mark.parametrize(
    ("kind", "type", "target", "options"),
    [("xfs", "xfs", "directory", ""), ("raw", "none", "file", "bind")],
)
def test_a_raw_volume_is_bound_as_a_file_with_its_users_permissions(
    kind: str, type: str, target: str, options: str
) -> None:
    node_storages = [
        msgspec.structs.replace(
            each, spec=msgspec.structs.replace(each.spec, file_system_type=kind)
        )
        for each in accesses.SHARES
    ]
    for obj in made(
        nnfaccess.decide(accesses.seen(nnf_access(), node_storages=node_storages)),
        kinds.CLIENT_MOUNT,
    ):
        for mount in obj["spec"]["mounts"]:
            assert (mount["type"], mount["targetType"], mount["options"]) == (type, target, options)
            assert mount["setPermissions"] is (kind == "raw")


def test_mounts_that_are_in_the_way_of_a_deletion_are_told_as_not_ready() -> None:
    mount = client_mount("n0", error=error("in use"), deleting=True)
    going = nnf_access(deleting=True, ready=True, state="mounted")
    told = accesses.status(nnfaccess.decide(accesses.seen(going, mount)))

    assert (told["ready"], told["error"]["debugMessage"]) == (False, "in use")


# The Workflow's driver


def test_the_finalizer_is_written_before_anything_that_would_be_left_over() -> None:
    bare = workflow(JOBDW, state=None, metadata={"finalizers": ["another"]})
    seen = test_driver.seen(bare)
    writes = driver.decide(replace(seen, computes=None))

    first, second = writes
    assert isinstance(first, Change)
    assert isinstance(second, Create)
    assert first.patch["metadata"]["finalizers"] == ["another", labels.WORKFLOW_FINALIZER]
    assert second.kind == kinds.COMPUTES


def test_a_workflow_without_our_finalizer_is_left_to_others() -> None:
    gone = workflow(
        JOBDW, state="Teardown", metadata={"finalizers": ["x"], "deletionTimestamp": "now"}
    )
    dependents = [(kinds.COMPUTES, gone.metadata.key)]
    assert driver.decide(test_driver.seen(gone, dependents=dependents)) == []


@pytest.mark.parametrize(
    ("ready", "state", "copied"),
    [
        (True, "mounted", True),
        (False, "mounted", False),
        (True, "unmounted", False),
        (True, "", False),
    ],
)
def test_nothing_is_copied_before_the_rabbits_have_mounted(
    ready: bool, state: str, copied: bool
) -> None:
    wf = workflow(JOBDW, COPY_IN, state="DataIn")
    found = nnf_storage(("r0", 1), ready=True)
    mounted = nnf_access("servers", ready=ready, state=state)
    writes = driver.decide(
        test_driver.seen(wf, storages=[found], accesses=[mounted], file_systems=[lustre()])
    )
    assert bool(made(writes, kinds.NNF_DATA_MOVEMENT)) is copied
    wanted = movements(wf, 1, parse(COPY_IN), found, [lustre()], "/mnt/nnf/uid-wf-0")
    assert made(writes, kinds.NNF_DATA_MOVEMENT) == (list(wanted) if copied else [])


STORAGE = {"storages": [nnf_storage(("r0", 1))]}
ACCESS = {"accesses": [nnf_access()]}
MOVEMENT = {"movements": [movement(1)]}


@pytest.mark.parametrize("left", [STORAGE, ACCESS, MOVEMENT, {}])
@pytest.mark.parametrize("state", ["Teardown", "PreRun"])
def test_only_who_is_about_to_say_that_nothing_is_left_looks_again(
    left: dict[str, Any], state: str
) -> None:
    seen = test_driver.seen(workflow(JOBDW, state=state), **left)
    assert bool(driver.needs_live_read(seen)) is (state == "Teardown" and not left)


@pytest.mark.parametrize("left", [STORAGE, ACCESS, MOVEMENT, {"dependents": [None]}, {}])
def test_a_workflow_that_is_deleted_is_let_go_of_after_a_look_and_looked_at_once(
    left: dict[str, Any],
) -> None:
    gone = workflow(JOBDW, state="Teardown", metadata={"deletionTimestamp": "now"})
    assert bool(driver.needs_live_read(test_driver.seen(gone, **left))) is (not left)


def test_what_was_said_of_teardown_is_not_looked_up_again() -> None:
    said = workflow(JOBDW, state="Teardown", ready=True)
    assert not driver.needs_live_read(test_driver.seen(said))
    other = workflow(JOBDW, state="DataOut", desired="Teardown", ready=True)
    assert driver.needs_live_read(test_driver.seen(other))


@pytest.mark.parametrize(
    ("known", "told", "blamed"),
    [
        ("DriverWait", "Error", True),
        ("DriverWait", "TransientCondition", True),
        ("Error", "Error", False),
        ("TransientCondition", "Error", True),
        ("DriverWait", "Completed", False),
        ("Error", "DriverWait", False),
    ],
)
def test_a_pass_blames_where_it_says_something_grave_anew(
    known: str, told: str, blamed: bool
) -> None:
    wf = workflow(JOBDW, state="Setup", status={"status": known})
    patch = {"status": {"status": told}}
    other = Change(kind=kinds.COMPUTES, key=wf.metadata.key, patch=patch)
    own = Change(kind=kinds.WORKFLOW, key=wf.metadata.key, patch=patch)
    create = Create(kind=kinds.WORKFLOW, object={"metadata": meta("x")})

    assert driver.reports_error(wf, [create, own]) is blamed
    assert driver.reports_error(wf, [create, other]) is False


def test_environment_and_breakdowns_are_written_in_their_own_states_alone() -> None:
    (patch,) = changes(driver.decide(test_driver.seen(workflow(state="Setup"))), kinds.WORKFLOW)
    assert "env" not in patch["status"]
    assert "directiveBreakdowns" not in patch["status"]


def test_bare_devices_are_asked_about_where_any_directive_wants_one() -> None:
    raw = JOBDW.replace("xfs", "raw").replace("my-fs", "bare")
    for directives in ((JOBDW, raw), (raw, JOBDW)):
        wf = workflow(*directives, state="Proposal")
        status, message = test_driver.told(driver.decide(test_driver.seen(wf)))
        assert status == "Error"
        assert "raw" in message


def test_what_is_raw_is_not_copied() -> None:
    wf = workflow(JOBDW.replace("xfs", "raw"), COPY_IN, state="Proposal", spec={"userID": 0})
    told = driver.decide(test_driver.seen(wf))
    assert "which is raw" in str(changes(told, kinds.WORKFLOW))


# Storage


def _error(there: bool) -> dict[str, Any]:
    return {"error": error("mounted")} if there else {}


@pytest.mark.parametrize("troubled", [0, 1, 2])
def test_a_storage_that_is_given_back_tells_what_is_in_the_way(troubled: int) -> None:
    going = nnf_storage(("r0", 1), ("r1", 1), metadata=DELETING, ready=True)
    shares = [
        share(rabbit, 1, deleting=True, **_error(n < troubled))
        for n, rabbit in enumerate(("r0", "r1"))
    ]
    told = changes(stored(going, shares), kinds.NNF_STORAGE)
    assert bool(told) is bool(troubled)
    if troubled:
        assert told[0]["status"]["error"]["debugMessage"] == "mounted"


# Breakdowns


def size_of(capacity: str, **options: Any) -> int:
    (need,) = needed(JOBDW.replace("1GiB", capacity), profile(**options))
    return need.minimum_capacity


@pytest.mark.parametrize(
    ("padding", "size"), [("1024", 2**30 + 1024), ("1KiB", 2**30 + 1024), ("50%", 3 * 2**29)]
)
def test_padding_is_bytes_a_size_or_a_share(padding: str, size: int) -> None:
    assert size_of("1GiB", allocationPadding=padding) == size


def test_what_is_8_eib_with_its_padding_is_too_large() -> None:
    most = f"{2**63 - 2**30 - 1024}B"
    assert size_of(most, allocationPadding="0", capacityScalingFactor="1.0")
    with pytest.raises(Fault, match="less than 8 EiB"):
        size_of(f"{2**33 - 1}GiB", allocationPadding=str(2**30))


def test_of_several_profiles_the_default_is_taken() -> None:
    choices = [profile("other", default=False), profile("mine"), profile("third", default=False)]
    assert storageprofiles.choose(None, choices).metadata.name == "mine"
    assert storageprofiles.choose("other", choices).metadata.name == "other"


def test_a_fault_that_is_told_is_not_told_again() -> None:
    said = {"debugMessage": "the definitions of this cluster do not allow for type xfs: no"}
    known = read(
        {
            "metadata": meta("wf-0"),
            "spec": {"directive": JOBDW, "userID": 1},
            "status": {"ready": False, "error": said},
        },
        DirectiveBreakdown,
    )
    assert directivebreakdown.report_unsupported(known, "no") == ()
    assert len(directivebreakdown.report_unsupported(known, "another")) == 1


# Words and numbers


def test_what_is_in_use_is_waited_for_and_nothing_is_wrong_yet() -> None:
    assert InUse("busy").as_error() == {
        "debugMessage": "busy",
        "type": "Internal",
        "severity": "Minor",
    }
    assert NodeTrouble("broke").as_error()["severity"] == "Major"
    assert NodeTrouble("broke", fatal=True).as_error()["severity"] == "Fatal"


@pytest.mark.parametrize(
    ("done", "of", "percent"), [(0, 10, 0), (1, 3, 33), (999, 1000, 99), (10, 10, 100), (0, 0, 100)]
)
def test_a_copy_is_at_100_percent_when_it_is_whole(done: int, of: int, percent: int) -> None:
    progress = Progress(bytes=done, total_bytes=of, files=0, total_files=1, seconds=2)
    assert progress.percent == percent
    assert progress.rate == done / 2


def test_a_workflow_without_a_spec_is_refused() -> None:
    specs: tuple[Any, ...] = (None, [], "x")
    for spec in specs:
        bare = {"metadata": meta("wf"), "spec": spec}
        assert create_refusal(bare) == "spec: a Workflow has one."
        assert update_refusal({"spec": {}}, bare) == "spec: a Workflow has one."


@pytest.mark.parametrize("restarts", range(15))
def test_pauses_double_up_to_a_bound(restarts: int) -> None:
    wait = Retries(pause=3.0).delay(restarts, 0)
    assert wait == (0 if restarts == 0 else 3.0 * min(2 ** (restarts - 1), 1024))


def test_a_copy_has_three_tries_and_three_seconds_before_the_second() -> None:
    assert (Retries().tries, Retries().pause) == (3, 3.0)


def test_a_fault_knows_the_argument_that_it_is_about() -> None:
    assert Fault("x", argument="type").argument == "type"
    with pytest.raises(Fault) as refused:
        needed(JOBDW.replace("xfs", "nfs"), profile())
    assert refused.value.argument == "type"


def test_of_what_a_state_took_nothing_is_kept_before_it_is_known() -> None:
    job = Job(id=7, phase=Phase.STARTING, binding=BINDING, nodes=("n0",))
    wf = workflow(JOBDW, state="DataIn", ready=True)
    actions = conduct.decide(
        JobSnapshot(
            job=job,
            workflow=wf,
            breakdowns={},
            servers={},
            computes=None,
            configuration=None,
            min_allocation_bytes=1,
            now=0,
        )
    )
    assert [type(each) for each in actions] == [Change]
    (patch,) = changes(actions, kinds.WORKFLOW)
    assert patch["spec"] == {"desiredState": State.PRE_RUN}


def test_who_has_nodes_without_a_rabbit_waits_without_a_place() -> None:
    job = Job(id=7, phase=Phase.STARTING, binding=BINDING, nodes=("n9",))
    assert reason(job, workflow(JOBDW, state="Setup"), None) == "waits for Setup"


@pytest.mark.parametrize(
    ("wanted", "last_slot", "order"),
    [
        ([1, 1, 2, 2], {}, [1, 2, 1, 2]),
        ([1, 2, 1, 2], {1: 5, 2: 3}, [2, 1, 2, 1]),
        ([1, 2, 3, 1, 2, 3], {1: 5, 2: 9, 3: 1}, [3, 1, 2, 3, 1, 2]),
        ([2, 2, 1, 1], {2: 1}, [1, 2, 1, 2]),
    ],
)
def test_free_slots_go_round(
    wanted: list[int], last_slot: dict[int, int], order: list[int]
) -> None:
    waiting = [WaitingCopy(meta_key(number), user) for number, user in enumerate(wanted)]
    assert [each.userid for each in next_copies(waiting, [], last_slot, 9)] == order


def meta_key(number: int) -> Any:
    return workflow(metadata={"name": f"m{number}"}).metadata.key


def test_a_share_of_just_the_least_size_is_one_for_each_node() -> None:
    wanted = need("xfs", 40, "AllocateAcrossServers")
    (found,) = allocation_sets([wanted], {"r0": 2, "r1": 2}, 10)
    assert [each["allocationCount"] for each in found["storage"]] == [1, 1]
    assert found["allocationSize"] == 20


def test_the_storage_is_made_as_it_was_assigned() -> None:
    assert nnfstorage.volume_group_and_name(share("r0"), 3) == ("r0", "uid-default-wf-0-xfs-0-3")
