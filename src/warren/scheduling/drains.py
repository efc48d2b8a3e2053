"""Which nodes are drained, since when and why, and which are offline: what RFC 44's events say.

The log of these events is the truth, and is only ever added to: `update_drains` reads one event,
`drain_context` and `undrain_context` say what the next one has, or why there is none. Requests
name nodes by rank, and the log by name, so that a drain stays with its node when the ranks change.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.rfc import hostlist, idset
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event

HostByRank = Mapping[int, str]
"""The names of all nodes of the system, by rank."""


class NodeState(StrEnum):
    """The state of a node, as `flux resource` names it."""

    FREE = "free"
    ALLOCATED = "allocated"
    DRAINING = "draining"
    """Drained, but a job still has some of it."""
    DRAINED = "drained"
    OFFLINE = "offline"
    EXCLUDED = "exclude"
    """Kept from jobs by the configuration."""


class Drain(msgspec.Struct, frozen=True):
    """That a node is drained: since when, in seconds since the epoch, and why, if that was told."""

    since: float
    reason: str = ""


Drains = Mapping[int, Drain]
"""The drained nodes, by rank."""

_OVERWRITE_BY_MODE: Final[Mapping[str | None, int]] = {
    None: 0,
    "update": 0,
    "overwrite": 1,
    "force-overwrite": 2,
}
"""What becomes of nodes that are drained already: by the mode of a request, as an event says it.

