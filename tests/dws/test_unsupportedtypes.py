"""What rabbits do not make: told by their agents, believed by Proposal (ADR 090)."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import meta, rabbit
from tests.dws.test_storage import node, settle, written
from warren.base.objects import Object
from warren.dws import kinds, labels
from warren.dws.node import FILE_SYSTEM_TYPES, FLASH_TYPES
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import NnfNode, Storage
from warren.dws.rabbits import rabbitstorages

REASONS = st.dictionaries(st.sampled_from(FILE_SYSTEM_TYPES), st.text(string.printable, min_size=1))


def storage(name: str, said: str | None) -> Object:
    annotations = {} if said is None else {labels.UNSUPPORTED_TYPES: said}
    return {
        "kind": kinds.STORAGE.name,
        "metadata": meta(name) | {"annotations": annotations},
    }


def seen(name: str, said: str | None) -> Storage:
    return read(storage(name, said), Storage)


def telling(name: str, said: str) -> NnfNode:
    made = {"metadata": meta("nnf-nlc", name) | {"annotations": {labels.UNSUPPORTED_TYPES: said}}}
    return read({**made, "status": {"status": "Ready", "capacity": 5}}, NnfNode)


@given(REASONS)
def test_what_an_agent_says_is_read_as_it_was_meant(lacks: dict[str, str]) -> None:
    said = rabbitstorages.encode_unsupported_types(lacks)

    assert rabbitstorages.unsupported_types(seen("r0", said).metadata) == lacks
    assert set(rabbitstorages.supported_types_of(storage("r0", said))) == set(
        FILE_SYSTEM_TYPES
    ) - set(lacks)


@given(st.lists(REASONS, min_size=1, max_size=4), st.sampled_from(FILE_SYSTEM_TYPES))
def test_a_type_is_refused_where_no_rabbit_makes_it_and_nowhere_else(
    lacking: list[dict[str, str]], kind: str
) -> None:
    """The index by which jobs are let in, and the reason by which they are not, agree."""
    said = [rabbitstorages.encode_unsupported_types(each) for each in lacking]
    indexed = any(kind in rabbitstorages.supported_types_of(storage("r0", each)) for each in said)
    why = rabbitstorages.why_not_made(kind, [seen(f"r{n}", each) for n, each in enumerate(said)])

    assert (why is None) is indexed


@pytest.mark.parametrize("said", [None, "", "[1]", '{"xfs": 5}', "{"])
def test_a_rabbit_that_says_nothing_that_can_be_read_makes_all_but_lustre(said: str | None) -> None:
    assert rabbitstorages.supported_types_of(storage("r0", said)) == FLASH_TYPES


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["r0"], "no kernel on r0"),
        (["r1", "r0"], "no kernel on r0 and r1"),
        (["r2", "r1", "r0"], "no kernel on r0, r1 and r2"),
        ([f"r{n}" for n in range(5)], "no kernel on r0, r1, r2 and 2 more"),
    ],
)
def test_a_reason_names_some_of_the_rabbits(names: list[str], told: str) -> None:
    said = rabbitstorages.encode_unsupported_types({"gfs2": "no kernel"})
    assert rabbitstorages.why_not_made("gfs2", [seen(name, said) for name in names]) == told


def test_each_reason_has_its_rabbits() -> None:
    found = [
        seen("r0", rabbitstorages.encode_unsupported_types({"xfs": "no mkfs"})),
        seen("r1", rabbitstorages.encode_unsupported_types({"xfs": "no kernel"})),
    ]
    assert rabbitstorages.why_not_made("xfs", found) == "no mkfs on r0; no kernel on r1"


def test_without_rabbits_nothing_is_refused_but_what_one_has_to_say() -> None:
    assert [kind for kind in FILE_SYSTEM_TYPES if rabbitstorages.why_not_made(kind, [])] == [
        "lustre"
    ]


def test_a_storage_says_what_its_rabbit_says_and_takes_it_back() -> None:
    telling_it = telling("r0", '{"xfs":"no mkfs"}')
    found = settle(rabbit("r0"), telling_it)
    assert found.metadata.annotations[labels.UNSUPPORTED_TYPES] == '{"xfs":"no mkfs"}'
    assert written(found, telling_it) == []

    again = settle(found, node("r0", status="Ready", capacity=5))
    assert labels.UNSUPPORTED_TYPES not in again.metadata.annotations


def test_a_storage_carries_what_its_rabbit_makes_for_sets_to_ask_for() -> None:
    telling_it = telling("r0", '{"gfs2":"no kernel","lustre":"no mkfs"}')
    found = settle(rabbit("r0"), telling_it)
    made = {key: each for key, each in found.metadata.labels.items() if "makes-" in key}
    assert made == {f"warren.cluster/makes-{kind}": "true" for kind in FILE_SYSTEM_TYPES
                    if kind not in ("gfs2", "lustre")}  # fmt: skip
    assert rabbitstorages.supported_type_label("xfs") in rabbitstorages.placement_labels(found)

    again = settle(found, telling("r0", '{"xfs":"no mkfs","lustre":"no mkfs"}'))
    assert rabbitstorages.supported_type_label("xfs") not in rabbitstorages.placement_labels(again)
    assert rabbitstorages.supported_type_label("gfs2") in rabbitstorages.placement_labels(again)

    silent = settle(again, node("r0", status="Ready", capacity=5))
    assert not any("makes-" in each for each in silent.metadata.labels)


@given(REASONS, st.sampled_from(FILE_SYSTEM_TYPES))
def test_a_rabbit_either_makes_a_type_or_lacks_it(lacks: dict[str, str], kind: str) -> None:
    obj = storage("r0", rabbitstorages.encode_unsupported_types(lacks))
    assert (kind in rabbitstorages.supported_types_of(obj)) is not (
        kind in rabbitstorages.unsupported_types_of(obj)
    )
