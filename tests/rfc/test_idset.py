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
    ("text", "mistake"),
    [
        ("1,,2", "idset '1,,2': a number is missing at 2"),
        ("[1,x]", "idset '[1,x]': 'x' at 3 is neither a number nor a range"),
        ("1,02", "idset '1,02': '02' at 2 is neither a number nor a range"),
        ("10-20,15", "idset '10-20,15': 15 at 6 does not ascend"),
        ("0,3-2", "idset '0,3-2': the range '3-2' at 2 does not ascend"),
        ("7,4294967295", "idset '7,4294967295': 4294967295 at 2 is larger than 4294967294"),
        ("0-4294967294", "idset '0-4294967294': it holds more than 1048576 ids"),
    ],
)
def test_a_refusal_names_the_place_of_the_mistake(text: str, mistake: str) -> None:
    with pytest.raises(BadFormat) as refused:
        idset.decode(text)
    assert str(refused.value) == mistake


@pytest.mark.parametrize("text", ["0-3", "0,1,2,3", "0,2-4", "7-4294967294", "0-1,3-4", "0-2,4"])
def test_no_more_ids_than_the_limit_are_read(text: str) -> None:
    with pytest.raises(BadFormat, match="it holds more than 3 ids"):
        idset.decode(text, limit=3)


@pytest.mark.parametrize("text", ["0-2", "0,1,2", "0,2-3", "0-1,3", "4294967292-4294967294"])
def test_as_many_ids_as_the_limit_are_read(text: str) -> None:
    assert len(idset.decode(text, limit=3)) == 3


@pytest.mark.parametrize("number", [-1, 2**32 - 1])
def test_what_is_no_id_is_not_written(number: int) -> None:
    with pytest.raises(BadFormat, match="is in no idset"):
        idset.encode([0, number])


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


@given(st.text("0123456789,-[]", max_size=30) | st.text())
def test_every_text_is_read_or_refused_and_what_is_read_means_the_same_when_rewritten(
    text: str,
) -> None:
    try:
        ids = idset.decode(text, limit=10_000)
    except BadFormat as refused:
        said = str(refused)
    else:
        assert list(ids) == sorted(set(ids))
        assert idset.decode(idset.encode(ids)) == ids
        said = ""
    assert len(said) < 200
