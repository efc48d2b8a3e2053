"""Lustre on this machine: targets on block devices, and clients, by the commands of Lustre and ZFS.

A target is a ZFS pool on its volume. It is mounted for as long as the volume is there, which is
how Lustre serves it, and is found by its volume's name again.
"""

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from warren.base import log
from warren.base.errors import UserMistake
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import LustreMount, LustreTarget, NodeTrouble, Volume
from warren.node import commands, mountpoints, usercommands
from warren.node.filesystems import profile_arguments
from warren.node.threads import in_thread

COMMAND_SECONDS: Final = 120.0
"""Seconds that a command of Lustre may take: a mount waits for its MGS."""

_MOUNT_OPTIONS: Final = "nodev,nosuid"


async def lnet_nid() -> str:
    """Return the first LNet address of this machine; nothing where it has none."""
    if shutil.which("lctl") is None:
        return ""
    try:
        output = await commands.run(["lctl", "list_nids"])
    except NodeTrouble:
        return ""  # its modules are not loaded
    return output.split()[0] if output.split() else ""


def pool_name(name: str) -> str:
    """Return the name of the ZFS pool on a volume."""
    return f"warren-{name}"


def target_variables(
    volume: Volume, target: LustreTarget, device: str, mount_point: str
) -> dict[str, str]:
    """Return what the command lines of a target may say."""
    pool = pool_name(volume.name)
    return {
        "$DEVICE": device,
        "$DEVICE_LIST": device,
        "$DEVICE_NUM": "1",
        "$DEVICE1": device,
        "$POOL_NAME": pool,
        "$TARGET_NAME": f"{target.kind}{target.index}",
        "$ZVOL_NAME": f"{pool}/{target.kind}{target.index}",
        "$BACKFS": target.back_fs,
        "$FS_NAME": target.file_system_name,
        "$MGS_NID": target.mgs_address,
        "$INDEX": str(target.index),
        "$MOUNT_PATH": mount_point,
    }


def make_target_commands(
    volume: Volume, target: LustreTarget, values: Mapping[str, str]
) -> list[list[str]]:
    """Return the commands that make a target: a pool, and a file system in it."""
    return [
        ["zpool", "create", *_command_words(volume.commands, "zpoolCreate", values)],
        ["mkfs.lustre", *_command_words(volume.commands, "mkfs", values)],
    ]


def mount_target_command(volume: Volume, values: Mapping[str, str]) -> list[str]:
    """Return the command that begins to serve a target."""
    return ["mount", "-t", "lustre", *_command_words(volume.commands, "mountTarget", values)]


def mount_client_command(source: LustreMount, path: str, profile: ProfileCommands) -> list[str]:
    """Return the command by which a client mounts a file system. Raises NodeTrouble."""
    values = client_variables(source, path)
    arguments = None
    for name in ("commandlines.mountCompute", "commandlines.mountRabbit"):
        arguments = arguments or profile_arguments(profile, name, values)
    return ["mount", "-t", "lustre", *(arguments or [f"{source.address}:/{source.name}", path]),
            "-o", _MOUNT_OPTIONS]  # fmt: skip


def client_variables(source: LustreMount, path: str) -> dict[str, str]:
    """Return what the command lines of clients may say."""
    return {"$MGS_NID": source.address, "$FS_NAME": source.name, "$MOUNT_PATH": path}


async def give_to_user(
    source: LustreMount,
    root: Path | str | None,
    path: str,
    profile: ProfileCommands,
    nsenter: Sequence[str],
) -> None:
    """Make a file system its user's. Raises NodeTrouble.

    The first client that mounts it does so, after what the profile has run on a new one; that
    may be run by several clients that are the first at the same time.
    """
    try:
        status = await in_thread(os.stat, f"{root}{path}")
        if source.userid == 0 or status.st_uid != 0:
            return
        values = client_variables(source, path)
        await usercommands.run(
            profile,
            ("commandlines.rabbitPostSetup",),
            values,
            nsenter=nsenter,
            seconds=COMMAND_SECONDS,
        )
        await in_thread(os.chmod, f"{root}{path}", 0o700)
        # The last: it says that all of it was done.
        await in_thread(os.chown, f"{root}{path}", source.userid, source.groupid)
    except OSError as error:
        raise NodeTrouble(f"{path}: {error.strerror}") from error


