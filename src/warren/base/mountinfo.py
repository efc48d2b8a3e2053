"""What a process sees mounted (proc_pid_mountinfo(5)).

Users choose names of mounts, and the kernel escapes blanks, tabs, line feeds and backslashes in
them alone: all else, such as bytes that are no text or other white space, is part of a name.
"""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

_FIRST_OPTIONAL_FIELD: Final = 6


class Mount(NamedTuple):
    """A line of the table."""

    id: int
    parent_id: int
    device: int
    root: str
    """What of its file system is mounted."""
    point: str
    type: str
    super_options: str
    """Of the file system, separated by commas."""


def read(process_dir: Path) -> list[Mount]:
    """Return the mounts that a process sees, which has this directory of /proc. Raises OSError."""
    table = (process_dir / "mountinfo").read_bytes()
    return [_mount(line) for line in table.split(b"\n") if line]


def _mount(line: bytes) -> Mount:
    fields = line.split(b" ")
    major, _, minor = fields[2].partition(b":")
    separator = fields.index(b"-", _FIRST_OPTIONAL_FIELD)
    return Mount(
        id=int(fields[0]),
        parent_id=int(fields[1]),
        device=os.makedev(int(major), int(minor)),
        root=_unescape(fields[3]),
        point=_unescape(fields[4]),
        type=_unescape(fields[separator + 1]),
        super_options=_unescape(fields[separator + 3]),
    )


def _unescape(field: bytes) -> str:
    if b"\\" in field:
        field = re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), field)
    return os.fsdecode(field)
