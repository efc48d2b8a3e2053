"""A node with a mount namespace of its own, and flash of whatever kind behind it."""

import errno
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final, Protocol

from warren.base import log
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import (
    LUSTRE,
    Copy,
    Kept,
    LustreMount,
    NodeTrouble,
    Progress,
    RawVolumeAccess,
    Volume,
)
from warren.dws.persistent.sharing import Sharing
from warren.node import commands, copiers, filesystems, lustre, rootaccess, usercommands
from warren.node.busy import GracePeriod
from warren.node.flash import Flash, MountSource
from warren.node.threads import in_thread
from warren.node.usage import Process, describe, processes_using_mounts

_SYNC_SECONDS: Final = 200.0
"""Seconds to write out what is in memory, which may be tens of GB over a link."""

_MAX_UNMOUNTS: Final = 10
"""How often a path is unmounted before it counts as in use: users own what is mounted there, and
may mount on top of it without end."""


class MountNamespace(Protocol):
    """The mount namespace of a node: one of its own, or the machine's."""

    @property
    def prefix(self) -> Path:
        """The directory below which all mount points are made and removed."""
        ...

    @property
    def root(self) -> Path | None:
        """Where the node's files are seen from here, mount points included; None if it is gone."""
        ...

    async def nsenter_command(self) -> Sequence[str]:
        """Return the words to put before a command that is to run in it. Raises NodeTrouble."""
        ...

    def mounts_below_prefix(self) -> set[str]:
        """Return the mount points below `prefix`, but for those in the storage of users.

        Raises OSError.
        """
        ...

    def mount_id(self, path: str) -> int | None:
        """Return the id of what is mounted at a path, on top; None if nothing is.

        Raises OSError.
        """
        ...


