"""The work queue: no key is forgotten, none is worked on twice at a time."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.running import virtually
from warren.kube.queue import Budget, QueueClosed, WorkQueue, backoff


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
async def test_users_have_their_turns_one_after_the_other() -> None:
    queue = WorkQueue[str](user=lambda key: key[0])
    for key in ("a1", "a2", "a3", "b1", "a4", "b2", "c1"):
        queue.add(key)
    assert [await queue.take() for _ in range(4)] == ["a1", "b1", "c1", "a2"]
    assert queue.load().depth == 3
    queue.add("d1")
    queue.add("a3")
    assert [await queue.take() for _ in range(4)] == ["b2", "a3", "d1", "a4"]
    await nothing_to_take(queue, 100)


@virtually
async def test_a_key_whose_user_cannot_be_told_is_not_in_line_and_keeps_no_others_up() -> None:
    users = {"b": 1}
    queue = WorkQueue[str](user=users.__getitem__)
    with pytest.raises(KeyError):
        queue.add("a")
    queue.add("b")
    assert await queue.take() == "b"
    await nothing_to_take(queue, 100)
    users["a"] = 2
    queue.add("a")
    assert await queue.take() == "a"


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
async def test_a_worker_that_goes_away_leaves_its_key_to_another() -> None:
    queue = WorkQueue[str]()
    gone, stays = (asyncio.ensure_future(queue.take()) for _ in range(2))
    await asyncio.sleep(1)
    queue.add("a")
    gone.cancel()
    assert await stays == "a"
    assert gone.cancelled()


@virtually
async def test_a_key_that_is_always_news_goes_behind_the_others_each_time() -> None:
    queue = WorkQueue[str]()
    for key in ("hot", "a", "b"):
        queue.add(key)
    order = []
    for _ in range(6):
        order.append(key := await queue.take())
        queue.add("hot")
        queue.done(key)
    assert order == ["hot", "a", "b", "hot", "hot", "hot"]


# Users and workers


async def numbers_taken(queue: WorkQueue[str]) -> dict[str, int]:
    """Take what can be taken now; return how many keys each user has got."""
    taken: Counter[str] = Counter()
    with suppress(TimeoutError):
        while True:
            taken[(await asyncio.wait_for(queue.take(), 1))[0]] += 1
    return dict(taken)


def of_users(workers: int | None, counts: Mapping[str, int]) -> WorkQueue[str]:
    queue = WorkQueue[str](user=lambda key: key[0], workers=workers)
    for user, count in counts.items():
        for number in range(count):
            queue.add(f"{user}{number}")
    return queue


@pytest.mark.parametrize(
    ("workers", "counts", "taken"),
    [
        (None, {"a": 9}, {"a": 9}),
        (1, {"a": 9}, {"a": 1}),
        (2, {"a": 9}, {"a": 1}),
        (3, {"a": 9}, {"a": 2}),
        (8, {"a": 3}, {"a": 3}),
        (8, {"a": 9}, {"a": 4}),
        (8, {"a": 9, "b": 9}, {"a": 3, "b": 3}),
        (8, {"a": 9, "b": 1}, {"a": 4, "b": 1}),
        (4, {"a": 9, "b": 9, "c": 9, "d": 9, "e": 9}, {"a": 1, "b": 1, "c": 1, "d": 1}),
    ],
)
@virtually
async def test_a_user_has_no_more_workers_than_are_free(
    workers: int | None, counts: Mapping[str, int], taken: Mapping[str, int]
) -> None:
    assert await numbers_taken(of_users(workers, counts)) == taken


@virtually
async def test_users_that_come_one_after_the_other_find_a_free_worker() -> None:
    queue = of_users(8, {"a": 20})
    found = [await numbers_taken(queue)]
    for user in "bcd":
        for number in range(20):
            queue.add(f"{user}{number}")
        found.append(await numbers_taken(queue))
    assert found == [{"a": 4}, {"b": 2}, {"c": 1}, {"d": 1}]


@virtually
async def test_a_user_who_has_too_many_workers_has_the_next_turn_when_there_are_fewer() -> None:
    queue = of_users(4, {"a": 4})
    assert [await queue.take() for _ in range(2)] == ["a0", "a1"]
    queue.add("b0")
    queue.add("b1")
    assert await queue.take() == "b0"
    queue.done("b0")
    await nothing_to_take_but(queue, "b1")
    queue.done("a1")
    queue.done("b1")
    assert await queue.take() == "a2"


async def nothing_to_take_but(queue: WorkQueue[str], key: str) -> None:
    assert await queue.take() == key
    await nothing_to_take(queue, 100)


# Closing


@virtually
async def test_nothing_is_taken_once_it_is_closed_and_those_who_wait_are_sent_home() -> None:
    queue = WorkQueue[str]()
    takes = [asyncio.ensure_future(queue.take()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.close()
    await asyncio.wait(takes)
    assert [type(take.exception()) for take in takes] == [QueueClosed] * 3
    queue.add("a")
    with pytest.raises(QueueClosed):
        await queue.take()


@virtually
async def test_delays_are_forgotten_when_it_is_closed_and_keys_in_line_are_not() -> None:
    queue = WorkQueue[str](Budget(burst=1))
    queue.add_after("late", 5)
    for key in ("due", "held"):
        queue.retry(key, 0)
    await asyncio.sleep(0.01)
    queue.close()
    queue.add_after("later", 5)
    await asyncio.sleep(100)
    queue.open()
    assert await queue.take() == "due"
    await nothing_to_take(queue, 100)
    queue.retry("held", 5)
    assert await queue.take() == "held"


# Retries


def lucky() -> float:
    return 0.0


async def times(queue: WorkQueue[str]) -> dict[str, list[float]]:
    """Take all keys that come up in a day; give when they did."""
    found: dict[str, list[float]] = {}
    try:
        async with asyncio.timeout(86400):
            while True:
                key = await queue.take()
                queue.done(key)
                found.setdefault(key, []).append(now())
    except TimeoutError:
        return found


def test_a_delay_doubles_with_each_failure_up_to_a_minute() -> None:
    assert [backoff(2, failures, 0) for failures in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]


def test_a_delay_that_is_longer_than_a_minute_stays_what_it_is() -> None:
    assert [backoff(300, failures, 0) for failures in (1, 2, 50)] == [300] * 3


def test_no_delay_is_none_only_the_first_time() -> None:
    assert [backoff(0, failures, 0) for failures in range(1, 5)] == [0, 1, 2, 4]


@given(delay=st.floats(0, 1000), failures=st.integers(1, 10**6), chance=st.floats(0, 1))
def test_luck_makes_a_delay_longer_by_up_to_a_quarter(
    delay: float, failures: int, chance: float
) -> None:
    least = backoff(delay, failures, 0)
    assert max(least, delay) <= backoff(delay, failures, chance) <= least * 1.25


@virtually
async def test_failures_are_counted_until_one_succeeds() -> None:
    queue = WorkQueue[str](jitter=lucky)
    for failures in (1, 2, 3):
        queue.retry("a", 2)
        assert queue.failure_count("a") == failures
        assert await queue.take() == "a"
        queue.done("a")
    assert now() == 2 + 4 + 8
    queue.forget_failures("a")
    assert queue.failure_count("a") == 0


@virtually
async def test_keys_that_failed_together_come_back_one_by_one() -> None:
    queue = WorkQueue[str]()
    for number in range(50):
        queue.retry(f"k-{number}", 10)
    found = [at for each in (await times(queue)).values() for at in each]
    assert len(set(found)) == 50
    assert all(10 <= at <= 12.5 for at in found)


@virtually
async def test_news_of_a_key_that_fails_is_not_put_off() -> None:
    queue = WorkQueue[str](Budget(burst=1))
    for key in ("a", "b", "c"):
        queue.retry(key, 0)
    await asyncio.sleep(0.01)
    queue.add("c")
    assert [await queue.take() for _ in range(2)] == ["a", "c"]
    assert now() == 0.01
    queue.done("c")
    # The news was what c had been waiting for: it does not come twice.
    assert await queue.take() == "b"
    await nothing_to_take(queue, 100)


@virtually
async def test_ten_thousand_keys_that_fail_come_back_at_ten_a_second_after_the_first() -> None:
    queue = WorkQueue[str](jitter=lucky)
    for number in range(10_000):
        queue.retry(f"k-{number}", 5)
    found = [at for each in (await times(queue)).values() for at in each]
    assert len(found) == 10_000
    seconds = Counter(int(at) for at in found)
    assert seconds.pop(5) == pytest.approx(100 + 10, abs=1)
    assert seconds.pop(max(seconds)) > 0
    assert set(seconds.values()) <= {9, 10, 11}


@virtually
async def test_a_users_retry_does_not_wait_for_all_that_another_user_has() -> None:
    queue = WorkQueue[str](jitter=lucky, user=lambda key: key[0])
    for number in range(640):
        queue.retry(f"a{number}", 5)
    queue.retry("b0", 6)
    queue.retry("b1", 6)
    found = await times(queue)
    assert len(found) == 642
    assert sorted(found["b0"] + found["b1"]) == pytest.approx([6.2, 6.4], abs=0.11)


@virtually
async def test_users_whose_keys_fail_have_their_turns_at_the_budget() -> None:
    queue = WorkQueue[str](Budget(rate=1, burst=1), jitter=lucky, user=lambda key: key[0])
    for number, key in enumerate(("a1", "a2", "a3", "a4", "b1", "b2", "c1")):
        queue.retry(key, 1 + number / 100)
    await asyncio.sleep(1.5)
    queue.add("a3")  # its failure is over: it has no turn
    assert [*await times(queue)] == ["a1", "a3", "a2", "b1", "c1", "a4", "b2"]


@virtually
async def test_a_free_retry_does_not_wait_for_the_budget() -> None:
    queue = WorkQueue[str](Budget(rate=0.001, burst=1), jitter=lucky)
    for key in "ab":
        queue.retry(key, 1)
    queue.retry("free", 2, unbudgeted=True)
    assert await times(queue) == {"a": [1], "free": [2], "b": [pytest.approx(1001)]}


@virtually
async def test_a_key_whose_failures_are_cured_by_news_leaves_the_budget_to_the_others() -> None:
    queue = WorkQueue[str](Budget(burst=2), jitter=lucky)
    for _ in range(1000):
        queue.add("hot")
        queue.done(await queue.take())
        queue.retry("hot", 5)
    queue.add("hot")
    queue.retry("a", 1)
    assert (await times(queue))["a"] == [1]


@given(
    rate=st.sampled_from([0.5, 3.0, 10.0]),
    burst=st.integers(1, 5),
    pauses=st.lists(st.floats(0, 3), max_size=60),
)
def test_a_budget_is_never_exceeded_and_never_left_unused(
    rate: float, burst: int, pauses: Sequence[float]
) -> None:
    """Against the plain picture of it: a bucket into which tokens drip."""
    budget = Budget(rate, burst)
    tokens, time = float(burst), 1000.0
    for pause in pauses:
        time += pause
        tokens = min(burst, tokens + pause * rate)
        if tokens > 1 + 1e-6:
            assert budget.delay(time) == 0
        elif tokens < 1 - 1e-6:
            assert budget.delay(time) == pytest.approx((1 - tokens) / rate, abs=1e-5)
        if budget.delay(time) == 0:
            budget.spend(time)
            tokens -= 1


# What can be seen


@virtually
async def test_it_tells_what_there_is_to_do_and_since_when() -> None:
    queue = WorkQueue[str](Budget(burst=1), jitter=lucky)
    assert queue.load().longest_wait == queue.load().longest_work == 0
    queue.add("a")
    await queue.take()
    await asyncio.sleep(3)
    for key in "bcb":
        queue.add(key)
    queue.add_after("d", 100)
    for key in "ef":
        queue.retry(key, 1)
    await asyncio.sleep(1.05)

    load = queue.load()
    assert (load.working, load.longest_work) == (1, 4.05)
    assert load.depth == 3
    assert load.longest_wait == pytest.approx(1.05)
    assert (load.adds, load.retries) == (4, 1)
    assert load.delayed == 2


@virtually
async def test_an_observer_is_told_how_long_each_key_has_waited() -> None:
    queue = WorkQueue[str]()
    told: list[float] = []
    queue.observe(told.append)
    queue.add("a")
    await asyncio.sleep(1)
    queue.add("b")
    await asyncio.sleep(2)
    for _ in range(2):
        await queue.take()
    assert told == [3, 2]


@virtually
async def test_retries_of_one_key_are_never_closer_than_its_delay() -> None:
    queue = WorkQueue[str]()
    found = []
    for _ in range(8):
        queue.retry("a", 1)
        queue.done(await queue.take())
        found.append(now())
    assert all(later - earlier >= 1 for earlier, later in pairwise(found))


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


class Turns:
    """Which users' keys workers have. Notes where one is kept from a worker without a reason."""

    def __init__(self, workers: int) -> None:
        self.queue = WorkQueue[str](user=lambda key: key[0], workers=workers)
        self.free = workers
        self.working: Counter[str] = Counter()
        self.waiting: set[str] = set()

    async def work(self) -> None:
        while True:
            key = await self.queue.take()
            assert self.working[key[0]] < self.free
            self.waiting.discard(key)
            self.working[key[0]] += 1
            self.free -= 1
            await asyncio.sleep(1 + int(key[1]))
            self.working[key[0]] -= 1
            self.free += 1
            self.queue.done(key)

    def add(self, key: str) -> None:
        self.waiting.add(key)
        self.queue.add(key)

    def unjustly_waiting(self) -> list[str]:
        return [key for key in self.waiting if self.working[key[0]] < self.free]


