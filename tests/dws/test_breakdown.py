"""From a directive to what it needs, and from there to the jobspec."""

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import (
    DELETING,
    JOBDW,
    SIZE,
    after,
    breakdown,
    changes,
    copied,
    made,
    meta,
    need,
    needed,
    profile,
    raw_profile,
    workflow,
)
from tests.rfc.vectors import vector
from warren.base.bytesize import GIB
from warren.base.objects import Key, Object, key_of
from warren.dws import kinds, labels
from warren.dws.breakdown import BreakdownSnapshot, child, decide
from warren.dws.faults import Fault
from warren.dws.objects.breakdowns import AllocationNeed, BreakdownStatus, DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.resources import Rewritten, rewritten

# Needs


def size_of(capacity: str, **xfs: Any) -> int:
    directive = f"#DW jobdw type=xfs capacity={capacity} name=ab"
    (found,) = needed(directive, profile(**xfs))
    return found.minimum_capacity


@pytest.mark.parametrize(
    ("capacity", "xfs", "size"),
    [
        ("1GiB", {"allocationPadding": "300MiB"}, 1388314624),
        ("1TB", {"allocationPadding": "300MiB"}, 1000314572800),
        ("100MB", {"allocationPadding": "300MiB"}, 414572800),
        ("10GB", {"capacityScalingFactor": "1.5", "allocationPadding": "10%"}, 16500000000),
        ("10GB", {"capacityScalingFactor": "0.5", "allocationPadding": "0"}, 5000000000),
        ("1KB", {"allocationPadding": "24"}, 1024),
        ("1KB", {"allocationPadding": "2.5%"}, 1025),
        ("1KB", {"allocationPadding": "1KiB"}, 2024),
    ],
)
def test_a_capacity_is_scaled_and_then_padded(
    capacity: str, xfs: dict[str, str], size: int
) -> None:
    assert size_of(capacity, **xfs) == size


def test_a_need_names_its_strategy_its_label_and_its_constraints() -> None:
    (found,) = needed(JOBDW, profile(storageLabels=["fast=yes"]))
    assert (found.allocation_strategy, found.label) == ("AllocatePerCompute", "xfs")
    assert found.constraints.labels == ("fast=yes", "dataworkflowservices.github.io/storage=Rabbit")


@pytest.mark.parametrize(
    ("directive", "profiles", "fault", "type_"),
    [
        (
            JOBDW.replace("xfs", "nfs"),
            [profile()],
            "there is no file system of type 'nfs': take one of xfs, ext4, raw, gfs2, lustre",
            "User",
        ),
        (
            JOBDW.replace("capacity=1GiB", ""),
            [profile()],
            "jobdw requires 'capacity' argument, such as capacity=100GiB",
            "User",
        ),
        (
            JOBDW + " profile=nope",
            [profile()],
            "Unable to find NnfStorageProfile: nope. Take default",
            "User",
        ),
        (
            JOBDW + " profile=fasd",
            [profile(), profile("fast", default=False)],
            "Unable to find NnfStorageProfile: fasd. Did you mean 'fast'?",
            "User",
        ),
        (
            JOBDW,
            [],
            "no NnfStorageProfile in nnf-system is the default, and one must be",
            "Internal",
        ),
        (
            JOBDW,
            [profile("a"), profile("b")],
            "2 NnfStorageProfiles are the default, and one must be: a, b",
            "Internal",
        ),
        (JOBDW.replace("1GiB", "0GiB"), [profile()], "'capacity' must be a non-zero value", "User"),
        (
            JOBDW.replace("1GiB", "9999999PiB"),
            [profile()],
            "'9999999PiB' is too large: a capacity is less than 8 EiB",
            "User",
        ),
        (
            JOBDW.replace("1GiB", "8388607TiB"),
            [profile(capacityScalingFactor="1.5")],
            "'8388607TiB' is too large: with what its file system needs for itself, a capacity is "
            "less than 8 EiB",
            "User",
        ),
        (
            JOBDW,
            [profile(allocationPadding="some")],
            "NnfStorageProfile default is wrong: data.xfsStorage.allocationPadding: 'some' is not "
            "a capacity: write a number and a unit, such as 100GiB",
            "Internal",
        ),
        *(
            (
                JOBDW,
                [profile(capacityScalingFactor=factor)],
                "NnfStorageProfile default is wrong: data.xfsStorage.capacityScalingFactor: "
                f"{factor!r} is not a factor: write a number above 0, such as 1.5",
                "Internal",
            )
            for factor in ("much", "0", "-1", "nan", "inf")
        ),
        (
            JOBDW,
            [profile(capacityScalingFactor="1e308")],
            "'1GiB' is too large: with what its file system needs for itself, a capacity is "
            "less than 8 EiB",
            "User",
        ),
        (
            JOBDW.replace("1GiB", "1KB"),
            [profile(capacityScalingFactor="0.0001")],
            "'1KB' is too small: scaled by the profile's 0.0001, it is less than a byte",
            "User",
        ),
    ],
)
def test_what_cannot_be_broken_down_is_a_fault(
    directive: str, profiles: list[Any], fault: str, type_: str
) -> None:
    with pytest.raises(Fault) as raised:
        needed(directive, *profiles)
    assert (str(raised.value), raised.value.type) == (fault, type_)
    assert raised.value.severity == "Fatal"