class NamespacedNode:
    """A `LocalNode` that mounts in its node's namespace."""

    def __init__(
        self,
        name: str,
        flash: Flash,
        namespace: MountNamespace,
        grace_period: GracePeriod | None = None,
        mount_roots: Sequence[Path] = (Path("/"),),
    ) -> None:
        """`grace_period` is for mounts in use; nothing is mounted but below `mount_roots`."""
        self._grace_period = grace_period or GracePeriod()
        self._name = name
        self._flash = flash
        self._namespace = namespace
        self._mount_roots = mount_roots

    async def capacity(self) -> int:
        return await self._flash.capacity(self._name)

    async def raw_volume_access(self) -> RawVolumeAccess:
        return await self._flash.raw_volume_access(self._name)

    async def unsupported_types(self) -> Mapping[str, str]:
        return await self._flash.unsupported_types(self._name)

    async def lnet_nid(self) -> str:
        return await self._flash.lnet_nid()

    async def make(self, volume: Volume) -> None:
        await self._flash.make(volume)

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        await self._flash.release(rabbit, name, profile)

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared_with: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        self._check_allowed(path)
        source = await self._flash.source(rabbit, name, file_system)
        nsenter = await self._namespace.nsenter_command()
        values = {"$MOUNT_PATH": path, "$DEVICE": source.arguments[-1]}
        if not self._is_mounted(path):
            command = filesystems.mount_command(source, path, profile)
            self._make_mount_point(source, path)
            await usercommands.run(profile, usercommands.PRE_MOUNT, values, nsenter=nsenter)
            self._mark_post_mount(path, profile)
            await self._mount(nsenter, command, source.arguments[-1])
        await self._run_post_mount(path, profile, values, nsenter)
        # Also of what was mounted before the agent died, or before it was shared otherwise.
        if shared_with is not None and not source.is_file and os.geteuid() == 0:
            await in_thread(
                rootaccess.set_access, Path(f"{self._namespace.root}{path}"), shared_with
            )

    async def mount_lustre(
        self, source: LustreMount, path: str, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        nsenter = await self._namespace.nsenter_command()
        values = lustre.client_variables(source, path)
        if not self._is_mounted(path):
            mount_source = MountSource(("-t", LUSTRE, f"{source.address}:/{source.name}"))
            command = lustre.mount_client_command(source, path, profile)
            self._make_mount_point(mount_source, path)
            await usercommands.run(profile, usercommands.PRE_MOUNT, values, nsenter=nsenter)
            self._mark_post_mount(path, profile)
            await commands.run([*nsenter, *command], seconds=lustre.COMMAND_SECONDS)
        await self._run_post_mount(path, profile, values, nsenter)
        await lustre.give_to_user(source, self._namespace.root, path, profile, nsenter)

    async def configure_mgs(self, commands: Sequence[Sequence[str]]) -> None:
        await lustre.configure_mgs(commands)

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        was_mounted = self._is_mounted(path)
        if was_mounted and profile:
            await self._run_unmount_commands(path, profile, usercommands.PRE_UNMOUNT)
        # More than once, should an agent have died while its mount command did not.
        for _ in range(_MAX_UNMOUNTS):
            if not self._is_mounted(path):
                break
            nsenter = await self._namespace.nsenter_command()
            try:
                await commands.run([*nsenter, "umount", path])
            except NodeTrouble:
                if self._is_mounted(path):
                    await self._unmount_busy(nsenter, path, userid)
        if self._is_mounted(path):
            # A user mounts there (fusermount(1)) as fast as it is unmounted, and so uses it.
            await self._unmount_busy(await self._namespace.nsenter_command(), path, userid)
        self._grace_period.forget(self._grace_key(path))
        if was_mounted and profile:
            await self._run_unmount_commands(path, profile, usercommands.POST_UNMOUNT)
        try:
            self._post_mount_marker(path).unlink(missing_ok=True)
            self._remove_mount_point(path)
        except OSError as error:
            raise NodeTrouble(f"{path}: {error.strerror}") from error

    async def _run_unmount_commands(
        self, path: str, profile: ProfileCommands, names: Sequence[str]
    ) -> None:
        """Run what a profile has around an unmount. What can never be run keeps nothing mounted."""
        nsenter = await self._namespace.nsenter_command()
        for name in names:
            try:
                await usercommands.run(profile, (name,), {"$MOUNT_PATH": path}, nsenter=nsenter)
            except NodeTrouble as trouble:
                if not trouble.fatal:
                    raise
                log.warning("a command of the profile cannot be run", path=path, why=str(trouble))

    def _mark_post_mount(self, path: str, profile: ProfileCommands) -> None:
        """Remember before a mount what is to be run after it: an agent may die in between."""
        if usercommands.has_any(profile, usercommands.POST_MOUNT):
            self._post_mount_marker(path).touch(mode=0o600)

    async def _run_post_mount(
        self,
        path: str,
        profile: ProfileCommands,
        values: Mapping[str, str],
        nsenter: Sequence[str],
    ) -> None:
        if profile and self._post_mount_marker(path).exists():
            await usercommands.run(profile, usercommands.POST_MOUNT, values, nsenter=nsenter)
            self._post_mount_marker(path).unlink(missing_ok=True)

    def _post_mount_marker(self, path: str) -> Path:
        """Return what stands beside a mount while its postMount commands are to be run.

        It is in the node's namespace, and goes with it as the mount does.
        """
        return Path(f"{self._namespace.root}{path}.mounting")

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        nsenter = await self._namespace.nsenter_command()
        async with aclosing(copiers.run(copy, nsenter)) as reports:  # type: ignore[type-var]
            async for progress in reports:
                yield progress

    async def _unmount_busy(self, nsenter: Sequence[str], path: str, userid: int) -> None:
        """Unmount what is in use, for good, with what users have mounted on top of it.

        Raises InUse while that is waited for.
        """
        processes = await self._grace_period.enforce(
            self._grace_key(path), userid, lambda: self._processes_using(path, userid)
        )
        # Those that are not ended keep what they have open, and no other process finds it any more:
        # the node is free of it, and the volume cannot be released before they are gone.
        log.warning("unmounted while in use", path=path, by=describe(processes))
        try:
            # A lazy unmount writes nothing, and the volume may be let go of right after it.
            sync = [*nsenter, "sync", "--file-system", path]
            await commands.run(sync, seconds=_SYNC_SECONDS)
        except NodeTrouble as trouble:  # of a file system that has failed, no more can be saved
            log.warning("not known to be written", path=path, why=str(trouble))
        # Not by umount(8), which reads the table of all mounts for a lazy one.
        await commands.run([*nsenter, sys.executable, "-P", "-m", "warren.node.detaching", path])
        if self._is_mounted(path):
            raise Kept(f"{path} is mounted again as often as it is unmounted")

    def _is_mounted(self, path: str) -> bool:
        return self._mount_id(path) is not None

    def _mount_id(self, path: str) -> int | None:
        try:
            return self._namespace.mount_id(path)
        except OSError as error:
            raise NodeTrouble(f"{path}: {error.strerror}") from error

    def _grace_key(self, path: str) -> str:
        """Return what is waited for: all nodes of a job mount at one path, each for itself."""
        return f"{self._name}:{path}"

    def _processes_using(self, path: str, userid: int) -> list[Process]:
        mount_id = self._mount_id(path)
        return [] if mount_id is None else processes_using_mounts([mount_id], userid)

    async def _mount(self, nsenter: Sequence[str], command: Sequence[str], device: str) -> None:
        """Mount. Raises NodeTrouble with the device, which mount(8) does not always name."""
        try:
            await commands.run([*nsenter, *command])
        except NodeTrouble as trouble:
            if device in str(trouble):
                raise
            raise NodeTrouble(f"{device}: {trouble}") from trouble

    def _check_allowed(self, path: str) -> None:
        if ".." in Path(path).parts or not any(
            Path(path).is_relative_to(root) for root in self._mount_roots
        ):
            mount_roots = " or ".join(map(str, self._mount_roots))
            raise NodeTrouble(f"{path}: nothing is mounted but below {mount_roots}", fatal=True)

    def _make_mount_point(self, source: MountSource, path: str) -> None:
        root = self._namespace.root
        if root is None:
            raise NodeTrouble(f"the mount namespace of {self._name} has gone")
        mount_point = Path(f"{root}{path}")
        try:
            for directory in [
                *reversed(mount_point.parents),
                *([] if source.is_file else [mount_point]),
            ]:
                # Passed by all users, listed by none: what is mounted is its owner's alone.
                if directory.is_relative_to(f"{root}{self._namespace.prefix}"):
                    with suppress(FileExistsError):
                        directory.mkdir(mode=0o711)
            if source.is_file:
                mount_point.touch(mode=0o600)
        except OSError as error:
            raise NodeTrouble(f"{path}: {error.strerror}") from error

    def _remove_mount_point(self, path: str) -> None:
        """Remove a mount point, and the directories that are empty without it."""
        prefix = self._namespace.prefix
        root = self._namespace.root
        if root is not None and Path(path).is_relative_to(prefix):
            prune(Path(f"{root}{path}"), Path(f"{root}{prefix}"))


def prune(path: Path, top: Path) -> None:
    """Remove a link, an empty file or an empty directory, and each parent left empty below `top`.

    A directory that is not empty stays, and so do its parents. Raises OSError.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
    for directory in [path, *path.parents]:
        if directory == top or not directory.is_relative_to(top):
            return
        try:
            directory.rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                return
            raise
