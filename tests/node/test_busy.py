"""What is in use when it is to be given back: waited for, then taken away."""

import asyncio
import errno
import fcntl
import inspect
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tests.base.test_fuse import silent_of
from tests.harness import stuck
from tests.harness.users import TEST_USER
from tests.node import rings
from tests.node.conftest import Nodes
from tests.node.copied import User
from tests.node.processes import eventually
from warren.base import fuse, mountinfo
from warren.base.bytesize import MIB
from warren.base.mountinfo import Mount
from warren.base.processes import process_status
from warren.dws.node import CannotBeCutOff, InUse, Kept, NodeTrouble, Volume
from warren.node import blocks, busy, commands, openfiles, usage
from warren.node.blocks import BlockFlash
from warren.node.busy import BusyPolicy, GracePeriod
from warren.node.directory import DirectoryFlash
from warren.node.loopdisk import LoopDisk
from warren.node.namespacednode import NamespacedNode
from warren.node.namespaces import HeldMountNamespace

SIZE = 32 * MIB
SECONDS = 30.0

XFS_IOC_GOINGDOWN = 0x8004587D

MODULES = "import array, ctypes, mmap, os, pathlib, signal, socket, struct, threading, time"

NO_IDS = 2**22
"""No process has an id from here on (PID_MAX_LIMIT)."""

HOLD = {
    "a file": "f = open('data')",
    "a mapped file": "f = open('data'); m = mmap.mmap(f.fileno(), 0, prot=1); f.close()",
    "a directory": "f = os.open('.', os.O_RDONLY)",
    "the name of a socket": "s = socket.socket(socket.AF_UNIX); s.bind('name'); os.chdir('/')",
    "a connection that was made to a name": """
s = socket.socket(socket.AF_UNIX)
s.bind("name")
s.listen()
caller = socket.socket(socket.AF_UNIX)
caller.connect("name")
f, _ = s.accept()
s.close()
os.unlink("name")
os.chdir("/")
""",
    "the name of a socket of another network": """
c = ctypes.CDLL(None, use_errno=True)
assert c.unshare(0x40000000 | (os.geteuid() and 0x10000000)) == 0, ctypes.get_errno()
s = socket.socket(socket.AF_UNIX)
s.bind("name")
os.chdir("/")
""",
    "the name of a socket of another thread": """
c = ctypes.CDLL(None, use_errno=True)
def hold():
    assert c.unshare(0x400) == 0, ctypes.get_errno()
    threading.Event().wait()
s = socket.socket(socket.AF_UNIX)
s.bind("name")
threading.Thread(target=hold).start()
time.sleep(0.5)
s.close()
os.chdir("/")
""",
}
"""What keeps a file system busy, for a process that stands in it."""


@dataclass
class Time:
    """A clock that stands still."""

    seconds: float = 1000.0

    def now(self) -> float:
        return self.seconds


def _in_place(process: "subprocess.Popen[bytes]") -> "Iterator[subprocess.Popen[bytes]]":
    """Yield a process once it has said that it is where it is to be; kill it in the end."""
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        yield process
    finally:
        process.kill()


@dataclass
class Rabbit:
    """A rabbit that is its own compute node, with a volume of a user's mounted on it."""

    root: Path
    nodes: Nodes
    user: User
    policy: BusyPolicy = "kill"
    clock: Time = field(default_factory=Time)
    file_system: str = "ext4"
    size: int = SIZE

    def __post_init__(self) -> None:
        grace_period = GracePeriod(seconds=SECONDS, policy=self.policy, clock=self.clock)
        disk = LoopDisk("node1", self.root / "node1", 4 * self.size, None)
        self.disk = disk
        self.blocks = BlockFlash(lambda rabbit: disk, self.root, grace_period=grace_period)
        self.machine = NamespacedNode("node1", self.blocks, self.nodes.namespace(), grace_period)
        self.path = str(self.nodes.prefix / "of a job")

    def mount(self) -> None:
        asyncio.run(self._mount())
        seen = Path(f"{self.nodes.namespace().root}{self.path}/data")
        seen.write_bytes(bytes(4096))
        seen.chmod(0o644)
        os.chown(seen, self.user.userid, self.user.groupid)

    async def _mount(self) -> None:
        volume = Volume(
            rabbit="node1",
            name="a",
            size=self.size,
            file_system=self.file_system,
            userid=self.user.userid,
            groupid=self.user.groupid,
        )
        await self.machine.make(volume)
        await self.machine.mount("node1", "a", self.file_system, self.path)

    def unmount(self) -> None:
        asyncio.run(self.machine.unmount(self.path, self.user.userid))

    def unmount_at_last(self) -> None:
        """Unmount, however long that is to be waited for."""
        with suppress(InUse):
            self.unmount()
        self.clock.seconds += SECONDS
        self.unmount()

    def release(self) -> None:
        asyncio.run(self.machine.release("node1", "a"))

    def volumes(self) -> list[str]:
        return list(self.disk.volumes())

    @contextmanager
    def used(self, code: str, *, userid: int | None = None) -> Iterator["subprocess.Popen[bytes]"]:
        """Have a process stand in the volume, and run some code there."""
        nsenter = asyncio.run(self.nodes.namespace().nsenter_command())
        become = f"os.setgroups([]); os.setresuid({userid}, {userid}, {userid})" if userid else ""
        # Before the change of user, who may not find the modules.
        lines = [MODULES, "signal.alarm(600)", become, code]
        program = "\n".join([*lines, "print('in', flush=True)", "time.sleep(600)"])
        # Root may go where the user may not: the directories of tests are shut to others.
        stand = ["sh", "-c", 'cd "$0" && exec "$@"', self.path, sys.executable, "-c", program]
        with subprocess.Popen([*nsenter, *stand], stdout=subprocess.PIPE) as process:
            yield from _in_place(process)


