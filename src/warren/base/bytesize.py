"""Sizes in bytes, and how people write them."""

from typing import Final, NewType

Bytes = NewType("Bytes", int)

KIB: Final = Bytes(2**10)
MIB: Final = Bytes(2**20)
GIB: Final = Bytes(2**30)
TIB: Final = Bytes(2**40)


def human(size: int) -> str:
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


def from_human(text: str) -> int:
    """Read what `human` has written, as exactly as it was written. Raises ValueError."""
    number, _, unit = text.partition(" ")
    powers: dict[str, int] = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "PiB": 5}
    if unit not in powers:
        raise ValueError(f"{text!r} is not a size")
    return int(float(number) * float(1024 ** powers[unit]))
