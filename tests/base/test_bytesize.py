"""Sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.bytesize import GIB, KIB, MIB, TIB, from_human, human, whole_gib


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (17, "17 B"),
        (1023, "1023 B"),
        (KIB, "1.00 KiB"),
        (3 * GIB // 2, "1.50 GiB"),
        (25 * MIB // 2, "12.5 MiB"),
        (300 * MIB, "300 MiB"),
        (TIB, "1.00 TiB"),
        (2**50, "1.00 PiB"),
        (5000 * 2**50, "5000 PiB"),
    ],
)
def test_a_size_is_written_in_binary_units_and_three_digits(size: int, text: str) -> None:
    assert human(size) == text


@pytest.mark.parametrize(
    ("size", "gib"), [(0, 0), (1, 1), (GIB, 1), (GIB + 1, 2), (1388314624, 2), (10 * GIB, 10)]
)
def test_whole_gib_rounds_up(size: int, gib: int) -> None:
    assert whole_gib(size) == gib


@given(st.integers(0, 2**60))
def test_a_size_read_back_is_as_near_as_it_was_written(size: int) -> None:
    assert abs(from_human(human(size)) - size) <= max(size * 0.006, 0)


@pytest.mark.parametrize("text", ["", "12", "GiB", "1 GB", "1GiB", "one KiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_human(text)
