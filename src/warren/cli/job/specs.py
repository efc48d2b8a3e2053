"""What the options of `submit`, `run` and `batch` ask for, as a jobspec.

Options are spelled as `flux submit` spells them, and mean what they mean there.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from math import inf
from pathlib import Path
from shutil import which
from signal import Signals
from typing import Any, TypeVar

import click

from warren.base.errors import UserMistake
from warren.cli.futuretime import parse_future_time
from warren.cli.job import environment, scripts
from warren.rfc import dependency, duration, jobspec, query
from warren.rfc.query import BadQuery

F = TypeVar("F", bound=Callable[..., Any])

_MAX_FILE_BYTES = 2**20
"""Bytes of a file that a job takes along."""


def jobspec_options(command: F) -> F:
    """Add the options that all commands that submit have. Their values go to `make_jobspec`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS = [
    click.option("-N", "--nodes", type=click.IntRange(1), metavar="N",
                 help="How many nodes; whole ones, unless -n is given, too."),
    click.option("--coral2-chassis", "chassis", type=click.IntRange(1), metavar="N",
                 help="Spread the nodes evenly over N chassis, each of one rabbit."),
    click.option("-x", "--exclusive", is_flag=True, help="Allocate whole nodes."),
    click.option("-q", "--queue", metavar="NAME", help="The queue (default: the site's own)."),
    click.option("-B", "--bank", metavar="NAME", help="The bank to charge."),
    click.option("-t", "--time-limit", metavar="DURATION",
                 help="Time limit; minutes, or a number with s, m, h or d."),
    click.option("--job-name", metavar="NAME", help="Name of the job."),
    click.option("--requires", "requirements", multiple=True, metavar="QUERY",
                 help="Properties of the nodes, such as 'fast and not host:n[1-4]'."),
    click.option("--dependency", "dependencies", multiple=True, metavar="SCHEME:VALUE",
                 help="What to wait for: after, afterany, afterok, afternotok, afterexcept and a "
                 "job; begin-time; singleton."),
    click.option("--begin-time", metavar="WHEN",
                 help="When to run at the earliest: +DURATION, now, a time, a date, or both "
                 "(tomorrow 8am), or seconds since 1970."),
    click.option("-S", "--setattr", "attributes", multiple=True, metavar="KEY[=VAL]",
                 help="Set an attribute, such as dw='#DW ...'. ^KEY=FILE reads JSON."),
    click.option("--rlimit", "rlimit_rules", multiple=True, metavar="RULE",
                 help="Which of your limits the job has: -PATTERN, NAME, NAME=VALUE."),
    click.option("--signal", metavar="[SIG][@TIME]",
                 help="Send a signal before the time is up (default: USR1@60s)."),
    click.option("--taskmap", metavar="SCHEME[:VALUE]",
                 help="Which task runs where: block, cyclic[:N], manual:MAP."),
    click.option("-o", "--setopt", "shell_options", multiple=True, metavar="NAME[=VAL]",
                 help="Set an option of the job shell."),
    click.option("--output", metavar="TEMPLATE",
                 help="Write standard output to a file; {{id}} and others are filled in."),
    click.option("--error", metavar="TEMPLATE", help="The same for standard error."),
    click.option("--input", "stdin", metavar="FILE", help="Where standard input comes from."),
    click.option("-l", "--label-io", is_flag=True, help="Begin each line with its task's rank."),
    click.option("-u", "--unbuffered", is_flag=True, help="Do not wait for whole lines."),
    click.option("--cwd", metavar="DIR", help="Working directory (default: this one)."),
    click.option("--env", "env_rules", multiple=True, metavar="RULE",
                 help="Change the environment: NAME=VALUE, -PATTERN, PATTERN, ^FILE."),
    click.option("--env-remove", "env_removed", multiple=True, metavar="PATTERN",
                 help="Remove variables; the same as --env=-PATTERN."),
    click.option("--add-file", "files", multiple=True, metavar="[NAME=]PATH|NAME=DATA",
                 help="Add a file to the job, at {{tmpdir}}/NAME on each node."),
]  # fmt: skip


def task_options(command: F) -> F:
    """Add how many tasks there are, and what each of them has."""
    for option in reversed(_TASK_OPTIONS):
        command = option(command)
    return command


