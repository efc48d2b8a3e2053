"""What a container prints is kept, up to a bound."""

import os
from contextlib import suppress
from typing import BinaryIO

_LEAST_KEPT_BYTES = 8 * 2**20
"""Bytes of a container's output that are kept at least; no more than twice as much is."""

LAST_BYTES = 2000
"""Bytes of its output that are told of a container that has failed."""


class OutputLog:
    """What a container prints: the last of it, in a file and the one before.

    What a full disk does not take is left out: that is not the container's fault.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self.last_bytes = b""
        self.write(b"")  # the file is there from the beginning

    def _open(self) -> BinaryIO:
        return open(self._path, "ab", buffering=0)

    def write(self, data: bytes) -> None:
        self.last_bytes = (self.last_bytes + data)[-LAST_BYTES:]
        with suppress(OSError):
            if self._file is not None and self._file.tell() + len(data) > _LEAST_KEPT_BYTES:
                self.close()
                os.replace(self._path, f"{self._path}.1")
            if self._file is None:
                self._file = self._open()
            self._file.write(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
