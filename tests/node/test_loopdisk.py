"""The disk of a rabbit that is an image, of which many want something at a time."""

import asyncio
from pathlib import Path

from warren.base.bytesize import GIB
from warren.node.loopdisk import LoopDisk


def test_the_disk_is_had_in_the_order_in_which_it_is_asked_for(tmp_path: Path) -> None:
    """One user's many volumes keep no other one's waiting for longer than they were before it."""
    disk = LoopDisk("rabbit1", tmp_path, GIB, None)
    served: list[int] = []

    async def use(number: int) -> None:
        async with disk._locked():
            served.append(number)
            await asyncio.sleep(0.01)

    async def use_all() -> None:
        await asyncio.gather(*map(use, range(20)))

    asyncio.run(use_all())
    assert served == [*range(20)]
