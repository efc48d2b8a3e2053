"""A lock that users have in turns."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.harness import virtual
from warren.node.turns import Turns

Hold = Callable[[int, str], Coroutine[Any, Any, None]]


def served(story: Callable[[Turns, Hold], Coroutine[Any, Any, None]]) -> str:
    """Return the names of holds in the order in which they had the lock, each for a second."""
    names: list[str] = []

    async def action() -> None:
        turns = Turns()
        holders = 0

        async def hold(userid: int, name: str) -> None:
            nonlocal holders
            async with turns.turn(userid):
                holders += 1
                assert holders == 1
                names.append(name)
                await asyncio.sleep(1)
                holders -= 1

        await story(turns, hold)

    virtual.run(action())
    return "".join(names)


def test_users_have_the_lock_in_turns_and_each_in_the_order_of_asking() -> None:
    async def story(turns: Turns, hold: Hold) -> None:
        users = [(1, "a"), (1, "b"), (1, "c"), (1, "d"), (2, "x"), (2, "y"), (3, "z")]
        await asyncio.gather(*(hold(userid, name) for userid, name in users))

    assert served(story) == "abxzcyd"


def test_the_lock_passes_by_those_that_wait_no_more() -> None:
    async def story(turns: Turns, hold: Hold) -> None:
        tasks = [asyncio.ensure_future(hold(1, name)) for name in "abcd"]
        await asyncio.sleep(0.5)
        tasks[1].cancel()
        tasks[3].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await hold(1, "e")

    assert served(story) == "ace"


def test_the_lock_is_passed_on_by_one_that_is_cancelled_as_it_gets_it() -> None:
    async def story(turns: Turns, hold: Hold) -> None:
        async with turns.turn(1):
            late, next_one = (asyncio.ensure_future(hold(1, name)) for name in "bc")
            await asyncio.sleep(0)
        late.cancel()  # the lock is its own by now, and it has not run since
        await asyncio.gather(late, next_one, return_exceptions=True)

    assert served(story) == "c"
