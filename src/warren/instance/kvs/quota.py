"""What guests' jobs hold of the store, by user, and how much that may be.

The store is in memory and on disk, and keeps jobs that are over. What one user's jobs hold
together is bounded, so that one user does not stop the new work of others.
"""

import errno
import math
from collections.abc import Callable
from typing import Final

from warren.base.bytesize import format_bytes
from warren.rpc.message import RpcError

BYTES_PER_JOB: Final = 4096
"""Bytes that any job is counted for, besides what its user has written."""

END_OF_JOB_RESERVE: Final = 16 * 2**20
"""Bytes with which a job comes to its end, what it has printed included, on a disk that is full."""

USER_RESERVE: Final = 64 * 2**20
"""Bytes up to which jobs of one user, together, have `END_OF_JOB_RESERVE`, and then
`LEAST_RESERVE`."""

LEAST_RESERVE: Final = 2**20
"""Bytes with which a job comes to its end in any case, besides what it was submitted with."""


class Quota:
    """Bytes by user, and by the namespace of each job. What the owner writes refuses nothing.

    What is in a job's record is counted from the job's end on, whoever has written it.
    """

    def __init__(
        self, user_limit: float = math.inf, disk_free: Callable[[], float] = lambda: math.inf
    ) -> None:
        """`user_limit` is how many bytes a user's jobs may hold together.

        They hold no more than half of `disk_free` either, the bytes that the disk has left: what is
        written takes as much again while the journal is rewritten.
        """
        self._user_limit = user_limit
        self._disk_free = disk_free
        self._bytes_by_user: dict[int, int] = {}
        self._charges_by_namespace: dict[str, tuple[int, int]] = {}
        self._written_while_running: dict[str, int] = {}
        """What of it jobs have written in this life while they ran."""

    def charge(self, namespace: str, userid: int, size: int, *, is_running: bool = False) -> None:
        """Count bytes that are to be written for a job. Raises RpcError(ENOSPC) for too many.

        What a job that `is_running` needs to come to its end is not refused for want of room.
        """
        user_bytes = self._bytes_by_user.get(userid, 0)
        written = self._written_while_running.get(namespace, 0) + size
        is_reserved = is_running and (
            written <= LEAST_RESERVE
            or (
                self.bytes_of(namespace) + size <= END_OF_JOB_RESERVE
                and user_bytes + size <= USER_RESERVE
            )
        )
        room = math.inf if is_reserved else self._disk_free() / 2
        if user_bytes + size > min(self._user_limit, room):
            limit_text = (
                f"{format_bytes(int(self._user_limit))} that each user has (kvs.user-limit)"
                if self._user_limit <= room
                else f"{format_bytes(int(room))} that each user has while the disk is as full "
                "as now"
            )
            message = f"jobs of user {userid} hold {format_bytes(user_bytes)} of the {limit_text}"
            raise RpcError(errno.ENOSPC, f"{message}: ask the owner to purge those that are over")
        self.add(namespace, userid, size)
        if is_running:
            self._written_while_running[namespace] = written

    def add(self, namespace: str, userid: int, size: int) -> None:
        """Count bytes that are there already."""
        self._bytes_by_user[userid] = self._bytes_by_user.get(userid, 0) + size
        self._charges_by_namespace[namespace] = userid, self.bytes_of(namespace) + size

    def bytes_of(self, namespace: str) -> int:
        """Return how many bytes are counted for a job."""
        return self._charges_by_namespace.get(namespace, (0, 0))[1]

    def written_while_running(self, namespace: str) -> int:
        """Return how many of these bytes a job has written while it ran, in this life."""
        return self._written_while_running.get(namespace, 0)

    def release(self, namespace: str) -> None:
        """Count nothing for a job any more: it is not there."""
        self._written_while_running.pop(namespace, None)
        userid, size = self._charges_by_namespace.pop(namespace, (0, 0))
        bytes_left = self._bytes_by_user.pop(userid, 0) - size
        if bytes_left > 0:
            self._bytes_by_user[userid] = bytes_left
