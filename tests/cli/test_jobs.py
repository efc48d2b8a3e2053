"""`warren jobs` and `warren cancel`, on an instance of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.cli.living import SOMEBODY, US, Cluster, cluster
from warren.base.accounts import user_name
from warren.cli.job.fields import FORMATS
from warren.cli.job.listing import use_color
from warren.instance import keys
from warren.instance.kvs import put
from warren.lifecycle.states import State
from warren.rfc import fluid


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


def ids(made: Cluster, *arguments: str) -> list[str]:
    done = made("jobs", "-n", "-o", "{id.f58}", *arguments)
    assert done.refusal == ""
    return done.lines


def test_jobs_are_laid_out_as_flux_lays_them_out(owned: Cluster) -> None:
    waits = owned.submit(1, name="a-rather-long-name")
    over = owned.give(owned.submit(2, name="quick"))
    done = owned("jobs", "-a")

    user = user_name(US)
    width = max(8, len(user))
    assert done.lines[0] == (
        f"       JOBID {'USER':<{width}} NAME       ST NTASKS NNODES     TIME INFO"
    )
    assert done.lines[1] == (f"{waits:>12} {user:<{width}} a-rather-+  S      1      -        -")
    assert done.lines[2].startswith(f"{over:>12} {user:<{width}} quick      CD      1      1 ")
    assert done.lines[2].endswith(" node0")


def test_our_active_jobs_are_listed_and_others_when_they_are_asked_for(owned: Cluster) -> None:
    others = owned.submit(1, SOMEBODY)
    ours = owned.submit(2)
    over = owned.give(owned.submit(3))

    assert ids(owned) == [ours]
    assert ids(owned, "-A") == [others, ours]
    assert ids(owned, "-a") == [ours, over]
    assert ids(owned, "-A", "-a", "-c", "2") == [others, ours]
    assert ids(owned, "-u", str(SOMEBODY)) == [others]
    assert ids(owned, "-u", "all") == [others, ours]
    assert ids(owned, "-u", user_name(US)) == [ours]
    assert owned("jobs", "-u", "no such user").refusal == "there is no user 'no such user'."


def test_jobs_are_chosen_by_state_result_name_queue_place_and_time(
    owned: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = owned.submit(1, name="one", attributes={"queue": "batch"})
    done = owned.give(owned.submit(2, name="two"))
    canceled = owned.submit(3)
    owned("cancel", canceled)
    owned.do(owned.life.until(fluid.parse(canceled)))

    assert ids(owned, "-f", "canceled") == [canceled]
    assert ids(owned, "-f", "completed,failed,sched") == [waits, done]
    assert ids(owned, "-f", "inactive") == [canceled, done]
    assert ids(owned, "-a", "--name", "two") == [done]
    assert ids(owned, "-a", "-q", "other,batch") == [waits]
    assert ids(owned, "-a", "-i", "node[0-3]") == [done]
    assert ids(owned, "-a", "-i", "0") == [done]
    ended = owned.life.job(fluid.parse(canceled)).times[State.INACTIVE]
    monkeypatch.setattr("warren.cli.job.listing.time", SimpleNamespace(time=lambda: ended + 7200))
    assert ids(owned, "--since", "-1h") == [waits]
    assert ids(owned, "--since", "3h ago") == [waits, canceled, done]
    assert ids(owned, canceled, waits) == [canceled, waits]


def test_rows_are_sorted_by_fields(owned: Cluster) -> None:
    made = [owned.submit(number, name=name) for number, name in enumerate("bca", 1)]

    assert ids(owned, "--sort", "name") == [made[2], made[0], made[1]]
    assert ids(owned, "--sort", "-name") == [made[1], made[0], made[2]]
    assert ids(owned, "-o", "sort:-id {id.f58}") == made[::-1]
    assert "no field 'colour' to sort by" in owned("jobs", "--sort", "colour").refusal


def test_notes_of_the_storage_are_fields(owned: Cluster) -> None:
    job = owned.submit(1)
    owned("job", "memo", job, 'rabbits="r[0-1]"', "a.b=5")
    done = owned("jobs", "-o", "{user.rabbits} {user.a.b} {user.none:>3h} {annotations.user}")

    assert done.lines == [
        "USER.RABBITS USER.A.B USER.NONE USER",
        'r[0-1] 5   - {"rabbits": "r[0-1]", "a": {"b": 5}}',
    ]


def test_every_format_with_a_name_can_be_used_and_is_told(owned: Cluster) -> None:
    owned.give(owned.submit(1))
    owned.submit(2)

    for name in FORMATS:
        done = owned("jobs", "-a", "-o", name)
        assert (done.refusal, len(done.lines)) == ("", 3)
    assert [line.split()[0] for line in owned("jobs", "-o", "help").lines[::2]] == list(FORMATS)
    assert "there is no format 'nice'" in owned("jobs", "-o", "nice").refusal
    assert owned("jobs", "-o", "{id} {colour}").refusal == (
        "format '{id} {colour}': there is no field 'colour', at 6"
    )


def test_a_job_that_is_damaged_is_shown_as_such_in_every_format(owned: Cluster) -> None:
    well, broken = (owned.give(owned.submit(number)) for number in (1, 2))
    key = keys.job_key(fluid.parse(broken), "jobspec")

    async def damage() -> None:
        await owned.life.kvs.commit([put(key, b"{")])

    owned.do(damage())
    for form in FORMATS:
        assert broken in owned("jobs", "-a", "-o", form).out
    first, second = owned("jobs", "-a", "-n", "-o", "{id.f58} {name} {contextual_info}").lines
    assert first.startswith(f"{broken}  damaged: the jobspec cannot be read: ")
    assert second == f"{well} app node0"
    shown = json.loads(owned("jobs", "--json", broken).out)["jobs"][0]
    assert shown["damage"].startswith("the jobspec cannot be read: ")
    assert shown["success"] is True


def test_jobs_that_are_over_have_the_color_of_their_results(owned: Cluster) -> None:
    waits, well, canceled = (owned.submit(number) for number in (1, 2, 3))
    owned.give(well)
    owned("cancel", canceled)
    plain = [waits, canceled, well]

    listed = ("jobs", "-a", "-o", "{id.f58}", "--sort=-id.dec")
    by_id = [f"\033[37m{canceled}\033[0m", f"\033[01;32m{well}\033[0m", waits]
    assert owned(*listed, "--color").lines == ["JOBID", *by_id]
    assert owned(*listed, "--color=always", "-n").lines == by_id
    for never in ((), ("--color=auto",), ("--color", "never")):
        assert sorted(owned(*listed, "-n", *never).lines) == sorted(plain)
    assert owned("jobs", "--color=blue").code == 2


@pytest.mark.parametrize(
    ("when", "terminal", "environment", "colors"),
    [
        (None, True, {}, True),
        (None, False, {}, False),
        (None, True, {"NO_COLOR": "1"}, False),
        (None, True, {"NO_COLOR": ""}, True),
        ("auto", True, {"NO_COLOR": "1"}, True),
        ("auto", False, {}, False),
        ("always", False, {"NO_COLOR": "1"}, True),
        ("never", True, {}, False),
    ],
)
def test_colors_are_for_terminals_unless_an_option_says_otherwise(
    when: str | None, terminal: bool, environment: dict[str, str], colors: bool
) -> None:
    assert use_color(when, terminal, environment) is colors


def test_attributes_are_printed_as_json(owned: Cluster) -> None:
    job = owned.give(owned.submit(1))
    found = json.loads(owned("jobs", "-a", "--json").out)["jobs"]

    (attributes,) = found
    assert attributes["id"] == fluid.parse(job)
    assert (attributes["state"], attributes["result"], attributes["success"]) == (64, 1, True)
    assert json.loads(owned("jobs", "--json").out) == {"jobs": []}


def test_jobs_are_counted_and_no_active_one_is_a_failure(owned: Cluster) -> None:
    job = owned.submit(1)
    first = owned("jobs", "--stats")
    assert first.lines[0] == "0 running, 0 completed, 0 failed, 1 pending"
    assert len(first.lines) == 3
    alone = owned("jobs", "--stats-only")
    assert (alone.code, alone.lines) == (0, first.lines[:1])

    owned.give(job)
    last = owned("jobs", "--stats-only")
    assert (last.code, last.lines) == (1, ["0 running, 1 completed, 0 failed, 0 pending"])


def test_a_job_that_is_not_there_is_told_after_those_that_are(owned: Cluster) -> None:
    job = owned.submit(1)
    done = owned("jobs", "-n", "-o", "{id.f58}", "f5", job)

    assert (done.code, done.lines, done.refusal) == (1, [job], "ƒ5: unknown job id")
    assert "'no!' is not a job id" in owned("jobs", "no!").refusal


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-f", "sleeping"), "'sleeping' is no state of a job"),
        (("-i", "n[0"), "is neither ranks nor hosts"),
        (("--since", "soon"), "'soon' is not a time"),
        (("--since", "2999-01-01"), "'2999-01-01' is in the future."),
    ],
)
def test_what_chooses_nothing_is_refused(
    owned: Cluster, arguments: tuple[str, str], told: str
) -> None:
    done = owned("jobs", *arguments)

    assert done.code == 1
    assert told in done.refusal


# Cancel


def test_jobs_are_canceled_by_their_ids(owned: Cluster) -> None:
    one, two = owned.submit(1), owned.submit(2)
    done = owned("cancel", "-m", "enough", one, two)

    assert (done.code, done.out) == (0, "")
    for job in (one, two):
        owned.do(owned.life.until(fluid.parse(job)))
        (problem,) = owned.life.job(fluid.parse(job)).exceptions
        assert (problem.type, problem.note) == ("cancel", "enough")
    again = owned("cancel", one, "f5")
    assert (again.code, again.refusal) == (1, f"{one}: job is inactive; f5: unknown job id")


def test_jobs_are_canceled_by_what_they_are(owned: Cluster) -> None:
    others = owned.submit(1, SOMEBODY)
    first, second = owned.submit(2), owned.submit(3)

    assert owned("cancel", "-n", "--all").out == "2 jobs would be canceled.\n"
    assert owned("cancel", "-n", "-S", "run").out == "0 jobs would be canceled.\n"
    assert owned("cancel", "-q", "-S", "run").out == ""
    assert ids(owned, "-A") == [others, first, second]
    assert owned("cancel", "-S", "sched,run").out == "2 jobs canceled.\n"
    for job in (first, second):
        owned.do(owned.life.until(fluid.parse(job)))
    assert ids(owned, "-A") == [others]
    told = json.loads(owned("cancel", "--user", "all", "--json").out)
    assert told == {"jobs": [others], "dry_run": False, "errors": []}


def test_it_is_said_either_which_jobs_or_what_kind_of_jobs(owned: Cluster) -> None:
    for arguments in ((), ("--all", "f1")):
        assert owned("cancel", *arguments).code == 2
    assert "inactive jobs are over" in owned("cancel", "-S", "inactive").refusal


def test_a_guest_sees_all_jobs_and_ends_its_own_alone(visited: Cluster) -> None:
    others, ours = visited.submit(1, SOMEBODY), visited.submit(2)

    assert ids(visited, "-A") == [others, ours]
    assert visited("cancel", others).refusal == f"{others}: the job is another user's"
    assert visited("cancel", "--all").out == "1 job canceled.\n"
    assert ids(visited, "-A") == [others]
