"""Where volumes are on a rabbit's disk: never in each other's way, and remembered."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.dws.node import NodeTrouble, Volume
from warren.node.extents import UNIT, DiskSize, Extent, Extents, find_free

UNITS = 24
"""How large the disks are that properties are tried on."""

IMAGE = DiskSize(capacity=UNITS * UNIT)
DEVICE = DiskSize(capacity=UNITS * UNIT, address_limit=UNITS * UNIT)
SMALL_SHARE = DiskSize(capacity=UNITS * UNIT // 2, address_limit=UNITS * UNIT)
ODD = DiskSize(capacity=UNITS * UNIT + UNIT // 2, address_limit=UNITS * UNIT + 512)

SPACES = st.sampled_from([IMAGE, DEVICE, SMALL_SHARE, ODD])
SIZES = st.one_of(
    st.integers(1, UNITS + 1).map(lambda units: units * UNIT), st.integers(1, UNITS * UNIT)
)
ACTIONS = st.lists(st.one_of(SIZES, st.integers(-8, -1)), max_size=30)
"""Sizes that are taken; and, below zero, which of those that are taken is freed."""

PIECES = [8 * UNIT, 8 * UNIT, 8 * UNIT, -1, -2]
"""What leaves two thirds free, on both sides of what is taken."""


def extent(offset: int, size: int) -> Extent:
    return Extent(offset=offset, size=size, file_system="xfs", userid=0, groupid=0)


def after(actions: Sequence[int], space: DiskSize) -> list[Extent]:
    """What is taken when all that was done which could be done."""
    taken: list[Extent] = []
    for action in actions:
        if action < 0:
            del taken[action : action + 1 or None]
        elif found := find_free(taken, space, action):
            taken.append(extent(*found))
    return taken


def whole(size: int) -> int:
    return -(-size // UNIT) * UNIT


def fits(taken: Sequence[Extent], space: DiskSize, size: int) -> bool:
    """Try every place that there is."""
    assert space.address_limit is not None
    return any(
        offset + whole(size) <= space.address_limit
        and all(offset + whole(size) <= each.offset or each.end <= offset for each in taken)
        for offset in range(0, space.address_limit, UNIT)
    )


@given(ACTIONS, SPACES)
def test_no_two_extents_overlap(actions: Sequence[int], space: DiskSize) -> None:
    by_offset = sorted(after(actions, space), key=lambda each: each.offset)

    for before, behind in pairwise(by_offset):
        assert before.end <= behind.offset


@given(ACTIONS, SPACES)
def test_there_is_never_more_taken_than_there_is(actions: Sequence[int], space: DiskSize) -> None:
    taken = after(actions, space)

    assert sum(each.size for each in taken) <= space.capacity
    if space.address_limit is not None:
        assert all(each.end <= space.address_limit for each in taken)


@given(ACTIONS, SPACES, SIZES)
def test_an_extent_is_a_little_larger_than_asked_and_begins_at_a_whole_unit(
    actions: Sequence[int], space: DiskSize, size: int
) -> None:
    found = find_free(after(actions, space), space, size)

    if found is not None:
        offset, given = found
        assert offset >= 0
        assert offset % UNIT == given % UNIT == 0
        assert size <= given < size + UNIT


@given(ACTIONS, SIZES)
@example(PIECES, 16 * UNIT)
def test_an_image_with_room_never_refuses(actions: Sequence[int], size: int) -> None:
    taken = after(actions, IMAGE)
    has_room = sum(each.size for each in taken) + whole(size) <= IMAGE.capacity

    assert (find_free(taken, IMAGE, size) is not None) == has_room


@given(ACTIONS, st.sampled_from([DEVICE, SMALL_SHARE, ODD]), SIZES)
@example(PIECES, DEVICE, 16 * UNIT)
def test_a_device_refuses_only_what_is_nowhere_to_be_had(
    actions: Sequence[int], space: DiskSize, size: int
) -> None:
    taken = after(actions, space)
    has_room = sum(each.size for each in taken) + whole(size) <= space.capacity

    assert (find_free(taken, space, size) is not None) == (has_room and fits(taken, space, size))


@given(ACTIONS)
@example([UNITS * UNIT, -1] * 15)
def test_an_image_does_not_grow_for_ever(actions: Sequence[int]) -> None:
    # What is in pieces is the capacity, times the logarithm of the units at the most [Robson].
    for each in after(actions, IMAGE):
        assert each.end <= 6 * IMAGE.capacity


# Records


def volume(name: str = "a", units: int = 1) -> Volume:
    return Volume(
        rabbit="rabbit1", name=name, size=units * UNIT, file_system="xfs", userid=7, groupid=8
    )


def test_no_rabbit_has_extents_before_the_first_is_taken(tmp_path: Path) -> None:
    assert Extents(tmp_path / "none").all() == {}
    assert Extents(tmp_path / "none").get("a") is None


def test_what_was_taken_is_found_again_by_another_process(tmp_path: Path) -> None:
    a = Extents(tmp_path).allocate(volume("a", 3), IMAGE)
    b = Extents(tmp_path).allocate(volume("b.c", 2), IMAGE)
    Extents(tmp_path).set_formatted("b.c")

    found = Extents(tmp_path).all()
    assert set(found) == {"a", "b.c"}
    assert found["a"] == a == Extents(tmp_path).get("a")
    assert (a.offset, a.size, a.userid, a.groupid, a.file_system) == (0, 3 * UNIT, 7, 8, "xfs")
    assert not a.formatted
    assert (found["b.c"].offset, found["b.c"].size) == (b.offset, b.size) == (3 * UNIT, 2 * UNIT)
    assert found["b.c"].formatted


def test_who_has_an_extent_keeps_it_even_when_there_is_no_room_for_more(tmp_path: Path) -> None:
    extents = Extents(tmp_path)
    first = extents.allocate(volume("a", UNITS), IMAGE)

    assert extents.allocate(volume("a", UNITS), IMAGE) == first


def test_what_is_freed_can_be_taken_by_the_next(tmp_path: Path) -> None:
    extents = Extents(tmp_path)
    first = extents.allocate(volume("a", UNITS), IMAGE)
    extents.remove("a")
    extents.remove("a")

    assert extents.all() == {}
    assert extents.allocate(volume("b", UNITS), IMAGE) == first


def test_more_than_there_is_is_refused_for_good(tmp_path: Path) -> None:
    extents = Extents(tmp_path)
    extents.allocate(volume("a", UNITS - 1), DEVICE)

    with pytest.raises(NodeTrouble, match=f"rabbit1 has {UNIT} bytes of flash left") as caught:
        extents.allocate(volume("b", 2), DEVICE)

    assert caught.value.fatal
    assert set(extents.all()) == {"a"}


def test_what_is_free_in_pieces_is_refused_until_others_have_gone(tmp_path: Path) -> None:
    extents = Extents(tmp_path)
    for name in "abc":
        extents.allocate(volume(name, UNITS // 3), DEVICE)
    extents.remove("a")
    extents.remove("c")

    with pytest.raises(NodeTrouble, match="bytes of flash in one piece") as caught:
        extents.allocate(volume("d", UNITS // 2), DEVICE)

    assert not caught.value.fatal
    extents.remove("b")
    assert extents.allocate(volume("d", UNITS // 2), DEVICE).offset == 0


def test_a_record_that_was_being_written_is_none(tmp_path: Path) -> None:
    (tmp_path / ".a.new").write_text("{")

    assert Extents(tmp_path).all() == {}
    assert Extents(tmp_path).allocate(volume(), IMAGE).offset == 0


def test_of_a_volume_that_was_released_nothing_says_that_it_was_made(tmp_path: Path) -> None:
    extents = Extents(tmp_path)
    extents.allocate(volume(), IMAGE)
    extents.remove("a")
    extents.set_formatted("a")

    assert extents.all() == {}
    assert not extents.allocate(volume(), IMAGE).formatted


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/etc/passwd", "../a"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    extents = Extents(tmp_path / "records")

    actions: tuple[Callable[[], object], ...] = (
        lambda: extents.allocate(volume(name), IMAGE),
        lambda: extents.get(name),
        lambda: extents.set_formatted(name),
        lambda: extents.remove(name),
    )
    for action in actions:
        with pytest.raises(NodeTrouble, match="is no name of a volume") as caught:
            action()
        assert caught.value.fatal
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize("text", [b"", b'{"offset": 0', b"\xff", b"[]"])
def test_a_record_that_cannot_be_read_is_told_by_its_path(tmp_path: Path, text: bytes) -> None:
    extents = Extents(tmp_path)
    extents.allocate(volume("a"), IMAGE)
    record = tmp_path / "a.json"
    record.write_bytes(text)

    with pytest.raises(NodeTrouble, match=f"^{record} does not say where") as caught:
        extents.allocate(volume("b"), IMAGE)
    assert not caught.value.fatal, "an admin may repair it"

    extents.remove("a")
    assert extents.allocate(volume("b"), IMAGE).offset == 0
