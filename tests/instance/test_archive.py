"""The archive: jobs are in a file before they are purged, or they are not purged."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from tests.instance.lives import PLAIN, Life, R, alive, spec
from tests.instance.parts import settle, virtually
from warren.instance import keys
from warren.instance.config import Config
from warren.instance.jobs.archive import encode_job
from warren.instance.jobtables import JobManagerTable
from warren.instance.kvs import put
from warren.instance.kvs.operations import symlink
from warren.journal import MemoryJournal
from warren.rfc import jobspec
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError


@pytest.fixture(autouse=True)
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads take no part in virtual time."""

    async def at_once(call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    monkeypatch.setattr(asyncio, "to_thread", at_once)


def archived(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


async def one_after_another(life: Life, count: int) -> list[JobId]:
    jobs = []
    for _ in range(count):
        jobs.append(await life.submit())
        await life.until(jobs[-1])
    return jobs


@virtually
async def test_jobs_are_archived_before_they_are_purged(tmp_path: Path) -> None:
    """Statement 003.15: jobs are periodically archived and purged."""
    path = tmp_path / "jobs.jsonl"
    table = JobManagerTable(inactive_num_limit=1, archive=str(path))
    async with alive(MemoryJournal(), config=Config(job_manager=table)) as life:
        jobs = await one_after_another(life, 3)
        await settle()

        assert [each.job.id for each in life.manager.jobs()] == jobs[2:]
        told = archived(path)
    assert [each["id"] for each in told] == jobs[:2]
    assert [event["name"] for event in told[0]["eventlog"]] == PLAIN
    assert told[0]["jobspec"] == jobspec.without_environment(spec())
    assert told[0]["R"] == R
    assert path.stat().st_mode & 0o777 == 0o600


@virtually
async def test_the_archive_has_the_records_of_services_but_neither_request_nor_output(
    tmp_path: Path,
) -> None:
    path = tmp_path / "jobs.jsonl"
    table = JobManagerTable(archive=str(path))
    async with alive(MemoryJournal(), config=Config(job_manager=table)) as life:
        (job,) = await one_after_another(life, 1)
        await life.kvs.commit(
            [
                put(keys.job_key(job, "rabbit.computes"), b'["node0"]'),
                symlink(
                    keys.job_key(job, "data.dws.computes"), keys.job_key(job, "rabbit.computes")
                ),
                put(keys.job_key(job, "guest.output"), b"secret"),
            ]
        )
        await life.manager.inactive_jobs.purge([job])

    (told,) = archived(path)
    assert set(told) == {"id", "eventlog", "jobspec", "R", "rabbit.computes", "data.dws.computes"}
    assert told["data.dws.computes"] == ["node0"]


@virtually
async def test_what_cannot_be_archived_is_kept_and_tried_again_later(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "jobs.jsonl"
    table = JobManagerTable(inactive_num_limit=0, archive=str(path))
    async with alive(MemoryJournal(), config=Config(job_manager=table)) as life:
        jobs = await one_after_another(life, 2)
        await asyncio.sleep(600)
        assert [each.job.id for each in life.manager.jobs()] == jobs

        path.parent.mkdir()
        await asyncio.sleep(61)
        assert list(life.manager.jobs()) == []
    assert [each["id"] for each in archived(path)] == jobs


@virtually
async def test_a_purge_that_is_asked_for_says_that_the_archive_cannot_be_written(
    tmp_path: Path,
) -> None:
    config = Config(job_manager=JobManagerTable(archive=str(tmp_path)))
    async with alive(MemoryJournal(), config=config) as life:
        (job,) = await one_after_another(life, 1)
        for topic, request in (("purge", {"num_limit": 0}), ("purge-id", {"id": job})):
            with pytest.raises(
                RpcError, match=r"the archive .* cannot be written: Is a directory"
            ) as caught:
                await life.bus.handle().rpc(f"job-manager.{topic}", {**request, "force": True})
            assert caught.value.errnum == errno.EISDIR
        assert life.manager.find(job) is not None


@virtually
async def test_no_memo_of_a_user_stops_the_purge_of_others_jobs(tmp_path: Path) -> None:
    """Memos are the user's, and JSON has integers of any length."""
    path = tmp_path / "jobs.jsonl"
    table = JobManagerTable(inactive_num_limit=1, archive=str(path))
    async with alive(MemoryJournal(), config=Config(job_manager=table)) as life:
        job = await life.submit()
        memo = {"id": job, "memo": {"great": 2**200, "small": -(2**64)}}
        await life.bus.handle().rpc("job-manager.memo", memo)
        await life.until(job)
        others = await one_after_another(life, 2)
        await settle()

        assert [each.job.id for each in life.manager.jobs()] == others[1:]
    first, _ = (msgspec.json.decode(line) for line in path.read_bytes().splitlines())
    (told,) = (event for event in first["eventlog"] if event["name"] == "memo")
    assert told["context"] == memo["memo"]


def test_what_is_nested_deeply_is_archived() -> None:
    line = encode_job(JobId(7), [("jobspec", b"[" * 254 + b"]" * 254)])
    assert len(line) == len(b'{"id":7,"jobspec":}\n') + 2 * 254


def test_a_value_that_cannot_be_read_is_archived_as_text() -> None:
    job = JobId(7)
    values = [("eventlog", b"no event\n"), ("R", b"{"), ("note", b"\xff")]

    assert orjson.loads(encode_job(job, values)) == {
        "id": 7,
        "eventlog": "no event\n",
        "R": "{",
        "note": "�",
    }
