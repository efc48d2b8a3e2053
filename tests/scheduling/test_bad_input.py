"""Graphs, Rs and jobspecs that lie: each is refused in a sentence, and nothing is allocated."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.systems import matched, parts, system, taken, want, written
from warren.base.errors import UserMistake
from warren.rfc import canonical, jobspec
from warren.rfc.errors import BadFormat
from warren.scheduling.graph import Allocation, Graph
from warren.scheduling.request import from_jobspec


def fresh() -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(orjson.dumps(system((2, 4), (1, 4), cores=2)))
    return found


def vertex(r: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what the graph of an R says of a vertex, to be changed."""
    found: dict[str, Any] = next(
        each["metadata"]
        for each in r["scheduling"]["graph"]["nodes"]
        if each["metadata"]["paths"]["containment"].endswith(name)
    )
    return found


def _set(end: str, **changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda r: vertex(r, end).update(changes)


def _edge(index: int, **changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda r: r["scheduling"]["graph"]["edges"][index].update(changes)


def _text(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def change(r: dict[str, Any]) -> None:
        r.update(orjson.loads(orjson.dumps(r).decode().replace(old, new)))

    return change


@pytest.mark.parametrize(
    ("lie", "sentence"),
    [
        (_set("/ssd0", size=-2), "graph.nodes.*size is -2"),
        (_set("/ssd0", size="2"), "size is '2', not a number"),
        (_set("/ssd0", size=2**70), "size is "),
        (_set("/ssd0", id=2**40), "id is "),
        (_set("/ssd0", unit="TiB"), "has /c/chassis0/ssd0 in TiB, not in GiB"),
        (_set("/chassis0", type="pod"), "has /c/chassis0/ssd0, which is in no chassis before it"),
        (_set("/c", type="pod"), "the graph has chassis, and no cluster that they are in"),
        (_set("/chassis0", type="cluster"), "the graph has /c/chassis0 beside /c"),
        (_set("/n1", rank=0), "has n1 as rank 0: each node has a name and a rank of its own"),
        (_set("/n1", rank=-1), "has n1 as rank -1"),
        (_set("/n1", rank=7), "the graph has n1 as rank 7, and R_lite has not"),
        (_set("/n1", name="n0"), "has n0 as rank 1: each node has a name and a rank of its own"),
        (_set("/n1", name="n9"), "R names n1 as rank 1, and its graph n9"),
        (_set("/n1", rank=True), "rank is True, not a number"),
        (_edge(1, source="9999"), "edges.1..source is '9999', and no vertex"),
        (_edge(0, source="1", target="0"), "edges.0. has /c in /c/chassis0, against its path"),
        (_edge(2, target="1"), "against its path"),
        (_text('"core":"0-1"', '"core":"0-4000000000"'), "idset|names"),
        (_text('"core":"0-1"', '"core":"4294967000"'), "names cores or gpus of n0 beyond 65535"),
    ],
)
def test_a_system_that_lies_is_refused_in_a_sentence(
    lie: Callable[[dict[str, Any]], None], sentence: str
) -> None:
    r = fresh()
    assert Graph(r).node_count == 3
    lie(r)
    with pytest.raises(BadFormat, match=sentence) as mistake:
        Graph(r)
    assert "\n" not in str(mistake.value)


values: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, -1, 0, 1, 3, 2**40, 0.5, "", "0", "n0", "ssd", "/c", "/c/chassis0/ssd0", [], {}]
)


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return where all there is in a document stands."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key in value:
            found += paths_in(value[key], (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            found += paths_in(each, (*path, index))
    return found


def lied(document: dict[str, Any], data: st.DataObject) -> dict[str, Any]:
    """Change a few things of a document, whatever they are."""
    found: dict[str, Any] = orjson.loads(orjson.dumps(document))
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from(paths_in(found)))
        holder: Any = found
        for step in way:
            holder = holder[step]
        if data.draw(st.booleans()):
            holder[last] = data.draw(values)
        else:
            del holder[last]
    return found


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_whatever_a_system_says_it_is_understood_or_refused(data: st.DataObject) -> None:
    r = lied(fresh(), data)
    try:
        graph = Graph(r)
    except UserMistake:
        return
    found = graph.match(want(2, ssd=2))
    if isinstance(found, Allocation):
        graph.take(found)
        again = graph.decode(written(graph, found))
        assert parts(graph, again) == parts(graph, found)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_whatever_the_r_of_a_job_says_it_is_understood_or_refused(data: st.DataObject) -> None:
    graph = Graph(fresh())
    r = lied(written(graph, matched(graph, want(2, ssd=2))), data)
    try:
        held = graph.decode(r)
    except UserMistake:
        assert taken(graph) == {}
        return
    if graph.conflict(held) is None:
        graph.take(held)
        graph.give_back(held)
        assert taken(graph) == {}


NODE = {"type": "node", "count": 1, "with": [{"type": "slot", "count": 1, "label": "task",
        "with": [{"type": "core", "count": 1}]}]}  # fmt: skip
SPECS: list[list[dict[str, Any]]] = [
    [{"type": "slot", "count": 2, "label": "rabbit",
      "with": [NODE, {"type": "ssd", "count": 2, "exclusive": True}]}],
    [{"type": "chassis", "count": 1, "with": [NODE, {"type": "ssd", "count": 2}]},
     {"type": "chassis", "count": 1, "label": "shared-0", "with": [{"type": "ssd", "count": 2}]}],
    [NODE],
]  # fmt: skip
CONSTRAINTS = {
    "rabbit": {"labels": ["a=b"], "access": [{"type": "physical", "priority": "mandatory"}],
               "colocation": [{"type": "exclusive", "key": "k"}]}
}  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(SPECS), st.data())
def test_whatever_a_jobspec_asks_for_it_is_understood_or_refused(
    resources: list[dict[str, Any]], data: st.DataObject
) -> None:
    system_ = {"dw_constraints": CONSTRAINTS, "constraints": {"properties": ["a"]}}
    spec = {**jobspec.make(["app"], nodes=1, attributes=system_), "resources": resources}
    spec = lied(spec, data)
    graph = Graph(fresh())
    try:
        canonical.check(spec)
        jobspec.check(spec)
        request = from_jobspec(spec)
        refusal = graph.infeasibility(request)
    except UserMistake:
        return
    if refusal is not None:
        assert refusal.reason
    assert taken(graph) == {}
