"""The HTTP face of copies that running jobs ask for (dws-spec section 18): paths, words, bounds."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web

from warren.base import log
from warren.base.errors import Retryable, UserMistake
from warren.controllers.offload import Offload
from warren.dws.objects.workflows import Workflow
from warren.dws.offload import progress
from warren.dws.offload.requests import (
    BAD_REQUEST,
    CONFLICT,
    MAX_BODY_SIZE,
    UNAUTHORIZED,
    UNAVAILABLE,
    VERSION,
    Refusal,
)

_BODY_TIMEOUT: Final = 10.0
"""Seconds in which the body of a request is to come."""

_MAX_DIGITS: Final = 9
"""Digits of a number of seconds; one with more is taken for no limit."""

_NOT_IMPLEMENTED: Final = 501
_NOT_ACCEPTABLE: Final = 406
_NOT_FOUND: Final = 404
_INTERNAL: Final = 500

Handler = Callable[[web.Request, Workflow, str], Awaitable[web.StreamResponse]]


class OffloadServer:
    """Answers requests as NNF's server does, each for the job whose token it brings."""

    def __init__(self, offload: Offload, body_timeout: float = _BODY_TIMEOUT) -> None:
        """The body of a request is waited for `body_timeout` seconds."""
        self._offload = offload
        self._body_timeout = body_timeout
        self._routes: Mapping[str, tuple[str, Handler]] = {
            "hello": ("GET", self._hello),
            "trial": ("POST", self._trial),
            "list": ("GET", self._list),
            "status": ("GET", self._status),
            "cancel": ("DELETE", self._cancel),
            "shutdown": ("POST", self._shutdown),
        }

    def app(self) -> web.Application:
        """Return it as an application, which serves for as long as this one."""
        app = web.Application(client_max_size=MAX_BODY_SIZE)
        app.router.add_route("*", "/{path:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            return await self._dispatch(request)
        except ConnectionError:
            raise
        except Refusal as refusal:
            response = _text(str(refusal), refusal.status)
            return _close_after(response) if refusal.status == UNAUTHORIZED else response
        except web.HTTPRequestEntityTooLarge:
            return _text(f"a request has {MAX_BODY_SIZE} bytes at most", 413)
        except Retryable as error:
            log.warning("request put off", path=request.path, reason=str(error))
            return _text(f"the cluster cannot answer now: {error}", UNAVAILABLE)
        except UserMistake as error:  # the API refuses what a request has become
            log.warning("request refused", path=request.path, reason=str(error))
            return _text(str(error), _INTERNAL)
        except Exception:  # a bug costs one request, not the service
            log.exception("request failed", path=request.path)
            return _text("internal error; see the log of the service", _INTERNAL)

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        action, _, copy_name = request.path.removeprefix("/").partition("/")
        method, handler = self._routes.get(action, ("", None))
        takes_name = action in ("status", "cancel")
        if handler is None or (copy_name and not takes_name):
            return _close_after(_text("404 page not found", _NOT_FOUND))
        if request.method != method:
            return _close_after(_text("method not supported", _NOT_IMPLEMENTED))
        authorization = request.headers.get("Authorization", "")
        async with self._offload.authenticate(authorization) as workflow:
            if request.headers.get("Accepts-version") != VERSION:
                return _text(f"Valid versions: {VERSION}", _NOT_ACCEPTABLE)
            return await handler(request, workflow, copy_name)

    async def _hello(
        self, request: web.Request, workflow: Workflow, copy_name: str
    ) -> web.Response:
        return _text("hello back at ya")

    async def _trial(
        self, request: web.Request, workflow: Workflow, copy_name: str
    ) -> web.Response:
        try:
            async with asyncio.timeout(self._body_timeout):
                body = await request.read()
        except TimeoutError:
            raise Refusal(408, "the body of the request has not come") from None
        created_name = await self._offload.create(workflow, body)
        log.info("copy asked for", workflow=workflow.metadata.name, copy=created_name)
        return _text(f"name={created_name}")

    async def _list(self, request: web.Request, workflow: Workflow, copy_name: str) -> web.Response:
        names = await self._offload.running_names(workflow)
        return _text(",".join(names)) if names else web.Response()

    async def _status(
        self, request: web.Request, workflow: Workflow, copy_name: str
    ) -> web.Response:
        def is_connected() -> bool:
            return request.transport is not None and not request.transport.is_closing()

        status = await self._offload.status(
            workflow, copy_name, _parse_wait_seconds(request), is_connected
        )
        return web.Response(body=progress.body(status), content_type="application/json")

    async def _cancel(
        self, request: web.Request, workflow: Workflow, copy_name: str
    ) -> web.Response:
        await self._offload.cancel(workflow, copy_name)
        log.info("copy cancelled", workflow=workflow.metadata.name, copy=copy_name)
        return web.Response()

    async def _shutdown(
        self, request: web.Request, workflow: Workflow, copy_name: str
    ) -> web.Response:
        """End nothing: the service is other jobs', too."""
        if await self._offload.running_names(workflow):
            raise Refusal(CONFLICT, "unable to shutdown server: requests in progress")
        return _text("nothing is left to be done")


def _parse_wait_seconds(request: web.Request) -> float | None:
    """Return for how long the end of a copy is waited for; None is for as long as it takes."""
    text = request.query.get("maxWaitSecs", "")
    unexpected = [name for name in request.query if name != "maxWaitSecs"]
    if not text.removeprefix("-").isdecimal() or not text.isascii():
        raise Refusal(BAD_REQUEST, f"unable to parse maxWaitSecs: {text[:40]!r} is no number")
    if unexpected:
        raise Refusal(BAD_REQUEST, f"unexpected query parameters: {', '.join(unexpected)[:200]}")
    if text.startswith("-") or len(text) > _MAX_DIGITS:
        return None
    return float(text)


def _close_after(response: web.Response) -> web.Response:
    """Have the connection closed after an answer: only those with a token keep one."""
    response.force_close()
    return response


def _text(line: str, status: int = 200) -> web.Response:
    """Return a line, as the client library needs it."""
    return web.Response(text=f"{line}\n", status=status)
