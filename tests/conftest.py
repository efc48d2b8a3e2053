"""What all tests share."""

import logging
import signal
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.harness.extent import EVERYTHING

# A loaded machine is no fault of a test's. `make test` tries the same examples each time, so that
# it says of a change what the change has done; `make test-all` looks for new ones.
settings.register_profile(
    "any-machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not EVERYTHING,
)
settings.load_profile("any-machine")


@pytest.fixture(autouse=True, scope="session")
def quiet_log() -> None:
    """Only what is wrong is logged, and shown with the test that it belongs to.

    The tracebacks are Python's: those of Rich, with all that is local to every frame, take a second
    each, and many tests have errors logged on purpose.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.dev.ConsoleRenderer(
                colors=False, exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(),
    )


@pytest.fixture
def heard() -> Iterator[list[MutableMapping[str, Any]]]:
    """Return what an admin reads in the log."""
    before = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    try:
        with structlog.testing.capture_logs() as entries:
            yield entries
    finally:
        structlog.configure(wrapper_class=before)


@pytest.fixture(autouse=True, scope="session")
def heeded_signals() -> None:
    """What starts the tests in the background may have them ignored, and all children then do."""
    for signum, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(signum) is signal.SIG_IGN:
            signal.signal(signum, handler)
