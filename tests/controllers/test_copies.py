"""The slots of one rabbit: who is copied for, when, and what stopping one means."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.harness import virtual
from tests.kube.clusters import alongside
from warren.base.objects import Key
from warren.controllers.copies import Copies


class Copier:
    """Copies of which each lasts ten seconds, and some more to stop."""

    def __init__(self, slots: int, stopping: float = 0.0) -> None:
        self.begun: list[str] = []
        self.over: list[str] = []
        self.stopped: list[str] = []
        self.copies = Copies(self._copy, lambda key: self.over.append(key.name), slots)
        self._stopping = stopping

    async def _copy(self, key: Key) -> None:
        self.begun.append(key.name)
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await asyncio.sleep(self._stopping)
            self.stopped.append(key.name)
            raise

    def enqueue(self, *names: str, user: int = 1) -> None:
        for name in names:
            self.copies.enqueue(Key("r0", name), user)


def copying(slots: int, story: Callable[[Copier], Awaitable[None]], stopping: float = 0.0) -> None:
    async def main() -> None:
        copier = Copier(slots, stopping)
        async with alongside(copier.copies.run()):
            await story(copier)

    virtual.run(main())


def test_a_copy_that_waits_or_works_is_wanted_once() -> None:
    async def story(copier: Copier) -> None:
        copier.enqueue("a", "a", "b")
        await asyncio.sleep(1)
        copier.enqueue("a", "b")
        assert Key("r0", "a") in copier.copies
        assert Key("r0", "b") in copier.copies
        await asyncio.sleep(30)
        assert (copier.begun, copier.over) == (["a", "b"], ["a", "b"])
        assert Key("r0", "a") not in copier.copies

    copying(1, story)


def test_one_that_waits_and_is_stopped_is_never_begun() -> None:
    async def story(copier: Copier) -> None:
        copier.enqueue("a", "b")
        await asyncio.sleep(1)
        await copier.copies.stop(Key("r0", "b"))
        assert Key("r0", "b") not in copier.copies
        await asyncio.sleep(30)
        assert (copier.begun, copier.over) == (["a"], ["a"])

    copying(1, story)


def test_one_that_works_and_is_stopped_is_over_when_that_returns() -> None:
    async def story(copier: Copier) -> None:
        copier.enqueue("a", "b")
        await asyncio.sleep(1)
        await copier.copies.stop(Key("r0", "a"))
        assert copier.stopped == ["a"]
        await asyncio.sleep(1)
        assert (copier.begun, copier.over) == (["a", "b"], ["a"])

    copying(1, story, stopping=5)


def test_one_that_is_unknown_is_stopped_already() -> None:
    async def story(copier: Copier) -> None:
        await copier.copies.stop(Key("r0", "x"))

    copying(1, story)


@pytest.mark.parametrize("earlier", [1, 2])
def test_of_users_with_as_many_copies_the_one_whose_last_turn_is_longest_ago_is_next(
    earlier: int,
) -> None:
    async def story(copier: Copier) -> None:
        copier.enqueue("first", user=3)
        await asyncio.sleep(1)
        for user in (earlier, 3 - earlier):
            copier.enqueue(f"of {user}", user=user)
            await asyncio.sleep(1)
        for user in (1, 2):
            copier.enqueue(f"another of {user}", user=user)
        # The first ends, and leaves one slot.
        await asyncio.sleep(7.5)
        assert copier.over == ["first"]
        assert copier.begun[3:] == [f"another of {earlier}"]

    copying(3, story)


def test_a_copy_that_ends_with_an_error_ends_no_other() -> None:
    class Broken(Copier):
        async def _copy(self, key: Key) -> None:
            if key.name == "broken":
                raise ZeroDivisionError("bug")
            await super()._copy(key)

    async def main() -> None:
        copier = Broken(3)
        async with alongside(copier.copies.run()):
            copier.enqueue("a", "broken")
            await asyncio.sleep(1)
            copier.enqueue("b")
            await asyncio.sleep(30)
        assert (copier.begun, copier.over) == (["a", "b"], ["broken", "a", "b"])

    virtual.run(main())
