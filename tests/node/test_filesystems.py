"""The kinds of file systems: what a machine needs to make them."""

import asyncio
from pathlib import Path

import pytest

from warren.node import abilities, filesystems


@pytest.mark.parametrize(
    ("programs", "kernel", "lacked"),
    [
        (filesystems.PROGRAMS, filesystems.kernel_types(), {}),
        (
            [each for each in filesystems.PROGRAMS if each != "mkfs.xfs"],
            filesystems.kernel_types(),
            {"xfs": "mkfs.xfs is not installed"},
        ),
        (
            [each for each in filesystems.PROGRAMS if each not in ("mkfs.ext4", "debugfs")],
            filesystems.kernel_types(),
            dict.fromkeys(("ext4", "gfs2"), "mkfs.ext4 and debugfs are not installed"),
        ),
        (
            filesystems.PROGRAMS,
            filesystems.kernel_types() - {"xfs"},
            {"xfs": "the kernel has no xfs"},
        ),
    ],
)
def test_a_machine_lacks_a_type_without_its_programs_or_its_kernel(
    programs: list[str], kernel: set[str], lacked: dict[str, str]
) -> None:
    found = filesystems.lacks(set(programs).__contains__, kernel.__contains__)
    assert {kind: why for kind, why in found.items() if kind != "lustre"} == lacked


def test_this_machine_is_asked_for_its_programs_and_its_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for all programs but those of xfs, whatever is installed here."""
    for name in (*filesystems.PROGRAMS, "setpriv", "modprobe"):
        if name != "mkfs.xfs":
            program = tmp_path / name
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert asyncio.run(abilities.lacks())["xfs"] == "mkfs.xfs is not installed"
