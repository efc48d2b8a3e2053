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

    def open(self, pod: Object, container: str, tail_lines: int | None) -> "PodLog":
        """Open what a container has printed, or so many of its last lines."""
        node = str((pod.get("spec") or {}).get("nodeName") or "")
        node_and_uid = (node, str(pod["metadata"]["uid"]))
        return PodLog(self._directory, node_and_uid, container, tail_lines)


class PodLog:
    """What one container prints: a file, and those that come after it.

    Nothing is opened before it is read.
    """

    def __init__(
        self, directory: Path, node_and_uid: tuple[str, str], container: str, tail_lines: int | None
    ) -> None:
        self._logs_directory = directory
        self._node_and_uid = node_and_uid
        self._name = f"{container}.log"
        self._tail_lines = tail_lines
        self._directory_fd: int | None = None
        self._file_fd: int | None = None

    async def read(self) -> bytes:
        """Return the next piece; an empty one where there is no more as yet.

        Raises FileNotFoundError where nothing of the pod is here, and another OSError where it
        cannot be read.
        """
        return await in_thread(self._read)

    def close(self) -> None:
        """Leave it."""
        for each in (self._file_fd, self._directory_fd):
            if each is not None:
                os.close(each)
        self._file_fd = self._directory_fd = None

    def _read(self) -> bytes:
        if self._directory_fd is None:
            self._directory_fd = self._open_pod_directory()
            if self._tail_lines is not None:
                self._file_fd = self._open_at_tail(self._tail_lines)
        while True:
            # Before the read: a file that another has followed is not written to any more,
            # and its end is its end.
            next_fd = self._next_file()
            data = os.read(self._file_fd, _PIECE_BYTES) if self._file_fd is not None else b""
            if data or next_fd is None:
                _close(next_fd)
                return data
            _close(self._file_fd)
            self._file_fd = next_fd

    def _open_pod_directory(self) -> int:
        """Return the directory of the pod, open."""
        try:
            if any(
                "/" in each or each.startswith(".") for each in (*self._node_and_uid, self._name)
            ):
                raise FileNotFoundError
            directory_fd = os.open(
                self._logs_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            )
            for each in self._node_and_uid:
                parent_fd = directory_fd
                try:
                    directory_fd = os.open(each, _DIRECTORY_FLAGS, dir_fd=parent_fd)
                finally:
                    os.close(parent_fd)
        except (OSError, ValueError) as error:
            node, uid = self._node_and_uid
            message = f"nothing is here of what the pod {uid} on {node!r} has printed"
            raise FileNotFoundError(errno.ENOENT, message) from error
        return directory_fd

    def _next_file(self) -> int | None:
        """Return the file after the one that is read, open; None if there is none as yet."""
        newest_fd, older_fd = self._open_files()
        # The newer one was opened first. If it has become the older one since, it is both.
        if newest_fd is not None and self._is_current(newest_fd):
            _close(newest_fd, older_fd)
            return None
        if older_fd is None or self._is_current(older_fd):
            _close(older_fd)
            return newest_fd
        _close(newest_fd)
        return older_fd

    def _open_at_tail(self, lines: int) -> int | None:
        """Return the file in which the last lines begin, at that place."""
        newest_fd, older_fd = self._open_files()
        if (
            newest_fd is not None
            and older_fd is not None
            and os.path.sameopenfile(newest_fd, older_fd)
        ):
            _close(newest_fd)
            newest_fd = None
        fds = [each for each in (newest_fd, older_fd) if each is not None]
        if not fds:
            return None
        last_printed_fd = next((each for each in fds if os.fstat(each).st_size), fds[0])
        # The end of a line that is the last begins no other.
        breaks = lines + _ends_line(last_printed_fd)
        for start_fd in fds:
            breaks = _seek_back(start_fd, breaks)
            if not breaks:
                break
        _close(*(each for each in fds if each != start_fd))
        return start_fd

    def _open_files(self) -> tuple[int | None, int | None]:
        return self._open(self._name), self._open(f"{self._name}.1")

    def _open(self, name: str) -> int | None:
        assert self._directory_fd is not None
        try:
            return open_to_read(name, self._directory_fd)[0]
        except (FileNotFoundError, NotAFile):
            return None
        except OSError as error:
            if error.errno != errno.ELOOP:  # a link is no file of ours
                raise
            return None

    def _is_current(self, fd: int) -> bool:
        return self._file_fd is not None and os.path.sameopenfile(fd, self._file_fd)


def _close(*fds: int | None) -> None:
    for each in fds:
        if each is not None:
            os.close(each)


def _ends_line(fd: int) -> bool:
    size = os.fstat(fd).st_size
    return size > 0 and os.pread(fd, 1, size - 1) == b"\n"


def _seek_back(fd: int, breaks: int) -> int:
    """Go from the end of a file back over so many line breaks, to behind the last of these.

    Return how many of them are not in it; then it is at its beginning.
    """
    end = os.lseek(fd, 0, os.SEEK_END)
    while end and breaks:
        start = max(0, end - _PIECE_BYTES)
        piece = os.pread(fd, end - start, start)
        position = len(piece)
        while (position := piece.rfind(b"\n", 0, position)) >= 0:
            breaks -= 1
            if not breaks:
                os.lseek(fd, start + position + 1, os.SEEK_SET)
                return 0
        end = start
    if breaks:
        os.lseek(fd, 0, os.SEEK_SET)
    return breaks
