"""The fields of a job as `flux jobs` names them, from the attributes that job-list tells."""

import json
from collections.abc import Callable, Iterable, Mapping
from signal import NSIG, strsignal
from typing import Any, Final

import msgspec

from warren.cli.common import SPELLINGS, f58
from warren.cli.outputformat import Row, fsd
from warren.lifecycle.attributes import DAMAGE, returncode
from warren.lifecycle.states import PENDING, RUNNING, Result, State

Attributes = Mapping[str, Any]

FORMATS: Final[Mapping[str, tuple[str, str]]] = {
    "default": (
        "What is usually wanted",
        "{id.f58:>12} ?:{queue:<8.8} +:{username:<8} {name:<10.10+} {status_abbrev:>2.2} "
        "{ntasks:>6} {nnodes:>6h} {contextual_time!F:>8h} {contextual_info}",
    ),
    "cute": (
        "The same, with pictures",
        "{id.f58:>12} ?:{queue:<8.8} +:{username:<8} {name:<10.10+} {status_emoji:>5.5} "
        "{ntasks:>6} {nnodes:>6h} {contextual_time!F:>8h} {contextual_info}",
    ),
    "long": (
        "More, with when it was submitted and the time that is left",
        "{id.f58:>12} ?:{queue:<8.8} +:{username:<8} {name:<10.10+} {status:>9.9} "
        "{ntasks:>6} {nnodes:>6h} {t_submit!d:%b%d %R::>12} {t_remaining!F:>12h} "
        "{contextual_time!F:>8h} {contextual_info}",
    ),
    "deps": (
        "Urgency, priority and dependencies",
        "{id.f58:>12} ?:{queue:<8.8} {name:<10.10+} {urgency:<3} {priority:<12} {state:<8.8} "
        "{dependencies}",
    ),
    "endreason": (
        "When and why jobs ended",
        "{id.f58:>12} ?:{queue:<8.8} +:{username:<8} {name:<10.10+} {status_abbrev:>2.2} "
        "{t_inactive!d:%b%d %R::>12h} {inactive_reason}",
    ),
}
"""The formats that have a name: what each shows, and the format."""

_EMOJI: Final = {
    State.NEW: "🌱",
    State.DEPEND: "⛓️",
    State.PRIORITY: "🎟️",
    State.SCHED: "⌚",
    State.RUN: "🏃",
    State.CLEANUP: "🧹",
    Result.COMPLETED: "✅",
    Result.FAILED: "❌",
    Result.CANCELED: "🛑",
    Result.TIMEOUT: "⌛",
}


class _JobSnapshot(msgspec.Struct, frozen=True):
    """A job's attributes, at a moment."""

    attributes: Attributes
    now: float
    username: Callable[[int], str]

    def get(self, name: str) -> Any:
        return self.attributes.get(name, "")

    @property
    def state(self) -> State:
        return next(state for state in State if state.bit == self.attributes["state"])

    @property
    def result(self) -> Result | None:
        bit = self.attributes.get("result")
        return next((result for result in Result if result.bit == bit), None)

    @property
    def status(self) -> State | Result:
        return self.result or self.state

    @property
    def runtime(self) -> float:
        began, ended = self.attributes.get("t_run"), self.attributes.get("t_cleanup", self.now)
        # The clock may have been set back since: no time has passed, then.
        return 0.0 if began is None else max(0.0, ended - began)


class _Field(msgspec.Struct, frozen=True):
    heading: str
    needs: tuple[str, ...]
    """The attributes that it is made of."""
    value: Callable[[_JobSnapshot], Any]


def heading(name: str) -> str | None:
    """Return the heading of a field; None where there is no such field."""
    if name in _FIELDS:
        return _FIELDS[name].heading
    top, _, path = name.partition(".")
    if top == "annotations" and path:
        return _FIELDS[path].heading if path in _FIELDS and "." in path else path.upper()
    return name.upper() if top in ("sched", "user") and path else None


def needed_attributes(names: Iterable[str]) -> list[str]:
    """Return the attributes that fields are made of."""
    attributes: dict[str, None] = {}
    for name in names:
        for attribute in _FIELDS[name].needs if name in _FIELDS else ("annotations",):
            attributes[attribute] = None
    return list(attributes)


def row(attributes: Attributes, now: float, username: Callable[[int], str]) -> Row:
    """Return the function that returns a job's fields by name, as they are at a moment."""
    job = _JobSnapshot(attributes, now, username)

    def value(name: str) -> Any:
        if name in _FIELDS:
            return _FIELDS[name].value(job)
        return _annotation(job, name.removeprefix("annotations."))

    return value


