"""Volumes of rabbits on a compute node: NVMe over TCP, by the host side of the kernel."""

import asyncio
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from warren.base import log
from warren.dws.node import TIMED_OUT, NodeTrouble
from warren.node import commands, filewriter
from warren.node.nvmenames import NvmeVolume, dhchap_key, host_id, host_nqn
from warren.node.tcpprobe import why_unanswered
from warren.node.threads import in_thread
from warren.node.usage import are_mounted_by_root

FABRICS: Final = Path("/dev/nvme-fabrics")
CONTROLLERS: Final = Path("/sys/class/nvme")
BLOCKS: Final = Path("/sys/class/block")
CONNECTIONS: Final = Path("/sys/devices/virtual/nvme-fabrics/ctl")
"""Where the kernel has each connection, with a file that has its key, which all may read."""

_POLL_INTERVAL: Final = 0.2
"""Seconds between looks for what is about to come."""

_MODEL_PREFIX: Final = "Warren "
"""With it begin the model numbers of rabbits' subsystems."""


class NvmeTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a node waits for its rabbits, in seconds."""

    connect: float = 30.0
    """For a volume to be reached, before a mount of it fails, and is tried again."""
    answer: float = 5.0
    """For a rabbit to answer that is asked whether it is reached."""
    keep_alive: int = 5
    """After which a rabbit that says nothing is lost."""
    reconnect: int = 2
    """Between tries to reach a lost one again."""
    controller_loss: int | None = 600
    """After which those that use a volume of a lost rabbit get errors: they wait until then, or
    for ever."""


class TransportAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rabbit's volumes are."""

    host: str
    """A name, or an IP address."""
    port: int = 4420
    """The TCP port: the transport service id of NVMe, `trsvcid`."""


class NvmeController(msgspec.Struct, frozen=True, kw_only=True):
    """One connection to a subsystem."""

    name: str
    subsystem_nqn: str
    host_nqn: str
    state: str
    model: str = ""


def connect_options(
    target: NvmeVolume,
    node: str,
    address: str,
    port: int,
    timeouts: NvmeTimeouts,
    secret: bytes | None = None,
) -> str:
    """Return what the kernel is told, to connect a volume. Pure.

    With a `secret` the node proves who it is.
    """
    options = {
        "transport": "tcp",
        "traddr": address,
        "trsvcid": str(port),
        "nqn": target.nqn,
        "hostnqn": host_nqn(node),
        "hostid": host_id(node),
        "keep_alive_tmo": str(timeouts.keep_alive),
        "reconnect_delay": str(timeouts.reconnect),
        "ctrl_loss_tmo": "-1"
        if timeouts.controller_loss is None
        else str(timeouts.controller_loss),
    }
    if timeouts.controller_loss is not None:
        # The other one is counted in whole tries to connect, of which one may take minutes.
        options["fast_io_fail_tmo"] = str(timeouts.controller_loss)
    if secret is not None:
        options["dhchap_secret"] = dhchap_key(secret, node)
    return ",".join(f"{name}={value}" for name, value in options.items())


def connections_of_node(controllers: Iterable[NvmeController], node: str) -> list[NvmeController]:
    """Return the connections of a node to volumes of rabbits, and not what else is connected."""
    own_nqn = host_nqn(node)
    return [
        each
        for each in controllers
        if each.host_nqn == own_nqn and each.model.startswith(_MODEL_PREFIX)
    ]


