"""What every machine promises, simulated or real: one suite for all of them."""

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.harness import virtual
from tests.node.conftest import Nodes
from warren.controllers.localnode import LocalNode
from warren.dws.node import Copy, NodeTrouble, Progress, Volume
from warren.node.behaviour import NO_FAULTS
from warren.node.blocks import BlockFlash
from warren.node.directory import DirectoryFlash
from warren.node.extents import UNIT
from warren.node.faulty import FaultyNode
from warren.node.linking import LinkingNode
from warren.node.loopdisk import LoopDisk
from warren.node.namespacednode import NamespacedNode
from warren.node.simulated import SimulatedFlash, SimulatedNode

T = TypeVar("T")

CAPACITY = 1000
"""Of each rabbit, in the machine's units, as all sizes are."""


@dataclass
class Node:
    """A machine, and what stands behind it."""

    machine: LocalNode
    prefix: str
    """Jobs find their storage below this path."""
    outside: Path
    """A directory that is no storage."""
    volumes: Callable[[], dict[str, int]]
    """The volumes of rabbit1, with their sizes."""
    mounts: Callable[[], set[str]]
    loop: Callable[[Coroutine[Any, Any, Any]], Any]
    points: Callable[[], list[str]] = list
    """What is where mount points are made, where there are any."""
    records: Path = Path()
    """Where the volumes of rabbit1 are written down, if they are."""
    unit: int = 1
    """Bytes."""
    file_system: str = "xfs"

    def run(self, action: Coroutine[Any, Any, T]) -> T:
        result: T = self.loop(action)
        return result

    def make(self, name: str = "a", size: int = 100, rabbit: str = "rabbit1") -> None:
        self.run(self.machine.make(self.volume(name, size, rabbit)))

    def volume(self, name: str = "a", size: int = 100, rabbit: str = "rabbit1") -> Volume:
        return Volume(
            rabbit=rabbit,
            name=name,
            size=size * self.unit,
            file_system=self.file_system,
            userid=os.geteuid(),
            groupid=os.getegid(),
        )

    def release(self, name: str = "a") -> None:
        self.run(self.machine.release("rabbit1", name))

    def mount(self, name: str = "a", at: str = "job") -> str:
        path = f"{self.prefix}/{at}"
        self.run(self.machine.mount("rabbit1", name, self.file_system, path))
        return path

    def unmount(self, path: str) -> None:
        self.run(self.machine.unmount(path))

    def copy(self, source: str, destination: str, index: str | None = None) -> list[Progress]:
        async def main() -> list[Progress]:
            copying = self.machine.copy(copy_of(source, destination, index))
            return [progress async for progress in copying]

        return self.run(main())


def copy_of(source: str, destination: str, index: str | None = None) -> Copy:
    return Copy(
        source=source,
        destination=destination,
        index=index,
        userid=os.geteuid(),
        groupid=os.getegid(),
    )


def simulated(outside: Path) -> Node:
    flash = SimulatedFlash(CAPACITY)
    return Node(
        machine=SimulatedNode("node1", flash),
        prefix="/mnt/nnf",
        outside=outside,
        volumes=lambda: {
            name: found.size
            for (rabbit, name), found in flash.volumes.items()
            if rabbit == "rabbit1"
        },
        mounts=lambda: {path for _, path in flash.mounts},
        loop=virtual.run,
    )


def linking(outside: Path) -> Node:
    directories = DirectoryFlash(outside / "flash", CAPACITY)
    root, prefix = outside / "node1", outside / "nnf"
    return Node(
        machine=LinkingNode("rabbit1", directories, root, prefix),
        prefix=str(prefix),
        outside=outside,
        volumes=lambda: directories.volumes("rabbit1"),
        mounts=lambda: {
            str(path).removeprefix(str(root)) for path in root.rglob("*") if path.is_symlink()
        },
        loop=asyncio.run,
        points=lambda: [path.name for path in Path(f"{root}{prefix}").glob("*")],
        records=outside / "flash" / "rabbit1",
    )


def directory(request: pytest.FixtureRequest) -> Node:
    nodes = request.getfixturevalue("nodes")
    directories = DirectoryFlash(nodes.root / "flash", CAPACITY)
    return Node(
        machine=NamespacedNode("rabbit1", directories, nodes.namespace()),
        prefix=str(nodes.prefix),
        outside=nodes.root,
        volumes=lambda: directories.volumes("rabbit1"),
        mounts=nodes.mounts,
        loop=asyncio.run,
        points=lambda: os.listdir(f"/proc/{nodes.namespace().holder}/root{nodes.prefix}"),
        records=nodes.root / "flash" / "rabbit1",
    )


