"""Which task runs on which node (RFC 34).

A map is a list of blocks, and no blocks say that nothing is known. A block of `nodes` nodes
from `first` on gives each of them `per_node` tasks in turn, and does so `repeat` times; the
tasks are numbered in that order, from 0. The raw form is for people: the ranks of each
node as an idset, the nodes separated by semicolons, `0,2;1,3`. PMI's form is that of RFC 13:
`(vector,(0,4,1))`, with blocks that do not repeat.

Questions are answered from the blocks alone: a map of millions of tasks costs what its
blocks cost.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from warren.rfc import idset
from warren.rfc.errors import BadFormat

_LIMIT: Final = 2**32 - 1
_BLOCK = r"\(([0-9]{1,10}),([0-9]{1,10}),([0-9]{1,10})\)"
_PMI_PATTERN: Final = re.compile(rf"\(vector((?:,{_BLOCK})*)\)")
_PMI_BLOCK_PATTERN: Final = re.compile(_BLOCK)


class Block(NamedTuple):
    """Neighbouring nodes with equally many tasks each."""

    first: int
    """The first node, counted from 0 within the job."""
    nodes: int
    """How many nodes."""
    per_node: int
    """How many tasks each node gets in turn."""
    repeat: int = 1

    @property
    def tasks(self) -> int:
        return self.nodes * self.per_node * self.repeat


def encode(tasks_per_node: Sequence[int]) -> list[list[int]]:
    """Write a block map: runs of neighbouring nodes with equally many tasks.

    Nodes without tasks are in no block.
    """
    blocks = []
    start = 0
    for count, nodes in groupby(tasks_per_node):
        length = len(list(nodes))
        if count:
            blocks.append([start, length, count, 1])
        start += length
    return blocks


def wrap(blocks: Iterable[Sequence[int]]) -> dict[str, Any]:
    """Write a map as it travels in events: an object with its version."""
    return {"version": 1, "map": [list(block) for block in blocks]}


def decode(value: Any) -> list[Block]:
    """Read a map from JSON, wrapped or not. Raises BadFormat with the place of the mistake."""
    blocks = value
    if isinstance(value, Mapping):
        if value.keys() != {"version", "map"}:
            raise BadFormat("taskmap: an object with the keys version and map is expected")
        if type(value["version"]) is not int or value["version"] != 1:
            raise BadFormat(f"taskmap: version is {value['version']!r}, not 1")
        blocks = value["map"]
    if not isinstance(blocks, list):
        raise BadFormat("taskmap: an array of blocks is expected")
    return _check(_block(index, block) for index, block in enumerate(blocks))


def _block(index: int, value: Any) -> Block:
    if not isinstance(value, list | tuple) or len(value) != 4:
        raise BadFormat(f"taskmap: block {index} is not an array of four numbers")
    for number, name, least in zip(value, Block._fields, (0, 1, 1, 1), strict=True):
        if type(number) is not int or not least <= number < _LIMIT:
            raise BadFormat(
                f"taskmap: {name} of block {index} is {number!r}, not a number from {least} on"
            )
    return Block(*value)


def _check(blocks: Iterable[Block]) -> list[Block]:
    checked, tasks = [], 0
    for index, block in enumerate(blocks):
        tasks += block.tasks
        if tasks > _LIMIT or block.first + block.nodes > _LIMIT:
            raise BadFormat(f"taskmap: with block {index} there are more than {_LIMIT} tasks")
        checked.append(block)
    return checked


# Questions


def task_count(blocks: Iterable[Block]) -> int:
    """Return how many tasks there are."""
    return sum(block.tasks for block in blocks)


def node_count(blocks: Iterable[Block]) -> int:
    """Return how many nodes there are, those without tasks before the last one included."""
    return max((block.first + block.nodes for block in blocks), default=0)


def node_of(blocks: Iterable[Block], rank: int) -> int:
    """Return the node of a task. Raises BadFormat for a rank that the map does not have."""
    offset = rank
    for first, length, per_node, repeat in blocks:
        size = length * per_node
        if 0 <= offset < size * repeat:
            return first + offset % size // per_node
        offset -= size * repeat
    raise BadFormat(f"taskmap: there is no task {rank}")


def ranks_of(blocks: Iterable[Block], node: int) -> Iterator[int]:
    """Return the tasks of a node, ascending; none for a node that the map does not have."""
    base = 0
    for block in blocks:
        if block.first <= node < block.first + block.nodes:
            size = block.nodes * block.per_node
            start = base + (node - block.first) * block.per_node
            for turn in range(block.repeat):
                yield from range(start + turn * size, start + turn * size + block.per_node)
        base += block.tasks


# From tasks to blocks


def from_ranks(ranks_by_node: Sequence[Iterable[int]]) -> list[Block]:
    """Make the map in which each node has its ranks, in few blocks.

    Raises BadFormat unless every rank from 0 on has exactly one node.
    """
    node_by_rank: dict[int, int] = {}
    for node, ranks in enumerate(ranks_by_node):
        for rank in ranks:
            if rank in node_by_rank:
                raise BadFormat(
                    f"taskmap: task {rank} is on node {node_by_rank[rank]} and on node {node}"
                )
            node_by_rank[rank] = node
    for rank in range(len(node_by_rank)):
        if rank not in node_by_rank:
            raise BadFormat(f"taskmap: no node has task {rank}")
    return _compact(node_by_rank[rank] for rank in range(len(node_by_rank)))


def _compact(nodes_of_tasks: Iterable[int]) -> list[Block]:
    """Join tasks to turns of one node, turns to blocks, and blocks that repeat.

    `nodes_of_tasks` has the node of each task, in the order of their ranks.
    """
    blocks: list[Block] = []
    open_block: Block | None = None
    for node, run in groupby(nodes_of_tasks):
        count = sum(1 for _ in run)
        if open_block is not None:
            if count == open_block.per_node and node == open_block.first + open_block.nodes:
                open_block = open_block._replace(nodes=open_block.nodes + 1)
                continue
            _append_or_repeat(blocks, open_block)
        open_block = Block(node, 1, count)
    if open_block is not None:
        _append_or_repeat(blocks, open_block)
    return blocks


def _append_or_repeat(blocks: list[Block], block: Block) -> None:
    """Add a block, or one more repeat to the last one where that is the same."""
    if blocks and blocks[-1][:3] == block[:3]:
        blocks[-1] = block._replace(repeat=blocks[-1].repeat + 1)
    else:
        blocks.append(block)


# The other forms


def to_raw(blocks: Sequence[Block]) -> str:
    """Write the ranks of each node; nothing for a map that is not known."""
    return ";".join(idset.encode(ranks_of(blocks, node)) for node in range(node_count(blocks)))


def from_raw(text: str) -> list[Block]:
    """Read the raw form. Raises BadFormat with the place of the mistake."""
    if not text:
        return []
    return from_ranks([_raw_ranks(node, ranks) for node, ranks in enumerate(text.split(";"))])


def _raw_ranks(node: int, text: str) -> tuple[int, ...]:
    try:
        return idset.decode(text)
    except BadFormat as error:
        raise BadFormat(f"taskmap: node {node}: {error}") from None


def to_pmi(blocks: Iterable[Block]) -> str:
    """Write PMI's form, in which blocks that repeat are written out."""
    vectors = (
        f",({block.first},{block.nodes},{block.per_node})" * block.repeat for block in blocks
    )
    return f"(vector{''.join(vectors)})"


def from_pmi(text: str) -> list[Block]:
    """Read PMI's form; equal neighbours become one block. Raises BadFormat for all else."""
    match = _PMI_PATTERN.fullmatch(text)
    if match is None:
        raise BadFormat(f"taskmap {text[:80]!r}: '(vector,(node,nodes,tasks),...)' is expected")
    blocks: list[Block] = []
    for index, numbers in enumerate(_PMI_BLOCK_PATTERN.findall(match[1])):
        _append_or_repeat(blocks, _block(index, [*map(int, numbers), 1]))
    return _check(blocks)
