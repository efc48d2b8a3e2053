"""One namespace: directories, values and links, and how they change.

A value is `bytes` until it is appended to, and a `bytearray` from then on: neither is
tracked by the garbage collector.
"""

import errno
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from warren.instance.kvs.packs import Pack, PackCache
from warren.rpc.message import RpcError

VALUE_TYPES: Final = (bytes, bytearray)

MAX_DEPTH: Final = 64
"""Names in a key: keys of more are refused where they are asked for."""


class Link(NamedTuple):
    """Leads to a key of another namespace, or of the same one if that is empty."""

    target: str
    namespace: str = ""


class Directory(dict[str, Any]):
    """Directories, links and values by name; a directory may be in a `Pack`, which stands here."""

    __slots__ = ("changed_after", "digest", "last_snapshot")

    def __init__(self, changed_after: int, last_snapshot: int) -> None:
        self.changed_after = changed_after
        """The last snapshot that had begun when its own entries last changed, by its number."""
        self.last_snapshot = last_snapshot
        """The last snapshot that has its own entries."""
        self.digest: bytes | None = None
        """Its digest, if it was computed and nothing in it or below has changed since."""


class OngoingSnapshot(Protocol):
    """A snapshot that is being made: what it does not have yet, it takes before it changes."""

    def take_entry(self, namespace: str, path: str, directory: Directory, name: str) -> None: ...

    def take_all(self, namespace: str, path: str, directory: Directory) -> None: ...


class WriteContext:
    """What all changes of a store have in common, and what hears of each before it happens."""

    def __init__(self) -> None:
        self.snapshot_number = 0
        """How many snapshots have been begun."""
        self.snapshot: OngoingSnapshot | None = None
        self.transaction_count = 0
        """How many transactions have been begun."""
        self.undo: list[Callable[[], object]] | None = None
        """How to take back what the transaction under way has done, if it may be refused."""
        self.packs = PackCache()


def to_plain(node: Any, packs: PackCache) -> Any:
    """Return a node as packs have it: directories are plain, links are pairs."""
    if isinstance(node, Directory):
        return {name: to_plain(each, packs) for name, each in directory_entries(node, packs)}
    return node


def directory_entries(directory: Directory, packs: PackCache) -> Iterator[tuple[str, Any]]:
    """Return the entries of a directory; of those that are in packs, as packs have them."""
    for name, node in directory.items():
        yield name, packs.entries(node)[name] if isinstance(node, Pack) else node


def unpack(plain: Any, changed_after: int, last_snapshot: int) -> Any:
    """Make a node of what a pack has."""
    if isinstance(plain, dict):
        directory = Directory(changed_after, last_snapshot)
        for name, each in plain.items():
            directory[name] = unpack(each, changed_after, last_snapshot)
        return directory
    return plain if isinstance(plain, bytes) else Link(*plain)


def keep_outdated_packs(node: Any, packs: PackCache) -> None:
    """Have the cache keep the packs of a node that is about to be removed."""
    if isinstance(node, Pack):
        packs.keep_outdated(node)
    elif isinstance(node, Directory):
        for each in node.values():
            keep_outdated_packs(each, packs)


