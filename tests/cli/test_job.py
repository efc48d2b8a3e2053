"""`warren job`: what each of its commands prints, refuses and exits with."""

import errno
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.cli.living import SOMEBODY, US, Cluster, cluster
from tests.harness.virtual import EPOCH
from tests.instance.lives import PLAIN
from warren.cli.job.group import _COMMANDS
from warren.instance import keys
from warren.instance.kvs import put
from warren.rfc import eventlog, fluid, signed_request, taskmap
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request, RpcError


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that is ours."""
    with cluster(tmp_path) as made:
        yield made


@pytest.fixture
def visited(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster that is somebody else's."""
    with cluster(tmp_path, owner=SOMEBODY) as made:
        yield made


class Clock:
    @staticmethod
    def time() -> float:
        return EPOCH + 1000


class Asked:
    """A method of the job manager that remembers what it was asked."""

    def __init__(self, *answers: Payload | RpcError) -> None:
        self.requests: list[Payload] = []
        self._answers = list(answers)

    async def __call__(self, request: Request) -> Payload:
        self.requests.append(request.payload)
        answer = self._answers.pop(0) if self._answers else {}
        if isinstance(answer, RpcError):
            raise answer
        return answer


def store(made: Cluster, id_: str, **values: Any) -> None:
    """Put values into a job's directory; underscores are dots."""
    operations = [
        put(keys.job_key(fluid.parse(id_), key.replace("_", ".")), orjson.dumps(value))
        for key, value in values.items()
    ]
    made.do(commit(made, operations))


async def commit(made: Cluster, operations: list[Any]) -> None:
    await made.life.kvs.commit(operations)


def log(made: Cluster, id_: str, path: str, *events: Event) -> None:
    text = "".join(map(eventlog.encode, events)).encode()
    made.do(commit(made, [put(keys.job_key(fluid.parse(id_), path), text)]))


@pytest.mark.parametrize("command", list(_COMMANDS))
def test_every_command_has_help_without_a_cluster(command: str) -> None:
    from click.testing import CliRunner

    from warren.cli.main import cli

    done = CliRunner().invoke(cli, ["job", command, "--help"])
    short = _COMMANDS[command][2]
    assert done.exit_code == 0
    assert "Usage:" in done.output
    assert short in CliRunner().invoke(cli, ["job", "--help"], terminal_width=200).output


# Ids


def test_ids_are_spelled_in_every_way_and_read_in_every_way(owned: Cluster) -> None:
    done = owned("job", "id", "--to", "dec", "ƒuZZybuNNy", "0x17e9fb8df16c2e", "fuZZybuNNy")
    assert done.lines == ["6731191091817518"] * 3
    assert owned("job", "id", stdin="6731191091817518\n1\n").lines == ["ƒuZZybuNNy", "ƒ2"]
    assert owned("job", "id", "--to", "kvs", "--json", "1").out == '["job.0000.0000.0000.0001"]\n'
    assert owned("job", "namespace", "ƒ2").lines == ["job-1"]


# Records


def test_a_jobspec_is_printed_as_it_is_now_as_it_was_and_as_it_was_signed(owned: Cluster) -> None:
    job = owned.submit(1)
    signed = signed_request.wrap(b'{"signed": true}', US)
    owned.do(commit(owned, [put(keys.job_key(fluid.parse(job), "J"), signed.encode())]))
    first = owned("job", "info", "-b", job, "jobspec").out
    log_ = eventlog.encode(Event(1.0, "jobspec-update", {"attributes.system.duration": 90.0}))
    known = owned.life.kvs.lookup(keys.job_key(fluid.parse(job), "eventlog")).decode()
    owned.do(
        commit(owned, [put(keys.job_key(fluid.parse(job), "eventlog"), (known + log_).encode())])
    )

    now = json.loads(owned("job", "info", job, "jobspec").out)
    assert now["attributes"]["system"]["duration"] == 90.0
    assert owned("job", "info", "-b", job, "jobspec").out == first
    assert json.loads(owned("job", "info", "-o", job, "jobspec").out) == {"signed": True}
    told = json.loads(owned("job", "info", "--json", job, "jobspec").out)
    assert told == {"id": job, "jobspec": now}
    assert owned("job", "info", "-o", job, "R").code == 2
    assert owned("job", "info", "-o", "-b", job, "jobspec").code == 2


