"""What `warren queue` and `warren config` ask of an instance, and what they make of its answers."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from click.testing import CliRunner

from tests.harness import virtual
from tests.instance.lives import Life, alive
from warren.base.errors import UserMistake
from warren.cli import config as config_commands
from warren.cli import queue as queue_commands
from warren.cli.main import cli
from warren.cli.queue import QueueConfig, queue_rows
from warren.daemons.statedir import StateDir
from warren.instance import config
from warren.instance.config import Config
from warren.journal import MemoryJournal
from warren.rpc.message import Handle, RpcError

SITE = config.parse(
    """
    [policy.jobspec.defaults.system]
    queue = "batch"
    duration = "1h"
    [queues.batch]
    policy.limits = { duration = "8h", job-size = { max.nnodes = 8, min.nnodes = 2 } }
    [queues.short]
    parent = "batch"
    """
)
OPEN = {"enable": True, "start": True}


class Terminal:
    """A terminal beside an instance. The instance is started again for each command."""

    def __init__(self, site: Config) -> None:
        self.site = site
        self.journal = MemoryJournal()

    def live(self, work: Callable[[Life], Awaitable[Any]]) -> Any:
        """Do something with the instance, in virtual time."""

        async def lived() -> Any:
            async with alive(self.journal, config=self.site, seconds=60) as life:
                return await work(life)

        try:
            return virtual.run(lived())
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    def ask(self, _state: StateDir, work: Callable[[Handle], Awaitable[Any]]) -> Any:
        return self.live(lambda life: work(life.bus.handle()))

    def type(self, line: str) -> str:
        """Return what a command prints. Raises what it is refused with."""
        done = CliRunner().invoke(cli, line.split(), catch_exceptions=False, standalone_mode=False)
        return done.output


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[Config], Terminal]:
    def made(site: Config) -> Terminal:
        found = Terminal(site)
        monkeypatch.setattr(queue_commands, "ask_instance", found.ask)
        monkeypatch.setattr(config_commands, "ask_instance", found.ask)
        return found

    return made


Made = Callable[[Config], Terminal]


# Looking


def test_queues_are_listed_with_what_holds_in_them() -> None:
    told = QueueConfig(SITE.policy, SITE.queues)
    batch, short = queue_rows(told, {"batch": OPEN, "short": {**OPEN, "parent": "batch"}})

    assert batch == {
        "queue": "batch",
        "default": True,
        **OPEN,
        "timelimit": {"default": 3600.0, "max": 28800.0},
        "nnodes": {"min": 2, "max": 8},
        "ncores": {"min": 0, "max": None},
        "ngpus": {"min": 0, "max": None},
    }
    assert (short["parent"], short["default"]) == ("batch", False)
    assert short["nnodes"] == {"min": 2, "max": 8}


def test_a_list_has_a_column_for_what_some_queue_has(terminal: Made) -> None:
    named = terminal(SITE).type("queue list").splitlines()
    alone = terminal(Config()).type("queue list").splitlines()

    assert named[0].split() == [
        *["QUEUE", "PARENT", "EN", "ST"],
        *["TDEFAULT", "TLIMIT", "NNODES", "NCORES", "NGPUS"],
    ]
    assert named[1].split() == ["batch*", "✔", "✗", "1h", "8h", "2-8", "0-inf", "0-inf"]
    assert named[2].split() == ["short", "batch", "✔", "✗", "1h", "8h", "2-8", "0-inf", "0-inf"]
    assert alone[0].split()[:2] == ["EN", "ST"]
    assert alone[1].split() == ["✔", "✔", "inf", "inf", "0-inf", "0-inf", "0-inf"]


def test_some_queues_are_listed_alone(terminal: Made) -> None:
    flux = terminal(SITE)
    told = json.loads(flux.type("queue list -q short --json"))

    assert [row["queue"] for row in told["queues"]] == ["short"]
    with pytest.raises(UserMistake, match="There is no queue 'x': name one of batch, short"):
        flux.type("queue list -q short,x")


def test_a_queue_that_waits_for_its_parent_is_paused(terminal: Made) -> None:
    flux = terminal(SITE)

    assert flux.type("queue start short") == (
        "short: Scheduling is stopped (parent batch): it was never started\n"
    )
    assert "⏸" in flux.type("queue list -q short")


# Changing


def test_the_queue_without_a_name_is_changed_without_naming_it(terminal: Made) -> None:
    flux = terminal(Config())

    assert flux.type("queue status") == "Job submission is enabled\nScheduling is started\n"
    assert flux.type("queue disable") == ("Job submission is disabled: disabled by administrator\n")
    assert flux.type("queue stop --message repair") == "Scheduling is stopped: repair\n"
    assert flux.type("queue status") == (
        "Job submission is disabled: disabled by administrator\nScheduling is stopped: repair\n"
    )
    assert flux.type("queue enable --quiet") == ""
    assert flux.type("queue start") == "Scheduling is started\n"
    assert flux.type("queue status") == "Job submission is enabled\nScheduling is started\n"


def test_named_queues_are_changed_one_by_one_or_all_at_once(terminal: Made) -> None:
    flux = terminal(SITE)

    with pytest.raises(RpcError, match="name one of batch, short, or say all of them"):
        flux.type("queue start")
    assert flux.type("queue start -a") == (
        "batch: Scheduling is started\nshort: Scheduling is started\n"
    )
    assert flux.type("queue disable -m moving -q short") == (
        "short: Job submission is disabled: moving\n"
    )
    with pytest.raises(RpcError, match="There is no queue 'x'"):
        flux.type("queue stop x")


def test_a_stop_may_be_for_this_life_only(terminal: Made) -> None:
    flux = terminal(Config())

    assert flux.type("queue stop --nocheckpoint") == "Scheduling is stopped\n"
    assert "Scheduling is started" in flux.type("queue status")


def test_what_waits_and_runs_is_told_to_those_who_want_to_know(terminal: Made) -> None:
    flux = terminal(SITE)
    flux.live(lambda life: life.submit(nodes=2, tasks=2))

    assert flux.type("queue status -v").splitlines()[-3:] == [
        "1 alloc requests queued",
        "0 alloc requests pending to scheduler",
        "0 running jobs",
    ]
    told = json.loads(flux.type("queue status -v --json"))
    assert told["queue_length"] == 1
    assert [row["queue"] for row in told["queues"]] == ["batch", "short"]


# Waiting


def test_idle_says_how_many_jobs_are_left(terminal: Made) -> None:
    flux = terminal(SITE)
    assert flux.type("queue idle --quiet") == ""
    assert flux.type("queue idle") == "0 jobs\n"
    flux.live(lambda life: life.submit(nodes=2, tasks=2))

    assert flux.type("queue idle --quiet") == "1 job\n"
    assert json.loads(flux.type("queue idle --json")) == {"pending": 1}


def test_drain_waits_for_jobs_but_not_for_ever(terminal: Made) -> None:
    flux = terminal(SITE)
    flux.live(lambda life: life.submit(nodes=2, tasks=2))

    with pytest.raises(UserMistake, match="drain: the timeout has expired"):
        flux.type("queue drain --timeout 1h")
    flux.type("queue start -a")
    assert flux.type("queue drain --timeout 1h") == ""


def test_a_person_is_told_what_there_is_to_wait_for(
    terminal: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_commands, "_is_interactive", lambda: True)
    flux = terminal(Config())
    flux.live(lambda life: life.submit())
    done = CliRunner().invoke(cli, ["queue", "drain"], standalone_mode=False)

    assert done.stderr.splitlines()[0] == "waiting: 1 job runs, 0 are ready to"
    assert done.stdout == ""


def test_a_time_that_is_none_is_a_mistake_in_the_command_line() -> None:
    done = CliRunner().invoke(cli, ["queue", "drain", "--timeout", "soon"])

    assert done.exit_code == 2
    assert "'soon' is not a duration" in done.output


# The configuration


def test_the_configuration_is_printed_whole_or_in_part(terminal: Made) -> None:
    flux = terminal(SITE)

    assert json.loads(flux.type("config get"))["queues"]["short"] == {"parent": "batch"}
    assert json.loads(flux.type("config get policy.jobspec.defaults.system.queue")) == "batch"
    with pytest.raises(UserMistake, match=r"queues\.batch\.hosts is not configured"):
        flux.type("config get queues.batch.hosts")
    with pytest.raises(UserMistake, match="is not configured"):
        flux.type("config get policy.jobspec.defaults.system.queue.x")


@pytest.mark.parametrize("command", ["list", "status", "enable", "disable", "start", "stop",
                                     "drain", "idle"])  # fmt: skip
def test_every_command_on_queues_has_help(command: str) -> None:
    done = CliRunner().invoke(cli, ["queue", command, "--help"])

    assert done.exit_code == 0
    assert "--json" in done.output
    assert "--statedir" in done.output