_TASK_OPTIONS = [
    click.option("-n", "--ntasks", type=click.IntRange(1), metavar="N",
                 help="How many tasks (default: one, or one on each node)."),
    click.option("-c", "--cores-per-task", type=click.IntRange(1), metavar="N",
                 help="Cores for each task."),
    click.option("-g", "--gpus-per-task", type=click.IntRange(0), metavar="N",
                 help="GPUs for each task."),
    click.option("--cores", type=click.IntRange(1), metavar="N",
                 help="Cores in all, instead of -n and -c."),
    click.option("--tasks-per-node", type=click.IntRange(1), metavar="N",
                 help="Tasks on each node, however many cores it has."),
    click.option("--tasks-per-core", type=click.IntRange(1), metavar="N",
                 help="Tasks on each core."),
    click.option("--gpus-per-node", type=click.IntRange(0), metavar="N",
                 help="GPUs of each node."),
]  # fmt: skip


def make_jobspec(
    *,
    command: tuple[str, ...],
    nodes: int | None = None,
    ntasks: int | None = None,
    cores_per_task: int | None = None,
    gpus_per_task: int | None = None,
    cores: int | None = None,
    tasks_per_node: int | None = None,
    tasks_per_core: int | None = None,
    gpus_per_node: int | None = None,
    exclusive: bool = False,
    attributes: tuple[str, ...] = (),
    **options: Any,
) -> dict[str, Any]:
    """Make the jobspec of a command line. Raises UserMistake where it makes none."""
    counts: dict[str, Any]
    per_resource: dict[str, Any] | None = None
    if any(each is not None for each in (cores, tasks_per_node, tasks_per_core, gpus_per_node)):
        if any(each is not None for each in (ntasks, cores_per_task, gpus_per_task)):
            raise UserMistake(
                "-n, -c and -g count by task; --cores, --tasks-per-node, --tasks-per-core and "
                "--gpus-per-node by what there is: use either."
            )
        counts = _slots_by_resource(nodes, cores, gpus_per_node or 0)
        per_resource = _per_resource(tasks_per_node, tasks_per_core)
    else:
        counts = {
            "nodes": nodes,
            "tasks": ntasks,
            "cores": cores_per_task or 1,
            "gpus": gpus_per_task or 0,
        }
    spec = base_jobspec(
        _check_command(command),
        counts={**counts, "exclusive": exclusive},
        per_resource=per_resource,
        **options,
    )
    set_attributes(spec, attributes)
    _check_on_path(command[0], spec["attributes"]["system"]["environment"].get("PATH"))
    directives = scripts.program_directives(command[0])
    system = spec["attributes"]["system"]
    if directives and "dw" not in system:
        system["dw"] = "\n".join(directives)
    return spec


