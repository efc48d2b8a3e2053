"""Actions in threads are done to their end before their callers go on."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from warren.dws.node import Volume
from warren.node import threads
from warren.node.directory import DirectoryFlash
from warren.node.threads import in_thread


def test_a_deed_gives_its_result_and_its_failure() -> None:
    assert asyncio.run(in_thread(divmod, 7, 2)) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(in_thread(divmod, 7, 0))


@pytest.mark.parametrize("fails", [False, True])
def test_who_is_cancelled_leaves_when_the_deed_is_done(fails: bool) -> None:
    begun, done = threading.Event(), []

    def action() -> None:
        begun.set()
        time.sleep(0.2)
        done.append(True)
        if fails:
            raise OSError("too bad")

    async def main() -> None:
        doing = asyncio.create_task(in_thread(action))
        await asyncio.to_thread(begun.wait)
        for _ in range(3):
            doing.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await doing
        assert done == [True]

    asyncio.run(main())


def test_a_volume_whose_making_was_given_up_can_be_released_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flash = DirectoryFlash(tmp_path, 1000)
    begun = threading.Event()
    make_alone = DirectoryFlash._make_locked

    def slowly(self: DirectoryFlash, volume: Volume) -> None:
        begun.set()
        time.sleep(0.2)
        make_alone(self, volume)

    monkeypatch.setattr(DirectoryFlash, "_make_locked", slowly)
    volume = Volume(rabbit="r", name="a", size=1, file_system="xfs", userid=0, groupid=0)

    async def main() -> None:
        making = asyncio.create_task(flash.make(volume))
        await asyncio.to_thread(begun.wait)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        await flash.release("r", "a")

    asyncio.run(main())
    assert flash.volumes("r") == {}


def test_actions_that_hang_leave_threads_to_others() -> None:
    async def main() -> None:
        threads.set_thread_pool_size(64)
        end = threading.Event()
        hanging = [asyncio.ensure_future(in_thread(end.wait)) for _ in range(64)]
        try:
            async with asyncio.timeout(60):
                await asyncio.gather(*(in_thread(str) for _ in range(8)))
        finally:
            end.set()
            await asyncio.gather(*hanging)

    asyncio.run(main())
