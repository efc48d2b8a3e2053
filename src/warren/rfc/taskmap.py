"""Which task runs on which node (RFC 34)."""

from collections.abc import Sequence
from itertools import groupby


def encode(tasks_per_node: Sequence[int]) -> list[list[int]]:
    """Write a block map: runs of neighbouring nodes with equally many tasks."""
    blocks = []
    start = 0
    for count, nodes in groupby(tasks_per_node):
        length = len(list(nodes))
        blocks.append([start, length, count, 1])
        start += length
    return blocks
