"""The ATOM service over HTTP: `/rm/v1/jobs`, for users that the kernel names.

| request | answers |
|---|---|
| `POST /rm/v1/jobs` `{"jobid", "uid", "exclusive"}` | 200 with the job; 400 for what is no such \
body, and where another job has this id, or one that is not cleaned up after; 408 where the body \
does not come, and 413 where it is too long; 500 where a command failed, and where a DELETE or \
the service's end cut the start short; 503 where there is no room |
| `GET /rm/v1/jobs` | 200 with `{"jobs": [...]}`: all jobs, in the order in which they came |
| `GET /rm/v1/jobs/ID` | 200 with the job; 404 |
| `DELETE /rm/v1/jobs/ID` | 204; 404; 500 where a command failed, which is run again later, and \
where the service ends, which goes on with it when it is back |

A user who is not let in has 403, another path 404, and another method 405. A request that is
refused has a body `{"message": ...}` with a sentence; what is no request of HTTP has the 400 of the
library.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

from warren.atom.register import Register
from warren.atom.registration import encode, read_request
from warren.atom.service import AlreadyRegistered, Failed, NoRoom, Service
from warren.base import log
from warren.base.errors import UserMistake, WarrenError
from warren.rpc import sockets

JOBS_PATH: Final = "/rm/v1/jobs"

_MAX_BODY_BYTES: Final = 2**16
"""Bytes of a request's body."""
_BODY_TIMEOUT: Final = 10.0
"""Seconds that a client has for the body of its request."""
_LIST_CHUNK: Final = 1000
"""Jobs that are listed before others have their turn."""

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUS_CODES: Final[dict[type[WarrenError], int]] = {
    AlreadyRegistered: 400,
    Failed: 500,
    NoRoom: 503,
}


class Api:
    """Answers HTTP requests by what the service does and the register has."""

    def __init__(
        self,
        service: Service,
        register: Register,
        allowed_userids: frozenset[int],
        on_answered: Callable[[str, int, float], None] = lambda method, code, seconds: None,
        body_timeout: float = _BODY_TIMEOUT,
    ) -> None:
        """`on_answered` is told of each request: method, code, seconds.

        A body is waited for `body_timeout` seconds.
        """
        self._body_timeout = body_timeout
        self._service = service
        self._register = register
        self._allowed_userids = allowed_userids
        self._on_answered = on_answered

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._answer], client_max_size=_MAX_BODY_BYTES)
        app.router.add_post(JOBS_PATH, self._post)
        app.router.add_get(JOBS_PATH, self._list)
        app.router.add_get(JOBS_PATH + "/{jobid}", self._get)
        app.router.add_delete(JOBS_PATH + "/{jobid}", self._delete)
        return app

    @web.middleware
    async def _answer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse users that are not allowed, and give every refusal a sentence."""
        started_at = time.perf_counter()
        try:
            response = await self._handle_if_allowed(request, handler)
        except web.HTTPException as error:
            response = _refusal_response(error.status, error.reason.lower())
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
        except WarrenError as error:
            log.warning("refused", method=request.method, path=_path(request), why=str(error))
            response = _refusal_response(_STATUS_CODES.get(type(error), 400), str(error))
        except Exception:  # a bug costs one answer, not the service
            log.exception("request failed", method=request.method, path=_path(request))
            response = _refusal_response(500, "internal error; see the service's log")
        seconds = time.perf_counter() - started_at
        # The client chooses the method's name, and each name would be counted for ever.
        is_known_method = request.method in ("POST", "GET", "DELETE")
        self._on_answered(request.method if is_known_method else "other", response.status, seconds)
        if request.method != "GET":
            fields = {"method": request.method, "path": _path(request), "code": response.status}
            log.info("answered", **fields, seconds=round(seconds, 4))
        return response

    async def _handle_if_allowed(
        self, request: web.Request, handler: _Handler
    ) -> web.StreamResponse:
        userid = sockets.peer_userid(request.get_extra_info("socket"))
        if userid not in self._allowed_userids:
            log.warning("not let in", uid=userid, method=request.method, path=_path(request))
            return _refusal_response(403, f"user {userid} may not ask here: see allow-users")
        return await handler(request)

    async def _post(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(self._body_timeout):
                body = await request.read()
        except web.RequestPayloadError as error:
            raise UserMistake(f"the body cannot be read: {error}") from error
        except TimeoutError:
            return _refusal_response(408, f"the body did not come within {self._body_timeout:g} s")
        job = await self._service.begin(read_request(body))
        return web.Response(body=encode(job), content_type="application/json")

    async def _get(self, request: web.Request) -> web.Response:
        job = self._register.get(request.match_info["jobid"])
        if job is None:
            return _not_registered_response(request)
        return web.Response(body=encode(job), content_type="application/json")

    async def _delete(self, request: web.Request) -> web.Response:
        if not await self._service.end(request.match_info["jobid"]):
            return _not_registered_response(request)
        return web.Response(status=204)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        jobs = tuple(self._register)
        await response.write(b'{"jobs":[')
        for start in range(0, len(jobs), _LIST_CHUNK):
            chunk = b",".join(map(encode, jobs[start : start + _LIST_CHUNK]))
            await response.write(b"," + chunk if start else chunk)
            await asyncio.sleep(0)
        await response.write(b"]}\n")
        return response


def _path(request: web.Request) -> str:
    """Return the path as it is written in a URL: whatever is in it, it is one word."""
    return request.rel_url.raw_path


def _not_registered_response(request: web.Request) -> web.Response:
    return _refusal_response(404, f"job {request.match_info['jobid']} is not registered here")


def _refusal_response(code: int, message: str) -> web.Response:
    body = msgspec.json.encode({"message": message})
    return web.Response(status=code, body=body, content_type="application/json")
