"""How far tests go that have no end of their own: `make test-all` goes further."""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

EVERYTHING = os.environ.get("WARREN_TEST_ALL") == "1"


def extent(variable: str, *, usual: int, everything: int) -> int:
    """Return how many of something a test takes: what `variable` says, or the usual number."""
    return int(os.environ.get(variable) or (everything if EVERYTHING else usual))


def chosen(values: Sequence[T], *, usual: int) -> Sequence[T]:
    """Return all of the values, or the usual number of them, from the first to the last."""
    if EVERYTHING or len(values) <= usual:
        return values
    return [values[number * (len(values) - 1) // max(usual - 1, 1)] for number in range(usual)]
