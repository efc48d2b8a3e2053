"""Cgroups that bound the memory of containers: as decided, and as the kernel keeps them."""

import errno
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from warren.node import podmemory
from warren.node.podmemory import Limits, PodMemory, limit_writes

MIB = 2**20
OTHERS = Limits(64 * MIB, 32 * MIB)

HOARD = "import sys\nheld = []\nwhile True: held.append(bytearray(2**20))"


class Tree:
    """A hierarchy of cgroups made of plain files, with a process in one of them."""

    def __init__(self, root: Path, version: int = 2) -> None:
        self.root = root / "cgroup"
        self.root.mkdir(parents=True)
        self.proc = root / "proc"
        self.proc.mkdir()
        type_, options = ("cgroup2", "rw") if version == 2 else ("cgroup", "rw,memory")
        (self.proc / "mountinfo").write_text(
            f"30 20 0:26 / {self.root} rw - {type_} none {options}\n"
        )
        self._prefix = "0::" if version == 2 else "4:memory:"
        self.place = self.root

    def cgroup(self, path: str, *, has: str = "", gives: str = "") -> Path:
        """Make a cgroup that has some controllers, and gives some to its children."""
        directory = self.root / path
        directory.mkdir(exist_ok=True)
        (directory / "cgroup.controllers").write_text(f"{has}\n")
        (directory / "cgroup.subtree_control").write_text(f"{gives}\n")
        (directory / "cgroup.procs").touch()
        return directory

    def enter(self, path: str) -> None:
        (self.proc / "cgroup").write_text(f"{self._prefix}/{path}\n")

    def places(self) -> list[tuple[str, int]]:
        found = podmemory._places(self.proc)
        return [(str(each.relative_to(self.root)), version) for each, version in found]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_memory_is_counted_in_the_nearest_cgroup_whose_children_have_it(tree: Tree) -> None:
    tree.cgroup("", has="cpu memory", gives="cpu memory")
    tree.cgroup("system.slice", has="cpu memory", gives="memory pids")
    tree.cgroup("system.slice/warren.service", has="cpu memory")
    tree.enter("system.slice/warren.service")
    # The kernel refuses to begin with it where there are processes: a plain file does not.
    (tree.root / "system.slice/warren.service/cgroup.subtree_control").unlink()

    assert tree.places() == [("system.slice", 2), (".", 2)]


def test_a_cgroup_that_may_begin_to_count_its_childrens_memory_does(tree: Tree) -> None:
    own = tree.cgroup("", has="cpu memory")
    tree.enter("")
    list(podmemory._places(tree.proc))

    assert (own / "cgroup.subtree_control").read_text() == "+memory"


def test_a_hierarchy_without_a_memory_controller_is_none(tree: Tree) -> None:
    own = tree.cgroup("", has="hugetlb", gives="hugetlb")
    tree.enter("")

    assert tree.places() == []
    assert (own / "cgroup.subtree_control").read_text() == "hugetlb\n"
    assert podmemory.find("cluster", OTHERS, tree.proc) is None


def test_of_version_1_the_hierarchy_of_the_memory_controller_serves(tmp_path: Path) -> None:
    tree = Tree(tmp_path, version=1)
    tree.cgroup("ours")
    tree.enter("ours")

    assert tree.places() == [("ours", 1)]


def test_where_cgroups_cannot_be_limited_none_is_left(tree: Tree) -> None:
    own = tree.cgroup("", has="memory", gives="memory")
    tree.enter("")

    # The files of a cgroup come with its directory, but for plain directories.
    assert podmemory.find("cluster", OTHERS, tree.proc) is None
    assert [each for each in own.iterdir() if each.is_dir()] == []


def test_nothing_of_a_container_is_swapped_out() -> None:
    assert [each[:2] for each in limit_writes(2, 4096)] == [
        ("memory.max", "4096"),
        ("memory.swap.max", "0"),
    ]
    assert {each[:2] for each in limit_writes(1, 4096)} == {
        ("memory.limit_in_bytes", "4096"),
        ("memory.memsw.limit_in_bytes", "4096"),
    }


def test_a_limit_that_is_not_there_is_no_limit_of_no_consequence() -> None:
    for version in (1, 2):
        last = limit_writes(version, 1)[-1 if version == 1 else 0]
        assert errno.ENOENT not in last.tolerated
        assert errno.EINVAL not in last.tolerated


def test_a_kernel_that_kills_no_whole_containers_runs_them_all_the_same(tmp_path: Path) -> None:
    memory = PodMemory(tmp_path / "base", 2, OTHERS)
    container = memory.path("pod", 0, 1000)
    container.mkdir(parents=True)
    for directory in (container, container.parent, container.parent.parent):
        (directory / "memory.max").touch()
        (directory / "cgroup.subtree_control").touch()

    assert memory.make("pod", 0, 1000, MIB) == container  # without memory.oom.group


OTHER_USER = 12345


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("it takes cgroups of two users")


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize(
    ("above", "owner", "is_taken"),
    [(0, 0, True), (0, OTHER_USER, False), (OTHER_USER, 0, False), (OTHER_USER, OTHER_USER, False)],
)
def test_a_cgroup_that_another_user_has_power_over_is_never_taken_nor_removed(
    tree: Tree, above: int, owner: int, *, is_taken: bool
) -> None:
    top = tree.cgroup("")
    tree.enter("")
    base = top / "user.slice" / "session" / podmemory._name("cluster")
    base.mkdir(parents=True)
    os.chown(base, owner, owner)
    os.chown(base.parent.parent, above, above)

    assert podmemory._bases("cluster", tree.proc) == ([(base, 2)] if is_taken else [])
    podmemory.remove_all("cluster", tree.proc)
    assert base.exists() != is_taken


