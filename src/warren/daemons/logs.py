"""Logs of long-running processes: one file each, one line an event, bounded."""

import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO, cast

import structlog

from warren.base.errors import UserMistake

_LARGEST: Final = 16 * 2**20


def rotated(path: Path) -> Path:
    """Return a log's path, after putting a large old log aside, in place of the one before it."""
    if path.exists() and path.stat().st_size > _LARGEST:
        path.rename(path.with_suffix(".log.1"))
    return path


def configure_file(path: Path) -> None:
    """Log to a file. Raises UserMistake where it cannot be opened."""
    try:
        configure(rotated(path).open("a", buffering=1))
    except OSError as error:
        raise UserMistake(f"The log {path} cannot be written: {error.strerror}.") from error


def lossy(output: TextIO) -> TextIO:
    """Return an output that loses what cannot be written."""
    return cast(TextIO, _Lossy(output))


class _Lossy:
    """Loses what cannot be written: a full disk is no reason to stop, or to answer otherwise."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._output.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._output.flush()


def configure(output: TextIO = sys.stderr) -> None:
    """Log to standard error, which a supervisor has led into a file, or elsewhere."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "event"], drop_missing=True
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(lossy(output)),
        cache_logger_on_first_use=True,
    )
