"""Lengths of time as text, in Flux Standard Duration: `1.5h` (RFC 23)."""

import math
import re

from warren.rfc.errors import BadFormat

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = re.compile(r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(ms|s|m|h|d|)")


def parse(text: str) -> float:
    """Give seconds; `inf` and `infinity` give infinity."""
    if text.lower() in ("inf", "infinity"):
        return math.inf
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadFormat(f"{text!r} is not a duration: write a number and ms, s, m, h or d")
    return float(match[1]) * _SECONDS[match[2]]


def format_fsd(seconds: float) -> str:
    """Write a length of time as Flux prints it: `1.5h`, `0.42s`."""
    if math.isinf(seconds):
        return "infinity"
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.6g}ms"
    for limit, unit in ((60.0, "s"), (3600.0, "m"), (86400.0, "h")):
        if seconds < limit:
            return f"{seconds / _SECONDS[unit]:.6g}{unit}"
    return f"{seconds / 86400.0:.6g}d"
