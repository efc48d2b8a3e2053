"""A rabbit's disk as an LVM volume group, with a logical volume for each volume.

LVM's own metadata is the only record: what belongs to a rabbit, whose it is and
whether its file system is whole are tags of the logical volume. What does not have
the rabbit's tag is another's, and is left alone.
"""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from warren.base import log
from warren.dws import commandlines
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import CannotBeCutOff, Kept, NodeTrouble, Volume
from warren.node import commands
from warren.node.blocks import VolumeRecord
from warren.node.filesystems import profile_arguments
from warren.node.flash import out_of_space, path_component
from warren.node.threads import in_thread

PREFIX: Final = "vg:"
"""Stands before the name of a volume group where a block device may be named, too."""

LV_CREATE: Final = "blockDeviceCommands.rabbitCommands.lvCreate"
ACTIVATE: Final = "blockDeviceCommands.rabbitCommands.lvChange.activate"
DEACTIVATE: Final = "blockDeviceCommands.rabbitCommands.lvChange.deactivate"

_ACTIVE_FIELD: Final = "lv_active_locally"
"""The field of a report that says whether a volume is active on this machine."""

_ACTIVE_VALUES: Final = frozenset({"active locally", "1"})
"""What it says where that is so: a number where lvm.conf has `binary_values_as_numeric`."""

_OPEN_FIELD: Final = "lv_device_open"
"""The field of a report that says whether something has a volume open, or mounted."""

_OPEN_VALUES: Final = frozenset({"open", "1"})
"""What it says where that is so."""

_SECTOR: Final = 512
_FORMATTED_TAG: Final = "warren.made"
_OWNER_TAG_PREFIX: Final = "warren.owner."
_RABBIT_TAG_PREFIX: Final = "warren.rabbit."


