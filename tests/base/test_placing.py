"""Which of a job's rabbits holds which allocation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.placing import Place, Shared, placed, units


@pytest.mark.parametrize(
    ("wanted", "places", "counts"),
    [
        (Shared(1, 5), [Place(1, 1, 9), Place(2, 1, 9)], [0, 1]),
        (Shared(1, 5), [Place(1, 1, 9), Place(2, 1, 4)], [1, 0]),
        (Shared(2, 5), [Place(3, 1, 99), Place(6, 1, 99)], [1, 1]),
        (Shared(3, 5), [Place(3, 1, 99), Place(6, 1, 99)], [1, 2]),
        (Shared(3, 5), [Place(3, 1, 99), Place(6, 1, 9)], [2, 1]),
        (Shared(2, 5), [Place(1, 4, 2), Place(1, 4, 2)], [1, 1]),
        (Shared(2, 5), [Place(1, 4, 4)], [2]),
    ],
)
def test_allocations_are_shared_out_and_are_where_most_nodes_are(
    wanted: Shared, places: list[Place], counts: list[int]
) -> None:
    assert placed([wanted], places) == [counts]


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        (Shared(1, 5), []),
        (Shared(1, 5), [Place(1, 1, 4), Place(1, 1, 4)]),
        (Shared(2, 5), [Place(1, 4, 3)]),
        (Shared(1, 1), [Place(1, 1, -3)]),
    ],
)
def test_what_does_not_fit_is_not_placed(wanted: Shared, places: list[Place]) -> None:
    assert placed([wanted], places) is None


def test_larger_allocations_are_placed_first() -> None:
    assert placed([Shared(1, 2), Shared(1, 8)], [Place(2, 1, 8), Place(1, 1, 3)]) == [
        [0, 1],
        [1, 0],
    ]


wanted_ = st.lists(st.builds(Shared, st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=3)
places_ = st.lists(
    st.builds(Place, st.integers(1, 4), st.sampled_from([1, 1, 2, 3]), st.integers(-2, 30)),
    min_size=1,
    max_size=4,
)


@given(wanted_, places_)
def test_every_allocation_is_placed_and_no_place_holds_more_than_its_room(
    wanted: list[Shared], places: list[Place]
) -> None:
    found = placed(wanted, places)
    if found is None:
        return
    assert [sum(counts) for counts in found] == [each.count for each in wanted]
    for place, took in zip(places, taken(wanted, places, found), strict=True):
        assert took <= max(place.room, 0)


@given(wanted_, places_)
def test_who_has_only_what_the_answer_needs_comes_to_the_same_answer(
    wanted: list[Shared], places: list[Place]
) -> None:
    found = placed(wanted, places)
    if found is None:
        return
    narrow = [
        Place(place.nodes, place.unit, took)
        for place, took in zip(places, taken(wanted, places, found), strict=True)
    ]
    assert placed(wanted, narrow) == found


@given(st.builds(Shared, st.integers(1, 6), st.integers(1, 9)), places_)
def test_allocations_of_one_size_are_placed_whenever_they_fit(
    wanted: Shared, places: list[Place]
) -> None:
    room = sum(max(each.room, 0) // units(wanted.gib, each.unit) for each in places)
    assert (placed([wanted], places) is not None) == (room >= wanted.count)


def taken(wanted: list[Shared], places: list[Place], found: list[list[int]]) -> list[int]:
    """Return the units that are taken of each place."""
    return [
        sum(
            counts[number] * units(each.gib, place.unit)
            for each, counts in zip(wanted, found, strict=True)
        )
        for number, place in enumerate(places)
    ]
