"""The API server over HTTPS: latency of a status patch, and of a creation's event."""

import asyncio
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

from benchmarks.measure import Result, percentile
from warren.base.clock import SystemClock
from warren.base.objects import Change, Key
from warren.daemons import cluster
from warren.daemons.site import Site
from warren.dws import kinds
from warren.journal.sqlite import SqliteJournal
from warren.kube.admission import AdmitAll
from warren.kube.client import Client
from warren.kube.http import connect
from warren.kube.kubeconfig import Access
from warren.kube.local import LocalClient
from warren.kube.server import tls
from warren.kube.server.app import ApiServer
from warren.kube.server.store import Store

TIMES = 400


def latency() -> Iterator[Result]:
    """Patch one object again and again, and watch others come into being."""
    yield from asyncio.run(_latency())


async def _latency() -> list[Result]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        with SqliteJournal(path / "objects.db") as journal:
            clock = SystemClock()
            store = Store(journal, clock, AdmitAll())
            listener = socket.socket()
            listener.bind(("127.0.0.1", 0))
            server = ApiServer(store, clock, {"token": "admin"})
            access = Access(
                server=f"https://127.0.0.1:{listener.getsockname()[1]}",
                authority=b"",
                token="token",
            )
            context = tls.ensure(path / "pki")
            access = Access(
                server=access.server, authority=tls.authority(path / "pki"), token="token"
            )
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(store.run()),
                    tasks.create_task(server.run(listener, context)),
                ]
                await cluster.establish(LocalClient(store), Site())
                async with connect(access) as client:
                    results = await _measured(client)
                for task in running:
                    task.cancel()
            return results


async def _measured(client: Client) -> list[Result]:
    key = Key("default", "bench")
    await client.create(
        kinds.NNF_STORAGE, {"metadata": {"name": key.name, "namespace": key.namespace}}
    )
    patches = []
    for number in range(TIMES):
        change = Change(
            kind=kinds.NNF_STORAGE, key=key, patch={"status": {"number": number}}, status=True
        )
        began = time.perf_counter()
        await client.patch(change)
        patches.append((time.perf_counter() - began) * 1000)
    events = await _events(client)
    return [
        Result(name="API status patch, p50", value=percentile(patches, 0.5), unit="ms", budget=2.5),
        Result(name="API status patch, p99", value=percentile(patches, 0.99), unit="ms", budget=5),
        Result(name="API create to event, p50", value=percentile(events, 0.5), unit="ms",
               budget=2.5),
        Result(name="API create to event, p99", value=percentile(events, 0.99), unit="ms",
               budget=5),
    ]  # fmt: skip


async def _events(client: Client) -> list[float]:
    """Create objects one by one, and wait for the event of each."""
    taken = []
    listing = await client.list(kinds.NNF_ACCESS)
    async with aclosing(client.watch(kinds.NNF_ACCESS, listing.version)) as watch:
        # The first one is not counted: it opens the watch.
        for number in range(TIMES + 1):
            made = {"metadata": {"name": f"bench-{number}", "namespace": "default"}}
            began = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(client.create(kinds.NNF_ACCESS, made))
                await anext(watch)
            taken.append((time.perf_counter() - began) * 1000)
    return taken[1:]


ALL = {"API latency": latency}
