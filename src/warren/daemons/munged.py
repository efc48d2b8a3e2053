"""A munged for one cluster, with a key and a socket of its own, which does not outlive us."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from warren.base.errors import UserMistake

_TIMEOUT: Final = 120.0
"""Seconds that it may take to start, on a machine that has much else to do."""

_POLL_INTERVAL: Final = 0.02


def program() -> str | None:
    """Return the path of munged; None where it is not installed."""
    return shutil.which("munged", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@contextmanager
def running(directory: Path) -> Iterator[Path]:
    """Run one in a directory that all its users can reach; return the path of its socket.

    Raises UserMistake where it does not start.
    """
    munged = program()
    if munged is None:
        raise UserMistake("munged is not installed.")
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    key, socket = directory / "key", directory / "socket"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    files = {"key": key, "socket": socket}
    files |= {name: directory / name for name in ("pid", "log", "seed")}
    options = [
        f"--{name}{'' if name == 'socket' else '-file'}={path}" for name, path in files.items()
    ]
    output_file = directory / "said"
    with output_file.open("wb") as output:
        process = subprocess.Popen(
            # It ends with us, however we end.
            ["setpriv", "--pdeathsig", "TERM", munged, "--foreground", *options],
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + _TIMEOUT
        while not socket.is_socket():
            if process.poll() is not None or time.monotonic() > deadline:
                raise UserMistake(f"munged has not started: {output_file.read_text().strip()}")
            time.sleep(_POLL_INTERVAL)
        yield socket
    finally:
        process.terminate()
        process.wait(_TIMEOUT)
