"""Output formats of listings, spelled as `flux jobs -o` spells them.

A format is text with fields in braces: `{id.f58:>12} ?:{queue:<8.8} {runtime!F:>8h}`. A
field is a name, a conversion after `!`, and a layout after `:`, as Python has them, with
what Flux adds to both:

    !D !d !F !H !P    a moment as ISO 8601 or by strftime, a duration as FSD or h:mm:ss, a share
    h                 at the end of a layout: a hyphen for what is empty
    .10+              cut off after 10 characters, with a `+` in the last place
    ?: +: ?+:         before a field: leave it out if it is empty in all rows; widen it to fit
    sort:NAME,-NAME   before everything: the fields to sort by, downwards after a `-`
"""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from reprlib import repr as brief
from typing import Any, Final, NoReturn

import msgspec
from msgspec.structs import replace

from warren.base.printable import printable
from warren.rfc.errors import BadFormat

Row = Callable[[str], Any]
"""A row: called with the name of a field it returns the value, "" where there is none."""

EMPTY_TEXTS: Final = ("", "-", "0", "0s", "0.0", "0:00:00", "1970-01-01T00:00:00")
"""What is as good as nothing, as text."""

_LAYOUT_PATTERN: Final = re.compile(
    r"(?:(?P<fill>[^{}])?(?P<align>[<>=^]))?(?P<sign>[ +-])?(?P<zero>0)?(?P<width>[0-9]{1,4})?"
    r"(?P<comma>,)?(?:\.(?P<precision>[0-9]{1,4}))?(?P<cut>\+)?(?P<kind>[bcdeEfFgGnosxX%])?"
    r"(?P<hyphen>h)?"
)
_SORT_PATTERN: Final = re.compile(r"sort:(\S*)\s*")
_PREFIX_PATTERN: Final = re.compile(r"(\?\+|\+\?|\?|\+):$")
_CONVERSIONS: Final = "DdFHPrs"


