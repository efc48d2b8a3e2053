"""More processes that copy small files on the fast path: of one, Python uses one CPU.

Each is forked by the copier, whose credentials it keeps and with which it dies. It is given open
directories and names in them, and answers with the names that it leaves to the slow path. What a
process that has ended does not answer for is left to the slow path, too: that begins anew.
"""

import ctypes
import json
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from warren.base.processes import die_with_parent
from warren.node.copying import fastpath
from warren.node.copying.latency import Latency
from warren.node.nofollow import Directory

_MOST_WORKERS: Final = 3
"""Processes of one copy beside the copier: a rabbit's CPUs are other copies', too."""
_WORTHWHILE_FILES: Final = 1000
"""Files from which on a copy is faster with another process than without it."""
BATCH: Final = 32
"""Names that are given at once: as JSON, the longest of them fit into a message."""
_BATCHES_AHEAD: Final = 2
"""Batches that one process has, so that it need not wait for its next."""
_MESSAGE_BYTES: Final = 2**17

_LOCAL_FILE_SYSTEMS: Final = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994})
"""ext4, xfs, btrfs and tmpfs (statfs(2)). Of a file server, or a user's, a process may wait for an
answer and not die; and there, threads wait as well as processes."""


class Batch(msgspec.Struct, frozen=True):
    """Names in a directory, and the directory that they are to be copied to."""

    source_dir: Directory
    target_dir: Directory
    names: Sequence[str]


class Answer(msgspec.Struct, frozen=True):
    """What became of a batch."""

    batch: Batch
    copied: fastpath.FastPathResult


class _Worker:
    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self.connection = connection
        self.batches: deque[Batch] = deque()


class Workers:
    """The processes of one copy. One thread may use them."""

    def __init__(self, count: int) -> None:
        """Fork up to `count` processes. Call it while there is no other thread."""
        self._workers: list[_Worker] = []
        self._answers: list[Answer] = []
        for _ in range(count):
            try:
                self._workers.append(self._fork())
            except OSError:
                break  # all of it is copied without, too

    def submit(self, batch: Batch, source_dir_fd: int, target_dir_fd: int) -> bool:
        """Have a batch copied between two open directories; return False where none is free."""
        for each in [*self._workers]:
            self._receive(each, wait=False)
            if each in self._workers and len(each.batches) < _BATCHES_AHEAD:
                try:
                    message = json.dumps(batch.names).encode()
                    socket.send_fds(each.connection, [message], [source_dir_fd, target_dir_fd])
                except OSError:
                    self._drop(each)
                    continue
                each.batches.append(batch)
                return True
        return False

    def answers(self, *, wait: bool = False) -> Iterator[Answer]:
        """Return what has been answered; with `wait`, until all is."""
        for each in [*self._workers]:
            self._receive(each, wait=wait)
        answers, self._answers = self._answers, []
        yield from answers

    def close(self) -> None:
        """Have the processes end. What they have not answered for is not waited for."""
        for each in self._workers:
            each.connection.close()
        for each in self._workers:
            os.waitpid(each.pid, 0)
        self._workers = []

    def _fork(self) -> _Worker:
        copier_end, worker_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        copier_pid = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            copier_end.close()
            worker_end.close()
            raise
        if pid:
            worker_end.close()
            return _Worker(pid, copier_end)
        try:
            die_with_parent()
            copier_end.close()
            for each in self._workers:
                each.connection.close()
            if os.getppid() == copier_pid:
                _serve(worker_end)
        finally:
            os._exit(0)  # without what the copier does at its end

    def _receive(self, worker: _Worker, *, wait: bool) -> None:
        while worker.batches:
            try:
                flags = 0 if wait else socket.MSG_DONTWAIT
                message = worker.connection.recv(_MESSAGE_BYTES, flags)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._drop(worker)
                return
            copied = fastpath.FastPathResult(*json.loads(message))
            self._answers.append(Answer(worker.batches.popleft(), copied))

    def _drop(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        os.waitpid(worker.pid, 0)
        self._answers += [
            Answer(each, fastpath.FastPathResult(0, 0, each.names)) for each in worker.batches
        ]


def worker_count(file_count: int) -> int:
    """Return how many processes are of use for so many files, beside the copier."""
    return (
        min(_MOST_WORKERS, len(os.sched_getaffinity(0)) - 1)
        if file_count >= _WORTHWHILE_FILES
        else 0
    )


def is_local(directory_fd: int) -> bool:
    """Return whether an open directory is one of this machine, whose kernel answers for it."""
    statfs = (ctypes.c_long * 32)()
    if ctypes.CDLL(None).fstatfs(directory_fd, statfs):
        return False
    return statfs[0] in _LOCAL_FILE_SYSTEMS


def _serve(connection: socket.socket) -> None:
    latency = Latency()
    while True:
        message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, 2)
        if not message:
            return
        source_dir_fd, target_dir_fd = descriptors
        try:
            copied = fastpath.copy_all(json.loads(message), source_dir_fd, target_dir_fd, latency)
        finally:
            for each in descriptors:
                os.close(each)
        connection.send(json.dumps([copied.file_count, copied.byte_count, copied.skipped]).encode())
