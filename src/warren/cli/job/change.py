"""The commands of `warren job` that change jobs."""

import json
import signal
from collections.abc import Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Final

import click

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, f58, json_option, print_json, statedir_option
from warren.cli.job.cancel import raise_exceptions
from warren.cli.job.read import call
from warren.daemons.statedir import StateDir
from warren.rfc import duration, fluid
from warren.rfc.errors import BadFormat

if TYPE_CHECKING:
    from warren.rpc.message import Handle

_URGENCIES: Final[Mapping[str, int]] = {"hold": 0, "default": 16, "expedite": 31}
_JOBSPEC_PREFIXES: Final = ("attributes.", "tasks.", "resources.")
_ALIASES: Final[Mapping[str, str]] = {"name": "attributes.system.job.name"}
_DURATION: Final = "attributes.system.duration"


@click.command("raise")
@statedir_option
@json_option
@click.option("-t", "--type", "type_", default="cancel", metavar="TYPE", show_default=True,
              help="The kind of exception.")  # fmt: skip
@click.option("-s", "--severity", type=click.IntRange(0, 7), default=0, show_default=True,
              metavar="N",
              help="The severity: 0 ends the job, 7 is the least.")  # fmt: skip
@click.option("-m", "--message", metavar="NOTE", help="A note for the job's record.")
@click.argument("words", nargs=-1, required=True, metavar="JOBID... [NOTE...]")
def job_raise(
    statedir: StateDir,
    as_json: bool,
    type_: str,
    severity: int,
    message: str | None,
    words: tuple[str, ...],
) -> None:
    """Raise an exception on jobs. The words after the ids say why, unless -m does."""
    jobs, note = _jobs_and_note(words)
    if note and message is not None:
        raise click.UsageError(f"say why by -m, or by words, not by both: {note!r}.")
    exception = {"type": type_, "severity": severity, "note": message or note}

    spelled_ids = dict(zip(jobs, words, strict=False))
    failures = ask_instance(
        statedir, lambda handle: raise_exceptions(handle, jobs, exception, spelled_ids)
    )
    _report(jobs, failures, as_json)


def _jobs_and_note(words: Sequence[str]) -> tuple[list[int], str]:
    """Part ids from the words after them: the first that is no id begins the note."""
    jobs = [int(fluid.parse(words[0]))]
    for index, word in enumerate(words[1:], 1):
        try:
            jobs.append(fluid.parse(word))
        except BadFormat:
            return jobs, " ".join(words[index:])
    return jobs, ""


@click.command("kill")
@statedir_option
@json_option
@click.option("-s", "--signal", "name", default="SIGTERM", metavar="SIG", show_default=True,
              help="The signal, by name or number.")  # fmt: skip
@click.argument("ids", nargs=-1, required=True, metavar="JOBID...")
def job_kill(statedir: StateDir, as_json: bool, name: str, ids: tuple[str, ...]) -> None:
    """Send a signal to the tasks of running jobs."""
    signum = _parse_signal(name)
    spelled_id_by_job = {int(fluid.parse(each)): each for each in ids}

    async def kill_jobs(handle: "Handle") -> list[str]:
        from warren.rpc.message import RpcError

        failures = []
        for each, spelled_id in spelled_id_by_job.items():
            try:
                await handle.rpc("job-manager.kill", {"id": each, "signum": signum})
            except RpcError as error:
                failures.append(f"{spelled_id}: {error}")
        return failures

    _report(list(spelled_id_by_job), ask_instance(statedir, kill_jobs), as_json)


def _parse_signal(name: str) -> int:
    if name.isdecimal():
        return int(name)
    word = name.upper()
    member = signal.Signals.__members__.get(word if word.startswith("SIG") else f"SIG{word}")
    if member is None:
        raise UserMistake(f"there is no signal {name!r}: write SIGTERM, TERM or 15.")
    return int(member)


