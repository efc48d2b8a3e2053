"""What the commands share: finding the cluster, talking to it, printing."""

import asyncio
import errno
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from warren.base.errors import UserMistake
from warren.base.printable import printable, printable_json
from warren.daemons.statedir import STATEDIR_VARIABLE, StateDir
from warren.rfc import fluid

if TYPE_CHECKING:
    from warren.kube.kubeconfig import ClusterAccess
    from warren.rpc.message import Handle

_COMMAND_LINE: Final = click.core.ParameterSource.COMMANDLINE
LOCAL_SCHEME: Final = "local://"

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def statedir_option(command: F) -> F:
    """Add --statedir."""
    return click.option(
        "--statedir",
        "statedir",
        metavar="DIR",
        envvar=STATEDIR_VARIABLE,
        callback=lambda _ctx, _param, value: StateDir(Path(value) if value else default_statedir()),
        help=f"State directory of the cluster (or {STATEDIR_VARIABLE}; "
        f"default {_default_for_help()}).",
    )(command)


def json_option(command: F) -> F:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def default_statedir(service: str = "warren") -> Path:
    """Return the default state directory."""
    if os.geteuid() == 0:
        return Path("/var/lib") / service
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(base) / service


def _default_for_help() -> str:
    return "/var/lib/warren" if os.geteuid() == 0 else "~/.local/state/warren"


def open_port(option: str, address: str, port: int) -> socket.socket:
    """Open the port that an option names, to listen there. Raises UserMistake."""
    try:
        return socket.create_server((address, port))
    except OSError as error:
        raise UserMistake(
            f"{option} {port}: {address or '*'}:{port} cannot be taken: {error.strerror}."
        ) from error


def f58(job: int) -> str:
    """Spell a job id for people, with a letter that their locale has (FLUX_F58_FORCE_ASCII)."""
    ascii_only = "FLUX_F58_FORCE_ASCII" in os.environ or not _is_utf8(os.environ)
    return fluid.f58plain(job) if ascii_only else fluid.f58(job)


SPELLINGS: Final[Mapping[str, Callable[[int], str]]] = {**fluid.SPELLINGS, "f58": f58}
"""How a job id is spelled, by the names that people give to it."""


def _is_utf8(environment: Mapping[str, str]) -> bool:
    """Return whether output is in UTF-8, as the first of the variables says that is set."""
    if environment.get("PYTHONIOENCODING", "").partition(":")[0]:
        return "UTF8" in environment["PYTHONIOENCODING"].upper().replace("-", "")
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if environment.get(name):
            return "UTF8" in environment[name].upper().replace("-", "")
    return True  # Python makes it one of UTF-8


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's work. Of a group of exceptions, raise the first one alone."""
    try:
        return asyncio.run(main)
    except BaseExceptionGroup as group:
        raise _first_error(group) from None


def _first_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def ask_instance(statedir: StateDir, work: Callable[["Handle"], Awaitable[T]]) -> T:
    """Do `work` with the instance of a cluster, and return what comes of it.

    Raises UserMistake where none runs.
    """
    from warren.rpc.client import connect, fail_unless_alive

    async def ask() -> T:
        async with connect(path) as handle, fail_unless_alive(handle, path):
            return await work(handle)

    path = socket_of(statedir)
    if path == statedir.socket:
        require_running(statedir)
    return run(ask())


def ask_flux(statedir: StateDir, work: Callable[["Handle"], Awaitable[T]]) -> T:
    """Do `work` with an instance, or with the Flux broker that FLUX_URI names.

    It may ask what both of them answer.
    """
    from warren.rpc.client import connect, fail_unless_alive
    from warren.rpc.message import RpcError

    async def ask() -> T:
        try:
            async with connect(path) as handle, fail_unless_alive(handle, path):
                return await work(handle)
        except RpcError as error:
            if error.errnum != errno.EPROTONOSUPPORT:
                raise
        from warren.rpc import brokerclient

        async with brokerclient.connect(path) as broker:
            return await work(broker)

    path = socket_of(statedir)
    if path == statedir.socket:
        require_running(statedir)
    return run(ask())


def socket_of(statedir: StateDir) -> Path:
    """Return the instance's socket: inside of a job, that of the instance which the job is part of.

    Not where the command line names a state directory, or the command makes one. Raises
    UserMistake for a FLUX_URI that is no socket of this machine.
    """
    uri = os.environ.get("FLUX_URI", "")
    context = click.get_current_context(silent=True)
    source = None if context is None else context.get_parameter_source("statedir")
    if source in (None, _COMMAND_LINE) or not uri:
        return statedir.socket
    return socket_at(uri, "correct it, or unset it, or name a cluster with --statedir")


def socket_at(uri: str, remedy: str) -> Path:
    """Return the socket that a FLUX_URI names. Raises UserMistake for none of this machine."""
    path = uri.removeprefix(LOCAL_SCHEME)
    if path == uri or not path.startswith("/"):
        raise UserMistake(
            f"FLUX_URI is {uri!r}, not {LOCAL_SCHEME} and the path of an instance's socket: "
            f"{remedy}."
        )
    return Path(path)


def require_running(statedir: StateDir) -> dict[str, Any]:
    """Return what the running cluster says of itself. Raises UserMistake where none runs."""
    status = statedir.status()
    if status is None and statedir.is_closed:
        raise UserMistake(
            f"The instance of {statedir.path} cannot be reached: its owner lets no other users in "
            "(access.allow-guest-user is not set)."
        )
    if status is None:
        raise UserMistake(
            f"No cluster runs in {statedir.path}: "
            f"start one with 'warren up --statedir {statedir.path}', "
            f"or name another with --statedir or {STATEDIR_VARIABLE}."
        )
    return status


def cluster_access(statedir: StateDir) -> "ClusterAccess":
    """Return how to reach the API of the cluster that runs in a state directory, as its owner."""
    from warren.kube import kubeconfig

    require_running(statedir)
    statedir.check_owner()
    return kubeconfig.load(statedir.kubeconfig)


def print_json(value: Any) -> None:
    """Print a value as JSON: indented for a person, one line for a program."""
    text = json.dumps(value, indent=2 if sys.stdout.isatty() else None, ensure_ascii=False)
    click.echo(printable_json(text))


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[Any]], right_aligned: str = ""
) -> None:
    """Print rows under headers. `right_aligned` has those of some columns, with spaces between."""
    texts = [["" if cell is None else printable(str(cell)) for cell in row] for row in rows]
    widths = [
        max(len(header), *(len(row[column]) for row in texts), 0)
        for column, header in enumerate(headers)
    ]
    for row in [list(headers), *texts]:
        cells = [
            cell.rjust(width) if header in right_aligned.split() else cell.ljust(width)
            for cell, width, header in zip(row, widths, headers, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())
