"""`warren cancel`: jobs ended, by their ids or by what they are."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from warren.base.errors import UserMistake
from warren.base.words import plural
from warren.cli.common import ask_instance, f58, json_option, print_json, statedir_option
from warren.cli.job import selecting
from warren.daemons.statedir import StateDir
from warren.rfc import fluid

if TYPE_CHECKING:
    from warren.rpc.message import Handle

_MAX_CONCURRENT = 100
"""Requests that wait for their answers together."""


@click.command()
@statedir_option
@click.option("--all", "everything", is_flag=True, help="Cancel all of your active jobs.")
@click.option("-u", "--user", metavar="USER",
              help="Cancel all active jobs of this user; all means all users.")  # fmt: skip
@click.option("-S", "--states", metavar="STATE,...",
              help="Cancel all of your jobs in these states: pending, running, sched, ...",
              )  # fmt: skip
@click.option("-m", "--message", default="", metavar="NOTE", help="A note for the job's record.")
@click.option("-n", "--dry-run", is_flag=True, help="Cancel nothing; print how many would be.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing if no job is canceled.")
@json_option
@click.argument("ids", nargs=-1, metavar="[JOBID...]")
def cancel(
    statedir: StateDir,
    everything: bool,
    user: str | None,
    states: str | None,
    message: str,
    dry_run: bool,
    quiet: bool,
    as_json: bool,
    ids: tuple[str, ...],
) -> None:
    """Cancel jobs: those with the ids, or all that the options choose."""
    chosen_by_options = everything or user is not None or states is not None
    if bool(ids) == chosen_by_options:
        raise click.UsageError("name jobs by their ids, or choose them with --all, -u or -S.")
    spelled_ids = {int(fluid.parse(each)): each for each in ids}
    constraint = {
        "and": [
            *selecting.by_user(selecting.userid(user)),
            selecting.by_states(states or "pending,running"),
        ]
    }

    async def cancel_jobs(handle: "Handle") -> tuple[list[int], list[str]]:
        job_ids: list[int] = list(spelled_ids)
        if chosen_by_options:
            request = {"max_entries": 0, "attrs": [], "constraint": constraint}
            job_ids = [each["id"] for each in (await handle.rpc("job-list.list", request))["jobs"]]
        if dry_run:
            return job_ids, []
        return job_ids, await raise_exceptions(
            handle, job_ids, {"type": "cancel", "severity": 0, "note": message}, spelled_ids
        )

    job_ids, failures = ask_instance(statedir, cancel_jobs)
    if as_json:
        report = {"jobs": [f58(each) for each in job_ids], "dry_run": dry_run}
        print_json({**report, "errors": failures})
    elif dry_run:
        click.echo(f"{plural(len(job_ids), 'job')} would be canceled.")
    elif chosen_by_options and (job_ids or not quiet):
        click.echo(f"{plural(len(job_ids) - len(failures), 'job')} canceled.")
    if failures:
        raise UserMistake("; ".join(failures))


async def raise_exceptions(
    handle: "Handle",
    jobs: Sequence[int],
    exception: Mapping[str, Any],
    spelled_ids: Mapping[int, str],
) -> list[str]:
    """Raise an exception on jobs; return a sentence for each that refuses it.

    `spelled_ids` has the ids as the user has spelled them, for these sentences.
    """
    from warren.rpc.message import RpcError

    async def raise_on(job: int) -> str | None:
        try:
            await handle.rpc("job-manager.raise", {"id": job, **exception})
        except RpcError as error:
            return f"{spelled_ids.get(job) or f58(job)}: {error}"
        return None

    failures: list[str] = []
    for start in range(0, len(jobs), _MAX_CONCURRENT):
        answers = await asyncio.gather(*map(raise_on, jobs[start : start + _MAX_CONCURRENT]))
        failures.extend(each for each in answers if each is not None)
    return failures
