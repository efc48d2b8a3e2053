"""An API server over HTTPS: our own, or the one of any cluster, by the same script.

Our own is `warren apiserver` in a process of its own. WARREN_BENCH_KUBECONFIG names another
cluster, and WARREN_BENCH_PIDS the processes that it is made of, if they are on this machine:
what is measured then stands in the table as `foreign`. Either has a definition and a namespace
of the benchmark's own, which are deleted in the end.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from benchmarks.measure import Result, median_ms, percentile
from warren.base.objects import Change, Create, Key, Kind, Object, Remove, key_of
from warren.daemons.clusterobjects import definitions
from warren.daemons.statedir import StateDir
from warren.kube import http, kubeconfig
from warren.kube.client import Client, NotFound, Unavailable
from warren.kube.informer import Informer
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler
from warren.kube.server.builtin import CRD, NAMESPACE
from warren.kube.server.schemas import schema

GROUP: Final = "bench.warren.example"
KIND: Final = Kind(GROUP, "v1alpha7", "Workflow", "workflows", status=True)
SPACE: Final = "warren-bench"

TIMES: Final = 400
MANY: Final = 10_000
IN_FLIGHT: Final = 16
WATCHERS: Final = 200
EVENTS: Final = 50

_TICK: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """The server that is measured: the way in, and its processes."""

    name: str
    access: ClusterAccess
    processes: Sequence[int]

    def cpu(self) -> float:
        """Return the CPU seconds that it has used."""
        return sum(map(_cpu, self.processes))

    def resident(self) -> float:
        """Return the MiB that it has resident."""
        pages = [int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in self.processes]
        return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def requests() -> Iterator[Result]:
    """Get, create and patch one by one, then many at a time; watch what is created."""
    yield from asyncio.run(_with_server(_requests))


def many() -> Iterator[Result]:
    """Hold ten thousand objects: list them, watch them, reconcile them."""
    yield from asyncio.run(_with_server(_many))


async def _with_server(
    measured: Callable[[Server, Client], Awaitable[list[Result]]],
) -> list[Result]:
    async with _server() as server, http.connect(server.access) as client:
        await _prepare(client)
        try:
            return await measured(server, client)
        finally:
            await _clean_up(client)


@asynccontextmanager
async def _server() -> AsyncIterator[Server]:
    named = os.environ.get("WARREN_BENCH_KUBECONFIG")
    if named:
        processes = [int(each) for each in os.environ.get("WARREN_BENCH_PIDS", "").split()]
        yield Server("foreign", kubeconfig.load(Path(named)), processes)
        return
    with tempfile.TemporaryDirectory() as directory:
        state = StateDir(Path(directory) / "state")
        process = subprocess.Popen(  # noqa: ASYNC220 - it is over at once
            [sys.executable, "-m", "warren", "apiserver", "--bare", "--statedir", str(state.path)],
            stdout=subprocess.PIPE,
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it says where it serves
            yield Server("API", kubeconfig.load(state.kubeconfig), [process.pid])
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


def _definition() -> Object:
    """Return the definition of Workflows, under a name of the benchmark's own."""
    crd = next(each for each in definitions() if each["spec"]["names"]["kind"] == "Workflow")
    versions = [
        {**each, "subresources": {"status": {}}, "storage": each["name"] == KIND.version}
        for each in crd["spec"]["versions"]
    ]
    metadata = {"name": f"{KIND.plural}.{GROUP}"}
    return {
        **crd,
        "metadata": metadata,
        "spec": {**crd["spec"], "group": GROUP, "versions": versions},
    }


async def _prepare(client: Client) -> None:
    await perform(client, [Create(kind=CRD, object=_definition())])
    await perform(client, [Create(kind=NAMESPACE, object={"metadata": {"name": SPACE}})])
    while True:
        with suppress(NotFound, Unavailable):
            await client.list(KIND, SPACE)
            await client.create(KIND, _workflow("first"))
            return
        await asyncio.sleep(0.1)


async def _clean_up(client: Client) -> None:
    for kind, name in ((CRD, f"{KIND.plural}.{GROUP}"), (NAMESPACE, SPACE)):
        await perform(client, [Remove(kind=kind, key=Key("", name))])
        with suppress(NotFound):
            while True:
                await client.get(kind, Key("", name))
                await asyncio.sleep(0.1)


