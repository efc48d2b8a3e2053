"""The scheduler on a system of the largest size there is: 720 rabbits with 16 nodes each."""

import gc
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import orjson

from benchmarks.measure import Result, median_ms
from warren.base.bytesize import GIB, TIB
from warren.dws.breakdown.allocationneeds import ACROSS_SERVERS, PER_COMPUTE, SINGLE_SERVER
from warren.dws.jobs import placement
from warren.dws.jobs.resources import rewrite
from warren.dws.objects.breakdowns import AllocationNeed, Colocation, Constraints
from warren.rfc.fluid import JobId
from warren.scheduling.allocatedflash import allocated_flash
from warren.scheduling.backfill import PendingJob, RunningJob, decide
from warren.scheduling.graph import Allocation, Graph
from warren.scheduling.request import Request
from warren.scheduling.topology import ChassisTopology, resource_set_with_graph
from warren.scheduling.waitreasons import earliest_reservation, wait_reasons

BUDGET_MS = {1: 0.5, 16: 1.0, 256: 5.0, 4096: 80.0}
NODES = 720 * 16


def described() -> dict[str, Any]:
    chassis = [
        ChassisTopology(
            rabbit=f"rabbit{number}",
            capacity_bytes=16 * TIB,
            hosts=tuple(f"node{number * 16 + node}" for node in range(16)),
        )
        for number in range(720)
    ]
    return resource_set_with_graph("elcap", chassis, cores_per_node=8)


def match() -> Iterator[Result]:
    """Load the graph, then match nodes with flash beside them, R included."""
    began = time.perf_counter()
    r = described()
    yield Result(
        name="describe 720 x 16 as R with graph",
        value=time.perf_counter() - began,
        unit="s",
        budget=1.0,
    )
    began = time.perf_counter()
    graph = Graph(r)
    gc.freeze()  # as the control process does once it is ready
    yield Result(name="load that graph", value=time.perf_counter() - began, unit="s", budget=1.5)
    for nodes, budget in BUDGET_MS.items():
        request = Request(nodes=nodes, slots=1, cores=1, exclusive=True, ssd_gib=453)

        def once(request: Request = request) -> None:
            allocation = graph.match(request)
            assert isinstance(allocation, Allocation)
            graph.take(allocation)
            seen = graph.encode(allocation, starttime=0.0, expiration=0.0)
            graph.encode_text(allocation, seen)
            graph.give_back(allocation)

        yield Result(
            name=f"match {nodes} nodes with ssds, R included",
            value=median_ms(once),
            unit="ms",
            budget=budget,
        )
    yield from placements(graph)


def placements(graph: Graph) -> Iterator[Result]:
    """Match storage that is not beside each node, and say which rabbit holds what of it."""
    apart = (Colocation(key="lustre-mgt"),)
    needs = [
        AllocationNeed(allocation_strategy=strategy, minimum_capacity=size, label=label,
                       constraints=constraints)
        for label, strategy, size, constraints in (
            ("xfs", PER_COMPUTE, 453 * GIB, Constraints(labels=("tier=fast",))),
            ("mgt", SINGLE_SERVER, 5 * GIB, Constraints(colocation=apart)),
            ("mdt", ACROSS_SERVERS, 50 * 10 * GIB,
             Constraints(count=50, labels=("tier=fast", "meta=yes"), colocation=apart)),
            ("ost", ACROSS_SERVERS, 720 * 100 * GIB, Constraints(scale=10)),
        )
    ]  # fmt: skip
    for number in range(720):
        labels = {"tier=fast", "meta=yes"} if number % 10 else {"tier=fast"}
        graph.set_rabbit(f"rabbit{number}", up=True, labels=labels)
    nodes, floor, largest = 11520, 4 * GIB, graph.largest_chassis_gib
    wanted = placement.reservation(needs, nodes, floor, largest)
    yield Result(
        name=f"rewrite the resources of a job of {nodes} nodes",
        value=median_ms(lambda: rewrite(_resources(nodes), needs, floor, largest)),
        unit="ms",
        budget=5.0,
    )
    request = Request(
        nodes=nodes,
        slots=1,
        cores=1,
        exclusive=True,
        ssd_gib=wanted.gib_per_node,
        labels=wanted.labels,
        shared_flash=wanted.shared_sets,
    )
    yield Result(
        name=f"match {nodes} nodes with shared flash",
        value=median_ms(lambda: graph.match(request)),
        unit="ms",
        budget=120.0,
    )
    found = graph.match(request)
    assert isinstance(found, Allocation)
    text = graph.encode_text(found, graph.encode(found, starttime=0.0, expiration=0.0))
    yield Result(
        name=f"read the flash of an R of {nodes} nodes",
        value=median_ms(lambda: allocated_flash(text)),
        unit="ms",
        budget=100.0,
    )
    given = allocated_flash(text)
    per_rabbit = {each.rabbit: each.node_count for each in given}
    counts = [each.count for each in wanted.shared_sets]
    yield Result(
        name="place its storage on 720 rabbits",
        value=median_ms(lambda: placement.allocation_sets(needs, per_rabbit, floor, given, counts)),
        unit="ms",
        budget=50.0,
    )


