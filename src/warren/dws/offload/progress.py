"""How far a copy is that a running job has asked for, in the words of the API for it.

Those are the words of NNF's library, whose applications read them (dws-spec section 18).
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from warren.base.objects import Object
from warren.base.times import parse_rfc3339

_UNKNOWN_STATUS: Final = "unknown status"
_STATES: Final[Mapping[str, str]] = {
    "Starting": "starting",
    "Running": "running",
    "Finished": "completed",
}
_STATUSES: Final[Mapping[str, str]] = {
    "Success": "success",
    "Failed": "failed",
    "Invalid": "invalid",
    "Cancelled": "cancelled",
}
_COMMAND_FIELDS: Final = ("command", "progress", "elapsedTime", "lastMessage")


def body(movement: Object) -> bytes:
    """Return what an application is told of a movement, as JSON on a line."""
    return msgspec.json.encode(progress_report(movement)) + b"\n"


def progress_report(movement: Object) -> Object:
    """Return what an application is told of a movement; what is empty is left out."""
    status = movement.get("status") or {}
    if not status.get("startTime") and status.get("state") != "Finished":
        return {"state": "pending", "status": _UNKNOWN_STATUS}
    state = _STATES.get(status.get("state", ""), "unknown state")
    if state != "completed" and movement["spec"].get("cancel"):
        state = "cancelling"
    report = {
        "state": state,
        "status": _STATUSES.get(status.get("status", ""), _UNKNOWN_STATUS),
        "message": status.get("message"),
        "commandStatus": _command_status(status.get("commandStatus") or {}),
        "startTime": _go_time(status.get("startTime")),
        "endTime": _go_time(status.get("endTime")),
    }
    return {name: value for name, value in report.items() if value or name == "commandStatus"}


def _command_status(status: Object) -> dict[str, Any]:
    fields = {name: status[name] for name in _COMMAND_FIELDS if status.get(name)}
    message_time = _go_time(status.get("lastMessageTime"))
    return fields | ({"lastMessageTime": message_time} if message_time else {})


def _go_time(text: str | None) -> str:
    """Return a moment as Go prints it, in UTC."""
    if not text:
        return ""
    return f"{datetime.fromtimestamp(parse_rfc3339(text), UTC):%Y-%m-%d %H:%M:%S.%f +0000 UTC}"
