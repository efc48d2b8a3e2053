"""What holds for every system and every request."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.scheduling.systems import (
    Bits,
    Oracle,
    matched,
    parts,
    paths,
    system,
    taken,
    together,
    want,
    written,
)
from warren.rfc import jgf
from warren.scheduling.graph import Allocation, Graph, Refusal
from warren.scheduling.request import Request

systems = st.builds(
    lambda chassis, cores, gpus, quantum: system(*chassis, cores=cores, gpus=gpus, quantum=quantum),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=3),
    st.integers(1, 4),
    st.sampled_from([0, 0, 1, 2]),
    st.sampled_from([None, 1, 2, 3]),
)
constraints = st.sampled_from(
    ["", "", '{"ranks":["0-2"]}', '{"not":[{"hostlist":["n[0-1]"]}]}', '{"ranks":["4"]}']
)
requests = st.builds(
    lambda nodes, each, cores, exclusive, ssd, **others: want(
        nodes, each * (nodes or 1), cores=cores, exclusive=exclusive and nodes is not None,
        ssd=ssd if nodes is not None else 0, **others,
    ),
    st.none() | st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([0, 0, 1, 2, 3, 5]),
    gpus=st.sampled_from([0, 0, 0, 1, 2]),
    constraint=constraints,
)  # fmt: skip


class Scheduling(RuleBasedStateMachine):
    """Jobs come and go, whole or in parts; a dumb oracle says of each whether it fits."""

    @initialize(r=systems)
    def set_up(self, r: dict[str, Any]) -> None:
        self.r, self.graph, self.oracle = r, Graph(r), Oracle(r)
        self.held: list[Allocation] = []
        self.drained: set[int] = set()

    @rule(request=requests)
    def come(self, request: Request) -> None:
        found = self.graph.match(request)
        fits = self.oracle.fits(request, self.taken(), self.drained)
        assert isinstance(found, Allocation) == fits
        assert self.graph.fits(request) == fits
        if isinstance(found, Allocation):
            assert self.graph.conflict(found) is None
            self.graph.take(found)
            self.held.append(found)
        else:
            assert found.never != self.oracle.fits(request, {})
            assert self.graph.infeasibility(request) == (found if found.never else None)
            matter = self.oracle.fits(request, self.taken()) or not self.oracle.fits(
                request, {}, self.drained
            )
            here = {rank for rank in self.drained if rank in self.graph.host_by_rank}
            assert ("drained: " in found.reason) == (matter and bool(here) and not found.never)

    @rule(ranks=st.sets(st.integers(0, 8), max_size=4))
    def drain(self, ranks: set[int]) -> None:
        self.drained = ranks
        self.graph.set_drained(ranks)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), by_r=st.booleans())
    def go(self, data: st.DataObject, by_r: bool) -> None:
        gone = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        if by_r:
            gone = self.graph.decode(written(self.graph, gone))
        self.graph.give_back(gone)

    @precondition(lambda self: self.held)
    @rule()
    def restart(self) -> None:
        """Begin anew from the system and what the jobs hold, as their Rs tell it."""
        told = [written(self.graph, each) for each in self.held]
        self.graph = Graph(self.r)
        self.graph.set_drained(self.drained)
        for r in told:
            again = self.graph.decode(r)
            assert self.graph.conflict(again) is None
            self.graph.take(again)
            assert self.graph.conflict(again) is not None

    def taken(self) -> Bits:
        return together(parts(self.graph, each) for each in self.held)

    @invariant()
    def what_is_taken_is_what_is_held_and_nothing_is_held_twice(self) -> None:
        if hasattr(self, "graph"):
            assert taken(self.graph) == self.taken()

    @invariant()
    def nodes_are_found_by_what_is_free_of_them(self) -> None:
        if hasattr(self, "graph"):
            room = self.graph._free
            alike: dict[tuple[int, int], int] = {}
            for place, counts in enumerate(zip(room._free_cores, room._free_gpus, strict=True)):
                cores, gpus = (each.bit_count() for each in counts)
                if cores or gpus:
                    alike[cores, gpus] = alike.get((cores, gpus), 0) | 1 << place
            assert room._nodes_by_free == alike


Scheduling.TestCase.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
test_match_agrees_with_trying_everything = Scheduling.TestCase


@given(systems, requests)
def test_a_matched_node_has_what_was_asked_and_its_flash_beside_it(
    r: dict[str, Any], request: Request
) -> None:
    graph = Graph(r)
    found = graph.match(request)
    if isinstance(found, Refusal):
        return
    parents = {vertex.path: vertex.parent_path for vertex in jgf.decode(r["scheduling"])}
    for piece in found.pieces:
        one = Allocation((piece,))
        cores = paths(graph, one, "core")
        node = cores[0].rpartition("/")[0]
        vertices = jgf.decode(written(graph, one)["scheduling"])
        ssds = [vertex for vertex in vertices if vertex.type == "ssd"]
        assert {path.rpartition("/")[0] for path in cores} == {node}
        assert {vertex.parent_path for vertex in ssds} <= {parents[node]}
        assert {vertex.path for vertex in ssds} <= parents.keys()
        assert request.ssd_gib <= sum(vertex.size for vertex in ssds)
        assert request.nodes is None or len(cores) >= request.node_cores
    if request.nodes is None:
        assert len(paths(graph, found, "core")) == request.slots * request.cores
    else:
        assert len({piece.rank for piece in found.pieces}) == request.nodes


@given(systems, st.lists(requests, max_size=3), requests)
def test_an_allocation_read_back_from_r_has_the_same_cores_and_ssds(
    r: dict[str, Any], before: list[Request], request: Request
) -> None:
    graph = Graph(r)
    for each in before:
        if graph.infeasibility(each) is None and isinstance(found := graph.match(each), Allocation):
            graph.take(found)
    found = graph.match(request)
    if isinstance(found, Refusal):
        return
    back = graph.decode(written(graph, found))

    assert [(each.rank, each.cores) for each in back.pieces] == [
        (each.rank, each.cores) for each in found.pieces
    ]
    assert sorted(paths(graph, back, "ssd")) == sorted(paths(graph, found, "ssd"))


@given(systems)
def test_the_whole_system_can_be_taken_and_is_whole_again_afterwards(r: dict[str, Any]) -> None:
    graph = Graph(r)
    if not graph.node_count:
        return
    whole = want(graph.node_count, exclusive=True)
    held = matched(graph, whole)
    graph.take(held)
    assert isinstance(graph.match(want(slots=1)), Refusal)
    graph.give_back(held)
    assert matched(graph, whole) == held
