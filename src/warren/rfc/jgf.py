"""Resource graphs as Fluxion reads and writes them: JGF in R's `scheduling` (RFC 40).

Written in the terse form: what equals its default is left out. Both forms are read, and
what a vertex leaves out is told by its properties (`vertex.size`). A vertex is found by
its containment path, `/cluster/chassis0/ssd3`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from warren.rfc.errors import BadFormat

WRITER: Final = "fluxion:jgf"
_CONTAINS: Final = ("containment", "contains")
_WRITERS: Final = ("fluxion", WRITER)
_LARGEST: Final = 2**32 - 2
"""No id, rank or size is beyond this, as in idsets (RFC 22)."""


class Vertex(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of the graph."""

    type: str
    path: str
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The rest: id, rank, name, size, unit, status, properties, exclusive."""

    @property
    def parent_path(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def basename(self) -> str:
        return str(self.metadata.get("basename", self.type))

    @property
    def id(self) -> int:
        """Tells resources of one type apart; -1 if nothing has to."""
        return int(self.metadata.get("id", -1))

    @property
    def name(self) -> str:
        found = self.metadata.get("name")
        if found is not None:
            return str(found)
        return self.basename if self.id < 0 else f"{self.basename}{self.id}"

    @property
    def rank(self) -> int:
        """The execution target it belongs to; -1 for none."""
        return int(self.metadata.get("rank", -1))

    @property
    def size(self) -> int:
        """How much of it there is, in units of `unit`."""
        return int(self.metadata.get("size", 1))

    @property
    def unit(self) -> str:
        return str(self.metadata.get("unit", ""))

    @property
    def up(self) -> bool:
        return bool(self.metadata.get("status", 0) == 0)

    @property
    def exclusive(self) -> bool:
        return bool(self.metadata.get("exclusive", False))

    @property
    def properties(self) -> Mapping[str, str]:
        found: Mapping[str, str] = self.metadata.get("properties", {})
        return found


class EncodedVertex(NamedTuple):
    """A vertex ready to be written: made once, and shared by all graphs that have it."""

    path: str
    parent_path: str
    metadata: Mapping[str, Any]


class GraphText(NamedTuple):
    """Vertices as JSON text, and the edges that lead to them: made once, for many graphs."""

    nodes: bytes
    edges: bytes


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """One relation between two resources, which it gives by their ids in the graph."""

    source: str
    target: str
    subsystem: str = "containment"
    relationship: str = "contains"


def encode_vertex(vertex: Vertex) -> EncodedVertex:
    """Make a vertex ready to be written."""
    metadata = {"type": vertex.type, **vertex.metadata, "paths": {"containment": vertex.path}}
    return EncodedVertex(vertex.path, vertex.parent_path, metadata)


def encode(vertices: Iterable[EncodedVertex]) -> dict[str, Any]:
    """Write the graph; each parent comes before its children."""
    nodes, edges = [], []
    ids: dict[str, str] = {}
    for path, parent_path, metadata in vertices:
        vertex_id = ids[path] = str(len(ids))
        nodes.append({"id": vertex_id, "metadata": metadata})
        if parent_path:
            edges.append({"source": ids[parent_path], "target": vertex_id})
    return {"graph": {"directed": False, "nodes": nodes, "edges": edges}}


def vertex_text(vertex: Vertex, number: int, parent_number: int | None) -> GraphText:
    """Write one vertex, with `number` for its id in all graphs, and the edge from its parent."""
    node = orjson.dumps({"id": str(number), "metadata": encode_vertex(vertex).metadata})
    if parent_number is None:
        return GraphText(node, b"")
    return GraphText(node, orjson.dumps({"source": str(parent_number), "target": str(number)}))


def leaves_text(
    type_: str,
    ids: Sequence[int],
    rank: int,
    node_path: str,
    first_number: int,
    node_number: int,
) -> GraphText:
    """Write the cores or gpus of a node, numbered as vertices from `first_number` on.

    A large system has a million of them, which differ in numbers alone: nothing is made of each.
    """
    # Without its quotation mark the text can be gone on with.
    name = orjson.dumps(f"{node_path}/{type_}").decode()[:-1]
    middle = f'","metadata":{{"type":"{type_}","id":'
    rest = f',"rank":{rank},"paths":{{"containment":{name}'
    source = f'{{"source":"{node_number}","target":"'
    nodes = [
        f'{{"id":"{vertex_id}{middle}{id_}{rest}{id_}"}}}}}}'
        for vertex_id, id_ in enumerate(ids, first_number)
    ]
    vertex_ids = range(first_number, first_number + len(ids))
    edges = [f'{source}{vertex_id}"}}' for vertex_id in vertex_ids]
    return GraphText(",".join(nodes).encode(), ",".join(edges).encode())


def join_texts(texts: Iterable[GraphText]) -> GraphText:
    """Put the texts of vertices together."""
    # Of no leaves there is no text, and the first vertex has no edge.
    nodes, edges = zip(*texts, strict=True)
    return GraphText(b",".join(filter(None, nodes)), b",".join(filter(None, edges)))


def encode_texts(texts: Iterable[GraphText]) -> bytes:
    """Write the graph of vertices that are texts already."""
    nodes, edges = join_texts(texts)
    return b'{"graph":{"directed":false,"nodes":[%b],"edges":[%b]}}' % (nodes, edges)


def decode(scheduling: Mapping[str, Any]) -> Iterator[Vertex]:
    """Return the vertices in order. Raises BadFormat where the graph cannot be Fluxion's."""
    for index, node in enumerate(_nodes(scheduling)):
        try:
            metadata = node["metadata"].copy()
            type_, path = metadata.pop("type"), metadata.pop("paths")["containment"]
            rooted = path.startswith("/")
        except (KeyError, TypeError, AttributeError) as error:
            raise _bad(
                f"graph.nodes[{index}].metadata", f"lacks what it needs: {error!r}"
            ) from None
        if not rooted:
            raise _bad(f"graph.nodes[{index}].metadata", f"has no path from the root: {path!r}")
        yield Vertex(type=type_, path=path, metadata=metadata)


