"""Nodes to test with, and the proof that nothing is left of them."""

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.node.copied import Copier, User, copier_at
from tests.node.processes import alive, eventually
from warren.node import loops, namespaces
from warren.node.namespaces import HeldMountNamespace, mount_points


@cache
def reason() -> str | None:
    """Why there are no mount namespaces here, in the kernel's words."""
    return asyncio.run(namespaces.why_unavailable())


def mounts_of(namespace: HeldMountNamespace) -> set[str]:
    """Return all mount points of a namespace; none if it is not held."""
    holder = namespace.holder
    return set() if holder is None else mount_points(holder)


@dataclass(frozen=True)
class Nodes:
    """The emulated nodes of one test. The same paths are there on all of them."""

    root: Path

    @property
    def prefix(self) -> Path:
        """Where every node has its mount points."""
        return self.root / "nnf"

    def directory(self, name: str) -> Path:
        """Where it is remembered who holds a node."""
        return self.root / "nodes" / name

    def namespace(self, name: str = "node1") -> HeldMountNamespace:
        return HeldMountNamespace(self.directory(name), self.prefix)

    def names(self) -> list[str]:
        return [directory.name for directory in self.root.glob("nodes/*")]

    def mounts(self, name: str = "node1") -> set[str]:
        """What is mounted on a node, besides the file system that it has for mount points."""
        prefix = f"{self.prefix}/"
        return {path for path in mounts_of(self.namespace(name)) if path.startswith(prefix)}

    def seen(self) -> set[str]:
        """Every mount point of any node that any process still sees."""
        below = f"{self.root}/"
        return {
            path for process in alive() for path in mount_points(process) if path.startswith(below)
        }


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Nodes of which no mount and no holder is left, when the test has unmounted what it has."""
    why = reason()
    if why is not None:
        pytest.skip(f"no mount namespaces here: {why}")
    nodes = Nodes(tmp_path)
    yield nodes
    mounted = {name: nodes.mounts(name) for name in nodes.names()}
    holders = {nodes.namespace(name).holder for name in nodes.names()}
    for name in nodes.names():
        nodes.namespace(name).end()
    eventually(lambda: not holders & alive())
    eventually(lambda: not nodes.seen())
    assert not any(mounted.values()), mounted


@dataclass(frozen=True)
class LoopDevice:
    """One that is attached, as the kernel tells."""

    device: str
    backing: str


def loop_devices_on(root: Path) -> list[LoopDevice]:
    """What is attached to files below a directory, also to files that are there no more."""
    found = []
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            backing = entry.read_text().rstrip("\n")
        except OSError:  # it has just been detached
            continue
        if backing.startswith(f"{root.resolve()}/"):
            found.append(LoopDevice(f"/dev/{entry.parent.parent.name}", backing))
    return found


@pytest.fixture
def loop_devices(tmp_path: Path) -> Iterator[Path]:
    """A directory for images, of which nothing is mounted or attached after the test."""
    why = loops.why_unavailable()
    if why is not None:
        pytest.skip(f"no loop devices here: {why}")
    yield tmp_path
    mounted = [path for path in mount_points(os.getpid()) if path.startswith(f"{tmp_path}/")]
    for path in sorted(mounted, reverse=True):
        subprocess.run(["umount", path], check=False)
    left = loop_devices_on(tmp_path)
    for loop in left:
        subprocess.run(["losetup", "--detach", loop.device], check=False)
        os.chown(loop.device, 0, 0)
    assert mounted == []
    assert left == []


@pytest.fixture(scope="session")
def user() -> User:
    if os.geteuid() != 0:
        return User(os.geteuid(), os.getegid())
    nobody = pwd.getpwnam("nobody")
    return User(nobody.pw_uid, nobody.pw_gid)


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory where every user may do what it likes."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o777)
    yield place
    for directory, below, _ in os.walk(place):
        for name in below:
            if not os.path.islink(os.path.join(directory, name)):
                os.chmod(os.path.join(directory, name), 0o700)
    shutil.rmtree(place)


@pytest.fixture
def copy(public: Path, user: User) -> Iterator[Copier]:
    yield Copier(public, user)
    with suppress(AssertionError):  # what goes with a copier that was killed takes a moment
        eventually(lambda: not copier_at(public), seconds=10)
    left = copier_at(public)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left
