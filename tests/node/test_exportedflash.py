"""Flash whose volumes are offered on a network: what of it is different from any other."""

import asyncio
from pathlib import Path

import pytest

from warren.base.bytesize import MIB
from warren.dws.node import NodeTrouble, RawVolumeAccess, Volume
from warren.node.directory import DirectoryFlash
from warren.node.exportedflash import ExportedFlash


def test_a_volume_is_withdrawn_before_it_is_released(tmp_path: Path) -> None:
    flash = DirectoryFlash(tmp_path, 10 * MIB)
    there_when_withdrawn: list[bool] = []

    async def withdraw(volume: str) -> None:
        there_when_withdrawn.append(volume in flash.volumes("r0"))
        if len(there_when_withdrawn) == 1:
            raise NodeTrouble("nvmet: it takes its time")

    async def main() -> None:
        offered = ExportedFlash(flash, withdraw)
        await offered.make(
            Volume(rabbit="r0", name="a", size=MIB, file_system="xfs", userid=0, groupid=0)
        )
        with pytest.raises(NodeTrouble, match="it takes its time"):
            await offered.release("r0", "a")
        assert set(offered.volumes("r0")) == {"a"}
        await offered.release("r0", "a")
        assert offered.volumes("r0") == {}

    asyncio.run(main())
    assert there_when_withdrawn == [True, True]


def test_no_user_is_promised_a_bare_device(tmp_path: Path) -> None:
    async def withdraw(volume: str) -> None: ...

    offered = ExportedFlash(DirectoryFlash(tmp_path, MIB), withdraw)

    assert asyncio.run(offered.raw_volume_access("r0")) is RawVolumeAccess.NONE