@pytest.fixture
def user() -> User:
    """A user of these tests' alone: of one whose storage is kept unseen, all may be suspected."""
    userid = TEST_USER if os.geteuid() == 0 else os.geteuid()
    return User(userid, userid)


@pytest.fixture
def rabbit(loop_devices: Path, nodes: Nodes, user: User) -> Iterator[Rabbit]:
    rabbit = Rabbit(loop_devices, nodes, user)
    rabbit.mount()
    yield rabbit
    rabbit.clock.seconds += 2 * SECONDS
    if rabbit.path in nodes.mounts():
        rabbit.unmount()
    eventually(lambda: _released(rabbit))


def _released(rabbit: Rabbit) -> bool:
    try:
        rabbit.release()
    except NodeTrouble:
        return False
    return rabbit.volumes() == []


def test_what_is_in_use_is_waited_for_and_the_process_is_named(rabbit: Rabbit) -> None:
    with rabbit.used("", userid=rabbit.user.userid) as process:
        for _ in range(2):
            with pytest.raises(InUse, match=f"in use by process {process.pid} ") as caught:
                rabbit.unmount()
            rabbit.clock.seconds += SECONDS - 20

        assert caught.value.as_error()["severity"] == "Minor"
        assert rabbit.nodes.mounts() == {rabbit.path}
        assert process.poll() is None


@pytest.mark.parametrize("what", HOLD)
def test_a_process_of_the_jobs_user_is_killed_when_the_time_is_over(
    rabbit: Rabbit, what: str
) -> None:
    with rabbit.used(HOLD[what], userid=rabbit.user.userid) as process:
        with pytest.raises(InUse):
            rabbit.unmount()
        rabbit.clock.seconds += SECONDS
        rabbit.unmount()

        assert process.wait(120) == -9
    assert rabbit.nodes.mounts() == set()
    rabbit.release()
    assert rabbit.volumes() == []


@pytest.mark.parametrize("what", HOLD)
def test_a_process_of_another_user_keeps_the_flash_and_not_the_node(
    rabbit: Rabbit, what: str
) -> None:
    with rabbit.used(HOLD[what]) as process:
        with pytest.raises(InUse):
            rabbit.unmount()
        rabbit.clock.seconds += SECONDS
        rabbit.unmount()
        assert rabbit.nodes.mounts() == set()

        with pytest.raises(InUse, match=f"node1/a is in use by process {process.pid} "):
            rabbit.release()
        rabbit.clock.seconds += SECONDS
        with pytest.raises(Kept, match=rf"is kept by process {process.pid} \(python") as end:
            rabbit.release()

        assert not isinstance(end.value, InUse)
        assert not end.value.fatal
        assert process.poll() is None
        assert rabbit.volumes() == ["a"]
        users = asyncio.run(rabbit.blocks.processes_using("node1", "a"))
        assert [each.pid for each in users] == [process.pid]
    eventually(lambda: _released(rabbit))


def test_a_socket_on_a_file_system_that_has_failed_keeps_no_other_jobs_flash(
    loop_devices: Path, nodes: Nodes, user: User
) -> None:
    rabbit = Rabbit(loop_devices, nodes, user, file_system="xfs", size=320 * MIB)
    rabbit.mount()
    there = f"{nodes.namespace().root}{rabbit.path}"
    with rabbit.used(HOLD["the name of a socket"], userid=user.userid):
        opened = os.open(there, os.O_RDONLY)
        try:
            fcntl.ioctl(opened, XFS_IOC_GOINGDOWN, struct.pack("=I", 0))
        finally:
            os.close(opened)
        with pytest.raises(OSError, match="Input/output error"):
            os.stat(there)

        # As is asked about any flash that is in use.
        assert usage.processes_using_devices([str(rabbit.root / "of another")]) == []
    rabbit.unmount_at_last()
    eventually(lambda: _released(rabbit))


def test_nothing_is_killed_where_the_site_does_not_want_it(
    loop_devices: Path, nodes: Nodes, user: User
) -> None:
    rabbit = Rabbit(loop_devices, nodes, user, policy="keep")
    rabbit.mount()
    with rabbit.used("", userid=user.userid) as process:
        with pytest.raises(InUse):
            rabbit.unmount()
        rabbit.clock.seconds += SECONDS
        rabbit.unmount()

        assert nodes.mounts() == set()
        assert process.poll() is None
    eventually(lambda: _released(rabbit))


def test_a_copy_of_the_mount_in_a_namespace_of_the_users_own_is_found(rabbit: Rabbit) -> None:
    # Out of the volume, with nothing open in it: only the namespace keeps it, at another place,
    # for with its mount point goes what is mounted there.
    inside = """
c = ctypes.CDLL(None, use_errno=True)
assert c.unshare(0x10000000 | 0x00020000) == 0, ctypes.get_errno()
assert c.mount(b".", b"/mnt", None, 4096, None) == 0, ctypes.get_errno()
os.chdir("/")
"""
    with rabbit.used(inside, userid=rabbit.user.userid) as process:
        rabbit.unmount()
        with pytest.raises(InUse, match=f"in use by process {process.pid} "):
            rabbit.release()
        rabbit.clock.seconds += SECONDS
        eventually(lambda: _released(rabbit))
        assert process.wait(120) == -9


