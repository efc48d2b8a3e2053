"""What one guest may take of an instance: it is told, and no other user feels it."""

import asyncio
import errno
import os
import resource
import select
import socket
import stat
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.journal.running import really
from tests.rpc.services import GUEST, OWNER, Services, bus_with, connected, eventually
from tests.rpc.test_socket import errnum_of, wired
from warren.base.fairqueue import Fairness
from warren.base.subordinateids import SubordinateIds
from warren.rpc import client, guests, message, server, sockets
from warren.rpc.bus import Bus, Method, StreamingMethod
from warren.rpc.client import ReconnectingHandle
from warren.rpc.guests import GuestLimits, Guests
from warren.rpc.message import Cred, Message, Payload, Request, RpcError
from warren.rpc.peer import Peer, RequestHandler
from warren.rpc.server import AccessPolicy, ServerLimits

FEW = GuestLimits(connections=2, all_connections=3, requests=4, waiting_bytes=100_000)
AT_ONCE = Fairness(allowance=1e9)
"""So that nothing depends on how fast this machine is."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "socket"


@asynccontextmanager
async def open_to(bus: Bus, path: Path, access: AccessPolicy) -> AsyncIterator[None]:
    running = asyncio.ensure_future(
        server.serve(bus, path, access, ServerLimits(guest_limits=FEW, fairness=AT_ONCE))
    )
    try:
        await eventually(path.is_socket)
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


async def refused(path: Path) -> RpcError:
    """Connect and ask, and give why that is not answered."""
    async with connected(path) as handle:
        with pytest.raises(RpcError) as failed:
            await handle.rpc("test.echo")
        # What is asked of it later is refused with the same words.
        with pytest.raises(RpcError, match=str(failed.value)):
            await handle.rpc("test.echo")
    return failed.value


# Who comes in


@really
async def test_a_guest_of_an_instance_that_has_none_is_told_so(path: Path) -> None:
    async with open_to(bus_with(Services(), owner=GUEST), path, AccessPolicy()):
        error = await refused(path)
    assert error.errnum == errno.EPERM
    assert str(error) == ("this instance is its owner's alone: access.allow-guest-user is not set")


@pytest.mark.parametrize(("guest", "mode"), [(False, 0o600), (True, 0o666)])
@really
async def test_the_sockets_permissions_say_who_may_come(path: Path, guest: bool, mode: int) -> None:
    async with open_to(Bus(OWNER), path, AccessPolicy(allow_guests=guest)):
        assert stat.S_IMODE(os.stat(path).st_mode) == mode


@pytest.mark.skipif(OWNER != 0, reason="only root can be root")
@pytest.mark.parametrize("owns", [True, False])
@really
async def test_root_owns_where_the_site_says_so(path: Path, owns: bool) -> None:
    access = AccessPolicy(allow_guests=True, root_is_owner=owns)
    async with open_to(bus_with(Services(), owner=GUEST), path, access), connected(path) as root:
        assert await root.rpc("test.whoami") == {"userid": 0, "owner": owns}


@really
async def test_a_guest_that_is_no_user_of_this_machine_is_told_so(path: Path) -> None:
    """Or one user's subordinate ids would each have a guest's share of everything."""
    known: dict[int, bool] = {}

    async def is_known(userid: int) -> bool:
        return known[userid]

    access = AccessPolicy(allow_guests=True, is_user=is_known)
    async with open_to(bus_with(Services(), owner=GUEST), path, access):
        known[OWNER] = False
        error = await refused(path)
        assert error.errnum == errno.EPERM
        assert str(error) == f"there is no user {OWNER} on this machine"
        known[OWNER] = True
        async with connected(path) as handle:
            assert await handle.rpc("test.echo") == {}
        del known[OWNER]  # who was known is not asked about again
        async with connected(path) as handle:
            assert await handle.rpc("test.echo") == {}


@really
async def test_those_who_are_asked_about_are_few(path: Path) -> None:
    answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    access = AccessPolicy(allow_guests=True, is_user=lambda userid: answer)
    async with (
        open_to(bus_with(Services(), owner=GUEST), path, access),
        connected(path) as first,
        connected(path) as second,
    ):
        asking = [asyncio.ensure_future(each.rpc("test.echo")) for each in (first, second)]
        error = await refused(path)
        assert error.errnum == errno.EMFILE
        answer.set_result(True)
        assert await asyncio.gather(*asking) == [{}, {}]


# Connections


@really
async def test_one_connection_too_many_is_refused_until_one_ends(path: Path) -> None:
    async with (
        open_to(bus_with(Services(), owner=GUEST), path, AccessPolicy(allow_guests=True)),
        connected(path) as first,
        AsyncExitStack() as second,
    ):
        await second.enter_async_context(connected(path))
        await first.rpc("test.echo")
        error = await refused(path)
        assert error.errnum == errno.EMFILE
        assert str(error) == f"user {OWNER} has 2 connections: close some"

        await second.aclose()
        async with asyncio.timeout(60):
            while True:
                async with connected(path) as third:
                    try:
                        assert await third.rpc("test.echo") == {}
                    except RpcError:
                        continue
                    break


@really
async def test_the_owner_has_as_many_connections_as_it_likes(path: Path) -> None:
    async with (
        open_to(bus_with(Services()), path, AccessPolicy(allow_guests=True)),
        AsyncExitStack() as stack,
    ):
        for _ in range(10):
            handle = await stack.enter_async_context(connected(path))
            assert await handle.rpc("test.echo") == {}


@asynccontextmanager
async def paced(path: Path, **limits: Any) -> AsyncIterator[None]:
    """Serve guests, of whom all tests' connections are, at a pace."""
    guest_limits = GuestLimits(connections=99, all_connections=99, **limits)
    running = asyncio.ensure_future(
        server.serve(
            bus_with(Services(), owner=GUEST),
            path,
            AccessPolicy(allow_guests=True),
            ServerLimits(guest_limits=guest_limits, fairness=AT_ONCE),
        )
    )
    try:
        await eventually(path.is_socket)
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


