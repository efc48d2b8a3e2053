"""Virtual time: an event loop whose clock jumps to the next thing that is due."""

import asyncio
import random
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = 1_790_000_000.0


class Deadlock(AssertionError):
    """Everything waits, and nothing is due."""


class _Jumping(selectors.DefaultSelector):
    """Never waits: what would be waited for comes at once, in virtual time."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise Deadlock("everything waits, and nothing is due")
        self.loop.passed += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on virtual time. Nothing in it may wait for a thread or a socket."""

    def __init__(self) -> None:
        selector = _Jumping()
        selector.loop = self
        self.passed = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self.passed


class VirtualClock:
    """The `Clock` that goes with the loop."""

    def now(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in virtual time, and by the same chances each time."""
    random.seed(0)
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
