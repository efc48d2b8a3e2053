"""What is logged, for tests to look at."""

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

from warren.base import log


@contextmanager
def capture_logs(least: str | None = None) -> Iterator[list[MutableMapping[str, Any]]]:
    """Give the events that are logged meanwhile, of this level at least, or those that would be."""
    entries: list[MutableMapping[str, Any]] = []

    def note(level: str, values: Mapping[str, object]) -> None:
        entries.append({**values, "log_level": level})

    with as_before():
        log.configure(note, least or log.configuration()[1])
        yield entries


@contextmanager
def as_before() -> Iterator[None]:
    """Have the log go where it goes now when all is done."""
    before = log.configuration()
    try:
        yield
    finally:
        log.configure(*before)
