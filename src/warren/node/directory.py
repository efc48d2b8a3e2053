"""Plain directories as flash: no loop devices, no mkfs, real accounting, real mounts.

A volume is a directory with its owner and a record of its size. It comes into
being by one rename, and goes by one rename, so that whatever dies in the middle
leaves either a whole volume or rubbish that nobody counts.
"""

import asyncio
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec

from warren.dws.node import Copy, NodeTrouble, Progress, Volume
from warren.node import commands, copying
from warren.node.namespaces import Namespace


class Directories:
    """The volumes of the rabbits of one machine, under `root`, a directory for each rabbit."""

    def __init__(self, root: Path, capacity: int) -> None:
        """`capacity` is in bytes, of each rabbit."""
        self._root = root
        self._lock = threading.Lock()
        """Held while room is looked for and taken: each deed has a thread of its own."""
        self.capacity = capacity

    def place(self, group: str, name: str) -> Path:
        """Give where a volume's files are."""
        return self._root / group / name / "files"

    def volumes(self, group: str) -> dict[str, int]:
        """Give the volumes of a rabbit and their sizes in bytes."""
        found = {}
        with suppress(FileNotFoundError):
            for entry in (self._root / group).iterdir():
                if not entry.name.startswith("."):
                    record = json.loads((entry / "volume.json").read_text())
                    found[entry.name] = record["size"]
        return found

    def make(self, volume: Volume) -> None:
        """Reserve space and make the directory. Raises NodeTrouble if there is no room."""
        with self._lock:
            self._make(volume)

    def _make(self, volume: Volume) -> None:
        final = self._root / volume.group / volume.name
        if final.exists():
            return
        used = sum(self.volumes(volume.group).values())
        if used + volume.size > self.capacity:
            raise NodeTrouble(
                f"{volume.group} has {self.capacity - used} bytes of flash left, "
                f"and {volume.size} are asked for",
                fatal=True,
            )
        unfinished = self._root / volume.group / f".new-{volume.name}"
        _remove(unfinished)
        files = unfinished / "files"
        files.mkdir(parents=True, mode=0o755)
        files.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(files, volume.userid, volume.groupid)
        record = {"size": volume.size, "fileSystem": volume.file_system}
        (unfinished / "volume.json").write_text(json.dumps(record))
        unfinished.rename(final)

    def release(self, group: str, name: str) -> None:
        """Give the space back; the files go after it."""
        final = self._root / group / name
        rubbish = self._root / group / f".old-{name}"
        with self._lock:
            _remove(rubbish)
            with suppress(FileNotFoundError):
                final.rename(rubbish)
        _remove(rubbish)


class DirectoryMachine:
    """A `Machine` whose volumes are directories and whose mounts are bind mounts."""

    def __init__(self, directories: Directories, namespace: Namespace) -> None:
        self._directories = directories
        self._namespace = namespace

    async def capacity(self) -> int:
        return self._directories.capacity

    async def make(self, volume: Volume) -> None:
        await _in_thread(self._directories.make, volume)

    async def release(self, group: str, name: str) -> None:
        await _in_thread(self._directories.release, group, name)

    async def mount(self, group: str, name: str, file_system: str, path: str) -> None:
        files = self._directories.place(group, name)
        if not files.is_dir():
            raise NodeTrouble(f"{group}/{name} does not exist")
        enter = await self._namespace.enter()
        if path not in self._namespace.mounts():
            mount = ["mount", "--bind", "-o", "X-mount.mkdir", str(files), path]
            await commands.run([*enter, *mount])

    async def unmount(self, path: str) -> None:
        if path in self._namespace.mounts():
            enter = await self._namespace.enter()
            await commands.run([*enter, "umount", path])
            await commands.run([*enter, *_rmdir(path, self._namespace.prefix)])

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        enter = await self._namespace.enter()
        lines = commands.lines([*enter, *copying.command(copy)])
        async with aclosing(lines) as output:  # type: ignore[type-var]
            async for line in output:
                yield copying.progress(line)


class LinkingMachine:
    """A `Machine` for where the kernel forbids mount namespaces to this user.

    Its volumes are directories, and a mount is a symbolic link under the node's
    own root: what jobs know as `path` is at `own_path(root, path)`.
    """

    def __init__(self, directories: Directories, root: Path, prefix: Path) -> None:
        """Paths under `prefix` are the node's own; all others are everybody's."""
        self._directories = directories
        self._root = root
        self._prefix = prefix

    async def capacity(self) -> int:
        return self._directories.capacity

    async def make(self, volume: Volume) -> None:
        await _in_thread(self._directories.make, volume)

    async def release(self, group: str, name: str) -> None:
        await _in_thread(self._directories.release, group, name)

    async def mount(self, group: str, name: str, file_system: str, path: str) -> None:
        files = self._directories.place(group, name)
        if not files.is_dir():
            raise NodeTrouble(f"{group}/{name} does not exist")
        await _in_thread(_link, files, Path(own_path(self._root, self._prefix, path)))

    async def unmount(self, path: str) -> None:
        link = Path(own_path(self._root, self._prefix, path))
        await _in_thread(_unlink, link, self._root)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        local = replace(
            copy,
            source=own_path(self._root, self._prefix, copy.source),
            destination=own_path(self._root, self._prefix, copy.destination),
        )
        lines = commands.lines(copying.command(local))
        async with aclosing(lines) as output:  # type: ignore[type-var]
            async for line in output:
                yield copying.progress(line)


def own_path(root: Path, prefix: Path, path: str) -> str:
    """Give where a node without a mount namespace has what jobs know as `path`."""
    if path == str(prefix) or path.startswith(f"{prefix}/"):
        return f"{root}{path}"
    return path


def _link(files: Path, link: Path) -> None:
    if link.is_symlink() and link.readlink() == files:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(files)


def _unlink(link: Path, root: Path) -> None:
    """Remove a link, and the directories under `root` that are empty without it."""
    link.unlink(missing_ok=True)
    for parent in link.parents:
        if not parent.is_relative_to(root) or parent == root:
            break
        try:
            parent.rmdir()
        except OSError:
            break


def _rmdir(path: str, prefix: Path) -> list[str]:
    """Give the command that removes a mount point, and parents under `prefix` left empty."""
    point = Path(path)
    if not point.is_relative_to(prefix):
        return ["rmdir", path]
    relative = str(point.relative_to(prefix))
    return ["env", f"--chdir={prefix}",
            "rmdir", "--parents", "--ignore-fail-on-non-empty", relative]  # fmt: skip


def _remove(tree: Path) -> None:
    """Remove a tree if it is there, whatever its user has forbidden."""
    if not tree.exists():
        return
    if os.geteuid() != 0:
        # Root needs no leave, and might be led through a link by whoever still writes there.
        for directory, below, _ in os.walk(tree):
            for path in (os.path.join(directory, name) for name in below):
                if not os.path.islink(path):
                    os.chmod(path, 0o700)
    shutil.rmtree(tree)


P = ParamSpec("P")


async def _in_thread(deed: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Do a deed on the file system; what the system refuses is the node's trouble."""
    try:
        await asyncio.to_thread(deed, *args, **kwargs)
    except OSError as error:
        raise NodeTrouble(f"{error.filename}: {error.strerror}") from error
