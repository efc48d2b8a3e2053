"""Lengths of time as text, in Flux Standard Duration: `1.5h` (RFC 23).

Inside, they are seconds: floats from 0 to infinity.
"""

import math
import re
from reprlib import repr as brief

from warren.rfc.errors import BadFormat

_SECONDS_BY_UNIT = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

# What C's strtod reads, but for what precedes it there: blanks and a minus sign.
_DURATION_PATTERN = re.compile(
    r"\+?(?:"
    r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|"
    r"(0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)"
    r")(ms|s|m|h|d|)"
)
_NUMBER_PATTERN = re.compile(r"\+?(?:[0-9]*\.?[0-9]*)(?:(?<=[0-9.])[eE][+-]?[0-9]*)?")


def parse(text: str) -> float:
    """Return seconds; `inf` and `infinity` give infinity.

    Raises BadFormat for what is no number and unit, for a negative number, for NaN, and
    for a number that is finite in the text and not as a float.
    """
    match = _DURATION_PATTERN.fullmatch(text)
    if match is None:
        if text.removeprefix("+").lower() in ("inf", "infinity"):
            return math.inf
        raise BadFormat(f"{brief(text)} is not a duration: {_mistake(text)}")
    decimal, hexadecimal, unit = match.groups()
    number = float(decimal) if decimal else _from_hexadecimal(hexadecimal)
    # A thousandth has no exact float: 9 * 0.001 is more than 0.009.
    seconds = number / 1000.0 if unit == "ms" else number * _SECONDS_BY_UNIT[unit]
    if math.isinf(seconds):
        raise BadFormat(f"{brief(text)} is not a duration: the number is too large")
    return seconds


def _from_hexadecimal(number: str) -> float:
    try:
        return float.fromhex(number)
    except OverflowError:
        return math.inf


def _mistake(text: str) -> str:
    match = _NUMBER_PATTERN.match(text)
    assert match is not None  # the pattern also matches nothing at all
    position = match.end()
    if not any(digit in match[0] for digit in "0123456789"):
        return f"a number of at least 0 is missing at {position}, as in 1.5h"
    if match[0][-1] in "eE+-":
        return f"a digit of the exponent is missing at {position}"
    return f"the number ends at {position}, and the unit after it is none of ms, s, m, h and d"


def format_fsd(seconds: float) -> str:
    """Write a length of time as Flux prints it, in six digits: `1.5h`, `0.42s`.

    Raises BadFormat for NaN and for a negative number: RFC 23 has no text for them.
    """
    if not seconds >= 0:
        raise BadFormat(f"{seconds} seconds are not a duration: it is a number of at least 0")
    if math.isinf(seconds):
        return "infinity"
    if 0 < seconds < 0.1:
        return f"{seconds * 1000:.6g}ms"
    for limit, unit in ((60.0, "s"), (3600.0, "m"), (86400.0, "h")):
        if seconds < limit:
            return f"{seconds / _SECONDS_BY_UNIT[unit]:.6g}{unit}"
    return f"{seconds / 86400.0:.6g}d"
