"""Task maps (RFC 34)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import taskmap
from warren.rfc.errors import BadFormat
from warren.rfc.taskmap import Block

VECTORS = [
    ("", []),
    ("0", [[0, 1, 1, 1]]),
    ("0;1", [[0, 2, 1, 1]]),
    ("0-1", [[0, 1, 2, 1]]),
    ("0-1;2-3", [[0, 2, 2, 1]]),
    ("0,2;1,3", [[0, 2, 1, 2]]),
    ("1;0", [[1, 1, 1, 1], [0, 1, 1, 1]]),
    ("0-3;4-7;8-11;12-15", [[0, 4, 4, 1]]),
    ("0,4,8,12;1,5,9,13;2,6,10,14;3,7,11,15", [[0, 4, 1, 4]]),
    ("0-1,8-9;2-3,10-11;4-5,12-13;6-7,14-15", [[0, 4, 2, 2]]),
    ("0-1;2-3;4-5;6-7;8-11;12-15", [[0, 4, 2, 1], [4, 2, 4, 1]]),
    ("0,6;1,7;2,8;3,9;4,10,12,14;5,11,13,15", [[0, 6, 1, 2], [4, 2, 1, 2]]),
    (
        "14-15;12-13;10-11;8-9;4-7;0-3",
        [[5, 1, 4, 1], [4, 1, 4, 1], [3, 1, 2, 1], [2, 1, 2, 1], [1, 1, 2, 1], [0, 1, 2, 1]],
    ),
    (
        "0-1;2-3;4-5;6-7;8-9;12-13;10-11;14-15",
        [[0, 5, 2, 1], [6, 1, 2, 1], [5, 1, 2, 1], [7, 1, 2, 1]],
    ),
    ("12-15;8-11;4-7;0-3", [[3, 1, 4, 1], [2, 1, 4, 1], [1, 1, 4, 1], [0, 1, 4, 1]]),
]
"""All of the RFC."""


@pytest.mark.parametrize(("raw", "blocks"), VECTORS)
def test_the_vectors_of_the_rfc_are_met_both_ways(raw: str, blocks: list[list[int]]) -> None:
    assert [list(block) for block in taskmap.from_raw(raw)] == blocks
    assert taskmap.to_raw(taskmap.decode(blocks)) == raw


@pytest.mark.parametrize(
    ("pmi", "blocks"),
    [
        ("(vector)", []),
        ("(vector,(0,4,4))", [[0, 4, 4, 1]]),
        ("(vector,(0,4,1),(0,4,1),(0,4,1),(0,4,1))", [[0, 4, 1, 4]]),
        ("(vector,(0,4,2),(0,4,2))", [[0, 4, 2, 2]]),
        ("(vector,(0,4,2),(4,2,4))", [[0, 4, 2, 1], [4, 2, 4, 1]]),
        ("(vector,(0,6,1),(0,6,1),(4,2,1),(4,2,1))", [[0, 6, 1, 2], [4, 2, 1, 2]]),
        ("(vector,(0,6,2),(4,2,2))", [[0, 6, 2, 1], [4, 2, 2, 1]]),
        ("(vector,(0,4096,256))", [[0, 4096, 256, 1]]),
    ],
)
def test_the_maps_of_pmi_that_the_rfc_compares_with_are_met(
    pmi: str, blocks: list[list[int]]
) -> None:
    assert [list(block) for block in taskmap.from_pmi(pmi)] == blocks
    assert taskmap.to_pmi(taskmap.decode(blocks)) == pmi


@pytest.mark.parametrize(
    ("tasks", "blocks"),
    [
        ([], []),
        ([1], [[0, 1, 1, 1]]),
        ([4, 4], [[0, 2, 4, 1]]),
        ([2, 2, 1], [[0, 2, 2, 1], [2, 1, 1, 1]]),
        ([1, 2, 1], [[0, 1, 1, 1], [1, 1, 2, 1], [2, 1, 1, 1]]),
        ([1, 0, 1], [[0, 1, 1, 1], [2, 1, 1, 1]]),
        ([0, 0], []),
    ],
)
def test_a_task_map_joins_neighbours_with_equally_many_tasks(
    tasks: list[int], blocks: list[list[int]]
) -> None:
    assert taskmap.encode(tasks) == blocks


def test_a_map_is_read_wrapped_or_not() -> None:
    blocks = [[0, 4096, 256, 1]]
    assert taskmap.wrap(blocks) == {"version": 1, "map": blocks}
    assert taskmap.decode(taskmap.wrap(blocks)) == taskmap.decode(blocks) == [Block(0, 4096, 256)]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "an array of blocks"),
        ("[]", "an array of blocks"),
        ({}, "the keys version and map"),
        ({"version": 1, "map": [], "more": 1}, "the keys version and map"),
        ({"version": 2, "map": []}, "version is 2, not 1"),
        ({"version": True, "map": []}, "version is True, not 1"),
        ({"version": 1, "map": {}}, "an array of blocks"),
        ([[0, 1, 1, 1], [0, 1, 1]], "block 1 is not an array of four"),
        ([7], "block 0 is not an array of four"),
        ([[-1, 1, 1, 1]], "first of block 0 is -1"),
        ([[0, 0, 1, 1]], "nodes of block 0 is 0"),
        ([[0, 1, 0, 1]], "per_node of block 0 is 0"),
        ([[0, 1, 1, 0]], "repeat of block 0 is 0"),
        ([[0, 1, 1.0, 1]], "per_node of block 0 is 1.0"),
        ([[0, True, 1, 1]], "nodes of block 0 is True"),
        ([[0, 2**16, 2**16, 1], [0, 1, 1, 1]], "with block 0 there are more"),
        ([[2**32 - 2, 2, 1, 1]], "with block 0 there are more"),
    ],
)
def test_what_is_no_map_is_refused_with_its_place(value: Any, problem: str) -> None:
    with pytest.raises(BadFormat, match=f"taskmap: .*{problem}"):
        taskmap.decode(value)


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("0;0", "task 0 is on node 0 and on node 1"),
        ("0;2", "no node has task 1"),
        ("1", "no node has task 0"),
        ("0;x", "taskmap: node 1: idset 'x'"),
    ],
)
def test_a_raw_map_has_every_task_once(raw: str, problem: str) -> None:
    with pytest.raises(BadFormat, match=problem):
        taskmap.from_raw(raw)


@pytest.mark.parametrize(
    "pmi", ["", "(vector", "(vector,)", "(vector,(0,1))", "(vector,(0,1,1)) ", "(vector,(0,x,1))"]
)
def test_what_is_not_pmi_s_is_refused(pmi: str) -> None:
    with pytest.raises(BadFormat, match="taskmap"):
        taskmap.from_pmi(pmi)


def test_a_block_of_nothing_is_refused_in_pmi_s_form_too() -> None:
    with pytest.raises(BadFormat, match="nodes of block 1 is 0"):
        taskmap.from_pmi("(vector,(0,1,1),(1,0,1))")


def test_a_map_of_a_million_tasks_is_asked_without_being_spread_out() -> None:
    blocks = [Block(0, 4096, 1, 2**18), Block(4096, 1, 3)]
    assert taskmap.task_count(blocks) == 2**30 + 3
    assert taskmap.node_count(blocks) == 4097
    assert taskmap.node_of(blocks, 4095) == 4095
    assert taskmap.node_of(blocks, 4096) == 0
    assert taskmap.node_of(blocks, 2**30 + 2) == 4096
    for nobody in (-1, 2**30 + 3):
        with pytest.raises(BadFormat, match=f"no task {nobody}"):
            taskmap.node_of(blocks, nobody)


assignments = st.lists(st.integers(0, 4), max_size=24)


@given(assignments)
def test_every_assignment_reads_back(nodes: list[int]) -> None:
    ranks = [[rank for rank, node in enumerate(nodes) if node == each] for each in range(5)]

    blocks = taskmap.decode(taskmap.wrap(taskmap.from_ranks(ranks)))

    assert [list(taskmap.ranks_of(blocks, node)) for node in range(5)] == ranks
    assert [taskmap.node_of(blocks, rank) for rank in range(len(nodes))] == nodes
    assert taskmap.from_raw(taskmap.to_raw(blocks)) == blocks
    assert taskmap.from_pmi(taskmap.to_pmi(blocks)) == blocks


@given(st.lists(st.integers(0, 3), max_size=8))
def test_tasks_by_node_are_the_assignment_in_their_order(tasks: list[int]) -> None:
    nodes = [node for node, count in enumerate(tasks) for _ in range(count)]
    ranks = [[rank for rank, at in enumerate(nodes) if at == node] for node in range(len(tasks))]
    assert taskmap.decode(taskmap.encode(tasks)) == taskmap.from_ranks(ranks)
