"""The hierarchies of cgroups that this machine has (cgroups(7))."""

import os
from collections.abc import Iterator
from pathlib import Path

from warren.base import mountinfo


def find(version: int, controller: str, proc: Path) -> Iterator[tuple[Path, Path]]:
    """Return where hierarchies of a version are mounted, and where a process is in each.

    The process is that of a directory of /proc. Of version 1, these are the hierarchies of a
    controller; version 2 has one, whose controllers are another question: `controller` is empty.
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
            if controller in controllers.split(",") and Path(path).is_relative_to(mount.root):
                relative = Path(path).relative_to(mount.root)
                yield Path(mount.point), Path(mount.point) / relative
