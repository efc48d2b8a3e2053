"""Which jobs a command is about, from its options: users, states, moments."""

import os
import pwd
import re
from collections.abc import Iterable
from datetime import datetime, time, timedelta
from math import isfinite
from typing import Any

from warren.base.errors import UserMistake
from warren.lifecycle import selection
from warren.lifecycle.states import State
from warren.rfc import duration, hostlist, idset
from warren.rfc.errors import BadFormat


def userid(user: str | None) -> int | None:
    """Return the number of a user by name or number; None for `all`. Ours where none is named."""
    if user is None:
        return os.getuid()
    if user == "all":
        return None
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise UserMistake(f"there is no user {user!r}.") from None


def by_user(user: int | None) -> list[dict[str, Any]]:
    """Return the constraints that select a user's jobs; none for those of all users."""
    return [] if user is None else [{"userid": [user]}]


def by_status(names: str) -> dict[str, Any]:
    """Return the constraint of states and results with commas between them: `pending,failed`."""
    states = results = 0
    for name in _split_names(names):
        try:
            results |= selection.result_bits(name)
        except BadFormat:
            try:
                states |= selection.state_bits(name)
            except BadFormat as error:
                raise UserMistake(f"{error}, or a result: completed, failed, canceled, timeout.") \
                    from None  # fmt: skip
    return {"or": [{"states": [states]}, {"results": [results]}]}


def by_states(names: str) -> dict[str, Any]:
    """Return the constraint of states of active jobs with commas between them: `depend,run`."""
    states = 0
    for name in _split_names(names):
        states |= selection.state_bits(name)
    if states & State.INACTIVE.bit:
        raise UserMistake("inactive jobs are over: name states of active ones.")
    return {"states": [states]}


def state_bit(name: str) -> int:
    """Return the bit of one state by its name."""
    bit = selection.state_bits(name)
    if bit not in [each.bit for each in State]:
        raise UserMistake(f"{name!r} is several states: name one.")
    return bit


def by_nodes(nodes: str) -> dict[str, Any]:
    """Return the constraint of hosts, or of ranks: `n[0-3]`, `0-3`."""
    try:
        idset.decode(nodes)
    except BadFormat:
        try:
            hostlist.decode(nodes)
        except BadFormat as error:
            raise UserMistake(f"{nodes!r} is neither ranks nor hosts: {error}.") from None
        return {"hostlist": [nodes]}
    return {"ranks": [nodes]}


def by_names(operator: str, names: str) -> dict[str, Any]:
    """Return the constraint of names with commas between them."""
    return {operator: list(_split_names(names))}


def past_time(text: str, now: float) -> float:
    """Read a time in the past, in seconds since the epoch.

    Seconds, an ISO 8601 date or time, `-2h`, `2h ago`, `today`, `yesterday`. Raises UserMistake
    for anything else, and for a time in the future.
    """
    moment = _parse_time(text.strip(), now)
    if moment > now:
        raise UserMistake(f"{text!r} is in the future.")
    return moment


def _parse_time(text: str, now: float) -> float:
    if text == "now":
        return now
    if text in ("today", "yesterday"):
        today = datetime.fromtimestamp(now).date()  # noqa: DTZ006 - local time is meant
        day = today - timedelta(days=text == "yesterday")
        # By the rules of the place: at midnight clocks may have shown another offset than now.
        return datetime.combine(day, time()).timestamp()
    past_match = re.fullmatch(r"-\s*(\S+)|(\S+)\s+ago", text)
    try:
        if past_match is not None:
            span = duration.parse(past_match[1] or past_match[2])
            if not isfinite(span):
                raise ValueError(span)
            return now - span
        if re.fullmatch(r"[0-9]+(\.[0-9]*)?", text):
            return float(text)
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (BadFormat, ValueError, OverflowError, OSError):
        raise UserMistake(
            f"{text!r} is not a time: write seconds since the epoch, 2026-01-31, "
            "2026-01-31T12:00, -2h, today or yesterday."
        ) from None


def _split_names(names: str) -> Iterable[str]:
    return (name.strip() for name in names.split(",") if name.strip())
