"""What tests of the instance stand on: virtual time, lives, and a slow disk."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

import pytest

from tests.harness import virtual
from warren.instance.kvs import Kvs
from warren.journal import Journal, MemoryJournal
from warren.rpc.message import RpcError

P = ParamSpec("P")

OWNER, GUEST = 1000, 1001


def virtually(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Let a test that is a coroutine run in virtual time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        virtual.run(test(*args, **kwargs))

    return run


@asynccontextmanager
async def living(*parts: Callable[[], Awaitable[None]]) -> AsyncIterator[asyncio.TaskGroup]:
    """Let parts live for the length of a block. If one of them dies, the block does."""

    async def life(part: Callable[[], Awaitable[None]]) -> None:
        await part()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(life(part)) for part in parts]
        yield group
        for task in tasks:
            task.cancel()


async def settle() -> None:
    """Let everything happen that can happen now."""
    for _ in range(100):
        await asyncio.sleep(0)


async def refused(asked: Awaitable[object]) -> int:
    """The errnum that a request is refused with."""
    with pytest.raises(RpcError) as caught:
        await asked
    return caught.value.errnum


class SlowDisk(MemoryJournal):
    """A journal whose records become durable when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()

    async def append(self, records: Sequence[bytes]) -> None:
        await self.free.wait()
        await super().append(records)


class LastWords(MemoryJournal):
    """A journal that takes a record with certain words in it, and no other one after it."""

    def __init__(self, words: bytes) -> None:
        super().__init__()
        self.words: bytes | None = words

    async def append(self, records: Sequence[bytes]) -> None:
        for record in records:
            await super().append([record])
            if self.words is not None and self.words in record:
                await asyncio.Event().wait()


@asynccontextmanager
async def opened(journal: Journal | None = None, kvs: Kvs | None = None) -> AsyncIterator[Kvs]:
    """A KVS at work."""
    kvs = kvs or Kvs(journal or MemoryJournal(), OWNER)
    async with living(kvs.run):
        yield kvs


def compacted(kvs: Kvs) -> MemoryJournal:
    """The journal of a KVS as a compaction would make it."""
    fewer = MemoryJournal()
    fewer.records = list(kvs._snapshot())
    return fewer


async def unkept(text: str) -> None:
    """Keep no configuration."""
