"""The patient handle: it outlives the instance's restarts."""

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from itertools import pairwise
from operator import contains
from pathlib import Path

import pytest

from tests.journal.running import really, virtually
from tests.rpc.services import OWNER, Services, bus_with, eventually, serving
from warren.rpc.bus import Bus
from warren.rpc.client import ReconnectingHandle, connect
from warren.rpc.message import Handle, Payload, RpcError


class Fickle:
    """An instance that is there or not, and connections that are lost when it goes."""

    def __init__(self) -> None:
        self.bus: Bus | None = None
        self.connections = 0
        self._gone = asyncio.Event()

    def come(self, bus: Bus) -> None:
        self.bus = bus
        self._gone = asyncio.Event()

    def go(self) -> None:
        self.bus = None
        self._gone.set()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Handle]:
        if self.bus is None:
            raise RpcError(errno.ECONNRESET)
        self.connections += 1
        yield FickleHandle(self.bus.handle(), self._gone)


class FickleHandle:
    def __init__(self, handle: Handle, gone: asyncio.Event) -> None:
        self._handle = handle
        self._gone = gone

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        if self._gone.is_set():
            raise RpcError(errno.ECONNRESET)
        asked = asyncio.ensure_future(self._handle.rpc(topic, payload))
        gone = asyncio.ensure_future(self._gone.wait())
        await asyncio.wait({asked, gone}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if asked.done():
            return asked.result()
        asked.cancel()
        raise RpcError(errno.ECONNRESET)

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        if self._gone.is_set():
            raise RpcError(errno.ECONNRESET)
        async with aclosing(self._handle.stream(topic, payload)) as answers:  # type: ignore[type-var]
            async for answer in answers:
                if self._gone.is_set():
                    raise RpcError(errno.ECONNRESET)
                yield answer


@asynccontextmanager
async def patient_of(fickle: Fickle) -> AsyncIterator[ReconnectingHandle]:
    reconnecting = ReconnectingHandle(fickle.connect)
    running = asyncio.ensure_future(reconnecting.run())
    try:
        yield reconnecting
    finally:
        running.cancel()
        await asyncio.wait({running})


@virtually
async def test_it_waits_for_an_instance_that_is_not_there_yet() -> None:
    fickle = Fickle()
    async with patient_of(fickle) as reconnecting:
        asked = [asyncio.ensure_future(reconnecting.rpc("test.echo", {"n": n})) for n in range(3)]
        await asyncio.sleep(1000)
        assert not any(each.done() for each in asked)
        fickle.come(bus_with(Services()))
        assert await asyncio.gather(*asked) == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert fickle.connections == 1


@virtually
async def test_it_does_not_connect_before_it_is_asked() -> None:
    fickle = Fickle()
    fickle.come(bus_with(Services()))
    async with patient_of(fickle):
        await asyncio.sleep(1000)
        assert fickle.connections == 0


@virtually
async def test_it_asks_again_when_the_instance_went_before_the_answer() -> None:
    fickle, first, second = Fickle(), Services(), Services()
    fickle.come(bus_with(first))
    async with patient_of(fickle) as reconnecting:
        asked = asyncio.ensure_future(reconnecting.rpc("test.wait", {"name": "x"}))
        await asyncio.sleep(1)
        assert first.running == {"x"}
        fickle.go()
        await asyncio.sleep(1000)
        fickle.come(bus_with(second))
        await asyncio.sleep(1)
        assert second.running == {"x"}
        second.gate.set()
        assert await asked == {"name": "x"}
        assert fickle.connections == 2


@virtually
async def test_it_waits_for_a_service_that_is_not_offered_yet() -> None:
    fickle, bus = Fickle(), Bus(OWNER)
    fickle.come(bus)
    async with patient_of(fickle) as reconnecting:
        asked = asyncio.ensure_future(reconnecting.rpc("test.echo"))
        await asyncio.sleep(1000)
        assert not asked.done()
        bus.register("test", Services().methods())
        assert await asked == {}
        assert fickle.connections == 1


@virtually
async def test_an_answer_that_is_an_error_is_an_answer() -> None:
    fickle = Fickle()
    fickle.come(bus_with(Services()))
    async with patient_of(fickle) as reconnecting:
        for errnum in (errno.ENOENT, errno.EPERM, errno.EIO, errno.EPROTO):
            with pytest.raises(RpcError) as failed:
                await reconnecting.rpc("test.fail", {"errnum": errnum})
            assert failed.value.errnum == errnum


@virtually
async def test_a_stream_waits_for_the_instance_but_is_not_resumed() -> None:
    fickle = Fickle()
    async with patient_of(fickle) as reconnecting:
        answers = reconnecting.stream("test.for-ever")
        first = asyncio.ensure_future(anext(answers))
        await asyncio.sleep(1000)
        fickle.come(bus_with(Services()))
        assert (await first)["number"] == 0
        fickle.go()
        with pytest.raises(RpcError) as failed:
            await anext(answers)
        assert failed.value.errnum == errno.ECONNRESET

        fickle.come(bus_with(Services()))
        again = [answer["number"] async for answer in reconnecting.stream("test.count")]
        assert again == [0, 1, 2]


class Refusing:
    """An instance that hangs up on those who connect, unless it is `open`."""

    def __init__(self) -> None:
        self.times: list[float] = []
        """When it was connected to."""
        self.open = asyncio.Event()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Handle]:
        self.times.append(asyncio.get_running_loop().time())
        yield self

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        if not self.open.is_set():
            raise RpcError(errno.ECONNRESET, "too fast")
        return {}

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        yield await self.rpc(topic, payload)

    def pauses(self) -> list[float]:
        return [round(later - earlier, 3) for earlier, later in pairwise(self.times)]


