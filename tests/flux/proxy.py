"""The embedded instance as a broker of Flux: what `warren conductor flux` says to a broker is
passed on to an instance's own socket, and the answers are passed back.

    python -m tests.flux.proxy INSTANCE BROKER
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from warren.rfc import wire
from warren.rfc.errors import BadFormat
from warren.rfc.wire import Message, MessageType, Role
from warren.rpc import client
from warren.rpc.bus import Bus
from warren.rpc.client import Connection
from warren.rpc.message import Payload, Request, RpcError


def refuse(error: BadFormat) -> None:
    raise error


class Client(Bus):
    """One client of the broker; what the instance asks of its services is asked of it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(0)
        self._reader = reader
        self._writer = writer
        self._tags = count(1)
        self._pending: dict[int, asyncio.Future[Message]] = {}

    async def run(self, instance: Path) -> None:
        self._writer.write(b"\0")
        frames = wire.FrameReader(refuse)
        async with client.connect(instance, self) as handle, asyncio.TaskGroup() as tasks:
            with suppress(ConnectionError):
                while data := await self._reader.read(2**16):
                    for received in frames.feed(data):
                        if received.type is MessageType.RESPONSE:
                            self._pending.pop(received.matchtag).set_result(received)
                        else:
                            tasks.create_task(self._pass_on(handle, received))
            self._writer.close()
            raise asyncio.CancelledError

    async def _pass_on(self, handle: Connection, asked: Message) -> None:
        payload = json.loads(asked.payload or b"{}")
        try:
            if asked.streaming:
                async with aclosing(handle.stream(asked.topic, payload)) as answers:  # type: ignore[type-var]
                    async for each in answers:
                        self._answer(asked, each)
                raise RpcError(61)
            self._answer(asked, await handle.rpc(asked.topic, payload))
        except RpcError as error:
            if asked.wants_response:
                self._send(
                    replace(_answer(asked), errnum=error.errnum, payload=str(error).encode())
                )

    def _answer(self, asked: Message, payload: Payload) -> None:
        self._send(replace(_answer(asked), payload=json.dumps(payload).encode()))

    async def ask(self, request: Request) -> Payload:
        tag = next(self._tags)
        found = self._pending[tag] = asyncio.get_running_loop().create_future()
        self._send(
            Message(
                type=MessageType.REQUEST,
                topic=request.topic,
                payload=json.dumps(request.payload).encode(),
                matchtag=tag,
                routes=[b"instance"],
                userid=request.cred.userid,
                roles=Role.OWNER if request.cred.is_owner else Role.USER,
            )
        )
        answer = await found
        words = (answer.payload or b"").decode()
        if answer.errnum:
            raise RpcError(answer.errnum, words)
        told: Payload = json.loads(words)
        return told

    def follow(self, request: Request) -> AsyncIterator[Payload]:
        raise AssertionError(
            f"the instance answers {request.topic} once, and no stream is asked of it"
        )

    def _send(self, message: Message) -> None:
        self._writer.write(wire.encode(message))


def _answer(asked: Message) -> Message:
    return Message(
        type=MessageType.RESPONSE, topic=asked.topic, matchtag=asked.matchtag, routes=asked.routes
    )


async def main(instance: Path, broker: Path) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.CancelledError):
            await Client(reader, writer).run(instance)

    async with await asyncio.start_unix_server(accept, broker) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
