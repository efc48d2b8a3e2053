"""Which of a job's rabbits holds which allocation."""

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.placing import AllocationSet, FreeFlash, placement, units_needed


@pytest.mark.parametrize(
    ("wanted", "places", "counts"),
    [
        (AllocationSet(1, 5), [FreeFlash(1, 1, 9), FreeFlash(2, 1, 9)], [0, 1]),
        (AllocationSet(1, 5), [FreeFlash(1, 1, 9), FreeFlash(2, 1, 4)], [1, 0]),
        (AllocationSet(2, 5), [FreeFlash(3, 1, 99), FreeFlash(6, 1, 99)], [1, 1]),
        (AllocationSet(3, 5), [FreeFlash(3, 1, 99), FreeFlash(6, 1, 99)], [1, 2]),
        (AllocationSet(3, 5), [FreeFlash(3, 1, 99), FreeFlash(6, 1, 9)], [2, 1]),
        (AllocationSet(2, 5), [FreeFlash(1, 4, 2), FreeFlash(1, 4, 2)], [1, 1]),
        (AllocationSet(2, 5), [FreeFlash(1, 4, 4)], [2]),
    ],
)
def test_allocations_are_shared_out_and_are_where_most_nodes_are(
    wanted: AllocationSet, places: list[FreeFlash], counts: list[int]
) -> None:
    assert placement([wanted], places) == [counts]


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (AllocationSet(1, 5), []),
        (AllocationSet(1, 5), [FreeFlash(1, 1, 4), FreeFlash(1, 1, 4)]),
        (AllocationSet(2, 5), [FreeFlash(1, 4, 3)]),
        (AllocationSet(1, 1), [FreeFlash(1, 1, -3)]),
    ],
)
def test_what_does_not_fit_is_not_placed(wanted: AllocationSet, places: list[FreeFlash]) -> None:
    assert placement([wanted], places) is None


def test_larger_allocations_are_placed_first() -> None:
    assert placement(
        [AllocationSet(1, 2), AllocationSet(1, 8)], [FreeFlash(2, 1, 8), FreeFlash(1, 1, 3)]
    ) == [
        [0, 1],
        [1, 0],
    ]


