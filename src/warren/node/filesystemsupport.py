"""What this machine can make file systems with: programs on PATH, and its kernel's file systems.

Looked at once: what is installed later counts when the agent is started again (ADR 090).
"""

import shutil
from pathlib import Path

from warren.dws.node import NodeTrouble
from warren.node import commands, filesystems
from warren.node.filesystems import DlmCluster

_PROC_FILESYSTEMS = Path("/proc/filesystems")


async def unsupported_types(cluster: DlmCluster | None = None) -> dict[str, str]:
    """Return the types of file systems that this machine does not make, each with the reason."""
    kernel_types = filesystems.kernel_types()
    supported = _registered(_PROC_FILESYSTEMS) & kernel_types
    # A type shows there only once its module is loaded, which mount(8) sees to.
    for name in sorted(kernel_types - supported):
        if await _has_module(name):
            supported.add(name)
    return filesystems.unsupported_types(is_installed, supported.__contains__, cluster)


def is_installed(program: str) -> bool:
    """Return whether a program is on PATH."""
    return shutil.which(program) is not None


def _registered(listing: Path) -> set[str]:
    """Return the file systems that the kernel has registered."""
    try:
        return {line.split()[-1] for line in listing.read_text().splitlines() if line.strip()}
    except OSError:
        return set()


async def _has_module(name: str) -> bool:
    """Return whether modprobe(8) would find a module for a file system; none is loaded."""
    try:
        await commands.run(["modprobe", "--dry-run", "--quiet", f"fs-{name}"])
    except NodeTrouble:
        return False
    return True