def _workflow(name: str) -> Object:
    directive = "#DW jobdw type=xfs capacity=1TiB name=scratch profile=default requires=a,b"
    return {
        "metadata": {"name": name, "namespace": SPACE, "labels": {"warren.bench/of": "bench"}},
        "spec": {
            "desiredState": "Proposal",
            "dwDirectives": [directive, "#DW copy_in source=/a destination=$DW_JOB_scratch/a"],
            "jobID": 1234567,
            "userID": 1001,
            "groupID": 1001,
            "wlmID": "flux",
        },
    }


# One by one, and many at a time


async def _requests(server: Server, client: Client) -> list[Result]:
    first = Key(SPACE, "first")
    numbers = iter(range(10**9))

    async def get() -> None:
        await client.get(KIND, first)

    async def create() -> None:
        await client.create(KIND, _workflow(f"w{next(numbers)}"))

    async def patch() -> None:
        status = {"state": "Proposal", "message": f"number {next(numbers)}"}
        await client.patch(Change(kind=KIND, key=first, patch={"status": status}, status=True))

    results = []
    for name, action, budget in (
        ("get", get, None),
        ("create", create, None),
        ("status patch", patch, (2.5, 5.0)),
    ):
        results += await _measure_action(server, name, action, budget)
    return [*results, *await _events(server, client)]


async def _measure_action(
    server: Server,
    name: str,
    action: Callable[[], Awaitable[None]],
    budget: tuple[float, float] | None,
) -> list[Result]:
    taken = []
    for _ in range(TIMES):
        began = time.perf_counter()
        await action()
        taken.append((time.perf_counter() - began) * 1000)
    before = server.cpu()
    left = iter(range(TIMES * 5))

    async def worker() -> None:
        for _ in left:
            await action()

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    wall, cpu = time.perf_counter() - began, server.cpu() - before
    p50, p99 = budget or (None, None)
    told = f"{server.name} {name}"
    results = [
        Result(name=f"{told}, p50", value=percentile(taken, 0.5), unit="ms", budget=p50),
        Result(name=f"{told}, p99", value=percentile(taken, 0.99), unit="ms", budget=p99),
        Result(name=f"{told}, {IN_FLIGHT} in flight", value=TIMES * 5 / wall, unit="/s"),
    ]
    if cpu:
        rate = TIMES * 5 / cpu
        results.append(Result(name=f"{told}, requests per CPU-second", value=rate, unit="/s"))
    return results


async def _events(server: Server, client: Client) -> list[Result]:
    """Create objects one by one, and wait for the event of each."""
    taken = []
    listing = await client.list(KIND, SPACE)
    async with aclosing(client.watch(KIND, listing.resource_version, SPACE)) as watch:  # type: ignore[type-var]
        # The first one is not counted: it opens the watch.
        for number in range(TIMES + 1):
            made = f"event-{number}"
            began = time.perf_counter()
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_create(client, made))
                while (await anext(watch)).object["metadata"].get("name") != made:
                    pass  # a bookmark
            taken.append((time.perf_counter() - began) * 1000)
    name = f"{server.name} create to event"
    return [
        Result(name=f"{name}, p50", value=percentile(taken[1:], 0.5), unit="ms", budget=2.5),
        Result(name=f"{name}, p99", value=percentile(taken[1:], 0.99), unit="ms", budget=5),
    ]


async def _create(client: Client, name: str) -> None:
    await client.create(KIND, _workflow(name))


# Ten thousand


async def _many(server: Server, client: Client) -> list[Result]:
    empty = server.resident()
    left = iter(range(MANY))

    async def worker() -> None:
        for number in left:
            await _create(client, f"many-{number:05}")

    await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    taken, before = [], server.cpu()
    for _ in range(5):
        began = time.perf_counter()
        found = await _whole_list(server.access)
        taken.append((time.perf_counter() - began) * 1000)
    cpu = (server.cpu() - before) / 5
    assert found > MANY * 500
    results = [
        Result(name=f"{server.name} list of {MANY:,}", value=percentile(taken, 0.5), unit="ms"),
        Result(name=f"{server.name} list of {MANY:,}, server's CPU", value=cpu * 1000, unit="ms"),
        Result(name=f"{server.name} resident with {MANY:,} Workflows", value=server.resident(),
               unit="MiB", budget=1024),
        Result(name=f"{server.name} resident with none", value=empty, unit="MiB"),
    ]  # fmt: skip
    return [
        *results,
        *await _measure_reconciler(server, client),
        *await _measure_fan_out(server, client),
    ]


