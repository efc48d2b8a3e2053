"""Reconcile loops: passes, their delays, and what a failure costs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import structlog

from tests.journal.running import virtually
from tests.kube.clusters import alongside
from warren.base.errors import Retryable
from warren.kube.client import Conflict
from warren.kube.runtime import PASS_SECONDS, Reconciler


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The bugs in this file are on purpose: nobody needs their tracebacks."""
    with structlog.testing.capture_logs() as entries:
        yield entries


class Passes:
    """Makes passes as it is told, and remembers when."""

    def __init__(self, act: Callable[[int], Awaitable[float | None]]) -> None:
        self._act = act
        self.times: dict[str, list[float]] = {}
        self.running = self.most = 0

    async def __call__(self, key: str) -> float | None:
        times = self.times.setdefault(key, [])
        times.append(asyncio.get_running_loop().time())
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self._act(len(times))
        finally:
            self.running -= 1


@asynccontextmanager
async def reconciling(
    act: Callable[[int], Awaitable[float | None]], **options: Any
) -> AsyncIterator[tuple[Reconciler[str], Passes]]:
    passes = Passes(act)
    reconciler = Reconciler[str]("test", passes, **options)
    async with alongside(reconciler.run()):
        yield reconciler, passes


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


class Sulky(Retryable):
    delay = 2.0


async def content(_: int) -> None:
    return None


async def sulks(_: int) -> float | None:
    raise Sulky("not now")


@virtually
async def test_a_pass_follows_news_and_then_there_is_peace() -> None:
    async with reconciling(content) as (reconciler, passes):
        for _ in range(3):
            reconciler.add("a")
        await asyncio.sleep(1000)
        assert passes.times == {"a": [0]}
        reconciler.add("a")
        await asyncio.sleep(1000)
        assert passes.times == {"a": [0, 1000]}


@virtually
async def test_a_pass_comes_again_when_it_has_asked_to() -> None:
    async def act(number: int) -> float | None:
        return 7.0 if number < 3 else None

    async with reconciling(act) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(1000)
        assert passes.times == {"a": [0, 7, 14]}


@virtually
async def test_news_comes_before_a_delay_and_takes_its_place() -> None:
    async def act(number: int) -> float | None:
        return 100.0 if number == 1 else None

    async with reconciling(act) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(10)
        reconciler.add("a")
        await asyncio.sleep(1000)
        assert passes.times == {"a": [0, 10]}


@virtually
async def test_what_may_heal_is_tried_at_delays_that_double_up_to_a_minute() -> None:
    async with reconciling(sulks) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(300)
        assert gaps(passes.times["a"]) == [2, 4, 8, 16, 32, 60, 60, 60]


@virtually
async def test_a_conflict_is_tried_again_at_once() -> None:
    async def act(number: int) -> float | None:
        if number < 4:
            raise Conflict("changed")
        return None

    async with reconciling(act) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(1)
        assert gaps(passes.times["a"]) == pytest.approx([0.05, 0.1, 0.2])


@virtually
async def test_a_success_makes_the_delays_short_again() -> None:
    async def act(number: int) -> float | None:
        if number in (3, 4):
            return 100.0
        raise Sulky("not now")

    async with reconciling(act) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(212)
        assert gaps(passes.times["a"]) == [2, 4, 100, 100, 2]


@virtually
async def test_a_bug_costs_its_own_key_and_no_other(logged: list[MutableMapping[str, Any]]) -> None:
    passes = Passes(content)

    async def act(key: str) -> float | None:
        await passes(key)
        if key == "wrong":
            raise KeyError("a bug")
        return 10.0

    reconciler = Reconciler[str]("test", act, workers=1)
    async with alongside(reconciler.run()):
        reconciler.add("wrong")
        reconciler.add("right")
        await asyncio.sleep(95)
        assert gaps(passes.times["wrong"]) == [30, 60]
        assert gaps(passes.times["right"]) == [10] * 9
        assert [each["event"] for each in logged] == ["pass failed"] * 3


@virtually
async def test_a_pass_that_takes_too_long_is_cut_off_and_put_off() -> None:
    ended = []

    async def act(number: int) -> float | None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(asyncio.get_running_loop().time())
        return None

    async with reconciling(act, workers=1) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(PASS_SECONDS + 31)
        assert ended == [PASS_SECONDS]
        assert passes.times["a"] == [0, PASS_SECONDS + 30]


@virtually
async def test_a_pass_without_a_limit_may_take_as_long_as_it_does() -> None:
    async def act(number: int) -> float | None:
        await asyncio.sleep(10_000)
        return None

    async with reconciling(act, limit=None) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(9_999)
        assert passes.running == 1
        await asyncio.sleep(2)
        assert passes.running == 0
        assert passes.times == {"a": [0]}


@virtually
async def test_there_are_as_many_passes_at_a_time_as_workers_and_one_of_each_key() -> None:
    async def act(number: int) -> float | None:
        await asyncio.sleep(1)
        return None

    async with reconciling(act, workers=3) as (reconciler, passes):
        for number in range(7):
            reconciler.add(f"k-{number}")
        await asyncio.sleep(0.5)
        reconciler.add("k-0")
        await asyncio.sleep(100)
        assert passes.most == 3
        assert {key: len(times) for key, times in passes.times.items()} == {
            "k-0": 2,
            **{f"k-{number}": 1 for number in range(1, 7)},
        }


@virtually
async def test_when_it_is_stopped_passes_are_cut_off_and_delays_forgotten() -> None:
    async def act(number: int) -> float | None:
        if number == 1:
            return 5.0
        await asyncio.sleep(1e6)
        return None

    async with reconciling(act) as (reconciler, passes):
        reconciler.add("a")
        reconciler.add("b")
        await asyncio.sleep(1)
        reconciler.add("a")
        await asyncio.sleep(1)
        assert passes.running == 1
    assert passes.running == 0
    await asyncio.sleep(1000)
    async with alongside(reconciler.run()):
        await asyncio.sleep(1000)
        assert passes.times == {"a": [0, 1], "b": [0]}
