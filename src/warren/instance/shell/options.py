"""What a jobspec asks of the shell: `attributes.system.shell.options`, read and judged.

Spelled as flux spells them. An option that is not known here is no mistake: a shell
with other plugins may know it.
"""

import re
import resource
import signal
from collections.abc import Mapping
from typing import Any, Final, Literal, NoReturn

import msgspec

from warren.base.errors import WarrenError
from warren.instance.shell import affinity
from warren.instance.shell.affinity import CpuAffinity
from warren.instance.shell.terminal import DEFAULT_SIZE
from warren.rfc import duration, idset
from warren.rfc.errors import BadFormat

OUTPUT_LIMIT: Final = 10 * 10**6
"""Bytes of each stream that a shell writes to the KVS, which is in the instance's memory."""
MAX_OUTPUT_LIMIT: Final = 10**9
EXIT_TIMEOUT: Final = 30.0
"""Seconds that other tasks may run on after the first has ended."""
TIME_LEFT: Final = 60.0
"""Seconds before the time limit at which option `signal` has the tasks signalled."""

_SIZE_PATTERN: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([kKMG]?)")
_UNITS: Final = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9}


class CannotRun(WarrenError):
    """The shell cannot run its part of the job; the job's author reads why."""


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stream of the tasks comes from or goes to."""

    type: Literal["kvs", "file", "service", "none"]
    path: str = ""
    """A template, of a file."""
    label: bool = False
    """Whether lines in a file begin with the rank that wrote them."""
    line_buffered: bool = True
    """Whether what a task writes waits until the line is complete."""


class PtyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which tasks are on pseudo-terminals, and what becomes of what they print."""

    ranks: frozenset[int] | None = frozenset()
    """None for all."""
    interactive: bool = False
    """Whether a client may be attached to that of task 0."""
    capture: bool = True
    """Whether what that one prints is written down."""
    size: tuple[int, int] = DEFAULT_SIZE

    def includes(self, rank: int) -> bool:
        """Return whether a task is on a terminal."""
        return self.ranks is None or rank in self.ranks


_KVS: Final = StreamOptions(type="kvs")
_NO_TERMINALS: Final = PtyOptions()
_DEFAULT_AFFINITY: Final = CpuAffinity()


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options, with their defaults."""

    verbose: int = 0
    nosetpgrp: bool = False
    stdout: StreamOptions = _KVS
    stderr: StreamOptions = StreamOptions(type="kvs", line_buffered=False)
    append: bool = False
    """Whether files of output are kept and added to."""
    output_limit: int = OUTPUT_LIMIT
    stdin: StreamOptions = StreamOptions(type="service")
    exit_timeout: float | None = EXIT_TIMEOUT
    exit_on_error: bool = False
    rlimits: Mapping[int, int] = msgspec.field(default_factory=dict)
    signal: tuple[int, float] | None = None
    """Which signal comes how many seconds before the time limit."""
    taskmap: tuple[str, str] = ("block", "")
    """A scheme, and its value."""
    per_resource: tuple[str, int] | None = None
    """A type of resource, and how many tasks there are for each."""
    pmi: bool = True
    cpu_affinity: CpuAffinity = _DEFAULT_AFFINITY
    gpu_affinity: Literal["on", "off", "per-task"] = "on"
    pty: PtyOptions = _NO_TERMINALS
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Environment variables whose values are templates."""


NO_OPTIONS: Final = Options()


def read(given: Any) -> Options:
    """Read the options of a jobspec. Raises CannotRun with the option that is wrong."""
    if not given:
        return NO_OPTIONS
    if not isinstance(given, Mapping):
        raise CannotRun("shell.options is not an object")
    output = _object(given, "output")
    stdout = _output(output, "stdout", _KVS)
    # Said of stdout alone, it is said of both.
    default = stdout if "type" in _object(output, "stdout", "output.") else _KVS
    return Options(
        verbose=_count(given, "verbose"),
        nosetpgrp=_flag(given, "nosetpgrp"),
        stdout=stdout,
        stderr=_output(output, "stderr", default),
        append=_one_of(output, "mode", ("truncate", "append"), "truncate", "output.") == "append",
        output_limit=_output_limit(output.get("limit")),
        stdin=_input(_object(given, "input")),
        exit_timeout=_exit_timeout(given.get("exit-timeout")),
        exit_on_error=_flag(given, "exit-on-error"),
        rlimits=_rlimits(_object(given, "rlimit")),
        signal=_signal(given.get("signal")),
        taskmap=_taskmap(given.get("taskmap")),
        per_resource=per_resource(given.get("per-resource"), "shell option per-resource"),
        pmi=_pmi(given.get("pmi")),
        cpu_affinity=_cpu_affinity(given.get("cpu-affinity", "on")),
        gpu_affinity=_one_of(given, "gpu-affinity", ("on", "off", "per-task"), "on"),  # type: ignore[arg-type]
        pty=_pty(given.get("pty")),
        variables=_texts(given, "env-expand"),
    )