def image(request: pytest.FixtureRequest) -> Node:
    flash = request.getfixturevalue("loop_devices") / "flash"
    nodes = request.getfixturevalue("nodes")

    def disk(rabbit: str) -> LoopDisk:
        return LoopDisk(rabbit, flash / rabbit, CAPACITY * UNIT, None)

    blocks = BlockFlash(disk, nodes.root)
    return Node(
        machine=NamespacedNode("rabbit1", blocks, nodes.namespace()),
        prefix=str(nodes.prefix),
        outside=nodes.root,
        volumes=lambda: {name: size // UNIT for name, size in blocks.volumes("rabbit1").items()},
        mounts=nodes.mounts,
        loop=asyncio.run,
        points=lambda: os.listdir(f"/proc/{nodes.namespace().holder}/root{nodes.prefix}"),
        records=flash / "rabbit1" / "volumes",
        unit=UNIT,
        file_system="ext4",  # xfs takes 300 MiB at least
    )


def machine(kind: str, request: pytest.FixtureRequest) -> Iterator[Node]:
    match kind:
        case "simulated":
            node = simulated(request.getfixturevalue("tmp_path"))
        case "linking":
            node = linking(request.getfixturevalue("tmp_path"))
        case "directory":
            node = directory(request)
        case "faulty":
            node = directory(request)
            assert isinstance(node.machine, NamespacedNode)
            node = replace(node, machine=FaultyNode("rabbit1", node.machine, NO_FAULTS))
        case _:
            node = image(request)
    yield node
    assert node.mounts() == set()
    for name in node.volumes():
        node.release(name)


@pytest.fixture(params=["simulated", "linking", "directory", "faulty", "image"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    yield from machine(request.param, request)


@pytest.fixture(params=["linking", "directory", "image"])
def real(request: pytest.FixtureRequest) -> Iterator[Node]:
    """A machine with files in its volumes."""
    yield from machine(request.param, request)


# Room


def test_a_machine_says_how_much_flash_it_has_in_all(node: Node) -> None:
    node.make(size=700)

    assert node.run(node.machine.capacity()) == CAPACITY * node.unit


def test_what_is_made_twice_is_there_once(node: Node) -> None:
    node.make(size=700)
    node.make(size=700)

    assert node.volumes() == {"a": 700}


def test_the_last_byte_can_be_had(node: Node) -> None:
    node.make("a", 999)
    node.make("b", 1)

    assert node.volumes() == {"a": 999, "b": 1}


def test_without_room_nothing_is_made_and_trying_again_is_not_advised(node: Node) -> None:
    node.make("a", 700)

    words = rf"rabbit1 has {300 * node.unit} bytes .* {301 * node.unit} are asked for"
    with pytest.raises(NodeTrouble, match=words) as caught:
        node.make("b", 301)

    assert caught.value.fatal
    assert node.volumes() == {"a": 700}


def test_what_is_there_is_left_alone_even_when_there_is_no_room_for_more(node: Node) -> None:
    node.make(size=CAPACITY)
    node.make(size=CAPACITY)

    assert node.volumes() == {"a": CAPACITY}


def test_rabbits_do_not_share_their_room(node: Node) -> None:
    node.make("a", CAPACITY, "rabbit1")
    node.make("a", CAPACITY, "rabbit2")

    assert node.volumes() == {"a": CAPACITY}
    node.run(node.machine.release("rabbit2", "a"))


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads that get in each other's way."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_those_who_come_at_once_do_not_get_more_than_there_is(node: Node, hasty: None) -> None:
    async def main() -> list[object]:
        makes = [node.machine.make(node.volume(str(name), CAPACITY // 4)) for name in range(12)]
        return await asyncio.gather(*makes, return_exceptions=True)

    answers = node.run(main())

    assert sum(answer is None for answer in answers) == 4
    assert sum(node.volumes().values()) == CAPACITY


def test_the_same_may_be_made_many_times_at_once(node: Node, hasty: None) -> None:
    async def main() -> None:
        await asyncio.gather(*(node.machine.make(node.volume()) for _ in range(8)))

    node.run(main())

    assert node.volumes() == {"a": 100}


def test_what_is_released_gives_its_room_back(node: Node) -> None:
    node.make("a", CAPACITY)
    node.release("a")
    node.make("b", CAPACITY)

    assert node.volumes() == {"b": CAPACITY}


def test_releasing_twice_or_what_never_was_is_no_trouble(node: Node) -> None:
    node.make("a")
    node.make("b")
    node.release("a")
    node.release("a")
    node.release("c")

    assert node.volumes() == {"b": 100}


# Mounts


def test_what_a_file_system_has_for_its_mgs_may_be_run_again_where_lustre_can_be(
    node: Node,
) -> None:
    if isinstance(node.machine, LinkingNode):
        with pytest.raises(NodeTrouble, match="only root serves Lustre") as caught:
            node.run(node.machine.configure_mgs([["true"]]))
        assert caught.value.fatal
        return
    for _ in range(2):
        node.run(node.machine.configure_mgs([["true"], ["test", "a b", "!=", "a"]]))


def test_what_is_mounted_twice_is_there_once(node: Node) -> None:
    node.make()
    path = node.mount()
    node.mount()

    assert node.mounts() == {path}

    node.unmount(path)
    assert node.mounts() == set()


def test_what_is_not_there_is_not_mounted_and_may_come_later(node: Node) -> None:
    with pytest.raises(NodeTrouble, match="rabbit1/a does not exist") as caught:
        node.mount("a")

    assert not caught.value.fatal
    assert node.mounts() == set()

    node.make("a")
    node.unmount(node.mount("a"))


def test_what_was_released_is_not_mounted_any_more(node: Node) -> None:
    node.make()
    node.release()

    with pytest.raises(NodeTrouble, match="does not exist"):
        node.mount()


def test_unmounting_twice_or_what_never_was_is_no_trouble(node: Node) -> None:
    node.make()
    node.unmount(f"{node.prefix}/never")
    path = node.mount()
    node.unmount(path)
    node.unmount(path)

    assert node.volumes() == {"a": 100}


def test_a_volume_may_be_mounted_at_several_paths(node: Node) -> None:
    node.make()
    one, two = node.mount(at="one"), node.mount(at="deep/er/two")

    assert node.mounts() == {one, two}

    node.unmount(one)
    assert node.mounts() == {two}
    node.unmount(two)


def test_what_was_unmounted_can_be_mounted_again(node: Node) -> None:
    node.make()
    node.unmount(node.mount())
    path = node.mount()

    assert node.mounts() == {path}
    node.unmount(path)


@pytest.mark.parametrize("name", ["with blanks", "tab\there", "Größe", r"back\slash", "日本"])
def test_a_mount_point_may_have_any_name(node: Node, name: str) -> None:
    node.make()
    path = node.mount(at=name)
    node.mount(at=name)

    assert node.mounts() == {path}
    node.unmount(path)


# Copies


def some_file(node: Node) -> str:
    (node.outside / "in").mkdir()
    (node.outside / "in" / "data").write_bytes(b"x" * 5000)
    return str(node.outside / "in")


def test_a_copy_tells_its_progress_up_to_the_end(node: Node) -> None:
    told = node.copy(some_file(node), f"{node.outside}/out")

    for before, after in pairwise(told):
        assert before.bytes <= after.bytes <= after.total_bytes
        assert before.files <= after.files <= after.total_files
        assert before.seconds < after.seconds
    assert told[-1].bytes == told[-1].total_bytes > 0
    assert told[-1].files == told[-1].total_files == 1
    assert told[-1].percent == 100


def test_a_copy_may_be_repeated(node: Node) -> None:
    source = some_file(node)

    assert node.copy(source, f"{node.outside}/out")[-1].percent == 100
    assert node.copy(source, f"{node.outside}/out")[-1].percent == 100


def test_a_copy_may_be_given_up_after_any_word_of_progress(node: Node) -> None:
    source = some_file(node)

    async def main() -> None:
        work = copy_of(source, f"{node.outside}/out")
        async with aclosing(node.machine.copy(work)) as copying:  # type: ignore[type-var]
            await anext(copying)

    node.run(main())


def test_a_simulated_copy_that_is_given_up_does_not_come_to_its_end() -> None:
    flash = SimulatedFlash(CAPACITY)

    async def main() -> None:
        copying = SimulatedNode("node1", flash).copy(copy_of("/in", "/out"))
        async with aclosing(copying) as told:  # type: ignore[type-var]
            await anext(told)

    virtual.run(main())

    assert flash.copies == []


def test_a_simulated_machine_does_not_release_what_is_mounted(tmp_path: Path) -> None:
    node = simulated(tmp_path)
    node.make()
    path = node.mount()

    with pytest.raises(NodeTrouble, match="rabbit1/a is mounted"):
        node.release()

    node.unmount(path)
    node.release()
    assert node.volumes() == {}


# Files, where there are any


def test_what_is_copied_in_is_there_to_be_copied_out(real: Node) -> None:
    source = some_file(real)
    real.make()
    path = real.mount()
    real.copy(f"{source}/", f"{path}/")
    real.copy(f"{path}/", f"{real.outside}/results/")
    real.unmount(path)

    assert (real.outside / "results" / "data").read_bytes() == b"x" * 5000


def test_a_mount_is_copied_as_a_directory_of_its_name(real: Node) -> None:
    source = some_file(real)
    real.make()
    path = real.mount(at="rabbit1-0")
    real.copy(f"{source}/data", f"{path}/")
    real.copy(path, f"{real.outside}/results", index="rabbit1-0")
    real.unmount(path)

    copied = real.outside / "results" / "rabbit1-0"
    assert not copied.is_symlink()
    assert (copied / "data").read_bytes() == b"x" * 5000


def test_files_stay_when_a_volume_is_mounted_elsewhere(real: Node) -> None:
    source = some_file(real)
    real.make()
    one = real.mount(at="one")
    real.copy(f"{source}/", one)
    real.unmount(one)
    two = real.mount(at="two")
    real.copy(f"{two}/data", f"{real.outside}/back")
    real.unmount(two)

    assert (real.outside / "back").read_bytes() == b"x" * 5000


def test_mount_points_go_with_the_last_mount_below_them(real: Node) -> None:
    real.make()
    one = real.mount(at="servers/node1-0")
    two = real.mount(at="servers/node1-1")
    real.unmount(one)

    assert real.points() == ["servers"]
    assert real.mounts() == {two}

    real.unmount(two)

    assert real.points() == []


def test_a_volume_made_again_is_empty(real: Node) -> None:
    source = some_file(real)
    real.make()
    path = real.mount()
    real.copy(f"{source}/", path)
    real.unmount(path)
    real.release()
    real.make()
    path = real.mount()
    real.copy(f"{path}/", f"{real.outside}/back/")
    real.unmount(path)

    assert list((real.outside / "back").iterdir()) == []


def test_what_a_user_has_made_unwritable_is_released_all_the_same(real: Node) -> None:
    tree = real.outside / "tree"
    (tree / "closed" / "closed").mkdir(parents=True)
    (tree / "closed" / "closed" / "file").touch(0o400)
    (tree / "closed" / "link").symlink_to(real.outside)
    (tree / "closed" / "closed").chmod(0)
    (tree / "closed").chmod(0o500)
    real.make()
    path = real.mount()
    (tree / "closed" / "closed").chmod(0o500)
    real.copy(f"{tree}/", path)
    real.unmount(path)
    real.release()
    for directory in (tree / "closed", tree / "closed" / "closed"):
        directory.chmod(0o700)

    assert real.volumes() == {}
    assert list(real.records.iterdir()) == []
    assert os.stat(real.outside).st_mode & 0o777 == 0o700


def test_a_copy_that_fails_tells_why_in_the_copiers_words(real: Node) -> None:
    with pytest.raises(NodeTrouble, match="/nowhere: No such file or directory"):
        real.copy(f"{real.outside}/nowhere", f"{real.outside}/out")


# File systems of several nodes


def test_a_gfs2_is_one_file_system_on_all_nodes_that_mount_it(
    nodes: Nodes, loop_devices: Path
) -> None:
    """Statement 001.38: what is on it is there for a container as for the job's tasks."""
    rabbit = LoopDisk("rabbit1", loop_devices / "rabbit1", CAPACITY * UNIT, None)
    blocks = BlockFlash(lambda _: rabbit, nodes.root)
    path = f"{nodes.prefix}/job"
    volume = Volume(
        rabbit="rabbit1",
        name="a",
        size=400 * UNIT,
        file_system="gfs2",
        userid=os.geteuid(),
        groupid=os.getegid(),
    )

    async def story() -> None:
        machines = [
            NamespacedNode(name, blocks, nodes.namespace(name)) for name in ("node1", "node2")
        ]
        await machines[0].make(volume)
        for each in machines:
            await each.mount("rabbit1", "a", "gfs2", path)
        here, there = (Path(f"{nodes.namespace(name).root}{path}/it") for name in nodes.names())
        here.write_text("words")
        assert there.read_text() == "words"
        for each in machines:
            await each.unmount(path)
        await machines[0].release("rabbit1", "a")

    asyncio.run(story())