HIDE = {
    "the descriptors of another thread": """
def hold():
    assert c.unshare(0x400) == 0, ctypes.get_errno()
    threading.Event().wait()
f = os.open("data", os.O_RDONLY)
threading.Thread(target=hold).start()
time.sleep(0.5)
os.close(f)
os.chdir("/")
""",
    "a process whose first thread has ended": """
f = os.open("data", os.O_RDONLY)
os.chdir("/")
threading.Thread(target=threading.Event().wait).start()
print("in", flush=True)
c.syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
""",
    "a socket from which it was not received": """
sending, receiving = socket.socketpair()
f = os.open("data", os.O_RDONLY)
socket.send_fds(sending, [b"f"], [f])
os.close(f)
os.chdir("/")
""",
    "a mapped file of an overlay that is mounted nowhere": """
sending, receiving = socket.socketpair()
if os.fork() == 0:
    assert c.unshare(0x10000000 | 0x00020000) == 0, ctypes.get_errno()
    made_of = b"lowerdir=.:/usr/share"
    assert c.mount(b"overlay", b"/mnt", b"overlay", 0, made_of) == 0, ctypes.get_errno()
    socket.send_fds(sending, [b"f"], [os.open("/mnt/data", os.O_RDONLY)])
    os._exit(0)
sending.close()
_, (f,), _, _ = socket.recv_fds(receiving, 1, 1)
os.wait()
m = mmap.mmap(f, 0, prot=1)
os.close(f)
os.chdir("/")
""",
    "a mount namespace without processes": """
sending, receiving = socket.socketpair()
if os.fork() == 0:
    assert c.unshare(0x10000000 | 0x00020000) == 0, ctypes.get_errno()
    assert c.mount(b".", b"/mnt", None, 4096, None) == 0, ctypes.get_errno()
    socket.send_fds(sending, [b"f"], [os.open("/proc/self/ns/mnt", os.O_RDONLY)])
    os._exit(0)
held = socket.recv_fds(receiving, 1, 1)
os.wait()
os.chdir("/")
""",
}
"""What keeps a file system busy and is not among a process's files, or no file at all."""


@pytest.mark.parametrize("where", HIDE)
def test_what_a_user_hides_from_proc_keeps_no_flash(rabbit: Rabbit, where: str) -> None:
    code = f"c = ctypes.CDLL(None, use_errno=True)\n{HIDE[where]}"
    with rabbit.used(code, userid=rabbit.user.userid) as process:
        for giving_back in (rabbit.unmount, rabbit.release):
            with suppress(InUse):
                giving_back()
            rabbit.clock.seconds += SECONDS
            eventually(partial(_done, giving_back))

        # What is not seen to use it is not killed, where the flash can be had without that.
        assert process.wait(60) == -9 if where in SEEN else process.poll() is None
    assert rabbit.volumes() == []
    eventually(lambda: rabbit.disk.loops() == [])


SEEN = ("the descriptors of another thread", "a process whose first thread has ended")


INNOCENT = """
import os, socket, time
sending, receiving = socket.socketpair()
socket.send_fds(sending, [b"n"], [os.open("/dev/null", os.O_RDONLY)])
print("in", flush=True)
time.sleep(600)
"""
"""Has a descriptor under way that is none of any storage's."""


@contextmanager
def innocent(user: User) -> Iterator["subprocess.Popen[bytes]"]:
    """Have a process of a user's that might keep storage, for all that /proc tells."""
    command = ["/usr/bin/env", "python3", "-c", INNOCENT]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, user=user.userid, extra_groups=[], cwd="/"
    ) as process:
        yield from _in_place(process)


def test_no_user_has_processes_of_the_jobs_user_killed_by_a_copy_of_a_nodes_namespace(
    rabbit: Rabbit,
) -> None:
    # As a job of another user's can make it on the same node, who cannot even enter the volume.
    copied = HIDE["a mount namespace without processes"].replace('b"."', 'b"/proc/self/cwd"')
    code = f"c = ctypes.CDLL(None, use_errno=True)\n{copied}"
    with innocent(rabbit.user) as other, rabbit.used(code, userid=rabbit.user.userid + 1):
        rabbit.unmount_at_last()
        with pytest.raises(InUse, match="in use by something that /proc does not show"):
            rabbit.release()
        assert asyncio.run(rabbit.blocks.processes_using("node1", "a")) == []
        rabbit.clock.seconds += SECONDS
        with suppress(NodeTrouble):  # where the kernel does not take it
            rabbit.release()
            assert other.poll() is None
    eventually(lambda: _released(rabbit))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs jobs of other users")
def test_what_a_shell_has_open_of_the_machine_is_nothing_that_it_hides(
    nodes: Nodes, user: User, tmp_path: Path
) -> None:
    nsenter = asyncio.run(nodes.namespace().nsenter_command())
    become = ["setpriv", f"--reuid={user.userid}", "--clear-groups", "sleep", "600"]
    (tmp_path / "log").touch()
    with (
        (tmp_path / "log").open() as log,
        subprocess.Popen([*nsenter, *become], stdin=log) as process,
    ):
        try:
            eventually(lambda: _command(process.pid) == "sleep")
            assert usage.processes_with_hidden_files(user.userid) == []
        finally:
            process.kill()


UNSEEN = f"""
{inspect.getsource(rings)}
ring = Ring("data")
os.chdir("/")
# Nor is a file of the machine's mounts open, which are other ones than the node's.
null = os.open("/dev/null", os.O_RDWR)
os.dup2(null, 0)
os.dup2(null, 2)
os.close(null)
"""


@pytest.fixture
def unseen(tmp_path: Path) -> str:
    """What keeps a file of which /proc tells nothing."""
    missing = rings.why_not(tmp_path)
    if missing is not None:
        pytest.skip(missing)
    return UNSEEN


