"""Connections of shells to an instance of the same loop: lost when the instance ends."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from warren.rpc.bus import Bus, Forwarder, may_use
from warren.rpc.message import Cred, Payload, Request, RpcError


class Line:
    """A connection. What it serves is withdrawn with it, or with the stream that offers it."""

    def __init__(self, bus: Bus, userid: int, lost: asyncio.Event, serving: Bus) -> None:
        self._bus = bus
        self._handle = bus.handle(userid)
        self._cred = Cred(userid, userid == bus.owner)
        self._lost = lost
        self._serving = serving

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        found: Payload = await self._until_lost(self._handle.rpc(topic, payload))
        return found

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        answers = (
            self._offering((payload or {})["service"])
            if topic == "service.add"
            else self._handle.stream(topic, payload)
        )
        async with aclosing(answers):  # type: ignore[type-var]
            while True:
                try:
                    yield await self._until_lost(anext(answers))
                except StopAsyncIteration:
                    return

    async def _offering(self, service: str) -> AsyncIterator[Payload]:
        if not may_use(self._cred, service):
            raise RpcError(errno.EPERM)
        self._bus.register(service, _Back(self._serving))
        try:
            yield {}
            await asyncio.Event().wait()
        finally:
            self._bus.unregister(service)

    async def _until_lost(self, asked: Any) -> Any:
        answer = asyncio.ensure_future(asked)
        lost = asyncio.ensure_future(self._lost.wait())
        try:
            await asyncio.wait({answer, lost}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise RpcError(errno.ECONNRESET)
        finally:
            lost.cancel()
            if not answer.done():
                answer.cancel()
                await asyncio.wait({answer})


class _Back(Forwarder):
    """The way from the instance to what the other end serves."""

    def __init__(self, serving: Bus) -> None:
        self._serving = serving

    async def rpc(self, request: Request) -> Payload:
        return await self._serving.rpc(request)

    def stream(self, request: Request) -> AsyncIterator[Payload]:
        return self._serving.stream(request)
