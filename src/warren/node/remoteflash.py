"""Flash that is reached over a network: what a compute node has of rabbits' volumes."""

from collections.abc import Mapping
from typing import NoReturn

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import NodeTrouble, RawVolumeAccess, Volume
from warren.node import filesystems
from warren.node.filesystems import NO_DLM_CLUSTER, DlmCluster
from warren.node.flash import MountSource
from warren.node.nvmehost import NvmeHost


class RemoteFlash:
    """`Flash` of a node that has none: it mounts what rabbits offer it, and makes nothing."""

    def __init__(self, host: NvmeHost, cluster: DlmCluster | None = None) -> None:
        """Without a `cluster`, there is no file system that several nodes may mount."""
        self._host = host
        self._cluster = cluster

    async def capacity(self, rabbit: str) -> int:
        return 0

    async def raw_volume_access(self, rabbit: str) -> RawVolumeAccess:
        return RawVolumeAccess.NONE

    async def unsupported_types(self, rabbit: str) -> Mapping[str, str]:
        return {}

    async def lnet_nid(self) -> str:
        return ""

    async def make(self, volume: Volume) -> None:
        self._refuse(volume.rabbit, volume.name)

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        self._refuse(rabbit, name)

    async def source(self, rabbit: str, name: str, file_system: str) -> MountSource:
        if file_system == "raw":
            raise NodeTrouble(
                f"{rabbit}/{name} is a raw volume, which is not attached over the network: use a "
                "file system",
                fatal=True,
            )
        if file_system == "gfs2" and self._cluster is None:
            raise NodeTrouble(NO_DLM_CLUSTER, fatal=True)
        device = await self._host.connect(rabbit, name)
        return filesystems.source(file_system, device, self._cluster)

    def volumes(self, rabbit: str) -> Mapping[str, int]:
        return {}

    def _refuse(self, rabbit: str, name: str) -> NoReturn:
        raise NodeTrouble(f"{rabbit}/{name}: compute nodes have no flash", fatal=True)