async def _whole_list(access: ClusterAccess) -> int:
    """List everything in one answer, and return its bytes; what clients make of it is theirs."""
    async with _session(access) as session, session.get(_url(access)) as response:
        assert response.status == 200
        return len(await response.read())


def _session(access: ClusterAccess) -> aiohttp.ClientSession:
    headers = {"Authorization": f"Bearer {access.token}"}
    connector = aiohttp.TCPConnector(ssl=access.tls(), limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    return aiohttp.ClientSession(headers=headers, connector=connector, timeout=timeout)


def _url(access: ClusterAccess) -> str:
    return f"{access.server}/apis/{GROUP}/{KIND.version}/namespaces/{SPACE}/{KIND.plural}"


async def _measure_reconciler(server: Server, client: Client) -> list[Result]:
    """Sync an informer, and make one pass over every object."""
    informer = Informer(client, KIND, SPACE)
    done = asyncio.Event()
    count = 0

    async def reconcile(key: Key) -> float | None:
        nonlocal count
        assert informer.get(key) is not None
        count += 1
        if count == MANY:
            done.set()
        return None

    reconciler: Reconciler[Key] = Reconciler("bench", reconcile)
    following = asyncio.ensure_future(informer.run())
    began = time.perf_counter()
    await informer.wait_synced()
    synced = time.perf_counter() - began
    for key in map(key_of, informer.all()):
        reconciler.add(key)
    began = time.perf_counter()
    working = asyncio.ensure_future(reconciler.run())
    await done.wait()
    wall = time.perf_counter() - began
    for task in (following, working):
        task.cancel()
    await asyncio.wait({following, working})
    return [
        Result(
            name=f"{server.name} informer synced, {MANY:,} objects", value=synced * 1000, unit="ms"
        ),
        Result(name=f"reconciles over {MANY:,} objects", value=MANY / wall, unit="/s"),
    ]


async def _measure_fan_out(server: Server, client: Client) -> list[Result]:
    """Tell 200 watches of 50 changes each."""
    version = (await client.list(KIND, "nowhere")).resource_version
    query = {"watch": "true", "resourceVersion": version}
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(_session(server.access))
        url = _url(server.access)
        watches = [
            await stack.enter_async_context(session.get(url, params=query)) for _ in range(WATCHERS)
        ]
        before, began = server.cpu(), time.perf_counter()
        following = [asyncio.ensure_future(_lines(each)) for each in watches]
        for number in range(EVENTS):
            await _create(client, f"told-{number}")
        await asyncio.gather(*following)
        wall, cpu = time.perf_counter() - began, server.cpu() - before
    told = f"{server.name} watch fan-out to {WATCHERS}"
    results = [Result(name=told, value=WATCHERS * EVENTS / wall, unit="events/s")]
    if cpu:
        micros = cpu / (WATCHERS * EVENTS) * 1e6
        results.append(Result(name=f"{told}, server's CPU", value=micros, unit="µs/event"))
    return results


async def _lines(response: aiohttp.ClientResponse) -> None:
    """Read until all events have come."""
    count = 0
    while count < EVENTS:
        count += (await response.content.readany()).count(b"\n")


def schemas() -> Iterator[Result]:
    """What a definition costs once, and each write of an object of it."""
    crds = {crd["spec"]["names"]["kind"]: crd["spec"]["versions"] for crd in definitions()}

    def compile_all() -> None:
        for versions in crds.values():
            for version in versions:
                schema.compile(version["schema"]["openAPIV3Schema"])

    yield Result(
        name="compile all schemas", value=median_ms(compile_all, 3), unit="ms", budget=1500
    )
    its = schema.compile(crds["Workflow"][-1]["schema"]["openAPIV3Schema"])
    whole = its.apply_defaults(its.prune(_workflow("w"))[0])

    def write() -> None:
        its.prune(whole)
        its.apply_defaults(whole)
        its.violations(whole)

    yield Result(
        name="check a Workflow against its schema",
        value=median_ms(write, 50),
        unit="ms",
        budget=0.5,
    )


ALL = {"API requests": requests, "API with many objects": many, "schemas": schemas}