class NvmeHost:
    """A compute node's connections. Every action may be repeated.

    Everything raises NodeTrouble where it fails.
    """

    def __init__(
        self,
        node: str,
        addresses: Mapping[str, TransportAddress],
        timeouts: NvmeTimeouts | None = None,
        *,
        controllers: Path = CONTROLLERS,
        blocks: Path = BLOCKS,
        fabrics: Path = FABRICS,
        connections: Path = CONNECTIONS,
        secret: bytes | None = None,
    ) -> None:
        """`addresses` says where rabbits are; those it does not name are found by their name.

        With a `secret` the node proves to them who it is.
        """
        self._node = node
        self._addresses = addresses
        self._timeouts = timeouts or NvmeTimeouts()
        self._controllers = controllers
        self._blocks = blocks
        self._fabrics = fabrics
        self._connections_directory = connections
        self._secret = secret

    async def connect(self, rabbit: str, volume: str) -> str:
        """Return the device of a volume, connected and ready."""
        target = NvmeVolume(rabbit, volume)
        deadline = time.monotonic() + self._timeouts.connect
        while True:
            connections = self._connections(target)
            device = self._device(target)
            if device is not None and any(each.state == "live" for each in connections):
                return device
            if not connections:
                why = await self._connect(target)
            else:
                # It is under way, and that is only slow, whatever was refused before (ADR 111).
                wait = f"the wait for its device {TIMED_OUT} {self._timeouts.connect:g} s"
                why = f"{wait}: its connection is {connections[0].state}"
            if time.monotonic() >= deadline:
                raise NodeTrouble(f"{rabbit}/{volume} cannot be reached: {why}")
            await asyncio.sleep(_POLL_INTERVAL)

    async def why_unreached(self, rabbit: str) -> str | None:
        """Return why a mount could not reach a rabbit; None if it could.

        No volume is connected for that, and it fails by no error but the one that it returns.
        """
        rabbit_address = self._address_of(rabbit)
        try:
            address = await _resolve(rabbit_address)
        except NodeTrouble as trouble:
            return f"{rabbit_address.host} {trouble}"
        why = await why_unanswered(address, rabbit_address.port, self._timeouts.answer)
        return None if why is None else f"{rabbit_address.host} port {rabbit_address.port}: {why}"

    async def disconnect(self, rabbit: str, volume: str) -> None:
        """Let go of a volume, unless it is mounted."""
        target = NvmeVolume(rabbit, volume)
        device = self._device(target)
        if device is not None and await in_thread(are_mounted_by_root, [device]):
            return  # for another one: what mounts it last lets go of it
        await self._delete(self._connections(target))

    async def disconnect_unused(self) -> None:
        """Let go of all volumes of rabbits that are not mounted. Not while others connect."""
        for each in connections_of_node(self._all_connections(), self._node):
            devices = [f"/dev/{name}" for name in self._block_devices(each.subsystem_nqn)]
            if not await in_thread(are_mounted_by_root, devices):
                log.warning("volume disconnected that nothing uses", subsystem=each.subsystem_nqn)
                await self._delete([each])

    async def _connect(self, target: NvmeVolume) -> str:
        """Ask the kernel to connect; return why it did not, or nothing."""
        rabbit_address = self._address_of(target.rabbit)
        try:
            address = await _resolve(rabbit_address)
            if self._secret is not None:
                await in_thread(self._hide_keys)
            text = connect_options(
                target, self._node, address, rabbit_address.port, self._timeouts, self._secret
            )
            await self._write(self._fabrics, text)
        except NodeTrouble as trouble:
            return f"{rabbit_address.host} port {rabbit_address.port}: {trouble}"
        return ""

    def _address_of(self, rabbit: str) -> TransportAddress:
        return self._addresses.get(rabbit, TransportAddress(host=rabbit))

    def _hide_keys(self) -> None:
        """Let only root look at connections, before there is one with a key. Raises NodeTrouble."""
        if self._fabrics.exists():  # or the module is missing, which is told
            try:
                self._connections_directory.chmod(0o700)
            except OSError as error:
                why = f"{error.strerror}: users could read the node's key"
                raise NodeTrouble(f"{self._connections_directory}: {why}") from error

    async def _delete(self, controllers: Iterable[NvmeController]) -> None:
        for each in controllers:
            file = self._controllers / each.name / "delete_controller"
            try:
                await self._write(file, "1")
            except NodeTrouble as trouble:
                if await in_thread(file.exists):
                    raise NodeTrouble(f"{each.name} is not disconnected: {trouble}") from trouble

    async def _write(self, file: Path, text: str) -> None:
        if not await in_thread(file.exists):
            raise NodeTrouble(f"{file} is not there: load the kernel module nvme-tcp")
        argv = [sys.executable, "-I", "-S", filewriter.__file__, str(file)]
        try:
            await commands.run(argv, text=text)
        except NodeTrouble as trouble:
            # The kernel's words, and not by whom they were read.
            message = str(trouble).removeprefix(f"{argv[0]}: ")
            slow, slow_here = f"{argv[0]} {TIMED_OUT}", f"no answer: the request {TIMED_OUT}"
            raise NodeTrouble(message.replace(slow, slow_here)) from trouble

    def _connections(self, target: NvmeVolume) -> list[NvmeController]:
        own_pair = (target.nqn, host_nqn(self._node))
        return [
            each
            for each in self._all_connections()
            if (each.subsystem_nqn, each.host_nqn) == own_pair
        ]

    def _all_connections(self) -> list[NvmeController]:
        """Return all connections of the machine."""
        controllers = []
        for path in _entries(self._controllers):
            attributes = {
                name: _text(path / name) for name in ("subsysnqn", "hostnqn", "state", "model")
            }
            controllers.append(
                NvmeController(
                    name=path.name,
                    subsystem_nqn=attributes["subsysnqn"],
                    host_nqn=attributes["hostnqn"],
                    state=attributes["state"],
                    model=attributes["model"],
                )
            )
        return controllers

    def _device(self, target: NvmeVolume) -> str | None:
        """Return the device that has a volume's UUID."""
        for path in _entries(self._blocks):
            # One path to a namespace has a device, too, but hidden.
            if _text(path / "uuid") == target.namespace_uuid and _text(path / "hidden") != "1":
                return f"/dev/{path.name}"
        return None

    def _block_devices(self, nqn: str) -> list[str]:
        """Return the names of a subsystem's block devices."""
        return [
            path.name
            for path in _entries(self._blocks)
            if _text(path / "device" / "subsysnqn") == nqn and _text(path / "hidden") != "1"
        ]


async def _resolve(rabbit_address: TransportAddress) -> str:
    """Return an IP address, which is all that the kernel takes."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(commands.COMMAND_TIMEOUT):
            addresses = await loop.getaddrinfo(
                rabbit_address.host, rabbit_address.port, type=socket.SOCK_STREAM
            )
    except OSError as error:
        # The time limit has no words of its own.
        slow = f"the look-up {TIMED_OUT} {commands.COMMAND_TIMEOUT:g} s"
        raise NodeTrouble(f"has no address: {error.strerror or slow}") from error
    return str(addresses[0][4][0])


def _entries(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir(), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []


def _text(path: Path) -> str:
    """Return what a file says; nothing where it has gone."""
    with suppress(OSError):
        return path.read_text().strip()
    return ""
