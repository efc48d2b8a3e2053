"""`warren check`: what is wrong with a script's directives, without a cluster."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from warren.cli.main import cli
from warren.directives.parse import split
from warren.directives.script import locate_directives, read

JOBDW = "#DW jobdw type=xfs capacity=1GiB name=scratch"
NOT_CHECKED = (
    "Not checked, since no cluster was asked: global file systems, profiles, persistent storage, "
    "and what its rabbits make."
)


def check(*words: str, script: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["check", *words], input=script, catch_exceptions=False)


def told(script: str) -> list[dict[str, Any]]:
    """Return what is said of a script, as programs read it."""
    found: list[dict[str, Any]] = json.loads(check("--json", "-", script=script).stdout)
    return found


def under_carets(script: str) -> list[str]:
    """Return the words of the script that each mistake is about."""
    lines = script.splitlines()
    return [lines[each["line"] - 1][each["column"] - 1 : each["end"] - 1] for each in told(script)]


def test_a_good_script_passes_and_what_was_not_checked_is_said(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\n{JOBDW}\ndate\n")
    done = check(str(script))

    assert done.exit_code == 0
    assert done.stdout == f"{script}: 1 directive, no mistakes.\n{NOT_CHECKED}\n"


def test_each_mistake_has_its_line_carets_and_sentence() -> None:
    done = check("-", script=f"#!/bin/sh\n{JOBDW.replace('xfs', 'zfs')} \\\n#\t nam=A\ndate\n")

    assert done.exit_code == 1
    assert done.stdout == (
        "standard input, line 2:\n"
        "#DW jobdw type=zfs capacity=1GiB name=scratch \\\n"
        "               ^^^\n"
        "Unknown type 'zfs': it is one of raw, xfs, ext4, gfs2 or lustre. Did you mean 'xfs'?\n\n"
        "standard input, line 3:\n"
        "#\t nam=A\n"
        " \t ^^^\n"
        "Unknown argument 'nam' for jobdw: it takes type, capacity, name, profile or requires. "
        "Did you mean 'name'?\n\n"
        f"standard input: 1 directive, 2 mistakes.\n{NOT_CHECKED}\n"
    )


@pytest.mark.parametrize(
    ("script", "places"),
    [
        (f"{JOBDW.replace('GiB', 'gib')}  #DW\tjobdw type=zfs name=ab capacity=1",
         ["1gib", "zfs", "1"]),
        ("#DW jobdw type=xfs \\\n  capacity=x \\\n#DW  name=y\n", ["capacity=x \\", "x", "y"]),
        ("#DW\n#DW jobdw\\\n", ["#DW", "jobdw", "jobdw", "jobdw"]),
        (f"{JOBDW}\n#dw jobdw type=a b=c\n", ["#dw"]),
        ("#DW jobdw name=$W2_NAMED capacity=$W2_NO type=xfs", ["name=$W2_NAMED", "$W2_NO"]),
        ("#DW jobdw $W2_ALL type=xfs", ["$W2_ALL", "$W2_ALL"]),
    ],
)  # fmt: skip
def test_a_mistake_is_found_in_the_scripts_own_line(
    script: str, places: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("W2_NAMED", "Bad_Name_of_more_letters")
    monkeypatch.setenv("W2_ALL", "capacity=1 name=B")

    assert under_carets(script) == places


@pytest.mark.parametrize(
    ("capacity", "suggestion"),
    [
        ("1.5TiB", "Try 1536GiB."),
        ("1tb", "Try 1TB."),
        ("100gib", "Try 100GiB."),
        ("100", "Try 100GiB."),
        ("1PiB", "Try 1024TiB."),
        ("1EiB", None),
        ("0GiB", "Try 100GiB."),
        ("9" * 30 + "TiB", None),
        ("", None),
    ],
)
def test_each_wrong_capacity_has_its_answer(capacity: str, suggestion: str | None) -> None:
    (found,) = told(JOBDW.replace("1GiB", capacity))
    assert (found["suggestion"], found["severity"]) == (suggestion, "error")


def test_a_remark_is_a_warning_and_no_failure() -> None:
    done = check("--json", "-", script=f"{JOBDW}\ndate\n{JOBDW}\n")

    assert done.exit_code == 0
    assert [(each["severity"], each["line"]) for each in json.loads(done.stdout)] == [
        ("warning", 3)
    ]


def test_no_directives_are_no_mistake() -> None:
    done = check("-", script="date\n")
    assert done.exit_code == 0
    assert done.stdout == "standard input: it has no #DW directives.\n"


def test_the_example_takes_the_variable_that_it_says_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    example = Path(__file__).parents[2] / "examples" / "station-means.sh"
    (setting,) = re.findall(r"`export (\w+)=(\S+)`", example.read_text())
    monkeypatch.delenv(setting[0], raising=False)
    assert "Your environment has no variable GLOBAL." in check(str(example)).stdout

    monkeypatch.setenv(*setting)
    assert check(str(example)).stdout.startswith(f"{example}: 3 directives, no mistakes.\n")


def test_rules_of_a_site_are_what_counts(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "kind: DWDirectiveRule\nmetadata: {name: site}\n"
        "spec: [{command: mine, ruleDefs: [{key: a, type: integer, isValueRequired: true}]}]\n"
    )
    assert check("--rules", str(rules), "-", script="#DW mine a=1").exit_code == 0
    assert check("--rules", str(rules), "-", script="#DW mine a=x").exit_code == 1
    assert check("--rules", str(rules), "-", script=JOBDW).exit_code == 1


@pytest.mark.parametrize(
    "words",
    [
        ["/no/such/script"],
        [],
        ["--rules", "/no/such/rules", "-"],
        ["--rules", "/etc/passwd", "-"],
        ["--rules", "/dev/null", "-"],
        ["--context", "here", "-"],
    ],
)
def test_what_cannot_be_read_is_a_wrong_command_line(words: list[str]) -> None:
    done = CliRunner().invoke(cli, ["check", *words], input=JOBDW)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


lines = st.one_of(
    st.text("#DW \\a=\t", max_size=12).map("#DW {}".format), st.text("#DW \\a=\t\r", max_size=12)
)


@given(st.lists(lines, max_size=5).map("\n".join))
def test_words_with_places_are_the_directives_that_are_submitted(text: str) -> None:
    script = read(text)
    directives = locate_directives(script.words)
    shown = [line.removesuffix("\r") for line in text.split("\n")]

    assert [each.text for each in directives] == list(split("\n".join(script.directives)))
    for word in script.words:
        assert shown[word.line - 1][word.column :].startswith(word.text)
