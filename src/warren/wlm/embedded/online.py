"""Which nodes of an instance are there, as its group `broker.online` tells."""

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

from warren.base.errors import Retryable
from warren.rfc import idset
from warren.rpc.message import Handle, RpcError


class InstanceAway(Retryable):
    """The instance does not answer: it is asked again."""


class OnlineNodes:
    """The nodes of an instance."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def follow(self) -> AsyncIterator[Mapping[str, bool]]:
        """Return all nodes with whether each is there, now and whenever that has changed.

        Raises InstanceAway.
        """
        try:
            status = await self._handle.rpc("resource.status")
            hosts = {node["rank"]: node["name"] for node in status["nodes"]}
            group = self._handle.stream("groups.get", {"name": "broker.online"})
            async with aclosing(group) as members:  # type: ignore[type-var]
                async for each in members:
                    online = set(idset.decode(each["members"]))
                    yield {host: rank in online for rank, host in hosts.items()}
        except RpcError as error:
            raise InstanceAway(f"the instance does not tell of its nodes: {error}") from error
