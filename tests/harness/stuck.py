"""A process that waits in execve(2), or at its end, for a file server that does not answer.

Most of /proc does not answer about it: so it does not live for long.
"""

import ctypes
import os
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.harness.leftovers import removed_at_the_end

MARKER = f"STUCK={os.getpid()}"
"""What such a process has in its environment, which cannot be seen."""

_libc = ctypes.CDLL(None, use_errno=True)
_FORCE, _DETACH = 1, 2
_GETATTR, _OPEN, _FLUSH, _INIT = 3, 14, 25, 26
_ENOSYS = 38

_EXECUTE = (
    "import os, sys; os.open(sys.argv[1], os.O_CLOEXEC); os.execv('/bin/sleep', ['sleep', '600'])"
)
_END = "import os, sys; os.open(sys.argv[1], os.O_CLOEXEC); os._exit(0)"


def in_exec(userid: int, cwd: str = "/") -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Have a process of a user wait in execve(2); skip where no FUSE server can be.

    It ends with the block at the latest.
    """
    return _stuck(_EXECUTE, userid, cwd)


def at_its_end(userid: int) -> AbstractContextManager["subprocess.Popen[bytes]"]:
    """Have a process of a user that ends by itself wait for its file to be closed; or skip."""
    return _stuck(_END, userid, "/")


@contextmanager
def _stuck(program: str, userid: int, cwd: str) -> Iterator["subprocess.Popen[bytes]"]:
    place = Path(tempfile.mkdtemp(prefix="stuck-", dir="/tmp"))
    place.chmod(0o755)
    file = place / "file"
    file.touch()
    name, _, value = MARKER.partition("=")
    with (
        removed_at_the_end(file, place),
        _mounted(file, userid) as flushed,
        subprocess.Popen(
            ["/usr/bin/env", "python3", "-c", program, str(file)],
            user=userid,
            group=userid,
            extra_groups=[],
            env={"PATH": "/usr/bin:/bin", name: value},
            cwd=cwd,
        ) as process,
    ):
        try:
            assert flushed.wait(60)
            yield process
        finally:
            _libc.umount2(os.fsencode(file), _FORCE)  # what waits for it goes on
            process.kill()


@contextmanager
def _mounted(file: Path, userid: int) -> Iterator[threading.Event]:
    """Mount a file whose server answers everything but that it may be closed."""
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no FUSE server can be here: {error}")
    options = f"fd={server},rootmode=100000,user_id={userid},group_id={userid}".encode()
    if _libc.mount(b"stuck", os.fsencode(file), b"fuse", 0, options) != 0:
        os.close(server)
        pytest.skip(f"no FUSE file system can be mounted: {os.strerror(ctypes.get_errno())}")
    flushed = threading.Event()
    serving = threading.Thread(target=_serve, args=(server, userid, flushed))
    serving.start()
    try:
        yield flushed
    finally:
        _libc.umount2(os.fsencode(file), _FORCE)
        _libc.umount2(os.fsencode(file), _DETACH)
        serving.join(10)
        os.close(server)


def _serve(server: int, userid: int, flushed: threading.Event) -> None:
    attributes = struct.pack(
        "<6Q10I", 1, *[0] * 5, *[0] * 3, 0o100444, 1, userid, userid, 0, 4096, 0
    )
    answers = {
        _INIT: struct.pack("<IIIIHHIIHH8I", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8),
        _GETATTR: struct.pack("<QII", 1, 0, 0) + attributes,
        _OPEN: struct.pack("<QII", 1, 0, 0),
    }
    try:
        while request := os.read(server, 2**17):
            _, opcode, unique = struct.unpack_from("<IIQ", request)
            if opcode == _FLUSH:
                flushed.set()
                continue
            body = answers.get(opcode, b"")
            error = 0 if body else -_ENOSYS
            os.write(server, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
    except OSError:
        pass  # it was aborted, or unmounted