def test_of_flash_that_is_kept_unseen_all_processes_of_its_user_are_suspected(
    loop_devices: Path, nodes: Nodes, user: User, unseen: str
) -> None:
    rabbit = Rabbit(loop_devices, nodes, user, policy="keep")
    rabbit.mount()
    with rabbit.used(unseen, userid=user.userid) as process:
        rabbit.unmount_at_last()
        with pytest.raises(InUse, match="node1/a is in use by something that /proc does not show"):
            rabbit.release()
        assert asyncio.run(rabbit.blocks.processes_using("node1", "a")) == []
        suspects = asyncio.run(rabbit.blocks.processes_of_owner("node1", "a"))
        assert [each.pid for each in suspects] == [process.pid]

        rabbit.clock.seconds += SECONDS
        with pytest.raises(Kept, match="is kept by something that /proc does not show"):
            rabbit.release()
        assert rabbit.volumes() == ["a"]
    eventually(lambda: _released(rabbit))
    assert asyncio.run(rabbit.blocks.processes_of_owner("node1", "a")) == []


def _done(action: Callable[[], None]) -> bool:
    try:
        action()
    except NodeTrouble:
        return False
    return True


READ_AND_WRITE = """
def tell(*_):
    for action in (lambda: ring.read(0), lambda: ring.write(0, bytes(4096))):
        try:
            print("done", (action() or b"")[:4], flush=True)
        except OSError as error:
            print(error.strerror, flush=True)
signal.signal(signal.SIGUSR1, tell)
"""


def asked(process: "subprocess.Popen[bytes]") -> list[bytes]:
    """Have a process read and write what it keeps open, and return what comes of either."""
    assert process.stdout is not None
    process.send_signal(signal.SIGUSR1)
    return [process.stdout.readline() for _ in range(2)]


def test_flash_that_is_kept_unseen_is_taken_and_its_next_user_has_it_alone(
    rabbit: Rabbit, unseen: str
) -> None:
    with rabbit.used(unseen + READ_AND_WRITE, userid=rabbit.user.userid) as process:
        rabbit.unmount_at_last()
        assert asked(process) == [b"done b'\\x00\\x00\\x00\\x00'\n", b"done b''\n"]
        with pytest.raises(InUse, match="in use by something that /proc does not show"):
            rabbit.release()
        (before,) = rabbit.disk.loops()
        rabbit.clock.seconds += SECONDS
        try:
            rabbit.release()
        except NodeTrouble as trouble:
            if "cannot be cut off" in str(trouble):
                process.kill()
                pytest.skip(str(trouble))
            raise
        assert rabbit.volumes() == []
        (cut_off,) = rabbit.disk.loops()
        assert (cut_off.device, cut_off.is_cut_off) == (before.device, True)
        assert rabbit.disk.strays() == [cut_off]

        device = asyncio.run(next_volume(rabbit))
        (after,) = (loop for loop in rabbit.disk.loops() if loop.device == device)
        assert (after.offset, after.size) == (before.offset, before.size)
        secret = b"s" * SIZE
        Path(device).write_bytes(secret)
        # ext4 says "Read-only file system" once it has noticed, and an error until then.
        assert [answer for answer in asked(process) if answer.startswith(b"done")] == []
        os.sync()
        assert Path(device).read_bytes() == secret
        assert process.poll() is None
        asyncio.run(rabbit.machine.release("node1", "b"))
    eventually(lambda: rabbit.disk.loops() == [])


@pytest.mark.parametrize("trouble", [NodeTrouble("it is busy"), CannotBeCutOff("it is busy")])
def test_what_may_keep_flash_is_ended_only_if_that_can_never_be_cut_off(
    rabbit: Rabbit, unseen: str, monkeypatch: pytest.MonkeyPatch, trouble: NodeTrouble
) -> None:
    suspected: list[int] = []

    async def cut_off(name: str) -> None:
        raise trouble

    def with_hidden_files(userid: int) -> list[usage.Process]:
        suspected.append(userid)
        return []

    with rabbit.used(unseen + READ_AND_WRITE, userid=rabbit.user.userid) as process:
        rabbit.unmount_at_last()
        with pytest.raises(InUse):
            rabbit.release()
        rabbit.clock.seconds += SECONDS
        with monkeypatch.context() as patched:
            patched.setattr(rabbit.disk, "cut_off", cut_off)
            patched.setattr(blocks, "processes_with_hidden_files", with_hidden_files)
            with pytest.raises(NodeTrouble, match="it is busy"):
                rabbit.release()
        assert bool(suspected) == isinstance(trouble, CannotBeCutOff)
        assert process.poll() is None
        process.kill()


async def next_volume(rabbit: Rabbit) -> str:
    """Make a bare device of root's where there is room for one; return it."""
    volume = Volume(rabbit="node1", name="b", size=SIZE, file_system="raw", userid=0, groupid=0)
    await rabbit.machine.make(volume)
    return (await rabbit.blocks.source("node1", "b", "raw")).arguments[-1]


@pytest.mark.parametrize("what", ["a file", "a mapped file", "the name of a socket"])
def test_flash_that_another_user_was_given_is_taken_and_the_process_left_alone(
    rabbit: Rabbit, what: str
) -> None:
    with rabbit.used(HOLD[what] + OTHER_USER.format(rabbit.user.userid + 1)) as process:
        rabbit.unmount_at_last()
        with pytest.raises(InUse, match="in use by something that /proc does not show as root's"):
            rabbit.release()
        rabbit.clock.seconds += SECONDS
        _take(rabbit, process)

        assert rabbit.volumes() == []
        assert process.poll() is None
    eventually(lambda: rabbit.disk.loops() == [])


OTHER_USER = """
os.setgroups([])
os.setresuid(*3 * ({},))
"""
"""Become a user who cannot have opened the volume, with what is open of it."""


def _take(rabbit: Rabbit, process: "subprocess.Popen[bytes]") -> None:
    try:
        rabbit.release()
    except NodeTrouble as trouble:
        if "cannot be cut off" not in str(trouble):
            raise
        process.kill()
        pytest.skip(str(trouble))


