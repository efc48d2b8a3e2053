"""Where what is copied out arrives: every pair of paths, for every kind of storage.

From the directive to the file: the movement that is made of it, what the rabbit's agent makes of
that, and the copier, or a command in its place. The rows are those of NNF's own test of paths.
"""

import asyncio
import os
import posixpath
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from tests.controllers.alone import Api, alone, running
from tests.controllers.machines import Noting
from tests.dws.builders import lustre, meta, workflow
from tests.node.copied import Copier
from warren.base.objects import Object
from warren.controllers.movement import MovementReconciler
from warren.directives.parse import parse
from warren.dws import kinds
from warren.dws.copies import commands, datamovement
from warren.dws.node import Copy
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfStorage
from warren.node import copying

RSYNC: Final = commands.parse("rsync -a $SRC $DEST").words

# Below the storage, below the directory `dest`, and what arrives there: at `*`, an allocation of
# a rabbit has its index directory, and Lustre nothing.
ROWS: Final = [
    ("/job/one", "", "*/one"),
    ("/job/one", "/", "*/one"),
    ("/job/one", "/one", "*/one"),
    ("/job/one", "/new", "*/new"),
    ("/job/one", "/new/", "new/*/one"),
    ("/job/one", "/new/name", "new/*/name"),
    ("/job/one", "/new/newer/", "new/newer/*/one"),
    ("/job/one", "/new/newer/name", "new/newer/*/name"),
    ("/job", "", "*/job/one"),
    ("/job/deep", "", "*/deep/two"),
    ("/job", "/", "*/job/one"),
    ("/job/", "", "*/one"),
    ("/job/", "/", "*/one"),
    ("/job", "/new", "new/*/job/one"),
    ("/job", "/new/", "new/*/job/one"),
    ("/job/", "/new", "new/*/one"),
    ("/job/", "/new/", "new/*/one"),
    ("/job", "/new/newer", "new/newer/*/job/one"),
    ("/job", "/new/newer/", "new/newer/*/job/one"),
    ("/job/", "/new/newer", "new/newer/*/one"),
    ("/job/", "/new/newer/", "new/newer/*/one"),
    ("", "", "*/job/one"),
    ("", "/", "*/job/one"),
    ("/", "", "*/job/one"),
    ("/", "/", "*/job/one"),
    ("", "/new", "new/*/job/one"),
    ("", "/new/", "new/*/job/one"),
    ("/", "/new", "new/*/job/one"),
    ("/", "/new/", "new/*/job/one"),
]  # fmt: skip


def storage(kind: str) -> NnfStorage:
    """A storage with two allocations on one rabbit, or with two OSTs."""
    nodes = [{"name": "r0", "count": 2}]
    label = "ost" if kind == "lustre" else kind
    spec = {
        "fileSystemType": kind,
        "userID": os.getuid(),
        "groupID": os.getgid(),
        "allocationSets": [{"name": label, "capacity": 1, "nodes": nodes}],
    }
    return read({"metadata": meta("wf-0"), "spec": spec}, NnfStorage)


def movements(place: Path, kind: str, source: str, destination: str) -> list[Object]:
    line = f"#DW copy_out source=$DW_JOB_fast{source} destination={place}/lus/dest{destination}"
    jobdw = f"#DW jobdw type={kind} capacity=1GiB name=fast"
    wf, site = workflow(jobdw, line), [lustre("lus", f"{place}/lus")]
    return datamovement.movements(wf, 1, parse(line), storage(kind), site, f"{place}/wf-0")


def copies(asked: Sequence[Object]) -> Sequence[Copy]:
    """Return what a rabbit's agent asks its machine to copy."""
    rabbit = Noting("r0")

    async def story(api: Api) -> None:
        movement = MovementReconciler(api, api.informers, rabbit, api.clock)
        async with running(api, movement.reconciler.run(), movement.copies.run()):
            for each in asked:
                await api.add(kinds.NNF_DATA_MOVEMENT, each)
            await asyncio.sleep(60)

    alone(story)
    return rabbit.flash.copies


def own(path: Path, copy: Copier) -> Path:
    """Make a directory of the user's, and those above it."""
    path.mkdir(parents=True, exist_ok=True)
    for each in (path, *path.parents):
        if copy.place in each.parents:
            os.chown(each, copy.user.userid, copy.user.groupid)
    return path


@pytest.mark.parametrize(
    ("kind", "by"),
    [
        ("xfs", "copier"),
        ("gfs2", "copier"),
        ("lustre", "copier"),
        ("xfs", "command"),
        ("lustre", "command"),
    ],
)
@pytest.mark.parametrize(("source", "destination", "arrives"), ROWS)
def test_what_is_copied_out_arrives_where_its_paths_say(
    copy: Copier, kind: str, by: str, source: str, destination: str, arrives: str
) -> None:
    if by == "command" and shutil.which("rsync") is None:
        pytest.skip("rsync is not here")
    parts = ["wf-0"] if kind == "lustre" else ["wf-0/r0-0", "wf-0/r0-1"]
    for part in parts:
        (own(copy.place / part / "job", copy) / "one").write_text(part)
        (own(copy.place / part / "job" / "deep", copy) / "two").write_text(part)
    there = own(copy.place / "lus" / "dest", copy)
    if destination == "/one":
        (there / "one").write_text("older")
        os.chown(there / "one", copy.user.userid, copy.user.groupid)
    wanted = copies(movements(copy.place, kind, source, destination))
    for each in wanted:
        words = RSYNC if by == "command" else ()
        whose = replace(each, userid=copy.user.userid, groupid=copy.user.groupid, command=words)
        ended = subprocess.run(
            copying.command(whose), capture_output=True, text=True, check=False, timeout=60
        )
        assert (ended.returncode, ended.stderr) == (0, "")

    arrived = {
        str(path.relative_to(there)): path.read_text()
        for path in there.rglob("*")
        if path.is_file() and path.read_text() != "older"
    }
    for part in parts:
        index = "" if kind == "lustre" else f"{posixpath.basename(part)}/"
        assert arrived[arrives.replace("*/", index)] == part
    copied = 1 if source.endswith(("one", "deep")) else 2
    assert len(arrived) == copied * len(wanted) == copied * len(parts)
