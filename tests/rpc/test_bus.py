"""The bus: who offers what, and who may ask for it."""

import errno
from collections.abc import AsyncIterator

import pytest

from tests.journal.running import virtually
from tests.rpc.services import GUEST, OWNER, Services, bus_with
from warren.rpc.bus import Bus, Forwarder, Methods
from warren.rpc.message import Handle, Payload, Request, RpcError


class Elsewhere(Forwarder):
    """A service in another process, that answers with what it was asked."""

    async def rpc(self, request: Request) -> Payload:
        return {"topic": request.topic, "userid": request.cred.userid}

    async def stream(self, request: Request) -> AsyncIterator[Payload]:
        yield await self.rpc(request)


async def fails(handle: Handle, topic: str) -> int:
    """Return the errnum of a request that must fail."""
    with pytest.raises(RpcError) as failed:
        await handle.rpc(topic)
    return failed.value.errnum


async def stream_fails(handle: Handle, topic: str) -> int:
    with pytest.raises(RpcError) as failed:
        await anext(handle.stream(topic))
    return failed.value.errnum


def test_a_service_is_offered_once() -> None:
    bus = Bus(OWNER)
    bus.register("kvs", {})
    again: Methods | Forwarder
    for again in ({}, Elsewhere()):
        with pytest.raises(RpcError) as refused:
            bus.register("kvs", again)
        assert refused.value.errnum == errno.EEXIST


@virtually
async def test_a_withdrawn_service_is_gone_and_may_be_offered_again() -> None:
    bus = bus_with(Services())
    bus.unregister("test")
    assert await fails(bus.handle(), "test.echo") == errno.ENOSYS
    bus.register("test", Elsewhere())
    assert (await bus.handle().rpc("test.echo"))["topic"] == "test.echo"


@virtually
async def test_guests_may_ask_what_is_for_guests() -> None:
    guest = bus_with(Services()).handle(GUEST)
    assert await guest.rpc("test.whoami") == {"userid": GUEST, "owner": False}
    assert [answer async for answer in guest.stream("test.count", {"to": 1})]


@virtually
async def test_guests_may_not_ask_what_is_the_owners() -> None:
    guest = bus_with(Services()).handle(GUEST)
    assert await fails(guest, "test.secret") == errno.EPERM
    assert await stream_fails(guest, "test.secrets") == errno.EPERM
    # That there is no such thing is no secret.
    assert await fails(guest, "test.nothing") == errno.ENOSYS


@pytest.mark.parametrize("topic", ["none.", "test.", "elsewhere."])
@virtually
async def test_a_refusal_repeats_no_more_than_a_part_of_a_long_topic(topic: str) -> None:
    """It waits for a guest that need not read it."""
    bus = bus_with(Services())
    bus.register("elsewhere", Elsewhere())
    with pytest.raises(RpcError, match=topic) as refused:
        await bus.handle(GUEST).rpc(topic.ljust(2**20, "x"))
    assert len(str(refused.value)) < 300


@virtually
async def test_what_lives_elsewhere_is_the_owners() -> None:
    """Its end of the connection cannot know who may ask what; here no other asks."""
    bus = Bus(OWNER)
    bus.register("elsewhere", Elsewhere())
    expected = {"topic": "elsewhere.any", "userid": OWNER}
    assert await bus.handle().rpc("elsewhere.any") == expected
    assert [answer async for answer in bus.handle().stream("elsewhere.any")] == [expected]
    assert await fails(bus.handle(GUEST), "elsewhere.any") == errno.EPERM
    assert await stream_fails(bus.handle(GUEST), "elsewhere.any") == errno.EPERM


@virtually
async def test_a_service_learns_at_once_that_its_reader_has_closed() -> None:
    services = Services()
    answers = bus_with(services).handle().stream("test.for-ever")
    await anext(answers)
    assert services.running == {"for-ever"}
    await answers.aclose()  # type: ignore[attr-defined]
    assert services.running == set()


@virtually
async def test_root_is_a_guest_of_another_users_instance() -> None:
    bus = bus_with(Services(), owner=1000)
    assert await bus.handle(0).rpc("test.whoami") == {"userid": 0, "owner": False}