def test_a_record_is_printed_without_control_characters(owned: Cluster) -> None:
    """A job's tasks write some of its records, and admins read them."""
    job = owned.submit(1)
    written = {"guest.text": "one\x1b[2J\ntwo\x9b31m", "guest.json": '{"a": "\x9b31m"}'}
    for key, text in written.items():
        owned.do(commit(owned, [put(keys.job_key(fluid.parse(job), key), text.encode())]))

    assert owned("job", "info", job, "guest.text").out == "one\\u001b[2J\ntwo\\u009b31m\n"
    assert json.loads(owned("job", "info", job, "guest.json").out) == {"a": "\x9b31m"}


def test_what_a_dry_run_prints_is_submitted_as_it_is(owned: Cluster, tmp_path: Path) -> None:
    printed = owned("submit", "--dry-run", "--job-name=mine", "-t5", "app", "{{id}}").out
    asked = Asked(*({"id": number << 24} for number in range(1, 5)))
    owned.life.bus.unregister("job-ingest")
    owned.life.bus.register("job-ingest", {"submit": Method(asked, guest=True)})
    file = tmp_path / "spec.json"
    file.write_text(printed)

    assert owned("job", "submit", stdin=printed).lines == [fluid.f58(JobId(1 << 24))]
    assert owned("job", "submit", "-u", "hold", "-fwaitable,debug", str(file)).code == 0
    done = owned("job", "submit", "--json", "-", stdin=printed)
    assert json.loads(done.out) == {"id": fluid.f58(JobId(3 << 24))}
    token = asked.requests[0]["J"]
    assert owned("job", "submit", "--flags=signed", stdin=f"{token}\n").code == 0
    for request in asked.requests:
        signed = signed_request.unwrap(request["J"], mechanisms=signed_request.MECHANISMS)
        assert signed.userid == US
        assert json.loads(signed.payload) == json.loads(printed)
    assert [(each["urgency"], each["flags"]) for each in asked.requests] == [
        (16, 0), (0, 6), (16, 0), (16, 0),
    ]  # fmt: skip


def test_the_more_verbose_a_run_is_the_more_is_told(owned: Cluster) -> None:
    job = owned.give(owned.submit(1))
    log(owned, job, "guest.exec.eventlog", Event(EPOCH, "init"), Event(EPOCH, "done"))
    asked = Asked(*[{"id": fluid.parse(job)}] * 4)
    owned.life.bus.unregister("job-ingest")
    owned.life.bus.register("job-ingest", {"submit": Method(asked, guest=True)})
    id_, events, shells = f"jobid: {job}", "0.000s: job.submit ", "s: exec.init"

    told = [owned("run", *verbose, "app") for verbose in ([], ["-v"], ["-vv"], ["-vvv"])]
    assert [done.code for done in told] == [0] * 4
    assert [
        [words in done.refusal for words in (id_, events, shells)] for done in told
    ] == [
        [False, False, False], [True, False, False], [True, True, False], [True, True, True],
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "\xff", "{} {}"])
def test_what_is_no_jobspec_is_not_submitted(owned: Cluster, text: str) -> None:
    refusal = owned("job", "submit", stdin=text).refusal

    assert refusal.startswith("standard input: the jobspec is not JSON: ")
    assert "the job is refused: " in owned("job", "submit", stdin="[]").refusal
    assert "the job is refused: " in owned("job", "submit", "-fsigned", stdin=text).refusal
    assert owned("job", "submit", "/no/where").refusal == "/no/where: No such file or directory."


