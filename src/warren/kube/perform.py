"""Performing what was decided. Every write of every reconciler goes through here."""

from collections.abc import Iterable

from warren.base import log
from warren.base.objects import Change, Create, Object, Remove, Write
from warren.kube.client import AlreadyExists, Client, NotFound


async def perform(client: Client, writes: Iterable[Write]) -> list[Object]:
    """Do the writes in order; return what was made, and what was changed in the version seen.

    That an object is there already, or gone already, is as good as done: the
    process may have died after the same write once before. An object to change
    that is gone ends the list: what was decided was about something else. Raises
    what the client raises for everything else.
    """
    written: list[Object] = []
    for write in writes:
        match write:
            case Create():
                try:
                    written.append(await client.create(write.kind, write.object))
                except AlreadyExists:
                    continue
            case Change():
                try:
                    changed = await client.patch(write)
                except NotFound:
                    return written
                if write.resource_version is not None:
                    written.append(changed)
            case Remove():
                try:
                    await client.delete(write)
                except NotFound:
                    continue
        log.debug("written", action=type(write).__name__, kind=write.kind.name, key=str(write.key))
    return written
