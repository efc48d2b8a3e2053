"""Performing what was decided. Every write of every reconciler goes through here."""

from collections.abc import Iterable

import structlog

from warren.base.objects import Change, Create, Remove, Write
from warren.kube.client import AlreadyExists, Client, NotFound

log = structlog.get_logger()


async def perform(client: Client, writes: Iterable[Write]) -> None:
    """Do the writes in order.

    That an object is there already, or gone already, is as good as done: the
    process may have died after the same write once before. An object to change
    that is gone ends the list: what was decided was about something else. Raises
    what the client raises for everything else.
    """
    for write in writes:
        match write:
            case Create():
                try:
                    await client.create(write.kind, write.object)
                except AlreadyExists:
                    continue
            case Change():
                try:
                    await client.patch(write)
                except NotFound:
                    return
            case Remove():
                try:
                    await client.delete(write)
                except NotFound:
                    continue
        log.debug("written", action=type(write).__name__, kind=write.kind.name, key=str(write.key))