def per_resource(given: Any, where: str) -> tuple[str, int] | None:
    """Read how many tasks there are for each of a type: `{type: node|core, count}`."""
    if given is None:
        return None
    if (
        not isinstance(given, Mapping)
        or given.get("type") not in ("node", "core")
        or not _is_integer(given.get("count", 1))
        or given.get("count", 1) < 1
    ):
        raise CannotRun(f"{where} is not a type, node or core, and a count from 1 on")
    return given["type"], given.get("count", 1)


# Standard I/O


def _output(output: Mapping[str, Any], name: str, default: StreamOptions) -> StreamOptions:
    given = _object(output, name, "output.")
    where = f"output.{name}."
    path = _text(given, "path", where) or default.path
    implied = "file" if "path" in given else default.type
    type_ = _one_of(given, "type", ("kvs", "file", "none"), implied, where)
    if type_ == "file" and not path:
        _refuse(f"{where}path", "is missing: a file has a path")
    buffer = _object(given, "buffer", where)
    default_buffering = "line" if name == "stdout" else "none"
    return StreamOptions(
        type=type_,  # type: ignore[arg-type]
        path=path if type_ == "file" else "",
        label=_flag(given, "label", where) if "label" in given else default.label,
        line_buffered=_one_of(
            buffer, "type", ("none", "line"), default_buffering, f"{where}buffer."
        )
        == "line",
    )


def _input(given: Mapping[str, Any]) -> StreamOptions:
    stdin = _object(given, "stdin", "input.")
    path = _text(stdin, "path", "input.stdin.")
    kinds = ("service", "file", "none")
    implied = "file" if path else "service"
    type_ = _one_of(stdin, "type", kinds, implied, "input.stdin.")
    if type_ == "file" and not path:
        _refuse("input.stdin.path", "is missing: a file has a path")
    return StreamOptions(type=type_, path=path if type_ == "file" else "")  # type: ignore[arg-type]


def _output_limit(given: Any) -> int:
    if given is None:
        return OUTPUT_LIMIT
    match = _SIZE_PATTERN.fullmatch(str(given))
    size = int(float(match[1]) * _UNITS[match[2]]) if match is not None else 0
    if not 0 < size <= MAX_OUTPUT_LIMIT:
        _refuse("output.limit", f"is {given!r}, not a size up to 1G, as in 10M")
    return size


# The rest


def _exit_timeout(given: Any) -> float | None:
    if given is None:
        return EXIT_TIMEOUT
    if given == "none":
        return None
    return _seconds(given, "exit-timeout")


def _rlimits(given: Mapping[str, Any]) -> dict[int, int]:
    found: dict[int, int] = {}
    for name, value in given.items():
        number = getattr(resource, f"RLIMIT_{str(name).upper()}", None)
        if number is None:
            _refuse(f"rlimit.{name}", "is no limit of this system")
        if not _is_integer(value) or not -1 <= value < 2**63:
            _refuse(f"rlimit.{name}", f"is {value!r}, not a whole number, or -1 for no limit")
        found[number] = value
    return found


def _signal(given: Any) -> tuple[int, float] | None:
    if given is None or given is False:
        return None
    if given is True or given == 1:
        return signal.SIGUSR1, TIME_LEFT
    if not isinstance(given, Mapping):
        _refuse("signal", f"is {given!r}, not an object with signum or timeleft")
    signum = given.get("signum", int(signal.SIGUSR1))
    if not _is_integer(signum) or not 0 < signum < signal.NSIG:
        _refuse("signal.signum", f"is {signum!r}, not the number of a signal")
    return signum, _seconds(given.get("timeleft", TIME_LEFT), "signal.timeleft")


