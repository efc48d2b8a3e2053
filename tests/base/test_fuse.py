"""FUSE servers that do not answer, and processes that wait for them."""

import ctypes
import os
import struct
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness import stuck
from tests.harness.leftovers import removed_at_the_end
from tests.harness.users import TEST_USER
from tests.node.processes import eventually
from warren.base import fuse, processes, tracers

_libc = ctypes.CDLL(None, use_errno=True)
_FORCE, _DETACH = 1, 2
_INIT = 26


@dataclass
class Silent:
    """A file system, and whether anything was asked of it."""

    place: Path
    asked: threading.Event


@pytest.fixture
def silent() -> Iterator[Silent]:
    """A file system of a user's whose server answers nothing after the start."""
    with silent_of(TEST_USER) as found:
        yield found


@contextmanager
def silent_of(userid: int, alone: Path | None = None) -> Iterator[Silent]:
    """Have such a file system of any user's: for all users, or at a place for that user `alone`."""
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"no FUSE server can be here: {error}")
    place = alone or Path(tempfile.mkdtemp(prefix="silent-", dir="/tmp"))
    options = f"fd={server},rootmode=40000,user_id={userid},group_id={userid}"
    if alone is None:
        place.chmod(0o755)
        options += ",allow_other"
    # The place of a user alone is the test's, and below it there may be another file system.
    with removed_at_the_end(place) if alone is None else nullcontext():
        if _libc.mount(b"silent", os.fsencode(place), b"fuse", 0, options.encode()) != 0:
            os.close(server)
            pytest.skip(f"no FUSE file system can be mounted: {os.strerror(ctypes.get_errno())}")

        asked = threading.Event()

        serving = threading.Thread(target=_serve, args=(server, asked))
        serving.start()
        try:
            yield Silent(place, asked)
        finally:
            # Whatever waits for it still goes on. Once: below it there may be another file system.
            _libc.umount2(os.fsencode(place), _FORCE | _DETACH)
            serving.join(10)
            os.close(server)


