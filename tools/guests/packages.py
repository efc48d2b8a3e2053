"""Packages of the distribution, downloaded and unpacked beside the system, not installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SECONDS: Final = 600.0
"""How long a command may take; downloads are about 100 MB."""

EMULATOR: Final = ("qemu-system-x86",)

GUEST: Final = (
    "busybox-static",
    "corosync",
    "dlm-controld",
    "dmsetup",
    "gfs2-utils",
    "kmod",
    "lvm2",
    "nvme-cli",
    "quota",
    "thin-provisioning-tools",
    "xfsprogs",
)
"""What guests have besides what this machine has, whose root directory they see."""

_KERNEL: Final = "linux-image-amd64"
"""Stands for the newest kernel. Those for clouds lack 9p, gfs2 and dlm."""

_MERGED: Final = ("bin", "lib", "lib64", "sbin")
"""Directories that are links to those in /usr on this machine, and in packages may be none."""


class Unavailable(Exception):
    """Guests cannot be prepared on this machine. The words say why."""


def kernel() -> str:
    """Return the name of the package that has the newest kernel. Raises Unavailable."""
    lines = _run(["apt-cache", "depends", _KERNEL]).splitlines()
    for line in lines:
        word, _, name = line.strip().partition(": ")
        if word == "Depends" and name.startswith("linux-image-"):
            return name
    raise Unavailable(f"{_KERNEL} names no kernel: run apt-get update")


def missing(names: Sequence[str]) -> list[str]:
    """Return the packages that installing some would install here. Raises Unavailable."""
    simulated = _run(["apt-get", "-s", "install", "--no-install-recommends", *names])
    words = [line.split() for line in simulated.splitlines()]
    return [line[1] for line in words if line and line[0] == "Inst"]


def unpack(names: Sequence[str], directory: Path) -> None:
    """Download packages, and unpack them into a directory. Raises Unavailable."""
    for name in _MERGED:
        (directory / "usr" / name).mkdir(parents=True, exist_ok=True)
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"usr/{name}")
    with tempfile.TemporaryDirectory(dir=directory.parent) as downloads:
        # apt has what it downloads checked, and needs neither root nor its lock for this.
        os.chmod(downloads, 0o755)
        _run(["apt-get", "-q", "download", *names], cwd=downloads)
        for package in sorted(Path(downloads).glob("*.deb")):
            _unpack(package, directory)


def _unpack(package: Path, directory: Path) -> None:
    tar = ["tar", "-x", "--keep-directory-symlink", "--no-same-owner", "-C", str(directory)]
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE
    ) as reading:
        unpacked = subprocess.run(
            tar, stdin=reading.stdout, stderr=subprocess.PIPE, text=True, timeout=SECONDS
        )
    if reading.returncode or unpacked.returncode:
        raise Unavailable(f"{package.name} cannot be unpacked: {unpacked.stderr.strip()}")


def _run(argv: Sequence[str], cwd: str | None = None) -> str:
    if shutil.which(argv[0]) is None:
        raise Unavailable(f"{argv[0]} is not there: guests are made of packages of Debian")
    done = subprocess.run(
        argv,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise Unavailable(f"{' '.join(argv[:2])}: {said}")
    return done.stdout