def test_a_key_that_cannot_be_read_is_refused_in_a_sentence(visited: Cluster) -> None:
    others, ours = visited.submit(1, SOMEBODY), visited.submit(2)
    store(visited, ours, data_trace={"a": 1})

    assert visited("job", "info", ours, "data.trace").out == '{"a":1}\n'
    assert visited("job", "info", ours, "R").refusal == f"{ours} R: the job has no R"
    assert visited("job", "info", ours, "data").refusal == (
        f"{ours} data: data is a directory; it holds trace"
    )
    assert visited("job", "info", others, "jobspec").refusal == (
        f"{others} jobspec: the job is another user's"
    )
    assert visited("job", "info", "f5", "R").refusal == "f5 R: unknown job id"


# Eventlogs


def test_an_eventlog_is_printed_as_text_as_json_and_while_it_grows(owned: Cluster) -> None:
    job = owned.give(owned.submit(1))
    lines = owned("job", "eventlog", job).lines
    text = owned.life.kvs.lookup(keys.job_key(fluid.parse(job), "eventlog")).decode()

    assert [line.split()[1] for line in lines] == PLAIN
    assert lines[0].endswith(f"submit userid={US} urgency=16 flags=0 version=1")
    assert owned("job", "eventlog", "-F", job).lines == lines
    assert owned("job", "eventlog", "--json", job).out == text
    assert owned("job", "eventlog", "-f", "json", job).out == text
    assert (
        owned("job", "eventlog", "-H", job).lines
        == owned("job", "eventlog", "-T", "human", job).lines
    )
    assert owned("job", "eventlog", "-p", "guest.x", job).refusal == (
        f"{job} guest.x: the job has no guest.x"
    )


def test_an_event_is_waited_for_and_printed(owned: Cluster) -> None:
    job = owned.give(owned.submit(1))
    begun = [Event(1.0, "init"), Event(2.0, "shell.init", {"size": 3})]
    log(owned, job, "guest.exec.eventlog", *begun, Event(3.0, "done"))
    wait = ("job", "wait-event", "-T", "offset")

    (line,) = owned(*wait, job, "submit").lines
    assert line.startswith("0.000000 submit ")
    assert owned(*wait, "-q", job, "start").out == ""
    assert [line.split()[1] for line in owned(*wait, "-v", job, "priority").lines] == PLAIN[:4]
    guest = ("-p", "guest.exec.eventlog")
    assert (
        owned(*wait, *guest, "-m", "size=3", job, "shell.init").out
        == "1.000000 shell.init size=3\n"
    )
    assert owned(*wait, "--json", *guest, job, "init").out == '{"timestamp":1.0,"name":"init"}\n'

    never = f"{job}: the event 'x' has not come, and will not."
    assert owned(*wait, job, "x").refusal == never
    assert owned(*wait, *guest, "-m", "size=4", job, "shell.init").code == 1
    assert owned(*wait, "-c", "2", job, "start").code == 1
    assert owned(*wait, *guest, job, "x").refusal == never
    assert owned(*wait, "-m", "size", job, "x").refusal == "'size' is not of the form KEY=VAL."
    assert owned(*wait, "f5", "x").refusal == "f5 eventlog: unknown job id"


def test_an_event_is_waited_for_no_longer_than_one_has_time(owned: Cluster) -> None:
    job = owned.submit(1)
    done = owned("job", "wait-event", "-t", "10ms", job, "start")

    assert done.refusal == f"{job}: the event 'start' has not come within 10ms."
    assert "is not a duration" in owned("job", "wait-event", "-t", "soon", job, "start").refusal


@pytest.mark.parametrize("waitcreate", [(), ("-W",), ("--waitcreate",)])
def test_a_log_that_is_not_there_yet_is_waited_for(
    owned: Cluster, waitcreate: tuple[str, ...]
) -> None:
    job = owned.submit(1)
    wait = ("job", "wait-event", *waitcreate, "-p", "exec")

    assert owned(*wait, "-t", "0.01s", job, "init").refusal.endswith("has not come within 0.01s.")
    log(owned, job, "guest.exec.eventlog", Event(1.0, "init"))
    assert owned(*wait, job, "init").lines == ["1.000000 init"]


