"""The topic `dws.waits`: what jobs wait for, looked up on request."""

import errno
from collections.abc import Callable, Iterable, Mapping

from warren.dws.jobsnapshot import Job
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError

_MOST = 1000
"""Jobs of one request."""


def methods(
    job: Callable[[int], Job | None], waiting: Callable[[Iterable[int]], Mapping[int, str]]
) -> Methods:
    """Return the topic. Users are told of their own jobs, the owner of all."""

    async def waits(request: Request) -> Payload:
        ids = request.payload.get("ids")
        if not isinstance(ids, list) or not all(type(each) is int for each in ids):
            raise RpcError(errno.EPROTO, "dws.waits takes ids")
        asker = request.cred
        own = [
            number
            for number in ids[:_MOST]
            if asker.owner or ((found := job(number)) is not None and found.userid == asker.userid)
        ]
        return {"waits": {str(number): reason for number, reason in waiting(own).items()}}

    return {"waits": Method(waits, guest=True)}
