"""What is left of tests that were killed, and goes all the same."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_REMOVE: Final = 'cat >/dev/null; umount -l "$1" 2>/dev/null; rm -df -- "$@"'
"""Unmount the first of some places and remove all of them, once the input ends."""


@contextmanager
def removed_at_the_end(*places: Path) -> Iterator[None]:
    """Have a place where something is mounted removed with the block, and others that hold it.

    It is done by another process, at the end of a pipe, also when this one is killed before.
    """
    with subprocess.Popen(
        ["sh", "-c", _REMOVE, "-", *map(str, places)],
        stdin=subprocess.PIPE,
        # What ends the tests by a signal to their group does not end it.
        start_new_session=True,
    ) as remover:
        yield
    assert remover.returncode == 0
