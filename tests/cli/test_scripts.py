"""What the author of a script is told when it is submitted."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from warren.base.errors import UserMistake
from warren.cli.job.scripts import script_directives
from warren.cli.main import cli

JOBDW = "#DW jobdw type=xfs capacity=1GiB name=s"


def dry_run(*words: str) -> tuple[dict[str, Any], str]:
    """Return the jobspec (the first, of several), and what is said on standard error."""
    done = CliRunner().invoke(cli, [words[0], "--dry-run", *words[1:]], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    spec = json.JSONDecoder().raw_decode(done.stdout)[0]
    return spec["attributes"]["system"], done.stderr


def script(place: Path, *lines: str) -> str:
    path = place / "job.sh"
    path.write_bytes("\n".join(["#!/bin/sh", *lines, ""]).encode())
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("command", [["submit"], ["run"], ["batch", "-n1"]])
def test_a_directive_of_two_lines_is_submitted_whole(tmp_path: Path, command: list[str]) -> None:
    job = script(tmp_path, "#DW jobdw type=xfs \\", "  capacity=1GiB name=s", "date")
    system, said = dry_run(*command, job)

    assert system["dw"] == JOBDW
    assert said == (
        f"warren: warning: {job}, line 3:\n  capacity=1GiB name=s\n  ^^^^^^^^^^^^^^^^^^^^\n"
        "This line belongs to the directive above it, and the script's interpreter reads it, too, "
        "as a command. Begin it with #DW.\n"
    )


def test_a_variable_with_a_space_cannot_be_part_of_a_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INPUT", "/in put")
    monkeypatch.setenv("MORE", "capacity=1GiB name=s")
    copy = "#DW copy_in source=$INPUT/a destination=$DW_JOB_s/"
    with pytest.raises(UserMistake) as refused:
        script_directives(copy)

    assert str(refused.value) == (
        f"the job is refused.\n{copy}\n                   ^^^^^^\n"
        "Your variable INPUT is '/in put', and a value ends at the first space. "
        "Use a path without spaces, such as that of a link."
    )
    assert script_directives("#DW jobdw type=xfs $MORE") == [JOBDW]


def test_copies_of_a_job_are_told_once(tmp_path: Path) -> None:
    job = script(tmp_path, "# DW jobdw type=xfs name=s")
    _, said = dry_run("submit", "--cc=0-2", job)

    assert said.count("warren: warning: ") == 1
    assert f"{job}, line 2:\n# DW jobdw type=xfs name=s\n^^^^\n" in said


def test_a_source_that_is_missing_where_its_author_looks_is_told(tmp_path: Path) -> None:
    missing = tmp_path / "input"
    copy = f"#DW copy_in source={missing} destination=$DW_JOB_s/"
    told = (
        f"warren: warning: what is to be copied in:\n{copy}\n"
        f"{' ' * len('#DW copy_in source=')}{'^' * len(str(missing))}\n"
        "There is no such file or directory now. "
        "The copy fails if there is none when the job starts.\n"
    )

    assert dry_run("submit", script(tmp_path, JOBDW, copy))[1] == told
    assert dry_run("submit", "-S", f"dw={JOBDW}\n{copy}", "true")[1] == told

    missing.mkdir()
    assert dry_run("submit", script(tmp_path, JOBDW, copy))[1] == ""


def test_an_option_that_no_shell_knows_is_told_and_kept() -> None:
    system, said = dry_run(
        "submit", "-onope=1", "-overbos", "-opty.interactive", "-ompi=none", "true"
    )

    assert system["shell"]["options"]["nope"] == 1
    assert said == (
        "warren: warning: -o nope: the job shell has no option of this name.\n"
        "warren: warning: -o verbos: the job shell has no option of this name. "
        "Did you mean 'verbose'?\n"
    )
    assert dry_run("batch", "-n1", "--wrap", "true")[1] == ""
    assert dry_run("run", "-N1", "-l", "-u", "--tasks-per-node=2", "--signal=TERM", "true")[1] == ""


def test_a_source_that_its_author_cannot_see_is_no_matter_of_his(tmp_path: Path) -> None:
    sources = ["/no-such-file-system/input", "$DW_JOB_s/a", "a", "/"]
    copies = [f"#DW copy_in source={source} destination=$DW_JOB_s/" for source in sources]

    assert dry_run("submit", script(tmp_path, JOBDW, *copies, "#DW copy_in", "#DW"))[1] == ""
