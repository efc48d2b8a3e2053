"""How guests share the event loop with each other and with all others."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.virtual import VirtualLoop
from warren.base.fairqueue import Fairness, FairQueue

FAIR = Fairness(allowance=0.02, refill=0.1, debt=10.0, rest_factor=1.0)


def spend(seconds: float) -> None:
    """Keep the event loop busy for so long, in virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.passed += seconds


def now() -> float:
    return asyncio.get_running_loop().time()


async def step(seconds: float) -> None:
    spend(seconds)


async def slices(number: int, each: float, done: list[str] | None = None, name: str = "") -> float:
    """Work in so many slices of so many seconds, and return the moment of the last one."""
    for _ in range(number):
        spend(each)
        if done is not None:
            done.append(name)
        await asyncio.sleep(0)
    return now()


def test_a_guest_that_takes_little_waits_for_no_other() -> None:
    async def main() -> float:
        queue = FairQueue(FAIR)
        return await queue.run(1, lambda: slices(10, 0.001))

    assert virtual.run(main()) == pytest.approx(0.010)


def test_half_of_the_loops_time_is_left_by_however_many_requests() -> None:
    async def main() -> float:
        queue = FairQueue(FAIR)
        await asyncio.gather(*(queue.run(1, lambda: slices(50, 0.01)) for _ in range(4)))
        return now()

    # But for what is a guest's to take at once.
    assert virtual.run(main()) >= 2 * 4 * 50 * 0.01 - 0.05


def test_however_many_guests_there_are() -> None:
    async def main() -> float:
        queue = FairQueue(FAIR)
        work = [queue.run(userid, lambda: slices(50, 0.01)) for userid in range(4)]
        await asyncio.gather(*work)
        return now()

    assert virtual.run(main()) >= 2 * 4 * 50 * 0.01 - 4 * 0.05


def test_guests_have_their_turns_one_after_the_other() -> None:
    """A guest gains nothing by many requests."""

    async def main() -> list[str]:
        queue, done = FairQueue(FAIR), list[str]()
        many = [queue.run(1, lambda: slices(50, 0.01, done, "many")) for _ in range(4)]
        await asyncio.gather(*many, queue.run(2, lambda: slices(40, 0.01, done, "one")))
        return done

    done = virtual.run(main())
    first = done[: max(index for index, name in enumerate(done) if name == "one")]
    assert abs(first.count("many") - first.count("one")) <= 12  # what each had left at first


def test_a_guest_waits_at_most_for_a_slice_of_one_who_takes_much() -> None:
    async def main() -> list[float]:
        queue = FairQueue(FAIR)
        heavy = asyncio.ensure_future(queue.run(1, lambda: slices(100, 0.01)))
        waits = []
        for _ in range(10):
            await asyncio.sleep(0.05)
            began = now()
            waits.append(await queue.run(2, lambda: slices(1, 0.001)) - began)
        heavy.cancel()
        await asyncio.wait({heavy})
        return waits

    assert max(virtual.run(main())) <= 0.012


def test_one_who_comes_again_and_again_owes_as_before() -> None:
    """Long steps that each begin with nothing owed would come for nothing otherwise."""

    async def main() -> float:
        queue = FairQueue(FAIR)
        for _ in range(10):
            await queue.run(1, lambda: slices(1, 1.0))
        return now()

    assert virtual.run(main()) >= 2 * 9


def test_a_cancelled_one_waits_for_no_turn_and_keeps_no_other() -> None:
    async def main() -> list[float]:
        queue, moments = FairQueue(Fairness(allowance=0.02, refill=0.0)), list[float]()
        await queue.run(1, lambda: step(10.0))
        await queue.run(1, lambda: step(10.0))
        moments.append(now())  # and from then on the loop is left to others for as long
        waiting = [asyncio.ensure_future(queue.run(1, lambda: step(0.0))) for _ in range(3)]
        await asyncio.sleep(1)
        waiting[0].cancel()
        await asyncio.wait({waiting[0]})
        moments.append(now())
        await asyncio.gather(*waiting[1:])
        return [*moments, now()]

    assert virtual.run(main()) == pytest.approx([20.0, 21.0, 30.0])


def test_a_turn_that_comes_with_a_cancellation_goes_to_the_next() -> None:
    async def main() -> str:
        queue = FairQueue(Fairness(allowance=0.0, refill=0.0))
        first = asyncio.ensure_future(queue.run(1, lambda: slices(1, 0.0)))
        await asyncio.sleep(0)  # the turn is its own, and it has not run
        first.cancel()
        await queue.run(2, lambda: slices(3, 0.001))
        return "cancelled" if first.cancelled() else "ran"

    assert virtual.run(main()) == "cancelled"


@pytest.mark.parametrize("allowance", [1.0, 0.0], ids=["at work", "in the queue"])
def test_what_is_closed_when_no_loop_runs_closes_its_work(allowance: float) -> None:
    fairness = Fairness(allowance=allowance, refill=0.0, slice=0.0, rest_factor=1e9)
    queue, closed = FairQueue(fairness), list[str]()
    loop = asyncio.new_event_loop()

    async def works() -> None:
        try:
            await loop.create_future()
        except GeneratorExit:
            closed.append("works")
            raise

    async def nothing() -> None:
        pass

    async def main() -> Coroutine[Any, Any, None]:
        work = works()
        if not allowance:
            work.send(None)
            await queue.run(2, nothing)  # then the loop is left to others
        suspended = queue.run(1, lambda: work)
        suspended.send(None)
        return suspended

    suspended = loop.run_until_complete(main())
    loop.close()
    suspended.close()
    assert closed == ["works"]


def test_what_work_raises_and_gives_comes_through() -> None:
    async def fails() -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(2)

    async def gives() -> int:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(asyncio.sleep(1, 7))
        return task.result()

    async def main() -> int:
        queue = FairQueue(Fairness(allowance=0.0, refill=0.0))
        with pytest.raises(TimeoutError):
            await queue.run(1, fails)
        return await queue.run(1, gives)

    assert virtual.run(main()) == 7
