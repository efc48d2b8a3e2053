"""Logs of long-running processes: one file each, one line an event, bounded."""

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, TextIO, cast

from warren.base import log
from warren.base.errors import UserMistake

_MAX_BYTES: Final = 16 * 2**20
_STDOUT, _STDERR = 1, 2


def rotate(path: Path, max_bytes: int = _MAX_BYTES) -> Path:
    """Return a log's path, after putting a large old log aside, in place of the one before it."""
    if path.exists() and path.stat().st_size > max_bytes:
        path.rename(path.with_suffix(".log.1"))
    return path


def open_log(path: Path, max_bytes: int = _MAX_BYTES) -> BinaryIO:
    """Open a log for the output of a process, which is its owner's alone. Raises OSError.

    What it starts has it open for what goes wrong, and may open again what it has open.
    """
    return open(rotate(path, max_bytes), "ab", opener=_open_private)


def _open_private(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def configure_file(path: Path) -> None:
    """Log to a file, which is put aside when it is large. Raises UserMistake."""
    try:
        configure(cast(TextIO, RotatingLog(path, _MAX_BYTES)))
    except OSError as error:
        raise UserMistake(f"The log {path} cannot be written: {error.strerror}.") from error


class RotatingLog:
    """A log in two files of bounded size, however long the process runs."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        """Raises OSError."""
        self._path = path
        self._max_bytes = max_bytes
        self._output = self._open()

    def write(self, text: str) -> None:
        if self._output.tell() > self._max_bytes:
            full_output, self._output = self._output, self._open()
            full_output.close()
        self._output.write(text)

    def flush(self) -> None:
        self._output.flush()

    def close(self) -> None:
        self._output.close()

    def _open(self) -> TextIO:
        return open(
            rotate(self._path, self._max_bytes),
            "a",
            buffering=1,
            encoding="utf-8",
            errors="backslashreplace",
            opener=_open_private,
        )


class RotatingStandardError:
    """Standard error that was led into a log, which is bounded however long the process runs.

    Standard output goes where it goes: both, and what is started, write to the same file.
    """

    def __init__(self, path: Path, output: TextIO, max_bytes: int = _MAX_BYTES) -> None:
        """`output` writes to standard error, which is the log of that `path`."""
        self._path = path
        self._output = output
        self._max_bytes = max_bytes

    def write(self, text: str) -> None:
        if os.fstat(_STDERR).st_size > self._max_bytes:
            # Beside the old file, which stays where there can be no new one.
            with suppress(OSError), open_log(self._path, self._max_bytes) as log_file:
                os.dup2(log_file.fileno(), _STDOUT)
                os.dup2(log_file.fileno(), _STDERR)
        self._output.write(text)

    def flush(self) -> None:
        self._output.flush()


def ignore_write_errors(output: TextIO) -> TextIO:
    """Return an output that loses what cannot be written."""
    return cast(TextIO, _LossyOutput(output))


class _LossyOutput:
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
    lock, lossy_output = Lock(), ignore_write_errors(output)

    def write(level: str, values: Mapping[str, object]) -> None:
        line = log.logfmt_line(level, values) + "\n"
        with lock:
            lossy_output.write(line)
            lossy_output.flush()

    log.configure(write)
