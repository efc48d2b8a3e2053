"""What guests' jobs hold of the store, by user, and how much that may be.

The store is in memory and on disk, and keeps jobs that are over. What one user's jobs hold
together is bounded, so that one user does not stop everybody else's new work.
"""

import errno
import math
from typing import Final

from warren.base.bytesize import human
from warren.rpc.message import RpcError

PER_JOB: Final = 4096
"""Bytes that any job is counted for, besides what its user has written."""


class Quota:
    """Bytes by user, and by the namespace of each job. What the owner writes is not counted."""

    def __init__(self, most: float = math.inf) -> None:
        """`most` is how many bytes a user's jobs may hold together."""
        self._most = most
        self._users: dict[int, int] = {}
        self._jobs: dict[str, tuple[int, int]] = {}

    def take(self, job: str, userid: int, count: int) -> None:
        """Count bytes that are to be written for a job. Raises RpcError(ENOSPC) for too many."""
        taken = self._users.get(userid, 0)
        if taken + count > self._most:
            words = (
                f"jobs of user {userid} hold {human(taken)} of the {human(int(self._most))} that "
                "each user has (kvs.user-limit): ask the owner to purge those that are over"
            )
            raise RpcError(errno.ENOSPC, words)
        self.hold(job, userid, count)

    def hold(self, job: str, userid: int, count: int) -> None:
        """Count bytes that are there already."""
        self._users[userid] = self._users.get(userid, 0) + count
        self._jobs[job] = userid, self.held(job) + count

    def held(self, job: str) -> int:
        """Return how many bytes are counted for a job."""
        return self._jobs.get(job, (0, 0))[1]

    def release(self, job: str) -> None:
        """Count nothing for a job any more: it is not there."""
        userid, count = self._jobs.pop(job, (0, 0))
        left = self._users.pop(userid, 0) - count
        if left > 0:
            self._users[userid] = left
