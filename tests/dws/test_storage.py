"""Storage over rabbits, who holds it, and the rabbits themselves."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.dws.builders import (
    DELETING,
    JOBDW,
    NOW,
    SIZE,
    STAMP,
    after,
    changes,
    configuration,
    error,
    made,
    meta,
    need,
    nnf_storage,
    rabbit,
    removed,
    servers,
    share,
    share_of,
    workflow,
)
from warren.base.bytesize import GIB, TIB
from warren.base.objects import Key, key_of
from warren.base.placing import HeldFlash, Locality
from warren.dws import children, kinds, labels
from warren.dws.breakdown.servers import check, report
from warren.dws.faults import Fault
from warren.dws.jobs.placement import allocation_sets
from warren.dws.node import RawVolumeAccess
from warren.dws.objects.assignments import Servers
from warren.dws.objects.breakdowns import AllocationNeed, Colocation, Constraints
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.storages import NnfNode, Storage
from warren.dws.objects.systemconfiguration import ComputeAccess, StorageNode
from warren.dws.rabbits import rabbitstorages
from warren.dws.storage import nnfstorage

TWO = (("r0", 2), ("r1", 1))


# NnfStorage


def test_each_rabbit_gets_its_share_in_its_own_namespace() -> None:
    writes = nnfstorage.decide(nnf_storage(*TWO), [])

    shares = made(writes, kinds.NNF_NODE_STORAGE)
    assert [key_of(obj) for obj in shares] == [
        Key("r0", "default-wf-0-xfs-0"),
        Key("r1", "default-wf-0-xfs-0"),
    ]
    assert shares[0]["spec"] == {
        "count": 2,
        "capacity": SIZE,
        "blockReference": {
            "kind": "NnfNodeBlockStorage",
            "name": "default-wf-0-xfs-0",
            "namespace": "r0",
        },
        "sharedAllocation": True,
        "commandVariables": [
            {"name": "$ALLOCATION_COUNT", "value": "2"},
            {"name": "$HOST_COUNT", "value": "3"},
        ],
        "fileSystemType": "xfs",
        "userID": 1001,
        "groupID": 1002,
    }
    assert shares[0]["metadata"]["finalizers"] == [labels.NODE_STORAGE_FINALIZER]
    assert labels.owner_of(shares[0]) == ("NnfStorage default/wf-0",)


def test_a_share_is_as_large_as_was_asked_for_and_its_flash_has_the_padding() -> None:
    """Sizes of the vectors (case 02): 10 GB, and 300 MiB of padding for each allocation."""
    data = {"xfsStorage": {"allocationPadding": "300MiB"}}
    profile = read({"metadata": meta("wf-0"), "data": data}, NnfStorageProfile)
    writes = nnfstorage.decide(nnf_storage(*TWO), [], [], profile)

    blocks = made(writes, kinds.NNF_NODE_BLOCK_STORAGE)
    shares = made(writes, kinds.NNF_NODE_STORAGE)
    assert [each["spec"]["capacity"] for each in shares] == [GIB, GIB]
    assert [key_of(each) for each in blocks] == [key_of(each) for each in shares]
    assert [each["spec"] for each in blocks] == [
        {"sharedAllocation": True, "allocations": [{"capacity": 2 * SIZE, "access": ["r0"]}]},
        {"sharedAllocation": True, "allocations": [{"capacity": SIZE, "access": ["r1"]}]},
    ]
    assert blocks[0]["metadata"]["finalizers"] == [
        labels.NODE_BLOCK_STORAGE_FINALIZER,
        labels.NODE_STORAGE_FINALIZER,
    ]
    for block, of_share in zip(blocks, shares, strict=True):
        assert labels.owner_of(block) == labels.owner_of(of_share)
        flash, own = read(block, NnfNodeBlockStorage), read(of_share, NnfNodeStorage)
        # The user gets at least what was asked for: the volume is as large as it was assigned.
        sizes = [nnfstorage.volume_size(own, flash, n) for n in range(own.spec.count)]
        assert sizes == [SIZE] * own.spec.count


@pytest.mark.parametrize(
    ("padded", "padding", "size"),
    [
        (SIZE, "300MiB", GIB),
        (SIZE, "314572800", GIB),
        (110 * GIB, "10%", 100 * GIB),
        (GIB, "0", GIB),
        (10**12, "", 10**12),
        (5, "1KiB", 0),
    ],
)
def test_padding_is_taken_off_as_it_was_added(padded: int, padding: str, size: int) -> None:
    """dws-spec section 3.1."""
    assert nnfstorage.without_padding(padded, padding) == pytest.approx(size, abs=1)


def test_a_volume_whose_flash_is_its_own_is_as_large_as_that() -> None:
    own = {"allocations": [{"capacity": 7}, {"capacity": 9}], "sharedAllocation": False}
    block = read({"metadata": meta("s"), "spec": own}, NnfNodeBlockStorage)
    found = share("r0", 2)
    assert [nnfstorage.volume_size(found, block, n) for n in (0, 1)] == [7, 9]
    assert nnfstorage.volume_size(found, None, 0) == SIZE


def test_storage_goes_when_neither_shares_nor_their_flash_are_left() -> None:
    going = nnf_storage(*TWO, metadata=DELETING)
    block = read({"metadata": meta("default-wf-0-xfs-0", "r0")}, NnfNodeBlockStorage)

    writes = nnfstorage.decide(going, [share("r0")], [block])
    assert removed(writes, kinds.NNF_NODE_STORAGE) == ["r0/default-wf-0-xfs-0"]
    assert removed(writes, kinds.NNF_NODE_BLOCK_STORAGE) == ["r0/default-wf-0-xfs-0"]
    assert changes(writes, kinds.NNF_STORAGE) == []
    assert changes(nnfstorage.decide(going, [], [block]), kinds.NNF_STORAGE) == []
    assert len(changes(nnfstorage.decide(going, [], []), kinds.NNF_STORAGE)) == 1


def test_what_a_directive_has_made_owns_storage_as_a_workflow_does() -> None:
    """dws-spec section 0.3: a persistent instance owns its NnfStorage; 8 names the variables."""
    made_for = children.owner_for_directive(workflow(JOBDW), 2)
    instance = read({"metadata": meta("per")}, Storage).metadata
    owner = replace(made_for, kind=kinds.STORAGE, meta=instance)
    assigned = servers(share_of(r0=1))

    own = nnfstorage.new(made_for, "wf-2", "xfs", assigned)
    given = nnfstorage.new(owner, "per", "xfs", assigned)

    assert given["spec"] == own["spec"]
    assert given["metadata"]["name"] == "per"
    assert labels.owner_of(given) == ("Storage default/per",)
    assert labels.workflow_of(given) == labels.workflow_of(own) == ("default/wf",)
    assert [each["name"] for each in given["metadata"]["ownerReferences"]] == ["per"]
    profiles = [each["metadata"]["labels"][labels.PINNED_PROFILE_NAME] for each in (own, given)]
    assert profiles == ["wf-2", "per"]
    assert given["metadata"]["labels"][labels.PINNED_PROFILE_NAMESPACE] == "default"
    variables = {
        each["name"]: each["value"]
        for each in given["spec"]["allocationSets"][0]["commandVariables"]
    }
    assert variables == {
        "$JOBID": "fX",
        "$DIRECTIVE_INDEX": "2",
        "$WORKFLOW_UID": "uid-wf",
        "$USERID": "1001",
        "$GROUPID": "1002",
    }


def test_a_rabbit_that_is_listed_twice_gets_two_shares() -> None:
    twice = nnf_storage(("r0", 1), ("r1", 1), ("r0", 2))
    assert [str(key) for key in nnfstorage.label_by_share(twice)] == [
        "r0/default-wf-0-xfs-0",
        "r1/default-wf-0-xfs-0",
        "r0/default-wf-0-xfs-1",
    ]
    assert set(nnfstorage.label_by_share(twice).values()) == {"xfs"}


def test_only_the_shares_that_are_missing_are_made() -> None:
    writes = nnfstorage.decide(nnf_storage(*TWO), [share("r0", 2)])
    assert [key_of(obj).namespace for obj in made(writes, kinds.NNF_NODE_STORAGE)] == ["r1"]


@pytest.mark.parametrize(
    ("shares", "ready"),
    [
        ([], False),
        ([share("r0", ready=True)], False),
        ([share("r0", ready=True), share("r1")], False),
        ([share("r0", ready=True), share("r1", ready=True)], True),
        ([share("r0", ready=True), share("r1", ready=True, error=error())], False),
    ],
)
def test_storage_is_ready_when_all_its_shares_are(shares: list[Any], ready: bool) -> None:
    patches = changes(nnfstorage.decide(nnf_storage(*TWO), shares), kinds.NNF_STORAGE)
    assert any(patch["status"]["ready"] for patch in patches) == ready


@pytest.mark.parametrize(
    ("last", "count", "health"),
    [
        (share("r1", ready=True), 2, "Healthy"),
        (share("r1", ready=True, error=error()), 1, "Degraded"),
        (share("r1", error=error(severity="Fatal")), 1, "Faulted"),
    ],
)
def test_storage_says_of_each_set_on_how_many_rabbits_it_is(
    last: Any, count: int, health: str
) -> None:
    """dws-spec section 8: NnfStorage.status."""
    known = nnf_storage(*TWO, ready=count == 1)
    (patch,) = changes(nnfstorage.decide(known, [share("r0", ready=True), last]), kinds.NNF_STORAGE)
    assert patch["status"]["health"] == health
    assert patch["status"]["allocationSets"] == [
        {"ready": count == 2, "health": health, "allocationCount": count}
    ]


def test_an_error_of_a_share_is_the_storages_error_with_the_rabbits_name() -> None:
    broken = share("r1", error=error("no room", "Fatal"))
    writes = nnfstorage.decide(nnf_storage(*TWO), [share("r0"), broken])
    (patch,) = changes(writes, kinds.NNF_STORAGE)
    assert patch["status"]["error"]["userMessage"] == "r1: no room"
    assert patch["status"]["error"]["severity"] == "Fatal"


def test_storage_whose_share_fails_later_is_not_ready_any_more() -> None:
    shares = [share("r0", ready=True), share("r1", error=error())]
    (patch,) = changes(nnfstorage.decide(nnf_storage(*TWO, ready=True), shares), kinds.NNF_STORAGE)
    assert patch["status"]["ready"] is False


@pytest.mark.parametrize(
    "shares",
    [
        [share("r0"), share("r1")],
        [share("r0", ready=True), share("r1", ready=True)],
        [share("r0", ready=True), share("r1", error=error())],
    ],
)
def test_a_second_pass_over_the_same_shares_writes_nothing(shares: list[Any]) -> None:
    first = nnf_storage(*TWO)
    writes = nnfstorage.decide(first, shares)
    assert not nnfstorage.decide(after(first, writes), shares)


def test_storage_in_deletion_removes_its_shares_and_then_lets_go() -> None:
    going = nnf_storage(*TWO, metadata=DELETING)

    writes = nnfstorage.decide(going, [share("r0"), share("r1", deleting=True)])
    assert removed(writes, kinds.NNF_NODE_STORAGE) == ["r0/default-wf-0-xfs-0"]
    assert len(writes) == 1
    assert nnfstorage.decide(going, [share("r1", deleting=True)]) == []


def test_a_storage_in_deletion_tells_what_keeps_a_rabbit_from_giving_back() -> None:
    going = nnf_storage(("r0", 1), metadata=DELETING)
    stuck = share("r0", deleting=True, error=error("in use"))
    writes = nnfstorage.decide(going, [stuck])

    (patch,) = changes(writes, kinds.NNF_STORAGE)
    assert patch["status"]["error"]["userMessage"] == "r0: in use"
    assert nnfstorage.decide(after(going, writes), [stuck]) == []
    assert changes(nnfstorage.decide(going, []), kinds.NNF_STORAGE) == [
        {"metadata": {"finalizers": []}}
    ]


def test_a_volume_is_named_after_its_rabbit_and_its_shares_uid() -> None:
    assert nnfstorage.volume_group_and_name(share("r0", 2), 1) == ("r0", "uid-default-wf-0-xfs-0-1")


# Servers, filled in


def spread(needs: list[AllocationNeed], floor: int = 1, **per_rabbit: int) -> list[Any]:
    """Return label, size and counts by rabbit of what is filled in."""
    return [
        (
            each["label"],
            each["allocationSize"],
            {share["name"]: share["allocationCount"] for share in each["storage"]},
        )
        for each in allocation_sets(needs, per_rabbit, floor, plenty(per_rabbit))
    ]


def plenty(per_rabbit: dict[str, int]) -> list[HeldFlash]:
    """Return more flash than is needed on each of a job's rabbits."""
    return [HeldFlash(name, nodes, 1, 2**40) for name, nodes in sorted(per_rabbit.items())]