def test_a_profile_that_is_named_need_not_be_the_default() -> None:
    fast = profile("fast", default=False, allocationPadding="1%")
    (found,) = needed(JOBDW + " profile=fast", profile(), fast)
    assert found.minimum_capacity == GIB + GIB // 100


# The object


def test_a_breakdown_carries_its_directive_and_its_place_in_the_workflow() -> None:
    obj = child(workflow(JOBDW, JOBDW.replace("my-fs", "other")), 1)
    assert key_of(obj) == Key("default", "wf-1")
    assert obj["spec"]["userID"] == 1001
    assert obj["metadata"]["labels"][labels.DIRECTIVE_INDEX] == "1"
    assert labels.workflow_of(obj) == ("default/wf",)


SOURCE = raw_profile()


def seen(found: DirectiveBreakdown, *sources: Object, **more: Any) -> BreakdownSnapshot:
    return BreakdownSnapshot(breakdown=found, profiles=sources, **more)


def test_a_breakdown_makes_its_copy_of_the_profile_before_anything_else() -> None:
    (write,) = decide(seen(breakdown(), SOURCE))

    (found,) = made([write], kinds.NNF_STORAGE_PROFILE)
    assert key_of(found) == Key("default", "wf-0")
    assert found["metadata"]["ownerReferences"][0]["uid"] == "uid-wf-0"
    assert found["data"] == {**SOURCE["data"], "default": False, "pinned": True}
    # Crash after it, and the next pass makes it again, which is harmless.
    assert write == decide(seen(breakdown(), SOURCE))[0]


@pytest.mark.parametrize(("some", "label"), [("xfs", True), ("gfs2", False)])
def test_where_only_some_rabbits_make_a_type_its_set_asks_for_those(some: str, label: bool) -> None:
    view = seen(breakdown(), SOURCE, copy=copied(SOURCE), is_made_by_some=some.__eq__)

    (patch,) = changes(decide(view), kinds.BREAKDOWN)

    (need,) = patch["status"]["storage"]["allocationSets"]
    asked = ["warren.cluster/makes-xfs=true"] if label else []
    assert need["constraints"]["labels"] == [
        *asked,
        "dataworkflowservices.github.io/storage=Rabbit",
    ]


def test_a_breakdown_makes_its_servers_and_then_says_what_is_needed() -> None:
    """Statements 002.13, 002.14, 002.25: a lifetime, and Servers that are empty."""
    writes = decide(seen(breakdown(), SOURCE, copy=copied(SOURCE)))

    (found,) = made(writes, kinds.SERVERS)
    assert key_of(found) == Key("default", "wf-0")
    assert found["metadata"]["ownerReferences"][0]["kind"] == "DirectiveBreakdown"
    (patch,) = changes(writes, kinds.BREAKDOWN)
    assert patch["status"]["ready"] is True
    reference = {"kind": "Servers", "name": "wf-0", "namespace": "default"}  # 002.14
    assert patch["status"]["storage"] == {
        "lifetime": "job",
        "reference": reference,
        "allocationSets": [
            {
                "allocationStrategy": "AllocatePerCompute",
                "minimumCapacity": SIZE,
                "label": "xfs",
                "constraints": {"labels": ["dataworkflowservices.github.io/storage=Rabbit"]},
            }
        ],
    }
    assert patch["status"]["compute"]["constraints"]["location"] == [
        {
            "access": [{"type": "physical", "priority": "mandatory"}],
            "reference": {**reference, "fieldPath": "servers.spec.allocationSets[0]"},
        }
    ]
    # Crash between the two, and the next pass makes the Servers again, which is harmless.
    assert writes[0] == decide(seen(breakdown(), SOURCE, copy=copied(SOURCE)))[0]