@pytest.mark.usefixtures("as_root")
def test_no_cgroup_is_made_in_one_that_another_user_has_power_over(tree: Tree) -> None:
    tree.cgroup("", has="memory", gives="memory")
    session = tree.cgroup("session", has="memory", gives="memory")
    tree.cgroup("session/own", has="memory", gives="memory")
    os.chown(session, OTHER_USER, OTHER_USER)
    tree.enter("session/own")

    assert tree.places() == [(".", 2)]
    assert (session / "own/cgroup.subtree_control").read_text() == "memory\n"


@pytest.mark.usefixtures("as_root")
def test_a_containers_cgroup_is_not_made_in_one_that_is_another_users(tmp_path: Path) -> None:
    memory = PodMemory(tmp_path / "base", 1, OTHERS)
    memory.path("pod", 0, 1000).mkdir(parents=True)
    os.chown(tmp_path / "base", OTHER_USER, OTHER_USER)

    with pytest.raises(PermissionError, match="this cgroup is another user's"):
        memory.make("pod", 0, 1000, None)


# As the kernel keeps them


@pytest.fixture
def cluster() -> Iterator[str]:
    """The name of a cluster of which no cgroup is left."""
    name = str(uuid.uuid4())
    yield name
    podmemory.remove_all(name)
    assert podmemory._bases(name, Path("/proc/self")) == []


def found(cluster: str, limits: Limits = OTHERS) -> PodMemory:
    memory = podmemory.find(cluster, limits)
    if memory is None:
        pytest.skip(podmemory.NO_CONTROLLER)
    return memory


def run(cgroup: Path, program: str, *, pass_fds: tuple[int, ...] = ()) -> int:
    """Run a program in a cgroup, and return how it has ended."""

    def enter() -> None:
        (cgroup / "cgroup.procs").write_text("0")

    command = [sys.executable, "-c", program]
    process = subprocess.run(
        command, preexec_fn=enter, pass_fds=pass_fds, check=False, stderr=subprocess.DEVNULL
    )
    return process.returncode


@pytest.mark.parametrize("limit", [16 * MIB, None])
def test_what_takes_more_than_it_may_is_killed(cluster: str, limit: int | None) -> None:
    cgroup = found(cluster).make("pod", 0, 1000, limit)
    assert run(cgroup, HOARD) == -signal.SIGKILL
    events = [cgroup / "memory.events", cgroup / "memory.oom_control"]
    told = next(each.read_text() for each in events if each.exists())
    assert int(dict(line.split() for line in told.splitlines())["oom_kill"]) >= 1


def test_memory_in_a_file_that_outlives_its_container_counts_as_its_users(cluster: str) -> None:
    memory = found(cluster)
    first = memory.make("first", 0, 1000, None)
    descriptor = os.memfd_create("kept")
    fill = f"import os; os.write({descriptor}, bytes(24 * 2**20))"
    try:
        assert run(first, fill, pass_fds=(descriptor,)) == 0
        assert podmemory.remove([str(first)])
        assert not first.exists()

        take = "held = bytearray(16 * 2**20)"
        assert run(memory.make("own", 0, 1000, None), take) == -signal.SIGKILL
        assert run(memory.make("others", 0, 1001, None), take) == 0
    finally:
        os.close(descriptor)
    assert run(memory.make("own", 1, 1000, None), take) == 0


@pytest.mark.parametrize(("first", "then"), [(8 * MIB, 16 * MIB), (16 * MIB, 8 * MIB)])
def test_limits_change_with_the_configuration(cluster: str, first: int, then: int) -> None:
    for limit in (first, then):
        user = found(cluster, Limits(2 * limit, limit)).make("pod", 0, 1000, None).parent
        for directory, value in ((user.parent, 2 * limit), (user, limit)):
            files = [directory / "memory.max", directory / "memory.limit_in_bytes"]
            assert [each.read_text() for each in files if each.exists()] == [f"{value}\n"]


def test_a_cluster_that_starts_elsewhere_goes_on_with_what_is_there(
    cluster: str, tmp_path: Path
) -> None:
    first = found(cluster).make("pod", 0, 1000, None)
    elsewhere = first.parent.parent.parent / f"elsewhere-{cluster}"
    elsewhere.mkdir()
    ours = Path("/proc/self/cgroup").read_text().splitlines()
    (tmp_path / "cgroup").write_text("".join(f"{each}/{elsewhere.name}\n" for each in ours))
    (tmp_path / "mountinfo").write_bytes(Path("/proc/self/mountinfo").read_bytes())
    try:
        memory = podmemory.find(cluster, OTHERS, tmp_path)
        assert memory is not None
        assert memory.make("pod", 1, 1000, None).parent == first.parent
    finally:
        elsewhere.rmdir()


@pytest.mark.usefixtures("as_root")
def test_a_cgroup_of_the_name_that_a_user_has_made_bounds_nobody(cluster: str) -> None:
    place = found(cluster)._base.parent
    podmemory.remove_all(cluster)
    delegated = place / f"0-delegated-{cluster}"
    users_base = delegated / podmemory._name(cluster)
    users_base.mkdir(parents=True)
    for each in (delegated, users_base):
        os.chown(each, OTHER_USER, OTHER_USER)
    try:
        assert delegated not in found(cluster).make("pod", 0, 1000, None).parents
    finally:
        users_base.rmdir()
        delegated.rmdir()
