"""What a process sees mounted (proc_pid_mountinfo(5)).

Users choose names of mounts, and the kernel escapes blanks, tabs, line feeds and backslashes in
them alone: all else, such as bytes that are no text or other white space, is part of a name.
"""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

LONGEST_LINE: Final = 2**16
"""Bytes of a line of which `read_each` looks at all: any path that programs can name fits in."""
ENDED: Final = (errno.ENOENT, errno.ESRCH, errno.EINVAL)
"""What the table of a process that has ended fails with. Any other error says nothing of mounts.

A user can make a path of which the kernel has no memory to write the line (ENOMEM).
"""
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
    """Return the mounts that a process sees, which has this directory of /proc. Raises OSError.

    Left out are those at paths that are too long for any program, as users can make them.
    """
    with open_table(process_dir) as table:
        return [mount for mount in read_each(table) if mount.point]


def open_table(process_dir: Path) -> BinaryIO:
    """Return the table of the process that has this directory of /proc. Raises OSError."""
    return (process_dir / "mountinfo").open("rb", LONGEST_LINE)


def read_devices(process_dir: Path) -> Iterator[tuple[int, int]]:
    """Yield the ids and devices of all mounts that a process sees. Raises OSError."""
    with open_table(process_dir) as table:
        for mount in read_each(table):
            yield mount.id, mount.device


def read_each(table: BinaryIO) -> Iterator[Mount]:
    """Yield the mounts of a table, one line after the other, whatever their number and length.

    Of a line longer than LONGEST_LINE the root and the point are left out: "". Raises OSError, also
    after some mounts, where the kernel cannot write the next line.
    """
    while line := table.readline(LONGEST_LINE):
        end = line
        while not end.endswith(b"\n") and (more := table.readline(LONGEST_LINE)):
            end = end[-LONGEST_LINE:] + more
        if end is not line:
            # Blanks in names are escaped, and what comes after is shorter: the kernel bounds that.
            numbers = line.split(b" ", 3)[:3]
            line = b" ".join([*numbers, b"", b"", b"", b"-", end.rpartition(b" - ")[2]])
        yield parse(line.rstrip(b"\n"))


def parse(line: bytes) -> Mount:
    """Return what a line of the table says, which has no line feed."""
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
