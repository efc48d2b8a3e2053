"""The disk of a rabbit that is an image, of which many want something at a time."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from warren.base.bytesize import GIB
from warren.node.loopdisk import LoopDisk


def holds(directory: Path, userids: Sequence[int]) -> list[int]:
    """Return the holds of a disk by their numbers, in the order in which they have it."""
    disk = LoopDisk("rabbit1", directory, GIB, None)
    served: list[int] = []

    async def hold(number: int, userid: int) -> None:
        async with disk._locked(userid):
            served.append(number)
            await asyncio.sleep(0.01)

    async def hold_all() -> None:
        await asyncio.gather(*(hold(*each) for each in enumerate(userids)))

    asyncio.run(hold_all())
    return served


def test_a_user_has_the_disk_in_the_order_in_which_it_is_asked_for(tmp_path: Path) -> None:
    assert holds(tmp_path, [1] * 20) == [*range(20)]


def test_a_users_many_volumes_keep_those_of_others_waiting_for_two_holds(tmp_path: Path) -> None:
    assert holds(tmp_path, [*[1] * 19, 2]).index(19) == 2
