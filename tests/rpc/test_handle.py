"""What a handle promises, told to each: in process, over a socket, and over two of them."""

import asyncio
import errno
import os
from contextlib import aclosing

import pytest

from tests.journal.running import read
from tests.rpc.services import OWNER, Services, each_handle, eventually
from warren.rpc.message import Handle, Payload, RpcError


@each_handle
async def test_a_request_is_answered(handle: Handle, services: Services) -> None:
    payload = {"a": [1, 2.5, None, True, "ü\u2028\n"], "b": {"c": {}}, "big": 2**53}

    assert await handle.rpc("test.echo", payload) == payload
    assert await handle.rpc("test.echo", {}) == {}
    assert await handle.rpc("test.echo") == {}


@each_handle
async def test_a_large_payload_comes_through(handle: Handle, services: Services) -> None:
    payload = {"text": "x" * 3 * 2**20}

    assert await handle.rpc("test.echo", payload) == payload


@each_handle
async def test_a_request_says_who_asks(handle: Handle, services: Services) -> None:
    assert await handle.rpc("test.whoami") == {"userid": OWNER, "owner": True}


@each_handle
async def test_an_error_comes_with_its_number_and_its_words(
    handle: Handle, services: Services
) -> None:
    with pytest.raises(RpcError, match=r"^no such \"thing\" — ü$") as failed:
        await handle.rpc("test.fail", {"errnum": errno.ENOENT, "text": 'no such "thing" — ü'})
    assert failed.value.errnum == errno.ENOENT


@each_handle
async def test_an_error_without_words_has_those_of_its_number(
    handle: Handle, services: Services
) -> None:
    with pytest.raises(RpcError) as failed:
        await handle.rpc("test.fail", {"errnum": errno.EROFS})
    assert (failed.value.errnum, str(failed.value)) == (errno.EROFS, os.strerror(errno.EROFS))


@each_handle
async def test_an_error_in_words_that_no_json_can_hold_is_still_an_error(
    handle: Handle, services: Services
) -> None:
    """A file's name may be any bytes; Python shows them as surrogates."""

    with pytest.raises(RpcError, match=r"^no file ") as failed:
        await handle.rpc("test.lose")
    assert failed.value.errnum == errno.ENOENT
    assert await handle.rpc("test.echo") == {}


@each_handle
async def test_no_answer_comes_from_what_is_not_there(handle: Handle, services: Services) -> None:
    for topic in ("nobody.echo", "test.nothing", "test", "nobody", "", ".", "test.echo.more"):
        with pytest.raises(RpcError) as failed:
            await handle.rpc(topic)
        assert failed.value.errnum == errno.ENOSYS, topic
        with pytest.raises(RpcError) as failed:
            await anext(handle.stream(topic))
        assert failed.value.errnum == errno.ENOSYS, topic


@each_handle
async def test_a_streaming_topic_wants_a_streaming_request(
    handle: Handle, services: Services
) -> None:
    with pytest.raises(RpcError) as failed:
        await handle.rpc("test.count")
    assert failed.value.errnum == errno.EPROTO
    with pytest.raises(RpcError) as failed:
        await anext(handle.stream("test.echo"))
    assert failed.value.errnum == errno.EPROTO


@each_handle
async def test_a_stream_gives_its_answers_in_order_and_ends(
    handle: Handle, services: Services
) -> None:
    for length in (0, 1, 500):
        answers = handle.stream("test.count", {"to": length})
        assert [answer["number"] async for answer in answers] == list(range(length))


@each_handle
async def test_a_stream_may_end_in_an_error_after_its_answers(
    handle: Handle, services: Services
) -> None:
    found: list[Payload] = []
    with pytest.raises(RpcError, match="counted enough") as failed:
        await read(handle.stream("test.count", {"to": 2, "errnum": errno.ENOSPC}), found)
    assert found == [{"number": 0}, {"number": 1}]
    assert failed.value.errnum == errno.ENOSPC


@each_handle
async def test_a_reader_that_closes_its_stream_ends_the_service_of_it(
    handle: Handle, services: Services
) -> None:
    async with aclosing(handle.stream("test.for-ever")) as answers:  # type: ignore[type-var]
        assert [(await anext(answers))["number"] for _ in range(10)] == list(range(10))
        assert services.running == {"for-ever"}
    await eventually(lambda: services.running == set())
    assert await handle.rpc("test.echo") == {}


@each_handle
async def test_a_reader_that_is_cancelled_ends_the_service_of_its_stream(
    handle: Handle, services: Services
) -> None:
    async def read() -> None:
        async with aclosing(handle.stream("test.for-ever", {"silent": True})) as answers:  # type: ignore[type-var]
            await anext(answers)

    reading = asyncio.ensure_future(read())
    await eventually(lambda: services.running == {"for-ever"})
    reading.cancel()
    await asyncio.wait({reading})
    await eventually(lambda: services.running == set())


@each_handle
async def test_a_slow_answer_does_not_keep_others_waiting(
    handle: Handle, services: Services
) -> None:
    slow = asyncio.ensure_future(handle.rpc("test.wait", {"name": "slow"}))
    await eventually(lambda: services.running == {"slow"})
    assert await handle.rpc("test.echo", {"a": 1}) == {"a": 1}
    assert [answer["number"] async for answer in handle.stream("test.count")] == [0, 1, 2]
    assert not slow.done()
    services.gate.set()
    assert await slow == {"name": "slow"}


@each_handle
async def test_each_answer_finds_its_question(handle: Handle, services: Services) -> None:
    async def counted(name: int) -> list[int]:
        more = {"name": name}
        stream = handle.stream("test.count", {"to": 20, "more": more})
        return [answer["name"] async for answer in stream]

    asked = [handle.rpc("test.echo", {"n": number}) for number in range(100)]
    streams = [counted(number) for number in range(20)]
    answers = await asyncio.gather(*asked, *streams)
    assert answers[:100] == [{"n": number} for number in range(100)]
    assert answers[100:] == [[number] * 20 for number in range(20)]


@each_handle
async def test_an_answer_to_a_client_that_gave_up_waiting_is_dropped(
    handle: Handle, services: Services
) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(handle.rpc("test.wait"), 0.01)
    services.gate.set()
    await eventually(lambda: services.running == set())
    assert await handle.rpc("test.wait", {"name": "next"}) == {"name": "next"}
