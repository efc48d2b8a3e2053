"""A rabbit's volumes on the network: NVMe over TCP, by the target of the kernel (nvmet)."""

import asyncio
import errno
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from warren.base import log
from warren.dws.node import NodeTrouble
from warren.node import nvmetree
from warren.node.nvmenames import NvmeVolume
from warren.node.nvmetree import (
    Link,
    ListenAddress,
    Make,
    Port,
    Remove,
    Step,
    Subsystem,
    TargetTree,
    Unlink,
)
from warren.node.threads import in_thread

CONFIGFS: Final = Path("/sys/kernel/config/nvmet")

_SUBSYSTEM_ATTRIBUTES: Final = ("attr_allow_any_host", "attr_model", "attr_serial")
_NAMESPACE_ATTRIBUTES: Final = ("device_path", "device_uuid", "device_nguid", "enable")
_PORT_ATTRIBUTES: Final = ("addr_trtype", "addr_adrfam", "addr_traddr", "addr_trsvcid")


class Targets(Protocol):
    """The targets of a machine. Both raise OSError."""

    def read(self) -> TargetTree:
        """Return what there is."""
        ...

    def apply(self, step: Step) -> None:
        """Do one thing, which may be done already."""
        ...


class Configfs:
    """`Targets` as the kernel shows them."""

    def __init__(self, root: Path = CONFIGFS) -> None:
        self._root = root

    def read(self) -> TargetTree:
        subsystems = {
            path.name: Subsystem(
                attributes=_attributes(path, _SUBSYSTEM_ATTRIBUTES),
                namespaces={
                    each.name: _attributes(each, _NAMESPACE_ATTRIBUTES)
                    for each in _entries(path / "namespaces")
                },
                hosts=frozenset(each.name for each in _entries(path / "allowed_hosts")),
            )
            for path in _entries(self._root / "subsystems")
        }
        ports = {
            path.name: Port(
                attributes=_attributes(path, _PORT_ATTRIBUTES),
                subsystems=frozenset(each.name for each in _entries(path / "subsystems")),
            )
            for path in _entries(self._root / "ports")
        }
        keys = {
            path.name: _text(path / nvmetree.KEY_ATTRIBUTE)
            for path in _entries(self._root / "hosts")
        }
        return TargetTree(subsystems=subsystems, ports=ports, keys=keys)

    def apply(self, step: Step) -> None:
        path = self._root / step.path
        match step:
            case Make():
                path.mkdir(exist_ok=True)
            case Link():
                with suppress(FileExistsError):
                    path.symlink_to(self._root / step.to)
            case Unlink():
                path.unlink(missing_ok=True)
            case Remove():
                try:
                    path.rmdir()
                except FileNotFoundError:
                    pass
                except OSError as error:
                    if not (step.unless_used and error.errno in (errno.EBUSY, errno.ENOTEMPTY)):
                        raise
            case nvmetree.Write():
                if step.root_only:
                    path.chmod(0o600)
                # Not made where it is missing: another kernel may lack an attribute.
                with path.open("r+") as file:
                    file.write(step.text)


def _entries(path: Path) -> list[Path]:
    return sorted(path.iterdir(), key=lambda entry: entry.name)


def _text(path: Path) -> str:
    """Return what an attribute says; nothing where the kernel has no such attribute."""
    with suppress(FileNotFoundError):
        return path.read_text().strip("\n")
    return ""


def _attributes(path: Path, names: Collection[str]) -> dict[str, str]:
    return {name: (path / name).read_text().strip("\n") for name in names}


class Exports:
    """What a rabbit offers on the network. Every action may be repeated.

    Everything raises NodeTrouble where it fails.
    """

    def __init__(
        self,
        rabbit: str,
        attach: Callable[[str], Coroutine[Any, Any, str]],
        listen_address: ListenAddress,
        targets: Targets | None = None,
        secret: bytes | None = None,
    ) -> None:
        """`attach` attaches a volume, and returns its device, ready for use.

        With a `secret`, nodes are asked to prove who they are.
        """
        self._rabbit = rabbit
        self._attach = attach
        self._listen_address = listen_address
        self._targets = targets or Configfs()
        self._secret = secret
        self._change_lock = asyncio.Lock()
        """Held from looking to the end of what was decided on that."""

    async def export(self, volume: str, nodes: Collection[str]) -> None:
        """Have some nodes reach a volume, and no other node."""
        if not nodes:
            await self.withdraw(volume)
            return
        target = NvmeVolume(self._rabbit, volume)
        device = await self._attach(volume)
        await self._change(
            lambda tree: nvmetree.export_steps(
                tree, target, device, nodes, self._listen_address, self._secret
            )
        )

    async def withdraw(self, volume: str) -> None:
        """Have no node reach a volume; those that still use it get errors."""
        target = NvmeVolume(self._rabbit, volume)
        await self._change(lambda tree: nvmetree.withdraw_steps(tree, target.nqn))

    async def withdraw_others(self, volumes: Collection[str]) -> None:
        """Withdraw all of the rabbit's volumes but these."""
        kept_nqns = {NvmeVolume(self._rabbit, volume).nqn for volume in volumes}
        tree = await self._read()
        for nqn in nvmetree.subsystems_of_rabbit(tree, self._rabbit):
            if nqn not in kept_nqns:
                log.warning("target of no volume withdrawn", subsystem=nqn)
                await self._change(partial(nvmetree.withdraw_steps, nqn=nqn))

    async def _read(self) -> TargetTree:
        try:
            return await in_thread(self._targets.read)
        except OSError as error:
            raise NodeTrouble(
                f"{error.filename or CONFIGFS}: {error.strerror}: volumes are offered on the "
                "network by the kernel modules nvmet and nvmet-tcp, and configfs"
            ) from error

    async def _change(self, decide: Callable[[TargetTree], Collection[Step]]) -> None:
        async with self._change_lock:
            for step in decide(await self._read()):
                try:
                    await in_thread(self._targets.apply, step)
                except OSError as error:
                    why = f"{CONFIGFS}/{step.path}: {error.strerror}"
                    if isinstance(step, nvmetree.Write) and step.root_only:
                        why += ": the kernel lets nodes prove who they are from Linux 6.0 on"
                    raise NodeTrouble(why) from error
