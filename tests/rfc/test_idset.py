"""Sets of small numbers (RFC 22)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import idset
from warren.rfc.errors import BadFormat


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", ()),
        ("[]", ()),
        ("0", (0,)),
        ("[7]", (7,)),
        ("0,3-5", (0, 3, 4, 5)),
        ("[0-1,9]", (0, 1, 9)),
        ("1-2,3-4", (1, 2, 3, 4)),
        ("4294967294", (2**32 - 2,)),
    ],
)
def test_ids_are_read_in_ascending_order(text: str, ids: tuple[int, ...]) -> None:
    assert idset.decode(text) == ids


@pytest.mark.parametrize(
    "text",
    [
        *("01,2", "00", "3,2", "3-0", "2-2", "2,2", "1-3,3", "[0", "0]", "[", "]", "[[0]]"),
        *("0-", "-5", "4.2", "x", "1-2x", "[0,2]]", "1,", ",1", "1,,2", "1 2", " 1", "1-2-3"),
        *("٣", "4294967295", "9" * 5000),
    ],
)
def test_what_the_rfc_forbids_is_refused(text: str) -> None:
    with pytest.raises(BadFormat, match="idset"):
        idset.decode(text)


@pytest.mark.parametrize(
    ("ids", "text", "bracketed"),
    [
        ([], "", ""),
        ([2], "2", "2"),
        ([9, 7, 8], "7-9", "[7-9]"),
        ([0, 2, 2, 3], "0,2-3", "[0,2-3]"),
        ([1, 3], "1,3", "[1,3]"),
    ],
)
def test_ids_are_written_in_the_shortest_form(ids: list[int], text: str, bracketed: str) -> None:
    assert idset.encode(ids) == text
    assert idset.encode(ids, brackets=True) == bracketed


@given(st.sets(st.integers(0, 60) | st.integers(0, 2**32 - 2), max_size=40), st.booleans())
def test_a_set_reads_back(ids: set[int], brackets: bool) -> None:
    assert idset.decode(idset.encode(ids, brackets=brackets)) == tuple(sorted(ids))


@given(st.text("0123456789,-[]", max_size=8))
def test_every_text_is_read_or_refused_and_what_is_read_means_the_same_when_rewritten(
    text: str,
) -> None:
    try:
        ids = idset.decode(text[:6])
    except BadFormat:
        return
    assert idset.decode(idset.encode(ids)) == ids
