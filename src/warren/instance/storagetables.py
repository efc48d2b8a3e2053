"""The tables that are ours: storage and its placement, and daemons that jobs name."""

from collections.abc import Mapping
from math import inf
from typing import Final, Literal

from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.directives import capacity
from warren.lifecycle import tables
from warren.lifecycle.tables import (
    Duration,
    Table,
    check_absolute,
    check_durations,
    check_kill_timeout,
)

_ENDLESS_LIFETIME: Final = 100 * 366 * 86400.0
"""Seconds that count as without end: no object has a time that is much later."""


class DaemonTable(Table, frozen=True):
    """Table `daemons.NAME`, which is ours: a daemon that jobs may name with `requires`."""

    prolog: tuple[str, ...] = ()
    """Starts it for a job, on each of its nodes."""
    epilog: tuple[str, ...] = ()
    """Stops it."""
    timeout: Duration = 300.0
    """FSD or seconds for each of the two; 0 is no limit."""
    kill_timeout: Duration = 10.0
    """FSD or seconds between the signal that ends it then and SIGKILL."""

    def __post_init__(self) -> None:
        check_durations(self, "timeout", "kill_timeout")
        check_kill_timeout(self.kill_timeout)
        if not (self.prolog or self.epilog):
            raise ValueError("has neither prolog nor epilog: name the command that starts it")
        for name in ("prolog", "epilog"):
            command = getattr(self, name)
            # It is run as the instance's owner: which program that is must not depend on a PATH.
            check_absolute(name, command[0] if command else None)


class ContainersTable(Table, frozen=True):
    """Table `containers`, which is ours: what containers beside jobs may take of a machine."""

    memory: str | None = None
    """A capacity that all of them may hold together; None is half of the machine's memory."""
    user_memory: str | None = None
    """What those of one user may; None is half of that."""

    def __post_init__(self) -> None:
        for name in ("memory", "user_memory"):
            text = getattr(self, name)
            try:
                is_some = text is None or capacity.parse(text) > 0
            except UserMistake:
                is_some = False
            if not is_some:
                key = name.replace("_", "-")
                raise ValueError(f"{key}: {text!r} is not a capacity: write 64GiB, for example")

    def memory_limits(self, machine_bytes: int) -> tuple[int, int]:
        """Return the bytes for all, and for one user, on a machine with so much memory."""
        total = machine_bytes // 2 if self.memory is None else capacity.parse(self.memory)
        return total, total // 2 if self.user_memory is None else capacity.parse(self.user_memory)


class StorageTable(Table, frozen=True):
    """Table `storage`, which is ours: what nodes do about storage that is in use at its end."""

    busy_timeout: Duration = 30.0
    """FSD or seconds for which a process that still uses a job's storage is waited for."""
    busy_policy: Literal["kill", "keep"] = "kill"
    """Whether processes of the job's user are killed then. Others never are."""
    flash_quantum: str | None = None
    """A capacity in whole GiB, of which jobs get so many as they need; None is one pool."""
    scale: int | None = None
    """How finely sets are shared out of which no profile says so, from 1, as few allocations as
    hold them, to 10, one for each node; None is in proportion to the nodes on each rabbit."""
    most_allocations: Mapping[str, int] = {}
    """The most allocations of sets of which no profile says the number, by their labels."""

    placement: Literal["nodes", "any"] = "nodes"
    """Whether storage that nodes reach over the network is on rabbits of the job's own nodes
    alone, or on any where those have no room."""

    persistent_max: Duration | None = None
    """FSD or seconds for which persistent storage is kept at most; None is without end."""

    def __post_init__(self) -> None:
        check_durations(self, "busy_timeout")
        if self.persistent_max is not None:
            check_durations(self, "persistent_max")
        if self.scale is not None and not 1 <= self.scale <= 10:
            raise ValueError(f"scale: {self.scale} is not from 1 to 10")
        for label, most in self.most_allocations.items():
            if most < 1:
                raise ValueError(f"most-allocations.{label}: {most} is less than 1")
        if self.flash_quantum is not None and not self._quantum():
            raise ValueError(
                f"flash-quantum: {self.flash_quantum!r} is not a whole number of GiB: write 4GiB"
            )

    @property
    def max_lifetime(self) -> float | None:
        """Seconds for which persistent storage is kept at most; None is without end."""
        seconds = inf if self.persistent_max is None else tables.seconds(self.persistent_max)
        return seconds if seconds < _ENDLESS_LIFETIME else None

    @property
    def quantum_gib(self) -> int | None:
        """GiB of each piece that a rabbit's flash is given out in; None is one pool."""
        return None if self.flash_quantum is None else self._quantum()

    def _quantum(self) -> int:
        """Return the quantum in GiB; 0 where it is none."""
        try:
            gib, remainder = divmod(capacity.parse(self.flash_quantum or ""), GIB)
        except UserMistake:
            return 0
        return 0 if remainder else gib

    @property
    def busy_seconds(self) -> float:
        return tables.seconds(self.busy_timeout)
