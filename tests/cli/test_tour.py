"""What the tour of `warren demo` tries."""

import asyncio
import io
import re
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from warren.base.errors import UserMistake
from warren.cli.cluster.tour import CASES, Tour, refusals, run_program
from warren.daemons.clusterobjects import manifests
from warren.daemons.statedir import StateDir
from warren.directives.parse import parse
from warren.dws import kinds
from warren.kube.client import Client


def test_the_tour_tries_every_command_and_every_type_that_the_rules_know() -> None:
    (rule,) = (obj for obj in manifests("rules.yaml") if obj["kind"] == kinds.DIRECTIVE_RULE.name)
    tried = [parse(each) for case in CASES for each in case.directives]

    assert {each.command.text for each in tried} == {each["command"] for each in rule["spec"]}
    (pattern,) = {
        definition["pattern"]
        for command in rule["spec"]
        for definition in command["ruleDefs"]
        if definition["key"] == "^type$"
    }
    types = set(re.findall(r"\w+", pattern))
    assert {each.values["type"] for each in tried if each.command.text == "jobdw"} == types


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("the job is refused.\n#DW a b=c\n      ^\nNo b.", ["No b."]),
        ("the job is refused.\n#DW a\n    ^\nNo a.\n\n#DW bb\n    ^^\nNo bb.", ["No a.", "No bb."]),
        ("the job is refused: there is no room.", []),
        ("#DW a\n^^^ not\nNo a.", []),
        ("#DW a\n\nNo a.", []),
        ("#DW a\n   ^", []),
    ],
)  # fmt: skip
def test_a_refusal_of_directives_is_told_from_any_other(text: str, reasons: list[str]) -> None:
    assert refusals(UserMistake(text)) == reasons


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["echo out", "echo note >&2"], None),
        (["echo first >&2", "echo 'no umoci' >&2", "exit 1"], "no umoci"),
        (["yes long | head -n 50000 >&2", "echo last >&2", "exit 1"], "last"),
        (["exit 3"], "build has ended with status 3"),
    ],
)
def test_why_an_example_was_not_made_is_said(
    lines: list[str], said: str | None, tmp_path: Path
) -> None:
    assert asyncio.run(run_program(script(tmp_path / "build", *lines))) == said


def test_an_example_that_is_never_made_is_given_up(tmp_path: Path) -> None:
    build = script(tmp_path / "build", "sleep 600 & echo $! > " + str(tmp_path / "pid"), "wait")
    said = asyncio.run(run_program(build, seconds=0.5))
    assert said == "it has not ended within 0.5 s"


def test_a_tour_shows_why_its_example_was_not_made(tmp_path: Path) -> None:
    shown = io.StringIO()
    (tmp_path / "it").mkdir()
    script(tmp_path / "it" / "build", "echo 'no [umoci]' >&2; exit 1")
    tour = Tour(Console(file=shown, width=200), StateDir(tmp_path), 1, tmp_path,
                containers=tmp_path)  # fmt: skip
    asyncio.run(tour._offer_example(cast(Client, None), "it"))
    assert shown.getvalue().strip() == "the image of the example was not made: no [umoci]"
