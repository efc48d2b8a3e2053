"""A node's part of a job: which tasks are where, and what they are given."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.instance.parts import OWNER
from tests.instance.shells import info
from warren.instance.shell.options import CannotRun
from warren.instance.shell.shellinfo import cyclic_counts, cyclic_map
from warren.instance.shell.templates import fill_in, is_shared
from warren.rfc import taskmap

TWO = ((0, 1), (0, 1))


def ranks(**asked: Any) -> list[list[int]]:
    nodes = asked.get("nodes", ((0, 1, 2, 3),))
    return [list(info(rank=rank, **asked).task_ranks) for rank in range(len(nodes))]


def refusal(**asked: Any) -> str:
    with pytest.raises(CannotRun) as caught:
        info(**asked)
    return str(caught.value)


def test_a_part_tells_whose_the_job_is_and_where() -> None:
    found = info(rank=1, nodes=TWO, environment={"A": "1"}, cwd="/work")

    assert (found.userid, found.host, found.task_count) == (OWNER, "node1", 2)
    assert found.environment == {"A": "1"}
    assert found.cwd == "/work"


def test_what_is_null_in_the_environment_is_unset() -> None:
    found = info(
        environment={"A": "1", "B": None},
        change={"attributes": {"environment": {"A": None, "C": "3"}}},
    )

    assert found.environment == {"C": "3"}


# Counts


def test_tasks_are_spread_over_the_nodes() -> None:
    assert ranks(nodes=TWO, tasks=3) == [[0, 1], [2]]


def test_nodes_with_more_cores_have_more_tasks() -> None:
    assert ranks(nodes=((0, 1, 2), (5,)), tasks=4) == [[0, 1, 2], [3]]


def test_a_count_per_slot_is_a_count_in_all() -> None:
    assert ranks(nodes=TWO, tasks=2, change={"count": {"per_slot": 2}}) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("type_", "expected"), [("node", [[0, 1], [2, 3]]), ("core", [[0, 1, 2, 3, 4, 5], [6, 7]])]
)
def test_tasks_may_be_counted_by_resources(type_: str, expected: list[list[int]]) -> None:
    nodes = ((0, 1, 2), (0,))
    each = {"type": type_, "count": 2}

    assert ranks(nodes=nodes, options={"per-resource": each}) == expected
    assert ranks(nodes=nodes, change={"count": {"per_resource": each}}) == expected


@given(
    tasks=st.integers(0, 60),
    cores=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    each=st.integers(1, 3),
)
def test_every_task_has_a_node_and_none_has_too_many_while_another_has_room(
    tasks: int, cores: list[int], each: int
) -> None:
    given_ = cyclic_counts(tasks, cores, each)
    room = [number // each for number in cores]

    assert sum(given_) == tasks
    if tasks <= sum(room):
        assert all(count <= most for count, most in zip(given_, room, strict=True))
        counts = [(count, most) for count, most in zip(given_, room, strict=True)]
        for count, most in counts:
            # A task in turn: who has one more than another is one whom that other cannot follow.
            assert all(
                count - other <= 1 or other == others_most for other, others_most in counts
            ), (count, most)


def test_a_node_may_have_no_task() -> None:
    assert ranks(nodes=((0, 1), (0,)), cores=2, tasks=2, change={"count": {"total": 1}}) == [
        [0],
        [],
    ]


# Maps


@pytest.mark.parametrize(
    ("taskmap_", "expected"),
    [
        ({"scheme": "block"}, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ({"scheme": "cyclic"}, [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ({"scheme": "cyclic", "value": "3"}, [[0, 1, 2, 6], [3, 4, 5, 7]]),
        ({"scheme": "cyclic", "value": 2}, [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ({"scheme": "manual", "value": "1,3-7;0,2"}, [[1, 3, 4, 5, 6, 7], [0, 2]]),
        ({"scheme": "manual", "value": "[[1,1,8,1]]"}, [[], [0, 1, 2, 3, 4, 5, 6, 7]]),
    ],
)
def test_tasks_are_numbered_as_the_job_says(
    taskmap_: dict[str, Any], expected: list[list[int]]
) -> None:
    nodes = ((0, 1, 2, 3), (0, 1, 2, 3))

    assert ranks(nodes=nodes, tasks=8, options={"taskmap": taskmap_}) == expected


def test_a_distribution_is_a_map() -> None:
    assert ranks(nodes=TWO, tasks=4, change={"distribution": "cyclic:1"}) == [[0, 2], [1, 3]]


@pytest.mark.parametrize(
    ("taskmap_", "problem"),
    [
        ({"scheme": "best"}, "'best' is not one of block, cyclic, manual"),
        ({"scheme": "cyclic", "value": "0"}, "cyclic:0 has no number of tasks for each turn"),
        ({"scheme": "manual", "value": "0-8"}, "manual has 9 tasks on 1 nodes, and the job 2 on 2"),
        ({"scheme": "manual", "value": "0-1;x"}, "manual: taskmap: node 1"),
        ({"scheme": "manual", "value": "[[0"}, "manual: "),
    ],
)
def test_a_map_that_does_not_fit_is_refused(taskmap_: dict[str, Any], problem: str) -> None:
    assert problem in refusal(nodes=TWO, options={"taskmap": taskmap_})


@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=5), stride=st.integers(1, 4))
def test_a_cyclic_map_keeps_the_counts(counts: list[int], stride: int) -> None:
    blocks = cyclic_map(counts, str(stride))

    assert [len(list(taskmap.ranks_of(blocks, node))) for node in range(len(counts))] == counts


# Templates


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("plain", "plain"),
        ("{{id}}", "ƒuZZybuNNy"),
        ("{{id.f58plain}}-{{id.dec}}", "fuZZybuNNy-6731191091817518"),
        ("{{ name }}", "app"),
        ("{{nnodes}}x{{size}}", "2x4"),
        ("{{taskid}}.{{localid}}", "3.1"),
        ("{{node.id}}.{{node.name}}", "1.node1"),
        ("{{node.cores}} {{node.ncores}} {{node.broker_rank}}", "0-1 2 1"),
        ("<{{node.gpus}}>", "<>"),
        ("{{tmpdir}}/script", "/tmp/here/script"),
        ("{{unknown}} {{id.nothing}} {x}", "{{unknown}} {{id.nothing}} {x}"),
    ],
)
def test_templates_are_filled_in(template: str, expected: str) -> None:
    found = info(rank=1, nodes=TWO, tasks=4, environment={"FLUX_JOB_TMPDIR": "/tmp/here"})

    assert fill_in(template, found, 1) == expected


@pytest.mark.parametrize("template", ["out", "{{id}}.out", "{{name}}-{{size}}"])
def test_a_file_of_the_job_is_shared(template: str) -> None:
    assert is_shared(template)
    assert not is_shared(template + "-{{taskid}}")
    assert not is_shared(template + "-{{node.id}}")


# Bad input


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], None),
        ([1], "shell.options is not an object"),
        ({"output": 1}, "shell option output is not an object"),
        ({"output": {"stdout": {"type": "tape"}}}, "output.stdout.type is 'tape', not one of"),
        ({"output": {"stderr": {"type": "file"}}}, "output.stderr.path is missing"),
        ({"output": {"mode": "over"}}, "output.mode is 'over'"),
        ({"output": {"limit": "2G"}}, "output.limit is '2G', not a size up to 1G"),
        ({"output": {"limit": "much"}}, "output.limit is 'much'"),
        ({"input": {"stdin": {"type": "file"}}}, "input.stdin.path is missing"),
        ({"exit-timeout": "soon"}, "exit-timeout 'soon' is not a duration"),
        ({"exit-on-error": "yes"}, "exit-on-error is 'yes', not true or false"),
        ({"env-expand": {"A": 1}}, "env-expand.A is 1, not the value of a variable"),
        ({"rlimit": {"wishes": 3}}, "rlimit.wishes is no limit of this system"),
        ({"rlimit": {"core": "much"}}, "rlimit.core is 'much', not a whole number"),
        ({"signal": "USR1"}, "signal is 'USR1', not an object"),
        ({"signal": {"signum": 99}}, "signal.signum is 99, not the number of a signal"),
        ({"signal": {"timeleft": -1}}, "signal.timeleft '-1' is not a duration"),
        ({"taskmap": "cyclic"}, "taskmap is not an object with a scheme"),
        ({"per-resource": {"type": "socket"}}, "per-resource is not a type, node or core"),
        (
            {"per-resource": {"type": "node", "count": 10**12}},
            "1000000000000 tasks on one node are too many: a node runs up to 65536",
        ),
        ({"pmi": 1}, "pmi is 1, not a list of names"),
        ({"verbose": -1}, "verbose is -1"),
        ({"gpu-affinity": "map:1"}, "gpu-affinity is 'map:1'"),
        ({"cpu-affinity": "mostly"}, "cpu-affinity is 'mostly', not one of on, off, per-task, map"),
        ({"cpu-affinity": 2}, "cpu-affinity is 2, not one of on"),
        ({"cpu-affinity": "map:0;x"}, "cpu-affinity map: idset 'x'"),
        ({"cpu-affinity": "map:0;"}, "cpu-affinity map: '' names no CPU"),
        ({"pty": "yes"}, "pty is 'yes', not a switch, or an object"),
        ({"pty": {"ranks": "some"}}, "pty.ranks is 'some', not ranks of tasks"),
        ({"pty": {"interactive": 2}}, "pty.interactive is 2, not true or false"),
        ({"pty": {"size": "80"}}, "pty.size is '80', not rows and columns"),
        ({"wreath": {"of": "roses"}}, None),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Any, problem: str | None) -> None:
    if problem is None:
        info(options=options)
    else:
        assert problem in refusal(options=options)


@pytest.mark.parametrize(
    ("given", "ranks", "interactive", "capture"),
    [
        (None, set(), False, True),
        (0, set(), False, True),
        (1, {0, 1, 2}, False, True),
        ({}, {0, 1, 2}, False, True),
        ({"capture": 1}, {0, 1, 2}, False, True),
        ({"ranks": 1}, {1}, False, True),
        ({"ranks": "0,2"}, {0, 2}, False, True),
        ({"ranks": "all"}, {0, 1, 2}, False, True),
        ({"interactive": 1}, {0}, True, False),
        ({"interactive": 1, "capture": 1}, {0}, True, True),
        ({"interactive": 1, "ranks": "1"}, {0, 1}, True, False),
    ],
)
def test_terminals_are_asked_for_as_with_flux(
    given: Any, ranks: set[int], interactive: bool, capture: bool
) -> None:
    pty = info(options={} if given is None else {"pty": given}).options.pty

    assert {rank for rank in range(3) if pty.includes(rank)} == ranks
    assert (pty.interactive, pty.capture, pty.size) == (interactive, capture, (24, 80))


def test_what_is_said_of_stdout_is_said_of_stderr() -> None:
    options = info(options={"output": {"stdout": {"type": "file", "path": "x"}}}).options
    assert options.stderr.path == "x"
    both = {"stdout": {"path": "x"}, "stderr": {"type": "kvs"}}
    assert info(options={"output": both}).options.stderr.type == "kvs"


@pytest.mark.parametrize(
    ("given_", "limit"), [("10M", 10**7), (1000, 1000), ("1.5k", 1500), ("1G", None)]
)
def test_limits_have_units(given_: Any, limit: int | None) -> None:
    if limit is None:
        assert "output.limit" in refusal(options={"output": {"limit": "1.1G"}})
    else:
        assert info(options={"output": {"limit": given_}}).options.output_limit == limit
