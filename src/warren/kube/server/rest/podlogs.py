"""What containers have printed, as clients ask for it: `pods/NAME/log`.

Where that is kept is another's business, behind the port `Logs`: a real API server asks kubelets.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final, Protocol

from aiohttp import web

from warren.base.objects import Object
from warren.kube.client import Unavailable
from warren.kube.server.rest.requests import RequestError, flag, number

PAUSE: Final = 0.25
"""Seconds after which it is looked for more that a container has printed, where it is followed."""

_UNTIMED: Final = ("sinceSeconds", "sinceTime")
_OVER: Final = ("Succeeded", "Failed")


class Log(Protocol):
    """What one container prints."""

    async def read(self) -> bytes:
        """Return the next piece; an empty one where there is no more as yet.

        Raises NotFound where nothing of the pod is kept, and Unavailable where it cannot be read.
        """
        ...

    def close(self) -> None:
        """Leave it."""
        ...


class Logs(Protocol):
    """What the containers of pods print."""

    def open(self, pod: Object, container: str, lines: int | None) -> Log:
        """Open what a container has printed, or so many of its last lines."""
        ...


@dataclass(frozen=True)
class LogRequest:
    """How much of which container's log is asked for."""

    container: str
    lines: int | None
    most: int | None
    """Bytes."""
    follow: bool


def asked(request: web.Request, pod: Object) -> LogRequest:
    """Read the parameters of a request. Raises RequestError for what cannot be had."""
    name = pod["metadata"]["name"]
    container = _container(pod, request.query.get("container", ""))
    if flag(request, "previous"):
        words = f'previous terminated container "{container}" in pod "{name}" not found'
        raise RequestError(400, "BadRequest", words)
    for each in _UNTIMED:
        if request.query.get(each):
            raise RequestError(400, "BadRequest", f"{each}: {_NO_TIMES}; ask for tailLines")
    if flag(request, "timestamps"):
        raise RequestError(400, "BadRequest", f"timestamps: {_NO_TIMES}")
    stream = request.query.get("stream") or "All"
    if stream != "All":
        words = f"stream: {stream} is not told from the rest here, ask for All"
        raise RequestError(400, "BadRequest", words)
    lines, most = number(request, "tailLines"), number(request, "limitBytes")
    if most and not int(most):
        raise RequestError(422, "Invalid", "limitBytes: Invalid value: 0: must be greater than 0")
    return LogRequest(
        container=container,
        lines=int(lines) if lines else None,
        most=int(most) if most else None,
        follow=flag(request, "follow"),
    )


_NO_TIMES: Final = "when a line was printed is not kept here"


def _container(pod: Object, name: str) -> str:
    """Return the container whose log is meant: there is no choice where there is one."""
    of_pod = pod["metadata"]["name"]
    containers, preparing = [*_named(pod, "containers")], [*_named(pod, "initContainers")]
    if not name and len(containers) == 1:
        return containers[0]
    if not name:
        others = f" or one of the init containers: [{' '.join(preparing)}]" if preparing else ""
        words = f"a container name must be specified for pod {of_pod}, choose one of: "
        raise RequestError(400, "BadRequest", f"{words}[{' '.join(containers)}]{others}")
    if name not in (*containers, *preparing):
        words = f"container {name} is not valid for pod {of_pod}"
        raise RequestError(400, "BadRequest", words)
    return name


def _named(pod: Object, field: str) -> Iterator[str]:
    for each in (pod.get("spec") or {}).get(field) or ():
        yield str(each.get("name"))


def demand_begun(pod: Object, container: str) -> None:
    """Raise RequestError where a container has not begun, and not ended either."""
    name = pod["metadata"]["name"]
    if not (pod.get("spec") or {}).get("nodeName"):
        raise RequestError(400, "BadRequest", f"pod {name} does not have a host assigned")
    state = _state(pod, container)
    if "running" in state or "terminated" in state or _phase(pod) in _OVER:
        return
    reason = (state.get("waiting") or {}).get("reason") or "ContainerCreating"
    words = f'container "{container}" in pod "{name}" is waiting to start: {reason}'
    raise RequestError(400, "BadRequest", words)


def has_ended(pod: Object, container: str) -> bool:
    """Return whether a container prints no more."""
    return _phase(pod) in _OVER or "terminated" in _state(pod, container)


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase"))


def _state(pod: Object, container: str) -> dict[str, Any]:
    status = pod.get("status") or {}
    for field in ("containerStatuses", "initContainerStatuses"):
        for each in status.get(field) or ():
            if each.get("name") == container:
                return each.get("state") or {}
    return {}


async def answer(
    request: web.Request,
    opened: Log,
    most: int | None,
    ended: Callable[[], bool],
    pause: float = PAUSE,
) -> web.StreamResponse:
    """Send what is printed until all is `ended`, and at most so many bytes."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
    with closing(opened) as log:
        # What there is when it has ended is all: this is known before it is read.
        last = ended()
        piece = await log.read()
        await response.prepare(request)
        try:
            while piece or not last:
                if piece:
                    await response.write(piece if most is None else piece[:most])
                    most = None if most is None else most - len(piece)
                    if most is not None and most <= 0:
                        break
                elif request.transport is None:
                    break  # the client is gone
                else:
                    await asyncio.sleep(pause)
                last = ended()
                piece = await log.read()
        except ConnectionError:
            pass  # it has hung up
        except Unavailable:
            if request.transport is not None:
                request.transport.abort()  # no end that looks like one
    return response