def edges(scheduling: Mapping[str, Any]) -> Iterator[Edge]:
    """Return the edges in order. Raises BadFormat for one that names no vertex of the graph."""
    for source, target, subsystem, relationship in _edges(scheduling):
        yield Edge(source=source, target=target, subsystem=subsystem, relationship=relationship)


def _edges(scheduling: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Return the fields of each edge. No Edge is made of them: large graphs have very many."""
    ids: set[str] = set()
    for index, node in enumerate(_nodes(scheduling)):
        vertex_id = node.get("id") if isinstance(node, Mapping) else None
        if not isinstance(vertex_id, str):
            raise _bad(f"graph.nodes[{index}].id", f"is {vertex_id!r}, not a text")
        if vertex_id in ids:
            raise _bad(f"graph.nodes[{index}].id", f"is {vertex_id!r} again")
        ids.add(vertex_id)
    edge_list = scheduling["graph"].get("edges")
    if not isinstance(edge_list, list):
        raise _bad("graph.edges", "is not an array")
    for index, edge in enumerate(edge_list):
        if not isinstance(edge, Mapping):
            raise _bad(f"graph.edges[{index}]", "is not an object")
        source: Any = edge.get("source")
        target: Any = edge.get("target")
        for end, vertex_id in (("source", source), ("target", target)):
            if not isinstance(vertex_id, str) or vertex_id not in ids:
                raise _bad(f"graph.edges[{index}].{end}", f"is {vertex_id!r}, and no vertex")
        metadata = edge.get("metadata")
        subsystem, relationship = _CONTAINS
        if "metadata" in edge:
            subsystem, relationship = _relation(metadata, f"graph.edges[{index}].metadata")
        yield source, target, subsystem, relationship


def check(scheduling: Mapping[str, Any]) -> None:
    """Raise BadFormat, with the path of the mistake, unless the graph holds together.

    All of it can be read, and it is a tree: what contains what is the same by edges and by
    paths, which rules cycles out. That is dear for a large graph.
    """
    parent_by_path: dict[str, str] = {}
    for index, vertex in enumerate(decode(scheduling)):
        check_vertex(vertex, index)
        if vertex.path in parent_by_path:
            path = f"graph.nodes[{index}].metadata.paths.containment"
            raise _bad(path, f"is {vertex.path!r} again")
        parent_by_path[vertex.path] = vertex.parent_path
    relations = list(_edges(scheduling))
    ids = (node["id"] for node in _nodes(scheduling))
    path_by_id = dict(zip(ids, parent_by_path, strict=True))
    contained: set[str] = set()
    for index, (source, target, *relation) in enumerate(relations):
        if tuple(relation) != _CONTAINS:
            continue
        container, contained_path = path_by_id[source], path_by_id[target]
        if parent_by_path[contained_path] != container or contained_path in contained:
            raise _bad(
                f"graph.edges[{index}]", f"has {contained_path} in {container}, against its path"
            )
        contained.add(contained_path)
    for path, parent in parent_by_path.items():
        if parent and path not in contained:
            raise _bad("graph.edges", f"do not have {path} in {parent}, where its path is")


def check_vertex(vertex: Vertex, index: int) -> None:
    """Raise BadFormat, with the path of the mistake, unless all of a vertex can be read."""
    problem = _problem(vertex)
    if problem is not None:
        key, message = problem
        raise _bad(f"graph.nodes[{index}].metadata.{key}", message)


def _problem(vertex: Vertex) -> tuple[str, str] | None:
    """Return what of a vertex cannot be read, and why."""
    if not isinstance(vertex.type, str):
        return "type", f"is {vertex.type!r}, not a text"
    for key, value in vertex.metadata.items():
        type_and_text = _METADATA_TYPES.get(key)
        if type_and_text is None:
            continue
        python_type, type_text = type_and_text
        if type(value) is not python_type:
            return key, f"is {value!r}, not {type_text}"
        least = -1 if key in ("id", "rank") else 0
        if isinstance(value, int) and not least <= value <= _LARGEST:
            return key, f"is {value}"
        if isinstance(value, dict):
            for name, each in value.items():
                if not isinstance(each, str):
                    return f"properties.{name}", f"is {each!r}, not a text"
    if vertex.metadata.get("status", 0) not in (0, 1):
        return "status", f"is {vertex.metadata['status']}, neither 0 nor 1"
    return None


_METADATA_TYPES: Final[Mapping[str, tuple[type, str]]] = {
    "basename": (str, "a text"),
    "name": (str, "a text"),
    "unit": (str, "a text"),
    "id": (int, "a number"),
    "rank": (int, "a number"),
    "size": (int, "a number"),
    "status": (int, "a number"),
    "exclusive": (bool, "true or false"),
    "properties": (dict, "an object"),
}
"""The Python type that each key of the metadata has, and what errors call it."""


def _nodes(scheduling: Mapping[str, Any]) -> list[Any]:
    if not isinstance(scheduling, Mapping):
        raise BadFormat("the resource graph is malformed: it is not an object")
    writer = scheduling.get("writer", WRITER)
    if writer not in _WRITERS:
        raise _bad("writer", f"is {writer!r}, not {WRITER!r}")
    graph = scheduling.get("graph")
    nodes = graph.get("nodes") if isinstance(graph, Mapping) else None
    if not isinstance(nodes, list):
        raise _bad("graph.nodes", "is not an array")
    return nodes


def _relation(metadata: Any, path: str) -> tuple[str, str]:
    """Read an edge's metadata: by the letter of RFC 40, or as `name` of older graphs."""
    if not isinstance(metadata, Mapping):
        raise _bad(path, "is not an object")
    subsystem: Any = metadata.get("subsystem", "containment")
    relationship: Any = metadata.get("relationship", "contains")
    if isinstance(metadata.get("name"), Mapping) and len(metadata["name"]) == 1:
        ((subsystem, relationship),) = metadata["name"].items()
    if not isinstance(subsystem, str) or not isinstance(relationship, str):
        raise _bad(path, "does not tell subsystem and relationship as texts")
    return subsystem, relationship


def _bad(path: str, problem: str) -> BadFormat:
    return BadFormat(f"the resource graph is malformed: {path} {problem}")
