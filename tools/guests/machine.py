"""Guests: each runs one script, and is over within a time."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tools.guests.cache import Cache

SECONDS: Final = 420.0
"""How long a guest may take for all, on a machine that has other work, too."""

_MEMORY: Final = 768
"""MiB."""


class NoStatus(Exception):
    """A guest has ended, or was ended, before its script had a status. The words are its last."""


@dataclass(frozen=True)
class Network:
    """What guests of one test are on together, and nothing else is."""

    group: str
    """A multicast address with a port, on which the host's loopback carries their frames."""

    def device(self, number: int) -> list[str]:
        """Return QEMU's arguments for the guest of this number."""
        back = f"socket,id=net,mcast={self.group},localaddr=127.0.0.1"
        return [
            "-netdev",
            back,
            "-device",
            f"virtio-net-pci,netdev=net,mac=52:54:00:00:00:{number:02x}",
        ]


def network() -> Network:
    """Return a network of this process alone, as far as the id of a process says that."""
    process = os.getpid()
    return Network(f"230.9.{process >> 8 & 255}.{process & 255}:{20000 + process % 20000}")


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A file that guests have as a block device: /dev/vda the first of them."""

    file: Path
    shared: bool = False
    """Whether several guests have it at the same time."""

    def arguments(self, number: int) -> list[str]:
        """Return QEMU's arguments for the disk of this number."""
        shared = ",cache=none,file.locking=off" if self.shared else ""
        words = f"file={self.file},format=raw,if=none,discard=unmap,id=disk{number}{shared}"
        device = f"virtio-blk-pci,drive=disk{number}"
        return ["-drive", words, "-device", device + (",share-rw=on" if self.shared else "")]


@dataclass(kw_only=True)
class Guest:
    """A guest, which runs in a `with` block and is not there after it."""

    cache: Cache
    directory: Path
    """Of the guest's own. Guests have it, with all that is in it, as /run/share."""
    script: str
    """What it runs, with sh."""
    meeting: Path | None = None
    """A directory that guests have in common, as /run/meeting."""
    disks: Sequence[Disk] = ()
    network: Network | None = None
    number: int = 1
    """On the network."""
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    def __enter__(self) -> Self:
        self.directory.mkdir(exist_ok=True)
        (self.directory / "script").write_text(self.script)
        qemu = self.cache.qemu()
        assert qemu is not None
        libraries = self.cache.emulator / "usr/lib/x86_64-linux-gnu"
        with (self.directory / "complaints").open("wb") as complaints:
            self._process = subprocess.Popen(
                # A test that is killed leaves no guest behind.
                ["setpriv", "--pdeathsig", "KILL", *qemu, *self._arguments()],
                stdin=subprocess.DEVNULL, stdout=complaints, stderr=complaints,
                env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
            )  # fmt: skip
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the guest as a power cut does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def wait(self, seconds: float = SECONDS) -> int:
        """Return the exit status of the script. Raises DidNotBoot where there is none in time."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.end()
            raise NoStatus(f"no status within {seconds:g} s: {self.said()}") from None
        try:
            return int((self.directory / "status").read_text())
        except FileNotFoundError:
            raise NoStatus(self.said()) from None

    def runs(self) -> bool:
        """Return whether it has not come to its end."""
        return self._process is not None and self._process.poll() is None

    def said(self) -> str:
        """Return what the guest, and QEMU, have said."""
        files = (self.directory / each for each in ("complaints", "console", "output"))
        return "\n".join(each.read_text(errors="replace") for each in files if each.exists())

    def _arguments(self) -> list[str]:
        words = [
            # Where there is a /dev/kvm, it need not work: it is never taken.
            "-accel", "tcg,thread=multi", "-cpu", "max", "-M", "q35", "-m", str(_MEMORY),
            # A second CPU makes all of it three times as slow: emulated CPUs wait for each other.
            "-smp", "1", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", str(self.cache.kernel), "-initrd", str(self.cache.initramfs),
            # On a host under load the emulated timer may fail the kernel's test of it.
            # Mitigations are for processors that are not emulated, and cost most where they are.
            "-append", "console=ttyS0 quiet panic=-1 no_timer_check nowatchdog mitigations=off",
            "-serial", f"file:{self.directory}/console",
            "-device", "virtio-rng-pci",
        ]  # fmt: skip
        shown = {"host": Path("/"), "packages": self.cache.root, "share": self.directory}
        if self.meeting is not None:
            shown["meeting"] = self.meeting
        for tag, path in shown.items():
            access = "" if path in (self.directory, self.meeting) else ",readonly=on"
            words += [
                "-virtfs",
                f"local,path={path},mount_tag={tag},security_model=none,multidevs=remap{access}",
            ]
        for number, disk in enumerate(self.disks):
            words += disk.arguments(number)
        if self.network is not None:
            words += self.network.device(self.number)
        return words
