"""`warren job`: what there is to see of jobs, and to do with them, one command each.

The commands have the names of those of `flux job`. Each is in the module of its subject: `read`
has those that only read, `wait` those that wait, `change` those that change jobs.
"""

import sys
from typing import Final

import click

from warren.cli.commandgroups import LazyGroup
from warren.cli.common import SPELLINGS, ask_instance, json_option, print_json, statedir_option
from warren.daemons.statedir import StateDir
from warren.rfc import fluid

_COMMANDS: Final = {
    "attach": (
        "warren.cli.job.group",
        "job_attach",
        "Show a job's output until it ends, and exit as it does.",
    ),
    "eventlog": ("warren.cli.job.read", "job_eventlog", "Print a job's eventlog."),
    "id": ("warren.cli.job.group", "job_id", "Convert job ids between notations."),
    "info": ("warren.cli.job.read", "job_info", "Print a key of a job's record."),
    "kill": ("warren.cli.job.change", "job_kill", "Send a signal to running jobs."),
    "last": ("warren.cli.job.read", "job_last", "Print the ids of your last jobs."),
    "list": ("warren.cli.job.read", "job_list", "List jobs, one JSON object a line."),
    "list-ids": (
        "warren.cli.job.read",
        "job_list_ids",
        "List jobs by their ids, one JSON object a line.",
    ),
    "memo": ("warren.cli.job.change", "job_memo", "Set notes of a job."),
    "namespace": (
        "warren.cli.job.group",
        "job_namespace",
        "Print the names of jobs' guest namespaces.",
    ),
    "purge": ("warren.cli.job.change", "job_purge", "Remove inactive jobs."),
    "raise": ("warren.cli.job.change", "job_raise", "Raise an exception on jobs."),
    "stats": ("warren.cli.job.read", "job_stats", "Count jobs, as JSON."),
    "status": (
        "warren.cli.job.wait",
        "job_status",
        "Wait for jobs, and exit as the worst of them did.",
    ),
    "storage": (
        "warren.cli.job.storage",
        "job_storage",
        "Show a job's storage, its states, copies and exceptions.",
    ),
    "submit": (
        "warren.cli.job.submit",
        "job_submit",
        "Submit a jobspec that --dry-run has printed.",
    ),
    "taskmap": ("warren.cli.job.read", "job_taskmap", "Print which task runs on which node."),
    "timeleft": (
        "warren.cli.job.read",
        "job_timeleft",
        "Print the remaining time of a job in seconds.",
    ),
    "update": ("warren.cli.job.change", "job_update", "Change attributes of a job."),
    "urgency": ("warren.cli.job.change", "job_urgency", "Set the urgency of a job."),
    "wait": ("warren.cli.job.wait", "job_wait", "Wait for jobs submitted with --flags=waitable."),
    "wait-event": ("warren.cli.job.wait", "job_wait_event", "Wait for an event of a job."),
    "why": ("warren.cli.job.why", "job_why", "Say why a job does not run, and when it could."),
}


@click.group(cls=LazyGroup, table=_COMMANDS)
def job() -> None:
    """Inspect and change jobs.

    A JOBID may be spelled in any way that 'warren job id' knows.
    """


@click.command("id")
@click.option("--to", "spelling", default="f58", type=click.Choice(list(SPELLINGS)),
              help="The form to print. Default: f58.")  # fmt: skip
@json_option
@click.argument("ids", nargs=-1, metavar="[JOBID...]")
def job_id(spelling: str, as_json: bool, ids: tuple[str, ...]) -> None:
    """Convert job ids between notations. Without any, they are read from standard input."""
    spell = SPELLINGS[spelling]
    spelled_ids = [spell(fluid.parse(each)) for each in ids or sys.stdin.read().split()]
    _print_lines(spelled_ids, as_json)


@click.command("namespace")
@json_option
@click.argument("ids", nargs=-1, required=True, metavar="JOBID...")
def job_namespace(as_json: bool, ids: tuple[str, ...]) -> None:
    """Print the names of the KVS namespaces that jobs have while they run."""
    _print_lines([f"job-{fluid.parse(each)}" for each in ids], as_json)


def _print_lines(lines: list[str], as_json: bool) -> None:
    if as_json:
        print_json(lines)
    else:
        for line in lines:
            click.echo(line)


@click.command("attach")
@statedir_option
@click.argument("id_", metavar="JOBID")
def job_attach(statedir: StateDir, id_: str) -> None:
    """Show a job's output until it ends, and exit as it does."""
    from warren.cli.job.attach import attach

    jobid = fluid.parse(id_)
    code = ask_instance(
        statedir, lambda handle: attach(handle, jobid, show_waiting=sys.stderr.isatty())
    )
    sys.exit(code)
