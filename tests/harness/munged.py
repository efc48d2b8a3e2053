"""A munged of the tests' own: its key, its socket, and nothing that outlives the block."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = shutil.which("munged", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")

WHY_NOT = None if PROGRAM else "munged is not installed: tools/packages installs it as root"


@contextmanager
def running(directory: Path) -> Iterator[Path]:
    """Run one in a directory that all its users can reach; return the path of its socket."""
    assert PROGRAM is not None
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    key, socket = directory / "key", directory / "socket"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(128))
    files = {"key": key, "socket": socket}
    files |= {name: directory / name for name in ("pid", "log", "seed")}
    options = [f"--{name}{'' if name == 'socket' else '-file'}={at}" for name, at in files.items()]
    said = directory / "said"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [PROGRAM, "--foreground", *options], stdout=output, stderr=output
        )
    try:
        end = time.monotonic() + 120
        while not socket.is_socket():
            assert process.poll() is None, said.read_text()
            assert time.monotonic() < end, said.read_text()
            time.sleep(0.02)
        yield socket
    finally:
        process.terminate()
        process.wait(120)
