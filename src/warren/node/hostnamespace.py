"""The mount namespace of a machine that is one node: what its agent mounts, all of it sees.

Nothing holds it, and nothing ends it but the machine: an agent that is stopped leaves every mount
as it is.
"""

from pathlib import Path
from typing import Final

from warren.node import mountpoints

_ROOT: Final = Path("/proc/self/root")


class HostNamespace:
    """The namespace in which this process is. What is below `prefix` is its agent's."""

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix

    @property
    def prefix(self) -> Path:
        return self._prefix

    @property
    def root(self) -> Path | None:
        return _ROOT

    async def nsenter_command(self) -> list[str]:
        return []

    def mounts_below_prefix(self) -> set[str]:
        return set(mountpoints.mount_points_below(str(self._prefix)))

    def mount_id(self, path: str) -> int | None:
        return mountpoints.mount_id(path)