def test_events_may_be_counted(owned: Cluster) -> None:
    job = owned.submit(1)
    for number in range(3):
        owned("job", "memo", job, f"n={number}")
    wait = ("job", "wait-event", "-c", "2", job, "memo")

    assert owned(*wait).out.endswith("memo n=1\n")


# Lists


def test_jobs_are_listed_one_object_a_line(owned: Cluster) -> None:
    others, ours = owned.submit(1, SOMEBODY), owned.submit(2)
    over = owned.give(owned.submit(3))

    def listed(*arguments: str) -> list[str]:
        return [fluid.f58(json.loads(line)["id"]) for line in owned("job", *arguments).lines]

    assert listed("list") == [ours]
    assert listed("list", "-a") == [ours, over]
    assert listed("list", "-A") == [others, ours]
    assert listed("list", "-u", str(SOMEBODY)) == [others]
    assert listed("list", "-s", "inactive") == [over]
    assert listed("list", "-a", "-c", "1") == [ours]
    assert listed("list-ids", over, ours) == [over, ours]
    (line,) = owned("job", "list-ids", "-W", "inactive", over).lines
    assert json.loads(line)["success"] is True
    assert owned("job", "list-ids", "f5").refusal == "f5: unknown job id"
    assert "is several states: name one" in owned("job", "list-ids", "-W", "active", over).refusal
    assert json.loads(owned("job", "stats").out)["job_states"]["total"] == 3
    for command in (("list", "-a"), ("list-ids", over), ("stats",)):
        assert owned("job", *command, "--json").out == owned("job", *command).out


def test_the_jobs_that_were_submitted_last_are_told_whether_they_are_over_or_not(
    owned: Cluster,
) -> None:
    assert owned("job", "last").refusal == "you have submitted no such job."
    one = owned.give(owned.submit(1))
    two = owned.submit(2)
    owned.submit(9, SOMEBODY)
    three = owned.give(owned.submit(3))
    owned.give(two)

    assert owned("job", "last").lines == [three]
    assert owned("job", "last", "2").lines == [three, two]
    assert owned("job", "last", "[:]").lines == [three, two, one]
    assert owned("job", "last", "[1:2]").lines == [two]
    assert owned("job", "last", "[::-1]").lines == [one, two, three]
    assert owned("job", "last", "[-1:]").lines == [one]
    assert json.loads(owned("job", "last", "--json").out) == [three]
    assert "is neither a number nor a slice" in owned("job", "last", "x").refusal


# Ends


def test_the_exit_code_of_jobs_is_the_greatest_of_theirs(owned: Cluster) -> None:
    good = owned.give(owned.submit(1))
    dead, canceled = owned.submit(2), owned.submit(3)
    owned("cancel", "-m", "enough", canceled)
    killed = owned.submit(4)

    async def kill() -> None:
        owned.life.execution._seconds = 100
        await owned.life.scheduler.give(fluid.parse(killed))
        await owned.life.until(fluid.parse(killed), "start")
        owned.life.execution.kill(fluid.parse(killed), 9)

    owned.do(kill())

    assert owned("job", "status", good).code == 0
    assert owned("job", "status", canceled).code == 1
    assert owned("job", "status", "-e", "7", canceled, good).code == 7
    assert owned("job", "status", killed).code == 128 + 9
    assert owned("job", "status", good, canceled, killed).code == 137
    (line,) = owned("job", "status", "--json", canceled).lines
    told = json.loads(line)
    assert (told["exit_code"], told["exception_type"], told["exception_note"]) == (
        1, "cancel", "enough",
    )  # fmt: skip
    assert owned("job", "status", "-v", good).refusal == f"{good}: exit code 0\n"
    assert owned("job", "status", good, "f5").refusal == "f5: unknown job id"
    assert dead in owned("jobs", "-n").out


