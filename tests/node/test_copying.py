"""The copier, run as the program that it is."""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from tests.node.conftest import User
from tests.node.processes import alive, eventually
from warren.dws.node import Copy, NodeTrouble, Progress
from warren.node import commands, copying

OLD = 1_500_000_000_123_456_789
"""A moment long ago, in nanoseconds."""


@dataclass(frozen=True)
class Outcome:
    status: int
    told: list[Progress]
    complaints: list[str]

    @property
    def last(self) -> Progress:
        return self.told[-1]


@dataclass(frozen=True)
class Copier:
    """Copies in one directory, where the user may do what it likes."""

    place: Path
    user: User

    def command(self, source: str, destination: str, index: str | None = None) -> list[str]:
        """Paths are taken from the place; their trailing slashes are kept."""
        return copying.command(
            Copy(
                source=f"{self.place}/{source}",
                destination=f"{self.place}/{destination}",
                index=index,
                userid=self.user.userid,
                groupid=self.user.groupid,
            )
        )

    def __call__(
        self,
        source: str,
        destination: str,
        index: str | None = None,
        before: Callable[[], object] | None = None,
    ) -> Outcome:
        ended = subprocess.run(
            self.command(source, destination, index),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            preexec_fn=before,
        )
        told = [copying.progress(line) for line in ended.stdout.splitlines()]
        return Outcome(ended.returncode, told, ended.stderr.splitlines())

    def well(self, source: str, destination: str, index: str | None = None) -> Outcome:
        outcome = self(source, destination, index)
        assert outcome.status == 0, outcome.complaints
        assert outcome.complaints == []
        assert outcome.last.bytes == outcome.last.total_bytes
        assert outcome.last.files == outcome.last.total_files
        return outcome


@pytest.fixture
def copy(public: Path, user: User) -> Iterator[Copier]:
    yield Copier(public, user)
    left = copier_at(public)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left


def tree(root: Path) -> Path:
    """A tree with a little of everything."""
    (root / "deep" / "er").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "one").write_bytes(b"1" * 100)
    (root / "deep" / "two").write_bytes(b"2" * 20_000)
    (root / "deep" / "er" / "nothing").touch()
    (root / "link").symlink_to("one")
    (root / "deep" / "up").symlink_to("../empty")
    (root / "dangling").symlink_to("nowhere/at/all")
    return root


def shape(root: Path) -> dict[str, object]:
    """What a tree holds, by path."""
    found: dict[str, object] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        else:
            found[name] = "directory" if path.is_dir() else path.read_bytes()
    return found


# What is copied


def test_a_tree_arrives_whole(copy: Copier) -> None:
    source = tree(copy.place / "in")
    copy.well("in", "out")

    assert shape(copy.place / "out" / "in") == shape(source)


def test_modes_and_times_arrive(copy: Copier) -> None:
    source = tree(copy.place / "in")
    (source / "one").chmod(0o640 if copy.user.userid == os.geteuid() else 0o644)
    (source / "deep" / "two").chmod(0o755)
    (source / "empty").chmod(0o755)
    for path in (source / "one", source / "deep" / "two", source / "empty", source / "deep"):
        os.utime(path, ns=(OLD, OLD))
    copy.well("in/", "out")

    for name in ("one", "deep/two", "empty", "deep"):
        before, after = os.stat(source / name), os.stat(copy.place / "out" / name)
        assert after.st_mode == before.st_mode, name
        assert after.st_mtime_ns == OLD, name


def test_a_directory_that_is_copied_by_its_name_keeps_its_mode_and_times(copy: Copier) -> None:
    source = tree(copy.place / "in")
    source.chmod(0o555)
    os.utime(source, ns=(OLD, OLD))
    copy.well("in", "out")

    found = os.stat(copy.place / "out" / "in")
    assert found.st_mode & 0o777 == 0o555
    assert found.st_mtime_ns == OLD


def test_a_destination_keeps_its_own_mode_when_contents_are_copied_into_it(copy: Copier) -> None:
    tree(copy.place / "in").chmod(0o555)
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    copy.well("in/", "out")

    assert os.stat(copy.place / "out").st_mode & 0o777 == 0o777


def test_nobody_becomes_another_user_by_a_copy(copy: Copier) -> None:
    (copy.place / "tool").touch()
    (copy.place / "tool").chmod(0o6755)
    copy.well("tool", "copied")

    assert os.stat(copy.place / "copied").st_mode & 0o7777 == 0o755


