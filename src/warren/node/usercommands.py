"""The commands that a profile has run around a volume and a mount: `userCommands`.

They are an admin's and run as root, each within a time, and may be run again: an agent that dies
in the middle begins anew.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from warren.base.errors import UserMistake
from warren.dws.commandlines import ProfileCommands
from warren.dws.node import NodeTrouble
from warren.node import commands
from warren.node.flash import MountSource
from warren.node.threads import in_thread

PRE_ACTIVATE: Final = ("userCommands.preActivate",)
POST_ACTIVATE: Final = ("userCommands.postActivate",)
POST_SETUP: Final = ("userCommands.postSetup",)
PRE_TEARDOWN: Final = ("userCommands.preTeardown",)
PRE_DEACTIVATE: Final = ("userCommands.preDeactivate",)
POST_DEACTIVATE: Final = ("userCommands.postDeactivate",)
POST_TEARDOWN: Final = ("userCommands.postTeardown", "commandlines.rabbitPostTeardown")


def _mount_command_names(name: str) -> tuple[str, ...]:
    """Return what commands are called around a mount: Lustre's say on which side it is."""
    lustre_names = [
        f"commandlines.{side}{name[0].upper()}{name[1:]}" for side in ("rabbit", "compute")
    ]
    return (f"userCommands.{name}", *lustre_names)


PRE_MOUNT: Final = _mount_command_names("preMount")
POST_MOUNT: Final = _mount_command_names("postMount")
PRE_UNMOUNT: Final = _mount_command_names("preUnmount")
POST_UNMOUNT: Final = _mount_command_names("postUnmount")


async def run(
    profile: ProfileCommands,
    names: Sequence[str],
    values: Mapping[str, str],
    *,
    nsenter: Sequence[str] = (),
    seconds: float = commands.COMMAND_TIMEOUT,
) -> None:
    """Run the commands of some names, one after the other, inside of what `nsenter` enters.

    Raises NodeTrouble, which names the command's place in the profile.
    """
    for name in names:
        try:
            vectors = profile.vectors(name, values)
        except UserMistake as mistake:
            raise NodeTrouble(str(mistake).removesuffix("."), fatal=True) from mistake
        for vector in vectors:
            try:
                await commands.run([*nsenter, *vector], seconds=seconds)
            except NodeTrouble as trouble:
                raise NodeTrouble(f"{name} of the profile ({vector[0]}): {trouble}") from trouble


def has_any(profile: ProfileCommands, names: Sequence[str]) -> bool:
    """Return whether a profile has commands of some names."""
    return any(profile.has(name) for name in names)


@asynccontextmanager
async def mounted_temporarily(mount_point: Path, source: MountSource) -> AsyncIterator[str]:
    """Mount a volume for a moment, where only root looks; return where. Raises NodeTrouble.

    A bare device is where it is.
    """
    if source.is_file:
        yield source.arguments[-1]
        return
    await unmount(mount_point)
    try:
        await in_thread(mount_point.mkdir, mode=0o700)
    except OSError as error:
        raise NodeTrouble(f"{mount_point}: {error.strerror}") from error
    await commands.run(["mount", *source.arguments, str(mount_point)])
    try:
        yield str(mount_point)
    finally:
        await asyncio.shield(unmount(mount_point))


async def unmount(mount_point: Path) -> None:
    """Unmount what an agent that died has left mounted for a moment. Raises NodeTrouble."""
    while await in_thread(mount_point.is_mount):
        await commands.run(["umount", str(mount_point)])
    if await in_thread(mount_point.is_dir):
        await in_thread(mount_point.rmdir)
