"""`warren submit` and `warren run`: jobs from the command line, spelled as flux spells them."""

import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, json_option, print_json, statedir_option
from warren.daemons.statedir import StateDir
from warren.directives.diagnostics import Mistake
from warren.directives.parse import script_directives
from warren.rfc import duration, fluid, jobspec, signed_request

if TYPE_CHECKING:
    from warren.rpc.message import Handle

F = TypeVar("F", bound=Callable[..., Any])


def _job_options(command: F) -> F:
    for option in reversed(
        [
            statedir_option,
            click.option("-N", "--nodes", type=click.IntRange(1), metavar="N",
                         help="How many nodes; each as a whole, unless -n is given too."),
            click.option("-n", "--ntasks", type=click.IntRange(1), metavar="N",
                         help="How many tasks (default: one, or one on each node)."),
            click.option("-c", "--cores-per-task", type=click.IntRange(1), default=1, metavar="N",
                         help="Cores for each task."),
            click.option("-x", "--exclusive", is_flag=True, help="Whole nodes."),
            click.option("-t", "--time-limit", metavar="DURATION",
                         help="Time limit; minutes, or a number with s, m, h or d."),
            click.option("-S", "--setattr", "attributes", multiple=True, metavar="KEY[=VAL]",
                         help="Set an attribute, such as dw='#DW ...'. ^KEY=FILE reads JSON."),
            click.option("--job-name", metavar="NAME", help="Name of the job."),
            click.option("--cwd", metavar="DIR", help="Working directory (default: this one)."),
            click.option("--urgency", type=click.IntRange(0, 31), default=16, metavar="N",
                         help="Urgency, 0 to 31."),
            click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


_CONTEXT = {"ignore_unknown_options": False, "allow_interspersed_args": False}


@click.command(context_settings=_CONTEXT)
@_job_options
@json_option
@click.option("--dry-run", is_flag=True, help="Print the jobspec and submit nothing.")
def submit(state: StateDir, as_json: bool, dry_run: bool, urgency: int, **options: Any) -> None:
    """Submit COMMAND as a job and print its id.

    If COMMAND is a script with #DW lines among its first comments, and no dw
    attribute is given, those are the job's directives. Variables of your
    environment are filled into them, except $DW_..., which are the job's.
    """
    spec = make_jobspec(**options)
    if dry_run:
        print_json(spec)
        return
    job = ask_instance(state, submitting(spec, urgency))
    if as_json:
        print_json({"id": fluid.f58(job)})
    else:
        click.echo(fluid.f58(job))


@click.command(context_settings=_CONTEXT)
@_job_options
def run(state: StateDir, urgency: int, **options: Any) -> None:
    """Submit COMMAND as a job, show its output, and exit as it does."""
    from warren.cli.attach import attach

    spec = make_jobspec(**options)

    async def submitted(handle: "Handle") -> int:
        job = await submitting(spec, urgency)(handle)
        return await attach(handle, job, shown=sys.stderr.isatty())

    sys.exit(ask_instance(state, submitted))


def submitting(
    spec: Mapping[str, Any], urgency: int = 16
) -> "Callable[[Handle], Awaitable[fluid.JobId]]":
    """Give what submits a jobspec. It raises UserMistake in the words of whoever refuses it."""

    async def work(handle: "Handle") -> fluid.JobId:
        from warren.rpc.message import RpcError

        token = signed_request.wrap(json.dumps(spec).encode(), os.getuid())
        try:
            answer = await handle.rpc("job-ingest.submit", {"J": token, "urgency": urgency})
        except RpcError as error:
            raise UserMistake(f"the job is refused.\n{error}" if "\n" in str(error) else
                              f"the job is refused: {error}") from error  # fmt: skip
        return fluid.JobId(answer["id"])

    return work


def make_jobspec(
    *,
    command: tuple[str, ...],
    nodes: int | None = None,
    ntasks: int | None = None,
    cores_per_task: int = 1,
    exclusive: bool = False,
    time_limit: str | None = None,
    attributes: tuple[str, ...] = (),
    job_name: str | None = None,
    cwd: str | None = None,
) -> dict[str, Any]:
    """Make the jobspec of a command line. Raises UserMistake where it makes none."""
    given = _attributes(attributes)
    directives = _script_directives(command[0])
    if directives and "dw" not in given:
        given["dw"] = "\n".join(directives)
    return jobspec.make(
        _found(command),
        nodes=nodes,
        tasks=ntasks,
        cores=cores_per_task,
        exclusive=exclusive,
        duration=_time_limit(time_limit),
        cwd=str(Path(cwd).absolute()) if cwd else os.getcwd(),
        environment=dict(os.environ),
        name=job_name,
        attributes=given,
    )


def _found(command: tuple[str, ...]) -> list[str]:
    """Give the command; a program that is named by a path must be there and executable."""
    program = Path(command[0])
    if "/" in command[0]:
        if not program.is_file():
            raise UserMistake(f"{command[0]}: there is no such file.")
        if not os.access(program, os.X_OK):
            raise UserMistake(f"{command[0]} is not executable: try chmod +x {command[0]}.")
        return [str(program.absolute()), *command[1:]]
    return list(command)


def _time_limit(text: str | None) -> float:
    if text is None:
        return 0.0
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text) * 60
    return duration.parse(text)


def _attributes(settings: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if key.startswith("^"):
            key, value = key[1:], _from_file(text)
        else:
            value = _json_or_text(text) if equals else 1
        *parents, last = key.removeprefix("system.").split(".")
        place = found
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return found


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _from_file(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text())
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}.") from error
    except ValueError as error:
        raise UserMistake(f"{path} is not JSON: {error}.") from error


def _script_directives(program: str) -> list[str]:
    """Give the directives of a script, with the author's environment filled in."""
    path = Path(program)
    if "/" not in program or not path.is_file():
        return []
    with path.open("rb") as script:
        text = script.read(65536).decode(errors="replace")
    return [_expanded(line) for line in script_directives(text)]


def _expanded(line: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name.startswith("DW_"):
            return match[0]
        if name not in os.environ:
            raise Mistake(
                line, match.start(), match.end(),
                f"Your environment has no variable {name}.", "Set it, or write the path.",
            )  # fmt: skip
        return os.environ[name]

    try:
        return re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, line)
    except Mistake as mistake:
        raise UserMistake(f"the job is refused.\n{mistake.shown}") from None
