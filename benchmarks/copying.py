"""The copier against `cp`, `rsync`, `rclone` and Python's own, in the same run, on the same disk.

On the file system of temporary files, and, for root, on an xfs of its own on a loop device, on
which blocks may be shared (reflink). The copier ends when all is on the disk; so the others are
measured together with a `sync` of the file system after them.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.measure import Result
from warren.dws.node import Copy
from warren.node import copying, loops

MEGABYTES: Final = 4096
PIECES: Final = 64
"""MiB of data in a sparse file."""
FILES: Final = 20_000
MORE_FILES: Final = 200_000
ROUNDS: Final = 3

_SOURCE, _TARGET = "{source}", "{target}"
_PYTHON = "import shutil, sys; shutil.{}(*sys.argv[1:]{})"
_FILE: Final = {
    "cp": ["cp", "--preserve", _SOURCE, _TARGET],
    "rsync": ["rsync", "-aHAX", "--whole-file", _SOURCE, _TARGET],
    "rclone": ["rclone", "copyto", "--metadata", _SOURCE, _TARGET],
    "shutil.copy2": [sys.executable, "-c", _PYTHON.format("copy2", ""), _SOURCE, _TARGET],
}
_SPARSE: Final = {**_FILE, "rsync": ["rsync", "-aHAXS", "--whole-file", _SOURCE, _TARGET]}
_TREE: Final = {
    "cp -a": ["cp", "-a", _SOURCE, _TARGET],
    "rsync -aHAX": ["rsync", "-aHAX", "--whole-file", f"{_SOURCE}/", _TARGET],
    "rclone": ["rclone", "copy", "--metadata", "--links", _SOURCE, _TARGET],
    "shutil.copytree": [sys.executable, "-c", _PYTHON.format("copytree", ", symlinks=True"),
                        _SOURCE, _TARGET],
}  # fmt: skip


@dataclass(frozen=True)
class Content:
    """What a directory or a file holds: how many files, and how many bytes in all."""

    files: int
    bytes: int


def one_file(place: Path) -> Iterator[Result]:
    """One large file."""
    with (place / "source").open("wb") as output:
        block = os.urandom(2**26)
        for _ in range(MEGABYTES // 64):
            output.write(block)
    yield from _compared("one file of 4 GiB", place, _FILE, MEGABYTES, "MiB/s")


def sparse_file(place: Path) -> Iterator[Result]:
    """One large file, most of which is holes."""
    with (place / "source").open("wb") as output:
        for number in range(PIECES):
            output.seek(number * (MEGABYTES // PIECES) * 2**20)
            output.write(os.urandom(2**20))
        output.truncate(MEGABYTES * 2**20)
    yield from _compared("a sparse file of 4 GiB", place, _SPARSE, MEGABYTES, "MiB/s")


def tree(place: Path) -> Iterator[Result]:
    """Many small files."""
    _make_tree(place / "source", FILES)
    yield from _compared("a tree of 20,000 small files", place, _TREE, FILES, "files/s")


def large_tree(place: Path) -> Iterator[Result]:
    """Very many small files, once: it takes its time."""
    _make_tree(place / "source", MORE_FILES)
    what = "a tree of 200,000 small files"
    yield from _compared(what, place, _TREE, MORE_FILES, "files/s", rounds=1)


def _make_tree(source: Path, files: int) -> None:
    directories = [source / f"d{number}" for number in range(files // 400)]
    for each in directories:
        each.mkdir(parents=True)
    for number in range(files):
        (directories[number % len(directories)] / f"f{number}").write_bytes(b"x" * 4096)


def _compared(
    what: str,
    place: Path,
    others: Mapping[str, Sequence[str]],
    amount: int,
    unit: str,
    rounds: int = ROUNDS,
) -> Iterator[Result]:
    """Measure the copier and the others in turn, so that all have the same disk and neighbours."""
    what = f"{what}, {place.name}"
    source, target = place / "source", place / "target"
    commands = {"copier": _copier(source, target)}
    for name, argv in others.items():
        if shutil.which(argv[0]) is None:
            print(f"{name}, {what}, is not measured: it is not installed", file=sys.stderr)
        else:
            words = [each.format(source=source, target=target) for each in argv]
            commands[name] = ["sh", "-c", '"$@" && exec sync -f "$0"', str(target), *words]
    wanted = _content(source)
    # The first of them would have to write what was just made.
    subprocess.run(["sync", "-f", str(source)], check=True)
    best = dict.fromkeys(commands, (float("inf"), 0.0))
    for _ in range(rounds):
        for name, argv in commands.items():
            best[name] = min(best[name], _taken(argv))
            if (found := _content(target)) != wanted:
                raise RuntimeError(f"{name} has copied {found}, and not {wanted}")
            subprocess.run(["rm", "-rf", str(target)], check=True)
    for name, (seconds, cpu) in best.items():
        yield Result(name=f"{name}, {what}", value=amount / seconds, unit=unit)
        yield Result(name=f"{name}, {what}: CPU", value=cpu, unit="s")
    ours, ours_cpu = best.pop("copier")
    fastest, seconds = min(((name, each) for name, (each, _) in best.items()), key=lambda it: it[1])
    yield Result(name=f"copier to {fastest}, the fastest, {what}", value=seconds / ours, unit="x",
                 budget=1.0, at_least=True)  # fmt: skip
    least, cpu = min(((name, each) for name, (_, each) in best.items()), key=lambda it: it[1])
    yield Result(name=f"copier to {least}, the least, {what}: CPU", value=ours_cpu / cpu, unit="x")


def _content(path: Path) -> Content:
    """Return what is there, looked up anew."""
    if path.is_file():
        return Content(1, path.stat().st_size)
    files = [os.lstat(Path(above) / name) for above, _, names in os.walk(path) for name in names]
    return Content(len(files), sum(each.st_size for each in files))


def _copier(source: Path, target: Path) -> list[str]:
    copy = Copy(
        source=str(source),
        destination=str(target),
        index=None,
        userid=os.getuid(),
        groupid=os.getgid(),
    )
    return copying.command(copy)


def _taken(argv: Sequence[str]) -> tuple[float, float]:
    """Run a command; return the seconds that it took, and those of the processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


# Where


@contextmanager
def _here() -> Iterator[Path | None]:
    """A directory on the file system of temporary files."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "here"
        place.mkdir()
        yield place


@contextmanager
def _reflink() -> Iterator[Path | None]:
    """An xfs whose files may share blocks; None where none can be made."""
    why_not = loops.why_unavailable()
    if why_not is None and shutil.which("mkfs.xfs") is None:
        why_not = "mkfs.xfs is not installed"
    if why_not is not None:
        print(f"copies with reflink are not measured: {why_not}", file=sys.stderr)
        yield None
        return
    with tempfile.TemporaryDirectory() as directory:
        image, place = Path(directory) / "image", Path(directory) / "reflink"
        with image.open("wb") as file:
            file.truncate(12 * 2**30)
        place.mkdir()
        subprocess.run(["mkfs.xfs", "-q", "-m", "reflink=1", str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)


_MEASURES: Final = {
    "copy a file": one_file,
    "copy a sparse file": sparse_file,
    "copy a tree": tree,
    "copy a large tree": large_tree,
}


def _at(name: str, where: str) -> Iterator[Result]:
    with {"here": _here, "reflink": _reflink}[where]() as place:
        if place is not None:
            yield from _MEASURES[name](place)


ALL = {
    f"{name}{suffix}": lambda name=name, where=where: _at(name, where)
    for where, suffix in (("here", ""), ("reflink", ", reflink"))
    for name in _MEASURES
}
