"""What a directive needs of storage, made by a profile."""

from typing import Any

import msgspec
import pytest

from tests.dws.builders import JOBDW, needed, profile, raw_profile
from warren.base.bytesize import GIB
from warren.dws.faults import Fault
from warren.dws.objects.decoding import read
from warren.dws.objects.storageprofiles import NnfStorageProfile


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
