"""What all tests share."""

import signal
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.extent import EVERYTHING
from tests.harness.logs import capture_logs

# A loaded machine is no fault of a test's. `make test` tries the same examples each time, so that
# it says of a change what the change has done; `make test-all` looks for new ones.
settings.register_profile(
    "any-machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not EVERYTHING,
)
settings.load_profile("any-machine")


@pytest.fixture
def heard() -> Iterator[list[MutableMapping[str, Any]]]:
    """Return what an admin reads in the log."""
    with capture_logs("info") as entries:
        yield entries


@pytest.fixture(autouse=True, scope="session")
def heeded_signals() -> None:
    """What starts the tests in the background may have them ignored, and all children then do."""
    for signum, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, handler)
