"""Watchers by key: only those are woken whose keys may have changed."""

import asyncio
from collections.abc import Sequence

import msgspec

from warren.instance.kvs.tree import split_key


class WatchNode(msgspec.Struct, eq=False):
    """The watchers of a key, and the watched keys below it."""

    watchers: set[asyncio.Event] = msgspec.field(default_factory=set)
    """The watchers of the key itself."""
    recursive_watchers: set[asyncio.Event] = msgspec.field(default_factory=set)
    """The watchers of the key and of everything below it."""
    children: dict[str, "WatchNode"] = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.watchers or self.recursive_watchers or self.children)

    def add(self, names: Sequence[str], changed: asyncio.Event, *, recursive: bool) -> None:
        node = self
        for name in names:
            if name not in node.children:
                node.children[name] = WatchNode()
            node = node.children[name]
        (node.recursive_watchers if recursive else node.watchers).add(changed)

    def discard(self, names: Sequence[str], changed: asyncio.Event) -> None:
        nodes = [self]
        for name in names:
            nodes.append(nodes[-1].children[name])
        nodes[-1].watchers.discard(changed)
        nodes[-1].recursive_watchers.discard(changed)
        for node, name in zip(reversed(nodes[:-1]), reversed(names), strict=True):
            if node.children[name]:
                break
            del node.children[name]

    def wake(self, names: Sequence[str], *, include_below: bool) -> None:
        """Wake the watchers of a key; with `include_below`, those of keys below it, too."""
        node = self
        for name in names:
            for changed in node.recursive_watchers:
                changed.set()
            child = node.children.get(name)
            if child is None:
                return
            node = child
        if include_below:
            node._wake_all()
        else:
            for changed in (*node.watchers, *node.recursive_watchers):
                changed.set()

    def _wake_all(self) -> None:
        for changed in (*self.watchers, *self.recursive_watchers):
            changed.set()
        for node in self.children.values():
            node._wake_all()


class Watches:
    """The watchers, by namespace."""

    def __init__(self) -> None:
        self._namespaces: dict[str, WatchNode] = {}

    def __len__(self) -> int:
        """Return the number of namespaces in which something is waited for."""
        return len(self._namespaces)

    def wake(self, namespace: str, key: str, *, include_below: bool) -> None:
        watched = self._namespaces.get(namespace)
        if watched is not None:
            watched.wake(split_key(key), include_below=include_below)

    def add(
        self, namespace: str, names: Sequence[str], changed: asyncio.Event, recursive: bool
    ) -> None:
        self._namespaces.setdefault(namespace, WatchNode()).add(names, changed, recursive=recursive)

    def discard(self, namespace: str, names: Sequence[str], changed: asyncio.Event) -> None:
        self._namespaces[namespace].discard(names, changed)
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]


NamespacedKey = tuple[str, tuple[str, ...]]
"""A namespace, and the names of a key in it."""


class Watcher:
    """Waits for changes of what some keys have. Use it as a context manager."""

    def __init__(self, watches: Watches, *, recursive: bool = False) -> None:
        self._watches = watches
        self._recursive = recursive
        self._keys: set[NamespacedKey] = set()
        self._changed = asyncio.Event()

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.watch(set())

    def watch(self, keys: set[NamespacedKey]) -> None:
        """Wait for other keys from now on, and for what changes there from now on."""
        self._changed.clear()
        for namespace, names in self._keys - keys:
            self._watches.discard(namespace, names, self._changed)
        for namespace, names in keys - self._keys:
            self._watches.add(namespace, names, self._changed, self._recursive)
        self._keys = keys

    async def wait(self) -> None:
        """Wait until something has changed since `watch`."""
        await self._changed.wait()
