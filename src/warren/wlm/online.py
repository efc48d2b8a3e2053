"""Which nodes of an instance can be reached, as its resource journal tells (RFC 44)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from warren.base.errors import Retryable
from warren.dws.jobs.abort import DRAIN_REASON
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rpc.message import Handle, Payload, RpcError
from warren.scheduling import drains
from warren.wlm.nodes import hosts


class InstanceUnreachable(Retryable):
    """The instance does not answer: it is asked again."""


class FluxNodes:
    """The `ComputeNodes` of an instance of Flux."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def follow(self) -> AsyncIterator[Mapping[str, bool]]:
        """Return all nodes with whether each can be reached, now and whenever that has changed.

        A node that is drained since it did not unmount a job's storage cannot, until it is
        undrained. Raises InstanceUnreachable.
        """
        try:
            status = await self._handle.rpc("resource.status")
            nodes = _NodeStates(hosts(status))
            last_yielded: frozenset[int] | None = None
            is_caught_up = False
            journal = self._handle.stream("resource.journal")
            async with aclosing(journal) as entries:  # type: ignore[type-var]
                async for entry in entries:
                    nodes.apply(entry)
                    # What is past is told event by event, and ends with an entry without any.
                    is_caught_up = is_caught_up or not entry["events"]
                    unreachable = nodes.unreachable()
                    if is_caught_up and unreachable != last_yielded:
                        last_yielded = unreachable
                        yield nodes.reachability(unreachable)
        except (RpcError, BadFormat) as error:
            raise InstanceUnreachable(
                f"the instance does not tell of its nodes: {error}"
            ) from error


class _NodeStates:
    """What the journal has said of the nodes so far."""

    def __init__(self, hosts_by_rank: drains.HostByRank) -> None:
        self._hosts = hosts_by_rank
        self._drains: drains.Drains = {}
        self._offline: frozenset[int] = frozenset()

    def apply(self, entry: Payload) -> None:
        for each in entry["events"]:
            event = Event(each["timestamp"], each["name"], each.get("context", {}))
            try:
                self._drains = drains.update_drains(self._drains, event, self._hosts)
                self._offline = drains.update_offline(self._offline, event, self._hosts)
            except BadFormat:
                continue  # it was changed by hand, which the instance logs

    def unreachable(self) -> frozenset[int]:
        """Return the ranks of those that cannot be reached."""
        failed = (rank for rank, drain in self._drains.items() if drain.reason == DRAIN_REASON)
        return self._offline.union(failed)

    def reachability(self, unreachable: frozenset[int]) -> dict[str, bool]:
        """Return all nodes, with whether they are none of these."""
        return {host: rank not in unreachable for rank, host in self._hosts.items()}
