"""Watchers by key: only those are woken whose keys may have changed."""

import asyncio
from collections.abc import Sequence

import msgspec

from warren.instance.kvs.tree import split_key


class Watched(msgspec.Struct, eq=False):
    """The watchers of a key, and the watched keys below it."""

    waiting: set[asyncio.Event] = msgspec.field(default_factory=set)
    """The watchers of the key itself."""
    recursive: set[asyncio.Event] = msgspec.field(default_factory=set)
    """The watchers of the key and of everything below it."""
    below: dict[str, "Watched"] = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.waiting or self.recursive or self.below)

    def add(self, names: Sequence[str], changed: asyncio.Event, *, recursive: bool) -> None:
        place = self
        for name in names:
            if name not in place.below:
                place.below[name] = Watched()
            place = place.below[name]
        (place.recursive if recursive else place.waiting).add(changed)

    def discard(self, names: Sequence[str], changed: asyncio.Event) -> None:
        path = [self]
        for name in names:
            path.append(path[-1].below[name])
        path[-1].waiting.discard(changed)
        path[-1].recursive.discard(changed)
        for place, name in zip(reversed(path[:-1]), reversed(names), strict=True):
            if place.below[name]:
                break
            del place.below[name]

    def wake(self, names: Sequence[str], *, below: bool) -> None:
        """Wake the watchers of a key; with `below`, those of keys below it, too."""
        place = self
        for name in names:
            for changed in place.recursive:
                changed.set()
            following = place.below.get(name)
            if following is None:
                return
            place = following
        if below:
            place._wake_all()
        else:
            for changed in (*place.waiting, *place.recursive):
                changed.set()

    def _wake_all(self) -> None:
        for changed in (*self.waiting, *self.recursive):
            changed.set()
        for place in self.below.values():
            place._wake_all()


class Watches:
    """The watchers, by namespace."""

    def __init__(self) -> None:
        self._namespaces: dict[str, Watched] = {}

    def __len__(self) -> int:
        """Return the number of namespaces in which something is waited for."""
        return len(self._namespaces)

    def wake(self, space: str, key: str, *, below: bool) -> None:
        watched = self._namespaces.get(space)
        if watched is not None:
            watched.wake(split_key(key), below=below)

    def add(
        self, space: str, names: Sequence[str], changed: asyncio.Event, recursive: bool
    ) -> None:
        self._namespaces.setdefault(space, Watched()).add(names, changed, recursive=recursive)

    def discard(self, space: str, names: Sequence[str], changed: asyncio.Event) -> None:
        self._namespaces[space].discard(names, changed)
        if not self._namespaces[space]:
            del self._namespaces[space]


Place = tuple[str, tuple[str, ...]]
"""A namespace, and the names of a key in it."""


class Waiter:
    """A watcher of what some places have. Use it as a context manager."""

    def __init__(self, watches: Watches, *, recursive: bool = False) -> None:
        self._watches = watches
        self._recursive = recursive
        self._places: set[Place] = set()
        self._changed = asyncio.Event()

    def __enter__(self) -> "Waiter":
        return self

    def __exit__(self, *_: object) -> None:
        self.watch(set())

    def watch(self, places: set[Place]) -> None:
        """Wait for other places from now on, and for what changes there from now on."""
        self._changed.clear()
        for space, names in self._places - places:
            self._watches.discard(space, names, self._changed)
        for space, names in places - self._places:
            self._watches.add(space, names, self._changed, self._recursive)
        self._places = places

    async def wait(self) -> None:
        """Wait until something has changed since `watch`."""
        await self._changed.wait()
