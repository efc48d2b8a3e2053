"""What `warren job storage` prints."""

import asyncio
import errno
from typing import Any, cast

import orjson
import pytest

from warren.cli.job.storage import _print, _read_storage, _short_path
from warren.rpc.message import Handle, RpcError

UID = "2afeb638-a25f-456a-bb24-a84acc7cf015"
DIRECTIVES = (
    "#DW jobdw type=xfs capacity=1GiB name=scratch",
    "#DW copy_out source=$DW_JOB_scratch/ destination=/out",
)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        (f"/mnt/nnf/{UID}-0/rabbit-0-0/a", "scratch:rabbit-0-0/a"),
        (f"/mnt/nnf/{UID}-1/rabbit-0-0/a", f"/mnt/nnf/{UID}-1/rabbit-0-0/a"),
        (f"/mnt/nnf/{UID}-9/rabbit-0-0/a", f"/mnt/nnf/{UID}-9/rabbit-0-0/a"),
        ("/lus/global/out", "/lus/global/out"),
    ],
)
def test_places_on_the_jobs_own_storage_have_its_name(path: str, shown: str) -> None:
    assert _short_path(path, DIRECTIVES) == shown


def told(**facts: Any) -> dict[str, Any]:
    return {
        "workflow": "fluxjob-7", "directives": DIRECTIVES, "live": True, "over": False,
        "ready": False,
        "desired": "DataOut", "since": "2026-11-24T03:58:16.578285Z", "waits": "waits for a copy",
        "bytes": 3 << 30, "rabbits": {"r0": 1 << 30, "r1": 2 << 30}, "nodes": "n[0-2]",
        "lost": "n2", "mounted": "r0", "states": {"Setup": 1.5}, "copied": {"Success": 102},
        "copies": [
            {"source": "/a", "destination": f"/mnt/nnf/{UID}-0/r0-0/", "status": "Running",
             "progress": 40, "data": "4 MiB", "rate": "1 MiB/s", "message": "copied 4 MiB"},
        ],
        "exceptions": [
            {"timestamp": 1.0, "type": "dws", "severity": 0, "note": "bad"},
            {"timestamp": 2.0, "type": "rabbit-alert", "severity": 2, "note": "r0 is Offline"},
        ],
        **facts,
    }  # fmt: skip


def test_a_job_that_waits_is_shown_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    _print("f7", told())
    shown = capsys.readouterr().out

    for line in (
        "f7  Workflow fluxjob-7",
        "storage: 3.00 GiB on r0 1.00 GiB, r1 2.00 GiB",
        "nodes: n[0-2]",
        "lost: n2",
        "mounted on: r0",
        "and 101 more copies",
        "1970-01-01T00:00:01Z dws: bad",
        "1970-01-01T00:00:02Z rabbit-alert (not fatal): r0 is Offline",
    ):
        assert line in shown.splitlines()
    assert "waits for a copy" in shown
    assert "scratch:r0-0/" in shown


def test_the_containers_beside_a_job_are_shown_by_their_rabbits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = {"pod": "wf-r0-x", "phase": "Failed", "tries": 3, "exit": 2, "words": "a\nno\x1b data"}
    runs = {"pod": "wf-r1-y", "phase": "Running", "tries": 1, "exit": None, "words": ""}
    _print("f7", told(containers=[{"rabbit": "r0", **failed}, {"rabbit": "r1", **runs}]))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]

    assert ["RABBIT", "POD", "PHASE", "TRIES", "EXIT", "LAST", "WORDS"] in lines
    assert ["r0", "wf-r0-x", "Failed", "3", "2", "no\\x1b", "data"] in lines
    assert ["r1", "wf-r1-y", "Running", "1"] in lines


def test_a_job_that_is_over_is_shown_as_its_record_has_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _print("f7", told(live=False, over=True))
    shown = capsys.readouterr().out

    assert "f7  Workflow fluxjob-7, which is gone" in shown
    assert "mounted" not in shown
    assert "waits" not in shown


def test_a_job_without_a_summary_is_shown_with_its_trouble(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its record is of a version that kept none."""
    plain = {"live": False, "over": False, "states": {"Setup": 1.5}, "exceptions": []}
    _print("f7", {**plain, "workflow": "fluxjob-7", "directives": ["#DW \x1b[2J"]})
    shown = capsys.readouterr().out

    assert "Setup" in shown
    assert shown.startswith(
        "f7  Workflow fluxjob-7 (from the job's record: the conductor tells nothing of it now)\n"
    )
    assert "\x1b" not in shown


class Instance:
    """Answers what is asked of a job in Teardown: its pods are gone, its record has them."""

    def __init__(self, kept: dict[str, Any] | None) -> None:
        self.kept = kept

    async def rpc(self, topic: str, payload: Any = None) -> Any:
        if topic == "dws.storage":
            return {**told(), "containers": []}
        (name,) = payload["keys"]
        if name == "eventlog":
            return {name: ""}
        if name == "rabbit_storage" and self.kept is not None:
            return {name: orjson.dumps(self.kept).decode()}
        raise RpcError(errno.ENOENT)


@pytest.mark.parametrize(
    ("kept", "shown"), [({"containers": ["pod"]}, ["pod"]), ({}, []), (None, [])]
)
def test_containers_are_shown_from_the_record_once_teardown_has_taken_them_away(
    kept: dict[str, Any] | None, shown: list[str]
) -> None:
    found = asyncio.run(_read_storage(cast(Handle, Instance(kept)), 7, "f7"))
    assert (found["live"], found["containers"]) == (True, shown)
