"""Volumes over a network: what a site says of it, and what agents are made of there."""

import ipaddress
import os
import re
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from warren.base.errors import UserMistake
from warren.controllers import heartbeats
from warren.dws.rabbits import links
from warren.lifecycle import tables
from warren.lifecycle.tables import Duration, Table, check_durations
from warren.node.blocks import Disk
from warren.node.exportedflash import ExportedFlash
from warren.node.filesystems import DlmCluster
from warren.node.flash import Flash
from warren.node.nvmehost import NvmeHost, NvmeTimeouts, TransportAddress
from warren.node.nvmetarget import Exports
from warren.node.nvmetree import ListenAddress
from warren.node.remoteflash import RemoteFlash

PORT: Final = 4420
"""That of NVMe over TCP."""

_LONGEST_DURATION: Final = 2**31 - 1
"""Seconds: as many as the kernel counts."""

_MAX_PROBE_TIMEOUT: Final = 30
"""Seconds: a test ends before the reconcile that makes it is cut off."""

_DURATION_KEYS: Final = ("connect", "keep_alive", "reconnect", "lost", "probe", "probe_timeout")
_INFINITE_KEYS: Final = ("lost", "probe")

_SHORTEST_SECRET: Final = 32
"""Bytes of a secret."""

_CLUSTER_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")

_Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class Network(Table, frozen=True):
    """Table `network`: that compute nodes reach rabbits' volumes by NVMe over TCP, and how."""

    listen: str | None = None
    """The IP address at which a rabbit offers its volumes. Compute nodes need none."""
    port: _Port = PORT
    rabbits: Mapping[str, str] = {}
    """Where rabbits are that are not found by their names: `address`, or `address:port`."""
    connect: Duration = 30.0
    """FSD or seconds for a volume to be reached, before a mount fails and is tried again."""
    keep_alive: Duration = 5.0
    """FSD or seconds after which a rabbit that says nothing is lost."""
    reconnect: Duration = 2.0
    """FSD or seconds between tries to reach a lost one again."""
    lost: Duration = 600.0
    """FSD or seconds for which those wait that use a volume of a lost rabbit; then they get
    errors. Where it is `infinity`, they wait for ever."""

    probe: Duration = 30.0
    """FSD or seconds between a compute node's tests of its link to its rabbit; `infinity` tests
    none."""
    probe_timeout: Duration = 5.0
    """FSD or seconds within which the rabbit has to answer."""
    probe_failures: Annotated[int, msgspec.Meta(ge=1)] = 3
    """How many tests have to fail in a row before the link is lost."""

    secret: str | None = None
    """The file by which nodes prove to rabbits who they are: the same on all machines, and root's.
    Without it, any process that reaches a rabbit may say to be any node's."""

    cluster: str | None = None
    """The name that corosync knows the machines by that mount a gfs2; without it, none is made."""
    journals: Annotated[int, msgspec.Meta(ge=1, le=128)] = 18
    """How many of them mount the same one at most: the nodes of a chassis and its rabbit."""

    def __post_init__(self) -> None:
        check_durations(self, *_DURATION_KEYS)
        for key in _DURATION_KEYS:
            seconds = tables.seconds(getattr(self, key))
            if seconds < 1 or (seconds > _LONGEST_DURATION and key not in _INFINITE_KEYS):
                raise ValueError(
                    f"{key.replace('_', '-')}: is not from 1 s to {_LONGEST_DURATION} s"
                )
        if tables.seconds(self.probe_timeout) > _MAX_PROBE_TIMEOUT:
            raise ValueError(f"probe-timeout: is not from 1 s to {_MAX_PROBE_TIMEOUT} s")
        policy = self.link_policy()
        lease_seconds = heartbeats.DEFAULT_TIMING.lease_duration
        detection_seconds = policy.min_detection_seconds
        if detection_seconds <= lease_seconds:
            raise ValueError(
                f"probe: {self.probe_failures} tests may fail within {detection_seconds:g} s, and "
                f"it takes {lease_seconds} s to tell a rabbit without power from a lost link: set "
                "more, or a larger probe-failures"
            )
        if self.cluster is not None and not _CLUSTER_NAME_PATTERN.fullmatch(self.cluster):
            raise ValueError(f"cluster: {self.cluster!r} is no name of a cluster (mkfs.gfs2(8))")
        if self.listen is not None:
            _check_address("listen", self.listen)
        if self.secret is not None and not os.path.isabs(self.secret):
            raise ValueError(f"secret: {self.secret!r} is no absolute path")
        for rabbit, text in self.rabbits.items():
            try:
                self._parse_address(text)
            except ValueError as error:
                raise ValueError(f"rabbits.{rabbit}: {error}") from None

    def rabbit_addresses(self) -> dict[str, TransportAddress]:
        """Return where rabbits are that are not found by their names."""
        return {rabbit: self._parse_address(text) for rabbit, text in self.rabbits.items()}

    def nvme_timeouts(self) -> NvmeTimeouts:
        """Return how long compute nodes wait for rabbits."""
        controller_loss = tables.seconds(self.lost)
        return NvmeTimeouts(
            connect=tables.seconds(self.connect),
            answer=tables.seconds(self.probe_timeout),
            keep_alive=round(tables.seconds(self.keep_alive)),
            reconnect=round(tables.seconds(self.reconnect)),
            controller_loss=round(controller_loss)
            if controller_loss <= _LONGEST_DURATION
            else None,
        )

    def link_policy(self) -> links.LinkTestPolicy:
        """Return how a compute node tests its link."""
        return links.LinkTestPolicy(
            interval=tables.seconds(self.probe), failures=self.probe_failures
        )

    def read_secret(self) -> bytes | None:
        """Return what stands in the file, if there is one. Raises UserMistake."""
        if self.secret is None:
            return None
        try:
            with open(self.secret, "rb") as file:
                status = os.fstat(file.fileno())
                secret = file.read().strip()
        except OSError as error:
            raise UserMistake(f"network.secret: {self.secret}: {error.strerror}.") from error
        if status.st_mode & 0o077 or status.st_uid not in (0, os.geteuid()):
            raise UserMistake(
                f"network.secret: {self.secret} is not for its owner alone: chown it to root, and "
                "chmod it 600."
            )
        if len(secret) < _SHORTEST_SECRET:
            raise UserMistake(
                f"network.secret: {self.secret} has fewer than {_SHORTEST_SECRET} bytes: "
                "make another one, such as with `openssl rand -hex 32`."
            )
        return secret

    def dlm_cluster(self) -> DlmCluster | None:
        """Return the DLM cluster of the machines that mount a gfs2; None where none is named."""
        if self.cluster is None:
            return None
        return DlmCluster(name=self.cluster, journals=self.journals)

    def _parse_address(self, text: str) -> TransportAddress:
        if not text.strip("[]"):
            raise ValueError(f"{text!r} is no address")
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]") or (text.count(":") > 1 and not host.endswith("]")):
            return TransportAddress(host=text.strip("[]"), port=self.port)
        if not host or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise ValueError(f"{text!r} is no address with a port")
        return TransportAddress(host=host.strip("[]"), port=int(port))


