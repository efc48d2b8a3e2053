"""Sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.bytesize import GIB, KIB, MIB, TIB, format_bytes, format_gib, from_human, whole_gib


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
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("size", "gib"), [(0, 0), (1, 1), (GIB, 1), (GIB + 1, 2), (1388314624, 2), (10 * GIB, 10)]
)
def test_whole_gib_rounds_up(size: int, gib: int) -> None:
    assert whole_gib(size) == gib


@given(st.integers(0, 2**60))
def test_a_size_read_back_is_as_near_as_it_was_written(size: int) -> None:
    assert abs(from_human(format_bytes(size)) - size) <= max(size * 0.006, 0)


SIZES = ["inf TiB", "-inf B", "nan KiB", "1e400 B", "-1 GiB", "1_0 B", "٣ B", "1 B\n", "+1 B"]


@pytest.mark.parametrize(
    "text", ["", "12", "GiB", "1 GB", "1GiB", "one KiB", f"{'9' * 400} PiB", *SIZES]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_human(text)


@given(
    st.text()
    | st.builds(
        "{} {}".format,
        st.floats().map(str) | st.integers().map(str) | st.text() | st.from_regex(r"\d{1,400}"),
        st.sampled_from(["B", "KiB", "MiB", "GiB", "TiB", "PiB"]),
    )
)
def test_any_text_is_a_size_or_refused(text: str) -> None:
    try:
        size = from_human(text)
    except ValueError:
        return
    assert size >= 0


@pytest.mark.parametrize(
    ("size", "up", "down"),
    [
        (0, "0 GiB", "0 GiB"),
        (144, "144 GiB", "144 GiB"),
        (10239, "10239 GiB", "10239 GiB"),
        (10240, "10 TiB", "10 TiB"),
        (102400, "100 TiB", "100 TiB"),
        (102401, "100.1 TiB", "100 TiB"),
        (15462, "15.1 TiB", "15 TiB"),
    ],
)
def test_many_gib_are_told_in_tib_and_the_more_is_the_more(size: int, up: str, down: str) -> None:
    assert (format_gib(size, up=True), format_gib(size, up=False)) == (up, down)
