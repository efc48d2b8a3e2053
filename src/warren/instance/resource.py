"""The `resource` service: what nodes there are, and which of them jobs may have.

Nodes are drained and undrained, come and go, and what each one does is told. The truth is the
KVS key `resource.eventlog` (RFC 44): what it says is known here as far as it was read, and
whenever more is in it, the scheduler is told.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final, Protocol

import msgspec
import orjson

from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance.config import Config
from warren.instance.kvs import Kvs, Operation, append, put
from warren.lifecycle import queues
from warren.lifecycle.jobqueue import with_properties
from warren.lifecycle.policy import QueueLimits
from warren.rfc import eventlog, hostlist, idset, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rpc.bus import Method, Methods, StreamingMethod
from warren.rpc.message import Payload, Request, RpcError
from warren.scheduling import drains
from warren.scheduling.drains import Drains, HostByRank
from warren.scheduling.graph import Graph

_Decide = Callable[[Drains, HostByRank, Sequence[int], str, str | None], Mapping[str, Any]]
"""Returns the context of an event, or raises UserMistake."""

_LOG_KEY: Final = "resource.eventlog"
_R_KEY: Final = "resource.R"
_ONLINE_GROUP: Final = "broker.online"


class Availability(Protocol):
    """Takes which nodes may not be given out, in place of what was said before."""

    def set_drained(self, ranks: Iterable[int]) -> None: ...

    def set_offline(self, ranks: Iterable[int]) -> None: ...


def configured_graph(r: Mapping[str, Any], config: Config) -> Graph:
    """Make the graph of a system, with the properties and without the nodes that a site says.

    Raises UserMistake where nodes are named that are none of the system.
    """
    hosts = {each.rank: each.host for each in resource_set.decode_nodes(r)}
    hostlist_by_property = config.resource.properties
    properties = queues.hosts_by_property(
        config.queues, hostlist_by_property, frozenset(hosts.values())
    )
    try:
        exclude = config.resource.exclude
        excluded = drains.parse_targets(exclude, hosts) if exclude else ()
    except UserMistake as mistake:
        raise UserMistake(f"resource.exclude: {mistake}") from mistake
    return Graph(r, properties, excluded)


class Resources:
    """Owns `resource.eventlog`. Keeps nodes from the scheduler from the beginning."""

    def __init__(
        self,
        kvs: Kvs,
        clock: Clock,
        r: Mapping[str, Any],
        graph: Graph,
        scheduler: Availability,
        queue_limits: Mapping[str | None, QueueLimits],
    ) -> None:
        """`r` is the system as R, of which `graph` is made; with the limits of its queues."""
        self._kvs = kvs
        self._clock = clock
        self._r_json = orjson.dumps(r)
        self._graph = graph
        self._scheduler = scheduler
        self._host_by_rank = graph.host_by_rank
        self._rank_by_host = {host: rank for rank, host in self._host_by_rank.items()}
        self._ranks_by_queue = {
            name: idset.encode(graph.matching_ranks(with_properties({}, limits.properties)))
            for name, limits in queue_limits.items()
            if name is not None
        }
        self._lock = asyncio.Lock()
        self._acquired = False
        self._bytes_read = 0
        """Bytes of the log that are read: `_drains` and `_offline` are what they say."""
        self._drains: Drains = {}
        self._offline: frozenset[int] = frozenset()
        # Not in `run`: the scheduler may be running before.
        self._read_log()
        self._tell_scheduler()

    async def run(self) -> None:
        """Write down that a life begins; tell the scheduler of every change, until cancelled."""
        await self._kvs.commit(self._restart_operations())
        async for _ in self._kvs.follow(_LOG_KEY):
            self._catch_up()

    # Nodes that come and go

    async def set_down(self, hosts: Iterable[str]) -> None:
        """Mark nodes as down: jobs get them no more. May be repeated."""
        await self._post_presence("offline", lambda rank: rank not in self._offline, hosts)

    async def set_up(self, hosts: Iterable[str]) -> None:
        """Mark nodes as up again."""
        await self._post_presence("online", lambda rank: rank in self._offline, hosts)

    def hosts_of_queues(self, names: Iterable[str]) -> frozenset[str]:
        """Return the nodes that any of some queues has; one that is not there yet has none."""
        idsets = [self._ranks_by_queue[name] for name in names if name in self._ranks_by_queue]
        ranks = {rank for each in idsets for rank in idset.decode(each)}
        return frozenset(self._host_by_rank[rank] for rank in ranks)

    # Nodes that are drained for one reason

    async def keep_drained(
        self, lost: Iterable[str], reason: str, among: Iterable[str] | None = None
    ) -> None:
        """Keep nodes drained that have lost something; undrain the others among some, or all.

        Undrained is what was drained for the very same reason: what admins drain stays. Nodes
        that are excluded, or none of the system, are left alone. May be repeated.
        """
        lost = frozenset(lost)
        hosts = self._rank_by_host.keys() if among is None else {*among, *lost}
        async with self._lock:
            self._catch_up()
            excluded = self._graph.excluded
            rank_by_host = {
                host: rank for host in hosts if (rank := self._rank_by_host.get(host)) is not None
            }
            to_drain, to_undrain = [], []
            for host, rank in rank_by_host.items():
                drain = self._drains.get(rank)
                if host not in lost:
                    if drain is not None and drain.reason == reason:
                        to_undrain.append(rank)
                elif drain is None and rank not in excluded:
                    to_drain.append(rank)
            if to_drain:
                context = drains.drain_context(
                    self._drains, self._host_by_rank, sorted(to_drain), reason, None
                )
                await self._commit("drain", context)
            if to_undrain:
                context = drains.undrain_context(
                    self._drains, self._host_by_rank, sorted(to_undrain), "", None
                )
                await self._commit("undrain", context)

    async def _post_presence(
        self, name: str, changes: Callable[[int], bool], hosts: Iterable[str]
    ) -> None:
        chosen_hosts = set(hosts)
        async with self._lock:
            self._catch_up()
            ranks = [
                rank
                for rank, host in self._host_by_rank.items()
                if host in chosen_hosts and changes(rank)
            ]
            if ranks:
                await self._commit(name, {"idset": idset.encode(ranks)})

    # Services

    def methods(self) -> Methods:
        """Return the service `resource`."""
        return {
            "drain": Method(self._drain),
            "undrain": Method(
                lambda request: self._change("undrain", drains.undrain_context, request)
            ),
            "status": Method(self._status, guest=True),
            "acquire": StreamingMethod(self._acquire),
            "journal": StreamingMethod(self._journal),
        }

    def groups(self) -> Methods:
        """Return the service `groups`, which tells of the nodes that are there."""
        return {"get": StreamingMethod(self._watch_group, guest=True)}

    async def _drain(self, request: Request) -> Payload:
        decide = partial(drains.drain_context, excluded=self._graph.excluded)
        return await self._change("drain", decide, request)

    async def _change(self, name: str, decide: _Decide, request: Request) -> Payload:
        """Write an event; answer when it is durable, and the scheduler knows."""
        targets, mode = request.payload.get("targets"), request.payload.get("mode")
        reason = request.payload.get("reason") or ""
        if not (
            isinstance(targets, str)
            and isinstance(reason, str)
            and (mode is None or isinstance(mode, str))
        ):
            raise RpcError(errno.EPROTO, f"{request.topic} takes targets, reason and mode")
        # One at a time: the next one is decided on what this one leaves in the log.
        async with self._lock:
            self._catch_up()
            try:
                ranks = drains.parse_targets(targets, self._host_by_rank)
                context = decide(self._drains, self._host_by_rank, ranks, reason, mode)
            except drains.AlreadyInState as mistake:
                raise RpcError(errno.EEXIST, str(mistake)) from mistake
            except UserMistake as mistake:
                raise RpcError(errno.EINVAL, str(mistake)) from mistake
            await self._commit(name, context)
        return {"idset": context["idset"], "nodelist": context["nodelist"]}

    async def _status(self, request: Request) -> Payload:
        self._catch_up()
        excluded = self._graph.excluded
        nodes = []
        for each in self._graph.node_use():
            drain = self._drains.get(each.rank)
            node: dict[str, Any] = {
                "rank": each.rank,
                "name": each.host,
                "state": drains.node_state(
                    excluded=each.rank in excluded,
                    drained=drain is not None,
                    offline=each.rank in self._offline,
                    used=each.cores_taken > 0,
                ),
                "cores": each.cores,
                "allocated": each.cores_taken,
                "gpus": each.gpus,
                "gpus_allocated": each.gpus_taken,
            }
            if drain is not None:
                node |= {"since": drain.since, "reason": drain.reason}
            nodes.append(node)
        return {
            "nodes": nodes,
            "R": resource_set.without_scheduling(orjson.loads(self._r_json)),
            "drain": self._drains_by_ranks(),
            "online": idset.encode(self._host_by_rank.keys() - self._offline),
            "offline": idset.encode(self._offline),
            "exclude": idset.encode(excluded),
            "torpid": "",
            "queues": self._ranks_by_queue,
        }

    def _drains_by_ranks(self) -> dict[str, Any]:
        """Return the drained nodes by those that were drained together."""
        ranks_by_drain: dict[drains.Drain, list[int]] = {}
        for rank, drain in self._drains.items():
            ranks_by_drain.setdefault(drain, []).append(rank)
        return {
            idset.encode(ranks): {"timestamp": drain.since, "reason": drain.reason}
            for drain, ranks in ranks_by_drain.items()
        }

    async def _acquire(self, request: Request) -> AsyncIterator[Payload]:
        """Yield all resources for one scheduler, then tell which nodes come and go (RFC 28)."""
        if self._acquired:
            raise RpcError(errno.EBUSY, "the resources are acquired already: there is one acquirer")
        self._acquired = True
        try:
            up = self._up_ranks()
            yield {"resources": self._without_excluded(), "up": idset.encode(up)}
            async for current in self._rank_changes(self._up_ranks, up):
                for key, ranks in (("up", current - up), ("down", up - current)):
                    if ranks:
                        yield {key: idset.encode(ranks)}
                up = current
        finally:
            self._acquired = False

    async def _journal(self, request: Request) -> AsyncIterator[Payload]:
        """Return all events, then an entry without any, then each event when it is durable."""
        begun = False
        async with aclosing(self._kvs.follow(_LOG_KEY)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                events = [msgspec.to_builtins(event) for event in _events(chunk)]
                answer: dict[str, Any] = {"events": events}
                if any(event["name"] == "resource-define" for event in events):
                    answer["R"] = orjson.loads(self._kvs.lookup(_R_KEY))
                if events:  # or it would be taken for the end of the past
                    yield answer
                if not begun:
                    begun = True
                    yield {"events": []}

    async def _watch_group(self, request: Request) -> AsyncIterator[Payload]:
        """Return the members of a group, and again whenever they have changed."""
        name = request.payload.get("name")
        if not isinstance(name, str):
            raise RpcError(errno.EPROTO, "groups.get takes the name of a group")
        if name != _ONLINE_GROUP:
            # It has no other member, and will have none here.
            yield {"members": ""}
            await asyncio.Event().wait()
        members = self._online_ranks()
        yield {"members": idset.encode(members)}
        async for online in self._rank_changes(self._online_ranks, members):
            yield {"members": idset.encode(online)}

    async def _rank_changes(
        self, current: Callable[[], frozenset[int]], previous: frozenset[int]
    ) -> AsyncIterator[frozenset[int]]:
        """Return a set of ranks whenever the log has made it another one than before."""
        async with aclosing(self._kvs.follow(_LOG_KEY)) as chunks:  # type: ignore[type-var]
            async for _ in chunks:
                self._catch_up()
                if current() != previous:
                    previous = current()
                    yield previous

    def _online_ranks(self) -> frozenset[int]:
        return frozenset(self._host_by_rank) - self._offline

    def _up_ranks(self) -> frozenset[int]:
        return self._online_ranks() - self._drains.keys() - self._graph.excluded

    def _without_excluded(self) -> Mapping[str, Any]:
        """Return the system as R, without the nodes that are excluded."""
        r: dict[str, Any] = orjson.loads(self._r_json)
        excluded = self._graph.excluded
        if not excluded:
            return r
        remaining = resource_set.encode_all(
            resource_set.without_ranks(resource_set.decode_all(r), excluded)
        )
        return {**r, **remaining}

    # The log

    async def _commit(self, name: str, context: Mapping[str, Any]) -> None:
        await self._kvs.commit([_append_event(Event(self._clock.now(), name, context))])
        self._catch_up()

    def _catch_up(self) -> None:
        """Read what is new in the log, and tell the scheduler if it changes anything."""
        before = (self._drains, self._offline)
        self._read_log()
        if (self._drains, self._offline) != before:
            self._tell_scheduler()

    def _read_log(self) -> None:
        text = self._kvs.get(_LOG_KEY) or b""
        if len(text) < self._bytes_read:  # it was removed, whole, as one may
            self._bytes_read, self._drains, self._offline = 0, {}, frozenset()
        new = text[self._bytes_read : text.rfind(b"\n") + 1]
        for event in _events(new):
            try:
                self._drains = drains.update_drains(self._drains, event, self._host_by_rank)
                self._offline = drains.update_offline(self._offline, event, self._host_by_rank)
            except BadFormat as error:
                # It was changed by hand. The rest of it still holds.
                log.error("event cannot be read", key=_LOG_KEY, reason=str(error))
        self._bytes_read += len(new)

    def _tell_scheduler(self) -> None:
        self._scheduler.set_drained(self._drains)
        self._scheduler.set_offline(self._offline)

    def _restart_operations(self) -> list[Operation]:
        operations = []
        if self._kvs.get(_R_KEY) != self._r_json:
            operations.append(put(_R_KEY, self._r_json))
        now = self._clock.now()
        ranks = idset.encode(self._host_by_rank)
        context = {
            "ranks": ranks,
            "online": ranks,
            "nodelist": hostlist.encode(self._host_by_rank.values()),
        }
        return [
            *operations,
            _append_event(Event(now, "restart", context)),
            _append_event(Event(now, "resource-define", {"method": "configuration"})),
        ]


def _events(text: bytes) -> Iterable[Event]:
    """Read whole lines of the log. What is no event is passed over."""
    for line in text.decode(errors="replace").split("\n")[:-1]:
        try:
            yield eventlog.decode_line(line)
        except BadFormat as error:
            log.error("event cannot be read", key=_LOG_KEY, reason=str(error))


def _append_event(event: Event) -> Operation:
    return append(_LOG_KEY, eventlog.encode(event).encode())