def test_the_copies_are_the_users(copy: Copier) -> None:
    tree(copy.place / "in")
    copy.well("in", "out")

    for path in (copy.place / "out").rglob("*"):
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == (copy.user.userid, copy.user.groupid), path


def test_a_file_of_many_chunks_arrives_with_its_holes_as_zeros(copy: Copier) -> None:
    size = 100 * 2**20
    with open(copy.place / "big", "wb") as big:
        for place in (0, 32 * 2**20 - 3, 64 * 2**20, size - 6):
            big.seek(place)
            big.write(b"warren")
    outcome = copy.well("big", "copied")

    assert outcome.last.bytes == size
    assert subprocess.run(["cmp", copy.place / "big", copy.place / "copied"]).returncode == 0


def test_names_may_be_anything(copy: Copier) -> None:
    source = copy.place / "in"
    source.mkdir()
    for name in ("-rf", "a b", "new\nline", "Größe", '"quoted"'):
        (source / name).write_text(name)
    (copy.place / "in" / os.fsdecode(b"not utf-8 \xff")).touch()
    copy.well("in", "out")

    assert shape(copy.place / "out" / "in") == shape(source)


def test_many_files_arrive(copy: Copier) -> None:
    source = copy.place / "in"
    for number in range(1000):
        path = source / str(number % 7) / str(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    outcome = copy.well("in/", "out")

    assert outcome.last.total_files == 1000
    assert shape(copy.place / "out") == shape(source)


# Where it goes (dws-spec 11.3)


def test_a_file_goes_to_the_name_that_it_is_given(copy: Copier) -> None:
    (copy.place / "in").write_text("new")
    copy.well("in", "a/b/out")

    assert (copy.place / "a/b/out").read_text() == "new"


def test_a_file_takes_the_place_of_a_file(copy: Copier) -> None:
    (copy.place / "in").write_text("new")
    (copy.place / "out").write_text("older, and longer")
    (copy.place / "out").chmod(0o666)
    os.chown(copy.place / "out", copy.user.userid, copy.user.groupid)
    copy.well("in", "out")

    assert (copy.place / "out").read_text() == "new"


@pytest.mark.parametrize("destination", ["out", "out/"])
def test_a_file_goes_into_a_directory_that_is_there(copy: Copier, destination: str) -> None:
    (copy.place / "in").write_text("new")
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    copy.well("in", destination)

    assert shape(copy.place / "out") == {"in": b"new"}


def test_a_file_goes_into_a_directory_that_a_slash_asks_for(copy: Copier) -> None:
    (copy.place / "in").write_text("new")
    copy.well("in", "out/")

    assert shape(copy.place / "out") == {"in": b"new"}


@pytest.mark.parametrize("destination", ["out", "out/"])
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("source", "arrives"), [("in", "in/file"), ("in/", "file")])
def test_a_slash_after_the_source_asks_for_the_contents(
    copy: Copier, source: str, arrives: str, destination: str, there: bool
) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "in" / "file").write_text("new")
    if there:
        (copy.place / "out").mkdir()
        (copy.place / "out").chmod(0o777)
    copy.well(source, destination)

    assert (copy.place / "out" / arrives).read_text() == "new"
    assert len([path for path in (copy.place / "out").rglob("*") if path.is_file()]) == 1


@pytest.mark.parametrize(
    ("source", "destination", "arrives"),
    [
        ("nnf/rabbit1-0/", "out", "out/rabbit1-0/deep/file"),
        ("nnf/rabbit1-0", "out", "out/rabbit1-0/deep/file"),
        ("nnf/rabbit1-0/deep", "out", "out/rabbit1-0/deep/file"),
        ("nnf/rabbit1-0/deep/", "out/", "out/rabbit1-0/file"),
        ("nnf/rabbit1-0/deep/file", "out/", "out/rabbit1-0/file"),
        ("nnf/rabbit1-0/deep/file", "out", "rabbit1-0/out"),
    ],
)
def test_what_comes_from_node_local_storage_goes_into_an_index_directory(
    copy: Copier, source: str, destination: str, arrives: str
) -> None:
    (copy.place / "nnf" / "rabbit1-0" / "deep").mkdir(parents=True)
    (copy.place / "nnf" / "rabbit1-0" / "deep" / "file").write_text("new")
    copy.well(source, destination, index="rabbit1-0")

    assert (copy.place / arrives).read_text() == "new"


