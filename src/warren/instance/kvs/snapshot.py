"""The records of a whole store, made little by little while it changes.

A snapshot says what the store was when its first record was taken. Between two records
anything may change; so whatever changes a directory first lets the snapshot take what it
does not have of it yet (`take_entry`). Records of directories may come in any order, since
none says anything of another.

On its way it packs directories that have not changed since the snapshot before: to read
them back, and to write them down the next time, costs next to nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from warren.instance.kvs.operations import (
    PRIMARY,
    Operation,
    create_namespace,
    encode,
    record,
    set_version,
)
from warren.instance.kvs.packs import LARGEST_PACK, Pack, pack
from warren.instance.kvs.tree import (
    Directory,
    Namespace,
    WriteContext,
    directory_entries,
    to_plain,
    unpack,
)

_ENTRY_BYTES: Final = 64
"""Bytes that an entry counts for besides its value."""


class Snapshot:
    """One snapshot. It is being made as long as `records` is being read."""

    def __init__(
        self,
        namespaces: Iterable[Namespace],
        context: WriteContext,
        largest_pack: int = LARGEST_PACK,
    ) -> None:
        """`largest_pack` is how many bytes go into a pack, and of a directory into a record."""
        context.snapshot_number += 1
        self._context = context
        self._number = context.snapshot_number
        self._largest_pack = largest_pack
        self._roots = [(namespace.name, namespace.root) for namespace in namespaces]
        self._opening_operations = [
            create_namespace(namespace.name, namespace.owner)
            for namespace in namespaces
            if namespace.name != PRIMARY
        ]
        # To create what is there does nothing: such a record keeps the writer's number alone.
        self._closing_records = [
            record((create_namespace(namespace.name, namespace.owner),), writer, sequence)
            for namespace in namespaces
            for writer, sequence in namespace.applied_sequences.items()
        ]
        # The primary namespace last of all: its version ends a snapshot.
        self._closing_records += [
            record((set_version(namespace.name, namespace.version),))
            for namespace in sorted(namespaces, key=lambda namespace: namespace.name == PRIMARY)
        ]
        self._records: list[bytes] = []
        """Records that are made and not read yet."""

    def records(self) -> Iterator[bytes]:
        self._context.snapshot = self
        try:
            yield from (encode(record((operation,))) for operation in self._opening_operations)
            for name, root in self._roots:
                for _ in self._visit(name, root):
                    yield from self._take_records()
            yield from self._take_records()
            yield from map(encode, self._closing_records)
        finally:
            if self._context.snapshot is self:
                self._context.snapshot = None

    def _take_records(self) -> Iterator[bytes]:
        while self._records:
            records, self._records = self._records, []
            yield from records

    # What is about to change

    def take_entry(self, namespace: str, path: str, directory: Directory, name: str) -> None:
        """Take the entries of a directory, one of which is to change, and all below that one."""
        self._take(namespace, path, directory)
        below = directory.get(name)
        if isinstance(below, Directory):
            self.take_all(namespace, _join(path, name), below)

    def take_all(self, namespace: str, path: str, directory: Directory) -> None:
        """Take a directory, and all that are below it."""
        self._take(namespace, path, directory)
        for name, below in directory.items():
            if isinstance(below, Directory):
                self.take_all(namespace, _join(path, name), below)

    def _take(self, namespace: str, path: str, directory: Directory) -> None:
        """Take what a directory has itself: all but the directories in it."""
        if directory.last_snapshot == self._number:
            return
        directory.last_snapshot = self._number
        for packed, names in _packs(directory).items():
            self._take_pack(namespace, path, directory, packed, names)
        leaves: dict[str, Any] = {}
        size = 0
        for name, node in directory.items():
            if not isinstance(node, Directory | Pack):
                leaves[name] = node
                size += _ENTRY_BYTES + len(node)
                if size > self._largest_pack:
                    self._fill(namespace, path, leaves)
                    leaves, size = {}, 0
        if leaves or not directory:
            self._fill(namespace, path, leaves)

    def _fill(self, namespace: str, path: str, entries: Mapping[str, Any]) -> None:
        self._put(Operation("fill", namespace, path, encode(entries)))

    def _take_pack(
        self, namespace: str, path: str, directory: Directory, packed: Pack, names: Iterable[str]
    ) -> None:
        if packed.last_snapshot == self._number:
            return
        packed.last_snapshot = self._number
        remaining = [name for name in names if directory.get(name) is packed]
        self._put(Operation("pack", namespace, path, encode((remaining, packed.compressed))))

    def _put(self, operation: Operation) -> None:
        self._records.append(encode(record((operation,))))

    # Everything else, in the order in which it is found

    def _visit(self, namespace: str, root: Directory) -> Iterator[None]:
        """Take a whole namespace. Between two steps anything may change."""
        pending: list[tuple[str, Directory]] = [("", root)]
        while pending:
            path, directory = pending.pop()
            for entries in self._packable(directory):
                new_pack = pack(entries, self._number)
                digests = {name: directory[name].digest for name in entries}
                new_pack.digests = None if None in digests.values() else digests
                for name in entries:
                    directory[name] = new_pack
                names_and_pack = ([*entries], new_pack.compressed)
                self._put(Operation("pack", namespace, path, encode(names_and_pack)))
                yield
            for packed, names in _packs(directory).items():
                self._take_pack(namespace, path, directory, packed, names)
                yield
            self._take(namespace, path, directory)
            yield
            pending += [
                (_join(path, name), node)
                for name, node in directory.items()
                if isinstance(node, Directory)
            ]

    def _packable(self, directory: Directory) -> Iterator[dict[str, Any]]:
        """Return the directories in one that are to be packed, as many as go into a pack."""
        self._unpack_sparse(directory)
        entries: dict[str, Any] = {}
        room = self._largest_pack
        for name, node in list(directory.items()):
            if not isinstance(node, Directory) or directory.get(name) is not node:
                continue
            room_left = self._room_left(node, self._largest_pack)
            if room_left < 0:
                continue
            entries[name] = to_plain(node, self._context.packs)
            room -= self._largest_pack - room_left
            if room < 0:
                yield entries
                entries, room = {}, self._largest_pack
        if entries:
            yield entries

    def _unpack_sparse(self, directory: Directory) -> None:
        """Open packs of which most is gone, so that the rest is packed anew."""
        for packed, names in _packs(directory).items():
            if 2 * len(names) < packed.initial_count and packed.last_snapshot != self._number:
                entries = self._context.packs.entries(packed)
                self._context.packs.keep_outdated(packed)
                for name in names:
                    directory[name] = unpack(entries[name], 0, 0)

    def _room_left(self, node: Any, room: int) -> int:
        """Return what is left of some room with a node in it; negative if any changed lately."""
        if isinstance(node, Directory) and (
            node.last_snapshot == self._number or node.changed_after >= self._number - 1
        ):
            return -1
        if not isinstance(node, dict):
            return room - len(node)
        found = (
            directory_entries(node, self._context.packs)
            if isinstance(node, Directory)
            else node.items()
        )
        for _, each in found:
            room = self._room_left(each, room - _ENTRY_BYTES)
            if room < 0:
                return room
        return room


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _packs(directory: Directory) -> dict[Pack, list[str]]:
    """Return the packs that a directory has, with the names for which it has them."""
    found: dict[Pack, list[str]] = {}
    for name, node in directory.items():
        if isinstance(node, Pack):
            found.setdefault(node, []).append(name)
    return found
