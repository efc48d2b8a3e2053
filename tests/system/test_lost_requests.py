"""Requests between the plugin and the conductor that are lost, repeated or late, both ways."""

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, opened
from warren.conductor.conductor import Conductor
from warren.daemons.compose import Control
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler
from warren.lifecycle.states import Result
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Handle, Payload, Request, RpcError

Ask = Callable[[], Awaitable[Payload]]

LATE: Final = 30.0
"""Virtual seconds."""


async def lost(ask: Ask) -> Payload:
    """It never arrives."""
    raise RpcError(errno.ECONNRESET)


async def unheard(ask: Ask) -> Payload:
    """It is done, and its answer is lost."""
    await ask()
    raise RpcError(errno.ECONNRESET)


async def repeated(ask: Ask) -> Payload:
    await ask()
    return await ask()


async def late(ask: Ask) -> Payload:
    await asyncio.sleep(LATE)
    return await ask()


class Between:
    """What stands between the two. The first requests of each sort meet with a mishap."""

    def __init__(self, mishap: Callable[[Ask], Awaitable[Payload]], *, asks_us: bool) -> None:
        """`asks_us` says whether it is those of the plugin, and not those of the conductor."""
        self._mishap = mishap
        self._asks_us = asks_us
        self.met: Counter[str] = Counter()

    def register_controllers(
        self, informers: Informers, reconcilers: Iterable[Reconciler[Any]]
    ) -> None:
        """Nothing is between these."""

    def register_conductor(self, conductor: Conductor) -> None:
        jobs: Any = conductor._wlm
        if self._asks_us:
            offered = jobs.methods()
            jobs.methods = lambda: self._methods(offered)
        else:
            jobs._handle = _Handle(jobs._handle, self)

    async def carry(self, topic: str, ask: Ask) -> Payload:
        self.met[topic] += 1
        return await (self._mishap(ask) if self.met[topic] <= 2 else ask())

    def _methods(self, offered: Methods) -> Methods:
        methods = {name: each for name, each in offered.items() if isinstance(each, Method)}
        assert methods.keys() == offered.keys()
        return {
            name: replace(each, answer=self._between(name, each)) for name, each in methods.items()
        }

    def _between(self, name: str, method: Method) -> Callable[[Request], Awaitable[Payload]]:
        async def call(request: Request) -> Payload:
            return await self.carry(name, lambda: method.answer(request))

        return call


class _Handle:
    """The conductor's way to the instance."""

    def __init__(self, handle: Handle, between: Between) -> None:
        self._handle = handle
        self._between = between
        self.stream = handle.stream

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        return await self._between.carry(topic, lambda: self._handle.rpc(topic, payload))


ASKED: Final = {
    True: {"create", "setup", "post_run"},
    False: {
        "job-manager.memo",
        "kvs.lookup",
        "kvs.commit",
        "job-manager.dws.resource-update",
        "job-manager.dws.prolog-remove",
        "job-manager.dws.epilog-remove",
    },
}
"""What the plugin asks of the conductor in a life, and what the conductor asks of the instance."""


@pytest.mark.parametrize("mishap", [lost, unheard, repeated, late], ids=lambda each: each.__name__)
@pytest.mark.parametrize("asks_us", [True, False], ids=["of the plugin", "of the conductor"])
def test_whatever_befalls_the_first_requests_of_each_sort_the_job_completes(
    mishap: Callable[[Ask], Awaitable[Payload]], asks_us: bool
) -> None:
    between = Between(mishap, asks_us=asks_us)

    async def main() -> None:
        async with opened() as world:
            world.metrics = between

            async def life(control: Control) -> None:
                job = await world.submit(control, attributes={"dw": "\n".join(DIRECTIVES)})
                ended = await world.ended(control, job)
                assert ended.job.result is Result.COMPLETED
                assert ended.job.exceptions == ()
                assert len(list(world.copies())) == 8
                assert world.without_storage == []
                await world.assert_nothing_left(control)

            await world.live(life)

    virtual.run(main())
    assert between.met.keys() == ASKED[asks_us]