class _Column(msgspec.Struct, frozen=True, kw_only=True):
    """One field, with the text before it."""

    text_before: str
    name: str
    heading: str
    conversion: str = ""
    omit_if_empty: bool = False
    widen_to_fit: bool = False
    fill: str = ""
    align: str = ""
    sign: str = ""
    width: int = 0
    precision: int | None = None
    mark_truncation: bool = False
    kind: str = ""
    """The type of Python's layouts, of numbers or of text."""
    hyphen_if_empty: bool = False
    strftime: str = ""

    def text(self, value: Any) -> str:
        """Write a value, neither cut nor padded."""
        converted = self._convert(value)
        text = printable(converted if isinstance(converted, str) else self._number(converted))
        return "-" if self.hyphen_if_empty and text in EMPTY_TEXTS else text

    def lay_out(self, text: str, align: str = "<") -> str:
        """Cut a text to the precision, and pad it to the width of its column."""
        if self.precision is not None and self.kind in ("", "s") and len(text) > self.precision:
            text = text[: self.precision]
            if self.mark_truncation:
                text = text[:-1] + "+"
        align = self.align or align
        padding = self.width - len(text)
        if padding <= 0:
            return text
        fill = self.fill or " "
        if align == "^":
            return fill * (padding // 2) + text + fill * (padding - padding // 2)
        return text + fill * padding if align == "<" else fill * padding + text

    def cell(self, value: Any) -> str:
        """Write a value as it stands in its column; numbers are to the right, as Python has it."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        is_right_aligned = is_number and not self.conversion and not self.hyphen_if_empty
        return self.lay_out(self.text(value), ">" if is_right_aligned else "<")

    def _convert(self, value: Any) -> Any:
        if self.conversion in ("", "s", "r"):
            return repr(value) if self.conversion == "r" else value
        if not isinstance(value, int | float):
            return str(value)
        try:
            return self._convert_number(value)
        except (ValueError, OverflowError, OSError):  # no clock and no calendar goes so far
            return str(value)

    def _convert_number(self, value: float) -> Any:
        match self.conversion:
            case "D":
                return _local(value).strftime("%Y-%m-%dT%H:%M:%S") if value else ""
            case "d":
                return _local(value).strftime(self.strftime or "%Y-%m-%d %H:%M:%S") if value else ""
            case "F":
                return fsd(value)
            case "H":
                return str(timedelta(seconds=1 if 0 < value < 1 else round(value)))
            case _:
                return percentage(value)

    def _number(self, value: Any) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return str(value)
        if self.kind in ("", "s", "c"):
            return f"{value:{self.sign}}" if self.sign else str(value)
        digits = "" if self.precision is None else f".{self.precision}"
        try:
            return format(value, f"{self.sign}{digits}{self.kind}")
        except (ValueError, OverflowError):
            return str(value)


class Format:
    """A format, read once. `heading` gives a field's heading, or None for what is no field."""

    def __init__(self, text: str, heading: Callable[[str], str | None]) -> None:
        """Read a format. Raises BadFormat with the place of the mistake."""
        self._text = text
        self._heading = heading
        start = 0
        self.sort_keys: tuple[str, ...] = ()
        """The fields to sort by, downwards after a `-`."""
        sort = _SORT_PATTERN.match(text)
        if sort is not None:
            self.sort_keys = self.parse_sort_keys(sort[1])
            start = sort.end()
        self._columns: list[_Column] = []
        self._text_after = self._read(start)
        if not self._columns:
            self._refuse(start, "there is no field in braces")

    @property
    def fields(self) -> list[str]:
        """The names of all fields that are written, or sorted by."""
        return [
            *(column.name for column in self._columns),
            *(key.lstrip("-") for key in self.sort_keys),
        ]

    def parse_sort_keys(self, keys: str) -> tuple[str, ...]:
        """Read the names of fields to sort by. Raises BadFormat for one of none."""
        sort_keys = tuple(key.strip() for key in keys.split(","))
        for key in sort_keys:
            if self._heading(key.removeprefix("-")) is None:
                raise BadFormat(f"there is no field {key.removeprefix('-')!r} to sort by")
        return sort_keys

    def lines(self, rows: Sequence[Row], *, header: bool = True) -> Iterator[str]:
        """Write rows, after their headings."""
        columns = self._fitted_columns(rows)
        if header:
            yield self._line(columns, [each.lay_out(each.heading) for each in columns])
        for row in rows:
            yield self._line(columns, [each.cell(row(each.name)) for each in columns])

    def _line(self, columns: Sequence[_Column], cells: Sequence[str]) -> str:
        pieces = [piece for column, cell in zip(columns, cells, strict=True)
                  for piece in (column.text_before, cell)]  # fmt: skip
        return "".join([*pieces, self._text_after]).rstrip()

    def _fitted_columns(self, rows: Sequence[Row]) -> list[_Column]:
        """Leave out columns that are empty, and widen those that are to be."""
        fitted: list[_Column] = []
        for position, column in enumerate(self._columns):
            if column.omit_if_empty or column.widen_to_fit:
                texts = [column.text(row(column.name)) for row in rows]
                if column.omit_if_empty and all(text in EMPTY_TEXTS for text in texts):
                    continue
                if column.widen_to_fit:
                    widest = max(map(len, texts), default=0)
                    width = max(column.width, widest, len(column.heading))
                    column = replace(column, width=width, precision=None)
            if position and not fitted:  # the columns before it are gone
                column = replace(column, text_before=column.text_before.lstrip())
            fitted.append(column)
        return fitted

    # Reading

    def _read(self, start: int) -> str:
        """Read the columns, and return the text after the last one."""
        text, text_before, position = self._text, "", start
        while position < len(text):
            character = text[position]
            if text[position : position + 2] in ("{{", "}}"):
                text_before += character
                position += 2
            elif character == "}":
                self._refuse(position, "this '}' closes nothing: write '}}' for one")
            elif character == "{":
                end = text.find("}", position)
                if end < 0:
                    self._refuse(position, "this '{' is not closed: write '{{' for one")
                self._columns.append(self._column(text_before, position + 1, end))
                text_before, position = "", end + 1
            else:
                text_before += character
                position += 1
        return text_before

    def _column(self, text_before: str, start: int, end: int) -> _Column:
        field_text = self._text[start:end]
        match = re.match(r"[^!:]*", field_text)
        assert match is not None  # it matches nothing at all, too
        name = match[0]
        heading = self._heading(name)
        if heading is None:
            self._refuse(start, f"there is no field {name!r}")
        rest, position = field_text[len(name) :], start + len(name)
        conversion = ""
        if rest.startswith("!"):
            conversion = rest[1:2]
            if not conversion or conversion not in _CONVERSIONS:
                known = ", ".join(_CONVERSIONS)
                self._refuse(position, f"there is no conversion {rest[:2]!r}: they are {known}")
            rest, position = rest[2:], position + 2
            if rest and not rest.startswith(":"):
                self._refuse(position, "a layout begins with ':'")
        prefix = _PREFIX_PATTERN.search(text_before)
        strftime, layout = "", rest[1:]
        if conversion == "d":
            strftime, _, layout = layout.partition("::")
            position += len(rest) - 1 - len(layout)
        return _Column(
            text_before=text_before[: prefix.start()] if prefix else text_before,
            name=name,
            heading=heading,
            conversion=conversion,
            omit_if_empty=prefix is not None and "?" in prefix[1],
            widen_to_fit=prefix is not None and "+" in prefix[1],
            strftime=strftime,
            **self._layout(layout, position + 1),
        )

    def _layout(self, layout: str, position: int) -> dict[str, Any]:
        match = _LAYOUT_PATTERN.fullmatch(layout)
        if match is None:
            self._refuse(position, f"{layout!r} is not a layout such as '>8', '<10.10+' or '>6h'")
        if match["cut"] and match["precision"] in (None, "0"):
            self._refuse(position, f"the '+' in {layout!r} follows no length such as '.10'")
        fill, align = match["fill"] or "", match["align"] or ""
        if match["zero"]:
            fill, align = fill or "0", align or ">"
        return {
            "fill": fill,
            "align": align,
            "sign": (match["sign"] or "") + (match["comma"] or ""),
            "width": int(match["width"] or 0),
            "precision": None if match["precision"] is None else int(match["precision"]),
            "mark_truncation": match["cut"] is not None,
            "kind": match["kind"] or "",
            "hyphen_if_empty": match["hyphen"] is not None,
        }

    def _refuse(self, position: int, problem: str) -> NoReturn:
        raise BadFormat(f"format {brief(self._text)}: {problem}, at {position}")


def sort_rows(rows: Sequence[Row], keys: Sequence[str]) -> list[Row]:
    """Sort rows by the fields that `keys` name, downwards after a `-`; the first counts most.

    Values that are empty are less than all others.
    """
    sorted_rows = list(rows)
    for key in reversed(keys):
        name = key.removeprefix("-")

        def sort_value(row: Row, name: str = name) -> tuple[int, Any]:
            value = row(name)
            if isinstance(value, int | float):
                return (1, value)
            return (2, str(value)) if value != "" else (0, "")

        sorted_rows.sort(key=sort_value, reverse=key.startswith("-"))
    return sorted_rows


def fsd(seconds: float) -> str:
    """Write a duration in few digits, as listings show it: `1.5h`, `2.125s`."""
    if seconds < 0.001:
        return "0s"
    if seconds < 10:
        return f"{seconds:.3f}s".replace(".000s", "s")
    for limit, unit, size in ((60, "s", 1), (3600, "m", 60), (86400, "h", 3600)):
        if seconds < limit:
            return f"{seconds / size:.4g}{unit}"
    return f"{seconds / 86400:.4g}d"


def percentage(value: float) -> str:
    """Write a part of a whole as a percentage of at most 5 characters."""
    percent = value * 100
    if percent >= 10 or percent == 0:
        return f"{percent:.0f}%"
    text = f"{percent:.1f}" if percent >= 1 else f"{percent:.2f}"
    return f"{text.rstrip('0').rstrip('.')}%"


def _local(moment: float) -> datetime:
    return datetime.fromtimestamp(moment).astimezone()