def _serve(server: int, asked: threading.Event) -> None:
    try:
        while request := os.read(server, 2**17):
            _, opcode, unique = struct.unpack_from("<IIQ", request)
            if opcode == _INIT:
                body = struct.pack("<IIIIHHIIHH8I", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8)
                os.write(server, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
            else:
                asked.set()
    except OSError:
        pass  # it was aborted, or unmounted


def states(process: int) -> list[str]:
    """The states of a process's threads."""
    threads = Path(f"/proc/{process}/task").iterdir()
    return [(each / "stat").read_text().rpartition(")")[2].split()[0] for each in threads]


# The first looks by itself, the second by a thread whose process's first one ends, and the third
# at what is mounted nowhere any more.
LOOKS = {
    "itself": "os.listdir(sys.argv[1])",
    "by another thread": "threading.Thread(target=os.listdir, args=sys.argv[1:]).start()",
    "after it was unmounted": "here = os.open(sys.argv[1], os.O_PATH); print(flush=True); "
    "sys.stdin.readline(); os.stat('x', dir_fd=here)",
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_waits_for_a_silent_server_dies_when_the_server_is_given_up(
    silent: Silent, look: str
) -> None:
    code = f"import os, sys, threading; {look}"
    with subprocess.Popen(
        ["/usr/bin/env", "python3", "-c", code, str(silent.place)],
        user=TEST_USER,
        group=TEST_USER,
        extra_groups=[],
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if "O_PATH" in look:
                assert process.stdout.readline() == b"\n"
                _libc.umount2(os.fsencode(silent.place), _DETACH)
                process.stdin.write(b"\n")
                process.stdin.flush()
            assert silent.asked.wait(60)
            process.kill()
            eventually(lambda: "D" in states(process.pid))

            # It is not another user's, and is not what those wait for that can be killed.
            assert fuse.abort_servers([process.pid], TEST_USER + 1) == []
            assert fuse.abort_servers([process.pid], 0) == []
            assert fuse.abort_servers([os.getpid()], TEST_USER) == []
            assert "D" in states(process.pid)
            assert len(fuse.abort_servers([process.pid], TEST_USER)) == 1
            assert process.wait(60) == -9
        finally:
            _libc.umount2(os.fsencode(silent.place), _FORCE)  # it ends in any case
            process.kill()


LOOKS_LATER = "import os, sys; print(flush=True); sys.stdin.readline(); os.listdir(sys.argv[1])"


@contextmanager
def looking_later(place: Path, *start: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Have a process that tells when it is there, and looks at a place once it is told to."""
    with subprocess.Popen(
        [*start, "/usr/bin/env", "python3", "-c", LOOKS_LATER, str(place)],
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            _libc.umount2(os.fsencode(place), _FORCE)  # it ends in any case
            process.kill()


def let_look(process: "subprocess.Popen[bytes]", at: Silent) -> None:
    """Let it look and be killed, which it does not die of."""
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert at.asked.wait(60)
    process.kill()
    eventually(lambda: "D" in states(process.pid))


def test_servers_of_another_user_that_only_the_same_node_sees_go_on() -> None:
    become = ["setpriv", f"--reuid={TEST_USER}", f"--regid={TEST_USER}", "--clear-groups"]
    node = ["unshare", "--mount", "--propagation", "private"]
    with (
        silent_of(TEST_USER) as mine,
        silent_of(TEST_USER + 1) as others,
        looking_later(mine.place, *node, *become) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        _libc.umount2(os.fsencode(others.place), _DETACH)  # only the process sees it now
        let_look(process, mine)

        assert len(fuse.abort_servers([process.pid], TEST_USER)) == 1
        assert process.wait(60) == -9


def test_servers_of_the_subordinate_ids_of_a_user_namespace_are_given_up() -> None:
    become = ["setpriv", f"--reuid={TEST_USER}", f"--regid={TEST_USER}", "--clear-groups"]
    subordinate = TEST_USER + 16
    maps = 'read line; exec "$@"'
    with (
        silent_of(subordinate + 3) as mine,
        silent_of(TEST_USER + 1),
        looking_later(mine.place, *become, "unshare", "--user", "sh", "-c", maps, "-") as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        own = Path("/proc/self/ns/user").readlink()
        eventually(lambda: Path(f"/proc/{process.pid}/ns/user").readlink() != own)
        Path(f"/proc/{process.pid}/uid_map").write_text(f"0 {TEST_USER} 1\n1 {subordinate} 10\n")
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"\n"
        let_look(process, mine)

        assert len(fuse.abort_servers([process.pid], TEST_USER)) == 1
        assert process.wait(60) == -9


def test_what_waits_for_a_server_in_the_middle_of_execve_dies_when_the_server_is_given_up() -> None:
    with stuck.in_exec(TEST_USER) as process:
        process.kill()
        eventually(lambda: process_status(process.pid).startswith("D"))

        assert fuse.abort_servers([process.pid], TEST_USER + 1) == []
        assert process_status(process.pid).startswith("D")
        assert len(fuse.abort_servers([process.pid], TEST_USER)) == 1
        assert process.wait(60) == -9


def test_what_waits_for_a_server_at_its_own_end_dies_when_the_server_is_given_up() -> None:
    """It waits as if it could be killed, and cannot be: nor does a tracer hold it."""
    with stuck.at_its_end(TEST_USER) as process:
        eventually(lambda: process_status(process.pid).startswith("S"))
        process.kill()
        assert not tracers.is_over(process.pid)

        assert fuse.abort_servers([process.pid], TEST_USER + 1) == []
        assert process_status(process.pid).startswith("S")
        assert len(fuse.abort_servers([process.pid], TEST_USER)) == 1
        assert process.wait(60) == 0


def process_status(process: int) -> str:
    """The state of a process, which does not answer much else."""
    return processes.process_status(Path(f"/proc/{process}"))["State"]


# Whether there is any


def test_without_the_control_file_system_there_may_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("", "nowhere", "no/where"):
        monkeypatch.setattr(fuse, "_CONTROL", tmp_path / each)
        assert fuse.may_be_mounted()


def test_where_sysfs_knows_of_no_fuse_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuse, "_CONTROL", Path("/sys/fs/no/connections"))
    assert fuse.may_be_mounted() == (not os.path.ismount("/sys"))
    monkeypatch.setattr(fuse, "_CONTROL", Path("/sys/fs/connections"))  # it is said otherwise
    assert fuse.may_be_mounted()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts it")
def test_the_control_file_system_says_whether_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuse, "_CONTROL", tmp_path)
    command = ["mount", "-t", "fusectl", "none", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"the control file system cannot be mounted: {done.stderr}")
    try:
        with silent_of(TEST_USER):
            assert fuse.may_be_mounted()
        # Others of this machine may have some.
        assert fuse.may_be_mounted() == any(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
