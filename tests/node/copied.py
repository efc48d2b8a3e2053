"""Copiers to test, run as the program that they are, and what they have copied."""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.node.processes import alive
from warren.dws.node import Copy, Progress
from warren.node import copying


@dataclass(frozen=True)
class User:
    """Whom copies are made for: a user without power, even where we are root."""

    userid: int
    groupid: int


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

    def command(
        self, source: str, destination: str, index: str | None = None, **options: Any
    ) -> list[str]:
        """Paths are taken from the place; their trailing slashes are kept."""
        return copying.command(self.work(source, destination, index, **options))

    def work(self, source: str, destination: str, index: str | None = None, **options: Any) -> Copy:
        return Copy(
            source=f"{self.place}/{source}",
            destination=f"{self.place}/{destination}",
            index=index,
            userid=self.user.userid,
            groupid=self.user.groupid,
            **options,
        )

    def __call__(
        self,
        source: str,
        destination: str,
        index: str | None = None,
        before: Callable[[], object] | None = None,
        nsenter: Sequence[str] = (),
        **options: Any,
    ) -> Outcome:
        """Copy to the end; `nsenter` leads to where paths are known."""
        ended = subprocess.run(
            [*nsenter, *self.command(source, destination, index, **options)],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            preexec_fn=before,
        )
        told = [copying.progress(line) for line in ended.stdout.splitlines()]
        return Outcome(ended.returncode, told, ended.stderr.splitlines())

    def well(
        self, source: str, destination: str, index: str | None = None, **options: Any
    ) -> Outcome:
        outcome = self(source, destination, index, **options)
        assert outcome.status == 0, outcome.complaints
        assert outcome.complaints == []
        assert outcome.last.bytes == outcome.last.total_bytes
        assert outcome.last.files == outcome.last.total_files
        return outcome


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
