"""The directory that has all that guests are made of. It is made once, and whole or not at all."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools.guests import kernel, packages

_FORMAT = "1"
"""Another one makes the cache anew: it grows where what is in it changes."""


@dataclass(frozen=True)
class Cache:
    """Where what is unpacked lies."""

    path: Path

    @property
    def emulator(self) -> Path:
        """QEMU and its libraries."""
        return self.path / "emulator"

    @property
    def root(self) -> Path:
        """What guests have besides what the host has."""
        return self.path / "root"

    @property
    def kernel(self) -> Path:
        return self.path / "vmlinux"

    @property
    def initramfs(self) -> Path:
        return self.path / "initramfs"

    def why_unavailable(self) -> str | None:
        """Return why no guest can be started; None if that is possible."""
        for path in (self.kernel, self.initramfs):
            if not path.exists():
                return f"{path} is not there: make test-vm makes it"
        if self.qemu() is None:
            return "qemu-system-x86_64 is not there"
        return None

    def qemu(self) -> list[str] | None:
        """Return how QEMU is started: the one that was unpacked, or else the machine's own."""
        own = self.emulator / "usr/bin/qemu-system-x86_64"
        if own.exists():
            data = [f"{self.emulator}/usr/share/{each}" for each in ("qemu", "seabios")]
            return [str(own), *(word for each in data for word in ("-L", each))]
        installed = shutil.which("qemu-system-x86_64")
        return [installed] if installed else None


def default() -> Cache:
    """Return the cache of this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Cache(Path(base) / "warren" / f"guests-{_FORMAT}")


def prepare(cache: Cache) -> None:
    """Make the cache if it is not there. Raises Unavailable."""
    if cache.path.exists():
        return
    cache.path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache.path.parent) as directory:
        new = Cache(Path(directory) / "new")
        for each in (new.emulator, new.root):
            each.mkdir(parents=True)
        if shutil.which("qemu-system-x86_64") is None:
            packages.unpack(packages.missing(packages.EMULATOR), new.emulator)
        newest = packages.kernel()
        needed = [*packages.missing(packages.GUEST), *packages.GUEST, newest]
        packages.unpack(list(dict.fromkeys(needed)), new.root)
        release = kernel.version(new.root)
        image = (new.root / f"boot/vmlinuz-{release}").read_bytes()
        new.kernel.write_bytes(kernel.decompress(image))
        kernel.list_modules(new.root, release)
        new.initramfs.write_bytes(kernel.initramfs(new.root, release))
        new.path.rename(cache.path)
