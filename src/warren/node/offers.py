"""Which types of file systems can be made on the block devices of this machine, and why not."""

import os
import shutil
from pathlib import Path
from typing import Final

from warren.dws.node import NodeTrouble, Volume
from warren.node import filesystems

_FILESYSTEMS: Final = Path("/proc/filesystems")


def lacking(file_system: str) -> str | None:
    """Return what a type of file system lacks here, programs or the kernel; None for nothing."""
    probe = Volume(group="", name="", size=0, file_system=file_system, userid=0, groupid=0)
    try:
        commands, _ = filesystems.make_commands(probe, "", "")
        mounted = filesystems.source(file_system, "")
    except NodeTrouble as trouble:
        return str(trouble)
    missing = sorted({argv[0] for argv in commands if shutil.which(argv[0]) is None})
    if missing:
        return f"{' and '.join(missing)}: not installed"
    if mounted.is_file:
        return None
    of_kernel = mounted.arguments[mounted.arguments.index("-t") + 1]
    return None if _kernel_has(of_kernel) else f"the kernel has no {of_kernel}"


def _kernel_has(file_system: str) -> bool:
    """Return whether the kernel has a file system, or modules, one of which may bring it."""
    if file_system in _FILESYSTEMS.read_text().split():
        return True
    return Path(f"/lib/modules/{os.uname().release}").is_dir()