def test_waitable_jobs_are_waited_for_once(owned: Cluster) -> None:
    nobody = RpcError(errno.ECHILD, "there is no job to wait for")
    bad = {"id": 1 << 24, "success": False, "errstr": "it was canceled"}
    good = {"id": 2 << 24, "success": True, "errstr": ""}
    one, two = fluid.f58(1 << 24), fluid.f58(2 << 24)

    def waited(*arguments: str, answers: list[Payload | RpcError]) -> tuple[int, str, str]:
        fake = Asked(*answers)
        owned.serve(wait=fake)
        done = owned("job", "wait", *arguments)
        job = fluid.parse(arguments[-1]) if arguments and arguments[-1][0] == "ƒ" else -1
        assert all(request == {"id": job} for request in fake.requests)
        return done.code, done.out, done.refusal

    assert waited(two, answers=[good]) == (0, "", "")
    assert waited("-v", two, answers=[good]) == (0, "", f"{two}: the job has succeeded\n")
    assert waited(one, answers=[bad]) == (1, "", f"warren: {one}: it was canceled\n")
    assert waited(one, answers=[nobody]) == (2, "", f"warren: {one}: {nobody}\n")
    assert waited(answers=[good]) == (0, f"{two}\n", "")
    assert waited(answers=[nobody]) == (2, "", f"warren: {nobody}\n")
    assert waited("--all", answers=[good, nobody]) == (0, f"{two}\n", "")
    code, out, _ = waited("--all", answers=[bad, good, nobody])
    assert (code, out) == (1, f"{one}\n{two}\n")
    assert owned("job", "wait", "--all", one).code == 2


# Changes


def test_exceptions_are_raised_with_their_type_severity_and_note(owned: Cluster) -> None:
    job = owned.submit(1)
    assert owned("job", "raise", "-s", "5", "-t", "odd", job, "two", "words").code == 0
    assert owned("job", "raise", "-s", "6", "-m", "a note", job).code == 0

    problems = owned.life.job(fluid.parse(job)).exceptions
    assert [(each.type, each.severity, each.note) for each in problems] == [
        ("odd", 5, "two words"),
        ("cancel", 6, "a note"),
    ]
    told = owned("job", "raise", "--json", job, "f5")
    assert json.loads(told.out) == {"jobs": [job, "ƒ5"], "errors": ["f5: unknown job id"]}
    assert told.code == 1
    assert owned("job", "raise", "-m", "one", job, "another").code == 2
    assert owned("job", "raise", "-s", "8", job).code == 2
    assert "'no!' is not a job id" in owned("job", "raise", "no!").refusal


def test_signals_go_by_name_and_number_to_running_jobs(tmp_path: Path) -> None:
    with cluster(tmp_path, seconds=100) as made:
        job = made.give(made.submit(1), until="start")
        waits = made.submit(2)
        assert made("job", "kill", "-s", "usr1", job).code == 0

        assert made.life.execution.signals == [(fluid.parse(job), 10)]
        made.do(made.life.until(fluid.parse(job)))
        assert made("job", "kill", waits).refusal == f"{waits}: job is not running"
        assert made("job", "kill", "-s", "TERMINATE", waits).refusal == (
            "there is no signal 'TERMINATE': write SIGTERM, TERM or 15."
        )


@pytest.mark.parametrize(
    ("text", "urgency"), [("hold", 0), ("default", 16), ("expedite", 31), ("20", 20)]
)
def test_an_urgency_has_a_number_or_a_name(owned: Cluster, text: str, urgency: int) -> None:
    fake = Asked()
    owned.serve(urgency=fake)
    job = owned.submit(1)

    assert owned("job", "urgency", "-v", job, text).out == "the urgency was 16\n"
    assert fake.requests == [{"id": fluid.parse(job), "urgency": urgency}]
    assert owned("job", "urgency", job, "32").refusal.startswith("'32' is not an urgency")


def test_a_refusal_of_the_job_manager_is_told_with_the_job_that_it_is_about(owned: Cluster) -> None:
    job = owned.submit(1)
    owned.serve(urgency=Asked(RpcError(errno.EPERM, "only the owner gives more than 16")))

    told = owned("job", "urgency", job, "31")
    assert told.refusal == f"{job}: only the owner gives more than 16"