def _spread_over_chassis(
    chassis: int, nodes: int | None, resource: Mapping[str, Any]
) -> dict[str, Any]:
    """Return nodes as so many on each of some chassis (coral2-spec section 15)."""
    if nodes is None:
        raise UserMistake("--coral2-chassis is about nodes: say how many with -N.")
    if nodes % chassis:
        raise UserMistake(
            f"-N {nodes} cannot be spread evenly over {chassis} chassis: "
            f"take a multiple of {chassis}."
        )
    return {"type": "chassis", "count": chassis, "with": [{**resource, "count": nodes // chassis}]}


def _slots_by_resource(nodes: int | None, cores: int | None, gpus: int) -> dict[str, Any]:
    """Return the counts of a job whose slots are nodes, or cores."""
    if nodes is None:
        if cores is None or gpus:
            raise UserMistake("Say how many nodes, -N, or how many --cores.")
        return {"nodes": None, "tasks": cores, "cores": 1, "gpus": 0}
    if cores is None:
        return {"nodes": nodes, "tasks": None, "cores": 1, "gpus": gpus}
    if cores % nodes:
        raise UserMistake(f"--cores {cores} cannot be spread evenly over {nodes} nodes.")
    return {"nodes": nodes, "tasks": nodes, "cores": cores // nodes, "gpus": gpus}


def _per_resource(per_node: int | None, per_core: int | None) -> dict[str, Any] | None:
    if per_node is not None and per_core is not None:
        raise UserMistake("--tasks-per-node and --tasks-per-core: use either.")
    if per_node is None and per_core is None:
        return None
    return {"type": "core" if per_node is None else "node", "count": per_node or per_core}


def base_jobspec(
    command: list[str],
    *,
    counts: Mapping[str, Any],
    per_resource: Mapping[str, Any] | None = None,
    queue: str | None = None,
    bank: str | None = None,
    time_limit: str | None = None,
    job_name: str | None = None,
    requirements: tuple[str, ...] = (),
    dependencies: tuple[str, ...] = (),
    begin_time: str | None = None,
    rlimit_rules: tuple[str, ...] = (),
    signal: str | None = None,
    taskmap: str | None = None,
    shell_options: tuple[str, ...] = (),
    output: str | None = None,
    error: str | None = None,
    stdin: str | None = None,
    label_io: bool = False,
    unbuffered: bool = False,
    cwd: str | None = None,
    env_rules: tuple[str, ...] = (),
    env_removed: tuple[str, ...] = (),
    files: tuple[str, ...] = (),
    chassis: int | None = None,
) -> dict[str, Any]:
    """Make a jobspec but for what `set_attributes` sets."""
    if counts["exclusive"] and counts["nodes"] is None:
        raise UserMistake("--exclusive is for whole nodes: say how many with -N.")
    rules = (*env_rules, *(f"-{pattern}" for pattern in env_removed))
    system: dict[str, Any] = {}
    if queue is not None:
        system["queue"] = queue
    if bank is not None:
        system["bank"] = bank
    if requirements:
        system["constraints"] = _parse_constraints(requirements)
    job_dependencies = [*map(dependency.parse, dependencies)]
    if begin_time is not None:
        job_dependencies.append(
            dependency.parse(f"begin-time:{parse_future_time(begin_time, time.time()):.3f}")
        )
    if job_dependencies:
        system["dependencies"] = dependency_entries(job_dependencies)
    shell: dict[str, Any] = {}
    _set_stdio(shell, output, error, stdin, label_lines=label_io)
    if unbuffered:
        for stream in ("stdout", "stderr"):
            _put_at_path(shell, ["output", stream, "buffer", "type"], "none")
        _put_at_path(shell, ["output", "batch-timeout"], 0.05)
        _put_at_path(shell, ["input", "batch-timeout"], 0.0)
    if per_resource is not None:
        shell["per-resource"] = per_resource
    limits = environment.limits(rlimit_rules)
    if limits:
        shell["rlimit"] = limits
    if signal is not None:
        shell["signal"] = _parse_signal(signal)
    if taskmap is not None:
        scheme, _, value = taskmap.partition(":")
        shell["taskmap"] = {"scheme": scheme, "value": value}
    variables, templates = environment.apply_rules(os.environ, rules)
    if templates:
        shell["env-expand"] = templates
    _set_shell_options(shell, shell_options)
    if shell:
        system["shell"] = {"options": shell}
    if files:
        system["files"] = dict(map(_read_attached_file, files))
    spec = jobspec.make(
        command,
        **counts,
        duration=_parse_time_limit(time_limit),
        cwd=str(Path(cwd).absolute()) if cwd else os.getcwd(),
        environment=variables,
        name=job_name,
        attributes=system,
    )
    if chassis is not None:
        spec["resources"] = [_spread_over_chassis(chassis, counts["nodes"], spec["resources"][0])]
    return spec


def set_attributes(spec: dict[str, Any], settings: Iterable[str]) -> None:
    """Set what -S asks for. Keys are of `attributes.system`, but for `user.` and `.` before them.

    Raises UserMistake where a setting cannot be made.
    """
    for setting in settings:
        key, equals, text = setting.partition("=")
        if key.startswith("^"):
            key, value = key[1:], _read_json(text)
        else:
            value = _json_or_text(text) if equals else 1
        if key.startswith("."):
            key = key[1:]
        elif key.partition(".")[0] not in ("system", "user"):
            key = f"system.{key}"
        names = key.split(".")
        if not all(names):
            raise UserMistake(f"--setattr {setting}: {key!r} is not a key.")
        try:
            _put_at_path(spec["attributes"], names, value)
        except TypeError:
            raise UserMistake(
                f"--setattr {setting}: {key!r} lies in what has a value of its own."
            ) from None


def _put_at_path(target: dict[str, Any], names: list[str], value: Any) -> None:
    """Put a value at a path. Raises TypeError where something else is on the way."""
    *parents, last = names
    for parent in parents:
        target = target.setdefault(parent, {})
        if not isinstance(target, dict):
            raise TypeError(parent)
    target[last] = value


# Options


def _check_command(command: tuple[str, ...]) -> list[str]:
    """Return the command; a program that is named by a path must be there and executable."""
    program = Path(command[0])
    if "/" in command[0] and "{{" not in command[0]:
        if program.is_dir():
            raise UserMistake(f"{command[0]} is a directory: name a program in it.")
        if not program.is_file():
            raise UserMistake(f"{command[0]}: there is no such file.")
        if not os.access(program, os.X_OK):
            raise UserMistake(f"{command[0]} is not executable: try chmod +x {command[0]}.")
        return [str(program.absolute()), *command[1:]]
    return list(command)


def _check_on_path(program: str, path: str | None) -> None:
    """Raise UserMistake for a program that is meant to be here, and is looked for elsewhere."""
    if "/" not in program and Path(program).is_file() and not which(program, path=path):
        raise UserMistake(
            f"{program}: no directory of your PATH has a program of this name, and this directory "
            f"has one: try ./{program}."
        )


def _parse_time_limit(text: str | None) -> float:
    if text is None:
        return 0.0
    is_number = re.fullmatch(r"[0-9]+(\.[0-9]+)?", text)
    seconds = float(text) * 60 if is_number else duration.parse(text)
    return seconds if seconds < inf else 0.0  # JSON has no infinity, and 0 is no limit


def _parse_constraints(queries: Iterable[str]) -> dict[str, Any]:
    try:
        constraints = [query.parse(each, query.REQUIRES) for each in queries]
    except BadQuery as error:
        raise UserMistake(f"--requires:\n{error.text_with_carets}") from error
    return constraints[0] if len(constraints) == 1 else {"and": constraints}


def dependency_entries(job_dependencies: Iterable[dependency.Dependency]) -> list[dict[str, Any]]:
    """Write dependencies as a jobspec has them. Raises UserMistake where one is there twice."""
    entries = [dependency.encode(each) for each in job_dependencies]
    dependency.decode_list(entries, "--dependency")
    return entries


def _set_stdio(
    shell: dict[str, Any],
    output: str | None,
    error: str | None,
    stdin: str | None,
    *,
    label_lines: bool,
) -> None:
    for stream, path in (("stdout", output), ("stderr", error)):
        if path is not None and path not in ("none", "kvs"):
            _put_at_path(shell, ["output", stream], {"type": "file", "path": path})
            if label_lines:
                _put_at_path(shell, ["output", stream, "label"], True)
    if stdin is not None:
        _put_at_path(
            shell, ["input", "stdin"], {"type": "file", "path": str(Path(stdin).absolute())}
        )


def _set_shell_options(shell: dict[str, Any], settings: Iterable[str]) -> None:
    for setting in settings:
        name, equals, text = setting.partition("=")
        try:
            _put_at_path(shell, name.split("."), _json_or_text(text) if equals else 1)
        except TypeError:
            problem = f"{name} lies in what has a value of its own"
            raise UserMistake(f"-o {setting}: {problem}.") from None


def _parse_signal(text: str) -> dict[str, Any]:
    """Read [SIG][@TIME]: which signal, and how long before the time is up."""
    name, _, time_before = text.partition("@")
    number_by_name = {each.name.removeprefix("SIG"): int(each) for each in Signals}
    signal_name = name.upper().removeprefix("SIG") or "USR1"
    number = int(signal_name) if signal_name.isdecimal() else number_by_name.get(signal_name, 0)
    if number not in number_by_name.values():
        raise UserMistake(f"--signal {text}: {name!r} is not a signal.")
    return {"signum": number, "timeleft": duration.parse(time_before or "60s")}


def _read_attached_file(text: str) -> tuple[str, dict[str, Any]]:
    """Read a file that goes along: NAME=PATH, PATH, or NAME=DATA where DATA has a line's end."""
    name, equals, path = text.partition("=")
    if not equals:
        name, path = Path(text).name, text
    if "\n" in path:
        return name, file_entry(path.encode(), 0o600)
    try:
        mode = Path(path).stat().st_mode & 0o777
        with Path(path).open("rb") as file:
            data = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise UserMistake(f"--add-file {text}: {error.strerror}.") from error
    if len(data) > _MAX_FILE_BYTES:
        raise UserMistake(f"--add-file {text}: a job takes files of up to 1 MiB along.")
    return name, file_entry(data, mode)


def file_entry(data: bytes, mode: int) -> dict[str, Any]:
    """Write a file as a jobspec carries it (RFC 37)."""
    from base64 import b64encode

    entry: dict[str, Any] = {"mode": mode | 0o100000, "size": len(data)}
    try:
        return {**entry, "encoding": "utf-8", "data": data.decode()}
    except UnicodeDecodeError:
        return {**entry, "encoding": "base64", "data": b64encode(data).decode()}


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _read_json(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text())
    except OSError as error:
        raise UserMistake(f"{path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise UserMistake(f"{path} is not JSON: {error}.") from error
