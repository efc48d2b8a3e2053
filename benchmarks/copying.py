"""The copier against `cp`, `rsync` and Python's own, in the same run, on the same disk."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.measure import Result
from warren.dws.node import Copy
from warren.node import copying

MEGABYTES = 4096
FILES = 20_000
ROUNDS = 3


def one_file() -> Iterator[Result]:
    """One large file."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "source"
        with source.open("wb") as output:
            block = os.urandom(2**26)
            for _ in range(MEGABYTES // 64):
                output.write(block)
        script = "import shutil, sys; shutil.copy2(*sys.argv[1:])"
        others = {
            "cp": ["cp", "--reflink=never", "--preserve"],
            "rsync": ["rsync", "-aHAX", "--whole-file"],
            "shutil.copy2": [sys.executable, "-c", script],
        }
        yield from _compared("one file of 4 GiB", source, others, MEGABYTES, "MiB/s")


def tree() -> Iterator[Result]:
    """Many small files."""
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory) / "source"
        for number in range(FILES):
            place = source / f"d{number % 50}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"f{number}").write_bytes(b"x" * 4096)
        script = "import shutil, sys; shutil.copytree(*sys.argv[1:], symlinks=True)"
        others = {
            "cp -a": ["cp", "-a"],
            "rsync -aHAX": ["rsync", "-aHAX", "--whole-file"],
            "shutil.copytree": [sys.executable, "-c", script],
        }
        yield from _compared("a tree of 20,000 small files", source, others, FILES, "files/s")


def _compared(
    what: str, source: Path, others: dict[str, list[str]], amount: int, unit: str
) -> Iterator[Result]:
    """Measure the copier and the others in turn, so that all have the same disk and neighbours."""
    commands = {"copier": _copier(source), **{name: [*argv, str(source)]
                for name, argv in others.items() if shutil.which(argv[0])}}  # fmt: skip
    target = source.parent / "target"
    best = dict.fromkeys(commands, (float("inf"), 0.0))
    for _ in range(ROUNDS):
        for name, argv in commands.items():
            best[name] = min(best[name], _taken([*argv, *_last(name, target)]))
            subprocess.run(["rm", "-rf", str(target)], check=True)
    for name, (seconds, cpu) in best.items():
        yield Result(name=f"{name}, {what}", value=amount / seconds, unit=unit)
        yield Result(name=f"{name}, {what}: CPU", value=cpu, unit="s")
    first = next(iter(others))
    ratio = best[first][0] / best["copier"][0]
    yield Result(name=f"copier to {first}, {what}", value=ratio, unit="x", budget=1.0,
                 at_least=True)  # fmt: skip


def _copier(source: Path) -> list[str]:
    copy = Copy(
        source=str(source),
        destination=str(source.parent / "target"),
        index=None,
        userid=os.getuid(),
        groupid=os.getgid(),
    )
    return copying.command(copy)


def _last(name: str, target: Path) -> Sequence[str]:
    """Return the destination, which our copier has been told."""
    return () if name == "copier" else (str(target),)


def _taken(argv: Sequence[str]) -> tuple[float, float]:
    """Run a command; return the seconds that it took, and those of the processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(argv, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, cpu


ALL = {"copy a file": one_file, "copy a tree": tree}