ACROSS, SINGLE = "AllocateAcrossServers", "AllocateSingleServer"
OST = need("ost", 10 * TIB, ACROSS)


@pytest.mark.parametrize(
    ("one", "per_rabbit", "size", "counts"),
    [
        (need("xfs", 10 * GIB), {"r0": 1}, 10 * GIB, {"r0": 1}),
        (need("xfs", 10 * GIB), {"r0": 4, "r1": 3}, 10 * GIB, {"r0": 4, "r1": 3}),
        (OST, {"r0": 1, "r1": 1}, 5 * TIB, {"r0": 1, "r1": 1}),
        (OST, {"r0": 6, "r1": 3}, -(-10 * TIB // 3), {"r0": 2, "r1": 1}),
        (OST, {"r0": 4, "r1": 3}, -(-10 * TIB // 7), {"r0": 4, "r1": 3}),
        (need("ost", 10 * GIB, ACROSS, count=2), {"r0": 1}, 5 * GIB, {"r0": 2}),
        (need("ost", 10 * GIB, ACROSS, count=2), {"r0": 1, "r1": 1}, 5 * GIB, {"r0": 1, "r1": 1}),
        (need("ost", 10 * GIB, ACROSS, count=2), {"r0": 3, "r1": 6}, 5 * GIB, {"r0": 1, "r1": 1}),
        (need("ost", 12 * GIB, ACROSS, count=3), {"r0": 3, "r1": 6}, 4 * GIB, {"r0": 1, "r1": 2}),
        (need("mgt", 5 * GIB, SINGLE), {"r0": 3, "r1": 6}, 5 * GIB, {"r1": 1}),
        (need("mgt", 5 * GIB, SINGLE), {"r1": 3, "r0": 3}, 5 * GIB, {"r0": 1}),
    ],
)  # fmt: skip
def test_each_strategy_is_filled_in_as_flux_coral2_does(
    one: AllocationNeed, per_rabbit: dict[str, int], size: int, counts: dict[str, int]
) -> None:
    assert spread([one], **per_rabbit) == [(one.label, size, counts)]


def test_no_allocation_is_smaller_than_the_floor() -> None:
    needs = [need(size=GIB), need("mgt", GIB, SINGLE), need("ost", GIB, ACROSS)]
    assert [size for _, size, _ in spread(needs, floor=4 * GIB, r0=2)] == [4 * GIB] * 3


def test_an_allocation_is_where_the_jobs_flash_is() -> None:
    held = [HeldFlash("r0", 3, 1, 4), HeldFlash("r1", 1, 1, 9)]
    (found,) = allocation_sets([need("mgt", 5 * GIB, SINGLE)], {"r0": 3, "r1": 1}, GIB, held)
    assert found["storage"] == [{"name": "r1", "allocationCount": 1}]


def test_flash_that_the_job_was_not_given_is_not_used() -> None:
    needs = [need("xfs", 2 * GIB), need("mgt", 5 * GIB, SINGLE)]
    held = [HeldFlash("r0", 2, 1, 8), HeldFlash("r1", 1, 1, 6)]
    with pytest.raises(Fault) as raised:
        allocation_sets(needs, {"r0": 2, "r1": 1}, GIB, held)
    assert str(raised.value) == (
        "the storage cannot be placed because it is 1 allocation of 5 GiB and 2 GiB beside each "
        "node, and the job was given 8 GiB on r0, 6 GiB on r1"
    )
    with pytest.raises(Fault, match=r"and the job was given no flash$"):
        allocation_sets(needs[1:], {"r0": 2}, GIB)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(Fault, match="'Anywhere' is not understood"):
        allocation_sets([need(strategy="Anywhere")], {"r0": 1}, 1)


needs_ = st.builds(
    lambda label, size, strategy, count: need(label, size, strategy, count),
    st.just("x"),
    st.integers(1, 2**45),
    st.sampled_from(["AllocatePerCompute", ACROSS, SINGLE]),
    st.none() | st.integers(1, 5),
)


@given(needs_, st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1))
def test_what_is_filled_in_passes_the_check_of_setup(
    one: AllocationNeed, per_rabbit: dict[str, int]
) -> None:
    if one.allocation_strategy == SINGLE:
        one = need("x", one.minimum_capacity, SINGLE)
    sets = allocation_sets([one], per_rabbit, GIB, plenty(per_rabbit))
    check([one], servers(*sets), {name: rabbit(name) for name in per_rabbit})
    if one.allocation_strategy == "AllocatePerCompute":
        assert {each["name"]: each["allocationCount"] for each in sets[0]["storage"]} == per_rabbit
    elif one.constraints.count:
        assert sum(each["allocationCount"] for each in sets[0]["storage"]) == one.constraints.count


# Servers, checked


@pytest.mark.parametrize(
    ("needs", "given_", "fault"),
    [
        ([need()], servers(), "it has 0 allocation sets, and 1 are needed"),
        ([need()], servers(share_of("gfs2", r0=1)), "lacks the set xfs"),
        ([need(), need("ost")], servers(share_of(r0=1), share_of(r0=1)), "lacks the set ost"),
        (
            [need()],
            servers(share_of(size=SIZE - 1, r0=2)),
            "an allocation of set xfs has 1388314623 bytes, and 1388314624 are needed",
        ),
        (
            [need("ost", 10, ACROSS)],
            servers(share_of("ost", 3, r0=2, r1=1)),
            r"set ost has 9 bytes \(3 times 3\), and 10 are needed",
        ),
        (
            [need("mgt", 1, SINGLE)],
            servers(share_of("mgt", 1, r0=2)),
            "set mgt needs one allocation on one rabbit",
        ),
        (
            [need("mgt", 1, SINGLE)],
            servers(share_of("mgt", 1, r0=1, r1=1)),
            "set mgt needs one allocation on one rabbit",
        ),
        (
            [need("ost", 1, ACROSS, count=2)],
            servers(share_of("ost", 1, r0=3)),
            "set ost has 3 allocations, and 2 are needed",
        ),
        ([need()], servers(share_of(elsewhere=1)), "there is no Storage elsewhere"),
    ],
)
def test_servers_that_are_filled_in_wrongly_are_the_workload_managers_fault(
    needs: list[AllocationNeed], given_: Servers, fault: str
) -> None:
    with pytest.raises(Fault, match=fault) as raised:
        check(needs, given_, {"r0": rabbit("r0"), "r1": rabbit("r1")})
    assert (raised.value.type, raised.value.severity) == ("WLM", "Fatal")


@pytest.mark.parametrize(
    ("late", "word"),
    [
        (rabbit("r1", {"state": "Disabled"}), "Disabled"),
        *((rabbit("r1", status=each), each) for each in ("Degraded", "Failed", "Starting")),
    ],
)
def test_flash_of_a_rabbit_that_is_not_ready_is_not_taken_for_new_storage(
    late: Storage, word: str
) -> None:
    rabbits = {"r0": rabbit("r0"), "r1": late}
    with pytest.raises(
        Fault, match=f"^Servers wf-0: r1 is {word}, and only rabbits that are Ready take"
    ) as told:
        check([need()], servers(share_of(r0=1, r1=1)), rabbits)
    assert (told.value.type, told.value.severity) == ("WLM", "Fatal")
    check([need()], servers(share_of(r0=1)), rabbits)


@pytest.mark.parametrize("status", ["Drained", "Offline"])
def test_flash_that_a_job_was_given_is_made_by_a_drained_rabbit_and_waited_for_of_an_offline_one(
    status: str,
) -> None:
    check([need()], servers(share_of(r0=1)), {"r0": rabbit("r0", status=status)})


def test_nodes_are_on_rabbits_that_hold_what_they_must_be_wired_to() -> None:
    """Statement 002.20: of Servers that others fill in, physical access is demanded, too."""
    needs, rabbits = [need("mgt", 1, SINGLE)], {"r0": rabbit("r0"), "r1": rabbit("r1")}
    given_ = servers(share_of("mgt", 1, r0=1))
    check(needs, given_, rabbits, {"r0": 2, "r1": 1})
    check(needs, given_, rabbits, {"r0": 2}, (Locality.EVERY_RABBIT_OF_JOB,))
    with pytest.raises(Fault, match="r1 holds nothing of set mgt, which the compute nodes there"):
        check(needs, given_, rabbits, {"r0": 2, "r1": 1}, (Locality.EVERY_RABBIT_OF_JOB,))


def exclusive(label: str, key: str, type: str = "exclusive") -> AllocationNeed:
    made = need(label, 1, ACROSS)
    apart = Constraints(colocation=(Colocation(type=type, key=key),))
    return msgspec.structs.replace(made, constraints=apart)


MGT_AND_MDT = servers(share_of("mgt", 1, r0=1), share_of("mdt", 1, r0=1, r1=1))


@pytest.mark.parametrize(
    ("needs", "given_", "fault"),
    [
        ([need()], servers(share_of(r0=1), share_of(r0=1)), "it has the set xfs 2 times"),
        (
            [need()],
            servers(share_of(r0=1), share_of("foo", r0=1)),
            "it has 2 allocation sets, and 1 are needed; there is no need of a set foo",
        ),
        ([need()], servers(share_of(r0=1, r1=0)), "r1 has 0 allocations of set xfs"),
        (
            [exclusive("mgt", "lustre-mgt"), exclusive("mdt", "lustre-mgt")],
            MGT_AND_MDT,
            "r0 has the sets mgt and mdt, which must not be together",
        ),
        (
            [need()],
            servers(share_of(size=1, elsewhere=1, r0=0)),
            "Servers wf-0: r0 has 0 allocations of set xfs; an allocation of set xfs has 1 bytes, "
            f"and {SIZE} are needed; there is no Storage elsewhere",
        ),
    ],
)
def test_every_mistake_in_servers_is_told_at_once(
    needs: list[AllocationNeed], given_: Servers, fault: str
) -> None:
    """dws-spec section 5, and what is asked of allocation sets in 3.3."""
    with pytest.raises(Fault) as raised:
        check(needs, given_, {"r0": rabbit("r0"), "r1": rabbit("r1")})
    assert fault in str(raised.value)


@pytest.mark.parametrize(
    "needs",
    [
        [exclusive("mgt", "lustre-mgt"), exclusive("mdt", "")],
        [exclusive("mgt", "a", "other"), exclusive("mdt", "a", "other")],
    ],
)
def test_sets_that_need_not_be_apart_may_share_a_rabbit(needs: list[AllocationNeed]) -> None:
    check(needs, MGT_AND_MDT, {"r0": rabbit("r0"), "r1": rabbit("r1")})


def test_a_rabbit_has_all_labels_that_a_set_asks_for() -> None:
    """dws-spec section 3.3: labels are key=value that must all be on the Storage."""
    asked = Constraints(labels=("fast=yes", "site=a"))
    wants = msgspec.structs.replace(need(), constraints=asked)
    some = msgspec.structs.replace(rabbit("r0").metadata, labels={"fast": "yes"})
    labelled = msgspec.structs.replace(rabbit("r0"), metadata=some)
    with pytest.raises(Fault, match="r0 lacks site=a, which set xfs asks for"):
        check([wants], servers(share_of(r0=1)), {"r0": labelled})
    both = msgspec.structs.replace(labelled.metadata, labels={"fast": "yes", "site": "a"})
    labelled = msgspec.structs.replace(labelled, metadata=both)
    check([wants], servers(share_of(r0=1)), {"r0": labelled})


def test_each_compute_node_that_is_known_already_has_an_allocation_on_its_rabbit() -> None:
    rabbits = {"r0": rabbit("r0"), "r1": rabbit("r1")}
    with pytest.raises(Fault) as raised:
        check([need()], servers(share_of(r0=1)), rabbits, {"r0": 2, "r1": 1})
    assert str(raised.value) == (
        "Servers wf-0: r0 has 1 allocation of set xfs for 2 compute nodes; "
        "r1 has 0 allocations of set xfs for 1 compute node"
    )
    check([need()], servers(share_of(r0=2, r1=1)), rabbits, {"r0": 2, "r1": 1})
    check([need("ost", 1, ACROSS)], servers(share_of("ost", 1, r0=1)), rabbits, {"r0": 2})


# Servers, reported


GIVEN = servers(share_of(r0=2, r1=1))
SETS = {"default-wf-0-xfs-0": "xfs", "default-wf-0-xfs-1": "xfs"}


def reported(given_: Servers, *shares: Any) -> Any:
    change = report(given_, shares, SETS, NOW)
    if change is None:
        return None
    return {name: told for name, told in change.patch["status"].items() if name != "lastUpdate"}


def test_what_is_allocated_where_is_written_down() -> None:
    assert reported(GIVEN, share("r0", 2, ready=True), share("r1")) == {
        "ready": False,
        "allocationSets": [
            {
                "label": "xfs",
                "storage": {
                    "r0": {"allocationSize": 2 * SIZE, "ready": True},
                    "r1": {"allocationSize": 0, "ready": False},
                },
            }
        ],
    }


def test_servers_are_ready_when_every_share_is() -> None:
    assert reported(GIVEN, share("r0", 2, ready=True), share("r1", ready=True))["ready"]


def test_servers_are_not_ready_while_a_share_is_missing() -> None:
    assert not reported(GIVEN, share("r0", 2, ready=True))["ready"]


def test_every_rabbit_that_is_assigned_is_named_before_anything_is_made_there() -> None:
    late = {"allocationSize": 0, "ready": False}
    assert reported(GIVEN) == {
        "ready": False,
        "allocationSets": [{"label": "xfs", "storage": {"r0": late, "r1": late}}],
    }
    one = reported(GIVEN, share("r0", 2, ready=True))["allocationSets"][0]["storage"]
    assert one == {"r0": {"allocationSize": 2 * SIZE, "ready": True}, "r1": late}


def test_servers_that_list_a_rabbit_twice_have_two_shares_on_it() -> None:
    twice = {**share_of(), "storage": [{"name": "r0", "allocationCount": 1}] * 2}
    one, other = share("r0", ready=True), share("r0", number=1, ready=True)
    first = reported(servers(twice), one)
    assert not first["ready"]
    assert not first["allocationSets"][0]["storage"]["r0"]["ready"]
    assert reported(servers(twice), one, other)["ready"]


def test_servers_that_were_ready_stay_so() -> None:
    ready = servers(share_of(r0=1), ready=True)
    assert reported(ready, share("r0"))["ready"]


def test_servers_without_sets_are_never_ready() -> None:
    assert reported(servers()) is None


def test_what_is_written_down_already_is_not_written_again() -> None:
    shares = [share("r0", 2, ready=True), share("r1", ready=True)]
    change = report(GIVEN, shares, SETS, NOW)
    assert change is not None
    # dws-spec section 5: when it was changed is said, and no change.
    assert change.patch["status"]["lastUpdate"] == STAMP
    assert report(after(GIVEN, [change]), shares, SETS, NOW + 1) is None


# The rabbits of a system


def node(name: str, **status: Any) -> NnfNode:
    return read({"metadata": meta("nnf-nlc", name), "status": status}, NnfNode)


READY = {"status": "Ready", "capacity": 8 * GIB}
WIRED = StorageNode(name="r0", computes_access=(ComputeAccess(name="n0"), ComputeAccess(name="n1")))


def test_a_rabbit_that_cannot_use_its_flash_is_failed_with_the_reason() -> None:
    carried = {labels.FAILURE: "/dev/one: Input/output error"}
    own = {**meta("nnf-nlc", "r0"), "resourceVersion": "8", "annotations": carried}
    raw = {"metadata": own, "status": {**READY, "status": "Failed"}}
    storage_ = settle(rabbit("r0"), node("r0", **READY))

    status = status_of(storage_, read(raw, NnfNode))

    assert status["status"] == "Failed"
    told = "The flash of the rabbit cannot be used: /dev/one: Input/output error"
    assert status["message"] == told
    again = node("r0", **READY)
    assert settle(settle(storage_, read(raw, NnfNode)), again).status == storage_.status


def written(storage_: Storage | None, node_: NnfNode | None) -> list[Any]:
    """Return what is written about a rabbit with two nodes."""
    return list(rabbitstorages.decide(configuration(), WIRED, storage_, node_))


def status_of(storage_: Storage, node_: NnfNode | None) -> Any:
    """Return the status that is written of a Storage."""
    (patch,) = changes(written(storage_, node_), kinds.STORAGE)
    return patch["status"]


def settle(storage_: Storage, node_: NnfNode | None) -> Storage:
    for _ in range(3):
        storage_ = after(storage_, written(storage_, node_))
    return storage_


def links(storage_: Storage) -> dict[str, str]:
    return {each.name: each.status for each in storage_.status.access.computes}


def test_each_rabbit_of_the_configuration_gets_its_storage() -> None:
    (found,) = made(written(None, None), kinds.STORAGE)
    assert key_of(found) == Key("default", "r0")
    assert found["spec"] == {"state": "Enabled", "mode": "Live"}
    assert found["metadata"]["labels"][labels.STORAGE_TYPE] == "Rabbit"


def test_a_storage_shows_its_rabbits_drives_and_of_those_that_are_gone_only_that() -> None:
    """dws-spec section 6."""
    drives = [
        {"id": "0", "capacity": 5, "serialNumber": "a", "status": "Ready"},
        {"id": "1", "capacity": 5, "serialNumber": "b", "status": "Offline"},
    ]
    told = node("r0", **READY, drives=drives)
    assert status_of(rabbit("r0"), told)["devices"] == [
        {"serialNumber": "a", "capacity": 5, "status": "Ready"},
        {"status": "Offline"},
    ]
    assert written(settle(rabbit("r0"), told), told) == []


@pytest.mark.parametrize(
    ("enabled", "says", "state", "capacity"),
    [
        ("Enabled", READY, "Ready", 8 * GIB),
        ("Enabled", None, "Starting", 0),
        ("Enabled", {**READY, "status": "Degraded"}, "Degraded", 8 * GIB),
        ("Enabled", {**READY, "status": "Vexed"}, "Unknown", 8 * GIB),
        ("Enabled", {**READY, "fenced": True}, "Degraded", 8 * GIB),
        ("Disabled", READY, "Disabled", 8 * GIB),
        ("Disabled", None, "Disabled", 0),
    ],
)
def test_a_storage_shows_what_its_rabbit_says(
    enabled: str, says: dict[str, Any] | None, state: str, capacity: int
) -> None:
    old = rabbit("r0", {"state": enabled}, status="Failed")

    status = status_of(old, None if says is None else node("r0", **says))

    disabled = "Storage node manually disabled" if enabled == "Disabled" else None
    assert {key: status[key] for key in ("status", "message", "capacity", "rebootRequired")} == {
        "status": state,
        "message": disabled,
        "capacity": capacity,
        "rebootRequired": says is not None and "fenced" in says,
    }


@pytest.mark.parametrize("status", ["Ready", "Degraded", "Failed", "Offline", "Drained"])
@pytest.mark.parametrize("spec", [{"state": "Enabled"}, {"state": "Disabled"}])
def test_the_links_of_a_rabbit_are_not_what_the_rabbit_is(
    spec: dict[str, str], status: str
) -> None:
    says = {**READY, "status": status, "servers": [{"hostname": "n1", "status": "Offline"}]}

    found = settle(rabbit("r0", spec), node("r0", **says))

    assert links(found) == {"n0": "Ready", "n1": "Offline"}
    assert [(each.name, each.status) for each in found.status.access.servers] == [("r0", "Ready")]


@pytest.mark.parametrize("end", ["computes", "servers"])
def test_a_wrong_link_is_repaired(end: str) -> None:
    right = settle(rabbit("r0"), node("r0", **READY))
    raw = msgspec.to_builtins(right)
    raw["status"]["access"][end][0]["status"] = "Offline"

    assert settle(read(raw, Storage), node("r0", **READY)) == right


def test_nothing_is_said_of_the_links_of_a_rabbit_that_has_not_spoken_yet() -> None:
    assert "access" not in status_of(rabbit("r0"), None)


def test_the_status_of_a_storage_that_is_tested_is_the_testers() -> None:
    tested = rabbit("r0", {"mode": "Testing"}, status="Drained", message="by hand")
    assert written(tested, node("r0", **READY)) == []

    disabled = rabbit("r0", {"mode": "Testing", "state": "Disabled"}, status="Ready")
    assert status_of(disabled, node("r0", **READY)) == {
        "status": "Disabled",
        "message": "Storage node manually disabled",
    }


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        *(({}, status, status == "Ready") for status in sorted(rabbitstorages._STATUSES)),
        ({"state": "Disabled"}, "Ready", False),
        ({"mode": "Testing"}, "Ready", True),
    ],
)
def test_only_flash_of_rabbits_that_are_ready_is_given_to_jobs(
    spec: dict[str, str], status: str, expected: bool
) -> None:
    assert rabbitstorages.is_usable(rabbit("r0", spec, status=status)) is expected


def offering(name: str, raw: RawVolumeAccess = RawVolumeAccess.FOR_USERS) -> NnfNode:
    carried = {labels.RAW_VOLUMES: raw}
    return read({"metadata": meta("nnf-nlc", name, labels=carried), "status": READY}, NnfNode)


def test_raw_volumes_are_for_users_where_every_rabbit_offers_them() -> None:
    offered = settle(rabbit("r0"), offering("r0"))
    other = settle(rabbit("r0"), node("r0", **READY))

    assert rabbitstorages.raw_volume_access([offered]) is RawVolumeAccess.FOR_USERS
    assert rabbitstorages.raw_volume_access([offered, other]) is RawVolumeAccess.FOR_ROOT
    assert rabbitstorages.raw_volume_access([]) is RawVolumeAccess.FOR_ROOT


def test_raw_volumes_are_for_no_user_where_a_rabbit_has_no_devices() -> None:
    offered = settle(rabbit("r0"), offering("r0"))
    without = settle(rabbit("r1"), offering("r1", RawVolumeAccess.NONE))

    assert rabbitstorages.raw_volume_access([offered, without]) is RawVolumeAccess.NONE


def test_a_rabbit_that_offers_raw_volumes_no_more_is_believed() -> None:
    found = settle(settle(rabbit("r0"), offering("r0")), node("r0", **READY))

    assert rabbitstorages.raw_volume_access([found]) is RawVolumeAccess.FOR_ROOT


@pytest.mark.parametrize("said", [None, node("r0", **READY), node("r0", **READY, fenced=True)])
def test_a_second_pass_over_the_same_rabbit_writes_nothing(said: NnfNode | None) -> None:
    assert written(settle(rabbit("r0"), said), said) == []
