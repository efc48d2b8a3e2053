"""Resource graphs as Fluxion reads and writes them: JGF in R's `scheduling` (RFC 40).

The terse form: what equals its default is left out. A vertex is found by its
containment path, `/cluster/chassis0/ssd3`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from warren.rfc.errors import BadFormat


@dataclass(frozen=True, kw_only=True)
class Vertex:
    """One resource of the graph."""

    type: str
    path: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The rest: id, rank, name, size, unit, status, properties, exclusive."""

    @property
    def parent(self) -> str:
        return self.path.rpartition("/")[0]


class Line(NamedTuple):
    """A vertex ready to be written: made once, and shared by all graphs that have it."""

    path: str
    parent: str
    metadata: Mapping[str, Any]


def line(vertex: Vertex) -> Line:
    """Make a vertex ready to be written."""
    metadata = {"type": vertex.type, **vertex.metadata, "paths": {"containment": vertex.path}}
    return Line(vertex.path, vertex.parent, metadata)


def encode(lines: Iterable[Line]) -> dict[str, Any]:
    """Write the graph; each parent comes before its children."""
    nodes, edges = [], []
    ids: dict[str, str] = {}
    for path, parent, metadata in lines:
        number = ids[path] = str(len(ids))
        nodes.append({"id": number, "metadata": metadata})
        if parent:
            edges.append({"source": ids[parent], "target": number})
    return {"graph": {"directed": False, "nodes": nodes, "edges": edges}}


def decode(scheduling: Mapping[str, Any]) -> Iterator[Vertex]:
    """Give the vertices in order. Raises BadFormat where the graph cannot be Fluxion's."""
    try:
        for node in scheduling["graph"]["nodes"]:
            metadata = dict(node["metadata"])
            kind, path = metadata.pop("type"), metadata.pop("paths")["containment"]
            yield Vertex(type=kind, path=path, metadata=metadata)
    except (KeyError, TypeError, ValueError) as error:
        raise BadFormat(f"the resource graph is malformed: {error!r}") from None