def test_memos_are_json_where_they_can_be_and_lead_into_objects(owned: Cluster) -> None:
    job = owned.submit(1)
    fake = Asked()
    owned.serve(memo=fake)
    owned("job", "memo", job, "a=5", "b.c=text", 'b.d=["x"]', "e=null", "f=")
    owned("job", "memo", "--volatile", job, "a=1")

    memo = {"a": 5, "b": {"c": "text", "d": ["x"]}, "e": None, "f": ""}
    assert fake.requests == [
        {"id": fluid.parse(job), "memo": memo, "volatile": False},
        {"id": fluid.parse(job), "memo": {"a": 1}, "volatile": True},
    ]
    for wrong in ("a", "=5", "a..b=5"):
        assert owned("job", "memo", job, wrong).refusal == f"{wrong!r} is not of the form KEY=VAL."
    assert "is a value already" in owned("job", "memo", job, "a=5", "a.b=5").refusal


@pytest.mark.parametrize(
    ("pairs", "updates"),
    [
        (("queue=batch",), {"attributes.system.queue": "batch"}),
        (("attributes.user.x=5",), {"attributes.user.x": 5}),
        (("name=new", "bank=b"),
         {"attributes.system.job.name": "new", "attributes.system.bank": "b"}),
        (("duration=1m",), {"attributes.system.duration": 60.0}),
        (("duration=90",), {"attributes.system.duration": 90.0}),
        (("duration=+1m",), {"attributes.system.duration": 160.0}),
        (("duration=infinity",), {"attributes.system.duration": 0.0}),
        (("duration=+inf",), {"attributes.system.duration": 0.0}),
        (("attributes.system.duration=-10",), {"attributes.system.duration": 90.0}),
    ],
)  # fmt: skip
def test_attributes_are_updated_by_their_paths(
    owned: Cluster, pairs: tuple[str, ...], updates: Mapping[str, Any]
) -> None:
    fake = Asked()
    owned.serve(update=fake)
    job = owned.submit(1, duration=100.0)

    dry = owned("job", "update", "-n", job, *pairs)
    assert (json.loads(dry.out), fake.requests) == (updates, [])
    assert owned("job", "update", job, *pairs).out == ""
    assert fake.requests == [{"id": fluid.parse(job), "updates": updates}]
    assert len(owned("job", "update", "-v", job, *pairs).lines) == len(pairs)


def test_a_duration_cannot_be_changed_to_nothing_or_from_nothing(owned: Cluster) -> None:
    short, endless = owned.submit(1, duration=100.0), owned.submit(2)

    assert owned("job", "update", short, "duration=-2m").refusal == (
        f"{short}: the time limit is 1.66667m, and -2m leaves none: give less."
    )
    assert owned("job", "update", endless, "duration=+1m").refusal == (
        f"{endless}: the job has no time limit that +1m could change."
    )
    assert "is not a duration" in owned("job", "update", short, "duration=soon").refusal


def test_jobs_are_purged_only_by_force(owned: Cluster) -> None:
    owned.give(owned.submit(1))
    fake = Asked(*[{"count": 3}] * 3)
    owned.serve(purge=fake)

    assert owned("job", "purge", "--age-limit", "1d").out == (
        "use --force to purge 3 of 1 inactive jobs\n"
    )
    assert owned("job", "purge", "-f", "--num-limit", "5", "--batch", "9").out == (
        "purged 3 inactive jobs, 1 remaining\n"
    )
    assert fake.requests == [
        {"age_limit": 86400.0, "batch": 50, "force": False},
        {"num_limit": 5, "batch": 9, "force": True},
    ]
    assert owned("job", "purge", "-f").code == 2