@pytest.mark.parametrize(("source", "arrives"), [("way", "way/file"), ("way/", "file")])
def test_a_link_that_is_named_as_the_source_stands_for_its_directory(
    copy: Copier, source: str, arrives: str
) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "in" / "file").write_text("new")
    (copy.place / "way").symlink_to("in")
    copy.well(source, "out")

    assert (copy.place / "out" / arrives).read_text() == "new"


def test_a_dangling_link_that_is_named_as_the_source_is_copied_as_it_is(copy: Copier) -> None:
    (copy.place / "way").symlink_to("nowhere")
    copy.well("way", "out")

    assert (copy.place / "out").readlink() == Path("nowhere")


def test_a_copy_does_not_write_through_a_link_that_is_in_its_place(copy: Copier) -> None:
    (copy.place / "in").write_text("new")
    (copy.place / "precious").write_text("precious")
    (copy.place / "precious").chmod(0o666)
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    (copy.place / "out" / "in").symlink_to("../precious")
    copy("in", "out/")

    assert (copy.place / "precious").read_text() == "precious"


# Once more, after a restart


def test_a_copy_that_is_repeated_changes_nothing(copy: Copier) -> None:
    source = tree(copy.place / "in")
    copy.well("in", "out")
    copy.well("in", "out")

    assert shape(copy.place / "out" / "in") == shape(source)


def test_what_is_not_writable_can_be_copied_again(copy: Copier) -> None:
    source = tree(copy.place / "in")
    for path in (source / "one", source / "deep" / "two"):
        path.chmod(0o444)
    for path in (source / "deep" / "er", source / "deep", source):
        path.chmod(0o555)
    copy.well("in", "out")
    copy.well("in", "out")

    assert shape(copy.place / "out" / "in") == shape(source)
    assert os.stat(copy.place / "out" / "in" / "deep").st_mode & 0o777 == 0o555


# What fails


def test_a_source_that_is_not_there_is_told(copy: Copier) -> None:
    outcome = copy("nowhere", "out")

    assert outcome.status == 1
    assert outcome.complaints == [f"{copy.place}/nowhere: No such file or directory"]
    assert not (copy.place / "out").exists()


def test_what_cannot_be_read_is_told_and_the_rest_is_copied(copy: Copier) -> None:
    source = tree(copy.place / "in")
    (source / "one").chmod(0)
    (source / "deep" / "er").chmod(0)
    outcome = copy("in", "out")

    assert outcome.status == 1
    assert sorted(outcome.complaints) == [
        f"{source}/deep/er: Permission denied",
        f"{source}/one: Permission denied",
    ]
    assert (copy.place / "out" / "in" / "deep" / "two").read_bytes() == b"2" * 20_000
    assert (copy.place / "out" / "in" / "link").is_symlink()
    assert outcome.last.files == outcome.last.total_files - 1


def test_what_is_neither_file_nor_link_is_told_and_the_rest_is_copied(copy: Copier) -> None:
    source = tree(copy.place / "in")
    os.mkfifo(source / "pipe")
    outcome = copy("in/", "out")

    assert outcome.status == 1
    assert outcome.complaints == [f"{source}/pipe: is neither a file nor a link"]
    assert (copy.place / "out" / "one").exists()


def test_a_file_in_the_place_of_a_directory_is_told_and_the_rest_is_copied(copy: Copier) -> None:
    (copy.place / "out").mkdir()
    (copy.place / "out").chmod(0o777)
    for number in range(10):
        (copy.place / "in" / str(number)).mkdir(parents=True)
        (copy.place / "in" / str(number) / "file").touch()
    for number in range(3):
        (copy.place / "out" / str(number)).touch()
    outcome = copy("in/", "out")

    assert outcome.status == 1
    for number in range(3):
        assert f"{copy.place}/out/{number}: File exists" in outcome.complaints
    for number in range(3, 10):
        assert (copy.place / "out" / str(number) / "file").exists()


