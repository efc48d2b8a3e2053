"""Block devices as flash: every volume is a device, with a file system of its own size on it."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from warren.base import log
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import (
    LUSTRE,
    CannotBeCutOff,
    Kept,
    LustreTarget,
    NodeTrouble,
    RawVolumeAccess,
    Volume,
)
from warren.node import commands, filesystems, filesystemsupport, lustre, usercommands
from warren.node.busy import GracePeriod
from warren.node.filesystems import NO_DLM_CLUSTER, DlmCluster
from warren.node.flash import MountSource, path_component
from warren.node.threads import in_thread
from warren.node.usage import (
    Process,
    are_mounted_by_root,
    describe,
    leaving_out_others,
    processes_of_user,
    processes_using_devices,
    processes_with_hidden_files,
)

MAKE_SECONDS: Final = 30.0
"""Seconds that making a file system may take."""


class VolumeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a disk knows of a volume."""

    size: int
    """Bytes."""
    userid: int
    groupid: int
    formatted: bool
    """Whether its file system is whole."""


class Disk(Protocol):
    """The space of one rabbit, given out as block devices. Every action may be repeated.

    Everything raises NodeTrouble where it fails.
    """

    @property
    def offers_raw(self) -> bool:
        """Whether a user may hold a volume's device: nothing asked of it reaches beyond it."""
        ...

    @property
    def activates_volumes(self) -> bool:
        """Whether volumes are activated, and a profile may say how."""
        ...

    async def capacity(self) -> int:
        """Return how many bytes there are in all."""
        ...

    def volumes(self) -> Mapping[str, VolumeRecord]:
        """Return the volumes by name. It may block: for those who look at the whole disk."""
        ...

    async def find(self, name: str) -> VolumeRecord | None:
        """Return a volume, if it is there."""
        ...

    async def reserve(self, volume: Volume) -> VolumeRecord:
        """Take space for a volume, if it has none."""
        ...

    async def attach(self, name: str, profile: ProfileCommands = NO_COMMANDS) -> str:
        """Attach a volume, as a profile has it attached; return its device, ready for use."""
        ...

    async def devices(self, name: str) -> list[str]:
        """Return the devices that show something of a volume now; none is attached for that."""
        ...

    async def set_formatted(self, name: str) -> None:
        """Remember, for good, that the volume's file system is whole."""
        ...

    async def cut_off(self, name: str) -> None:
        """Have a volume's devices show nothing any more, though they are in use (ADR 037).

        Whatever uses them cannot read or write any more, and the volume can be given back.
        Raises NodeTrouble where that cannot be done.
        """
        ...

    async def give_back(self, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        """Detach a volume as a profile has it, discard what is in it and free its space."""
        ...


class BlockFlash:
    """`Flash` whose volumes are block devices."""

    def __init__(
        self,
        disk: Callable[[str], Disk],
        work_directory: Path,
        *,
        seconds: float = MAKE_SECONDS,
        grace_period: GracePeriod | None = None,
        cluster: DlmCluster | None = None,
        one_kernel: bool = True,
    ) -> None:
        """`disk` gives a rabbit's disk; `work_directory` is a directory for short-lived files.

        `seconds` is for making one file system, `grace_period` for volumes that are in use. Where
        not `one_kernel` mounts volumes, nodes are machines, and a gfs2 takes a `cluster` of them.
        """
        self._grace_period = grace_period or GracePeriod()
        self._disk = disk
        self._work_directory = work_directory
        self._make_seconds = seconds
        self._cluster = cluster
        self._one_kernel = one_kernel
        self._unsupported_types: Mapping[str, str] | None = None
        """Known once it was asked for."""
        self._make_locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    async def capacity(self, rabbit: str) -> int:
        return await self._disk(rabbit).capacity()

    async def raw_volume_access(self, rabbit: str) -> RawVolumeAccess:
        return (
            RawVolumeAccess.FOR_USERS if self._disk(rabbit).offers_raw else RawVolumeAccess.FOR_ROOT
        )

    async def unsupported_types(self, rabbit: str) -> Mapping[str, str]:
        if self._unsupported_types is None:
            self._unsupported_types = await filesystemsupport.unsupported_types(self._cluster)
            if self._needs_dlm_cluster:
                self._unsupported_types = {**self._unsupported_types, "gfs2": NO_DLM_CLUSTER}
        return self._unsupported_types

    @property
    def _needs_dlm_cluster(self) -> bool:
        return self._cluster is None and not self._one_kernel

    def volumes(self, rabbit: str) -> Mapping[str, int]:
        return {name: record.size for name, record in self._disk(rabbit).volumes().items()}

    async def lnet_nid(self) -> str:
        return await lustre.lnet_nid()

    async def make(self, volume: Volume) -> None:
        disk = self._disk(volume.rabbit)
        self._check_cluster(volume.file_system)
        if volume.file_system == "raw" and not (disk.offers_raw or volume.userid == 0):
            raise NodeTrouble(
                f"{volume.rabbit} makes volumes as loop devices, which only root may hold: "
                "raw volumes for users take a volume group",
                fatal=True,
            )
        # One at a time: the second would make it again under a node that has mounted it meanwhile.
        async with self._make_locks.setdefault((volume.rabbit, volume.name), asyncio.Lock()):
            record = await disk.reserve(volume)
            if volume.target is not None:
                await self._serve(disk, volume, volume.target, formatted=record.formatted)
                return
            if record.formatted:
                # Its file system never again: there may be data in it.
                if disk.activates_volumes and volume.commands:
                    # The machine may have been started anew.
                    await disk.attach(volume.name, volume.commands)
                return
            await usercommands.run(volume.commands, usercommands.PRE_ACTIVATE, {})
            device = await disk.attach(volume.name, volume.commands)
            values = {"$DEVICE": device}
            await usercommands.run(volume.commands, usercommands.POST_ACTIVATE, values)
            # An agent that died may have left it mounted, and nothing is made on that.
            await usercommands.unmount(self._mount_point(volume.rabbit, volume.name))
            await self._make_file_system(volume, device)
            await self._run_mounted(
                volume.rabbit,
                volume.name,
                volume.file_system,
                device,
                usercommands.POST_SETUP,
                volume.commands,
            )
            await disk.set_formatted(volume.name)

    def _check_cluster(self, file_system: str) -> None:
        # What one kernel has in the place of a gfs2, two would destroy (ADR 077).
        if file_system == "gfs2" and self._needs_dlm_cluster:
            raise NodeTrouble(NO_DLM_CLUSTER, fatal=True)

    async def _serve(
        self, disk: Disk, volume: Volume, target: LustreTarget, *, formatted: bool
    ) -> None:
        device, mount_point = (
            await disk.attach(volume.name),
            self._mount_point(volume.rabbit, volume.name),
        )
        if not formatted:
            await lustre.make_target(volume, target, device, mount_point)
            await disk.set_formatted(volume.name)
        await lustre.serve_target(volume, target, device, mount_point)

    def _mount_point(self, rabbit: str, name: str) -> Path:
        """Return where the rabbit mounts a volume for itself."""
        return self._work_directory / f"{path_component(rabbit)}-{path_component(name)}.mount"

    async def _run_mounted(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        device: str,
        names: Sequence[str],
        profile: ProfileCommands,
    ) -> None:
        """Run commands of a profile on a volume that is mounted for them. Raises NodeTrouble."""
        if not usercommands.has_any(profile, names):
            return
        mount_point = self._mount_point(rabbit, name)
        async with usercommands.mounted_temporarily(
            mount_point, filesystems.source(file_system, device, self._cluster)
        ) as path:
            values = {"$DEVICE": device, "$MOUNT_PATH": path}
            await usercommands.run(profile, names, values, seconds=self._make_seconds)

    async def _before_release(self, rabbit: str, name: str, profile: ProfileCommands) -> None:
        """Run what a profile has run before a volume goes. Nothing of that keeps the volume."""
        disk = self._disk(rabbit)
        record = await disk.find(name)
        if record is None or not record.formatted:
            return
        try:
            device = await disk.attach(name, profile)
            names = usercommands.PRE_TEARDOWN
            await self._run_mounted(rabbit, name, profile.file_system, device, names, profile)
            values = {"$DEVICE": device}
            await usercommands.run(profile, usercommands.PRE_DEACTIVATE, values)
        except NodeTrouble as trouble:
            log.warning("a command of the profile failed", volume=f"{rabbit}/{name}", why=trouble)

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        disk = self._disk(rabbit)
        full_name = f"{rabbit}/{name}"
        if profile.file_system == LUSTRE:
            await lustre.destroy_target(name, self._mount_point(rabbit, name), profile)
        else:
            # Mounted for a moment by an agent that died.
            await usercommands.unmount(self._mount_point(rabbit, name))
            if profile:
                await self._before_release(rabbit, name, profile)
        try:
            await disk.give_back(name, profile)
        except NodeTrouble:
            devices = await disk.devices(name)
            if not devices:
                raise
            record = await disk.find(name)
            userid = record.userid if record else 0
            find_processes = partial(processes_using_devices, devices, userid)
            processes = await self._grace_period.enforce(full_name, userid, find_processes)
            try:
                await disk.give_back(name, profile)
            except NodeTrouble as trouble:
                # Flash that fails is the rabbit's trouble, and what is in use is not.
                error_type = Kept if isinstance(trouble, Kept) else NodeTrouble
                in_use = error_type(f"{full_name} is kept by {describe(processes)}: {trouble}")
                if not self._grace_period.may_kill(userid):
                    raise in_use from trouble
                awaited_userid = 0 if self._grace_period.has_survived_kill(full_name) else userid
                if await in_thread(_must_not_be_cut_off, devices, awaited_userid):
                    raise in_use from trouble
                await self._take_while_in_use(disk, name, full_name, userid, processes, error_type)
        self._grace_period.forget(full_name)
        try:
            await usercommands.run(profile, usercommands.POST_DEACTIVATE, {})
            await usercommands.run(profile, usercommands.POST_TEARDOWN, {})
        except NodeTrouble as trouble:  # there is nothing left that it could keep
            log.warning("a command of the profile failed", volume=full_name, why=trouble)

    async def _take_while_in_use(
        self,
        disk: Disk,
        name: str,
        full_name: str,
        userid: int,
        processes: Sequence[Process],
        error_type: type[NodeTrouble],
    ) -> None:
        """Free a volume that is kept by other users, or by what cannot be found.

        Raises `error_type` where it cannot be freed.
        """
        try:
            await disk.cut_off(name)
        except NodeTrouble as trouble:
            if not processes and isinstance(trouble, CannotBeCutOff):
                # Only where there is no other way: what keeps it may be any user's, who has copied
                # a mount namespace in which it was mounted.
                await self._grace_period.kill(
                    full_name, userid, partial(processes_with_hidden_files, userid)
                )
            raise error_type(
                f"{full_name} is kept by {describe(processes)}: {trouble}"
            ) from trouble
        await disk.give_back(name)
        log.warning("flash taken while in use", volume=full_name, by=describe(processes))

    async def processes_using(self, rabbit: str, name: str) -> list[Process]:
        """Return the processes that are seen to use a volume. Raises NodeTrouble."""
        return await in_thread(processes_using_devices, await self._disk(rabbit).devices(name))

    async def processes_of_owner(self, rabbit: str, name: str) -> list[Process]:
        """Return the processes of a volume's user, if it has a device. Raises NodeTrouble.

        Any of them may keep the volume without being seen to. Root's are not suspected.
        """
        disk = self._disk(rabbit)
        record = await disk.find(name)
        if record is None or record.userid == 0 or not await disk.devices(name):
            return []
        return await in_thread(processes_of_user, record.userid)

    async def source(self, rabbit: str, name: str, file_system: str) -> MountSource:
        disk = self._disk(rabbit)
        record = await disk.find(name)
        if record is None or not record.formatted:
            raise NodeTrouble(f"{rabbit}/{name} does not exist")
        device = await disk.attach(name)
        self._check_cluster(file_system)
        source = filesystems.source(file_system, device, self._cluster)
        if source.is_file and disk.offers_raw:
            try:
                os.chmod(device, 0o600)
                os.chown(device, record.userid, record.groupid)
            except OSError as error:
                raise NodeTrouble(f"{device}: {error.strerror}") from error
        return source

    async def _make_file_system(self, volume: Volume, device: str) -> None:
        proto = self._work_directory / f"{volume.rabbit}-{volume.name}.proto"
        command_lines, proto_text = filesystems.make_commands(
            volume, device, str(proto), self._cluster
        )
        try:
            if proto_text:
                proto.write_text(proto_text)
            for command in command_lines:
                await commands.run(command, seconds=self._make_seconds)
        except NodeTrouble as trouble:
            raise NodeTrouble(f"{device}: {trouble}") from trouble
        except OSError as error:
            raise NodeTrouble(f"{proto}: {error.strerror}") from error
        finally:
            proto.unlink(missing_ok=True)


def _must_not_be_cut_off(devices: Sequence[str], awaited_userid: int) -> bool:
    """Return whether devices are not cut off from what uses them.

    Root may have reasons, and what a node has mounted is not given up. Processes of the volume's
    user have just been killed, and are waited for as `awaited_userid`; 0 waits for none.
    """
    with leaving_out_others():
        processes = processes_using_devices(devices, awaited_userid)
    is_waited_for = any(each.userid in (0, awaited_userid) for each in processes)
    return is_waited_for or are_mounted_by_root(devices)