HOLD_UNKILLED = {
    "a descriptor that only names the directory": "f = os.open('.', os.O_PATH); os.chdir('/')",
    "a descriptor on its way in a socket": f"""
c = ctypes.CDLL(None)
{HIDE["a socket from which it was not received"]}
""",
    "a file that is only mapped": f"{HOLD['a mapped file']}; os.chdir('/')",
}
"""By what any user can keep the storage of others in use, for ever: it is never killed."""


@pytest.mark.parametrize("what", HOLD_UNKILLED)
def test_what_only_another_user_uses_is_taken_after_a_moment_and_nothing_killed(
    rabbit: Rabbit, what: str
) -> None:
    other_user = OTHER_USER.format(rabbit.user.userid + 1)
    with rabbit.used(HOLD_UNKILLED[what] + other_user) as process:
        with pytest.raises(InUse) as in_use:
            rabbit.unmount()
        rabbit.clock.seconds += in_use.value.delay
        rabbit.unmount()
        assert rabbit.nodes.mounts() == set()

        with pytest.raises(InUse) as in_use:
            rabbit.release()
        rabbit.clock.seconds += in_use.value.delay
        _take(rabbit, process)

        assert rabbit.clock.seconds < 1000 + SECONDS
        assert rabbit.volumes() == []
        assert process.poll() is None
    eventually(lambda: rabbit.disk.loops() == [])


@pytest.mark.parametrize("what", HOLD_UNKILLED)
def test_what_the_jobs_user_uses_has_all_its_time_seen_or_not(rabbit: Rabbit, what: str) -> None:
    with rabbit.used(HOLD_UNKILLED[what], userid=rabbit.user.userid) as process:
        for _ in range(2):
            with pytest.raises(InUse):
                rabbit.unmount()
            rabbit.clock.seconds += SECONDS - 1
        assert process.poll() is None
        rabbit.unmount()
    assert rabbit.nodes.mounts() == set()


def test_a_user_who_looks_on_makes_no_site_wait_that_lets_processes_live(
    loop_devices: Path, nodes: Nodes, user: User
) -> None:
    rabbit = Rabbit(loop_devices, nodes, user, policy="keep")
    rabbit.mount()
    code = HOLD_UNKILLED["a descriptor that only names the directory"]
    with rabbit.used(code + OTHER_USER.format(user.userid + 1)) as process:
        for giving_back in (rabbit.unmount, rabbit.release):
            with pytest.raises(InUse) as in_use:
                giving_back()
            rabbit.clock.seconds += in_use.value.delay
            with suppress(Kept):
                giving_back()

        assert nodes.mounts() == set()
        assert rabbit.volumes() == ["a"], "it is never taken there"
        assert process.poll() is None
    eventually(lambda: _released(rabbit))


def test_what_is_used_is_looked_at_ever_more_seldom_and_at_once_when_its_time_is_over() -> None:
    clock = Time()
    grace_period = GracePeriod(seconds=SECONDS, clock=clock)
    root = usage.Process(pid=NO_IDS, userid=0, name="sh", started_at=None)
    delays = []
    while clock.seconds < 1000 + SECONDS:
        with pytest.raises(InUse) as in_use:
            asyncio.run(grace_period.enforce("it", 0, lambda: [root]))
        delays.append(in_use.value.delay)
        clock.seconds += in_use.value.delay

    assert clock.seconds == 1000 + SECONDS
    assert delays[0] == 1
    assert delays[:-1] == sorted(delays[:-1])
    assert max(delays) <= 5


def test_what_was_written_is_on_the_flash_before_it_is_unmounted_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = Pinned(tmp_path / "job")
    ran: list[str] = []

    async def run(argv: Sequence[str], **_: object) -> str:
        ran.append(" ".join(argv))
        if argv == detach:
            space.is_mounted = False
            return ""
        raise NodeTrouble("it is busy")

    path = str(space.path)
    detach = [sys.executable, "-P", "-m", "warren.node.detaching", path]
    monkeypatch.setattr(commands, "run", run)
    flash = DirectoryFlash(tmp_path / "flash", SIZE)
    machine = NamespacedNode("node1", flash, space, GracePeriod(seconds=0, clock=Time()))
    asyncio.run(machine.unmount(path))

    assert ran == [f"umount {path}", f"sync --file-system {path}", " ".join(detach)]