class Namespace:
    """A namespace."""

    def __init__(self, name: str, owner: int, context: WriteContext) -> None:
        self.name = name
        self.owner = owner
        self.version = 0
        """How many transactions have changed it."""
        self.root = Directory(context.snapshot_number, context.snapshot_number)
        self.applied_sequences: dict[str, int] = {}
        """The sequence number of the last record of each writer: an earlier one is a repetition."""
        self.guest_bytes = 0
        """Bytes that guests have written in this life, whatever became of them."""
        self.replaced: list[tuple[str, Any]] = []
        """Values and links that gave way to directories on the way to a key: their
        watchers are to be woken."""
        self._context = context
        self._last_directory: tuple[int, str, Directory] = (-1, "", self.root)
        """The directory in which this transaction was last: most of them have a next key there."""

    # Each change gives what was at its key before, so that a client that waits for it, or for
    # something below it, can be told.

    def set(self, key: str, node: Any) -> Any:
        """Put a value, a link or a directory at a key."""
        path, _, name = key.rpartition(".")
        return self._set_entry(path, self._ensure_directory(path), name, node)

    def append(self, key: str, value: bytes) -> Any:
        """Add to a value. What is there and no value gives way."""
        path, _, name = key.rpartition(".")
        directory = self._ensure_directory(path)
        found = directory.get(name)
        if isinstance(found, bytearray):
            context = self._context
            if context.snapshot is not None:
                context.snapshot.take_entry(self.name, path, directory, name)
            if context.undo is not None:
                context.undo.append(partial(found.__delitem__, slice(len(found), None)))
            directory.changed_after = context.snapshot_number
            found += value
            return found
        if isinstance(found, bytes):
            return self._set_entry(path, directory, name, bytearray(found + value))
        return self._set_entry(path, directory, name, value)

    def remove(self, key: str) -> Any:
        """Remove a key, and the directories that are empty without it."""
        names = key.split(".")
        directories = [self.root]
        for name in names[:-1]:
            child = self._unpacked_directory(directories[-1], name)
            if child is None:
                return None
            directories.append(child)
        if names[-1] not in directories[-1]:
            return None
        for directory in directories:
            directory.digest = None
        removed = self._set_entry(".".join(names[:-1]), directories[-1], names[-1], None)
        for depth in range(len(directories) - 2, -1, -1):
            if directories[depth + 1]:
                break
            self._set_entry(".".join(names[:depth]), directories[depth], names[depth], None)
        return removed

    def fill(self, key: str, entries: Mapping[str, Any]) -> None:
        """Add to a directory, which is made if it is not there."""
        self._ensure_directory(key).update(entries)

    def set_root(self, root: Directory) -> None:
        """Take over a root."""
        self.root = root

    def _ensure_directory(self, path: str) -> Directory:
        """Return a directory that is to change, which is made if it is not there."""
        context = self._context
        transaction, last_path, directory = self._last_directory
        if last_path == path and transaction == context.transaction_count:
            return directory
        directory = self.root
        directory.digest = None
        for depth, name in enumerate(names := split_key(path)):
            child = directory.get(name)
            if type(child) is not Directory:
                child = self._unpacked_directory(directory, name)
                if child is None:
                    child = Directory(context.snapshot_number, context.snapshot_number)
                    before = self._set_entry(".".join(names[:depth]), directory, name, child)
                    if before is not None:
                        self.replaced.append((".".join(names[: depth + 1]), before))
            directory = child
            directory.digest = None
        self._last_directory = (context.transaction_count, path, directory)
        return directory

    def _unpacked_directory(self, directory: Directory, name: str) -> Directory | None:
        """Return a directory in a directory, out of its pack if it is in one."""
        found = directory.get(name)
        if isinstance(found, Directory):
            return found
        if not isinstance(found, Pack):
            return None
        # Not a change: it says the same as before. A snapshot has it if it has the pack.
        opened = unpack(
            self._context.packs.entries(found)[name], directory.changed_after, found.last_snapshot
        )
        assert isinstance(opened, Directory)
        self._context.packs.keep_outdated(found)
        if found.digests is not None:
            opened.digest = found.digests[name]
        directory[name] = opened
        return opened

    def _set_entry(self, path: str, directory: Directory, name: str, node: Any) -> Any:
        """Set or remove what a directory has under a name; return what was there."""
        context = self._context
        before = directory.get(name)
        if context.snapshot is not None and not (before is None and isinstance(node, Directory)):
            context.snapshot.take_entry(self.name, path, directory, name)
        if context.undo is not None:
            context.undo.append(partial(_restore, directory, name, before))
        directory.changed_after = context.snapshot_number
        if isinstance(before, Directory | Pack) and before is not node:
            keep_outdated_packs(before, context.packs)
            self._last_directory = (-1, "", self.root)
        if node is None:
            del directory[name]
        else:
            directory[name] = node
        return before

    # What a strict transaction asks before each step

    def resolve_writable(self, key: str, *, for_append: bool = False) -> str:
        """Return the key that is to be changed for a key, behind links of the same namespace.

        Raises RpcError: EINVAL where a link leads out of the namespace, ELOOP for links in a
        circle; and, where something is to be appended, EISDIR and EOPNOTSUPP for what is no value.
        """
        names = key.split(".")
        for _ in range(MOST_LINKS):
            node: Any = self.root
            for depth, name in enumerate(names[:-1]):
                parent, node = node, node.get(name)
                if type(node) is Directory:
                    continue
                if type(node) is Pack:
                    node = self._unpacked_directory(parent, name)
                    continue
                if isinstance(node, Link):
                    if node.namespace:
                        raise RpcError(
                            errno.EINVAL,
                            f"{'.'.join(names[: depth + 1])} leads to another namespace",
                        )
                    names = [*split_key(node.target), *names[depth + 1 :]]
                    break
                return ".".join(names)
            else:
                found = node.get(names[-1])
                if for_append and isinstance(found, Directory | Pack):
                    raise RpcError(errno.EISDIR, "nothing can be appended to a directory")
                if for_append and isinstance(found, Link):
                    raise RpcError(errno.EOPNOTSUPP, "nothing can be appended to a link")
                return ".".join(names)
        raise RpcError(errno.ELOOP)


MOST_LINKS: Final = 10
"""How many links one after the other are followed."""


def split_key(key: str) -> list[str]:
    """Return the names of a key as it is written here; none for the root, which is `.`."""
    return key.split(".") if key and key != "." else []


def _restore(directory: Directory, name: str, node: Any) -> None:
    if node is None:
        del directory[name]
    else:
        directory[name] = node
