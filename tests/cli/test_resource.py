"""What `warren resource` makes of the answer of the instance."""

import re
from typing import Any

import pytest
from click.testing import CliRunner

from warren.cli.main import cli
from warren.cli.resource import drained_rows, scheduled


def node(rank: int, state: str, allocated: int = 0, **drain: Any) -> dict[str, Any]:
    told = {"rank": rank, "name": f"n{rank}", "state": state, "cores": 4, "allocated": allocated}
    return {**told, **drain}


def test_the_scheduler_sees_drained_nodes_as_down_and_what_jobs_have_as_allocated() -> None:
    nodes = [
        node(0, "free"),
        node(1, "allocated", 4),
        node(2, "drained"),
        node(3, "draining", 2),
    ]
    rows = [tuple(row.values()) for row in scheduled(nodes)]

    assert rows == [
        ("free", 1, 4, "n0"),
        ("allocated", 2, 6, "n[1,3]"),
        ("down", 2, 8, "n[2-3]"),
    ]


def test_a_node_of_which_a_job_has_a_part_is_both_free_and_allocated() -> None:
    rows = [tuple(row.values()) for row in scheduled([node(0, "allocated", 1)])]

    assert rows == [("free", 1, 3, "n0"), ("allocated", 1, 1, "n0"), ("down", 0, 0, "")]


def test_nodes_that_were_drained_together_share_a_row() -> None:
    rows = drained_rows(
        [
            node(0, "drained", since=1e9, reason="bad disk"),
            node(1, "draining", 4, since=1e9, reason="bad disk"),
            node(2, "drained", since=1e9, reason="bad disk"),
            node(3, "drained", since=2e9, reason="bad disk"),
        ]
    )

    assert [row[1:] for row in rows] == [
        ("drained", "0,2", "bad disk", "n[0,2]"),
        ("draining", "1", "bad disk", "n1"),
        ("drained", "3", "bad disk", "n3"),
    ]
    assert all(re.fullmatch(r"[A-Z][a-z]{2}\d\d \d\d:\d\d", row[0]) for row in rows)


def test_a_reason_is_not_both_kept_and_replaced() -> None:
    done = CliRunner().invoke(cli, ["resource", "drain", "-u", "-f", "n0"])

    assert done.exit_code == 2
    assert "give one of them" in done.output


@pytest.mark.parametrize("command", ["list", "status", "drain", "undrain"])
def test_every_command_on_nodes_has_help(command: str) -> None:
    done = CliRunner().invoke(cli, ["resource", command, "--help"])

    assert done.exit_code == 0
    assert "--json" in done.output
    assert "--statedir" in done.output
