"""Long options that are cut short, wherever they may stand."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from warren.base.errors import UserMistake
from warren.cli.commandgroups import Group
from warren.cli.longoptions import expand_long_options
from warren.cli.main import cli


@click.command("cut")
@click.option("-n", "--ntasks", "tasks")
@click.option("--nodes")
@click.option("--no-header", "--suppress-header", is_flag=True)
@click.option("-x", "--exclusive", is_flag=True)
@click.option("-v", "--verbose", count=True)
@click.option("--wait", is_flag=True)
@click.option("--wait-event")
@click.option("--color", is_flag=False, flag_value="always")
@click.argument("words", nargs=-1)
def cut(**options: Any) -> None: ...


@pytest.mark.parametrize(
    ("given", "full"),
    [
        ("--nt 4", "--ntasks 4"),
        ("--nodes=2 --exc", "--nodes=2 --exclusive"),
        ("--supp a --no-h", "--suppress-header a --no-header"),
        ("--wait", "--wait"),
        ("--wait-e start", "--wait-event start"),
        ("--nt --nod 4", "--ntasks --nod 4"),
        ("-n --nod --exc", "-n --nod --exclusive"),
        ("-n4 --exc", "-n4 --exclusive"),
        ("-xvn --nod --exc", "-xvn --nod --exclusive"),
        ("-xn4 --exc", "-xn4 --exclusive"),
        ("- --exc", "- --exclusive"),
        ("--col --exc", "--color --exclusive"),
        ("--col never --exc", "--color never --exclusive"),
        ("--nt 4 -- --exc", "--ntasks 4 -- --exc"),
        ("--no-such=1 -q --nt", "--no-such=1 -q --ntasks"),
        ("--hel", "--help"),
        ("--nt", "--ntasks"),
    ],
)
def test_options_are_spelled_out_and_their_values_left_alone(given: str, full: str) -> None:
    assert expand_long_options(cut, click.Context(cut), given.split()) == full.split()


def test_what_several_options_begin_with_is_refused_with_them() -> None:
    with pytest.raises(click.UsageError, match="--no may be --no-header, --nodes: write more"):
        expand_long_options(cut, click.Context(cut), ["--no", "4"])


def groups(group: click.Group, ctx: click.Context) -> Iterator[click.Group]:
    """Return a group and those below it."""
    yield group
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from groups(command, ctx)


def test_there_is_no_group_whose_commands_do_not_take_them() -> None:
    found = list(groups(cli, click.Context(cli)))

    assert len(found) > 6
    assert [group.name for group in found if not isinstance(group, Group)] == []


def printed(*words: str) -> Any:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_every_command_takes_options_that_are_cut_short(tmp_path: Path) -> None:
    assert printed("submit", "--dry", "--time=5", "app", "--dry", "--t")["tasks"][0]["command"] == [
        "app", "--dry", "--t",
    ]  # fmt: skip
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n#FLUX: --nod=3 --job-n=mine\n")
    spec = printed("batch", "--dry", str(script))
    assert spec["resources"][0]["count"] == 3
    assert spec["attributes"]["system"]["job"] == {"name": "mine"}
    for command in (["jobs"], ["job", "id"], ["resource", "list"], ["kvs", "namespace", "list"]):
        done = CliRunner().invoke(cli, [*command, "--hel"])
        assert done.output.startswith("Usage: "), command
    assert CliRunner().invoke(cli, ["--vers"]).output.startswith("warren")
    assert CliRunner().invoke(cli, ["resource", "--hel"]).exit_code == 0


def test_an_abbreviation_in_a_script_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n#FLUX: -N1\n#FLUX: --e=1\n")
    done = CliRunner().invoke(cli, ["batch", "--dry-run", str(script)])

    assert isinstance(done.exception, UserMistake)
    assert f"{script}, line 3: --e may be --env, --env-remove, --error, --exclusive" in str(
        done.exception
    )
