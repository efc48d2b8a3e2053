"""A node with a mount namespace of its own, and flash of whatever kind behind it."""

import errno
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

from warren.dws.node import Copy, NodeTrouble, Progress, Volume
from warren.node import commands, copying
from warren.node.flash import Flash, Source
from warren.node.namespaces import Namespace


class NamespacedMachine:
    """A `Machine` that mounts in its node's namespace."""

    def __init__(self, name: str, flash: Flash, namespace: Namespace) -> None:
        self._name = name
        self._flash = flash
        self._namespace = namespace

    async def capacity(self) -> int:
        return await self._flash.capacity(self._name)

    async def make(self, volume: Volume) -> None:
        await self._flash.make(volume)

    async def release(self, group: str, name: str) -> None:
        await self._flash.release(group, name)

    async def mount(self, group: str, name: str, file_system: str, path: str) -> None:
        source = await self._flash.source(group, name, file_system)
        enter = await self._namespace.enter()
        if path in self._namespace.mounts():
            return
        self._make_point(source, path)
        await commands.run([*enter, "mount", *source.arguments, path])

    async def unmount(self, path: str) -> None:
        # More than once, should an agent have died while its mount command did not.
        while path in self._namespace.mounts():
            enter = await self._namespace.enter()
            await commands.run([*enter, "umount", path])
        try:
            self._remove_point(path)
        except OSError as error:
            raise NodeTrouble(f"{path}: {error.strerror}") from error

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        enter = await self._namespace.enter()
        lines = commands.lines([*enter, *copying.command(copy)])
        async with aclosing(lines) as output:  # type: ignore[type-var]
            async for line in output:
                yield copying.progress(line)

    def _make_point(self, source: Source, path: str) -> None:
        root = self._namespace.root
        if root is None:
            raise NodeTrouble(f"the mount namespace of {self._name} has gone")
        point = Path(f"{root}{path}")
        try:
            if source.is_file:
                point.parent.mkdir(parents=True, exist_ok=True)
                point.touch()
            else:
                point.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NodeTrouble(f"{path}: {error.strerror}") from error

    def _remove_point(self, path: str) -> None:
        """Remove a mount point, and the directories that are empty without it."""
        prefix = self._namespace.prefix
        root = self._namespace.root
        if root is not None and Path(path).is_relative_to(prefix):
            prune(Path(f"{root}{path}"), Path(f"{root}{prefix}"))


def prune(path: Path, top: Path) -> None:
    """Remove a link, an empty file or an empty directory, and each parent left empty below `top`.

    A directory that is not empty stays, and so do its parents. Raises OSError.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
    for directory in [path, *path.parents]:
        if directory == top or not directory.is_relative_to(top):
            return
        try:
            directory.rmdir()
        except FileNotFoundError:
            continue
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                return
            raise
