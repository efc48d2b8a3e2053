"""Reconcile loops: passes, their delays, and what a failure costs."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from tests.harness.logs import capture_logs
from tests.journal.running import virtually
from tests.kube.clusters import alongside
from warren.base.errors import Retryable
from warren.base.objects import Object
from warren.kube.client import Conflict, Unavailable
from warren.kube.queue import Budget, WorkQueue
from warren.kube.runtime import GRACE_SECONDS, RECONCILE_SECONDS, Outcome, Reconciler


@pytest.fixture(autouse=True)
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The bugs in this file are on purpose: their tracebacks are not needed."""
    with capture_logs() as entries:
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
    reconciler = Reconciler[str]("test", passes, **{"queue": lucky(), **options})
    async with alongside(reconciler.run()):
        yield reconciler, passes


def lucky() -> WorkQueue[str]:
    """A queue whose delays are as short as they can be."""
    return WorkQueue(jitter=lambda: 0.0)


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

    reconciler = Reconciler[str]("test", act, workers=1, queue=lucky())
    async with alongside(reconciler.run()):
        reconciler.add("wrong")
        reconciler.add("right")
        await asyncio.sleep(95)
        assert gaps(passes.times["wrong"]) == [30, 60]
        assert gaps(passes.times["right"]) == [10] * 9
        assert [each["event"] for each in logged] == ["reconcile failed"] * 3


@virtually
async def test_a_pass_that_takes_too_long_is_cut_off_said_and_put_off(
    logged: list[MutableMapping[str, Any]],
) -> None:
    ended = []

    async def act(number: int) -> float | None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append(asyncio.get_running_loop().time())
        return None

    async with reconciling(act, workers=1) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(RECONCILE_SECONDS + 31)
        assert ended == [RECONCILE_SECONDS]
        assert passes.times["a"] == [0, RECONCILE_SECONDS + 30]
        assert [(each["event"], each["seconds"]) for each in logged] == [
            ("reconcile took too long", RECONCILE_SECONDS)
        ]


@virtually
async def test_a_time_that_runs_out_within_a_pass_is_a_bug_of_the_pass(
    logged: list[MutableMapping[str, Any]],
) -> None:
    async def act(number: int) -> float | None:
        async with asyncio.timeout(1):
            await asyncio.sleep(1e6)
        return None

    async with reconciling(act) as (reconciler, _):
        reconciler.add("a")
        await asyncio.sleep(10)
        assert [each["event"] for each in logged] == ["reconcile failed"]


@virtually
async def test_a_pass_without_a_limit_may_take_as_long_as_it_does() -> None:
    async def act(number: int) -> float | None:
        await asyncio.sleep(10_000)
        return None

    async with reconciling(act, timeout=None) as (reconciler, passes):
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


# Users


@virtually
async def test_a_user_alone_has_all_workers_and_another_one_finds_a_free_one_nevertheless() -> None:
    began: list[str] = []

    async def hang(key: str) -> float | None:
        began.append(key)
        await asyncio.sleep(50)
        return None

    reconciler = Reconciler[str]("test", hang, workers=4, user=lambda key: key[0])
    async with alongside(reconciler.run()):
        for number in range(20):
            reconciler.add(f"a{number}")
        await asyncio.sleep(1)
        assert began == ["a0", "a1", "a2", "a3"]
        reconciler.add("b0")
        await asyncio.sleep(1)
        assert began[4:] == ["b0"]


@virtually
async def test_delays_are_as_long_as_a_reconciler_says() -> None:
    times: list[float] = []

    async def fail(key: str) -> float | None:
        times.append(asyncio.get_running_loop().time())
        raise Sulky("not now")

    reconciler = Reconciler[str]("test", fail, user=lambda key: key, max_retry_delay=5)
    async with alongside(reconciler.run()):
        reconciler.add("a")
        await asyncio.sleep(100)
        assert max(gaps(times)) <= 5 * 1.25
        assert len(times) > 15


# Failures of many


@virtually
async def test_many_keys_that_fail_share_a_budget_of_retries() -> None:
    async def act(_: int) -> float | None:
        raise Unavailable("down")

    queue = WorkQueue[str](Budget(rate=0.01, burst=5), lambda: 0.0)
    async with reconciling(act, queue=queue) as (reconciler, passes):
        for number in range(100):
            reconciler.add(f"k-{number}")
        await asyncio.sleep(90)
        assert sum(len(times) for times in passes.times.values()) == 100 + 5


