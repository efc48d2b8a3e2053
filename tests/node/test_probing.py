"""Flash that cannot be used is found out, and flash that hangs holds nothing up."""

import asyncio
import os
from pathlib import Path

import pytest

from warren.dws.node import NodeTrouble
from warren.node import probing
from warren.node.directory import DirectoryFlash


def test_a_directory_that_can_be_written_is_and_nothing_is_left_in_it(tmp_path: Path) -> None:
    place = tmp_path / "flash" / "rabbit-0"
    asyncio.run(probing.check(probing.probe_directory, place))
    assert list(place.iterdir()) == []


def test_what_is_no_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "flash").touch()
    with pytest.raises(NodeTrouble, match=f"^{tmp_path}/flash: File exists$"):
        asyncio.run(probing.check(probing.probe_directory, tmp_path / "flash"))
    with pytest.raises(NodeTrouble, match=f"^{tmp_path}/flash/rabbit-0: Not a directory$"):
        asyncio.run(DirectoryFlash(tmp_path / "flash", 1000).capacity("rabbit-0"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_what_may_not_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(NodeTrouble, match="Permission denied"):
        asyncio.run(probing.check(probing.probe_directory, tmp_path))
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("size", [1, 4096, 10_000])
def test_a_device_is_read_at_both_ends(tmp_path: Path, size: int) -> None:
    (tmp_path / "disk").write_bytes(b"x" * size)
    asyncio.run(probing.check(probing.probe_device, tmp_path / "disk"))


def test_a_device_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(NodeTrouble, match="disk: No such file or directory"):
        asyncio.run(probing.check(probing.probe_device, tmp_path / "disk"))


def test_what_hangs_is_given_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "disk")  # to open it is to wait for one that writes
    with pytest.raises(NodeTrouble, match=r"disk does not answer within 0\.5 s"):
        asyncio.run(probing.check(probing.probe_device, tmp_path / "disk", seconds=0.5))