@really
async def test_who_connects_without_end_is_told_so_and_what_is_connected_goes_on(
    path: Path,
) -> None:
    async with (
        paced(path, connection_interval=1e3, connection_burst=2, max_connection_delay=0.0),
        connected(path) as first,
    ):
        assert await first.rpc("test.echo") == {}
        sockets.connect(path).close()
        error = await refused(path)
        # As one whose connection is lost: those who come again then do so here.
        assert error.errnum == errno.ECONNRESET
        assert str(error) == (
            f"user {OWNER} opens connections faster than 0.001 in a second: try again later, or "
            "ask more over each"
        )
        assert await first.rpc("test.echo") == {}


@really
async def test_who_connects_a_little_too_fast_is_answered_a_little_later(path: Path) -> None:
    async with paced(path, connection_interval=0.02, connection_burst=1), AsyncExitStack() as stack:
        handles = [await stack.enter_async_context(connected(path)) for _ in range(5)]
        asked = [handle.rpc("test.echo", {"a": number}) for number, handle in enumerate(handles)]
        assert await asyncio.gather(*asked) == [{"a": number} for number in range(5)]


@really
async def test_those_who_wait_for_their_turn_are_hung_up_on_when_the_server_stops(
    path: Path,
) -> None:
    async with AsyncExitStack() as clients, AsyncExitStack() as serving:
        await serving.enter_async_context(
            paced(path, connection_interval=1e6, connection_burst=1, max_connection_delay=1e9)
        )
        wires = [await clients.enter_async_context(wired(path)) for _ in range(3)]
        for wire in wires:
            await wire.say({"tag": 1, "topic": "test.echo"})
        assert (await wires[0].hear())["errnum"] == 0
        async with asyncio.timeout(60):
            await serving.aclose()
            assert [await wire.hear() for wire in wires] == [None] * 3


