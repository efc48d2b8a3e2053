"""The `resource` service: nodes are drained and undrained, and what each one does is told.

The truth is the KVS key `resource.eventlog` (RFC 44). Nothing of it is kept here: it is read
again for each question, and whenever it has changed the scheduler is told what it says.
"""

import asyncio
import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
import structlog

from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance.kvs import Kvs, Operation, append, put
from warren.rfc import eventlog, hostlist, idset, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError
from warren.scheduling import drains
from warren.scheduling.drains import Drains, Hosts
from warren.scheduling.graph import Graph

log = structlog.get_logger()

_Decide = Callable[[Drains, Hosts, Sequence[int], str, str | None], Mapping[str, Any]]
"""Gives the context of an event, or raises UserMistake."""

_LOG: Final = "resource.eventlog"
_R: Final = "resource.R"


class Resources:
    """Owns `resource.eventlog`. Keeps drained nodes from the scheduler from the beginning."""

    def __init__(
        self,
        kvs: Kvs,
        clock: Clock,
        r: Mapping[str, Any],
        graph: Graph,
        set_drained: Callable[[Iterable[int]], None],
    ) -> None:
        """`r` is the system as R; `set_drained` takes the ranks that may not be given out."""
        self._kvs = kvs
        self._clock = clock
        self._r = r
        self._graph = graph
        self._set_drained = set_drained
        self._hosts = {each.rank: each.host for each in resource_set.decode(r)}
        self._turn = asyncio.Lock()
        # Not in `run`: the scheduler may be running before.
        self._tell()

    async def run(self) -> None:
        """Write down that a life begins; tell the scheduler of every change, until cancelled."""
        await self._kvs.commit(self._beginning())
        async for _ in self._kvs.follow(_LOG):
            self._tell()

    def methods(self) -> Methods:
        return {
            "drain": Method(lambda request: self._change("drain", drains.drain, request)),
            "undrain": Method(lambda request: self._change("undrain", drains.undrain, request)),
            "status": Method(self._status, guest=True),
        }

    async def _change(self, name: str, decide: _Decide, request: Request) -> Payload:
        """Write an event; answer when it is durable, and the scheduler knows."""
        wanted, mode = request.payload.get("targets"), request.payload.get("mode")
        reason = request.payload.get("reason") or ""
        if not (
            isinstance(wanted, str)
            and isinstance(reason, str)
            and (mode is None or isinstance(mode, str))
        ):
            raise RpcError(errno.EPROTO, f"{request.topic} takes targets, reason and mode")
        # One at a time: the next one is decided on what this one leaves in the log.
        async with self._turn:
            try:
                ranks = drains.targets(wanted, self._hosts)
                context = decide(self._drains(), self._hosts, ranks, reason, mode)
            except UserMistake as mistake:
                raise RpcError(errno.EINVAL, str(mistake)) from mistake
            await self._kvs.commit([_appended(Event(self._clock.now(), name, context))])
            self._tell()
        return {"idset": context["idset"], "nodelist": context["nodelist"]}

    async def _status(self, request: Request) -> Payload:
        drained = self._drains()
        nodes = []
        for each in self._graph.use():
            known = drained.get(each.rank)
            node: dict[str, Any] = {
                "rank": each.rank,
                "name": each.host,
                "state": drains.state(drained=known is not None, used=each.taken > 0),
                "cores": each.cores,
                "allocated": each.taken,
            }
            if known is not None:
                node |= {"since": known.since, "reason": known.reason}
            nodes.append(node)
        return {"nodes": nodes}

    # The log

    def _drains(self) -> Drains:
        """Give what the log says."""
        found: Drains = {}
        text = (self._kvs.get(_LOG) or b"").decode(errors="replace")
        for line in text.split("\n")[:-1]:
            try:
                found = drains.update(found, eventlog.decode_line(line), self._hosts)
            except BadFormat as error:
                # Somebody has written into it by hand. The rest of it still holds.
                log.error("event cannot be read", key=_LOG, reason=str(error))
        return found

    def _tell(self) -> None:
        self._set_drained(self._drains())

    def _beginning(self) -> list[Operation]:
        operations = []
        r = orjson.dumps(self._r)
        if self._kvs.get(_R) != r:
            operations.append(put(_R, r))
        now = self._clock.now()
        ranks = idset.encode(self._hosts)
        restarted = {
            "ranks": ranks,
            "online": ranks,
            "nodelist": hostlist.encode(self._hosts.values()),
        }
        return [
            *operations,
            _appended(Event(now, "restart", restarted)),
            _appended(Event(now, "resource-define", {"method": "configuration"})),
        ]


def _appended(event: Event) -> Operation:
    return append(_LOG, eventlog.encode(event).encode())