def _report(jobs: Sequence[int], failures: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json({"jobs": [f58(each) for each in jobs], "errors": list(failures)})
    if failures:
        raise UserMistake("; ".join(failures))


@click.command("urgency")
@statedir_option
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Print the urgency that it had before.")
@click.argument("id_", metavar="JOBID")
@click.argument("urgency", metavar="N|hold|default|expedite")
def job_urgency(statedir: StateDir, as_json: bool, verbose: bool, id_: str, urgency: str) -> None:
    """Set the urgency of a job: 0 holds it, 16 is the default, 31 starts it before all others.

    Only the instance's owner can set more than 16.
    """
    job, new_urgency = fluid.parse(id_), _parse_urgency(urgency)

    async def change_urgency(handle: "Handle") -> Any:
        request = {"id": job, "attrs": ["urgency"]}
        old_urgency = (await call(handle, "job-list.list-id", request, id_))["job"]["urgency"]
        await call(handle, "job-manager.urgency", {"id": job, "urgency": new_urgency}, id_)
        return old_urgency

    old_urgency = ask_instance(statedir, change_urgency)
    if as_json:
        print_json({"id": f58(job), "urgency": new_urgency, "before": old_urgency})
    elif verbose:
        click.echo(f"the urgency was {old_urgency}")


def _parse_urgency(text: str) -> int:
    if text in _URGENCIES:
        return _URGENCIES[text]
    if text.isdecimal() and int(text) <= 31:
        return int(text)
    raise UserMistake(f"{text!r} is not an urgency: write 0 to 31, {', '.join(_URGENCIES)}.")


@click.command("memo")
@statedir_option
@json_option
@click.option("--volatile", is_flag=True, help="Keep it in memory alone; a restart forgets it.")
@click.argument("id_", metavar="JOBID")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VAL...")
def job_memo(
    statedir: StateDir, as_json: bool, volatile: bool, id_: str, pairs: tuple[str, ...]
) -> None:
    """Set notes of a job, where 'warren jobs -o "{user.KEY}"' shows them.

    A VAL is JSON where it can be, and text where not; null removes the note. Dots in a KEY
    lead into objects.
    """
    job = fluid.parse(id_)
    memo: dict[str, Any] = {}
    for pair in pairs:
        _put_at_path(memo, *_parse_pair(pair))
    request = {"id": job, "memo": memo, "volatile": volatile}
    ask_instance(statedir, lambda handle: call(handle, "job-manager.memo", request, id_))
    if as_json:
        print_json({"id": f58(job), "memo": memo})


def _parse_pair(text: str) -> tuple[str, Any]:
    """Read KEY=VAL."""
    key, equals, value = text.partition("=")
    if not equals or not all(key.split(".")):
        raise UserMistake(f"{text!r} is not of the form KEY=VAL.")
    try:
        return key, json.loads(value)
    except (ValueError, RecursionError):
        return key, value


def _put_at_path(target: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        target = target.setdefault(parent, {})
        if not isinstance(target, dict):
            raise UserMistake(f"{key}: {parent} is a value already, and has nothing below it.")
    target[last] = value


@click.command("update")
@statedir_option
@json_option
@click.option("-n", "--dry-run", is_flag=True, help="Change nothing; print the updates as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Print what was changed.")
@click.argument("id_", metavar="JOBID")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VAL...")
def job_update(
    statedir: StateDir,
    as_json: bool,
    dry_run: bool,
    verbose: bool,
    id_: str,
    pairs: tuple[str, ...],
) -> None:
    """Change attributes of a job: all of them, or none if one is refused.

    A KEY is a path in the jobspec, below attributes.system unless it says otherwise; name is
    the job's name. duration is a DURATION, or +DURATION or -DURATION to change it by.
    """
    job = fluid.parse(id_)
    updates = dict(_parse_update(*_parse_pair(pair), pair) for pair in pairs)

    async def change_job(handle: "Handle") -> None:
        duration_text = updates.get(_DURATION)
        if isinstance(duration_text, str):
            updates[_DURATION] = await _new_duration(handle, job, id_, duration_text)
        if not dry_run:
            await call(handle, "job-manager.update", {"id": job, "updates": updates}, id_)

    ask_instance(statedir, change_job)
    if as_json or dry_run:
        print_json(updates)
    elif verbose:
        for key, value in updates.items():
            click.echo(f"{key} is now {json.dumps(value)}")


def _parse_update(key: str, value: Any, pair: str) -> tuple[str, Any]:
    path = _ALIASES.get(key, key)
    if not path.startswith(_JOBSPEC_PREFIXES):
        path = f"attributes.system.{path}"
    # A sign is not for JSON to read: it makes a change of a number.
    return path, pair.partition("=")[2] if path == _DURATION else value


async def _new_duration(handle: "Handle", job: int, id_: str, text: str) -> float:
    """Return the duration that a text stands for, which may begin with what the job has now."""
    sign = text[:1] if text[:1] in ("+", "-") else ""
    seconds = duration.parse(text.removeprefix(sign))
    if sign != "-" and seconds == inf:
        return 0.0  # JSON has no infinity, and 0 is no limit
    if not sign:
        return seconds
    request = {"id": job, "attrs": ["duration"]}
    old_duration = (await call(handle, "job-list.list-id", request, id_))["job"].get(
        "duration"
    ) or 0.0
    if not old_duration:
        raise UserMistake(f"{id_}: the job has no time limit that {text} could change.")
    new_duration: float = old_duration + seconds if sign == "+" else old_duration - seconds
    if new_duration <= 0:
        limit = duration.format_fsd(old_duration)
        raise UserMistake(f"{id_}: the time limit is {limit}, and {text} leaves none: give less.")
    return new_duration


@click.command("purge")
@statedir_option
@json_option
@click.option(
    "--age-limit", metavar="DURATION", help="Remove jobs that ended longer ago than this."
)
@click.option("--num-limit", type=click.IntRange(0), metavar="N",
              help="Remove the oldest jobs, until there are N left.")  # fmt: skip
@click.option("--batch", type=click.IntRange(1), default=50, metavar="N", show_default=True,
              help="How many are removed at once.")  # fmt: skip
@click.option("-f", "--force", is_flag=True, help="Remove jobs; without it they are only counted.")
@click.argument("ids", nargs=-1, metavar="[JOBID...]")
def job_purge(
    statedir: StateDir,
    as_json: bool,
    age_limit: str | None,
    num_limit: int | None,
    batch: int,
    force: bool,
    ids: tuple[str, ...],
) -> None:
    """Remove all data of jobs that are over, as the instance's owner."""
    if ids and not (age_limit is None and num_limit is None):
        raise click.UsageError("say which jobs by their ids, or by limits, not by both.")
    if not ids and age_limit is None and num_limit is None:
        raise click.UsageError("say which jobs: give their ids, --age-limit, or --num-limit.")
    limits = {
        **({} if age_limit is None else {"age_limit": duration.parse(age_limit)}),
        **({} if num_limit is None else {"num_limit": num_limit}),
    }
    request = {**limits, "batch": batch, "force": force}
    spelled_id_by_job = {int(fluid.parse(each)): each for each in ids}

    async def purge_jobs(handle: "Handle") -> tuple[int, int, list[str]]:
        if spelled_id_by_job:
            failures = await _purge(handle, spelled_id_by_job, force)
            count = len(spelled_id_by_job) - len(failures)
        else:
            failures = []
            count = (await call(handle, "job-manager.purge", request, "purge"))["count"]
        stats = await handle.rpc("job-list.job-stats")
        return count, stats["job_states"]["inactive"], failures

    count, inactive_count, failures = ask_instance(statedir, purge_jobs)
    if as_json:
        report = {"count": count, "inactive": inactive_count, "force": force}
        print_json({**report, "errors": failures} if ids else report)
    elif force:
        click.echo(f"purged {count} inactive jobs, {inactive_count} remaining")
    else:
        click.echo(f"use --force to purge {count} of {inactive_count} inactive jobs")
    if failures:
        raise UserMistake("; ".join(failures))


async def _purge(handle: "Handle", spelled_id_by_job: Mapping[int, str], force: bool) -> list[str]:
    """Purge these jobs, each spelled as its user did. Return a sentence for each refusal."""
    from warren.rpc.message import RpcError

    failures = []
    for each, spelled_id in spelled_id_by_job.items():
        try:
            await handle.rpc("job-manager.purge-id", {"id": each, "force": force})
        except RpcError as error:
            failures.append(f"{spelled_id}: {error}")
    return failures
