"""The file systems of a pod: its volumes, and the roots of its containers."""

import base64
import os
import stat
from contextlib import suppress
from typing import Any

from warren.node.podprocess.kernel import (
    MS_NODEV,
    MS_NOSUID,
    MS_RDONLY,
    PodTrouble,
    attach_mount,
    clone_mount,
    mount,
)

TOP = "/mnt"
"""Where the pod has its file systems: a directory that every machine has, and users may pass."""

HOSTS = f"{TOP}/etc/hosts"
"""What containers have as /etc/hosts."""

_TMPFS_BYTES = 128 * 2**20
"""Bytes of memory that what containers write into their images, and into emptyDirs, may take."""

_BYTES_PER_INODE = 2048
"""Bytes of a file system in memory for each file that it may have."""


def mount_volumes(plan: dict[str, Any], mount_fds: list[int]) -> None:
    """Make the pod's file systems below `TOP`: its volumes, `hosts`, and room for its roots."""
    _mount_tmpfs(TOP, _TMPFS_BYTES, "711")
    os.mkdir(f"{TOP}/volumes", 0o711)
    remaining_fds = iter(mount_fds)
    for name, volume in plan["volumes"].items():
        target = f"{TOP}/volumes/{name}"
        if "path" in volume:
            mount_fd = next(remaining_fds)
            if stat.S_ISDIR(os.fstat(mount_fd).st_mode):
                os.mkdir(target)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
            attach_mount(mount_fd, target)
        elif "files" in volume:
            os.mkdir(target, 0o755)
            for file, text in volume["files"].items():
                os.makedirs(os.path.dirname(f"{target}/{file}"), exist_ok=True)
                _write(f"{target}/{file}", base64.b64decode(text))
        else:
            os.mkdir(target)
            if volume["size"] is not None:
                _mount_tmpfs(target, volume["size"])
            os.chmod(target, 0o777)
    os.mkdir(f"{TOP}/shm")
    _mount_tmpfs(f"{TOP}/shm", _TMPFS_BYTES)
    # Apart from what containers may fill: the names of the hosts have to be told when it is full.
    os.mkdir(os.path.dirname(HOSTS))
    mount("none", os.path.dirname(HOSTS), "tmpfs", MS_NODEV | MS_NOSUID, "size=16m,mode=755")
    _write(HOSTS, plan["hosts"].encode())
    # Libraries of MPI look there for the interfaces of the pod's network. A kernel may refuse.
    with suppress(PodTrouble):
        os.mkdir(f"{TOP}/sys")
        mount("none", f"{TOP}/sys", "sysfs", MS_NODEV | MS_NOSUID | MS_RDONLY)


def _mount_tmpfs(target: str, size: int, mode: str = "1777") -> None:
    """Mount a tmpfs, with a limit of files, too: each takes 1 KiB of the kernel's memory."""
    bounds = f"size={size},nr_inodes={max(1024, size // _BYTES_PER_INODE)},mode={mode}"
    mount("none", target, "tmpfs", MS_NODEV | MS_NOSUID, bounds)


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
    try:
        os.write(descriptor, data)
        os.fchmod(descriptor, 0o644)
    finally:
        os.close(descriptor)


def mount_source(
    container_number: int, mount_index: int, mount: dict[str, Any], volumes: dict[str, Any]
) -> str:
    """Return the path of what a container mounts of a volume.

    A subPath is followed through no link, and made where it is not there.
    """
    if mount["volume"] not in volumes:
        raise PodTrouble(f"there is no volume {mount['volume']}")
    volume_path = f"{TOP}/volumes/{mount['volume']}"
    if not mount["below"]:
        return volume_path
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(volume_path, flags)
    for part in filter(None, mount["below"].split("/")):
        try:
            inner_fd = os.open(part, flags, dir_fd=descriptor)
        except FileNotFoundError:
            os.mkdir(part, 0o777, dir_fd=descriptor)
            inner_fd = os.open(part, flags, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner_fd
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            raise PodTrouble(f"{mount['below']} of the volume {mount['volume']} passes a link")
    mount_fd = clone_mount("", descriptor)
    is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
    os.close(descriptor)
    target = f"{TOP}/part-{container_number}-{mount_index}"
    if is_directory:
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o600))
    attach_mount(mount_fd, target)
    return target


def mount_root(
    container_number: int, container_plan: dict[str, Any], mount_points: dict[str, bool]
) -> str:
    """Make the root of a container, with places to mount at, and return its path.

    `mount_points` says of each path whether a directory is mounted there, or a file.
    """
    directory = f"{TOP}/{container_number}"
    for part in ("", "/upper", "/work", "/root"):
        os.mkdir(f"{directory}{part}", 0o755)
    layers = (
        f"lowerdir={container_plan['root']},upperdir={directory}/upper,workdir={directory}/work"
    )
    if any(character in container_plan["root"] for character in ",:\\"):
        raise PodTrouble(f"the path of the image {container_plan['root']} cannot be mounted")
    mount("overlay", f"{directory}/root", "overlay", MS_NODEV | MS_NOSUID, layers)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # Links of the image lead where they lead in the container.
            os.chroot(f"{directory}/root")
            os.chdir("/")
            os.umask(0o022)
            for path, is_directory in mount_points.items():
                os.makedirs(path if is_directory else os.path.dirname(path), exist_ok=True)
                if not is_directory and not os.path.exists(path):
                    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(child, 0)[1]:
        raise PodTrouble(f"container {container_plan['name']}: places to mount at cannot be made")
    return f"{directory}/root"