def test_what_becomes_of_a_profile_after_it_was_copied_changes_nothing() -> None:
    other = raw_profile(allocationPadding="10GiB")
    for sources in ([other], [], [raw_profile(default=False)]):
        writes = decide(seen(breakdown(), *sources, copy=copied(SOURCE)))
        (patch,) = changes(writes, kinds.BREAKDOWN)
        (found,) = patch["status"]["storage"]["allocationSets"]
        assert found["minimumCapacity"] == SIZE


@pytest.mark.parametrize(
    ("owner", "severity", "words"),
    [
        ({}, "Fatal", "NnfStorageProfile default/wf-0 is in the way of the copy"),
        (
            labels.of_owner(kinds.BREAKDOWN, Meta(name="wf-0", namespace="default", uid="old")),
            "Minor",
            "NnfStorageProfile default/wf-0 is of an earlier DirectiveBreakdown and about to go",
        ),
    ],
)
def test_a_profile_that_has_the_name_of_the_copy_is_never_taken_for_it(
    owner: dict[str, str], severity: str, words: str
) -> None:
    foreign = copied(SOURCE)
    foreign = {**foreign, "metadata": {**foreign["metadata"], "labels": owner}}
    (patch,) = changes(decide(seen(breakdown(), SOURCE, copy=foreign)), kinds.BREAKDOWN)
    assert patch["status"]["error"]["userMessage"].startswith(words)
    assert patch["status"]["error"]["severity"] == severity


def test_a_profile_of_which_no_copy_may_be_made_is_told_of_with_its_mistake() -> None:
    source = raw_profile(variableOverride={"PATH": "/"})
    (patch,) = changes(decide(seen(breakdown(), source)), kinds.BREAKDOWN)
    assert patch["status"]["error"]["userMessage"] == (
        "NnfStorageProfile default is wrong: data.xfsStorage.variableOverride: 'PATH' does not "
        "start with $: the name of a variable does"
    )


@pytest.mark.parametrize(
    "sources",
    [[SOURCE], [], [raw_profile("other", default=False)]],
    ids=["good", "none", "other"],
)
def test_a_breakdown_is_told_once_whether_it_is_good_or_bad(sources: list[Any]) -> None:
    first = breakdown()
    copy = copied(SOURCE) if sources == [SOURCE] else None
    writes = decide(seen(first, *sources, copy=copy))
    assert len(changes(writes, kinds.BREAKDOWN)) == 1
    assert not decide(seen(after(first, writes), *sources, copy=copy))


def test_a_fault_shows_in_the_breakdown_and_heals_when_its_cause_does() -> None:
    first = breakdown()
    failed = after(first, decide(seen(first)))
    assert failed.status.error is not None
    assert failed.status.error.severity == "Fatal"

    healed = after(failed, decide(seen(failed, SOURCE, copy=copied(SOURCE))))
    assert healed.status.ready
    assert healed.status.error is None


def test_a_breakdown_in_deletion_is_left_alone() -> None:
    going = read(
        {"metadata": meta("wf-0", **DELETING), "spec": {"directive": JOBDW}}, DirectiveBreakdown
    )
    assert not decide(seen(going, SOURCE))


@pytest.mark.parametrize(
    ("directive", "why"),
    [
        ("#DW copy_in source=/a destination=/b", "copy_in needs no storage and no nodes"),
        ("#DW", "A command is missing after #DW. Try jobdw."),
    ],
)
def test_a_breakdown_of_what_needs_none_says_so(directive: str, why: str) -> None:
    found = breakdown(directive=directive)
    (patch,) = changes(decide(seen(found, SOURCE)), kinds.BREAKDOWN)
    assert patch["status"]["error"]["userMessage"] == why


# The jobspec, rewritten

