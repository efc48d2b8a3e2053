"""The work queue: no key is forgotten, none is worked on twice at a time."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.running import virtually
from warren.kube.queue import WorkQueue


def now() -> float:
    return asyncio.get_running_loop().time()


async def nothing_to_take(queue: WorkQueue[str], seconds: float) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(queue.take(), seconds)


@virtually
async def test_keys_come_in_the_order_in_which_they_were_added() -> None:
    queue = WorkQueue[str]()
    for key in "abc":
        queue.add(key)
    assert [await queue.take() for _ in range(3)] == ["a", "b", "c"]


@virtually
async def test_a_key_that_waits_already_is_not_added_again() -> None:
    queue = WorkQueue[str]()
    for key in "aba":
        queue.add(key)
    assert [await queue.take() for _ in range(2)] == ["a", "b"]
    await nothing_to_take(queue, 100)


@virtually
async def test_a_worker_that_waits_is_woken() -> None:
    queue = WorkQueue[str]()
    takes = [asyncio.ensure_future(queue.take()) for _ in range(3)]
    await asyncio.sleep(1)
    for key in "ab":
        queue.add(key)
    await asyncio.sleep(1)
    assert [take.result() for take in takes if take.done()] == ["a", "b"]
    queue.add("c")
    await asyncio.gather(*takes)


@virtually
async def test_a_key_that_comes_up_during_its_work_runs_again_and_not_before() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    key = await queue.take()
    for _ in range(3):
        queue.add("a")
    await nothing_to_take(queue, 100)
    queue.done(key)
    assert await queue.take() == "a"
    queue.done("a")
    await nothing_to_take(queue, 100)


@virtually
async def test_a_delayed_key_comes_when_it_is_due() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 5)
    assert await queue.take() == "a"
    assert now() == 5


@pytest.mark.parametrize("delays", [(5, 9), (9, 5)])
@virtually
async def test_of_two_delays_the_earlier_counts(delays: Sequence[float]) -> None:
    queue = WorkQueue[str]()
    for delay in delays:
        queue.add_after("a", delay)
    assert await queue.take() == "a"
    assert now() == 5
    queue.done("a")
    await nothing_to_take(queue, 100)


@virtually
async def test_news_is_sooner_than_any_delay() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 5)
    queue.add("a")
    queue.add_after("a", 1)
    assert await queue.take() == "a"
    assert now() == 0
    queue.done("a")
    await nothing_to_take(queue, 100)


@virtually
async def test_a_delay_that_ends_during_the_work_waits_for_its_end() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.take()
    queue.add_after("a", 5)
    await nothing_to_take(queue, 10)
    queue.done("a")
    assert await queue.take() == "a"
    assert now() == 10


@virtually
async def test_delays_are_forgotten_when_it_is_closed() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 5)
    queue.close()
    await nothing_to_take(queue, 100)


class Log:
    """Who worked on what, and when."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, str]] = []
        self.passes: list[tuple[float, float, str]] = []
        self.working: set[str] = set()

    async def work(self, queue: WorkQueue[str], seconds: float) -> None:
        while True:
            key = await queue.take()
            assert key not in self.working
            self.working.add(key)
            began = now()
            await asyncio.sleep(seconds)
            self.working.discard(key)
            self.passes.append((began, now(), key))
            queue.done(key)

    def assert_all_answered(self) -> None:
        for due, key in self.asked:
            assert any(began >= due for began, _, each in self.passes if each == key), (due, key)
        assert len(self.passes) <= len(self.asked)


asks = st.lists(
    st.tuples(st.sampled_from([0, 0, 0.5, 1, 3]), st.sampled_from("abc"), st.sampled_from([0, 2])),
    max_size=30,
)


@given(asks=asks, workers=st.integers(1, 4))
@settings(max_examples=150, deadline=None)
@virtually
async def test_every_ask_is_followed_by_a_pass_and_no_two_passes_meet(
    asks: Sequence[tuple[float, str, float]], workers: int
) -> None:
    queue = WorkQueue[str]()
    log = Log()
    running = [asyncio.ensure_future(log.work(queue, 1)) for _ in range(workers)]
    for pause, key, delay in asks:
        await asyncio.sleep(pause)
        log.asked.append((now(), key))
        if delay:
            queue.add_after(key, delay)
        else:
            queue.add(key)
    await asyncio.sleep(100)
    log.assert_all_answered()
    for each in running:
        each.cancel()
    await asyncio.wait(running)
