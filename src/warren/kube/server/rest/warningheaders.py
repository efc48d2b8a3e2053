"""The warnings that go with an answer: no more than clients take.

They are headers, and clients refuse an answer whose headers are too many or too long, after the
write was done. Kubernetes cuts them, too.
"""

from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Final

import orjson

_TOTAL: Final = 4096
"""Bytes of all warnings of an answer. Where there are more, each is cut."""
_EACH: Final = 256
"""Characters of a warning that is cut."""
_MOST: Final = 64
"""Headers with warnings: Python's clients take 127 headers of all kinds."""


def values(warnings: Sequence[str]) -> list[str]:
    """Return the values of the Warning headers: of the first warnings, as many as fit."""
    found = [_value(each) for each in warnings]
    if sum(map(_size, found)) > _TOTAL:
        found = [_value(each[:_EACH]) for each in warnings]
    totals = accumulate(map(_size, islice(found, _MOST)))
    return found[: sum(total <= _TOTAL for total in totals)]


def _value(warning: str) -> str:
    return f"299 - {orjson.dumps(warning).decode()}"


def _size(value: str) -> int:
    return len(value.encode())