@really
async def test_connections_are_made_one_in_each_turn_of_the_event_loop(path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with paced(path, connection_burst=99), AsyncExitStack() as stack:
        for _ in range(20):
            stack.enter_context(sockets.connect(path))
        counts = [opened()]
        while counts[-1] < counts[0] + 20:
            await asyncio.sleep(0)
            counts.append(opened())
    assert max(later - sooner for sooner, later in pairwise(counts)) == 1


@really
async def test_refused_connections_leave_the_event_loop_to_others_in_between(path: Path) -> None:
    async with (
        paced(path, connection_burst=1, max_connection_delay=0.0, connection_interval=1e6),
        AsyncExitStack() as stack,
    ):
        ours = [stack.enter_context(sockets.connect(path)) for _ in range(101)]
        counts = [0]
        while counts[-1] < 100:
            await asyncio.sleep(0)
            counts.append(len(select.select(ours, [], [], 0)[0]))
    assert 0 < max(later - sooner for sooner, later in pairwise(counts)) <= 32


def test_all_subordinate_ids_of_a_user_connect_at_the_pace_of_four_users(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    table.write_text("somebody:100000:65536\n")
    limits = GuestLimits(
        connections=9,
        all_connections=9,
        connection_interval=1.0,
        connection_burst=1,
        max_connection_delay=0.0,
    )
    known = Guests(limits, subordinates=SubordinateIds(table))
    delays = [known.schedule_connection(userid, 10.0) for userid in (*range(100_000, 100_004), 7)]
    assert delays == [0.0] * 5
    with pytest.raises(RpcError, match="user 100004 opens connections faster than 1 in"):
        known.schedule_connection(100_004, 10.0)


def test_guests_leave_something_to_each_other_and_to_the_owner() -> None:
    known = Guests(FEW)
    with known.count_connection(1), known.count_connection(1), known.count_connection(2):
        for userid in (1, 2, 3):
            with pytest.raises(RpcError) as failed, known.count_connection(userid):
                pass
            assert failed.value.errnum == errno.EMFILE
    with known.count_connection(3) as usage:
        assert usage.connections == 1
    assert known._usages == {}


def test_a_quarter_of_what_may_be_open_is_the_owners() -> None:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = guests.default_limits()

    assert found.connections == files // 4
    assert found.all_connections <= files - files // 4


# Requests


@really
async def test_one_request_too_many_is_refused_and_the_others_are_answered(path: Path) -> None:
    services = Services()
    async with (
        open_to(bus_with(services, owner=GUEST), path, AccessPolicy(allow_guests=True)),
        connected(path) as handle,
        connected(path) as again,
    ):
        names = [str(number) for number in range(4)]
        waiting = [asyncio.ensure_future(handle.rpc("test.wait", {"name": name})) for name in names]
        await eventually(lambda: len(services.running) == 4)
        # On whichever connection.
        with pytest.raises(RpcError, match="has 4 requests under way: try again") as failed:
            await again.rpc("test.echo")
        assert failed.value.errnum == errno.EAGAIN

        services.gate.set()
        await asyncio.gather(*waiting)
        assert await again.rpc("test.echo") == {}


@really
async def test_a_guest_who_is_gone_has_taken_nothing(path: Path) -> None:
    services = Services()
    async with open_to(bus_with(services, owner=GUEST), path, AccessPolicy(allow_guests=True)):
        for _ in range(5):
            async with connected(path) as handle:
                waiting = asyncio.ensure_future(handle.rpc("test.wait"))
                await eventually(lambda: services.running)
            assert await errnum_of(waiting) == errno.ECONNRESET
            await eventually(lambda: not services.running)


@really
async def test_a_message_that_does_not_end_costs_its_connection(path: Path) -> None:
    services = Services()
    async with (
        open_to(bus_with(services, owner=GUEST), path, AccessPolicy(allow_guests=True)),
        connected(path) as other,
        wired(path) as wire,
    ):
        with pytest.raises(ConnectionError):
            await wire.say(b"x" * 10_000_000)
        assert await other.rpc("test.echo") == {}
        # What it has held is given back.
        assert await other.rpc("test.echo", {"a": "x" * 40_000})


@really
async def test_answers_that_are_not_read_do_not_pile_up(path: Path) -> None:
    """What finds no room is refused in a few words, and who reads nothing is not heard."""

    async def large(request: Request) -> Payload:
        return {"text": "x" * 90_000}

    bus = Bus(GUEST)
    bus.register("test", {"large": Method(large, guest=True)})
    async with open_to(bus, path, AccessPolicy(allow_guests=True)), wired(path) as wire:
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for tag in range(1, 20_001):
            wire.writer.write(b'{"tag":%d,"topic":"test.large"}\n' % tag)
        await asyncio.sleep(0.2)
        assert wire.writer.transport.get_write_buffer_size() > 0

        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            heard = [await wire.hear() for _ in range(20_000)]
    answered = [each for each in heard if each["errnum"] == 0]
    assert 0 < len(answered) < 2000
    assert {each["errnum"] for each in heard} == {0, errno.EAGAIN}


@really
async def test_the_patient_come_again_when_there_is_no_room(path: Path) -> None:
    async with open_to(bus_with(Services(), owner=GUEST), path, AccessPolicy(allow_guests=True)):
        async with AsyncExitStack() as others:
            for _ in range(2):
                handle = await others.enter_async_context(connected(path))
                await handle.rpc("test.echo")
            patient = ReconnectingHandle(lambda: client.connect(path), delay=0.01)
            running = asyncio.ensure_future(patient.run())
            asking = asyncio.ensure_future(patient.rpc("test.echo", {"a": 1}))
            await asyncio.sleep(0.1)
            assert not asking.done()
        assert await asking == {"a": 1}
        running.cancel()
        await asyncio.wait({running})


async def exhausted(answers: AsyncIterator[Payload]) -> None:
    async for _ in answers:
        pass


@really
async def test_answers_of_a_users_service_do_not_pile_up_before_the_one_who_asked(
    path: Path,
) -> None:
    sent = 0

    async def flood(request: Request) -> AsyncIterator[Payload]:
        nonlocal sent
        for _ in range(40):
            sent += 1
            yield {"text": "x" * 9_000}
        await asyncio.Event().wait()

    serving = Bus(OWNER)
    name = f"{OWNER}-tool"
    serving.register(name, {"flood": StreamingMethod(flood, guest=True)})
    guests_bus = Bus(GUEST)
    async with (
        open_to(guests_bus, path, AccessPolicy(allow_guests=True)),
        client.connect(path, serving) as offering,
    ):
        await offering.rpc("service.add", {"service": name})
        answers = guests_bus.handle(OWNER).stream(f"{name}.flood")
        async with aclosing(answers) as answers:  # type: ignore[type-var]
            await anext(answers)
            await eventually(lambda: sent == 40)
            with pytest.raises(RpcError) as failed:
                await exhausted(answers)
        assert failed.value.errnum == errno.EOVERFLOW
        # What has waited is given back.
        assert await offering.rpc("service.add", {"service": f"{name}-2"}) == {}


@really
async def test_a_message_of_too_many_values_is_refused_unread(path: Path) -> None:
    async with (
        open_to(bus_with(Services(), owner=GUEST), path, AccessPolicy(allow_guests=True)),
        connected(path) as handle,
    ):
        with pytest.raises(RpcError, match="the message has over 32768 values") as failed:
            await handle.rpc("test.echo", {"a": [0] * 40_000})
        assert failed.value.errnum == errno.EMSGSIZE
        assert await handle.rpc("test.echo", {"a": ",[" * 20_000 + '"\\'})


@really
async def test_requests_count_for_what_they_take_when_they_are_read(path: Path) -> None:
    """A list of empty objects takes twenty times as much as its text."""
    services = Services()
    async with (
        open_to(bus_with(services, owner=GUEST), path, AccessPolicy(allow_guests=True)),
        connected(path) as handle,
    ):
        large: dict[str, object] = {"more": [{} for _ in range(400)]}  # 1,200 bytes, and 800 values
        waiting = asyncio.ensure_future(handle.rpc("test.wait", large))
        await eventually(lambda: services.running)
        with pytest.raises(RpcError, match=r"of user .* wait already") as failed:
            await handle.rpc("test.echo", large)
        assert failed.value.errnum == errno.EAGAIN

        services.gate.set()
        await waiting
        assert await handle.rpc("test.echo", large) == large


@really
async def test_the_name_of_a_service_is_short(path: Path) -> None:
    """It is kept for as long as its connection, and is no request under way."""
    async with (
        open_to(bus_with(Services(), owner=GUEST), path, AccessPolicy(allow_guests=True)),
        connected(path) as handle,
    ):
        name = f"{OWNER}-tool"
        with pytest.raises(RpcError, match="has 256 characters at most") as failed:
            await handle.rpc("service.add", {"service": name.ljust(257, "x")})
        assert failed.value.errnum == errno.EINVAL
        assert await handle.rpc("service.add", {"service": name.ljust(256, "x")}) == {}


class Answer(dict[str, object]):
    """One that can be seen to be gone."""


@really
async def test_an_answer_that_is_sent_is_not_kept_until_the_next_one_comes(path: Path) -> None:
    """A guest has thousands of streams, and an answer may have megabytes."""
    made: list[weakref.ref[Answer]] = []

    async def one(request: Request) -> AsyncIterator[Payload]:
        answer = Answer(text="x")
        made.append(weakref.ref(answer))
        yield answer
        del answer
        await asyncio.Event().wait()

    bus = Bus(GUEST)
    bus.register("test", {"one": StreamingMethod(one, guest=True)})
    async with (
        open_to(bus, path, AccessPolicy(allow_guests=True)),
        connected(path) as handle,
        aclosing(handle.stream("test.one")) as answers,  # type: ignore[type-var]
    ):
        assert await anext(answers) == {"text": "x"}
        await eventually(lambda: made[0]() is None)


class LargeAnswers(RequestHandler):
    """Answers with more than fits between two processes."""

    def __init__(self) -> None:
        self.made: list[weakref.ref[Answer]] = []
        self.sent = 0

    def read_request(self, received: Message) -> Request:
        assert received.topic is not None
        return Request(
            topic=received.topic,
            payload={},
            cred=Cred(GUEST, False),
            streaming=received.streaming,
        )

    async def rpc(self, request: Request) -> Payload:
        answer = Answer(text="x" * 2**23)
        self.made.append(weakref.ref(answer))
        return answer

    async def stream(self, request: Request) -> AsyncIterator[Payload]:
        yield await self.rpc(request)
        self.sent += 1


@pytest.mark.parametrize("streaming", [False, True])
@really
async def test_an_answer_is_not_kept_while_its_reader_does_not_read(streaming: bool) -> None:
    """It may take many times the bytes of its message, which are counted."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        answers = LargeAnswers()
        running = asyncio.ensure_future(Peer(reader, writer, answers).run())
        asked = Message(tag=1, topic="test.one", payload=message.pack({}), streaming=streaming)
        theirs.sendall(message.encode(asked))
        await eventually(lambda: answers.made and answers.made[0]() is None)
        assert writer.transport.get_write_buffer_size() > 0
        assert answers.sent == 0
    await running


# Time


@really
async def test_guests_requests_are_answered_in_turns_and_the_owners_are_not(
    tmp_path: Path,
) -> None:
    ticks = 0
    between: list[int] = []

    async def heavy(request: Request) -> Payload:
        between.clear()
        for _ in range(20):
            end = asyncio.get_running_loop().time() + 0.003
            while asyncio.get_running_loop().time() < end:
                pass
            before = ticks
            await asyncio.sleep(0)
            between.append(ticks - before)
        return {}

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def asked(bus: Bus, path: Path) -> int:
        bus.register("test", {"heavy": Method(heavy, guest=True)})
        limits = ServerLimits(fairness=Fairness(allowance=0.0, refill=0.0, rest_factor=10.0))
        running = asyncio.ensure_future(
            server.serve(bus, path, AccessPolicy(allow_guests=True), limits)
        )
        await eventually(path.is_socket)
        async with connected(path) as handle:
            ticking = asyncio.ensure_future(tick())
            await handle.rpc("test.heavy")
            ticking.cancel()
        running.cancel()
        await asyncio.wait({running, ticking})
        return sum(between)

    assert await asked(Bus(GUEST), tmp_path / "guests") > 100
    assert await asked(Bus(GUEST - 1), tmp_path / "owners") <= 25
