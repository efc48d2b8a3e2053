"""`warren` itself: the commands by name, each loaded only when it is used.

Exit codes: 0 done; 1 refused, with one sentence on standard error that says why; 2 the command
line is wrong; `run` and `job attach` exit as the job did. docs/commands.md has the rest.
"""

import errno
import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Final, NoReturn

import click

from warren import __version__
from warren.base.errors import WarrenError
from warren.cli.commandgroups import LazyGroup, ReaderGone

_READER_GONE: Final = 128 + signal.SIGPIPE
"""The exit code of a program that ends as others do whose reader closes the pipe."""

_WRITE_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

_COMMANDS: Final = {
    "up": ("warren.cli.cluster.up", "up", "Run a cluster on this machine."),
    "down": ("warren.cli.cluster.up", "down", "Stop the cluster of a state directory."),
    "apiserver": (
        "warren.cli.cluster.apiserver",
        "apiserver",
        "Serve the Kubernetes API, and nothing else.",
    ),
    "conductor": (
        "warren.cli.cluster.conductor",
        "conductor",
        "Create and advance the Workflows of jobs.",
    ),
    "agent": ("warren.cli.cluster.agent", "agent", "Run the agent of one rabbit or compute node."),
    "copy-offload": (
        "warren.cli.cluster.offload",
        "copy_offload",
        "Make the copies that running jobs ask for.",
    ),
    "controllers": (
        "warren.cli.cluster.controllers",
        "controllers",
        "Run the storage controllers, and nothing else.",
    ),
    "demo": ("warren.cli.cluster.demo", "demo", "Run one rabbit job through its whole life."),
    "submit": ("warren.cli.job.submit", "submit", "Submit a job and print its id."),
    "run": ("warren.cli.job.submit", "run", "Submit a job and show its output."),
    "batch": ("warren.cli.job.batch", "batch", "Submit a script, with an instance of its own."),
    "check": ("warren.cli.check", "check", "Check a script's #DW directives."),
    "jobs": ("warren.cli.job.listing", "jobs", "List jobs."),
    "cancel": ("warren.cli.job.cancel", "cancel", "Cancel jobs."),
    "job": ("warren.cli.job.group", "job", "Inspect and change jobs."),
    "resource": ("warren.cli.resource", "resource", "List, drain and undrain compute nodes."),
    "queue": ("warren.cli.queue", "queue", "List and control queues."),
    "config": ("warren.cli.config", "config", "Show or reload the configuration."),
    "kvs": ("warren.cli.kvs.group", "kvs", "Read and write the key-value store."),
    "workflows": ("warren.cli.storage", "workflows", "List Workflows."),
    "persistent": (
        "warren.cli.persistent",
        "persistent",
        "Create, list, share and destroy persistent storage.",
    ),
    "rabbits": ("warren.cli.rabbits", "rabbits", "List, drain and disable rabbits."),
    "getrabbit": ("warren.cli.getrabbit", "getrabbit", "Look up the rabbits of nodes or jobs."),
    "rabbitmapping": (
        "warren.cli.rabbitmapping",
        "rabbitmapping",
        "Print which nodes are wired to which rabbit.",
    ),
    "dws2jgf": ("warren.cli.dws2jgf", "dws2jgf", "Add the graph of rabbits to R, for Fluxion."),
    "atomd": ("warren.cli.atomd", "atomd", "Serve ATOM on this node, for PBS's hook."),
    "pbs": ("warren.cli.pbs", "pbs", "Install, check and try PBS's hook."),
    "doctor": ("warren.cli.cluster.doctor", "doctor", "Find and remove orphaned resources."),
}


@click.group(
    cls=LazyGroup, table=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="warren")
def cli() -> None:
    """Near-node flash storage for HPC batch jobs.

    A command finds its cluster by --statedir DIR, or by WARREN_STATEDIR.
    """


def main() -> None:
    """Run the command line. What is refused is one sentence, never a traceback."""
    for name in ("stdout", "stderr"):
        # It was closed before we began. What is opened next would get its number, and our output.
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # A letter that the output cannot have is no reason to end.
        if isinstance(stream, TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            sys.exit(cli.main(standalone_mode=False, prog_name="warren"))
        finally:
            sys.stdout.flush()
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _end_interrupted()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except WarrenError as error:
        click.echo(f"warren: {error}", err=True)
        sys.exit(1)
    except (ReaderGone, BrokenPipeError):
        # What is left to be written would be tried again at the end, and be a failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(_READER_GONE)
    except OSError as error:
        if error.errno not in _WRITE_ERRORS:
            raise
        with suppress(OSError):
            sys.stdout.close()  # or it would be tried again at the end
        click.echo(
            f"warren: {error.filename or 'the output'} cannot be written: {error.strerror}.",
            err=True,
        )
        sys.exit(1)


def _end_interrupted() -> NoReturn:
    """Die of SIGINT, which a shell reports as 130, and by which it knows to end its script.

    Not by `sys.exit(130)`: Python itself dies of the signal instead if an `exec` of text, such as
    that of a dataclass under import, was what the signal interrupted.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)
    sys.exit(130)  # where the signal is blocked
