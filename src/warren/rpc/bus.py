"""The service bus: requests are routed by topic, as by a broker of Flux.

The part of a topic before its first dot is the service. A service is either a
table of handlers in this process, or a forwarder to another one (`server`).
A forwarder whose name begins with a user's number and a dash is that user's and
the owner's; all others are the owner's alone.
"""

import errno
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from warren.rpc.message import Cred, Payload, Request, RpcError

MethodHandler = Callable[[Request], Awaitable[Payload]]
StreamHandler = Callable[[Request], AsyncIterator[Payload]]

_LONGEST_TOPIC: Final = 200
"""Characters of a topic that errors repeat: a guest's may have megabytes."""


@dataclass(frozen=True)
class Method:
    """One topic of a service; with `guest`, guests may call it as well as the owner."""

    answer: MethodHandler
    guest: bool = False


@dataclass(frozen=True)
class StreamingMethod:
    """One topic that is answered more than once."""

    answers: StreamHandler
    guest: bool = False


Methods = Mapping[str, Method | StreamingMethod]


class Forwarder(ABC):
    """A service that lives somewhere else."""

    @abstractmethod
    async def rpc(self, request: Request) -> Payload:
        """Have a request answered there."""

    @abstractmethod
    def stream(self, request: Request) -> AsyncIterator[Payload]:
        """Have a request answered there, as long as there are answers."""


class Bus:
    """The services of one instance."""

    def __init__(self, owner: int) -> None:
        self.owner = owner
        """The user id of the instance's owner."""
        self._services: dict[str, Methods | Forwarder] = {}

    def register(self, service: str, methods: Methods | Forwarder) -> None:
        """Register a service. Raises RpcError(EEXIST) if its name is taken."""
        if service in self._services:
            raise RpcError(errno.EEXIST, f"service {service} is registered already")
        self._services[service] = methods

    def unregister(self, service: str) -> None:
        """Withdraw a service."""
        self._services.pop(service, None)

    def topics(self) -> dict[str, bool]:
        """Return what is answered in this process, and whether more than once."""
        return {
            f"{service}.{name}": isinstance(method, StreamingMethod)
            for service, methods in self._services.items()
            if not isinstance(methods, Forwarder)
            for name, method in methods.items()
        }

    def handle(self, userid: int | None = None) -> "Loopback":
        """Return a connection in this process: the owner's, or another user's."""
        userid = self.owner if userid is None else userid
        return Loopback(self, Cred(userid, userid == self.owner))

    async def rpc(self, request: Request) -> Payload:
        """Pass on a request that has one answer."""
        handler = self._find_handler(request)
        if isinstance(handler, Forwarder):
            return await handler.rpc(request)
        if not isinstance(handler, Method):
            raise RpcError(errno.EPROTO, f"{_brief(request.topic)} is a streaming request")
        return await handler.answer(request)

    async def stream(self, request: Request) -> AsyncIterator[Payload]:
        """Pass on a request that has any number of answers."""
        handler = self._find_handler(request)
        if isinstance(handler, Forwarder):
            answers = handler.stream(request)
        elif isinstance(handler, StreamingMethod):
            answers = handler.answers(request)
        else:
            raise RpcError(errno.EPROTO, f"{_brief(request.topic)} is not a streaming request")
        # Closed with this generator, whichever way it ends: a service must learn
        # at once that its client is gone.
        async with aclosing(answers) as open_answers:  # type: ignore[type-var]
            async for answer in open_answers:
                passed_on = [answer]
                del answer  # it may be large, and its reader slow
                yield passed_on.pop()

    def _find_handler(self, request: Request) -> Method | StreamingMethod | Forwarder:
        service_name, _, method_name = request.topic.partition(".")
        service = self._services.get(service_name)
        if service is None:
            raise RpcError(errno.ENOSYS, f"no service answers {_brief(request.topic)}")
        if isinstance(service, Forwarder):
            if not may_use(request.cred, service_name):
                raise RpcError(errno.EPERM, f"{_brief(request.topic)} is not for this user")
            return service
        method = service.get(method_name)
        if method is None:
            raise RpcError(errno.ENOSYS, f"no service answers {_brief(request.topic)}")
        if not (method.guest or request.cred.is_owner):
            raise RpcError(errno.EPERM, f"{_brief(request.topic)} is for the instance owner")
        return method


def _brief(topic: str) -> str:
    return topic if len(topic) <= _LONGEST_TOPIC else f"{topic[:_LONGEST_TOPIC]}..."


def may_use(cred: Cred, service: str) -> bool:
    """Return whether a user may offer a service of this name, or call one that others offer."""
    return cred.is_owner or service.startswith(f"{cred.userid}-")


class Loopback:
    """A connection to a bus of this process."""

    def __init__(self, bus: Bus, cred: Cred) -> None:
        self._bus = bus
        self._cred = cred

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        return await self._bus.rpc(Request(topic=topic, payload=payload or {}, cred=self._cred))

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        request = Request(topic=topic, payload=payload or {}, cred=self._cred, streaming=True)
        async with aclosing(self._bus.stream(request)) as answers:  # type: ignore[type-var]
            async for answer in answers:
                yield answer
                del answer  # as in `Bus.stream`
