"""What containers have printed, as clients ask for it: `pods/NAME/log`.

Followers look for more, each for itself. Nothing tells of it: what prints are containers, whose
output the process of a pod writes, and that process outlives all daemons and speaks with none of
them. A watch of files (inotify) would need a thread or a descriptor for each as well, and would
have two files to watch that take each other's place. So what a follower costs is bounded by its
pause, and how many there are by `Followers`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

import msgspec
from aiohttp import web

from warren.base.objects import Object
from warren.kube.client import Unavailable
from warren.kube.server.logs import LogStream, container_of
from warren.kube.server.rest.requests import RequestError, flag, number_text
from warren.kube.serving import has_next_request

POLL_INTERVAL: Final = 0.25
"""Seconds after which a follower looks for more that a container has printed."""

MAX_FOLLOWERS: Final = 64
"""Clients that may follow logs at one time: each keeps files open and a thread at work."""

_TIME_OPTIONS: Final = ("sinceSeconds", "sinceTime")


class LogRequest(msgspec.Struct, frozen=True):
    """How much of which container's log is asked for."""

    container: str
    lines: int | None
    """How many of the last lines; None for all."""
    max_bytes: int | None
    """The most bytes to send; None for all."""
    follow: bool


def read_request(request: web.Request, pod: Object) -> LogRequest:
    """Read the parameters of a request. Raises RequestError, and LogNotAvailable."""
    name = pod["metadata"]["name"]
    container = container_of(pod, request.query.get("container", ""))
    if flag(request, "previous"):
        message = f'previous terminated container "{container}" in pod "{name}" not found'
        raise RequestError(400, "BadRequest", message)
    for each in _TIME_OPTIONS:
        if request.query.get(each):
            raise RequestError(400, "BadRequest", f"{each}: {_NO_TIMES}; ask for tailLines")
    if flag(request, "timestamps"):
        raise RequestError(400, "BadRequest", f"timestamps: {_NO_TIMES}")
    stream = request.query.get("stream") or "All"
    if stream != "All":
        message = "stream: standard output and error are not kept apart here; ask for All"
        raise RequestError(400, "BadRequest", message)
    lines, max_bytes = number_text(request, "tailLines"), number_text(request, "limitBytes")
    if max_bytes and not int(max_bytes):
        raise RequestError(422, "Invalid", "limitBytes: Invalid value: 0: must be greater than 0")
    return LogRequest(
        container=container,
        lines=int(lines) if lines else None,
        max_bytes=int(max_bytes) if max_bytes else None,
        follow=flag(request, "follow"),
    )


_NO_TIMES: Final = "when a line was printed is not kept here"


class Followers:
    """The clients that follow logs now."""

    def __init__(self, max_followers: int = MAX_FOLLOWERS) -> None:
        self._max_followers = max_followers
        self._count = 0

    @contextmanager
    def admit(self, log_request: LogRequest) -> Iterator[None]:
        """Count a client that follows, for a block. Raises RequestError for one too many."""
        if not log_request.follow:
            yield
            return
        if self._count >= self._max_followers:
            message = f"{self._max_followers} clients follow logs already: "
            message += "ask again later, or without follow"
            raise RequestError(429, "TooManyRequests", message)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


async def answer(
    request: web.Request,
    log: LogStream,
    max_bytes: int | None,
    has_ended: Callable[[], bool],
    pause: float = POLL_INTERVAL,
) -> web.StreamResponse:
    """Send what is printed until the container `has_ended`, and `max_bytes` at most."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    with closing(log):
        # What there is when it has ended is all: this is known before it is read.
        is_last = has_ended()
        piece = await log.read()
        await response.prepare(request)
        try:
            while piece or not is_last:
                if piece:
                    await response.write(piece if max_bytes is None else piece[:max_bytes])
                    max_bytes = None if max_bytes is None else max_bytes - len(piece)
                    if max_bytes is not None and max_bytes <= 0:
                        break
                elif request.transport is None or has_next_request(request):
                    break  # the client is gone, or wants something else
                else:
                    await asyncio.sleep(pause)
                is_last = has_ended()
                piece = await log.read()
        except ConnectionError:
            pass  # it has hung up
        except Unavailable:
            if request.transport is not None:
                request.transport.abort()  # no end that looks like one
    return response