@virtually
async def test_who_is_refused_comes_again_ever_later_until_there_is_an_answer() -> None:
    refusing = Refusing()
    reconnecting = ReconnectingHandle(refusing.connect, jitter=lambda: 0.5)
    running = asyncio.ensure_future(reconnecting.run())
    for _ in range(2):
        refusing.times.clear()
        asked = asyncio.ensure_future(reconnecting.rpc("test.echo"))
        await asyncio.sleep(30)
        assert refusing.pauses()[:7] == [0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
        refusing.open.set()
        assert await asked == {}

        # Lost after an answer: one comes again at once, as after a restart.
        refusing.times.clear()
        refusing.open.clear()
        asked = asyncio.ensure_future(reconnecting.rpc("test.echo"))
        await asyncio.sleep(0.3)
        refusing.open.set()
        assert await asked == {}
        refusing.open.clear()
    running.cancel()
    await asyncio.wait({running})


@virtually
async def test_those_who_are_refused_together_do_not_come_together_again() -> None:
    first, second = Refusing(), Refusing()
    patient = [
        ReconnectingHandle(first.connect, jitter=lambda: 0.0),
        ReconnectingHandle(second.connect, jitter=lambda: 1.0),
    ]
    running = [
        asyncio.ensure_future(work)
        for each in patient
        for work in (each.run(), each.rpc("test.echo"))
    ]
    await asyncio.sleep(30)
    assert first.pauses()[:6] == [0.2, 0.4, 0.8, 1.6, 2.5, 2.5]
    assert second.pauses()[:5] == [0.6, 1.2, 2.4, 4.8, 7.5]
    for each in running:
        each.cancel()
    await asyncio.wait(running)


@virtually
async def test_what_is_more_than_a_lost_connection_ends_it() -> None:
    @asynccontextmanager
    async def forbidden() -> AsyncIterator[Handle]:
        raise RpcError(errno.EPERM)
        yield

    reconnecting = ReconnectingHandle(forbidden)
    asked = asyncio.ensure_future(reconnecting.rpc("test.echo"))
    with pytest.raises(RpcError) as failed:
        await reconnecting.run()
    assert failed.value.errnum == errno.EPERM
    asked.cancel()


@really
async def test_it_outlives_a_real_server(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    reconnecting = ReconnectingHandle(lambda: connect(path), delay=0.01)
    running = asyncio.ensure_future(reconnecting.run())
    asked = asyncio.ensure_future(reconnecting.rpc("test.echo", {"n": 1}))
    services = Services()
    async with serving(bus_with(services), path):
        assert await asked == {"n": 1}
        asked = asyncio.ensure_future(reconnecting.rpc("test.wait"))
        await eventually(lambda: services.running == {"wait"})
    await asyncio.sleep(0.05)
    assert not asked.done()
    again = Services()
    again.gate.set()
    async with serving(bus_with(again), path):
        assert await asked == {"name": "wait"}
        running.cancel()
        await asyncio.wait({running})


@really
async def test_what_it_offers_is_on_offer_again_after_a_restart(tmp_path: Path) -> None:
    path, inner = tmp_path / "socket", Bus(OWNER)
    reconnecting = ReconnectingHandle(lambda: connect(path, inner), inner, delay=0.01)
    running = asyncio.ensure_future(reconnecting.run())
    offering = asyncio.ensure_future(
        reconnecting.offer("mine", Services().methods(), asyncio.Event())
    )
    try:
        for _ in range(3):
            bus = Bus(OWNER)
            async with serving(bus, path):
                await eventually(partial(contains, bus._services, "mine"))
                assert await bus.handle().rpc("mine.echo", {"a": 1}) == {"a": 1}
    finally:
        offering.cancel()
        running.cancel()
        await asyncio.wait({offering, running})


@really
async def test_what_may_not_be_offered_is_refused(tmp_path: Path) -> None:
    path, inner = tmp_path / "socket", Bus(OWNER)
    reconnecting = ReconnectingHandle(lambda: connect(path, inner), inner, delay=0.01)
    async with serving(Bus(OWNER + 1), path):
        running = asyncio.ensure_future(reconnecting.run())
        try:
            with pytest.raises(RpcError) as refused:
                await reconnecting.offer("kvs", {}, asyncio.Event())
        finally:
            running.cancel()
            await asyncio.wait({running})
    assert refused.value.errnum == errno.EPERM