@given(
    adds=st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 0.3, 1]), st.sampled_from("abcd"), st.integers(0, 9)),
        max_size=60,
    ),
    workers=st.integers(1, 9),
)
@settings(max_examples=150, deadline=None)
@virtually
async def test_no_worker_is_idle_while_a_key_waits_whose_user_may_have_it(
    adds: Sequence[tuple[float, str, int]], workers: int
) -> None:
    turns = Turns(workers)
    running = [asyncio.ensure_future(turns.work()) for _ in range(workers)]
    known: set[str] = set()
    for pause, user, number in adds:
        if (key := f"{user}{number}") not in known:
            known.add(key)
            turns.add(key)
        await asyncio.sleep(pause)
        if pause:
            await asyncio.sleep(0.01)
            assert turns.unjustly_waiting() == []
    for _ in range(1000):
        await asyncio.sleep(0.53)
        assert turns.unjustly_waiting() == []
    assert not turns.waiting
    assert not any(each.done() for each in running)
    for each in running:
        each.cancel()
    await asyncio.wait(running)


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


@virtually
async def test_a_user_with_a_long_key_has_a_turn_though_others_have_had_all_workers() -> None:
    """Of workers that are busy all the time none is free beside the one that has just become so."""
    queue: WorkQueue[str] = WorkQueue(user=lambda key: key[0], workers=4)
    queue.add("a-long")
    assert await queue.take() == "a-long"
    for key in ("b", "c", "d"):
        queue.add(key)
    taken = [await queue.take() for _ in range(3)]
    queue.add("a-next")
    began = now()
    while "a-next" not in taken:
        for user in "bcdefg":
            queue.add(f"{user}-{now()}")
        await asyncio.sleep(1)
        queue.done(taken.pop(0))
        taken.append(await queue.take())
    assert 60 <= now() - began < 65
