"""What the commands share: finding the instance, and how job ids are spelled for people."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.living import cluster
from tests.rpc.flux import broker_in_a_thread
from warren.base.errors import UserMistake, WarrenError
from warren.cli.cluster.doctor import print_findings
from warren.cli.common import f58, print_table
from warren.cli.job.read import log_path
from warren.cli.main import cli

PLAIN, UNICODE = "fuZZybuNNy", "ƒuZZybuNNy"


@pytest.mark.parametrize(
    ("environment", "spelled"),
    [
        ({}, UNICODE),
        ({"LANG": "C.UTF-8"}, UNICODE),
        ({"LANG": "en_US.utf8"}, UNICODE),
        ({"LANG": "C"}, PLAIN),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, UNICODE),
        ({"LC_ALL": "en_US.ISO-8859-1", "LC_CTYPE": "C.UTF-8"}, PLAIN),
        ({"LANG": "C.UTF-8", "PYTHONIOENCODING": "ascii"}, PLAIN),
        ({"LANG": "C", "PYTHONIOENCODING": "utf-8:replace"}, UNICODE),
        ({"LANG": "C", "PYTHONIOENCODING": ":replace"}, PLAIN),
        ({"LANG": "C.UTF-8", "FLUX_F58_FORCE_ASCII": "1"}, PLAIN),
    ],
)
def test_ids_have_no_letter_that_the_locale_lacks(
    environment: dict[str, str], spelled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LC_ALL", "LC_CTYPE", "LANG", "FLUX_F58_FORCE_ASCII", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert f58(6731191091817518) == spelled


@pytest.mark.parametrize("uri", ["/wrong", "local:/wrong", "local://", "local://x", "ssh://a/b"])
@pytest.mark.parametrize("command", [["cancel", "f5"], ["submit", "true"], ["kvs", "get", "a"]])
def test_an_instance_that_cannot_be_reached_as_it_is_named_is_not_passed_over(
    uri: str, command: list[str], tmp_path: Path
) -> None:
    environment = {"FLUX_URI": uri, "WARREN_STATEDIR": str(tmp_path)}
    done = CliRunner().invoke(cli, command, env=environment)

    assert isinstance(done.exception, UserMistake)
    assert str(done.exception).startswith(f"FLUX_URI is {uri!r}, not local:// and the path of")


def test_an_instance_is_found_where_it_is_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with cluster(tmp_path / "a") as named, cluster(tmp_path / "b") as other:
        job = named.submit(1)
        place = {"FLUX_URI": f"local://{named.state.socket}"}
        listed = ["jobs", "-n", "-o", "{id.f58}"]

        def ids(*more: str, **environment: str) -> list[str]:
            statedir = {"WARREN_STATEDIR": str(other.state.path)}
            done = CliRunner().invoke(cli, [*listed, *more], env={**statedir, **environment})
            return done.stdout.split()

        assert ids(**place) == [job]
        assert ids() == ids(FLUX_URI="") == []
        assert ids("--statedir", str(other.state.path), FLUX_URI="/wrong") == []


@pytest.mark.parametrize("command", [["jobs"], ["cancel", "f5"], ["submit", "true"]], ids=" ".join)
def test_a_flux_broker_at_the_socket_is_named_in_one_sentence(
    command: list[str], tmp_path: Path
) -> None:
    """FLUX_URI is set in each job of a real Flux instance, too."""
    path = tmp_path / "local-0"
    environment = {"FLUX_URI": f"local://{path}", "WARREN_STATEDIR": str(tmp_path)}
    with broker_in_a_thread(path):
        done = CliRunner().invoke(cli, command, env=environment)

    assert isinstance(done.exception, WarrenError)
    assert f"the socket {path} is a Flux broker's" in str(done.exception)
    assert done.stdout == ""


def test_logs_are_named_in_short_or_in_full() -> None:
    assert log_path("exec") == log_path("guest.exec.eventlog") == "guest.exec.eventlog"
    assert (log_path("output"), log_path("input")) == ("guest.output", "guest.input")


def test_a_table_shows_escaped_what_a_terminal_would_obey(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(["NAME", "AGE"], [["\x1b[31mred\n", 5], [None, 10]], right_aligned="AGE")

    assert capsys.readouterr().out.splitlines() == [
        "NAME           AGE",
        r"\x1b[31mred\n    5",
        "                10",
    ]


def test_what_processes_call_themselves_does_nothing_to_an_admins_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    why = "\x1b]0;me\x07 of someone keeps a volume, which is to go"
    found = {"kind": "process", "where": "rabbit-0", "name": "7", "why": why}
    print_findings([found], ["rabbit-0: \x1b[2J"], repair=True, command="warren doctor")

    told = capsys.readouterr()
    assert told.out.startswith(r"rabbit-0: process 7: \x1b]0;me\x07 of someone keeps")
    assert told.err == "warren: rabbit-0: \\x1b[2J\n"


def test_what_a_command_uses_logs_nothing_into_its_output() -> None:
    program = """
from warren.base import log
from warren.cli.common import run

async def work() -> None:
    log.debug("a connection ends")
    log.error("something is broken")

run(work())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "something is broken" in ended.stderr
    assert "a connection ends" not in ended.stderr
