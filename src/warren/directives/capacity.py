"""Capacities: numbers with a unit, decimal (`1TB`) or binary (`1TiB`)."""

import re
from typing import Final

from warren.base.bytesize import Bytes
from warren.base.errors import UserMistake

_CAPACITY_PATTERN = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:([kKMGTP])(i)?)?B?")
_POWER_BY_PREFIX = {None: 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
MAX_BYTES_EXCLUSIVE: Final = 2**63
"""Bytes that are too many: objects carry sizes in 64 bits."""


def parse(text: str) -> Bytes:
    """Read a capacity. Raises UserMistake where it is none."""
    match = _CAPACITY_PATTERN.fullmatch(text)
    if match is None:
        raise UserMistake(f"{text!r} is not a capacity: write a number and a unit, such as 100GiB.")
    number, prefix, binary_mark = match.groups()
    size = float(number) * (1024 if binary_mark else 1000) ** _POWER_BY_PREFIX[prefix]
    if size >= MAX_BYTES_EXCLUSIVE:
        raise UserMistake(f"{text!r} is too large: a capacity is less than 8 EiB.")
    return Bytes(round(size))


def suggestion(text: str) -> str | None:
    """Suggest a capacity in whole units for one that is not: `1536GiB` for `1.5TiB`."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d*)?|\.\d+)\s*([kmgtp])(i?)b?", text, re.IGNORECASE)
    if match is None:
        return "Try 100GiB." if re.fullmatch(r"\d+", text) else None
    number, prefix, is_binary = float(match[1]), match[2].upper(), bool(match[3])
    units = "KMGTP"
    step = 1024 if is_binary else 1000
    while number != int(number) and units.index(prefix) > 0:
        number, prefix = number * step, units[units.index(prefix) - 1]
    if prefix == "P":
        number, prefix = number * step, "T"
    whole = max(1, round(number))
    return f"Try {whole}{prefix}{'i' if is_binary else ''}B."
