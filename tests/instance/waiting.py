"""Waiting for what other processes are about to do."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not become true in time"
        time.sleep(0.005)