0: what is known of them stays, but a reason is added where there was none; 1: the reason is
replaced; 2: the moment, too. A request without a mode is refused instead.
"""


class AlreadyInState(UserMistake):
    """Nodes are already what they were to become."""


def node_state(*, excluded: bool, drained: bool, offline: bool, used: bool) -> NodeState:
    """Return the state of a node: the one of them that lasts the longest."""
    if excluded:
        return NodeState.EXCLUDED
    if drained:
        return NodeState.DRAINING if used else NodeState.DRAINED
    if offline:
        return NodeState.OFFLINE
    return NodeState.ALLOCATED if used else NodeState.FREE


def parse_targets(text: str, host_by_rank: HostByRank) -> tuple[int, ...]:
    """Read which nodes are meant: an idset of ranks, or a hostlist. Gives ranks, ascending.

    Raises UserMistake where it is neither, or names none or one that is not here.
    """
    ranks: Iterable[int]
    try:
        ranks = idset.decode(text)
        unknown = [str(rank) for rank in ranks if rank not in host_by_rank]
    except BadFormat:
        rank_by_host = {host: rank for rank, host in host_by_rank.items()}
        names = hostlist.decode(text)
        unknown = [name for name in names if name not in rank_by_host]
        ranks = [rank_by_host[name] for name in names if name in rank_by_host]
    hint = (
        f"name some of {hostlist.encode(host_by_rank.values())}, or of the ranks "
        f"{idset.encode(host_by_rank)}"
    )
    if unknown:
        raise UserMistake(f"There is no node {hostlist.encode(unknown)} here: {hint}.")
    if not ranks:
        raise UserMistake(f"{text!r} names no node: {hint}.")
    return tuple(sorted(set(ranks)))


def drain_context(
    drains: Drains,
    host_by_rank: HostByRank,
    ranks: Sequence[int],
    reason: str,
    mode: str | None,
    excluded: Collection[int] = (),
) -> dict[str, Any]:
    """Return the context of the event `drain`.

    Raises AlreadyInState where nodes are drained already, and no mode says what becomes of them;
    UserMistake for nodes that no job gets anyway.
    """
    _check_mode(mode, _OVERWRITE_BY_MODE)
    excluded_ranks = [rank for rank in ranks if rank in excluded]
    if excluded_ranks:
        raise UserMistake(
            f"{_name_nodes(excluded_ranks, host_by_rank)} excluded by the configuration, and "
            "cannot be drained: leave them out."
        )
    drained_already = [rank for rank in ranks if rank in drains]
    if drained_already and mode is None:
        raise AlreadyInState(
            f"{_name_nodes(drained_already, host_by_rank)} drained already: --update leaves that "
            "as it is, --force gives the new reason."
        )
    return {**_context(ranks, host_by_rank, reason), "overwrite": _OVERWRITE_BY_MODE[mode]}


def undrain_context(
    drains: Drains, host_by_rank: HostByRank, ranks: Sequence[int], reason: str, mode: str | None
) -> dict[str, Any]:
    """Return the context of the event `undrain`.

    Raises AlreadyInState where nodes are not drained, unless the mode is `force`.
    """
    _check_mode(mode, (None, "force"))
    not_drained = [rank for rank in ranks if rank not in drains]
    if not_drained and mode is None:
        raise AlreadyInState(
            f"{_name_nodes(not_drained, host_by_rank)} not drained: name others, or use --force "
            "for those that are."
        )
    return _context(ranks, host_by_rank, reason)


def _check_mode(mode: str | None, modes: Iterable[str | None]) -> None:
    if mode not in modes:
        choices = ", ".join(each for each in modes if each is not None)
        raise UserMistake(f"There is no mode {mode!r}: leave it out, or name one of {choices}.")


def update_drains(drains: Drains, event: Event, host_by_rank: HostByRank) -> Drains:
    """Apply an event of the log.

    Events of other things, and nodes that the system no longer has, are ignored.

    Raises BadFormat where a drain does not say what it must.
    """
    if event.name not in ("drain", "undrain"):
        return drains
    context = event.context
    changed = dict(drains)
    for rank in _ranks(event, host_by_rank):
        if event.name == "undrain":
            changed.pop(rank, None)
        else:
            new = Drain(event.timestamp, str(context.get("reason", "")))
            changed[rank] = _combined(drains.get(rank), new, context.get("overwrite", 0))
    return changed


def update_offline(
    offline_ranks: frozenset[int], event: Event, host_by_rank: HostByRank
) -> frozenset[int]:
    """Return the ranks that are offline after an event of the log.

    Ranks may be others after a `restart`, which tells anew which are online. Raises BadFormat.
    """
    match event.name:
        case "restart":
            online = _idset(event, "online")
            return frozenset(
                rank for rank in _idset(event, "ranks") - online if rank in host_by_rank
            )
        case "offline":
            return offline_ranks | (_idset(event, "idset") & host_by_rank.keys())
        case "online":
            return offline_ranks - _idset(event, "idset")
    return offline_ranks


def _idset(event: Event, key: str) -> frozenset[int]:
    text = event.context.get(key)
    if not isinstance(text, str):
        raise BadFormat(f"the event {event.name!r} at {event.timestamp} has no {key}")
    return frozenset(idset.decode(text))


def _combined(previous: Drain | None, new: Drain, overwrite: object) -> Drain:
    if previous is None or overwrite == 2:
        return new
    if overwrite == 1 or not previous.reason:
        return Drain(previous.since, new.reason)
    return previous


def _ranks(event: Event, host_by_rank: HostByRank) -> list[int]:
    """Return the ranks that an event is about, by the names of its nodes."""
    names = event.context.get("nodelist")
    if not isinstance(names, str):
        raise BadFormat(f"the event {event.name!r} at {event.timestamp} has no nodelist")
    rank_by_host = {host: rank for rank, host in host_by_rank.items()}
    return [rank_by_host[name] for name in hostlist.decode(names) if name in rank_by_host]


def _context(ranks: Sequence[int], host_by_rank: HostByRank, reason: str) -> dict[str, Any]:
    nodes = {"idset": idset.encode(ranks), "nodelist": _nodelist(ranks, host_by_rank)}
    return {**nodes, "reason": reason} if reason else nodes


def _nodelist(ranks: Sequence[int], host_by_rank: HostByRank) -> str:
    return hostlist.encode(host_by_rank[rank] for rank in sorted(ranks))


def _name_nodes(ranks: Sequence[int], host_by_rank: HostByRank) -> str:
    return f"{_nodelist(ranks, host_by_rank)} {'is' if len(ranks) == 1 else 'are'}"
