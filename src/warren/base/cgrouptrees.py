"""The hierarchies of cgroups that this machine has (cgroups(7))."""

import os
from collections.abc import Iterator
from pathlib import Path

from warren.base import mountinfo


def find(version: int, controller: str, proc: Path) -> Iterator[tuple[Path, Path]]:
    """Return where hierarchies of a version are mounted, and where a process is in each.

    It is that of a directory of /proc. Of version 1, it is those of a controller; version 2 has
    one hierarchy, whose controllers are another question, and `controller` is empty.
    """
    mount_type = "cgroup2" if version == 2 else "cgroup"
    try:
        lines = os.fsdecode((proc / "cgroup").read_bytes()).split("\n")
        memberships = [line.split(":", 2) for line in lines if line]
        mounts = mountinfo.read(proc)
    except OSError:
        return
    for mount in mounts:
        if mount.type != mount_type:
            continue
        if controller and controller not in mount.super_options.split(","):
            continue
        for _, controllers, path in memberships:
            if controller in controllers.split(",") and path.startswith(mount.root):
                relative = path.removeprefix(mount.root).lstrip("/")
                yield Path(mount.point), Path(mount.point) / relative
