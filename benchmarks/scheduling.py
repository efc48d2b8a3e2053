"""The scheduler on a system of the largest size there is: 720 rabbits with 16 nodes each."""

import gc
import time
from collections.abc import Iterator

from benchmarks.measure import Result, median_ms
from warren.base.bytesize import TIB
from warren.scheduling.graph import Allocation, Graph
from warren.scheduling.request import Request
from warren.scheduling.system import Chassis, describe

BUDGET_MS = {1: 0.5, 16: 1.0, 256: 5.0, 4096: 80.0}


def match() -> Iterator[Result]:
    """Load the graph, then match nodes with flash beside them, R included."""
    chassis = [
        Chassis(
            rabbit=f"rabbit{number}",
            capacity=16 * TIB,
            hosts=tuple(f"node{number * 16 + node}" for node in range(16)),
        )
        for number in range(720)
    ]
    began = time.perf_counter()
    described = describe("elcap", chassis, cores=8)
    yield Result(
        name="describe 720 x 16 as R with graph",
        value=time.perf_counter() - began,
        unit="s",
        budget=1.0,
    )
    began = time.perf_counter()
    graph = Graph(described)
    gc.freeze()  # as the control process does once it is ready
    yield Result(name="load that graph", value=time.perf_counter() - began, unit="s", budget=1.5)
    for nodes, budget in BUDGET_MS.items():
        request = Request(nodes=nodes, slots=1, cores=1, exclusive=True, ssd_gib=453)

        def once(request: Request = request) -> None:
            allocation = graph.match(request)
            assert isinstance(allocation, Allocation)
            graph.take(allocation)
            r = graph.encode(allocation, starttime=0.0, expiration=0.0)
            graph.text(allocation, r)
            graph.give_back(allocation)

        yield Result(
            name=f"match {nodes} nodes with ssds, R included",
            value=median_ms(once),
            unit="ms",
            budget=budget,
        )


ALL = {"match": match}
