"""The copier against `cp`, in the same run, on the same disk."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Result
from warren.dws.node import Copy
from warren.node import copying

MEGABYTES = 4096
FILES = 5000


def one_file() -> Iterator[Result]:
    """One large file."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "source"
        with source.open("wb") as output:
            block = os.urandom(2**26)
            for _ in range(MEGABYTES // 64):
                output.write(block)
        ours = _rate(lambda target: _copy(source, target), directory, MEGABYTES)
        theirs = _rate(
            lambda target: _run("cp", "--reflink=never", str(source), str(target)),
            directory,
            MEGABYTES,
        )
    yield Result(name="copy one file of 4 GiB", value=ours, unit="MiB/s")
    yield Result(name="cp, the same file", value=theirs, unit="MiB/s")
    yield Result(name="copier to cp, one file", value=ours / theirs, unit="x", budget=1.0,
                 at_least=True)  # fmt: skip


def tree() -> Iterator[Result]:
    """Many small files."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "source"
        for number in range(FILES):
            place = source / f"d{number % 50}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"f{number}").write_bytes(b"x" * 4096)
        ours = _rate(lambda target: _copy(source, target), directory, FILES)
        theirs = _rate(lambda target: _run("cp", "-a", str(source), str(target)), directory, FILES)
    yield Result(name="copy a tree of small files", value=ours, unit="files/s")
    yield Result(name="cp -a, the same tree", value=theirs, unit="files/s")
    yield Result(name="copier to cp -a, a tree", value=ours / theirs, unit="x", budget=1.0,
                 at_least=True)  # fmt: skip


def _copy(source: Path, target: Path) -> None:
    copy = Copy(
        source=str(source),
        destination=str(target),
        index=None,
        userid=os.getuid(),
        groupid=os.getgid(),
    )
    _run(*copying.command(copy))


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def _rate(copy: Callable[[Path], None], directory: str, amount: int) -> float:
    """Return the best of three, in amounts a second."""
    best = 0.0
    for number in range(3):
        target = Path(directory) / f"target-{number}"
        began = time.perf_counter()
        copy(target)
        best = max(best, amount / (time.perf_counter() - began))
        subprocess.run(["rm", "-rf", str(target)], check=True)
    return best


ALL = {"copy a file": one_file, "copy a tree": tree}