def _annotation(job: _JobSnapshot, path: str) -> Any:
    value: Any = job.attributes.get("annotations", {})
    for name in path.split(".") if path else ():
        value = value.get(name, "") if isinstance(value, Mapping) else ""
    if isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False) if value else ""
    return "" if value is None else value


# Values that are made of several attributes


def _remaining(job: _JobSnapshot) -> float:
    if job.state not in RUNNING or not job.attributes.get("expiration"):
        return 0.0
    seconds_left: float = job.attributes["expiration"] - job.now
    return max(0.0, seconds_left)


def _contextual_time(job: _JobSnapshot) -> Any:
    """Return the time limit of a job that waits, or how long any other one has run."""
    return job.get("duration") if job.state in PENDING else job.runtime


WAIT: Final = "wait"
"""The attribute that job-list does not have: what a job waits for, if that was asked (`waits`)."""


def _contextual_info(job: _JobSnapshot) -> str:
    """Return what a job waits for, or where it is."""
    info, wait = _state_info(job), job.attributes.get(WAIT)
    if wait and info == _annotation(job, "sched.reason_pending"):
        return str(wait)  # it is the same in full
    return "; ".join(filter(None, (info, wait)))


def _state_info(job: _JobSnapshot) -> str:
    match job.state:
        case State.DEPEND:
            return f"depends:{','.join(job.attributes.get('dependencies', ()))}"
        case State.PRIORITY:
            return "priority-wait"
        case State.SCHED:
            return _sched_info(job)
        case State.INACTIVE if DAMAGE in job.attributes:
            return f"damaged: {job.get(DAMAGE)}"
        case State.INACTIVE if job.result is Result.FAILED and _ended_by_exception(job):
            # Its tasks may have succeeded: without these words there is no telling what failed.
            note = str(job.get("exception_note")).partition("\n")[0]
            return note or str(job.get("exception_type"))
        case _:
            return str(job.get("nodelist"))


def _sched_info(job: _JobSnapshot) -> str:
    estimate = _annotation(job, "sched.t_estimate")
    if isinstance(estimate, int | float):
        return "eta:now" if estimate <= job.now else f"eta:{fsd(estimate - job.now)}"
    if job.attributes.get("priority") == 0:
        return "held" if job.attributes.get("urgency") == 0 else "priority-hold"
    return str(_annotation(job, "sched.reason_pending"))


_SHELL_ERRORS: Final = {126: "Command invoked cannot execute", 127: "command not found"}


def _ended_by_exception(job: _JobSnapshot) -> bool:
    """Return whether an exception was the end of a job; those of exec say less than its code."""
    return job.attributes.get("exception_severity") == 0 and (
        job.attributes.get("waitstatus") == 0 or job.attributes["exception_type"] != "exec"
    )


def _inactive_reason(job: _JobSnapshot) -> str:
    result, status = job.result, job.attributes.get("waitstatus")
    note = str(job.get("exception_note")).partition("\n")[0]
    match result:
        case None:
            return ""
        case Result.CANCELED:
            return f"Canceled: {note}" if note else "Canceled"
        case Result.TIMEOUT:
            return "Timeout"
        case Result.FAILED if status is None or _ended_by_exception(job):
            note_text = f" note={note}" if note else ""
            return f"Exception: type={job.get('exception_type')}{note_text}"
    code = returncode(result, status)
    if code in _SHELL_ERRORS:
        return _SHELL_ERRORS[code]
    # A shell that says how a task was ended by a signal says it as shells do.
    signum = -code if code < 0 else code - 128
    return (strsignal(signum) if 0 < signum < NSIG else None) or f"Exit {code}"


def _returncode(job: _JobSnapshot) -> Any:
    result = job.result
    return "" if result is None else returncode(result, job.attributes.get("waitstatus"))


def _attribute_field(heading: str, attribute: str) -> _Field:
    return _Field(heading, (attribute,), lambda job: job.get(attribute))


def _annotation_field(heading: str, path: str) -> _Field:
    return _Field(heading, ("annotations",), lambda job: _annotation(job, path))


def _id_field(spell: Callable[[int], Any]) -> _Field:
    return _Field("JOBID", (), lambda job: spell(job.attributes["id"]))


_STATUS_ATTRIBUTES: Final = ("state", "result")