wanted_ = st.lists(
    st.builds(AllocationSet, st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=3
)
places_ = st.lists(
    st.builds(FreeFlash, st.integers(1, 4), st.sampled_from([1, 1, 2, 3]), st.integers(-2, 30)),
    min_size=1,
    max_size=4,
)


@given(wanted_, places_)
def test_every_allocation_is_placed_and_no_place_holds_more_than_its_room(
    wanted: list[AllocationSet], places: list[FreeFlash]
) -> None:
    found = placement(wanted, places)
    if found is None:
        return
    assert [sum(counts) for counts in found] == [each.count for each in wanted]
    for place, took in zip(places, taken(wanted, places, found), strict=True):
        assert took <= max(place.units, 0)


@given(wanted_, places_)
def test_who_has_only_what_the_answer_needs_comes_to_the_same_answer(
    wanted: list[AllocationSet], places: list[FreeFlash]
) -> None:
    found = placement(wanted, places)
    if found is None:
        return
    narrow = [
        FreeFlash(place.node_count, place.unit_gib, took)
        for place, took in zip(places, taken(wanted, places, found), strict=True)
    ]
    assert placement(wanted, narrow) == found


@given(st.builds(AllocationSet, st.integers(1, 6), st.integers(1, 9)), places_)
def test_allocations_of_one_size_are_placed_whenever_they_fit(
    wanted: AllocationSet, places: list[FreeFlash]
) -> None:
    room = sum(max(each.units, 0) // units_needed(wanted.gib, each.unit_gib) for each in places)
    assert (placement([wanted], places) is not None) == (room >= wanted.count)


def taken(
    wanted: list[AllocationSet], places: list[FreeFlash], found: list[list[int]]
) -> list[int]:
    """Return the units that are taken of each place."""
    return [
        sum(
            counts[number] * units_needed(each.gib, place.unit_gib)
            for each, counts in zip(wanted, found, strict=True)
        )
        for number, place in enumerate(places)
    ]


# Labels and colocation (seed statements 002.7, 002.15, 002.16)

FAST, SAFE = "tier=fast", "tier=safe"
KEY, OTHER = ("lustre-mgt",), ("",)


def labelled(*labels: str, nodes: int = 1, room: int = 9) -> FreeFlash:
    return FreeFlash(nodes, 1, room, frozenset(labels))


def test_a_rabbit_needs_all_labels_that_are_asked_for() -> None:
    """Statement 002.15: all labels must be there."""
    places = [labelled(FAST, nodes=9), labelled(SAFE, nodes=9), labelled(FAST, SAFE)]
    assert placement([AllocationSet(1, 5, (FAST, SAFE))], places) == [[0, 0, 1]]
    assert placement([AllocationSet(2, 5, (FAST,))], places) == [[1, 0, 1]]
    assert placement([AllocationSet(1, 5, ("tier=cheap",))], places) is None
    assert placement([AllocationSet(3, 5, (FAST,))], places) is None


def test_of_a_rabbit_of_which_nothing_is_known_any_label_may_be_expected() -> None:
    assert placement([AllocationSet(1, 5, (FAST,))], [FreeFlash(1, 1, 9, None)]) == [[1]]


def test_sets_with_one_key_are_on_rabbits_of_their_own() -> None:
    """Statement 002.16: keys are exclusive, each by itself."""
    places = [labelled(nodes=2), labelled(nodes=1)]
    assert placement([AllocationSet(1, 2, (), KEY), AllocationSet(1, 1, (), KEY)], places) == [
        [1, 0],
        [0, 1],
    ]
    assert (
        placement([AllocationSet(1, 2, (), KEY), AllocationSet(1, 1, (), KEY)], places[:1]) is None
    )


def test_so_are_allocations_of_one_set_with_a_key() -> None:
    """Statement 002.16: keys are exclusive, each by itself."""
    assert placement([AllocationSet(2, 1, (), KEY)], [labelled(nodes=9), labelled()]) == [[1, 1]]
    assert placement([AllocationSet(3, 1, (), KEY)], [labelled(nodes=9), labelled()]) is None


def test_other_keys_and_sets_without_a_key_may_be_together() -> None:
    """Statement 002.16: keys are exclusive, each by itself."""
    wanted = [AllocationSet(1, 2, (), KEY), AllocationSet(1, 2, (), OTHER), AllocationSet(1, 2)]
    assert placement(wanted, [labelled()]) == [[1], [1], [1]]


def test_a_choice_that_leads_nowhere_is_taken_back() -> None:
    # The larger one would have the first rabbit, which is the only one for the other.
    places = [labelled(FAST, nodes=2), labelled(nodes=1)]
    assert placement([AllocationSet(1, 5, (), KEY), AllocationSet(1, 2, (FAST,), KEY)], places) == [
        [0, 1],
        [1, 0],
    ]


def test_the_effort_is_bounded_where_nothing_fits() -> None:
    wanted = [AllocationSet(40, 2), AllocationSet(40, 3), AllocationSet(1, 1, (), KEY)]
    places = [FreeFlash(1, 1, 5) for _ in range(40)]
    assert placement(wanted, places) is None


constrained_ = st.lists(
    st.builds(
        AllocationSet,
        st.integers(1, 2),
        st.integers(1, 5),
        st.sampled_from([(), (), (FAST,), (FAST, SAFE)]),
        st.sampled_from([(), (), KEY, OTHER, KEY + OTHER]),
    ),
    min_size=1,
    max_size=3,
)
carrying_ = st.lists(
    st.builds(
        FreeFlash,
        st.integers(1, 3),
        st.sampled_from([1, 1, 2]),
        st.integers(0, 9),
        st.sampled_from(
            [frozenset[str](), frozenset({FAST}), frozenset({FAST, SAFE}), None],
        ),
    ),
    min_size=1,
    max_size=3,
)


@given(constrained_, carrying_)
def test_they_are_placed_exactly_where_some_choice_keeps_every_constraint(
    wanted: list[AllocationSet], places: list[FreeFlash]
) -> None:
    """Statements 002.7, 002.15, 002.16: against all choices there are."""
    found = placement(wanted, places)
    if found is None:
        assert not any(keeps(wanted, places, choice) for choice in choices(wanted, len(places)))
        return
    assert [sum(counts) for counts in found] == [each.count for each in wanted]
    assert keeps(wanted, places, found)
    narrow = [
        FreeFlash(place.node_count, place.unit_gib, took, place.labels)
        for place, took in zip(places, taken(wanted, places, found), strict=True)
    ]
    assert placement(wanted, narrow) == found


def choices(wanted: list[AllocationSet], places: int) -> Iterator[list[list[int]]]:
    """Return every way of putting allocations in places."""
    for made in product(
        *(combinations_with_replacement(range(places), each.count) for each in wanted)
    ):
        yield [[own.count(number) for number in range(places)] for own in made]


def keeps(wanted: list[AllocationSet], places: list[FreeFlash], found: list[list[int]]) -> bool:
    """Return whether a choice keeps every constraint, read as it is written in the seed."""
    if any(
        took > max(place.units, 0)
        for place, took in zip(places, taken(wanted, places, found), strict=True)
    ):
        return False
    for number, place in enumerate(places):
        there = [
            each for each, counts in zip(wanted, found, strict=True) for _ in range(counts[number])
        ]
        for each in there:
            if place.labels is not None and not set(each.labels) <= place.labels:
                return False
        for one, other in combinations(there, 2):
            if set(one.colocation_keys) & set(other.colocation_keys):
                return False
    return True
