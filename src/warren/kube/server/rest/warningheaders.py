"""The warnings that go with an answer: no more than clients take.

They are headers, and clients refuse an answer whose headers are too many or too long, after the
write was done. Kubernetes cuts them, too.
"""

from collections.abc import Sequence
from itertools import accumulate, islice
from typing import Final

import orjson

_MAX_TOTAL_BYTES: Final = 4096
"""Bytes of all warnings of an answer. Where there are more, each is cut."""
_MAX_CHARACTERS: Final = 256
"""Characters of a warning that is cut."""
_MAX_HEADERS: Final = 64
"""Headers with warnings: Python's clients take 127 headers of all kinds."""


def values(warnings: Sequence[str]) -> list[str]:
    """Return the values of the Warning headers: of the first warnings, as many as fit."""
    header_values = [_value(each) for each in warnings]
    if sum(map(_size, header_values)) > _MAX_TOTAL_BYTES:
        header_values = [_value(each[:_MAX_CHARACTERS]) for each in warnings]
    totals = accumulate(map(_size, islice(header_values, _MAX_HEADERS)))
    return header_values[: sum(total <= _MAX_TOTAL_BYTES for total in totals)]


def _value(warning: str) -> str:
    return f"299 - {orjson.dumps(warning).decode()}"


def _size(value: str) -> int:
    return len(value.encode())
