"""The command line by itself, without a cluster."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner
from rich.console import Console

from warren.base.errors import UserMistake
from warren.cli.cluster.demo import (
    _draw_timeline,
    _not_started_message,
    _sign,
    _station_means_mistake,
)
from warren.cli.cluster.timeline import Step, Timeline
from warren.cli.cluster.up import _size_text
from warren.cli.job.specs import make_jobspec
from warren.cli.main import cli
from warren.daemons.clustershape import ClusterShape


def test_help_loads_nothing_that_is_slow() -> None:
    script = (
        "import sys\nfrom warren.cli.main import cli\n"
        "cli(['--help'], standalone_mode=False)\n"
        "slow = {'aiohttp', 'asyncio', 'cryptography', 'msgspec', 'rich', 'yaml'}\n"
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


@pytest.mark.parametrize("limit", ["infinity", "inf", "9" * 400])
def test_a_time_limit_without_end_is_none_in_a_jobspec_that_is_json(limit: str) -> None:
    done = CliRunner().invoke(cli, ["submit", "--dry-run", "-t", limit, "true"])

    spec = orjson.loads(done.stdout)  # which takes no Infinity, as Python's own would
    assert spec["attributes"]["system"]["duration"] == 0


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

    assert _station_means_mistake(tmp_path) == wrong


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["submit", "--dry-run", "true"]])
def test_output_that_cannot_be_written_is_a_sentence(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "warren", *words], stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert done.stderr == "warren: the output cannot be written: No space left on device.\n"
    assert done.returncode == 1


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["submit", "--dry-run", "true"]])
def test_a_command_without_an_output_says_nothing(words: list[str]) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "warren", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "words", [["--help"], ["job", "--help"], ["submit", "--dry-run", "--cc=0-99", "true"]]
)
def test_a_command_whose_reader_has_gone_ends_as_others_do(words: list[str]) -> None:
    """As of `warren jobs | head -1`, whose exit status says that nothing went wrong with it."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "warren", *words]
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)

    assert (done.returncode, done.stderr) == (141, "")


def test_what_is_left_to_be_written_at_the_end_is_no_exception_either() -> None:
    script = (
        "import sys\nfrom warren.cli import main\n"
        "main.cli.main = lambda **_: sys.stdout.write('unwritten') and 0\n"
        "main.main()\n"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", script], stdout=full, stderr=subprocess.PIPE, text=True
        )

    assert done.stderr == "warren: the output cannot be written: No space left on device.\n"


def test_a_letter_that_the_output_lacks_is_written_in_another_way() -> None:
    script = (
        "import sys\nfrom warren.cli import main\n"
        "main.cli.main = lambda **_: sys.stdout.write('\u2713') and 0\n"
        "main.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
    )

    assert (done.stdout, done.stderr) == ("\\u2713", "")


def test_the_demo_has_words_for_signs_that_the_output_lacks() -> None:
    for encoding, mark in (("utf-8", "✓"), ("ascii", "ok:")):
        console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        assert _sign(console, "✓", "ok:") == mark


def test_a_demo_whose_cluster_does_not_start_says_why_or_where_to_look() -> None:
    log = Path("/d/logs/control.log")

    assert _not_started_message("warren: no room.\n", log) == "the cluster did not start. no room."
    assert _not_started_message("\n", log) == (
        "the cluster did not start, and has not said why. With --keep its log stays, "
        "/d/logs/control.log."
    )


@pytest.mark.parametrize(
    ("rabbits", "computes", "size"),
    [
        (1, 1, "1 rabbit of 144 GiB, 1 compute node"),
        (2, 4, "2 rabbits of 144 GiB, 8 compute nodes"),
    ],
)
def test_a_cluster_says_how_large_it_is(rabbits: int, computes: int, size: str) -> None:
    assert _size_text(ClusterShape(rabbits=rabbits, computes_per_rabbit=computes)) == size


def test_a_timeline_is_drawn_with_a_dash_that_the_output_has() -> None:
    timeline = Timeline(
        submitted_at=10.0,
        ended_at=16.0,
        steps={"tasks": Step(name="tasks", began=12.0, ended=13.0)},
    )

    assert list(_draw_timeline(timeline, "-")) == [
        f"  tasks     [cyan]{' ' * 20 + '-' * 10:<61}[/cyan]   1.000 s",
        f"  in all    {'':<61}   6.000 s",
    ]