def test_jobs_are_purged_by_their_ids_and_the_others_are_told(owned: Cluster) -> None:
    over, active = owned.submit(1), owned.submit(2)
    owned.give(over)
    refused = RpcError(errno.EINVAL, "the job is active: cancel it first")
    fake = Asked({}, {}, refused)
    owned.serve(**{"purge-id": fake})

    assert owned("job", "purge", over).out == "use --force to purge 1 of 1 inactive jobs\n"
    both = owned("job", "purge", "-f", over, active)
    assert both.out == "purged 1 inactive jobs, 1 remaining\n"
    assert both.refusal == f"{active}: the job is active: cancel it first"
    assert fake.requests == [
        {"id": fluid.parse(over), "force": False},
        {"id": fluid.parse(over), "force": True},
        {"id": fluid.parse(active), "force": True},
    ]
    assert owned("job", "purge", over, "--num-limit", "5").code == 2


# Questions


def test_the_time_that_is_left_is_told_in_whole_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warren.cli.job.read.time", Clock)
    monkeypatch.delenv("FLUX_JOB_ID", raising=False)
    with cluster(tmp_path, seconds=100) as made:
        waits = made.submit(1)
        assert made("job", "timeleft", waits).refusal == f"{waits}: the job has not started yet."
        runs = made.give(waits, until="start")
        assert made("job", "timeleft", runs).out == "4294967295\n"
        assert made("job", "timeleft", "-H", runs).out == "infinity\n"

        entry: Any = made.life.manager.find(fluid.parse(runs))
        entry.r = {**entry.r, "execution": {**entry.r["execution"], "expiration": EPOCH + 1090.9}}
        made.life.scheduler.given[fluid.parse(runs)] = entry.r
        assert made("job", "timeleft", runs).out == "90\n"
        assert made("job", "timeleft", "-H", runs).out == "1.5m\n"
        assert json.loads(made("job", "timeleft", "--json", runs).out) == {
            "id": runs,
            "timeleft": 90,
        }
        assert "FLUX_JOB_ID is not set" in made("job", "timeleft").refusal
        monkeypatch.setenv("FLUX_JOB_ID", runs)
        assert made("job", "timeleft").out == "90\n"
        made("cancel", runs)
        made.do(made.life.until(fluid.parse(runs)))
        assert made("job", "timeleft", runs).out == "0\n"


def test_a_taskmap_answers_questions(owned: Cluster) -> None:
    job = owned.give(owned.submit(1))
    blocks = taskmap.wrap([[0, 2, 2, 1]])
    log(owned, job, "guest.exec.eventlog", Event(1.0, "init"),
        Event(2.0, "shell.start", {"taskmap": blocks}), Event(3.0, "done"))  # fmt: skip
    maps = (job, "[[0,2,2,1]]", '{"version":1,"map":[[0,2,2,1]]}', "0-1;2-3", "(vector,(0,2,2))")

    for what in maps:

        def ask(*options: str, what: str = what) -> str:
            return owned("job", "taskmap", *options, what).out.strip()

        assert json.loads(ask()) == blocks
        assert ask("--to", "raw") == "0-1;2-3"
        assert ask("--to", "pmi") == "(vector,(0,2,2))"
        assert ask("--to", "multiline") == "0: 0\n1: 0\n2: 1\n3: 1"
        assert ask("--taskids", "1") == "2-3"
        assert ask("--ntasks", "0") == "2"
        assert ask("--nodeid", "3") == "1"
        assert json.loads(ask("--json", "--nodeid", "3")) == {"taskmap": 1}
    assert owned("job", "taskmap", "--hostname", "1", job).out == "node0\n"
    assert owned("job", "taskmap", "--taskids", "2", job).refusal == (
        "there is no node 2: the tasks have 2."
    )
    assert owned("job", "taskmap", "--nodeid", "4", job).refusal == "taskmap: there is no task 4"
    assert owned("job", "taskmap", "--nodeid", "4", "--to", "raw", job).code == 2
    assert "is not JSON" in owned("job", "taskmap", "[[0,").refusal


def test_a_job_that_never_started_has_no_taskmap(owned: Cluster) -> None:
    job = owned.submit(1)
    owned("cancel", job)

    assert owned("job", "taskmap", job).refusal == (
        f"{job}: the job has no tasks, and will have none."
    )
