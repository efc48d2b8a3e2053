"""Events of jobs, for tests."""

from typing import Any

from warren.lifecycle.job import Job, from_submit, update
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId

ID = JobId(1 << 24)

CONTEXTS: dict[str, list[dict[str, Any]]] = {
    "validate": [{}],
    "invalidate": [{}],
    "set-flags": [{"flags": ["alloc-bypass"]}, {"flags": ["debug", "immutable"]}],
    "dependency-add": [{"description": "dws-create"}, {"description": "begin-time"}],
    "dependency-remove": [{"description": "dws-create"}, {"description": "begin-time"}],
    "depend": [{}],
    "priority": [{"priority": 16}, {"priority": 0}],
    "urgency": [{"urgency": 31, "userid": 5}],
    "jobspec-update": [{"attributes.system.duration": 5}],
    "resource-update": [{"expiration": 1000}],
    "flux-restart": [{}],
    "alloc": [{}, {"annotations": {"sched": {"resource_summary": "n0"}}}],
    "prolog-start": [{"description": "dws-setup"}],
    "prolog-finish": [{"description": "dws-setup", "status": 0}],
    "start": [{}],
    "finish": [{"status": 0}, {"status": 256}],
    "epilog-start": [{"description": "dws-epilog"}],
    "epilog-finish": [{"description": "dws-epilog", "status": 0}],
    "release": [{"ranks": "0", "final": False}, {"ranks": "all", "final": True}],
    "partial-free": [{"ranks": "1"}, {"ranks": "2-3"}],
    "free": [{}],
    "clean": [{}],
    "exception": [
        {"type": "cancel", "severity": 0, "note": ""},
        {"type": "timeout", "severity": 0, "note": "too long"},
        {"type": "exec", "severity": 0, "wait_status": 9},
        {"type": "note", "severity": 7},
    ],
    "memo": [{"rabbits": "r0"}, {"rabbits": None}],
    "annotations": [{"annotations": {"sched": {"reason_pending": "busy"}}}, {"annotations": None}],
    "dws_environment": [{"variables": {}}],
    "debug.free-request": [{}],
}
"""The contexts that an event may have, by its name."""

SUBMIT = Event(1.0, "submit", {"userid": 5588, "urgency": 16, "flags": 0, "version": 1})

LIFE = [
    "validate",
    "dependency-add",
    "dependency-remove",
    "depend",
    "priority",
    "alloc",
    "prolog-start",
    "prolog-finish",
    "start",
    "finish",
    "epilog-start",
    "release",
    "epilog-finish",
    "free",
    "clean",
]
"""The events of a rabbit job to which nothing happens."""


def event(name: str, now: float = 2.0, **context: Any) -> Event:
    """Make an event, by default with the last of its usual contexts but the first of `finish`."""
    usual = CONTEXTS.get(name, [{}])
    return Event(now, name, {**usual[-1 if name == "release" else 0], **context})


def job(*events: str | Event) -> Job:
    """Return a job that was submitted and then met these events."""
    known = from_submit(ID, SUBMIT)
    for each in events:
        known = update(known, event(each) if isinstance(each, str) else each)
    return known
