"""Volumes of rabbits on a compute node: NVMe over TCP, by the host side of the kernel."""

import asyncio
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from warren.dws.node import NodeTrouble
from warren.node import commands, filewriter
from warren.node.nvmenames import Target, host_id, host_nqn, key
from warren.node.tcpprobe import why_unanswered
from warren.node.threads import in_thread
from warren.node.usage import are_mounted_by_root

log = structlog.get_logger()

FABRICS: Final = Path("/dev/nvme-fabrics")
CONTROLLERS: Final = Path("/sys/class/nvme")
BLOCKS: Final = Path("/sys/class/block")
CONNECTIONS: Final = Path("/sys/devices/virtual/nvme-fabrics/ctl")
"""Where the kernel has each connection, with a file that has its key, which all may read."""

_PAUSE: Final = 0.2
"""Seconds between looks for what is about to come."""

_MODEL: Final = "Warren "
"""With it begin the model numbers of rabbits' subsystems."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How long a node waits for its rabbits, in seconds."""

    connect: float = 30.0
    """For a volume to be reached, before a mount of it fails, and is tried again."""
    answer: float = 5.0
    """For a rabbit to answer that is asked whether it is reached."""
    keep_alive: int = 5
    """After which a rabbit that says nothing is lost."""
    reconnect: int = 2
    """Between tries to reach a lost one again."""
    lost: int | None = 600
    """After which those that use a volume of a lost rabbit get errors: they wait until then, or
    for ever."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Where a rabbit's volumes are."""

    host: str
    """A name, or an IP address."""
    service: int = 4420


@dataclass(frozen=True, kw_only=True)
class Controller:
    """One connection to a subsystem."""

    name: str
    subsystem: str
    host: str
    state: str
    model: str = ""


def options(
    target: Target,
    node: str,
    address: str,
    service: int,
    policy: Policy,
    secret: bytes | None = None,
) -> str:
    """Return what the kernel is told, to connect a volume. Pure.

    With a `secret` the node proves who it is.
    """
    words = {
        "transport": "tcp",
        "traddr": address,
        "trsvcid": str(service),
        "nqn": target.nqn,
        "hostnqn": host_nqn(node),
        "hostid": host_id(node),
        "keep_alive_tmo": str(policy.keep_alive),
        "reconnect_delay": str(policy.reconnect),
        "ctrl_loss_tmo": "-1" if policy.lost is None else str(policy.lost),
    }
    if policy.lost is not None:
        # The other one is counted in whole tries to connect, of which one may take minutes.
        words["fast_io_fail_tmo"] = str(policy.lost)
    if secret is not None:
        words["dhchap_secret"] = key(secret, node)
    return ",".join(f"{key}={value}" for key, value in words.items())


def of_node(found: Iterable[Controller], node: str) -> list[Controller]:
    """Return the connections of a node to volumes of rabbits, and not what else is connected."""
    own = host_nqn(node)
    return [each for each in found if each.host == own and each.model.startswith(_MODEL)]


