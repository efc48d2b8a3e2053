"""A copy to a file system on which its user may have no more."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.vm.inside import lvm
from warren.base.bytesize import MIB
from warren.dws.node import Copy, CopyFailed
from warren.node import copiers

USER = 1234


def test_a_copy_that_exceeds_its_users_quota_fails_and_says_so() -> None:
    place = Path("/run/global")
    place.mkdir()
    lvm.run("mkfs.xfs", "-q", "/dev/vdc")
    lvm.run("mount", "-o", "uquota", "/dev/vdc", str(place))
    lvm.run("xfs_quota", "-x", "-c", f"limit bhard=4m {USER}", str(place))
    place.chmod(0o777)
    source = Path("/run/source")
    source.write_bytes(os.urandom(16 * MIB))
    source.chmod(0o644)

    async def copied(userid: int) -> None:
        copy = Copy(
            source=str(source),
            destination=f"{place}/of-{userid}",
            index=None,
            userid=userid,
            groupid=userid,
        )
        async for _ in copiers.run(copy):
            pass

    with pytest.raises(CopyFailed, match="Disk quota exceeded"):
        asyncio.run(copied(USER))
    asyncio.run(copied(USER + 1))
    assert (place / f"of-{USER + 1}").read_bytes() == source.read_bytes()
    lvm.run("umount", str(place))
