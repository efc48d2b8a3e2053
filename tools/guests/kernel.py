"""What a guest boots: the kernel of a package, and an initramfs with the modules it starts with."""

import gzip
import lzma
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tools.guests.packages import Unavailable

MODULES: Final = ("virtio_pci", "virtio_blk", "virtio_net", "9p", "9pnet_virtio", "overlay")
"""What it takes to reach the root file system; guests load others when they need them."""

_XZ: Final = b"\xfd7zXZ\x00"
_ELF: Final = b"\x7fELF"

INIT: Final = """\
#!/bin/busybox sh
# Show the host's root directory below the packages for guests, and write to memory alone.
/bin/busybox mkdir -p /proc /sys /dev /host /packages /upper /root
/bin/busybox mount -t proc none /proc
while read -r module; do /bin/busybox insmod "/modules/$module"; done < /modules/order
for tag in host packages; do
    /bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose \\
        "$tag" "/$tag"
done
/bin/busybox mount -t tmpfs none /upper
/bin/busybox mkdir /upper/changed /upper/work
/bin/busybox mount -t overlay \\
    -o lowerdir=/packages:/host,upperdir=/upper/changed,workdir=/upper/work none /root
/bin/busybox umount /proc
# Not those of the host, which are in its root directory.
/bin/busybox mount -t proc proc /root/proc
/bin/busybox mount -t sysfs sysfs /root/sys
/bin/busybox mount -t devtmpfs devtmpfs /root/dev
exec /bin/busybox switch_root /root /bin/sh -c '
    export PATH=/usr/sbin:/usr/bin HOME=/tmp
    mkdir -p /dev/pts /dev/shm
    mount -t devpts devpts /dev/pts
    for place in /dev/shm /run; do mount -t tmpfs -o mode=1777 tmpfs "$place"; done
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    for tag in share meeting; do
        grep -q "^$tag$" /sys/bus/virtio/drivers/9pnet_virtio/virtio*/mount_tag || continue
        mkdir "/run/$tag"
        mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none "$tag" "/run/$tag"
    done
    sh /run/share/script >/run/share/output 2>&1
    echo $? >/run/share/status.new
    mv /run/share/status.new /run/share/status
    exec busybox poweroff -f'
"""
"""The first process of a guest. It runs the script of its share, and powers off."""


def version(root: Path) -> str:
    """Return the version of the kernel that was unpacked. Raises Unavailable."""
    found = sorted((root / "boot").glob("vmlinuz-*"))
    if not found:
        raise Unavailable(f"{root}/boot has no kernel")
    return found[-1].name.removeprefix("vmlinuz-")


def decompress(image: bytes) -> bytes:
    """Return the kernel that an image unpacks itself, which an emulator does many times faster.

    Raises Unavailable.
    """
    start = image.find(_XZ)
    while start >= 0:
        try:
            unpacked = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(image[start:])
        except lzma.LZMAError:
            unpacked = b""
        if unpacked.startswith(_ELF):
            return unpacked
        start = image.find(_XZ, start + 1)
    raise Unavailable("the kernel is not compressed as kernels of Debian 12 are")


def list_modules(root: Path, release: str) -> None:
    """Write down which modules there are, and what each needs. Raises Unavailable."""
    kmod = root / "usr/bin/kmod"  # does what it is called as
    libraries = {"LD_LIBRARY_PATH": str(root / "usr/lib/x86_64-linux-gnu")}
    done = subprocess.run(
        ["depmod", "-b", str(root), release], executable=kmod,
        capture_output=True, text=True, timeout=120, env=libraries,
    )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"depmod: {done.stderr.strip()}")


def with_dependencies(dependencies: Mapping[str, Iterable[str]], names: Iterable[str]) -> list[str]:
    """Return modules with all that they need, each after what it needs, as paths.

    `dependencies` has for the path of each module the paths of those that it needs. What is not
    there is built into the kernel.
    """
    by_name = {_name(path): path for path in dependencies}
    found: dict[str, None] = {}

    def add(path: str) -> None:
        if path not in found:
            for each in dependencies[path]:
                add(each)
            found[path] = None

    for name in names:
        if name in by_name:
            add(by_name[name])
    return list(found)


def _name(path: str) -> str:
    return Path(path).name.partition(".")[0].replace("-", "_")


def dependencies(text: str) -> dict[str, list[str]]:
    """Return what a modules.dep says."""
    split = (line.partition(":") for line in text.splitlines())
    return {path: rest.split() for path, _, rest in split}


def initramfs(root: Path, release: str) -> bytes:
    """Return the initramfs of a guest, compressed."""
    base = root / "usr/lib/modules" / release
    modules = with_dependencies(dependencies((base / "modules.dep").read_text()), MODULES)
    files = {
        "bin/busybox": (root / "bin/busybox").read_bytes(),
        "init": INIT.encode(),
        "modules/order": "".join(f"{_name(path)}.ko\n" for path in modules).encode(),
    }
    files |= {f"modules/{_name(path)}.ko": (base / path).read_bytes() for path in modules}
    return gzip.compress(archive(files), compresslevel=1, mtime=0)


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return files, all of them executable, with their directories as a cpio in format newc."""
    directories = {str(parent): None for path in files for parent in reversed(Path(path).parents)}
    del directories["."]
    entries = [(path, 0o040755, b"") for path in directories]
    entries += [(path, 0o100755, content) for path, content in files.items()]
    entries.append(("TRAILER!!!", 0, b""))
    return b"".join(
        _entry(number, path, mode, content)
        for number, (path, mode, content) in enumerate(entries, 1)
    )


def _entry(number: int, path: str, mode: int, content: bytes) -> bytes:
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name), 0)
    header = b"070701" + b"".join(b"%08x" % field for field in fields)
    return _padded(header + name) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