def test_a_device_counts_as_mounted_while_it_is_not_known_unless_it_can_be_had_alone(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user can have a mount of which the kernel cannot write the line."""

    def unreadable(table: object) -> Iterator[Mount]:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    (device,) = asyncio.run(rabbit.disk.devices("a"))
    with monkeypatch.context() as patched:
        patched.setattr(mountinfo, "read_each", unreadable)
        assert usage.are_mounted_by_root([device])
    rabbit.unmount()
    assert not usage.are_mounted_by_root([device])
    with monkeypatch.context() as patched:
        patched.setattr(mountinfo, "read_each", unreadable)
        assert not usage.are_mounted_by_root([device])
        assert not openfiles.may_hide_files(os.getpid(), os.geteuid())[1]


def test_flash_that_is_mounted_where_a_user_has_more_ids_than_one_is_taken(
    rabbit: Rabbit,
) -> None:
    # As rootless containers are: one namespace, with processes of the user and of other ids.
    inside = f"""
c = ctypes.CDLL(None, use_errno=True)
assert c.unshare(0x00020000) == 0, ctypes.get_errno()
assert c.mount(None, b"/", None, 0x00040000 | 0x4000, None) == 0, ctypes.get_errno()
assert c.mount(b".", b"/mnt", None, 4096, None) == 0, ctypes.get_errno()
os.chdir("/")
os.setgroups([])
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    os.setresuid(*3 * ({rabbit.user.userid + 1},))
    os.read(reading, 1)  # until the other one ends
    os._exit(0)
os.setresuid(*3 * ({rabbit.user.userid + 2},))
"""
    with rabbit.used(inside) as process:
        rabbit.unmount_at_last()
        with pytest.raises(InUse):
            rabbit.release()
        rabbit.clock.seconds += SECONDS
        _take(rabbit, process)

        assert rabbit.volumes() == []
        assert process.poll() is None
    eventually(lambda: rabbit.disk.loops() == [])


def test_flash_that_is_mounted_elsewhere_is_not_taken(rabbit: Rabbit) -> None:
    elsewhere = NamespacedNode("node2", rabbit.blocks, rabbit.nodes.namespace("node2"))
    asyncio.run(elsewhere.mount("node1", "a", "ext4", rabbit.path))
    rabbit.unmount()
    # With another process beside its holder, the node is not taken for root's alone.
    nsenter = asyncio.run(rabbit.nodes.namespace("node2").nsenter_command())
    other = ["setpriv", f"--reuid={rabbit.user.userid + 1}", "--clear-groups", "sleep", "600"]
    with subprocess.Popen([*nsenter, *other]) as process:
        try:
            eventually(lambda: _command(process.pid) == "sleep")
            with pytest.raises(InUse):
                rabbit.release()
            rabbit.clock.seconds += SECONDS
            with pytest.raises(Kept, match="is kept by something that /proc does not show"):
                rabbit.release()

            assert rabbit.volumes() == ["a"]
            assert not any(loop.is_cut_off for loop in rabbit.disk.loops())
        finally:
            process.kill()
            asyncio.run(elsewhere.unmount(rabbit.path))
    rabbit.release()


def _command(id: int) -> str:
    return Path(f"/proc/{id}/comm").read_text().strip()


def test_of_what_is_hidden_only_the_jobs_user_is_suspected(rabbit: Rabbit) -> None:
    hidden = HIDE["a socket from which it was not received"]
    with rabbit.used(hidden) as process:
        rabbit.unmount_at_last()
        with pytest.raises(InUse, match="node1/a is in use by something that /proc does not show"):
            rabbit.release()
        rabbit.clock.seconds += SECONDS
        with suppress(NodeTrouble):  # where the kernel does not take it
            rabbit.release()
        assert process.poll() is None
    eventually(lambda: _released(rabbit))
    eventually(lambda: rabbit.disk.loops() == [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root ends processes of other users")
def test_processes_that_start_others_before_they_are_killed_are_all_killed(user: User) -> None:
    family: list[subprocess.Popen[bytes]] = []

    def find() -> list[usage.Process]:
        """Have each that runs start another one, once it was found."""
        found = [usage.process(each.pid) for each in family if each.poll() is None]
        if len(family) < 4:
            family.append(subprocess.Popen(["sleep", "600"], user=user.userid))
        return [each for each in found if each is not None]

    clock = Time()
    grace_period = GracePeriod(seconds=SECONDS, clock=clock)
    try:
        with pytest.raises(InUse):
            asyncio.run(grace_period.enforce("it", user.userid, find))
        clock.seconds += SECONDS
        assert asyncio.run(grace_period.enforce("it", user.userid, find)) == []
        assert len(family) == 4
        assert [each.wait(60) for each in family] == [-9] * 4
    finally:
        for each in family:
            each.kill()
            each.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root ends processes of other users")
def test_processes_that_others_start_are_looked_for_a_minute_and_all_that_were_found_are_killed(
    monkeypatch: pytest.MonkeyPatch, user: User
) -> None:
    sent: dict[int, list[int]] = {}
    monotonic = Time()

    def find() -> list[usage.Process]:
        """Take as long as it may take, and find one more each time."""
        monotonic.seconds += 40
        ids = [NO_IDS + n for n in range(len(sent) + 1)]
        return [usage.Process(pid=id, userid=user.userid, name="sh", started_at=None) for id in ids]

    def send_signal(processes: Iterable[usage.Process], signum: int) -> None:
        for each in processes:
            sent.setdefault(each.pid, []).append(signum)

    monkeypatch.setattr(busy, "send_signal", send_signal)
    grace_period = GracePeriod(seconds=0, clock=Time(), monotonic=monotonic.now)

    asyncio.run(grace_period.kill("it", user.userid, find))

    assert list(sent.values()) == 2 * [[signal.SIGSTOP, signal.SIGKILL]]


@dataclass
class Pinned:
    """A mount namespace in which one path stays mounted, whatever umount(8) is told."""

    path: Path
    root: Path = Path("/")
    is_mounted: bool = True

    @property
    def prefix(self) -> Path:
        return self.path.parent

    async def nsenter_command(self) -> Sequence[str]:
        return []

    def mounts_below_prefix(self) -> set[str]:
        return {str(self.path)} if self.is_mounted else set()

    def mount_id(self, path: str) -> int | None:
        return 2**40 if path in self.mounts_below_prefix() else None


def test_a_nodes_mount_has_its_own_time_whatever_other_nodes_wait_for(tmp_path: Path) -> None:
    """All nodes of a job mount at one path, and one agent may be that of several nodes."""
    clock = Time()
    grace_period = GracePeriod(seconds=SECONDS, policy="keep", clock=clock)
    path = tmp_path / "job"
    spaces = {node: Pinned(path) for node in ("node1", "node2", "node3")}

    def unmount(node: str) -> None:
        flash = DirectoryFlash(tmp_path / "flash", SIZE)
        machine = NamespacedNode(node, flash, spaces[node], grace_period)
        asyncio.run(machine.unmount(str(path)))

    for node in ("node1", "node2"):
        with pytest.raises(InUse):
            unmount(node)
    clock.seconds += SECONDS
    with pytest.raises(InUse, match=f"node3:{path} is in use"):
        unmount("node3")

    spaces["node1"].is_mounted = False
    unmount("node1")
    with pytest.raises(NodeTrouble) as caught:
        unmount("node2")
    assert not isinstance(caught.value, InUse), "its time is over, and it is taken away"


class MountedOver(HeldMountNamespace):
    """A namespace in which a user mounts over storage each time before umount(8) is run."""

    over: Path | None = None
    count = 0

    async def nsenter_command(self) -> list[str]:
        nsenter = await super().nsenter_command()
        if self.over is not None:
            self.count += 1
            assert self.count < 100, "without end"
            mount = 'for _ in 1 2 3; do mount -t tmpfs none "$0" || exit; done'
            await commands.run([*nsenter, "sh", "-c", mount, str(self.over)])
        return nsenter


def test_storage_that_is_mounted_over_as_fast_as_it_is_unmounted_is_waited_for_and_then_taken(
    nodes: Nodes,
) -> None:
    clock = Time()
    space = MountedOver(nodes.directory("node1"), nodes.prefix)
    grace_period = GracePeriod(seconds=SECONDS, policy="keep", clock=clock)
    flash = DirectoryFlash(nodes.root / "flash", SIZE)
    machine = NamespacedNode("node1", flash, space, grace_period)
    path = nodes.prefix / "job"
    volume = Volume(
        rabbit="rabbit1",
        name="a",
        size=SIZE,
        file_system="xfs",
        userid=os.geteuid(),
        groupid=os.getegid(),
    )
    asyncio.run(machine.make(volume))
    asyncio.run(machine.mount("rabbit1", "a", "xfs", str(path)))
    space.over = path

    for _ in range(2):
        with pytest.raises(InUse, match=f"node1:{path} is in use"):
            asyncio.run(machine.unmount(str(path)))
        assert nodes.mounts() == {str(path)}
    clock.seconds += SECONDS
    asyncio.run(machine.unmount(str(path)))

    assert nodes.mounts() == set()


def test_a_clock_that_is_set_back_makes_the_wait_no_longer(rabbit: Rabbit) -> None:
    with rabbit.used("", userid=rabbit.user.userid):
        with pytest.raises(InUse):
            rabbit.unmount()
        rabbit.clock.seconds -= 3600
        rabbit.unmount()

    assert rabbit.nodes.mounts() == set()


def test_another_process_that_has_got_the_same_id_is_not_killed() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        found = usage.process(process.pid)
        assert found is not None
        assert found.started_at is not None
        usage.send_signal([replace(found, started_at=found.started_at + 1)], signal.SIGKILL)
        assert process.poll() is None

        usage.send_signal([found], signal.SIGKILL)
        assert process.wait(120) == -9


def test_a_process_that_does_not_answer_is_suspected_of_its_users_storage_alone() -> None:
    with stuck.in_exec(TEST_USER) as process:
        suspects = {
            "mounts": usage.processes_using_mounts([-1], TEST_USER),
            "hidden": usage.processes_with_hidden_files(TEST_USER),
            "all": usage.processes_of_user(TEST_USER),
        }
        assert {name: [each.pid for each in found] for name, found in suspects.items()} == {
            name: [process.pid] for name in suspects
        }
        assert usage.processes_using_mounts([-1], TEST_USER + 1) == []
        assert usage.processes_using_mounts([-1]) == []
        assert usage.processes_with_hidden_files(TEST_USER + 1) == []
        assert usage.processes_using_devices(["/dev/null"]) != []
        assert not usage.are_mounted_by_root(["/dev/null"])

        (found,) = suspects["mounts"]
        assert found.started_at is None
        usage.send_signal([replace(found, name="another")], signal.SIGKILL)
        usage.send_signal([replace(found, userid=TEST_USER + 1)], signal.SIGKILL)
        assert not _is_killed(process.pid)
        usage.send_signal([found], signal.SIGKILL)
        assert _is_killed(process.pid)


def test_flash_of_a_process_that_was_killed_and_does_not_die_is_taken(
    loop_devices: Path, nodes: Nodes, user: User
) -> None:
    rabbit = Rabbit(loop_devices, nodes, user)
    with silent_of(user.userid) as silent:
        rabbit.mount()  # on a node that sees what is mounted before it
        place = str(silent.place)
        code = f"f = open('data'); threading.Thread(target=os.listdir, args=[{place!r}]).start()"
        with rabbit.used(code, userid=user.userid) as process:
            try:
                assert silent.asked.wait(60)
                rabbit.unmount_at_last()
                assert _is_killed(process.pid)
                with pytest.raises(InUse, match=f"in use by process {process.pid} "):
                    rabbit.release()
                rabbit.clock.seconds += SECONDS
                with pytest.raises(Kept, match="is kept by"):
                    rabbit.release()
                assert rabbit.volumes() == ["a"]

                rabbit.clock.seconds += SECONDS
                _take(rabbit, process)
                assert rabbit.volumes() == []
            finally:
                fuse.abort_servers([process.pid], user.userid)
    eventually(lambda: rabbit.disk.loops() == [])


def _is_killed(process: int) -> bool:
    """Return whether a signal that kills has come to a process, which may be deaf to it yet."""
    pending = process_status(Path(f"/proc/{process}"))
    return any(int(pending[name], 16) >> signal.SIGKILL - 1 & 1 for name in ("SigPnd", "ShdPnd"))


def test_what_others_have_open_delays_no_look_at_the_users_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    users = {3: 1001, 4: 1002, 5: 0, 6: 1001, 7: 1002, 8: 0}
    asked: list[list[int]] = []

    def named(id: int) -> usage.Process:
        return usage.Process(pid=id, userid=users[id], name="sh", started_at=None)

    def answered(_: object, ids: Sequence[int], *__: object, timeout: float = 30) -> list[None]:
        asked.append([*ids])
        return [None] * len(ids)

    monkeypatch.setattr(usage, "pids", lambda: [*users])
    monkeypatch.setattr(usage, "_process_by_status", named)
    monkeypatch.setattr(usage, "call_in_child", answered)

    usage.processes_using_mounts([1], 1002)
    usage.processes_using_devices([], 1001)

    assert asked == [[5, 8, 4, 7], [3, 6], [5, 8, 3, 6], [4, 7]]


@dataclass
class FakeProcesses:
    """Processes that all have something open, and users who are in mount namespaces."""

    userids: dict[int, int]
    namespaces: dict[int, int] = field(default_factory=dict)
    """By users."""
    asked: list[tuple[str, list[int]]] = field(default_factory=list)
    seconds_each: float = 0.0
    """That a look at some of them takes, if it may."""
    monotonic: Time = field(default_factory=Time)
    timeouts: list[float] = field(default_factory=list)
    """The time that looks had which are bounded."""

    def named(self, id: int) -> usage.Process:
        return usage.Process(pid=id, userid=self.userids[id], name="sh", started_at=None)

    def call_in_child(
        self,
        function: Callable[..., object],
        subjects: Sequence[int],
        *args: str,
        timeout: float | None = None,
    ) -> list[object]:
        if timeout is not None and subjects:
            self.timeouts.append(timeout)
            self.monotonic.seconds += min(self.seconds_each, timeout)
        if function is openfiles.send_signal:
            return [None] * len(subjects)
        if function is openfiles.mount_namespace:
            self.asked.append(("mount_namespace", [*subjects]))
            return [self.namespaces[self.userids[id]] for id in subjects]
        self.asked.append((args[0], [*subjects]))
        return [((self.userids[id], "sh", 1), self._answer(id, args[0])) for id in subjects]

    def _answer(self, id: int, question: str) -> object:
        if question == "uses_mounts":
            return True
        return self.namespaces.get(self.userids[id], 0), False

    def fake(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(usage, "pids", lambda: [*self.userids])
        monkeypatch.setattr(usage, "_process_by_status", self.named)
        monkeypatch.setattr(usage, "call_in_child", self.call_in_child)
        monkeypatch.setattr(usage, "time", SimpleNamespace(monotonic=self.monotonic.now))


def test_what_others_have_open_is_looked_at_only_when_they_are_to_be_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others = NO_IDS
    processes = FakeProcesses({others: 1002})
    processes.fake(monkeypatch)
    clock = Time()
    grace_period = GracePeriod(seconds=SECONDS, clock=clock)
    find = partial(usage.processes_using_mounts, [1], 1001)

    with pytest.raises(InUse, match="it is in use by something that"):
        asyncio.run(grace_period.enforce("it", 1001, find))
    assert [question for question, ids in processes.asked if ids] == []

    clock.seconds += 2
    kept_by = asyncio.run(grace_period.enforce("it", 1001, find))
    assert [each.pid for each in kept_by] == [others]
    assert [each for each in processes.asked if each[1]] == [("uses_mounts", [others])]


def test_looks_at_others_have_one_bound_together_and_each_of_its_own_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = FakeProcesses({NO_IDS: 1002}, seconds_each=1.5)
    processes.fake(monkeypatch)

    def look() -> int:
        return len(usage.processes_using_mounts([1], 1001))

    with usage.bounding_others(2.0):
        assert [look(), look(), look()] == [1, 1, 0]
    assert [look(), look()] == [1, 1]
    assert processes.timeouts == [2.0, 0.5, 10.0, 10.0]


def test_which_namespaces_others_are_in_is_asked_before_what_they_have_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has so much open that there is no time left has no processes killed by that."""
    users, others = NO_IDS, NO_IDS + 1
    processes = FakeProcesses({users: 1001, others: 1002}, {1001: 77, 1002: 77}, seconds_each=1.9)
    processes.fake(monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(usage, "_devices_mounted", lambda pid: [os.stat("/dev/null").st_rdev])
    killed: list[usage.Process] = []
    monkeypatch.setattr(busy, "send_signal", lambda found, signum: killed.extend(found))
    find = partial(usage.processes_using_devices, ["/dev/null"], 1001)

    asyncio.run(GracePeriod(seconds=0, clock=Time()).enforce("it", 1001, find))

    assert killed == []
    assert [question for question, ids in processes.asked if others in ids] == [
        "mount_namespace",
        "uses_devices",
    ]


def test_what_others_have_open_is_looked_at_once_however_often_is_looked_for_what_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root, users, others = NO_IDS, NO_IDS + 1, NO_IDS + 2
    processes = FakeProcesses({root: 0, users: 1001, others: 1002})
    processes.fake(monkeypatch)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    find = partial(usage.processes_using_mounts, [1], 1001)

    left = asyncio.run(GracePeriod(seconds=0, clock=Time()).enforce("it", 1001, find))

    assert [each.pid for each in left] == [root, others]
    assert [ids for _, ids in processes.asked if others in ids] == [[others]]
    assert [ids for _, ids in processes.asked if users in ids] == 3 * [[root, users]]


@pytest.mark.parametrize("other_is_there", [True, False])
def test_a_namespace_that_another_user_is_in_as_well_is_no_users_alone_also_for_the_kill(
    monkeypatch: pytest.MonkeyPatch, other_is_there: bool
) -> None:
    users, others = NO_IDS, NO_IDS + 1
    processes = FakeProcesses(
        {users: 1001, others: 1002}, {1001: 77, 1002: 77 + (not other_is_there)}
    )
    processes.fake(monkeypatch)
    device = os.stat("/dev/null").st_rdev
    mounted = {users: [device], others: [device] if other_is_there else []}
    monkeypatch.setattr(usage, "_devices_mounted", mounted.__getitem__)

    with usage.leaving_out_others():
        found = usage.processes_using_devices(["/dev/null"], 1001)

    assert [each.pid for each in found] == ([] if other_is_there else [users])
    assert processes.asked == [
        ("uses_devices", [users]),
        ("uses_devices", []),
        ("mount_namespace", [others]),
    ]