_FIELDS: Final[Mapping[str, _Field]] = {
    "id": _id_field(f58),
    **{f"id.{name}": _id_field(spell) for name, spell in SPELLINGS.items()},
    "userid": _attribute_field("UID", "userid"),
    "username": _Field("USER", ("userid",), lambda job: job.username(job.attributes["userid"])),
    "urgency": _attribute_field("URG", "urgency"),
    "priority": _attribute_field("PRI", "priority"),
    "state": _Field("STATE", ("state",), lambda job: job.state.value),
    "state_single": _Field("S", ("state",), lambda job: job.state.letter),
    "state_emoji": _Field("STATE", ("state",), lambda job: _EMOJI.get(job.state, "💀")),
    "name": _attribute_field("NAME", "name"),
    "cwd": _attribute_field("CWD", "cwd"),
    "queue": _attribute_field("QUEUE", "queue"),
    "project": _attribute_field("PROJECT", "project"),
    "bank": _attribute_field("BANK", "bank"),
    "ntasks": _attribute_field("NTASKS", "ntasks"),
    "ncores": _attribute_field("NCORES", "ncores"),
    "nnodes": _attribute_field("NNODES", "nnodes"),
    "ranks": _attribute_field("RANKS", "ranks"),
    "nodelist": _attribute_field("NODELIST", "nodelist"),
    "success": _attribute_field("SUCCESS", "success"),
    "result": _Field("RESULT", ("result",), lambda job: job.result.value if job.result else ""),
    "result_abbrev": _Field(
        "RS", ("result",), lambda job: job.result.abbreviation if job.result else ""
    ),
    "result_emoji": _Field(
        "RESULT", ("result",), lambda job: _EMOJI[job.result] if job.result else ""
    ),
    **{
        f"t_{name}": _attribute_field(f"T_{name.upper()}", f"t_{name}")
        for name in ("submit", "depend", "priority", "sched", "run", "cleanup", "inactive")
    },
    "runtime": _Field("RUNTIME", ("t_run", "t_cleanup"), lambda job: job.runtime),
    "duration": _attribute_field("DURATION", "duration"),
    "expiration": _attribute_field("EXPIRATION", "expiration"),
    "t_remaining": _Field("T_REMAINING", ("expiration", "state"), _remaining),
    "status": _Field("STATUS", _STATUS_ATTRIBUTES, lambda job: job.status.value),
    "status_abbrev": _Field(
        "ST",
        _STATUS_ATTRIBUTES,
        lambda job: job.result.abbreviation if job.result else job.state.letter,
    ),
    "status_emoji": _Field("STATUS", _STATUS_ATTRIBUTES, lambda job: _EMOJI[job.status]),
    "waitstatus": _attribute_field("WSTATUS", "waitstatus"),
    "returncode": _Field("RC", ("waitstatus", "result"), _returncode),
    "exception.occurred": _attribute_field("EXCEPTION-OCCURRED", "exception_occurred"),
    "exception.severity": _attribute_field("EXCEPTION-SEVERITY", "exception_severity"),
    "exception.type": _attribute_field("EXCEPTION-TYPE", "exception_type"),
    "exception.note": _attribute_field("EXCEPTION-NOTE", "exception_note"),
    "inactive_reason": _Field(
        "INACTIVE-REASON",
        ("result", "waitstatus", "exception_severity", "exception_type", "exception_note"),
        _inactive_reason,
    ),
    "contextual_time": _Field(
        "TIME", ("state", "duration", "t_run", "t_cleanup"), _contextual_time
    ),
    "contextual_info": _Field(
        "INFO",
        (
            *("state", "dependencies", "annotations", "priority", "urgency", "nodelist", "queue"),
            *("result", "waitstatus", "exception_severity", "exception_type", "exception_note"),
        ),
        _contextual_info,
    ),
    "annotations": _annotation_field("ANNOTATIONS", ""),
    "sched": _annotation_field("SCHED", "sched"),
    "user": _annotation_field("USER", "user"),
    "sched.t_estimate": _annotation_field("T_ESTIMATE", "sched.t_estimate"),
    "sched.reason_pending": _annotation_field("REASON", "sched.reason_pending"),
    "sched.resource_summary": _annotation_field("RESOURCES", "sched.resource_summary"),
    "dependencies": _Field(
        "DEPENDENCIES", ("dependencies",), lambda job: ",".join(job.get("dependencies") or ())
    ),
}
"""Every field but those below `annotations`, `sched` and `user`, which all plugins may add to."""