async def make_target(volume: Volume, target: LustreTarget, device: str, mount_point: Path) -> None:
    """Make a target anew, whatever was begun of it. Raises NodeTrouble."""
    await destroy_target(volume.name, mount_point)
    values = target_variables(volume, target, device, str(mount_point))
    for command in make_target_commands(volume, target, values):
        await commands.run(command, seconds=COMMAND_SECONDS)


async def serve_target(
    volume: Volume, target: LustreTarget, device: str, mount_point: Path
) -> None:
    """Have a target that is made be served, if it is not. Raises NodeTrouble."""
    if await in_thread(_is_mounted, mount_point):
        return
    values = target_variables(volume, target, device, str(mount_point))
    pool = pool_name(volume.name)
    if not await _has_pool(pool):
        # The machine was started anew: pools are in no cache file.
        await commands.run(["zpool", "import", "-d", device, "-N", pool], seconds=COMMAND_SECONDS)
    await in_thread(_make_mount_point, mount_point)
    await commands.run(mount_target_command(volume, values), seconds=COMMAND_SECONDS)
    try:
        await usercommands.run(
            volume.commands, ("commandlines.postActivate",), values, seconds=COMMAND_SECONDS
        )
    except NodeTrouble:
        await _unmount(mount_point)  # so that the next try runs them again
        raise


async def configure_mgs(command_lines: Sequence[Sequence[str]]) -> None:
    """Run the commands that a file system has for its MGS, which is here. Raises NodeTrouble."""
    for words in command_lines:
        try:
            await commands.run(words, seconds=COMMAND_SECONDS)
        except NodeTrouble as trouble:
            name = f"preMountCommands of the profile ({shlex.join(words)})"
            raise NodeTrouble(f"{name}: {trouble}") from trouble


async def destroy_target(
    name: str, mount_point: Path, profile: ProfileCommands = NO_COMMANDS
) -> None:
    """Stop serving a target, and destroy its pool; nothing if there is none. Raises NodeTrouble.

    What the profile has run before that keeps no target.
    """
    pool = pool_name(name)
    if await in_thread(_is_mounted, mount_point):
        values = {"$MOUNT_PATH": str(mount_point), "$POOL_NAME": pool}
        try:
            await usercommands.run(
                profile, ("commandlines.preDeactivate",), values, seconds=COMMAND_SECONDS
            )
        except NodeTrouble as trouble:
            log.warning("a command of the profile failed", volume=name, why=trouble)
    await _unmount(mount_point)
    if shutil.which("zpool") is not None and await _has_pool(pool):
        await commands.run(["zpool", "destroy", pool], seconds=COMMAND_SECONDS)


async def _unmount(mount_point: Path) -> None:
    while await in_thread(_is_mounted, mount_point):
        await commands.run(["umount", str(mount_point)], seconds=COMMAND_SECONDS)
    if await in_thread(mount_point.is_dir):
        await in_thread(mount_point.rmdir)


async def _has_pool(pool: str) -> bool:
    output = await commands.run(["zpool", "list", "-H", "-o", "name"])
    return pool in output.split()


def _is_mounted(mount_point: Path) -> bool:
    return mountpoints.mount_id(str(mount_point)) is not None


def _make_mount_point(mount_point: Path) -> None:
    try:
        mount_point.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise NodeTrouble(f"{mount_point}: {error.strerror}") from error


def _command_words(profile: ProfileCommands, name: str, values: Mapping[str, str]) -> list[str]:
    """Return the words of a command line that there has to be. Raises NodeTrouble."""
    try:
        words = profile.vector(f"commandlines.{name}", values)
    except UserMistake as mistake:
        raise NodeTrouble(str(mistake).removesuffix("."), fatal=True) from mistake
    if words is None:
        raise NodeTrouble(f"commandlines.{name} is not said", fatal=True)
    return words
