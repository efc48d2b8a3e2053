"""Sizes in bytes, and how people write them."""

import math
import re
from typing import Final, NewType

Bytes = NewType("Bytes", int)

KIB: Final = Bytes(2**10)
MIB: Final = Bytes(2**20)
GIB: Final = Bytes(2**30)
TIB: Final = Bytes(2**40)

_MIN_GIB_AS_TIB: Final = 10 * 1024
"""GiB from which on a size is written in TiB."""

_POWERS: Final = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5}
_HUMAN: Final = re.compile(rf"([0-9]+(?:\.[0-9]+)?) ({'|'.join(_POWERS)})")


def format_bytes(size: int) -> str:
    """Write `size` for a person, in binary units and three digits: `1.50 GiB`, `17 B`."""
    if size < 1024:
        return f"{size} B"
    value, units = float(size), iter(("KiB", "MiB", "GiB", "TiB", "PiB"))
    unit = "B"
    while value >= 1024 and unit != "PiB":
        value, unit = value / 1024, next(units)
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def whole_gib(size: int) -> int:
    """Round `size` up to whole GiB."""
    return -(-size // GIB)


def format_gib(size_gib: int, *, up: bool) -> str:
    """Write a size in GiB for a person, from 10 TiB on in TiB, rounded `up` or down to a tenth.

    What is asked for is rounded up and what is there down: a request that is too large never reads
    as if it fitted.
    """
    if size_gib < _MIN_GIB_AS_TIB:
        return f"{size_gib} GiB"
    tenths = -(-size_gib * 10 // 1024) if up else size_gib * 10 // 1024
    return f"{tenths // 10}.{tenths % 10} TiB" if tenths % 10 else f"{tenths // 10} TiB"


def from_human(text: str) -> int:
    """Read what `format_bytes` has written, as exactly as it was written.

    Raises ValueError for what is no size, and for one that no float holds.
    """
    match = _HUMAN.fullmatch(text)
    size = float(match[1]) * 1024.0 ** _POWERS[match[2]] if match is not None else math.nan
    if not math.isfinite(size):
        raise ValueError(f"{text!r} is not a size")
    return int(size)
