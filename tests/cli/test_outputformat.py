"""Output formats: what fields, layouts and prefixes make of values."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from warren.cli.outputformat import EMPTY_TEXTS, Format, Row, fsd, percentage, sort_rows
from warren.rfc.errors import BadFormat

HEADINGS = {"id": "ID", "name": "NAME", "t": "T", "n": "N", "a.b": "A.B"}
MOMENT = 1_790_000_000.0


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks on the wall show UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def row(values: Mapping[str, Any]) -> Row:
    return lambda name: values.get(name, "")


def lines(form: str, *rows: Mapping[str, Any], header: bool = False) -> list[str]:
    return list(Format(form, HEADINGS.get).lines([row(each) for each in rows], header=header))


def test_what_a_terminal_would_obey_is_shown_escaped() -> None:
    values = {"name": "\x1b[2Ja\nb", "id": 5}

    assert lines("{name:<11} {id}", values) == [r"\x1b[2Ja\nb 5"]
    assert lines("{name:.5+}", values) == [r"\x1b+"]


@pytest.mark.parametrize(
    ("form", "values", "line"),
    [
        ("{id}", {"id": 5}, "5"),
        ("<{id:4}>", {"id": 5}, "<   5>"),
        ("<{id:<4}>", {"id": 5}, "<5   >"),
        ("<{id:04}>", {"id": 5}, "<0005>"),
        ("<{id:,}>", {"id": 5000}, "<5,000>"),
        ("<{id:x}>", {"id": 255}, "<ff>"),
        ("<{id:+d}>", {"id": 5}, "<+5>"),
        ("<{id:d}>", {}, "<>"),
        ("<{n:.2f}>", {"n": 1.005}, "<1.00>"),
        ("<{n:8.1f}>", {"n": 2.25}, "<     2.2>"),
        ("<{n:d}>", {"n": 2.5}, "<2.5>"),
        ("<{name:6}>", {"name": "abc"}, "<abc   >"),
        ("<{name:>6}>", {"name": "abc"}, "<   abc>"),
        ("<{name:^6}>", {"name": "abc"}, "< abc  >"),
        ("<{name:*>6}>", {"name": "abc"}, "<***abc>"),
        ("<{name:.2}>", {"name": "abc"}, "<ab>"),
        ("<{name:.2+}>", {"name": "abc"}, "<a+>"),
        ("<{name:.3+}>", {"name": "abc"}, "<abc>"),
        ("<{name:>5.2+}>", {"name": "abc"}, "<   a+>"),
        ("<{name:5h}>", {}, "<-    >"),
        ("<{name:>5h}>", {"name": "x"}, "<    x>"),
        ("<{name:.1h}>", {"name": "xyz"}, "<x>"),
        ("<{n:h}>", {"n": 0}, "<->"),
        ("<{n:h}>", {"n": 0.0}, "<->"),
        ("<{n!F:h}>", {"n": 0.0}, "<->"),
        ("<{n!H:h}>", {"n": 0.0}, "<->"),
        ("<{n!F}>", {"n": 90.0}, "<1.5m>"),
        ("<{n!F:>6}>", {"n": 90}, "<  1.5m>"),
        ("<{n!F}>", {}, "<>"),
        ("<{n!H}>", {"n": 3725.4}, "<1:02:05>"),
        ("<{n!H}>", {"n": 0.2}, "<0:00:01>"),
        ("<{n!P}>", {"n": 0.5}, "<50%>"),
        ("<{t!D}>", {"t": MOMENT}, "<2026-09-21T14:13:20>"),
        ("<{t!D}>", {}, "<>"),
        ("<{t!D}>", {"t": 1e300}, "<1e+300>"),
        ("<{n!H}>", {"n": 1e300}, "<1e+300>"),
        ("<{t!D:h}>", {"t": 0.0}, "<->"),
        ("<{t!d:%H:%M}>", {"t": MOMENT}, "<14:13>"),
        ("<{t!d:%b%d %R::>12}>", {"t": MOMENT}, "< Sep21 14:13>"),
        ("<{t!d:%b%d %R::>12h}>", {}, "<           ->"),
        ("<{t!d}>", {"t": MOMENT}, "<2026-09-21 14:13:20>"),
        ("<{name!r}>", {"name": "a"}, "<'a'>"),
        ("<{name!s:3}>", {"name": "a"}, "<a  >"),
        ("{{{name}}}", {"name": "a"}, "{a}"),
        ("{a.b} {id}", {"a.b": "x", "id": 1}, "x 1"),
        ("{name:<8}", {"name": "a"}, "a"),
        ("<{name}>", {"name": True}, "<True>"),
    ],
)
def test_a_value_is_laid_out(form: str, values: Mapping[str, Any], line: str) -> None:
    assert lines(form, values) == [line]


def test_headings_stand_over_their_columns() -> None:
    table = lines("{id:>4} {name:<6.6} {n!F:>6h}", {"id": 1, "name": "abcdefgh"}, header=True)

    assert table == ["  ID NAME        N", "   1 abcdef      -"]


def test_columns_that_are_empty_in_all_rows_are_left_out() -> None:
    form = "{id} ?:{name:<4} ?:{n!F:>6h} {t}"

    assert lines(form, {"id": 1, "t": 5}, {"id": 2, "t": 6}, header=True) == ["ID T", "1 5", "2 6"]
    assert lines(form, {"id": 1, "t": 5}, {"id": 2, "name": "x"}) == ["1      5", "2 x"]
    assert lines("?:{name:>6} {id}", {"id": 1}) == ["1"]
    assert lines("?:{name}", {}) == [""]


def test_columns_are_widened_to_what_they_hold() -> None:
    form = "+:{name:<3.3}|"

    assert lines(form, {"name": "a"}, {"name": "abcdef"}) == ["a     |", "abcdef|"]
    assert lines(form, {"name": "a"}, header=True) == ["NAME|", "a   |"]
    assert lines("?+:{name:<3}|", {}) == ["|"]
    assert lines("  +:{name:<3}|", {"name": "a"}) == ["  a   |"]
    assert lines("+?:{name:<3}|", {"name": "a"}) == ["a   |"]


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ("{colour}", "there is no field 'colour', at 1"),
        ("{id} {}", "there is no field '', at 6"),
        ("{id:>8", "this '{' is not closed: write '{{' for one, at 0"),
        ("{id} }", "this '}' closes nothing: write '}}' for one, at 5"),
        ("{id!x}", "there is no conversion '!x': they are D, d, F, H, P, r, s, at 3"),
        ("{id!}", "there is no conversion '!': they are D, d, F, H, P, r, s, at 3"),
        ("{id!F>8}", "a layout begins with ':', at 5"),
        ("{id} {name:<<<8}", "'<<<8' is not a layout such as '>8', '<10.10+' or '>6h', at 11"),
        ("{name:+8+}", "the '+' in '+8+' follows no length such as '.10', at 6"),
        ("{name:.0+}", "the '+' in '.0+' follows no length such as '.10', at 6"),
        ("{t!d:%H::>>>}", "'>>>' is not a layout such as '>8', '<10.10+' or '>6h', at 9"),
        ("{id:99999}", "'99999' is not a layout such as '>8', '<10.10+' or '>6h', at 4"),
        ("no field", "there is no field in braces, at 0"),
        ("", "there is no field in braces, at 0"),
    ],
)
def test_a_mistake_is_told_with_its_place(form: str, told: str) -> None:
    with pytest.raises(BadFormat) as caught:
        Format(form, HEADINGS.get)

    assert str(caught.value) == f"format {form!r}: {told}"


def test_the_fields_of_a_format_and_of_its_order_are_known() -> None:
    form = Format("sort:-t,id  {name} {a.b}", HEADINGS.get)

    assert form.fields == ["name", "a.b", "t", "id"]
    assert form.sort_keys == ("-t", "id")
    assert list(form.lines([], header=True)) == ["NAME A.B"]
    with pytest.raises(BadFormat, match="there is no field 'colour' to sort by"):
        Format("sort:colour {id}", HEADINGS.get)


def test_rows_are_sorted_by_several_fields_and_empty_ones_come_first() -> None:
    values: Sequence[dict[str, Any]] = [
        {"id": 1, "name": "b", "n": 1},
        {"id": 2, "name": "a"},
        {"id": 3, "name": "b"},
        {"id": 4, "name": "a", "n": 10},
        {"id": 5, "name": "a", "n": 9},
    ]
    rows = [row(each) for each in values]

    assert [each("id") for each in sort_rows(rows, ["name", "n"])] == [2, 5, 4, 3, 1]
    assert [each("id") for each in sort_rows(rows, ["-name", "-n"])] == [1, 3, 4, 5, 2]
    assert sort_rows(rows, []) == rows


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.0004, "0s"),
        (0.25, "0.250s"),
        (2.0, "2s"),
        (2.1234, "2.123s"),
        (59.94, "59.94s"),
        (90, "1.5m"),
        (3599, "59.98m"),
        (3600, "1h"),
        (86400 * 1.5, "1.5d"),
        (86400 * 123456.0, "1.235e+05d"),
    ],
)
def test_durations_have_few_digits(seconds: float, text: str) -> None:
    assert fsd(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "50%"), (1.0, "100%"), (0.015, "1.5%"), (0.0005, "0.05%"), (0, "0%"), (0.02, "2%")],
)
def test_shares_fit_into_five_characters(value: float, text: str) -> None:
    assert percentage(value) == text


VALUES = st.one_of(
    st.text("ab c%-ƒ", max_size=12), st.integers(-1000, 10**6), st.floats(0, 1e9), st.booleans()
)
LAYOUTS = st.builds(
    lambda align, width, precision, cut, hyphen: f"{align}{width}{precision}{cut}{hyphen}",
    st.sampled_from(["", "<", ">", "^", "*<", "x>"]),
    st.sampled_from(["", "1", "7", "12"]),
    st.sampled_from([".3", ".9"]),
    st.sampled_from(["", "+"]),
    st.sampled_from(["", "h"]),
)


@given(LAYOUTS, VALUES)
def test_a_cell_has_the_width_it_was_given_and_at_most_the_length(layout: str, value: Any) -> None:
    (line,) = lines(f"[{{name:{layout}}}]", {"name": value})
    cell = line[1:-1]
    width = next((int(part) for part in ("12", "7", "1") if part in layout.partition(".")[0]), 0)

    assert len(cell) >= width
    assert len(cell) <= max(width, 9 if ".9" in layout else 3)
    if "h" in layout and str(value) in EMPTY_TEXTS:
        assert "-" in cell


@given(st.text("{}:!?+<>.0h8 idnameFDs", max_size=20))
@example("{id:{name}}")
@example("{id!")
def test_any_text_is_a_format_or_is_refused_with_a_place(text: str) -> None:
    told, found = "", []
    try:
        found = list(Format(text, HEADINGS.get).lines([row({"id": 5, "name": "a"}), row({})]))
    except BadFormat as error:
        told = str(error)
    assert len(found) == 3 or ", at " in told or "to sort by" in told


@given(
    st.sampled_from(["<", ">", "^", ""]),
    st.integers(0, 30),
    st.one_of(st.none(), st.integers(1, 20)),
    st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=30),
)
def test_text_is_laid_out_as_python_does(
    align: str, width: int, precision: int | None, text: str
) -> None:
    layout = f"{align}{width or ''}{'' if precision is None else f'.{precision}'}"

    assert lines(f"[{{name:{layout}}}]", {"name": text}) == [f"[{text:{layout}}]"]
    assert os.environ["TZ"] == "UTC"
