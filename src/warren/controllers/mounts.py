"""ClientMounts, on the node they are for. Compute nodes and rabbits alike."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final

from warren.base import log
from warren.base.accounts import groups_of
from warren.base.objects import Key, Object, key_of
from warren.controllers.localnode import LocalNode
from warren.controllers.profilecommands import commands_of
from warren.controllers.users import UserKey, user_getter
from warren.dws import kinds, labels, reports
from warren.dws.commandlines import ProfileCommands
from warren.dws.node import InUse, Kept, LustreMount, NodeTrouble, raise_in_use
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.decoding import read
from warren.dws.persistent import sharing
from warren.dws.persistent.sharing import NotShared
from warren.dws.storage import lustre
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import RECONCILE_SECONDS, Reconciler

WORKERS_OF_USER: Final = 80
"""One user's mounts that are worked on at a time: more than the 64 directives of one job have on a
node, so that where all of them hang, for minutes with a server of Lustre, no other job waits for
them."""

WORKERS: Final = 2 * WORKERS_OF_USER
"""All mounts that are worked on at a time: however many jobs of one user hang, no other user
waits for them."""


async def _groups_in_thread(userid: int) -> Collection[int]:
    """Return the groups that a user is in, however long the name service takes."""
    return await asyncio.to_thread(groups_of, userid)


class MountReconciler:
    """Makes one node's mounts what its ClientMounts say."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        local_node: LocalNode,
        disconnect_volume: Callable[[str, str], Awaitable[None]] | None = None,
        *,
        on_rabbit: bool = False,
        on_failure: Callable[[], None] = lambda: None,
        timeout: float = RECONCILE_SECONDS,
        read_groups: Callable[[int], Awaitable[Collection[int]]] = _groups_in_thread,
    ) -> None:
        """`disconnect_volume` lets go of a volume of a network; it may be mounted for others still.

        `read_groups` returns the groups that a user is in.
        `on_failure` is called when a mount, or an unmount, has failed.
        `timeout` is in seconds: more than the commands take that mount and unmount.
        """
        self._side = "rabbit" if on_rabbit else "compute"
        self._client = client
        self._disconnect_volume = disconnect_volume
        self._read_groups = read_groups
        self._on_failure = on_failure
        self._local_node = local_node
        self._mounts = informers.of(kinds.CLIENT_MOUNT)
        self.reconciler: Reconciler[Key] = Reconciler(
            "mounts",
            self.reconcile,
            workers=WORKERS_OF_USER,
            timeout=timeout,
            user=user_getter(self._mounts, _user_of),
        )
        self._mounts.listen(lambda obj: self.reconciler.add(key_of(obj)))

    def mount_again(self) -> None:
        """Reconcile each ClientMount: the node may have lost what was mounted on it."""
        for obj in self._mounts.all():
            self.reconciler.add(key_of(obj))

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile a ClientMount."""
        raw = self._mounts.get(key)
        if raw is None:
            return None
        current = read(raw, ClientMount)
        if current.metadata.deleting:
            return await self._finalize(current)
        trouble = None
        try:
            if current.spec.desired_state == "mounted":
                await self._mount(current)
            else:
                await self._unmount(current)
        except NodeTrouble as error:
            trouble = error
            self._on_failure()
        await self._report(current, trouble)
        if isinstance(trouble, InUse):
            return trouble.delay
        if trouble is not None and not trouble.fatal:
            raise trouble
        return None

    async def _finalize(self, current: ClientMount) -> float | None:
        try:
            await self._unmount(current)
        except InUse as trouble:
            await self._report(current, trouble)
            return trouble.delay
        except NodeTrouble as trouble:
            await self._report(current, trouble)
            raise
        change = reports.remove_finalizer(
            kinds.CLIENT_MOUNT, current.metadata, labels.CLIENT_MOUNT_FINALIZER
        )
        await perform(self._client, [change])
        return None

    async def _mount(self, current: ClientMount) -> None:
        text = current.metadata.annotations.get(labels.SHARED_WITH)
        shared_with = None if text is None else sharing.parse(text)
        commands = commands_of(current.metadata)
        for mount in current.spec.mounts:
            if mount.device.lustre is not None:
                source = LustreMount(
                    address=mount.device.lustre.mgs_addresses,
                    name=mount.device.lustre.file_system_name,
                    userid=mount.user_id,
                    groupid=mount.group_id,
                )
                own_commands = self._commands_of_side(commands)
                await self._local_node.mount_lustre(source, mount.mount_path, own_commands)
                continue
            lvm = mount.device.lvm
            if lvm is None:
                raise NodeTrouble(f"{mount.mount_path}: the device is not a volume", fatal=True)
            file_system = "raw" if mount.type == "none" else mount.type
            volume = (lvm.volume_group, lvm.logical_volume)
            try:
                await self._local_node.mount(
                    *volume, file_system, mount.mount_path, shared_with, commands
                )
            except NotShared as trouble:
                # All groups of the user count, as they do for the job's Workflow.
                groups = {mount.group_id, *await self._read_groups(mount.user_id)}
                if not sharing.may_use(trouble.owner_userid, trouble.let_in, mount.user_id, groups):
                    raise  # who is let in goes on: the owner can make room
                log.warning("not all users are let in", path=mount.mount_path, why=str(trouble))

    async def _unmount(self, current: ClientMount) -> None:
        commands = commands_of(current.metadata)
        in_use: list[NodeTrouble] = []
        for mount in reversed(current.spec.mounts):
            own_commands = commands
            if mount.device.lustre is not None:
                file_system = mount.device.lustre
                values = {
                    "$MGS_NID": file_system.mgs_addresses,
                    "$FS_NAME": file_system.file_system_name,
                }
                own_commands = self._commands_of_side(commands).with_variables(values)
            # All wait at the same time, and not one after the other.
            try:
                await self._local_node.unmount(mount.mount_path, mount.user_id, own_commands)
                if self._disconnect_volume is not None and mount.device.lvm is not None:
                    await self._disconnect_volume(
                        mount.device.lvm.volume_group, mount.device.lvm.logical_volume
                    )
            except (InUse, Kept) as trouble:
                in_use.append(trouble)
        raise_in_use(in_use)

    def _commands_of_side(self, commands: ProfileCommands) -> ProfileCommands:
        """Return what this node runs around a Lustre.

        ClientMounts of earlier controllers have the commands of both sides.
        """
        return commands.only(lustre.CLIENT_COMMAND_NAMES[self._side])

    async def _report(self, current: ClientMount, trouble: NodeTrouble | None) -> None:
        state = current.spec.desired_state
        if trouble is None and current.all_in(state):
            return
        error = trouble.as_error() if trouble is not None else None
        is_reported = all(each.state == state for each in current.status.mounts)
        if error is not None and is_reported and reports.same_error(current.status.error, error):
            return
        mounts = [{"state": state, "ready": trouble is None} for _ in current.spec.mounts]
        status: Object = {"mounts": mounts, "allReady": trouble is None, "error": error}
        change = reports.status(kinds.CLIENT_MOUNT, current.metadata, status)
        await perform(self._client, [change])


def _user_of(obj: Object) -> UserKey:
    mounts: Sequence[Object] = obj.get("spec", {}).get("mounts") or ()
    # All of one ClientMount are one user's.
    user: UserKey = mounts[0].get("userID") if mounts else None
    return user
