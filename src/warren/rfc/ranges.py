"""Ranges of counts as text: `2-16:2:*` (RFC 45), for jobspecs that take more or fewer.

A range says from how many to how many, and how one acceptable count follows from the
one before: by adding the operand to it, multiplying it, or raising it to that power.
A number alone is that number and no other.
"""

import re
from collections.abc import Sequence
from reprlib import repr as brief
from typing import Final, Literal

import msgspec

from warren.rfc.errors import BadFormat

Operator = Literal["+", "*", "^"]

LARGEST: Final = 2**63 - 1

_NUMBER = "[1-9][0-9]{0,18}"
_RANGE_PATTERN = re.compile(
    rf"(?P<bracket>\[)?(?P<min>{_NUMBER})(?:(?P<open>\+)|-(?P<max>{_NUMBER}))?"
    rf"(?::(?P<operand>{_NUMBER})(?::(?P<operator>[+*^]))?)?(?(bracket)\])"
)
# As much of a range as there is in front of a mistake.
_PREFIX_PATTERN = re.compile(
    rf"(\[)?(?:{_NUMBER}(?:\+|-(?:{_NUMBER})?)?"
    rf"(?:(?<=[0-9+]):(?:{_NUMBER}(?::[+*^]?)?)?)?(?:(?<=[0-9+*^])(?(1)\]))?)?"
)


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Which counts are acceptable; without a `max`, there is always a next one.

    Raises BadFormat where RFC 14 is not met: for a `max` below `min`, and for `*` or `^`
    by one and `^` from one, which would never get on.
    """

    min: int
    max: int | None = None
    operand: int = 1
    operator: Operator = "+"

    def __post_init__(self) -> None:
        for name, value in (("min", self.min), ("max", self.max), ("operand", self.operand)):
            if value is not None and not 1 <= value <= LARGEST:
                raise BadFormat(f"range: {name} is not from 1 to {LARGEST}")
        if self.max is not None and self.max < self.min:
            raise BadFormat(f"range: max {self.max} is less than min {self.min}")
        if self.operator not in ("+", "*", "^"):
            raise BadFormat(f"range: the operator {brief(self.operator)} is none of + * ^")
        if self.operator != "+" and self.operand < 2:
            raise BadFormat(f"range: the operand of {self.operator} is not at least 2")
        if self.operator == "^" and self.min < 2:
            raise BadFormat("range: the min of ^ is not at least 2")

    def counts(self, limit: int) -> Sequence[int]:
        """Return the acceptable counts up to `limit`, in ascending order."""
        top = min(limit, LARGEST if self.max is None else self.max)
        if self.operator == "+":
            return range(self.min, top + 1, self.operand)
        acceptable: list[int] = []
        count = self.min
        while count <= top:
            acceptable.append(count)
            if self.operator == "*":
                count *= self.operand
            elif self.operand >= top.bit_length():
                break  # the next one is beyond in any case, and may have billions of digits
            else:
                count **= self.operand
        return acceptable

    def greatest(self, limit: int) -> int | None:
        """Return the greatest acceptable count up to `limit`; None where all are greater."""
        counts = self.counts(limit)
        return counts[-1] if counts else None

    def __contains__(self, count: int) -> bool:
        return count in self.counts(count)


def parse(text: str) -> Range:
    """Read a range. Raises BadFormat for what is none, and for one that RFC 14 forbids."""
    match = _RANGE_PATTERN.fullmatch(text)
    if match is None:
        raise BadFormat(f"range {brief(text)}: {_mistake(text)}")
    least = int(match["min"])
    most = None if match["open"] else int(match["max"] or least)
    operator: Operator = match["operator"] or "+"  # type: ignore[assignment] # the pattern's three
    try:
        return Range(min=least, max=most, operand=int(match["operand"] or 1), operator=operator)
    except BadFormat as mistake:
        raise BadFormat(f"{mistake}, in {brief(text)}") from None


def _mistake(text: str) -> str:
    match = _PREFIX_PATTERN.match(text)
    assert match is not None  # the pattern also matches nothing at all
    position = match.end()
    if position == len(text):
        return f"it ends too early, at {position}"
    return f"unexpected {text[position]!r} at {position}"


def encode(range_: Range, *, brackets: bool = False) -> str:
    """Write a range in the shortest form: without `:1:+`, and without a `max` that is its min."""
    if range_.max is None:
        text = f"{range_.min}+"
    elif range_.max == range_.min:
        text = f"{range_.min}"
    else:
        text = f"{range_.min}-{range_.max}"
    if range_.operator != "+":
        text += f":{range_.operand}:{range_.operator}"
    elif range_.operand != 1:
        text += f":{range_.operand}"
    return f"[{text}]" if brackets else text
