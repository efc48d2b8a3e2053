"""What all tests share."""

import logging

import pytest
import structlog


@pytest.fixture(autouse=True, scope="session")
def quiet_log() -> None:
    """Only what is wrong is logged, and shown with the test that it belongs to."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(),
    )
