"""How many of a resource a jobspec asks for: a number, a list of numbers, or a range (RFC 14).

A count is spelled as an integer, as an idset (`4,9,16`), as a range string of RFC 45
(`2-16:2:*`) or as an object of `min`, `max`, `operator` and `operand`.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from warren.rfc import idset, ranges
from warren.rfc.errors import BadFormat
from warren.rfc.ranges import Range

_MAX_NUMBERS: Final = 1024
"""Numbers of a list: whatever looks at a job reads them again, while all others wait."""
_KEYS: Final = ("min", "max", "operator", "operand")


class CountList(msgspec.Struct, frozen=True):
    """The counts that are acceptable, in ascending order."""

    numbers: tuple[int, ...]

    @property
    def min(self) -> int:
        return self.numbers[0]

    def greatest(self, limit: int) -> int | None:
        """Return the greatest of the numbers up to `limit`; None where all are greater."""
        index = bisect_right(self.numbers, limit)
        return self.numbers[index - 1] if index else None

    def __contains__(self, count: int) -> bool:
        return self.greatest(count) == count


Count = CountList | Range
"""Which counts of a resource a jobspec accepts: what it says in place of one number."""


def parse(value: Any) -> Count:
    """Read a count in any of its spellings. Raises BadFormat where it is none.

    The schema of RFC 14 wants a text to be either an idset or a range, so that it
    refuses `3-30`, which is both. Both mean the same, and it is read.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= ranges.LARGEST:
            raise BadFormat(f"count is not a whole number from 1 to {ranges.LARGEST}")
        return Range(min=value, max=value)
    if isinstance(value, str):
        try:
            return _from_idset(value) if "," in value else ranges.parse(value)
        except BadFormat as error:
            raise BadFormat(f"count is no {error}") from None
    if isinstance(value, Mapping):
        return _from_object(value)
    raise BadFormat("count is neither a whole number of at least 1 nor a text nor an object")


def encode(count: Count) -> str:
    """Write a count in its shortest text."""
    return idset.encode(count.numbers) if isinstance(count, CountList) else ranges.encode(count)


def _from_idset(text: str) -> CountList:
    numbers = idset.decode(text, limit=_MAX_NUMBERS)
    if not numbers or numbers[0] < 1:
        raise BadFormat(f"list of counts {text!r}: its numbers are not of at least 1")
    return CountList(numbers)


def _from_object(value: Mapping[str, Any]) -> Range:
    for key in value:
        if key not in _KEYS:
            raise BadFormat(f"count.{key} is not one of {', '.join(_KEYS)}")
    # By the words of RFC 14 each but min has a default; its schema wants all of them or none.
    for key in _KEYS if len(value) > 1 else ("min",):
        if key not in value:
            raise BadFormat(f"count.{key} is missing: beside min stand all of the others or none")
    for key in ("min", "max", "operand"):
        number = value.get(key, 1)
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise BadFormat(f"count.{key} is not a whole number of at least 1")
    if value.get("operator", "+") not in ("+", "*", "^"):
        raise BadFormat("count.operator is none of +, * and ^")
    try:
        return Range(**value)
    except BadFormat as error:
        raise BadFormat(f"count is no {error}") from None