def refusal(network: Network, *, is_rabbit: bool) -> str | None:
    """Return why an agent cannot be what a table says; None if it can. Pure."""
    if is_rabbit and network.listen is None:
        return "network.listen: a rabbit needs the IP address at which it offers its volumes"
    return None


UNSUPPORTED_TYPES: Final[Mapping[str, str]] = {
    "raw": "nodes have file systems attached, and no bare devices"
}
"""The types of volumes that nodes cannot have attached, each with the reason."""


def rabbit_flash(network: Network, rabbit: str, flash: Flash, disk: Disk) -> tuple[Flash, Exports]:
    """Return the flash of a rabbit, whose volumes are on `disk`, and what it offers of that.

    Raises UserMistake where the file of the secret cannot be used.
    """
    assert network.listen is not None
    listen_address = ListenAddress(address=network.listen, port=network.port)
    exports = Exports(rabbit, disk.attach, listen_address, secret=network.read_secret())
    return ExportedFlash(flash, exports.withdraw), exports


def compute_flash(network: Network, node: str) -> tuple[Flash, NvmeHost]:
    """Return what a compute node has of rabbits' flash, and its connections to them.

    Raises UserMistake where the file of the secret cannot be used.
    """
    nvme_host = NvmeHost(
        node, network.rabbit_addresses(), network.nvme_timeouts(), secret=network.read_secret()
    )
    return RemoteFlash(nvme_host, network.dlm_cluster()), nvme_host


def _check_address(key: str, text: str) -> None:
    try:
        ipaddress.ip_address(text)
    except ValueError as error:
        raise ValueError(
            f"{key}: {text!r} is no IP address, which is what is listened at"
        ) from error
