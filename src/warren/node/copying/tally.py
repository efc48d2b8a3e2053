"""How far a copier is, and what it could not do: numbers and sentences, told line by line."""

import json
import sys
import threading
import time
from typing import Final

from msgspec.structs import asdict

from warren.dws.node import Progress

_REPORT_INTERVAL: Final = 0.5
_MOST_FAILURES: Final = 10
"""Failures that are told in full; of the others only how many there were."""


class NotCopied(Exception):
    """Something that cannot be copied, as its user is told."""

    def __init__(self, path: str, error_text: str) -> None:
        super().__init__(f"{path}: {error_text}")


def error_text(error: OSError) -> str:
    """Return what an error says, without the name of a file."""
    return error.strerror or str(error)


class Tally:
    """Counts what is done, from any thread, and reports it until `finish` is called."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._failures: list[str] = []
        self._bytes = self._files = self._directories = self._links = self._earlier_bytes = 0
        self._hole_bytes = 0
        self._remark = ""
        self.failure_count = 0
        self.total_bytes = self.total_files = 0
        self._done = threading.Event()
        self._reporter = threading.Thread(target=self._report_until_done, daemon=True)

    def start_reporting(self) -> None:
        """Tell from now on how far it is."""
        self._reporter.start()

    def finish(self) -> None:
        """Tell for the last time how far it is, and what has failed."""
        self._done.set()
        if self._reporter.is_alive():
            self._reporter.join()
        self._report()
        for failure in self._failures:
            print(failure, file=sys.stderr)
        if self.failure_count > len(self._failures):
            print(f"and {self.failure_count - len(self._failures)} more", file=sys.stderr)

    def add_bytes(self, count: int) -> None:
        """Count what is copied of a file."""
        with self._lock:
            self._bytes += count

    def add_files(self, file_count: int, total_bytes: int) -> None:
        """Count files that are there, of so many bytes together."""
        with self._lock:
            self._bytes += total_bytes
            self._files += file_count

    def add_file(self, *, is_link: bool = False) -> None:
        """Count a file that is there, or a symbolic link."""
        with self._lock:
            self._files += 1
            self._links += is_link

    def add_directory(self) -> None:
        """Count a directory that is there."""
        with self._lock:
            self._directories += 1

    def add_kept(self, count: int) -> None:
        """Count bytes that an earlier try has copied."""
        with self._lock:
            self._bytes += count
            self._earlier_bytes += count

    def add_hole(self, count: int) -> None:
        """Count bytes of a file that are there without having been copied."""
        with self._lock:
            self._bytes += count
            self._hole_bytes += count

    @property
    def file_count(self) -> int:
        """The files and symbolic links that are there."""
        return self._files

    def remark(self, text: str) -> None:
        """Note what the copies do not have, once."""
        self._remark = self._remark or text

    def fail(self, error: OSError | NotCopied, path: str | None = None) -> None:
        """Note a failure; `path` is that of errors that know no more than a name."""
        with self._lock:
            self.failure_count += 1
            if len(self._failures) < _MOST_FAILURES:
                text = str(error)
                if isinstance(error, OSError):
                    text = f"{path or error.filename}: {error_text(error)}"
                self._failures.append(text)

    def _report_until_done(self) -> None:
        while not self._done.wait(_REPORT_INTERVAL):
            self._report()

    def _report(self) -> None:
        with self._lock:
            progress = Progress(
                bytes=self._bytes,
                total_bytes=self.total_bytes,
                files=self._files,
                total_files=self.total_files,
                seconds=time.monotonic() - self._began,
                directories=self._directories,
                links=self._links,
                earlier_bytes=self._earlier_bytes,
                hole_bytes=self._hole_bytes,
                remark=self._remark,
            )
        print(json.dumps(asdict(progress)), flush=True)