class VolumeGroup:
    """A `Disk`. LVM itself keeps those apart who change a group at the same time."""

    offers_raw: Final = True
    """The kernel passes nothing that is asked of a logical volume on to what it is a part of."""

    activates_volumes: Final = True

    def __init__(self, rabbit: str, name: str, capacity: int) -> None:
        """No more than `capacity` bytes of the volume group `name` are used."""
        self._rabbit = rabbit
        self._name = name
        self._capacity = capacity
        self._tag = f"{_RABBIT_TAG_PREFIX}{rabbit}"
        self._reserve_lock = asyncio.Lock()
        """Held while space is looked for and taken, which only the rabbit's own agent does."""

    async def capacity(self) -> int:
        (row,) = await _report("vgs", "vg", "vg_missing_pv_count", self._name)
        if row["vg_missing_pv_count"] != "0":
            missing = row["vg_missing_pv_count"]
            raise NodeTrouble(f"volume group {self._name}: {missing} of its devices are missing")
        records = await self._records()
        return sum(each.size for each in records.values()) + await self._free_bytes(records)

    def volumes(self) -> Mapping[str, VolumeRecord]:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._records()).result()

    async def find(self, name: str) -> VolumeRecord | None:
        return (await self._records()).get(name)

    async def reserve(self, volume: Volume) -> VolumeRecord:
        async with self._reserve_lock:
            records = await self._records()
            if volume.name not in records:
                command = await self._lvcreate_command(volume)
                pool_free = await self._free_pool_bytes(command)
                # A thin volume takes no space of the group, but of the pool.
                free_bytes = (
                    await self._free_bytes(records)
                    if pool_free is None
                    else min(pool_free, self._unused_capacity(records))
                )
                if volume.size > free_bytes:
                    raise out_of_space(self._rabbit, free_bytes, volume.size)
                await commands.run(command)
                records = await self._records()
                if volume.name not in records:
                    raise NodeTrouble(
                        f"{LV_CREATE} of the profile has made no {self._name}/{volume.name}: name "
                        "it by $VG_NAME and $LV_NAME",
                        fatal=True,
                    )
        return records[volume.name]

    async def attach(self, name: str, profile: ProfileCommands = NO_COMMANDS) -> str:
        row = (await self._rows()).get(name)
        if row is None:
            raise NodeTrouble(f"{self._rabbit}/{name} does not exist")
        path = self._path(name)
        # What is active stays as it was activated, which a profile may have said.
        if row[_ACTIVE_FIELD] not in _ACTIVE_VALUES:
            arguments = self._lvchange_arguments(name, profile, ACTIVATE)
            # What is a snapshot is to be skipped, unless that is overruled.
            await commands.run(["lvchange", "-K", *(arguments or ["-ay", path])])
            if arguments and (await self._rows())[name][_ACTIVE_FIELD] not in _ACTIVE_VALUES:
                raise NodeTrouble(f"{ACTIVATE} of the profile has not activated {path}", fatal=True)
        return f"/dev/{path}"

    async def devices(self, name: str) -> list[str]:
        device = f"/dev/{self._path(name)}"
        return [device] if await in_thread(os.path.exists, device) else []

    async def set_formatted(self, name: str) -> None:
        await commands.run(["lvchange", "--addtag", _FORMATTED_TAG, self._path(name)])

    async def cut_off(self, name: str) -> None:
        raise CannotBeCutOff(f"{self._path(name)} cannot be cut off: it is no loop device")

    async def give_back(self, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        row = (await self._rows()).get(name)
        if row is None:
            return
        path = self._path(name)
        if row[_ACTIVE_FIELD] in _ACTIVE_VALUES:
            await self._deactivate(name, profile)
        try:
            await commands.run(["lvchange", "-an", path])  # refuses what is in use
        except commands.CommandFailed as failure:
            if await self._is_open(name):
                raise Kept(str(failure)) from failure
            raise
        # What can discard does so. Nothing relies on it: the next user of the space has a file
        # system, which does not show what was there, or a bare device, which is zeroed first.
        await commands.run(["lvremove", "-y", "--config", "devices{issue_discards=1}", path])

    async def _is_open(self, name: str) -> bool:
        rows = await _report("lvs", "lv", f"lv_name,{_OPEN_FIELD}", self._name)
        return any(
            row["lv_name"] == path_component(name) and row[_OPEN_FIELD] in _OPEN_VALUES
            for row in rows
        )

    async def _deactivate(self, name: str, profile: ProfileCommands) -> None:
        """Deactivate a volume as its profile says it. What comes of it keeps no volume."""
        try:
            arguments = self._lvchange_arguments(name, profile, DEACTIVATE)
            if arguments is not None:
                await commands.run(["lvchange", *arguments])
        except NodeTrouble as trouble:
            log.warning("a command of the profile failed", volume=self._path(name), why=trouble)

    def _lvchange_arguments(
        self, name: str, profile: ProfileCommands, setting: str
    ) -> list[str] | None:
        """Return the words by which a profile changes a volume. Raises NodeTrouble.

        Not those by which it would change the whole group, which is the site's. Copies of profiles
        that were pinned by earlier versions may have such.
        """
        arguments = profile_arguments(profile, setting, self._variables(name))
        if arguments is not None and not commandlines.changes_one_volume(
            arguments, self._path(name)
        ):
            raise NodeTrouble(
                f"{setting} of the profile does not change {self._path(name)} alone: name it by "
                "$VG_NAME/$LV_NAME",
                fatal=True,
            )
        return arguments

    async def _lvcreate_command(self, volume: Volume) -> list[str]:
        """Return the command that makes a volume, as its profile says it."""
        size = -(-volume.size // _SECTOR) * _SECTOR  # it makes whole extents of whole sectors
        # With its tags from the first moment on, and never activated when the machine starts.
        fixed_arguments = [
            "lvcreate", "-y", "--setautoactivation", "n",
            "--addtag", self._tag,
            "--addtag", f"{_OWNER_TAG_PREFIX}{volume.userid}.{volume.groupid}",
        ]  # fmt: skip
        name = path_component(volume.name)
        values = {"$LV_SIZE": f"{size}b", **self._variables(name)}
        if volume.commands.has(LV_CREATE):
            (row,) = await _report("vgs", "vg", "pv_count", self._name)
            count = int(row["pv_count"])
            values |= {"$DEVICE_NUM": str(count), "$DEVICE_NUM-1": str(count - 1)}
            values["$DEVICE_NUM-2"] = str(count - 2)
        arguments = profile_arguments(volume.commands, LV_CREATE, values)
        if arguments is not None:
            return [*fixed_arguments, *arguments]
        # LVM does not activate it, which it would have to for wiping it.
        return [*fixed_arguments, "-an", "-Zn", "-Wn", "-L", f"{size}b", "-n", name, self._name]

    async def _free_pool_bytes(self, command: Sequence[str]) -> int | None:
        """Return how many bytes of the thin pool that a command names no volume has been given.

        Jobs are given no more than there is.
        """
        pool = _pool_name(command)
        if pool is None:
            return None
        rows = await _report("lvs", "lv", "lv_name,lv_size,pool_lv", self._name)
        size_by_name = {row["lv_name"]: int(row["lv_size"]) for row in rows}
        if pool not in size_by_name:
            raise NodeTrouble(f"{self._name} has no thin pool {pool}", fatal=True)
        return size_by_name[pool] - sum(
            int(row["lv_size"]) for row in rows if row["pool_lv"] == pool
        )

    async def _records(self) -> dict[str, VolumeRecord]:
        return {name: _record_of(row) for name, row in (await self._rows()).items()}

    async def _rows(self) -> dict[str, dict[str, str]]:
        """Return what LVM says of this rabbit's volumes."""
        rows = await _report("lvs", "lv", f"lv_name,lv_size,lv_tags,{_ACTIVE_FIELD}", self._name)
        return {row["lv_name"]: row for row in rows if self._tag in row["lv_tags"].split(",")}

    def _variables(self, name: str) -> dict[str, str]:
        """Return by which variables a profile's line names a volume."""
        return {"$VG_NAME": self._name, "$LV_NAME": path_component(name)}

    async def _free_bytes(self, records: Mapping[str, VolumeRecord]) -> int:
        """Return how many bytes this rabbit may still take."""
        (row,) = await _report("vgs", "vg", "vg_free", self._name)
        return min(int(row["vg_free"]), self._unused_capacity(records))

    def _unused_capacity(self, records: Mapping[str, VolumeRecord]) -> int:
        return self._capacity - sum(each.size for each in records.values())

    def _path(self, name: str) -> str:
        return f"{self._name}/{path_component(name)}"


async def volume_group_names() -> set[str]:
    """Return the volume groups of this machine. Raises NodeTrouble."""
    return {row["vg_name"] for row in await _report("vgs", "vg", "vg_name")}


async def _report(command: str, report_key: str, fields: str, *names: str) -> list[dict[str, str]]:
    output = await commands.run(
        [command, "--reportformat", "json", "--units", "b", "--nosuffix", "-o", fields, *names]
    )
    report: dict[str, Any] = json.loads(output)
    rows: list[dict[str, str]] = report["report"][0][report_key]
    return rows


def _pool_name(command: Sequence[str]) -> str | None:
    """Return the thin pool that a command makes a volume of, if it names one."""
    for word, next_word in zip(command, [*command[1:], ""], strict=True):
        if word == "--thinpool":
            return next_word.rpartition("/")[2]
        if word.startswith("--thinpool="):
            return word.partition("=")[2].rpartition("/")[2]
    return None


def _record_of(row: Mapping[str, str]) -> VolumeRecord:
    size, tags = int(row["lv_size"]), row["lv_tags"].split(",")
    owner = next(
        tag.removeprefix(_OWNER_TAG_PREFIX) for tag in tags if tag.startswith(_OWNER_TAG_PREFIX)
    )
    userid, _, groupid = owner.partition(".")
    return VolumeRecord(
        size=size, userid=int(userid), groupid=int(groupid), formatted=_FORMATTED_TAG in tags
    )