@virtually
async def test_the_first_conflict_of_each_key_in_a_row_costs_nothing_of_the_budget() -> None:
    async def act(number: int) -> float | None:
        if number < 3:
            raise Conflict("changed")
        return None

    queue = WorkQueue[str](Budget(rate=0.01, burst=5), lambda: 0.0)
    async with reconciling(act, queue=queue) as (reconciler, passes):
        for number in range(100):
            reconciler.add(f"k-{number}")
        await asyncio.sleep(90)
        assert sorted(len(times) for times in passes.times.values()) == [2] * 95 + [3] * 5


@virtually
async def test_keys_that_fail_do_not_keep_the_others_waiting() -> None:
    passes = Passes(content)

    async def act(key: str) -> float | None:
        await passes(key)
        await asyncio.sleep(0.001)
        if key != "healthy":
            raise Sulky("not now")
        return None

    reconciler = Reconciler[str]("test", act)
    async with alongside(reconciler.run()):
        for number in range(1000):
            reconciler.add(f"k-{number}")
        for _ in range(100):
            await asyncio.sleep(1)
            reconciler.add("healthy")
        await asyncio.sleep(1)
        asked = [float(second) for second in range(1, 101)]
        began = passes.times["healthy"]
        assert len(began) == 100
        assert max(at - due for at, due in zip(began, asked, strict=True)) < 0.1


# Stopping


async def stop(running: "asyncio.Future[None]") -> None:
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


@virtually
async def test_when_it_is_stopped_passes_under_way_may_end_and_no_others_begin() -> None:
    ended = []

    async def act(key: str) -> float | None:
        await asyncio.sleep(2)
        ended.append(key)
        return 5.0

    reconciler = Reconciler[str]("test", act, workers=2)
    running = asyncio.ensure_future(reconciler.run())
    for key in "abcd":
        reconciler.add(key)
    await asyncio.sleep(1)
    await stop(running)
    assert ended == ["a", "b"]
    assert asyncio.get_running_loop().time() == 2
    assert (reconciler.load().depth, reconciler.load().delayed) == (2, 0)


@virtually
async def test_a_pass_that_does_not_end_in_time_is_cut_off_when_it_is_stopped() -> None:
    async def act(_: int) -> float | None:
        await asyncio.sleep(1e6)
        return None

    async with reconciling(act) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(1)
        assert passes.running == 1
    assert passes.running == 0
    assert asyncio.get_running_loop().time() == 1 + GRACE_SECONDS


@virtually
async def test_a_pass_without_a_limit_is_not_waited_for() -> None:
    async def act(_: int) -> float | None:
        await asyncio.sleep(1e6)
        return None

    async with reconciling(act, timeout=None) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(1)
    assert passes.running == 0
    assert asyncio.get_running_loop().time() == 1


@virtually
async def test_a_second_cancel_stops_it_at_once() -> None:
    async def act(_: int) -> float | None:
        await asyncio.sleep(1e6)
        return None

    passes = Passes(act)
    reconciler = Reconciler[str]("test", passes)
    running = asyncio.ensure_future(reconciler.run())
    reconciler.add("a")
    await asyncio.sleep(1)
    running.cancel()
    await asyncio.sleep(1)
    assert passes.running == 1
    await stop(running)
    assert passes.running == 0
    assert asyncio.get_running_loop().time() == 2


@virtually
async def test_what_no_net_catches_ends_everything_at_once() -> None:
    class Killed(BaseException):
        pass

    async def act(number: int) -> float | None:
        if number == 2:
            raise Killed
        await asyncio.sleep(10 if number == 1 else 1e6)
        return 1.0

    passes = Passes(act)
    reconciler = Reconciler[str]("test", passes)
    for key in "ab":
        reconciler.add(key)
    with pytest.raises(BaseExceptionGroup) as caught:
        await reconciler.run()
    assert caught.group_contains(Killed)
    assert passes.running == 0
    assert asyncio.get_running_loop().time() == 11


@virtually
async def test_it_can_run_again_and_goes_on_with_what_was_in_line() -> None:
    async def act(_: int) -> float | None:
        await asyncio.sleep(1)
        return None

    async with reconciling(act, workers=1) as (reconciler, passes):
        for key in "ab":
            reconciler.add(key)
        await asyncio.sleep(0.5)
    assert list(passes.times) == ["a"]
    async with alongside(reconciler.run()):
        await asyncio.sleep(1000)
    assert passes.times == {"a": [0], "b": [1]}