class Host:
    """A compute node's connections. Every action may be repeated.

    Everything raises NodeTrouble where it fails.
    """

    def __init__(
        self,
        node: str,
        reach: Mapping[str, Reach],
        policy: Policy | None = None,
        *,
        controllers: Path = CONTROLLERS,
        blocks: Path = BLOCKS,
        fabrics: Path = FABRICS,
        connections: Path = CONNECTIONS,
        secret: bytes | None = None,
    ) -> None:
        """`reach` says where rabbits are; those it does not name are found by their name.

        With a `secret` the node proves to them who it is.
        """
        self._node = node
        self._reach = reach
        self._policy = policy or Policy()
        self._controllers = controllers
        self._blocks = blocks
        self._fabrics = fabrics
        self._connections_at = connections
        self._secret = secret

    async def connect(self, rabbit: str, volume: str) -> str:
        """Return the device of a volume, connected and ready."""
        target = Target(rabbit, volume)
        end = time.monotonic() + self._policy.connect
        why = ""
        while True:
            found = self._connections(target)
            device = self._device(target)
            if device is not None and any(each.state == "live" for each in found):
                return device
            if not found:
                why = await self._try(target)
            elif not why:
                why = f"its connection is {found[0].state}"
            if time.monotonic() >= end:
                raise NodeTrouble(f"{rabbit}/{volume} cannot be reached: {why}")
            await asyncio.sleep(_PAUSE)

    async def why_unreached(self, rabbit: str) -> str | None:
        """Return why a mount could not reach a rabbit; None if it could.

        No volume is connected for that, and it fails by no error but the one that it returns.
        """
        reach = self._reach_of(rabbit)
        try:
            address = await _resolve(reach)
        except NodeTrouble as trouble:
            return f"{reach.host} {trouble}"
        why = await why_unanswered(address, reach.service, self._policy.answer)
        return None if why is None else f"{reach.host} port {reach.service}: {why}"

    async def disconnect(self, rabbit: str, volume: str) -> None:
        """Let go of a volume, unless it is mounted."""
        target = Target(rabbit, volume)
        device = self._device(target)
        if device is not None and await in_thread(are_mounted_by_root, [device]):
            return  # for another one: what mounts it last lets go of it
        await self._delete(self._connections(target))

    async def disconnect_unused(self) -> None:
        """Let go of all volumes of rabbits that are not mounted. Not while others connect."""
        for each in of_node(self._found(), self._node):
            devices = [f"/dev/{name}" for name in self._names(each.subsystem)]
            if not await in_thread(are_mounted_by_root, devices):
                log.warning("volume disconnected that nothing uses", subsystem=each.subsystem)
                await self._delete([each])

    async def _try(self, target: Target) -> str:
        """Ask the kernel to connect; return why it did not, or nothing."""
        reach = self._reach_of(target.rabbit)
        try:
            address = await _resolve(reach)
            if self._secret is not None:
                await in_thread(self._hide)
            text = options(target, self._node, address, reach.service, self._policy, self._secret)
            await self._write(self._fabrics, text)
        except NodeTrouble as trouble:
            return f"{reach.host} port {reach.service}: {trouble}"
        return ""

    def _reach_of(self, rabbit: str) -> Reach:
        return self._reach.get(rabbit, Reach(host=rabbit))

    def _hide(self) -> None:
        """Let only root look at connections, before there is one with a key. Raises NodeTrouble."""
        if self._fabrics.exists():  # or the module is missing, which is told
            try:
                self._connections_at.chmod(0o700)
            except OSError as error:
                why = f"{self._connections_at}: {error.strerror}: users could read the node's key"
                raise NodeTrouble(why) from error

    async def _delete(self, found: Iterable[Controller]) -> None:
        for each in found:
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
            words = str(trouble).removeprefix(f"{argv[0]}: ")
            raise NodeTrouble(words.replace(f"{argv[0]} did not end", "no answer")) from trouble

    def _connections(self, target: Target) -> list[Controller]:
        own = (target.nqn, host_nqn(self._node))
        return [each for each in self._found() if (each.subsystem, each.host) == own]

    def _found(self) -> list[Controller]:
        """Return all connections of the machine."""
        found = []
        for path in _entries(self._controllers):
            words = {
                name: _text(path / name) for name in ("subsysnqn", "hostnqn", "state", "model")
            }
            found.append(
                Controller(
                    name=path.name,
                    subsystem=words["subsysnqn"],
                    host=words["hostnqn"],
                    state=words["state"],
                    model=words["model"],
                )
            )
        return found

    def _device(self, target: Target) -> str | None:
        """Return the device that has a volume's UUID."""
        for path in _entries(self._blocks):
            # One path to a namespace has a device, too, but hidden.
            if _text(path / "uuid") == target.device and _text(path / "hidden") != "1":
                return f"/dev/{path.name}"
        return None

    def _names(self, nqn: str) -> list[str]:
        """Return the names of a subsystem's block devices."""
        return [
            path.name
            for path in _entries(self._blocks)
            if _text(path / "device" / "subsysnqn") == nqn and _text(path / "hidden") != "1"
        ]


async def _resolve(reach: Reach) -> str:
    """Return an IP address, which is all that the kernel takes."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(commands.SECONDS):
            found = await loop.getaddrinfo(reach.host, reach.service, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        raise NodeTrouble(f"has no address: {getattr(error, 'strerror', None) or error}") from error
    return str(found[0][4][0])


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
