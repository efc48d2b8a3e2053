"""What `warren resource` makes of the answers of the instance."""

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.scheduling.systems import matched, system, want
from warren.base.errors import UserMistake
from warren.cli import resource
from warren.cli.main import cli
from warren.cli.resource import drained_rows, node_states_from
from warren.rfc import resource_set
from warren.scheduling.graph import Graph

QUEUES = {"batch": "0-2", "quick": "0"}


def node(rank: int, state: str, allocated: int = 0, **drain: Any) -> dict[str, Any]:
    told = {"rank": rank, "name": f"n{rank}", "state": state, "cores": 4, "allocated": allocated}
    return {**told, **drain}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run commands on a system of four nodes, of which 0 and 1 have gpus.

    A job has a core of 0 and all of 1; 1 and 3 are drained, 2 is offline.
    """
    graph = Graph(system((4, 0), gpus=1), {"fast": {"n0", "n1"}, "+batch": {"n0"}})
    graph.take(matched(graph, want(slots=1)))
    graph.take(matched(graph, want(1, exclusive=True)))
    graph.set_drained([1, 3])
    graph.set_offline([2])
    status = {
        "nodes": [
            node(0, "allocated", 1),
            node(1, "draining", 4, since=1e9, reason="bad disk"),
            node(2, "offline"),
            node(3, "drained", since=1e9, reason=""),
        ],
        "offline": "2",
        "queues": {},
    }

    def run(*arguments: str, queues: Any = ()) -> Result:
        known = node_states_from({**status, "queues": dict(queues)}, graph.status())
        monkeypatch.setattr(resource, "_read_node_states", lambda state: known)
        return CliRunner().invoke(cli, ["resource", *arguments], catch_exceptions=False)

    return run


def cells(done: Result) -> list[list[str]]:
    assert done.exit_code == 0, done.output
    return [line.split() for line in done.output.splitlines()]


def test_the_scheduler_sees_what_is_free_what_jobs_have_and_what_is_kept_back(ask: Any) -> None:
    form = "{state} {nnodes} {ncores} {ngpus} {ranks} {nodelist}"
    assert cells(ask("list", "-o", form)) == [
        ["STATE", "NNODES", "NCORES", "NGPUS", "RANKS", "NODELIST"],
        ["free", "1", "3", "1", "0", "n0"],
        ["allocated", "2", "5", "1", "0-1", "n[0-1]"],
        ["down", "3", "12", "1", "1-3", "n[1-3]"],
    ]


def test_nodes_of_other_queues_or_properties_have_a_row_of_their_own(ask: Any) -> None:
    listed = cells(ask("list", "-s", "down,free", queues=QUEUES.items()))

    assert listed == [
        ["STATE", "QUEUE", "PROPERTIES", "NNODES", "NCORES", "NGPUS", "NODELIST"],
        ["free", "batch,qu", "fast", "1", "3", "1", "n0"],
        ["down", "batch", "fast", "1", "4", "1", "n1"],
        ["down", "batch", "1", "4", "0", "n2"],
        ["down", "1", "4", "0", "n3"],
    ]


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("-o", "{nodelist}"), ["n[0-3]"]),
        (("-o", "{nnodes} {ncores} {ngpus}"), ["4 16 2"]),
        (("-s", "allocated,down", "-o", "{nnodes} {ncores} {ranks}"), ["4 13 0-3"]),
        (("-s", "all", "-o", "{state} {nnodes} {ncores}"), ["all 4 16"]),
        (("-s", "up", "-o", "{state} {nnodes} {ncores} {nodelist}"), ["up 1 4 n0"]),
        (("-o", "{propertiesx} {nodelist}"), ["fast n[0-1]", " n[2-3]"]),
        (("-o", "{properties}"), ["+batch,fast"]),
        (("-o", "{queue}"), ["batch,quick"]),
        (("-i", "n3", "-s", "free,down", "-o", "{state} {nodelist}"), ["free", "down n3"]),
        (("-i", "n3", "-s", "free", "-o", "{nodelist}"), [""]),
    ],
)
def test_nodes_that_look_alike_in_what_is_shown_share_a_line(
    ask: Any, arguments: tuple[str, ...], lines: list[str]
) -> None:
    done = ask("list", "-n", *arguments, queues=QUEUES.items())

    assert done.output.splitlines() == lines


def test_rows_are_sorted_as_a_format_says(ask: Any) -> None:
    """Fields to sort by tell nodes apart, as those that are shown do."""
    by_number = ask("list", "-n", "-o", "sort:-nnodes {state} {nnodes}")
    assert cells(by_number) == [["down", "3"], ["allocated", "2"], ["free", "1"]]
    by_state = ask("list", "-n", "-o", "sort:state {nodelist}")
    assert cells(by_state) == [["n[0-1]"], ["n[1-3]"], ["n0"]]


@pytest.mark.parametrize("command", ["list", "status"])
def test_the_names_of_nodes_alone_are_a_line(ask: Any, command: str) -> None:
    assert ask(command, "-no", "{nodelist}").output == "n[0-3]\n"


def test_columns_in_which_there_is_nothing_are_left_out_and_a_state_without_nodes_is_not(
    ask: Any,
) -> None:
    assert cells(ask("list", "-i", "n3")) == [
        ["STATE", "NNODES", "NCORES", "NODELIST"],
        ["free", "0", "0"],
        ["allocated", "0", "0"],
        ["down", "1", "4", "n3"],
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "4 Nodes, 16 Cores, 2 GPUs"),
        (("-s", "free"), "1 Node, 3 Cores, 1 GPU"),
        (("-s", "free,allocated"), "2 Nodes, 8 Cores, 2 GPUs"),
        (("-q", "quick"), "1 Node, 4 Cores, 1 GPU"),
        (("-q", "quick", "-q", "batch", "-i", "2-3"), "1 Node, 4 Cores, 0 GPUs"),
    ],
)
def test_how_much_there_is_is_said_in_a_line(
    ask: Any, arguments: tuple[str, ...], line: str
) -> None:
    assert ask("info", *arguments, queues=QUEUES.items()).output == f"{line}\n"


def test_what_is_counted_is_told_as_json_too(ask: Any) -> None:
    assert json.loads(ask("info", "--json").output) == {"nnodes": 4, "ncores": 16, "ngpus": 2}
    rows = json.loads(ask("list", "--json", "-s", "free").output)["states"]
    assert rows == [
        {"state": "free", "queue": "", "properties": "+batch,fast", "propertiesx": "fast",
         "nnodes": 1, "ncores": 3, "ngpus": 1, "ranks": "0", "nodelist": "n0"},
    ]  # fmt: skip


def test_nodes_are_printed_as_r(ask: Any) -> None:
    whole = json.loads(ask("R").output)
    free = json.loads(ask("R", "-s", "free").output)

    assert resource_set.nodelist(whole) == ["n0", "n1", "n2", "n3"]
    assert [(each.host, each.cores) for each in resource_set.decode_nodes(free)] == [
        ("n0", (1, 2, 3))
    ]


def test_who_looks_after_the_nodes_sees_what_keeps_them_back(ask: Any) -> None:
    assert cells(ask("status")) == [
        ["STATE", "UP", "NNODES", "NODELIST"],
        ["avail", "✔", "1", "n0"],
        ["drained", "✔", "1", "n3"],
        ["draining", "✔", "1", "n1"],
        ["offline", "✗", "1", "n2"],
    ]
    assert cells(ask("status", "-n", "-s", "drained,draining", "-o", "{ranks} {state}")) == [
        ["3", "drained"],
        ["1", "draining"],
    ]
    assert [each["name"] for each in json.loads(ask("status", "--json").output)["nodes"]] == [
        "n0", "n1", "n2", "n3",
    ]  # fmt: skip


def test_drained_nodes_are_listed_with_the_moment_and_the_reason(ask: Any) -> None:
    heading, first, second = ask("drain").output.splitlines()

    assert heading.split() == ["TIME", "STATE", "RANK", "REASON", "NODE"]
    assert re.fullmatch(r"[A-Z][a-z]{2}\d\d \d\d:\d\d +draining +1 +bad disk +n1", first)
    assert second.split()[2:] == ["drained", "3", "n3"]


def test_nodes_that_were_drained_together_share_a_row() -> None:
    drained = [
        node(0, "drained", since=1e9, reason="bad disk"),
        node(1, "draining", 4, since=1e9, reason="bad disk"),
        node(2, "drained", since=1e9, reason="bad disk"),
        node(3, "drained", since=2e9, reason="bad disk"),
    ]
    rows = drained_rows(drained, {"timestamp", "state", "reason", "nodelist"})

    assert [(row["timestamp"], row["state"], row["ranks"], row["nodelist"]) for row in rows] == [
        (1e9, "drained", "0,2", "n[0,2]"),
        (1e9, "draining", "1", "n1"),
        (2e9, "drained", "3", "n3"),
    ]
    assert [row["nodelist"] for row in drained_rows(drained, {"nodelist"})] == ["n[0-3]"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("list", "-q", "night"), "There is no queue 'night': name one of batch, quick"),
        (("list", "-i", "n9"), "There is no node n9 here"),
    ],
)
def test_what_is_not_there_is_not_listed(ask: Any, arguments: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserMistake, match=words):
        ask(*arguments, queues=QUEUES.items())


def test_a_state_that_is_none_is_refused_with_those_that_are(ask: Any) -> None:
    done = ask("list", "-s", "idle")
    assert done.exit_code == 2
    assert "'idle' is none of free, allocated, down, up, all" in done.output


def test_a_reason_is_not_both_kept_and_replaced() -> None:
    done = CliRunner().invoke(cli, ["resource", "drain", "-u", "-f", "n0"])

    assert done.exit_code == 2
    assert "give one of them" in done.output


@pytest.mark.parametrize("command", ["list", "info", "R", "status", "drain", "undrain", "eventlog"])
def test_every_command_on_nodes_has_help(command: str) -> None:
    done = CliRunner().invoke(cli, ["resource", command, "--help"])

    assert done.exit_code == 0
    assert "--statedir" in done.output
