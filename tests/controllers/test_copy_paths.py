"""Where copies arrive, from the directive to the disk: every shape of source and destination.

The rows are those of NNF's system tests (users-want section 4.2): a file, a directory with and
without a slash, the root of the storage; to a directory, a file, and what does not exist yet.
"""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.dws.builders import JOBDW, lustre, nnf_storage, workflow
from warren.controllers.movement import _copy_of
from warren.directives.parse import parse
from warren.dws.copies import datamovement
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfStorage
from warren.node import copying

TREE = ("job/data.out", "job/data2.out", "job/sub/data3.out")


@dataclass(frozen=True)
class Row:
    """A source and a destination; what arrives, and where, with the index directory as IDX."""

    source: str
    destination: str
    arrives: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.source or 'root'} to {self.destination}"


def whole(place: str, below: str) -> dict[str, str]:
    """What is in the source below a directory arrives at a place."""
    return {
        os.path.normpath(f"{place}/{name.removeprefix(below)}"): name
        for name in TREE
        if name.startswith(below)
    }


# `dir` and `dir/file` exist in the destination, and nothing else.
ROWS = [
    *(
        Row("job/data.out", to, {at: "job/data.out"})
        for to, at in {
            "dir": "dir/IDX/data.out",
            "dir/": "dir/IDX/data.out",
            "dir/file": "dir/IDX/file",
            "dir/new": "dir/IDX/new",
            "new": "IDX/new",
            "new/": "new/IDX/data.out",
            "new/deep": "new/IDX/deep",
            "new/deep/": "new/deep/IDX/data.out",
            "": "IDX/data.out",
        }.items()
    ),
    *(
        Row("job/sub/data3.out", to, {at: "job/sub/data3.out"})
        for to, at in {
            "dir": "dir/IDX/data3.out",
            "dir/file": "dir/IDX/file",
            "new": "IDX/new",
            "new/": "new/IDX/data3.out",
        }.items()
    ),
    *(
        Row("job", to, whole(f"{at}/IDX/job", "job/"))
        for to, at in {
            "dir": "dir", "dir/": "dir", "new": "new", "new/": "new",
            "new/deep": "new/deep", "new/deep/": "new/deep",
        }.items()
    ),
    *(
        Row("job/", to, whole(f"{at}/IDX", "job/"))
        for to, at in {
            "dir": "dir", "dir/": "dir", "new": "new", "new/": "new",
            "new/deep": "new/deep", "new/deep/": "new/deep",
        }.items()
    ),
    # The root of the storage: without a slash the directory itself, which is the index directory.
    Row("", "dir", whole("dir/IDX", "")),
    Row("", "new", whole("new/IDX", "")),
    Row("/", "dir", whole("dir/IDX", "")),
    Row("/", "new", whole("new/IDX", "")),
]  # fmt: skip


def test_there_is_every_row() -> None:
    assert len({str(row) for row in ROWS}) == 29


@dataclass(frozen=True)
class Place:
    """A global file system, and a storage with an allocation for each of two computes."""

    root: Path
    storage: NnfStorage

    def own(self, number: int) -> Path:
        return self.root / "nnf" / f"r0-{number}"

    def run(self, directive: str, **changed: Any) -> None:
        """Make the movements of a directive, and have their copies made."""
        wf = workflow(JOBDW, directive)
        objects = datamovement.movements(
            wf,
            1,
            parse(directive),
            self.storage,
            [lustre(root=f"{self.root}/lus")],
            f"{self.root}/nnf",
        )
        assert len(objects) == 2
        for obj in objects:
            obj["metadata"].setdefault("uid", obj["metadata"]["name"])
            work = replace(
                _copy_of(read(obj, NnfDataMovement), 0),
                userid=os.geteuid(),
                groupid=os.getegid(),
                **changed,
            )
            subprocess.run(copying.command(work), check=True, stdout=subprocess.DEVNULL)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "lus").mkdir()
    found = Place(tmp_path, nnf_storage(("r0", 2)))
    for number in range(2):
        found.own(number).mkdir(parents=True)
    return found


def fill(root: Path, text: str) -> None:
    for name in TREE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text} {name}")


def with_destinations(root: Path) -> None:
    (root / "dir").mkdir()
    (root / "dir" / "file").write_text("older")


def files(root: Path) -> dict[str, str]:
    found = {str(path.relative_to(root)): path for path in root.rglob("*") if path.is_file()}
    return {name: path.read_text() for name, path in found.items()}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_results_of_each_compute_arrive_apart(place: Place, row: Row) -> None:
    with_destinations(place.root / "lus")
    for number in range(2):
        fill(place.own(number), str(number))
    below = row.source if row.source in ("", "/") else f"/{row.source}"
    source = f"$DW_JOB_my_fs{below}"
    place.run(f"#DW copy_out source={source} destination={place.root}/lus/{row.destination}")

    expected = {
        os.path.normpath(at.replace("IDX", f"r0-{number}")): f"{number} {name}"
        for number in range(2)
        for at, name in row.arrives.items()
    }
    assert files(place.root / "lus") == {"dir/file": "older", **expected}


@pytest.mark.parametrize("row", [row for row in ROWS if row.source not in ("", "/")], ids=str)
def test_each_compute_has_what_is_copied_in(place: Place, row: Row) -> None:
    fill(place.root / "lus", "global")
    for number in range(2):
        with_destinations(place.own(number))
    to = f"$DW_JOB_my_fs/{row.destination}"
    place.run(f"#DW copy_in source={place.root}/lus/{row.source} destination={to}")

    expected = {
        os.path.normpath(at.replace("IDX", ".")): f"global {name}"
        for at, name in row.arrives.items()
    }
    for number in range(2):
        assert files(place.own(number)) == {"dir/file": "older", **expected}


@pytest.mark.parametrize(
    ("source", "destination", "at"),
    [("", "dir", "dir/lus"), ("", "new", "new/lus"), ("/", "dir", "dir"), ("/", "new", "new")],
)
def test_a_whole_file_system_may_be_copied_in(
    place: Place, source: str, destination: str, at: str
) -> None:
    fill(place.root / "lus", "global")
    for number in range(2):
        with_destinations(place.own(number))
    to = f"$DW_JOB_my_fs/{destination}"
    place.run(f"#DW copy_in source={place.root}/lus{source} destination={to}")

    for number in range(2):
        expected = {place: f"global {name}" for place, name in whole(at, "").items()}
        assert files(place.own(number)) == {"dir/file": "older", **expected}


@pytest.mark.parametrize("row", [row for row in ROWS if row.source not in ("", "/")], ids=str)
def test_storage_that_all_computes_share_has_no_index_directories(place: Place, row: Row) -> None:
    """As of Lustre, whose one movement has no allocation in its path (dws-spec section 11.2)."""
    with_destinations(place.root / "lus")
    fill(place.own(0), "shared")
    fill(place.own(1), "shared")
    source = f"$DW_JOB_my_fs/{row.source}"
    place.run(
        f"#DW copy_out source={source} destination={place.root}/lus/{row.destination}", index=None
    )

    expected = {
        os.path.normpath(at.replace("IDX", ".")): f"shared {name}"
        for at, name in row.arrives.items()
    }
    assert files(place.root / "lus") == {"dir/file": "older"} | expected