# Its own writes


def state(version: str) -> Object:
    return {"metadata": {"uid": "u", "resourceVersion": version}}


@asynccontextmanager
async def writing(
    *news: str, seconds: float = 0.0
) -> AsyncIterator[tuple[Reconciler[str], list[float]]]:
    """A reconciler of which the first reconcile writes version 2, and hears of `news` meanwhile."""
    times: list[float] = []

    async def reconcile(key: str) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            for version in news:
                reconciler.add(key, state(version))
            await asyncio.sleep(seconds)
            reconciler.note_written(key, [state("2")])

    reconciler = Reconciler[str]("test", reconcile, queue=lucky())
    async with alongside(reconciler.run()):
        reconciler.add("a")
        await asyncio.sleep(seconds + 1)
        yield reconciler, times


@virtually
async def test_what_a_reconcile_has_written_is_no_news_of_its_key() -> None:
    async with writing() as (reconciler, times):
        reconciler.add("a", state("2"))
        await asyncio.sleep(1000)
        assert times == [0]
        reconciler.add("b", state("2"))
        await asyncio.sleep(0)
        assert times == [0, 1001]


@virtually
async def test_nor_is_it_if_it_is_seen_before_its_write_is_answered() -> None:
    async with writing("2", seconds=5) as (_, times):
        await asyncio.sleep(1000)
        assert times == [0]


@pytest.mark.parametrize("news", [["1"], ["1", "2"], ["2", "3"]])
@virtually
async def test_what_another_has_written_meanwhile_is_news(news: list[str]) -> None:
    async with writing(*news, seconds=5) as (_, times):
        await asyncio.sleep(1000)
        assert times == [0, 5]


@virtually
async def test_after_a_reconcile_that_may_not_have_seen_it_a_write_is_news() -> None:
    """That reconcile may have decided on what was there before the write."""
    async with writing() as (reconciler, times):
        reconciler.add("a")
        await asyncio.sleep(1)
        reconciler.add("a", state("2"))
        await asyncio.sleep(1000)
        assert times == [0, 1, 2]


@virtually
async def test_what_a_reconcile_has_heard_that_fails_is_news() -> None:
    times: list[float] = []

    async def reconcile(key: str) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            reconciler.add(key, state("2"))
            raise Sulky("not now")

    reconciler = Reconciler[str]("test", reconcile, queue=lucky())
    async with alongside(reconciler.run()):
        reconciler.add("a")
        await asyncio.sleep(1)
        assert times == [0, 0]


@virtually
async def test_of_many_keys_the_last_ones_writes_are_known() -> None:
    reconciler = Reconciler[int]("test", Passes(content))  # type: ignore[arg-type]
    for key in range(3000):
        reconciler.note_written(key, [state("2")])
    reconciler.add(0, state("2"))
    reconciler.add(2999, state("2"))

    assert reconciler.load().depth == 1


@virtually
async def test_what_has_no_version_is_always_news() -> None:
    reconciler = Reconciler[str]("test", Passes(content))
    reconciler.note_written("a", [{"metadata": {}}])
    reconciler.add("a", {"metadata": {}})

    assert reconciler.load().depth == 1


# What can be seen


@virtually
async def test_an_observer_is_told_of_each_pass() -> None:
    told: list[object] = []

    class Ledger:
        def waited(self, seconds: float) -> None:
            told.append(seconds)

        def reconciled(self, outcome: Outcome, seconds: float) -> None:
            told.append((outcome, seconds))

    async def act(number: int) -> float | None:
        await asyncio.sleep(1)
        match number:
            case 1:
                return 3.0
            case 2:
                raise Sulky("not now")
            case 3:
                raise KeyError("a bug")
        return None

    reconciler = Reconciler[str]("test", Passes(act), queue=lucky())
    reconciler.observe(Ledger())
    reconciler.add("a")
    await asyncio.sleep(2)
    async with alongside(reconciler.run()):
        await asyncio.sleep(1000)
    assert told == [
        *(2, (Outcome.REQUEUE_AFTER, 1)),
        *(0, (Outcome.REQUEUE, 1)),
        *(0, (Outcome.ERROR, 1)),
        *(0, (Outcome.SUCCESS, 1)),
    ]