def test_a_directory_in_the_place_of_a_link_is_told_and_the_rest_is_copied(copy: Copier) -> None:
    tree(copy.place / "in")
    (copy.place / "out" / "link").mkdir(parents=True)
    (copy.place / "out").chmod(0o777)
    outcome = copy("in/", "out")

    assert outcome.status == 1
    assert outcome.complaints == [f"{copy.place}/out/link: File exists"]
    assert (copy.place / "out" / "one").exists()


def test_a_destination_that_cannot_be_made_is_told(copy: Copier) -> None:
    (copy.place / "in").touch()
    (copy.place / "locked").mkdir(mode=0o555)
    outcome = copy("in", "locked/out/")

    assert outcome.status == 1
    assert outcome.complaints == [f"{copy.place}/locked/out: Permission denied"]


def test_a_write_that_fails_is_told_with_the_name_of_the_file(copy: Copier) -> None:
    (copy.place / "in").mkdir()
    (copy.place / "in" / "long").write_bytes(b"x" * 100_000)
    (copy.place / "in" / "short").write_bytes(b"x")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    outcome = copy("in", "out", before=limited)

    assert outcome.status == 1
    assert outcome.complaints == [f"{copy.place}/out/in/long: File too large"]
    assert (copy.place / "out" / "in" / "short").read_bytes() == b"x"


def test_of_many_failures_some_are_told_and_the_others_counted(copy: Copier) -> None:
    (copy.place / "in").mkdir()
    for number in range(25):
        os.mkfifo(copy.place / "in" / f"pipe{number}")
    outcome = copy("in", "out")

    assert outcome.status == 1
    assert len(outcome.complaints) == 11
    assert outcome.complaints[-1] == "and 15 more"


# Progress


@pytest.mark.parametrize("line", ["", "hello\n", "{}\n", "[1]\n", '{"bytes": 1}\n', "null\n"])
def test_what_no_copier_says_is_not_taken_for_progress(line: str) -> None:
    with pytest.raises(NodeTrouble, match=r"^the copier said "):
        copying.progress(line)


def test_progress_is_told_twice_a_second_and_never_goes_back(copy: Copier) -> None:
    (copy.place / "in").mkdir()
    for number in range(20):
        (copy.place / "in" / str(number)).write_bytes(b"x" * 100)
    stuck(copy, "out/10")
    told = []

    async def main() -> None:
        async for line in commands.lines(copy.command("in/", "out")):
            told.append(copying.progress(line))
            if len(told) == 2:
                assert told[-1].files == 19
                (copy.place / "out" / "10").open("rb").close()

    with suppress(NodeTrouble):  # a pipe that is read for a moment may or may not take it
        asyncio.run(main())

    for before, after in pairwise(told):
        assert before.bytes <= after.bytes <= after.total_bytes == 2000
        assert before.files <= after.files <= after.total_files == 20
    assert 0.4 < told[1].seconds - told[0].seconds < 5


# Its end


def stuck(copy: Copier, name: str) -> None:
    """Put a pipe that nobody reads in the place of a file: a copy to it does not end."""
    path = copy.place / name
    path.parent.mkdir(exist_ok=True)
    path.parent.chmod(0o777)
    os.mkfifo(path)
    path.chmod(0o666)


def copier_at(place: Path) -> set[int]:
    """The copiers that work below a place."""
    found = set()
    for process in alive():
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"warren.node.copying" in words and str(place).encode() in b"".join(words):
            found.add(process)
    return found


def test_closing_the_iterator_ends_the_copier(copy: Copier) -> None:
    (copy.place / "in").touch()
    stuck(copy, "out")

    async def main() -> None:
        lines = commands.lines(copy.command("in", "out"))
        async with aclosing(lines) as told:  # type: ignore[type-var]
            await anext(told)
            assert copier_at(copy.place)

    asyncio.run(main())

    eventually(lambda: not copier_at(copy.place))


AGENT = """
import asyncio, sys
from warren.node import commands

async def main():
    async for line in commands.lines(sys.argv[1:]):
        print(line, flush=True)

asyncio.run(main())
"""


def test_the_copier_dies_with_its_agent(copy: Copier) -> None:
    (copy.place / "in").touch()
    stuck(copy, "out")
    command = [sys.executable, "-c", AGENT, *copy.command("in", "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        assert json.loads(agent.stdout.readline())["total_files"] == 1
        assert copier_at(copy.place) - {agent.pid}
        agent.kill()

    eventually(lambda: not copier_at(copy.place))
