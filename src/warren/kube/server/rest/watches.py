"""Watches over HTTP: events as lines, bookmarks in between, and an end that says why."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from types import MappingProxyType
from typing import Final

from aiohttp import web

from warren.base.objects import Kind, Object
from warren.kube.client import Expired
from warren.kube.server.history import ObjectChange, SharedWatchEvent, Subscription
from warren.kube.server.rest.statuses import failure
from warren.kube.server.storeerrors import ResourceVersionTooLarge
from warren.kube.serving import has_next_request

BOOKMARK_INTERVAL: Final = 15.0

_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark after what was there when a watch began."""

_BATCH_BYTES: Final = 256 * 2**10
"""Bytes of events after which those that are there are sent, before others are written down."""


class Watch:
    """One watch of one client."""

    def __init__(
        self,
        request: web.Request,
        response: web.StreamResponse,
        kind: Kind,
        newest_version: Callable[[], str],
        view: Callable[[Object], Object],
        bookmark_interval: float = BOOKMARK_INTERVAL,
    ) -> None:
        """`newest_version` gives that of the newest change; `view` the form that is asked for.

        After `bookmark_interval` seconds without a change comes a bookmark.
        """
        self._bookmark_interval = bookmark_interval
        self._request = request
        self._response = response
        self._kind = kind
        self._newest_version = newest_version
        self._view = view

    async def run(
        self,
        initial_objects: Iterable[Object],
        subscribe: Callable[[], Subscription],
        matches: Callable[[Object], bool],
        *,
        initial_version: str | None,
        timeout_seconds: int | None,
        sends_bookmarks: bool,
    ) -> None:
        """Send `initial_objects` as new, then changes, until time or client or history end it.

        In between comes word that `initial_objects` are all that there were in `initial_version`,
        unless that is None. It ends after `timeout_seconds`, if there are any.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                with closing(subscribe()) as changes:
                    for obj in initial_objects:
                        await self._response.write(self._line(SharedWatchEvent("ADDED", obj)))
                    if initial_version is not None:
                        all_sent_metadata = {"annotations": {_INITIAL_EVENTS_END: "true"}}
                        await self._send_bookmark(initial_version, all_sent_metadata)
                    await self._follow(changes, matches, sends_bookmarks)
        except (TimeoutError, ConnectionError):
            pass  # as the client has asked, or it has hung up
        except (Expired, ResourceVersionTooLarge) as error:
            status = failure(error)
            assert status is not None
            with suppress(ConnectionError):  # the client may be gone
                await self._response.write(SharedWatchEvent("ERROR", status.status()).line)

    async def _follow(
        self, changes: Subscription, matches: Callable[[Object], bool], sends_bookmarks: bool
    ) -> None:
        """Send changes as they come, and a bookmark when none has come for a while."""
        while True:
            # Every change up to this version is sent before the wait runs out; one that
            # comes at that very moment is not.
            version = self._newest_version()
            batch = await changes.next_batch(self._bookmark_interval)
            if batch:
                await self._send(batch, matches)
            elif self._request.transport is None or has_next_request(self._request):
                return  # the client is gone, or wants something else
            elif sends_bookmarks:
                await self._send_bookmark(version)

    async def _send(self, batch: Iterable[ObjectChange], matches: Callable[[Object], bool]) -> None:
        """Send changes, many at a time."""
        lines: list[bytes] = []
        size = 0
        for change in batch:
            event = visible_event(change, self._kind, matches)
            if event is not None:
                lines.append(self._line(event))
                size += len(lines[-1])
            if size >= _BATCH_BYTES:
                await self._response.write(b"".join(lines))
                lines, size = [], 0
        if lines:
            await self._response.write(b"".join(lines))

    async def _send_bookmark(
        self, version: str, more_metadata: Object = MappingProxyType({})
    ) -> None:
        """Send a bookmark with the present version; `more_metadata` is more metadata of it."""
        metadata = {"resourceVersion": version, "creationTimestamp": None, **more_metadata}
        kind, api_version = self._kind.name, self._kind.api_version
        obj = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
        await self._response.write(self._line(SharedWatchEvent("BOOKMARK", obj)))

    def _line(self, event: SharedWatchEvent) -> bytes:
        shown = self._view(event.object)
        return event.line if shown is event.object else SharedWatchEvent(event.type, shown).line


def visible_event(
    change: ObjectChange, kind: Kind, matches: Callable[[Object], bool]
) -> SharedWatchEvent | None:
    """Return a change as a watch of only what matches shows it; None where it does not.

    An object that begins to match is added for it, and one that ceases to is deleted.
    """
    matched = change.before is not None and matches(change.before)
    matches_now = change.type != "DELETED" and matches(change.object)
    if not matched and not matches_now:
        return None
    event = change.event(kind)
    event_type = {(False, True): "ADDED", (True, False): "DELETED"}.get(
        (matched, matches_now), event.type
    )
    return event if event_type == event.type else SharedWatchEvent(event_type, event.object)