def _resources(nodes: int) -> list[dict[str, Any]]:
    core = {"type": "core", "count": 1}
    slot = {"type": "slot", "count": 1, "label": "task", "with": [core]}
    return [{"type": "node", "count": nodes, "exclusive": True, "with": [slot]}]


def resident() -> Iterator[Result]:
    """Load that graph in a process of its own, have all nodes written once, and look at it."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "R"
        path.write_bytes(orjson.dumps(described()))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            loaded, written = pool.apply(_resident, (path,))
    yield Result(name="resident with that graph", value=loaded, unit="MiB", budget=300)
    yield Result(name="resident, each node allocated once", value=written, unit="MiB")


def _resident(path: Path) -> tuple[float, float]:
    graph = Graph(orjson.loads(path.read_bytes()))
    gc.collect()
    loaded = _resident_mib()
    whole = graph.match(Request(nodes=NODES, slots=1, cores=1, exclusive=True))
    assert isinstance(whole, Allocation)
    graph.encode_text(whole, {})
    gc.collect()
    return loaded, _resident_mib()


def _resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def passes() -> Iterator[Result]:
    """Look for room, in vain, where nearly all is taken; the first who waits wants all nodes."""
    graph = Graph(described())
    running = []
    for number in range(10_000):
        held = graph.match(Request(nodes=1, slots=1, cores=1, exclusive=True))
        assert isinstance(held, Allocation)
        graph.take(held)
        running.append(RunningJob(1000.0 + number, JobId(number), held))
    for count in (100, 10_000):
        queue = [
            PendingJob(
                position=(0, job),
                job=JobId(job),
                request=Request(nodes=NODES - job, slots=1, cores=1, exclusive=True),
                duration=1e6,
            )
            for job in range(count)
        ]

        def once(queue: list[PendingJob] = queue) -> None:
            assert (
                len(list(decide(graph, [[queue]], running, 0.0, backfilling=True, depth=32))) == 1
            )

        yield Result(
            name=f"pass, {count} wait and 10,000 run", value=median_ms(once), unit="ms", budget=200
        )


def whys() -> Iterator[Result]:
    """Ask why jobs wait on a full system of 11,136 nodes, where others wait before them."""
    chassis = [
        ChassisTopology(
            rabbit=f"rabbit{number}",
            capacity_bytes=16 * TIB,
            hosts=tuple(f"node{number * 16 + node}" for node in range(16)),
        )
        for number in range(696)
    ]
    graph = Graph(resource_set_with_graph("elcap", chassis, cores_per_node=8))
    running = []
    for number in range(10_000):
        held = graph.match(Request(nodes=1, slots=1, cores=1, exclusive=True, ssd_gib=900))
        assert isinstance(held, Allocation)
        graph.take(held)
        running.append(RunningJob(1000.0 + number, JobId(number), held))
    graph.set_drained(range(10_900, 11_000))
    for number in range(0, 696, 7):
        graph.set_rabbit(f"rabbit{number}", up=False, state="Disabled")
        graph.set_external_gib(f"rabbit{number + 1}", 500)
    queue = [
        PendingJob(
            position=(0, job),
            job=JobId(job),
            request=Request(nodes=11_136 - job, slots=1, cores=1, exclusive=True),
            duration=1e6,
        )
        for job in range(10_000)
    ]
    for name, request, duration in (
        ("11,136 nodes", Request(nodes=11_136, slots=1, cores=1, exclusive=True), inf),
        ("flash", Request(nodes=1000, slots=1, cores=1, exclusive=True, ssd_gib=2000), inf),
        ("a rabbit that is down",
         Request(nodes=11_136, slots=1, cores=1, exclusive=True, ssd_gib=400), inf),
        ("a reservation", Request(nodes=1, slots=1, cores=1, exclusive=True), 1e7),
    ):  # fmt: skip
        asked = PendingJob(
            position=(0, 20_000), job=JobId(20_000), request=request, duration=duration
        )

        def once(asked: PendingJob = asked) -> None:
            queues = [[[*queue, asked]]]
            list(
                wait_reasons(graph, queues, running, 0.0, backfilling=True, depth=32, jobs=[asked])
            )
            if not graph.fits(asked.request):
                earliest_reservation(graph, running, 0.0, asked.request)

        yield Result(
            name=f"why a job waits for {name}", value=median_ms(once), unit="ms", budget=100
        )


ALL = {"match": match, "resident graph": resident, "passes": passes, "why": whys}
