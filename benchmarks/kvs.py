"""The key-value store by itself, aged: 200,000 finished plain jobs, its journal on disk."""

import asyncio
import gc
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.jobs import StoreContent, age
from benchmarks.measure import Result, percentile
from warren.instance.kvs import Kvs, append, put
from warren.journal.sqlite import SqliteJournal
from warren.rfc import fluid

JOBS = 200_000


def kvs() -> Iterator[Result]:
    """What a store of many jobs costs: to read it again, to hold it, to ask it, to compact it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        age(path, StoreContent(inactive=JOBS))
        asyncio.run(compact(path / "jobs.db"))
        # In a process of its own, whose memory is what the store needs.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
            yield from fresh.submit(measure_store, path / "jobs.db").result()


async def compact(path: Path) -> None:
    """Compact a store as it would have done by itself in the time that it took to age."""
    with SqliteJournal(path) as journal:
        await journal.rewrite(Kvs(journal, os.getuid())._snapshot())


def measure_store(path: Path) -> list[Result]:
    return asyncio.run(measure_store_async(path))


async def measure_store_async(path: Path) -> list[Result]:
    gc.collect()
    held = resident()
    with SqliteJournal(path) as journal:
        began = time.perf_counter()
        store = Kvs(journal, os.getuid())
        seconds = time.perf_counter() - began
        results = [
            Result(name="KVS, replay of 200,000 jobs", value=seconds, unit="s", budget=5),
            Result(name="KVS, memory of 200,000 jobs", value=resident() - held, unit="MiB",
                   budget=250),
            Result(name="KVS, journal of 200,000 jobs", unit="MiB",
                   value=sum(map(len, journal.replay())) / 2**20),
        ]  # fmt: skip
        running = asyncio.create_task(store.run())
        try:
            results += await measure_requests(store)
            results += await measure_compaction(store)
        finally:
            running.cancel()
            await asyncio.wait({running})
    return results


async def measure_requests(store: Kvs) -> list[Result]:
    began = time.perf_counter()
    jobs = [fluid.kvs(job) for job in all_jobs(store)]
    listed = time.perf_counter() - began
    some = random.Random(0).sample(jobs, 1000)
    began = time.perf_counter()
    for job in some:
        store.lookup(f"{job}.eventlog")
    lookup = (time.perf_counter() - began) * 1000 / len(some)
    taken = []
    for job in some[:200]:
        began = time.perf_counter()
        await store.commit([append(f"{job}.eventlog", b"{}\n")])
        taken.append((time.perf_counter() - began) * 1000)
    began = time.perf_counter()
    await store.refs.ref(store.root("primary"))
    first = time.perf_counter() - began
    again = []
    for job in some[:20]:
        await store.commit([put(f"{job}.memo", b"x")])
        began = time.perf_counter()
        await store.refs.ref(store.root("primary"))
        again.append((time.perf_counter() - began) * 1000)
    return [
        Result(name="KVS, all job ids", value=listed, unit="s"),
        Result(name="KVS, lookup in any job", value=lookup, unit="ms", budget=1),
        Result(name="KVS, commit to any job, median", value=percentile(taken, 0.5), unit="ms"),
        Result(name="KVS, first rootref", value=first, unit="s"),
        Result(name="KVS, rootref after a change, median", value=percentile(again, 0.5), unit="ms",
               budget=50),
    ]  # fmt: skip


def all_jobs(store: Kvs) -> Iterator[int]:
    """The ids of all jobs."""
    groups = ["job"]
    for _ in range(4):
        groups = [f"{group}.{name}" for group in groups for name in store.names(group)]
    return map(fluid.parse, groups)


async def measure_compaction(store: Kvs) -> list[Result]:
    """Compact while commits go on."""
    store._committer._max_appended_bytes = 0
    began = time.perf_counter()
    taken: list[float] = []
    await store.commit([put("bench", b"x")])
    while store._committer._rewrite_task is not None and not store._committer._rewrite_task.done():
        store._committer._max_appended_bytes = 2**60
        asking = time.perf_counter()
        await store.commit([put("bench", b"x")])
        taken.append((time.perf_counter() - asking) * 1000)
    return [
        Result(name="KVS, compaction", value=time.perf_counter() - began, unit="s"),
        Result(name="KVS, slowest commit meanwhile", value=max(taken, default=0.0), unit="ms",
               budget=500),
    ]  # fmt: skip


def resident() -> float:
    """The memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


ALL = {"KVS": kvs}
