"""What fusermount(1) mounts for a user, in the mount namespace of any process, without its server.

As a program, in that namespace: USERID MOUNT_POINT…, each of which may be longer than a path. Their
servers end when standard input does, without an answer to anything.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest


def mount_dead(pid: int, userid: int, *points: Path | str) -> None:
    """Mount file systems of a user's whose server has ended; skip where there are none."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        pytest.skip(f"no FUSE server can be here: {error}")
    with mounted_silent(pid, userid, *points):
        pass


@contextmanager
def mounted_silent(pid: int, userid: int, *points: Path | str) -> Iterator[None]:
    """Mount file systems of a user's whose server answers nothing, and ends at last."""
    nsenter = ["nsenter", f"--target={pid}", "--mount"]
    program = [*nsenter, sys.executable, __file__, str(userid), *map(str, points)]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        if server.stdout.readline() == "":
            error = server.stderr.read()
            assert server.wait() == os.EX_UNAVAILABLE, error
            pytest.skip(f"no FUSE file system can be mounted: {error}")
        yield
        server.communicate()
        assert server.returncode == 0


def main(userid: str, points: Sequence[str]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    for point in points:
        server = os.open("/dev/fuse", os.O_RDWR)
        above, _, last = point.rpartition("/")
        for name in ("/", *filter(None, above.split("/"))):
            os.chdir(name)
        kind = "100000" if os.path.isfile(last) else "40000"
        options = f"fd={server},rootmode={kind},user_id={userid},group_id={userid}"
        if libc.mount(b"dead", os.fsencode(last), b"fuse.dead", 0, options.encode()) != 0:
            print(os.strerror(ctypes.get_errno()), file=sys.stderr)
            return os.EX_UNAVAILABLE
    print("mounted", flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
