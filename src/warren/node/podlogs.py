"""What the containers of this machine's pods print, in files beside what remembers the pods.

Their writer is `podprocess.outputlog`: a file, and the one before, which it replaces. Readers open
them below the pod's directory and through no link, whatever a pod says that it is called.
"""

import errno
import os
from pathlib import Path
from typing import Final

from warren.base.objects import Object
from warren.node.nofollow import NotAFile, open_to_read
from warren.node.threads import in_thread

_PIECE_BYTES: Final = 2**16
"""Bytes that are read at a time."""

_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PodLogs:
    """The logs of the pods of some nodes."""

    def __init__(self, directory: Path) -> None:
        """`directory` has a directory for each node, and that one for each pod, by its uid."""
        self._directory = directory

    def open(self, pod: Object, container: str, lines: int | None) -> "PodLog":
        """Open what a container has printed, or so many of its last lines."""
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        node_and_uid = (node, str(pod["metadata"]["uid"]))
        return PodLog(self._directory, node_and_uid, container, lines)


class PodLog:
    """What one container prints: a file, and those that come after it.

    Nothing is opened before it is read.
    """

    def __init__(
        self, directory: Path, node_and_uid: tuple[str, str], container: str, lines: int | None
    ) -> None:
        self._logs_directory = directory
        self._node_and_uid = node_and_uid
        self._name = f"{container}.log"
        self._tail_lines = lines
        self._directory: int | None = None
        self._file: int | None = None

    async def read(self) -> bytes:
        """Return the next piece; an empty one where there is no more as yet.

        Raises FileNotFoundError where nothing of the pod is here, and another OSError where it
        cannot be read.
        """
        return await in_thread(self._read)

    def close(self) -> None:
        """Leave it."""
        for each in (self._file, self._directory):
            if each is not None:
                os.close(each)
        self._file = self._directory = None

    def _read(self) -> bytes:
        if self._directory is None:
            self._directory = self._open_pod_directory()
            if self._tail_lines is not None:
                self._file = self._open_at_tail(self._tail_lines)
        while True:
            # Before the read: a file that another has followed is not written to any more,
            # and its end is its end.
            following = self._next_file()
            data = os.read(self._file, _PIECE_BYTES) if self._file is not None else b""
            if data or following is None:
                _close(following)
                return data
            _close(self._file)
            self._file = following

    def _open_pod_directory(self) -> int:
        """Return the directory of the pod, open."""
        try:
            if any(
                "/" in each or each.startswith(".") for each in (*self._node_and_uid, self._name)
            ):
                raise FileNotFoundError
            opened = os.open(self._logs_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for each in self._node_and_uid:
                parent_fd = opened
                try:
                    opened = os.open(each, _DIRECTORY_FLAGS, dir_fd=parent_fd)
                finally:
                    os.close(parent_fd)
        except (OSError, ValueError) as error:
            node, uid = self._node_and_uid
            words = f"nothing is here of what the pod {uid} on {node!r} has printed"
            raise FileNotFoundError(errno.ENOENT, words) from error
        return opened

    def _next_file(self) -> int | None:
        """Return the file after the one that is read, open; None if there is none as yet."""
        newest, older = self._open_files()
        # The newer one was opened first. If it has become the older one since, it is both.
        if newest is not None and self._is_current(newest):
            _close(newest, older)
            return None
        if older is None or self._is_current(older):
            _close(older)
            return newest
        _close(newest)
        return older

    def _open_at_tail(self, lines: int) -> int | None:
        """Return the file in which the last lines begin, at that place."""
        newest, older = self._open_files()
        if newest is not None and older is not None and os.path.sameopenfile(newest, older):
            _close(newest)
            newest = None
        files = [each for each in (newest, older) if each is not None]
        if not files:
            return None
        printed = next((each for each in files if os.fstat(each).st_size), files[0])
        # The end of a line that is the last begins no other.
        breaks = lines + _ends_line(printed)
        for start_file in files:
            breaks = _seek_back(start_file, breaks)
            if not breaks:
                break
        _close(*(each for each in files if each != start_file))
        return start_file

    def _open_files(self) -> tuple[int | None, int | None]:
        return self._open(self._name), self._open(f"{self._name}.1")

    def _open(self, name: str) -> int | None:
        assert self._directory is not None
        try:
            return open_to_read(name, self._directory)[0]
        except (FileNotFoundError, NotAFile):
            return None
        except OSError as error:
            if error.errno != errno.ELOOP:  # a link is no file of ours
                raise
            return None

    def _is_current(self, file: int) -> bool:
        return self._file is not None and os.path.sameopenfile(file, self._file)


def _close(*files: int | None) -> None:
    for each in files:
        if each is not None:
            os.close(each)


def _ends_line(file: int) -> bool:
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) == b"\n"


def _seek_back(file: int, breaks: int) -> int:
    """Go from the end of a file back over so many line breaks, to behind the last of these.

    Return how many of them are not in it; then it is at its beginning.
    """
    end = os.lseek(file, 0, os.SEEK_END)
    while end and breaks:
        start = max(0, end - _PIECE_BYTES)
        piece = os.pread(file, end - start, start)
        at = len(piece)
        while (at := piece.rfind(b"\n", 0, at)) >= 0:
            breaks -= 1
            if not breaks:
                os.lseek(file, start + at + 1, os.SEEK_SET)
                return 0
        end = start
    if breaks:
        os.lseek(file, 0, os.SEEK_SET)
    return breaks