NODE: dict[str, Any] = {
    "type": "node",
    "count": 2,
    "exclusive": True,
    "with": [{"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}],
}
FLOOR = 4 * GIB
OST = need("ost", 10 * GIB, "AllocateAcrossServers")


def vector_needs(name: str) -> list[AllocationNeed]:
    """Read the needs of a breakdown of flux-coral2's own tests."""
    raw = yaml.safe_load(vector(f"coral2/breakdown/{name}.yaml").read_text())
    storage = {"allocationSets": raw["status"]["storage"]["allocationSets"]}
    found = read({"ready": True, "storage": storage}, BreakdownStatus)
    assert found.storage is not None
    return list(found.storage.allocation_sets)


def ssds(needs: list[AllocationNeed], nodes: int = 2, floor: int = FLOOR) -> int:
    changed = rewritten([{**NODE, "count": nodes}], needs, floor).resources
    assert changed is not None
    count = changed[0]["with"][1]["count"]
    assert isinstance(count, int)
    return count


def test_each_node_gets_flash_beside_it() -> None:
    assert rewritten([NODE], [need()], FLOOR).resources == [
        {
            "type": "slot",
            "count": 2,
            "label": "rabbit",
            "with": [{**NODE, "count": 1}, {"type": "ssd", "count": 4, "exclusive": True}],
        }
    ]
    assert NODE["count"] == 2


@pytest.mark.parametrize(
    ("needs", "nodes", "gib"),
    [
        ([need(size=1)], 1, 4),
        ([need(size=10 * GIB)], 1, 10),
        ([need(size=10 * GIB)], 7, 10),
        ([need(size=10 * GIB + 1)], 7, 11),
        ([need(size=10 * GIB), need(size=1)], 3, 14),
        ([OST], 2, 5),
        ([OST, need(size=1)], 2, 9),
    ],
)  # fmt: skip
def test_flash_is_counted_in_whole_gib_with_a_floor_for_each_allocation(
    needs: list[AllocationNeed], nodes: int, gib: int
) -> None:
    assert ssds(needs, nodes) == gib


@pytest.mark.parametrize(("nodes", "gib"), [(1, 10240), (2, 5120), (3, 3414), (4, 2560)])
def test_the_lustre_of_flux_coral2_is_spread_over_the_nodes(nodes: int, gib: int) -> None:
    found = rewritten([{**NODE, "count": nodes}], vector_needs("lustre10tb"), FLOOR)
    changed = found.resources
    assert changed[0]["with"][1]["count"] == gib
    # Its MGT and MDT are smaller than what each node's part of them would be raised to.
    assert changed[1:] == [shared(1, 4)]


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_the_xfs_of_flux_coral2_is_beside_each_node(nodes: int) -> None:
    assert ssds(vector_needs("xfs10gb"), nodes) == 10


def shared(count: int, gib: int) -> dict[str, Any]:
    ssd = {"type": "ssd", "count": gib, "exclusive": True}
    return {"type": "chassis", "count": count, "with": [ssd]}


@pytest.mark.parametrize(
    ("one", "asked"),
    [
        (need("mgt", 5 * GIB, "AllocateSingleServer"), shared(1, 5)),
        (need("mgt", 5 * GIB + 1, "AllocateSingleServer", count=1), shared(1, 6)),
        (need("mgt", 1, "AllocateSingleServer"), shared(1, 4)),
        (need("ost", 90 * GIB, "AllocateAcrossServers", count=2), shared(2, 45)),
        (need("ost", 90 * GIB, "AllocateAcrossServers", count=4), shared(4, 23)),
        (need("ost", GIB, "AllocateAcrossServers", count=3), shared(3, 4)),
        (need("ost", GIB, "AllocateAcrossServers"), shared(1, 4)),
        (need("ost", 7 * GIB, "AllocateAcrossServers"), shared(1, 7)),
    ],
)
def test_flash_that_is_not_beside_each_node_is_asked_for_as_the_allocations_that_it_will_be(
    one: AllocationNeed, asked: dict[str, Any]
) -> None:
    changed = rewritten([NODE], [one], FLOOR).resources
    assert changed[0]["with"] == [{**NODE, "count": 1}]
    assert changed[1:] == [asked]


@pytest.mark.parametrize(
    ("one", "nodes", "fault"),
    [
        (
            need("mgt", 1, "AllocateSingleServer", count=2),
            2,
            "^set mgt cannot be placed because AllocateSingleServer is one allocation, "
            "and its constraints ask for 2$",
        ),
        (
            need(strategy="AllocatePerServer"),
            2,
            "^set xfs cannot be placed because AllocatePerServer does not say on how many rabbits",
        ),
        (
            need(strategy="AllocateAnywhere"),
            2,
            "^set xfs cannot be placed because the allocation strategy 'AllocateAnywhere' is not",
        ),
        (OST, "2-4", "^set ost cannot be placed because .* number is left open: give -N one"),
    ],
)
def test_what_cannot_be_reserved_is_refused_before_the_scheduler_has_the_job(
    one: AllocationNeed, nodes: Any, fault: str
) -> None:
    with pytest.raises(Fault, match=fault):
        rewritten([{**NODE, "count": nodes}], [one], FLOOR)


@pytest.mark.parametrize("one", [need(), need("mgt", 1, "AllocateSingleServer")])
def test_a_jobspec_that_was_rewritten_stays_as_it_is(one: AllocationNeed) -> None:
    once = rewritten([NODE], [one], FLOOR)
    assert rewritten(once.resources, [one], FLOOR) == once


@pytest.mark.parametrize(
    ("mine", "needs"),
    [
        ([need(size=9 * GIB)], [need(size=10 * GIB)]),
        ([need(size=9 * GIB)], [need("mgt", 5 * GIB, "AllocateSingleServer")]),
        (
            [need("mgt", 5 * GIB, "AllocateSingleServer")],
            [need("mgt", 6 * GIB, "AllocateSingleServer")],
        ),
    ],
)
def test_flash_that_an_author_asks_for_himself_is_refused_where_it_is_not_what_is_needed(
    mine: list[AllocationNeed], needs: list[AllocationNeed]
) -> None:
    own = rewritten([NODE], mine, FLOOR)
    with pytest.raises(Fault, match=r"is not what its #DW directives need: leave its ssds out"):
        rewritten(own.resources, needs, FLOOR)


def test_an_author_may_ask_for_more_flash_beside_each_node_than_is_needed() -> None:
    own = rewritten([NODE], [need(size=9 * GIB)], FLOOR)
    assert rewritten(own.resources, [need(size=8 * GIB)], FLOOR) == own


def test_a_single_slot_is_on_a_node_that_others_may_share() -> None:
    """ADR 054: a job that is one task has storage without a node of its own."""
    slot = NODE["with"][0]
    found = rewritten([slot], [need(size=8 * GIB)], FLOOR)
    assert found.resources == [
        {
            "type": "slot",
            "count": 1,
            "label": "rabbit",
            "with": [
                {"type": "node", "count": 1, "exclusive": False, "with": [slot]},
                {"type": "ssd", "count": 8, "exclusive": True},
            ],
        }
    ]
    assert rewritten(found.resources, [need(size=8 * GIB)], FLOOR) == found


def test_a_job_that_needs_no_storage_keeps_its_resources() -> None:
    assert rewritten([NODE], [], FLOOR) == Rewritten([NODE], {})


@pytest.mark.parametrize(
    ("resources", "fault"),
    [
        ([], "the resources must have a single entry at the top"),
        ([NODE, NODE], "the resources must have a single entry at the top"),
        (
            [{**NODE["with"][0], "count": 2}],
            "a job with #DW directives asks for nodes, or for a single slot: say how many with -N",
        ),
    ],
)
def test_a_jobspec_that_flash_cannot_be_put_into_is_the_users_fault(
    resources: Any, fault: str
) -> None:
    with pytest.raises(Fault, match=fault) as raised:
        rewritten(resources, [need()], FLOOR)
    assert raised.value.type == "User"


@given(st.lists(st.integers(1, 2**43), min_size=1, max_size=3), st.integers(1, 50))
def test_the_flash_that_is_asked_for_holds_what_is_needed(sizes: list[int], nodes: int) -> None:
    each = [need(size=size) for size in sizes]
    across = [need("ost", size, "AllocateAcrossServers") for size in sizes]
    assert ssds(each, nodes) * GIB >= sum(sizes)
    assert ssds(across, nodes, 0) * GIB * nodes >= sum(sizes)


# Lustre (dws-spec section 3.1)

LUSTRE = "#DW jobdw type=lustre capacity=10GiB name=big"


def targets(text: str, **lustre: Any) -> list[tuple[str, str, int, dict[str, Any]]]:
    """Return label, strategy, size and constraints of each set, without the label of rabbits."""
    source = {**raw_profile(), "data": {"default": True, "lustreStorage": lustre}}
    found = []
    for each in needed(text, read(source, NnfStorageProfile)):
        asked = msgspec.json.decode(msgspec.json.encode(each.constraints))
        assert asked["labels"][-1] == "dataworkflowservices.github.io/storage=Rabbit"
        asked["labels"] = asked["labels"][:-1]
        some = {name: value for name, value in asked.items() if value}
        found.append((each.label, each.allocation_strategy, each.minimum_capacity, some))
    return found


MGT = {"colocation": [{"type": "exclusive", "key": "lustre-mgt"}]}
EXCLUSIVE = {"colocation": [{"type": "exclusive", "key": ""}]}
OST_SET: Any = ("ost", "AllocateAcrossServers", 10 * GIB, {})


@pytest.mark.parametrize(
    ("lustre", "sets"),
    [
        (
            {},
            [
                OST_SET,
                ("mdt", "AllocateAcrossServers", 5 * GIB, {}),
                ("mgt", "AllocateSingleServer", 5 * GIB, MGT),
            ],
        ),
        (
            # The capacity of both together is that of an MDT.
            {
                "combinedMgtMdt": True,
                "mdtOptions": {"capacity": "7GiB", "count": 3},
                "mgtMdtOptions": {"capacity": "9GiB", "scale": 2, "storageLabels": ["meta"]},
            },
            [
                OST_SET,
                (
                    "mgtmdt",
                    "AllocateAcrossServers",
                    7516192768,
                    {"labels": ["meta"], "scale": 2, **MGT},
                ),
            ],
        ),
        (
            {"combinedMgtMdt": True, "mdtOptions": {"exclusive": True}},
            [OST_SET, ("mgtmdt", "AllocateAcrossServers", 5 * GIB, EXCLUSIVE)],
        ),
        (
            {
                "mgtOptions": {"externalMgs": "10.1.1.1@tcp"},
                "mdtOptions": {"exclusive": True, "count": 2},
                "ostOptions": {"capacityScalingFactor": "1.5", "storageLabels": ["fast"]},
            },
            [
                ("ost", "AllocateAcrossServers", 15 * GIB, {"labels": ["fast"]}),
                ("mdt", "AllocateAcrossServers", 5 * GIB, {"count": 2, **EXCLUSIVE}),
            ],
        ),
        (
            # Past the rules of profiles: the first of the three counts.
            {
                "combinedMgtMdt": True,
                "mgtOptions": {"externalMgs": "a", "standaloneMgtPoolName": "b"},
            },
            [OST_SET, ("mgtmdt", "AllocateAcrossServers", 5 * GIB, MGT)],
        ),
        (
            {"mgtOptions": {"externalMgs": "a", "standaloneMgtPoolName": "b"}},
            [OST_SET, ("mdt", "AllocateAcrossServers", 5 * GIB, {})],
        ),
    ],
)
def test_lustre_needs_a_set_for_each_kind_of_target(
    lustre: dict[str, Any], sets: list[tuple[str, str, int, dict[str, Any]]]
) -> None:
    # 002.7, 002.9, 002.10, 002.15 to 002.18
    assert targets(LUSTRE, **lustre) == sets


def test_an_mgt_alone_is_as_large_as_its_profile_says() -> None:
    alone = {"mgtOptions": {"standaloneMgtPoolName": "pool", "capacity": "1GiB"}}
    create = "#DW create_persistent type=lustre name=mgt"
    assert targets(create, **alone) == [("mgt", "AllocateSingleServer", GIB, MGT)]
    for text, why in (
        (LUSTRE, "^standaloneMgtPoolName option can only be used with 'create_persistent'"),
        (f"{create} capacity=1GiB", "^creating persistent MGT does not accept 'capacity' argument"),
    ):
        with pytest.raises(Fault, match=why):
            targets(text, **alone)


def test_storage_that_is_to_stay_says_how_much() -> None:
    why = "^creating persistent storage requires 'capacity' argument, such as capacity=100GiB$"
    for kind in ("xfs", "lustre"):
        with pytest.raises(Fault, match=why):
            targets(f"#DW create_persistent type={kind} name=kept")


def test_a_target_that_has_no_size_is_the_profiles_mistake() -> None:
    with pytest.raises(Fault, match=r"data\.lustreStorage\.mdtOptions\.capacity: '0GiB'") as fault:
        targets(LUSTRE, mdtOptions={"capacity": "0GiB"})
    assert fault.value.type == "Internal"


def test_what_no_lustre_could_be_is_refused() -> None:
    with pytest.raises(Fault, match="is too large"):
        targets(LUSTRE.replace("10GiB", "8388607TiB"), ostOptions={"capacityScalingFactor": "2"})
