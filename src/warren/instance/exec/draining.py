"""Taking nodes from the scheduler because of what went wrong on them."""

from collections.abc import Awaitable, Callable, Iterable

from warren.base import log
from warren.rfc import idset
from warren.rpc.message import Handle, RpcError

DrainNodes = Callable[[Iterable[int], str], Awaitable[None]]
"""Drains nodes by their ranks, for a reason; returns when no job gets them any more."""


def drainer(handle: Handle) -> DrainNodes:
    """Return a `DrainNodes` that asks the `resource` service.

    A node that cannot be drained, since it is excluded for example, stays as it is: the log
    says so.
    """

    async def drain(ranks: Iterable[int], reason: str) -> None:
        # One by one, so that what is refused for one is done for the others. A node that is
        # drained already keeps the reason that it has.
        for rank in ranks:
            request = {"targets": idset.encode([rank]), "reason": reason, "mode": "update"}
            try:
                await handle.rpc("resource.drain", request)
            except RpcError as error:
                log.error("node is not drained", rank=rank, wanted=reason, reason=str(error))

    return drain
