"""Who writes what of a job into the KVS, and when (RFC 16)."""

import asyncio
import json

import orjson

from tests.instance.instance import machine
from tests.instance.lives import PLAIN, alive, spec
from tests.instance.parts import OWNER, LastWords, opened, settle, virtually
from tests.instance.test_execution import EXECUTION
from warren.instance import keys
from warren.instance.simulated import TaskBehavior
from warren.rfc import eventlog, fluid, jobspec, signed_request, stdio, treeobj

PRINTING = TaskBehavior(output=b"printed\n", seconds=100)


@virtually
async def test_each_part_of_an_instance_writes_its_records_of_a_job() -> None:
    """Show ingest and the job manager alone first, then the scheduler and execution, too.

    Statement 003.1: ingest, job manager, execution and scheduler write the primary namespace.
    Statement 003.13: each job has a directory under job.<jobid>.
    Statement 003.32: R stays in place when it has been freed.
    """
    async with alive(generous=False) as life:
        job = await life.submit()
        await settle()
        assert life.kvs.names(fluid.kvs(job)) == ["J", "eventlog", "jobspec"]

    async with machine(PRINTING) as m, m.instance() as instance:
        job = await instance.submit()
        await instance.until(job, "start")
        names = instance.kvs.names(fluid.kvs(job))
        assert names == ["J", "R", "eventlog", "guest", "jobspec"]
        await instance.until(job, "free")
        assert set(names) <= set(instance.kvs.names(fluid.kvs(job)))
        await instance.until(job)


@virtually
async def test_what_ingest_stores_is_in_the_forms_of_the_rfcs() -> None:
    """Statement 003.24: J is the signed request of RFC 15.
    Statement 003.25: jobspec is RFC 14's, as JSON.
    Statements 003.23, 003.26: eventlog has a line of RFC 18's for each event.
    """
    async with alive(generous=False) as life:
        job = await life.submit()
        await life.until(job, "priority")

        signed = signed_request.unwrap(life.kvs.lookup(keys.job_key(job, "J")).decode())
        assert (signed.userid, orjson.loads(signed.payload)) == (OWNER, spec())
        kept = orjson.loads(life.kvs.lookup(keys.job_key(job, "jobspec")))
        assert jobspec.check(kept) == kept == jobspec.without_environment(spec())
        *lines, end = life.kvs.lookup(keys.job_key(job, "eventlog")).decode().split("\n")
        assert end == ""
        for line, name in zip(lines, PLAIN[:4], strict=True):
            event = json.loads(line)
            assert event["name"] == name
            assert event["timestamp"] > 0
            assert event.keys() <= {"timestamp", "name", "context"}


@virtually
async def test_a_guest_namespace_is_seen_through_its_link_and_changes_nothing_else() -> None:
    """Statement 003.2: shells write the guest namespace.
    Statement 003.16: execution makes it.
    Statement 003.17: while the job is active it is linked at job.<jobid>.guest.
    Statement 003.18: it is seen through the link, and changed without touching the primary one.
    Statement 003.35: it begins with exec.eventlog.
    """
    async with machine(PRINTING) as m, m.instance() as instance:
        job = await instance.submit()
        assert instance.kvs.owner(keys.guest_namespace(job)) is None
        await instance.until(job, "shell.start", "guest.exec.eventlog")
        kvs, guest = instance.kvs, keys.guest_namespace(job)
        assert kvs.owner(guest) == OWNER
        execution = eventlog.decode(kvs.lookup("exec.eventlog", guest).decode())
        assert [event.name for event in execution][:3] == EXECUTION[:3]

        root = kvs.version("primary")
        written = {"key": "application.state", "flags": 0, "dirent": treeobj.val(b"halfway")}
        handle = instance.bus.handle()
        await handle.rpc("kvs.commit", {"namespace": guest, "ops": [written]})

        assert kvs.lookup("application.state", guest) == b"halfway"
        assert kvs.lookup(keys.job_key(job, "guest.application.state")) == b"halfway"
        assert kvs.version("primary") == root
        output = kvs.lookup("output", guest)
        assert output == kvs.lookup(keys.job_key(job, "guest.output"))
        assert eventlog.decode(output.decode())[0].name == "header"
        await instance.until(job)


@virtually
async def test_a_guest_namespace_is_kept_with_its_job_before_its_end_is_told() -> None:
    """Stop everything at the moment at which the namespace has been closed.

    Statement 003.19: its last snapshot is linked where it was, and the namespace destroyed.
    Statement 003.36: that is done after the last writes, and before the job manager is told.
    """
    async with machine(PRINTING) as m:
        m.journal = journal = LastWords(b'"done"')
        async with m.instance() as instance:
            job = await instance.submit()
            await asyncio.sleep(200)
        journal.words = None
        async with opened(journal) as kvs:
            assert kvs.owner(keys.guest_namespace(job)) is None
            execution = eventlog.decode(
                kvs.lookup(keys.job_key(job, "guest.exec.eventlog")).decode()
            )
            assert [event.name for event in execution] == EXECUTION
            output = eventlog.decode(kvs.lookup(keys.job_key(job, "guest.output")).decode())
            assert [piece.data for piece in stdio.decode_outputs(output) if piece.data] == [
                b"printed\n"
            ]
            told = eventlog.decode(kvs.lookup(keys.job_key(job, "eventlog")).decode())
            assert "finish" not in [event.name for event in told]
        async with m.instance() as instance:
            await instance.until(job)
            assert instance.names(job) == PLAIN
