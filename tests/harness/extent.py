"""How far tests go that have no end of their own: `make test-all` goes further."""

import os

EVERYTHING = os.environ.get("WARREN_TEST_ALL") == "1"


def extent(variable: str, *, usual: int, everything: int) -> int:
    """Return how many of something a test takes: what `variable` says, or the usual number."""
    return int(os.environ.get(variable) or (everything if EVERYTHING else usual))
