"""The command line by itself, without a cluster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from warren.base.errors import UserMistake
from warren.cli.demo import _right_means
from warren.cli.jobspecs import make_jobspec
from warren.cli.main import cli


def test_help_loads_nothing_that_is_slow() -> None:
    script = (
        "import sys\nfrom warren.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "slow = {'aiohttp', 'asyncio', 'cryptography', 'msgspec', 'rich', 'structlog', 'yaml'}\n"
        "sys.exit(', '.join(sorted(slow & sys.modules.keys())))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert done.stderr.strip() == ""
    assert "workflows" in done.stdout


@pytest.mark.parametrize("command", ["up", "down", "demo", "submit", "run", "jobs", "cancel",
                                     "job", "resource", "queue", "config", "kvs", "workflows",
                                     "rabbits",
                                     "doctor"])  # fmt: skip
def test_every_command_has_help(command: str) -> None:
    done = CliRunner().invoke(cli, [command, "--help"])

    assert done.exit_code == 0
    assert "Usage:" in done.output


def test_nodes_alone_ask_for_whole_nodes_and_a_task_on_each() -> None:
    spec = make_jobspec(command=("true",), nodes=3)
    (node,) = spec["resources"]

    assert (node["type"], node["count"], node["exclusive"]) == ("node", 3, True)
    assert node["with"][0]["count"] == 1


def test_attributes_are_json_where_they_can_be_and_text_where_not() -> None:
    spec = make_jobspec(command=("true",), attributes=("a.b=3", "c=x y", "d", "system.e=[1]"))
    system = spec["attributes"]["system"]

    assert system["a"] == {"b": 3}
    assert system["c"] == "x y"
    assert system["d"] == 1
    assert system["e"] == [1]


def test_an_attribute_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "dw.json").write_text(json.dumps(["#DW one"]))
    spec = make_jobspec(command=("true",), attributes=(f"^dw={tmp_path}/dw.json",))

    assert spec["attributes"]["system"]["dw"] == ["#DW one"]


def test_an_attribute_on_the_command_line_goes_before_the_scripts_directives(
    tmp_path: Path,
) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#DW jobdw name=script\ntrue\n")
    script.chmod(0o755)
    own = make_jobspec(command=(str(script),))
    given = make_jobspec(command=(str(script),), attributes=("dw=#DW other",))

    assert own["attributes"]["system"]["dw"] == "#DW jobdw name=script"
    assert given["attributes"]["system"]["dw"] == "#DW other"


def test_directives_end_where_the_script_begins(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n\n# words\n#DW one\ntrue\n#DW two\n")
    script.chmod(0o755)

    assert make_jobspec(command=(str(script),))["attributes"]["system"]["dw"] == "#DW one"


def test_variables_of_the_author_are_filled_in_and_those_of_the_storage_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA", "/data")
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#DW copy_in source=${DATA}/x destination=$DW_JOB_a/\n")
    script.chmod(0o755)
    spec = make_jobspec(command=(str(script),))

    assert spec["attributes"]["system"]["dw"] == (
        "#DW copy_in source=/data/x destination=$DW_JOB_a/"
    )


@pytest.mark.parametrize(("limit", "seconds"), [(None, 0), ("5", 300), ("30s", 30), ("1.5h", 5400)])
def test_a_time_limit_without_a_unit_is_in_minutes(limit: str | None, seconds: float) -> None:
    spec = make_jobspec(command=("true",), time_limit=limit)

    assert spec["attributes"]["system"]["duration"] == seconds


def test_a_wrong_time_limit_is_refused() -> None:
    with pytest.raises(UserMistake, match="'soon' is not a duration"):
        make_jobspec(command=("true",), time_limit="soon")


@pytest.mark.parametrize(
    ("results", "wrong"),
    [
        ("a,2.00\nb,5.00\n", None),
        ("a,2.00\n", "the output has 1 stations, not 2"),
        ("a,2.00\nb,5.10\n", "the output is wrong for b: 5.1"),
    ],
)
def test_the_demo_checks_the_means_it_was_given(
    tmp_path: Path, results: str, wrong: str | None
) -> None:
    (tmp_path / "measurements.csv").write_text("a,1.0\na,3.0\nb,5.0\n")
    place = tmp_path / "results" / "rabbit-0-0"
    place.mkdir(parents=True)
    (place / "means.csv").write_text(results)

    assert _right_means(tmp_path) == wrong
