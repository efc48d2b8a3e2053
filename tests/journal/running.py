"""Tests that are coroutines: in virtual time, or in real time with a limit."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from tests.harness import virtual

T = TypeVar("T")
Story = Callable[..., Coroutine[Any, Any, None]]


def virtually(story: Story) -> Callable[..., None]:
    """Run a test in virtual time."""

    @functools.wraps(story)
    def told(*arguments: Any, **named: Any) -> None:
        virtual.run(story(*arguments, **named))

    return told


def really(story: Story) -> Callable[..., None]:
    """Run a test that needs sockets, threads or processes."""

    @functools.wraps(story)
    def told(*arguments: Any, **named: Any) -> None:
        asyncio.run(asyncio.wait_for(story(*arguments, **named), 120))

    return told


async def read(stream: AsyncIterator[T], found: list[T]) -> None:
    """Read a stream to its end, whichever that is; what came is in `found`."""
    async for each in stream:
        found.append(each)