def _taskmap(given: Any) -> tuple[str, str]:
    if given is None:
        return "block", ""
    if not isinstance(given, Mapping) or not isinstance(given.get("scheme"), str):
        _refuse("taskmap", "is not an object with a scheme")
    value = given.get("value", "")
    return given["scheme"], value if isinstance(value, str) else str(value)


def _pmi(given: Any) -> bool:
    if given is None:
        return True
    if not isinstance(given, str):
        _refuse("pmi", f"is {given!r}, not a list of names, as in simple")
    return bool({"simple", "pmi1", "pmi2"} & set(given.split(",")))


def _cpu_affinity(given: Any) -> CpuAffinity:
    try:
        return affinity.read(given)
    except BadFormat as error:
        _refuse("cpu-affinity", str(error))


def _pty(given: Any) -> PtyOptions:
    if given is None or given is False or given == 0:
        return _NO_TERMINALS
    if given is True or given == 1:
        return PtyOptions(ranks=None)
    if not isinstance(given, Mapping):
        _refuse("pty", f"is {given!r}, not a switch, or an object with ranks or interactive")
    interactive = _flag(given, "interactive", "pty.")
    ranks = _ranks(given.get("ranks", 0 if interactive else "all"))
    if interactive and ranks is not None:
        ranks |= {0}
    capture = _flag(given, "capture", "pty.") if "capture" in given else not interactive
    size = _size(given.get("size"))
    return PtyOptions(ranks=ranks, interactive=interactive, capture=capture, size=size)


def _ranks(given: Any) -> frozenset[int] | None:
    if given == "all":
        return None
    try:
        return frozenset(idset.decode(given if isinstance(given, str) else repr(given)))
    except BadFormat:
        _refuse("pty.ranks", f"is {given!r}, not ranks of tasks, as in 0,2-3, or all")


def _size(given: Any) -> tuple[int, int]:
    if given is None:
        return DEFAULT_SIZE
    match = re.fullmatch(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", str(given))
    if match is None:
        _refuse("pty.size", f"is {given!r}, not rows and columns, as in 24x80")
    return int(match[1]), int(match[2])


# Values


def _object(holder: Mapping[str, Any], key: str, where: str = "") -> Mapping[str, Any]:
    value = holder.get(key, {})
    if not isinstance(value, Mapping):
        _refuse(f"{where}{key}", "is not an object")
    return value


def _flag(holder: Mapping[str, Any], key: str, where: str = "") -> bool:
    value = holder.get(key, False)
    if value not in (0, 1):
        _refuse(f"{where}{key}", f"is {value!r}, not true or false")
    return bool(value)


def _count(holder: Mapping[str, Any], key: str) -> int:
    value = holder.get(key, 0)
    if not isinstance(value, int) or value < 0:
        _refuse(key, f"is {value!r}, not a number from 0 on")
    return int(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _text(holder: Mapping[str, Any], key: str, where: str) -> str:
    value = holder.get(key, "")
    if not isinstance(value, str) or "\0" in value:
        _refuse(f"{where}{key}", f"is {value!r}, not a path")
    return value


def _texts(holder: Mapping[str, Any], key: str) -> Mapping[str, str]:
    given = _object(holder, key)
    for name, value in given.items():
        if not name or not isinstance(value, str) or set("\0=") & set(name) or "\0" in value:
            _refuse(f"{key}.{name}", f"is {value!r}, not the value of a variable")
    return given


def _one_of(
    holder: Mapping[str, Any], key: str, known: tuple[str, ...], default: str, where: str = ""
) -> str:
    value = holder.get(key, default)
    if value not in known:
        _refuse(f"{where}{key}", f"is {value!r}, not one of {', '.join(known)}")
    return value  # type: ignore[no-any-return]


def _seconds(given: Any, where: str) -> float:
    try:
        return duration.parse(given if isinstance(given, str) else repr(given))
    except BadFormat as error:
        _refuse(where, str(error))


def _refuse(option: str, problem: str) -> NoReturn:
    raise CannotRun(f"shell option {option} {problem}")
