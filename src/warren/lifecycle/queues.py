"""The state of queues: which are enabled, and which are started (RFC 33).

Its owner enables and disables, starts and stops them, and that
outlives a restart. This module knows what follows; `instance.queues` keeps it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren.base.errors import UserMistake
from warren.lifecycle.policy import Queue, QueueLimits, queue_choices, queue_property
from warren.rfc import hostlist
from warren.rfc.errors import BadFormat

_VERSION: Final = 1


class QueueState(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a queue takes jobs, and whether it gives them to the scheduler."""

    enable: bool = True
    start: bool = True
    disable_reason: str | None = None
    stop_reason: str | None = None


QueueStates = Mapping[str | None, QueueState]
"""By the queue's name; None is the anonymous queue, which is alone."""

Change = Callable[[QueueState], QueueState]
"""Returns the state of a queue after a change."""


def initial_state(queue: str | None) -> QueueState:
    """Return a queue as it is at first: only the anonymous one is started, as with Flux."""
    if queue is None:
        return QueueState()
    return QueueState(start=False, stop_reason="it was never started")


def enable_change(enable: bool, reason: str | None = None) -> Change:
    """Return what enables or disables a queue, for a reason that users who submit will read."""
    why = None if enable else reason
    return lambda state: replace(state, enable=enable, disable_reason=why)


def start_change(start: bool, reason: str | None = None) -> Change:
    """Return what starts or stops a queue: whether its jobs go to the scheduler."""
    why = None if start else reason
    return lambda state: replace(state, start=start, stop_reason=why)


def change_states(states: QueueStates, names: Iterable[str | None], change: Change) -> QueueStates:
    """Return the states with some of the queues changed."""
    return {**states, **{name: change(states[name]) for name in names}}


def choose(states: QueueStates, name: str | None, *, all_: bool) -> list[str | None]:
    """Return the queues that a request is about. Raises UserMistake where it is not clear."""
    if name is not None:
        return [require_queue(states, name)]
    if None not in states and not all_:
        raise UserMistake(f"There are named queues: {_choices(states)}, or say all of them.")
    return list(states)


def require_queue(states: QueueStates, name: str | None) -> str | None:
    """Return the name of a queue that must be there. Raises UserMistake where it is not."""
    if name in states:
        return name
    if name is None:
        raise UserMistake(f"There are named queues: {_choices(states)}.")
    raise UserMistake(f"There is no queue {name!r}: {_choices(states)}.")


def refusal(states: QueueStates, queue: str | None) -> str | None:
    """Return why a queue takes no jobs now; None if it does."""
    state = states[queue]
    if state.enable:
        return None
    where = "job submission" if queue is None else f"job submission to {queue}"
    return f"{where} is disabled: {state.disable_reason or 'no reason was given'}"


def is_eligible(
    states: QueueStates, limits_by_queue: Mapping[str | None, QueueLimits], queue: str | None
) -> bool:
    """Return whether a queue's jobs are for the scheduler now.

    Those of a virtual queue are if its parent is started, too. Those of a queue that the
    configuration no longer has wait, as with Flux: they may be brought into another one.
    """
    state = states.get(queue)
    if state is None or not state.start:
        return False
    parent = limits_by_queue[queue].parent
    return parent is None or states[parent].start


def status(
    states: QueueStates, limits_by_queue: Mapping[str | None, QueueLimits], queue: str | None
) -> dict[str, Any]:
    """Return a queue as `job-manager.queue-status` shows it: started if its jobs are eligible."""
    state, parent = states[queue], limits_by_queue[queue].parent
    blocked = state.start and parent is not None and not states[parent].start
    fields: dict[str, Any] = {"enable": state.enable, "start": state.start and not blocked}
    if not state.enable:
        fields["disable_reason"] = state.disable_reason or ""
    if not fields["start"]:
        reason = states[parent].stop_reason if blocked else state.stop_reason
        if reason is not None:
            fields["stop_reason"] = reason
    if blocked:
        fields["blocked"] = "parent"
    if parent is not None:
        fields["parent"] = parent
    return fields


# What outlives a restart


def encode(states: QueueStates) -> dict[str, Any]:
    """Write queues as Flux has them in its checkpoint."""
    entries = []
    for name, state in states.items():
        entry: dict[str, Any] = {} if name is None else {"name": name}
        entry |= {"enable": state.enable, "start": state.start}
        for key in ("disable_reason", "stop_reason"):
            if getattr(state, key) is not None:
                entry[key] = getattr(state, key)
        entries.append(entry)
    return {"version": _VERSION, "queue": entries}


def decode(checkpoint: Any, queues: Iterable[str | None]) -> QueueStates:
    """Return the queues of a configuration as a checkpoint has them, and new ones as at first.

    What is in it of queues that are no more is forgotten. Raises BadFormat.
    """
    if not isinstance(checkpoint, Mapping) or checkpoint.get("version") != _VERSION:
        raise BadFormat(f"the checkpoint of the queues is not of version {_VERSION}")
    entries = checkpoint.get("queue")
    if not isinstance(entries, list):
        raise BadFormat("the checkpoint of the queues has no list of them")
    saved = dict(map(_entry, entries))
    return {name: saved.get(name) or initial_state(name) for name in queues}


def _entry(entry: Any) -> tuple[str | None, QueueState]:
    if not isinstance(entry, Mapping):
        raise BadFormat("the checkpoint of the queues holds one that is not an object")
    for key in ("enable", "start"):
        if not isinstance(entry.get(key), bool):
            raise BadFormat(f"the checkpoint of the queues holds one whose {key} is not true/false")
    for key in ("name", "disable_reason", "stop_reason"):
        if not isinstance(entry.get(key, ""), str):
            raise BadFormat(f"the checkpoint of the queues holds one whose {key} is not a string")
    return entry.get("name"), QueueState(
        enable=entry["enable"],
        start=entry["start"],
        disable_reason=entry.get("disable_reason"),
        stop_reason=entry.get("stop_reason"),
    )


# Nodes


def hosts_by_property(
    queues: Mapping[str, Queue], hostlist_by_property: Mapping[str, str], hosts: Collection[str]
) -> dict[str, frozenset[str]]:
    """Return the hosts of each property: of `hostlist_by_property`, and of `+NAME` for each queue.

    `hosts` are all there are. Raises UserMistake with the path for one that is not among them.
    """
    hostlists = {
        f"resource.properties.{name}": (name, text) for name, text in hostlist_by_property.items()
    }
    for name, queue in queues.items():
        if queue.hosts is not None:
            hostlists[f"queues.{name}.hosts"] = (queue_property(name), queue.hosts)
    hosts_by_property: dict[str, frozenset[str]] = {}
    for path, (name, text) in hostlists.items():
        named_hosts = hostlist.decode(text)
        for host in named_hosts:
            if host not in hosts:
                raise UserMistake(f"{path} names {host!r}, which is no node of the system.")
        hosts_by_property[name] = frozenset(named_hosts)
    return hosts_by_property


def _choices(states: QueueStates) -> str:
    return queue_choices(name for name in states if name is not None)
