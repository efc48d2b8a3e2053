"""An instance whose disk is full: it takes no new work, and brings to an end what runs."""

import asyncio
import errno
from typing import cast

import pytest

from tests.instance.lives import Life, alive
from tests.instance.parts import GUEST, OWNER, settle, virtually
from tests.journal.journals import SmallJournal
from warren.instance.jobs.manager import InactiveJob
from warren.instance.kvs import create_namespace
from warren.rfc import treeobj
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError

ROOM = 2**20


async def refusal(life: Life, topic: str, userid: int = OWNER, **payload: object) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await asyncio.wait_for(life.bus.handle(userid).rpc(topic, payload), 5)
    return caught.value


async def running(life: Life) -> JobId:
    job = await life.submit()
    await life.until(job, "start")
    return job


def fill(journal: SmallJournal) -> None:
    journal.room = 0


OPERATION = {"key": "a", "flags": 0, "dirent": treeobj.val(b"1")}


@virtually
async def test_on_a_full_disk_a_running_job_ends_in_the_room_that_was_set_aside() -> None:
    journal = SmallJournal(room=2 * ROOM, wanted=ROOM)
    async with alive(journal, seconds=100.0) as life:
        job = await running(life)
        fill(journal)
        await life.until(job)
        assert journal.aside == 0

        refused = await refusal(life, "job-ingest.submit", J="")
        assert refused.errnum == errno.ENOSPC
        assert str(refused) == "the disk is full"
        assert [cast(InactiveJob, each).id for each in life.manager.jobs()] == [job]

        journal.room = 2 * ROOM
        await asyncio.sleep(5)
        await life.until(await life.submit())


@virtually
async def test_where_there_is_no_room_at_all_the_end_of_a_job_waits_and_is_not_lost() -> None:
    journal = SmallJournal(room=ROOM)
    async with alive(journal, seconds=100.0) as life:
        job = await running(life)
        fill(journal)
        ending = asyncio.ensure_future(life.until(job))
        await asyncio.sleep(1000)
        assert not ending.done()
        assert (await refusal(life, "job-ingest.submit", J="")).errnum == errno.ENOSPC
        listed = await life.bus.handle(OWNER).rpc("job-list.list", {"attrs": ["state"]})
        assert [each["id"] for each in listed["jobs"]] == [job]

        journal.room = ROOM
        events = await ending
        assert events[-1] == "clean"
    async with alive(journal) as life:
        assert await life.until(job) == events


@pytest.mark.parametrize("userid", [OWNER, GUEST])
@virtually
async def test_what_users_write_is_refused_and_what_running_jobs_write_waits(userid: int) -> None:
    journal = SmallJournal(room=ROOM)
    async with alive(journal) as life:
        await life.kvs.commit([create_namespace("job-1", userid)])
        fill(journal)
        written = life.kvs.commit([create_namespace("job-2", userid)])
        await settle()

        refused = await refusal(
            life, "kvs.commit", userid, namespace="job-1", ops=[OPERATION], rootref=False
        )
        assert (refused.errnum, str(refused)) == (errno.ENOSPC, "the disk is full")
        output = {
            "namespace": "job-1", "ops": [OPERATION], "rootref": False,
            "writer": "shell-0", "sequence": 1,
        }  # fmt: skip
        waiting = asyncio.ensure_future(life.bus.handle(userid).rpc("kvs.commit", output))
        await asyncio.sleep(100)
        assert not waiting.done()
        assert life.kvs.get("a", "job-1") is None

        journal.room = ROOM
        await waiting
        await written
        assert life.kvs.lookup("a", "job-1") == b"1"


@virtually
async def test_no_namespace_is_made_on_a_full_disk() -> None:
    journal = SmallJournal(room=ROOM, wanted=2 * ROOM)
    async with alive(journal) as life:
        refused = await refusal(life, "kvs.namespace-create", namespace="mine")
        assert refused.errnum == errno.ENOSPC
        assert "mine" not in life.kvs.namespaces()
