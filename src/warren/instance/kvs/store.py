"""The store: all namespaces, in memory, with the journal as their past.

Nothing is visible before it is durable.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from warren.instance.kvs import cost
from warren.instance.kvs import operations as ops
from warren.instance.kvs.operations import PRIMARY, Operation, Record
from warren.instance.kvs.packs import LARGEST_PACK, Pack
from warren.instance.kvs.quota import Quota
from warren.instance.kvs.refs import CACHE_BYTES, Refs
from warren.instance.kvs.snapshot import Snapshot
from warren.instance.kvs.tree import (
    MOST_LINKS,
    VALUE_TYPES,
    Directory,
    Link,
    Namespace,
    WriteContext,
    keep_outdated_packs,
    split_key,
    unpack,
)
from warren.instance.kvs.watches import NamespacedKey, Watcher, Watches
from warren.journal import Journal
from warren.journal.committer import Committer, rewrite_limit
from warren.rfc.treeobj import Algorithm
from warren.rpc.message import RpcError


class LookupResult(NamedTuple):
    """What a key has, and every key on the way there whose change could change that."""

    node: Any
    """A value, a directory or a link; None where there is nothing."""
    traversed: list[NamespacedKey]
    refusal: RpcError | None = None
    """The error with which the search ended, if it is not that nothing is there."""


class Kvs:
    """All namespaces. `run` must be running for commits to come to an end."""

    def __init__(
        self,
        journal: Journal,
        owner: int,
        algorithm: Algorithm = "sha1",
        *,
        limit: Callable[[int], int] = rewrite_limit,
        pack_bytes: int = LARGEST_PACK,
        cache_bytes: int = CACHE_BYTES,
        quota: Quota | None = None,
    ) -> None:
        """Read the journal. Raises JournalUnreadable where it cannot be read.

        `limit` is that of the committer, `pack_bytes` the bytes of the largest pack, and
        `cache_bytes` how many bytes of blobs are kept for their readers. `quota` counts what
        guests' jobs hold.
        """
        self.quota = quota or Quota()
        self._context = WriteContext()
        self._namespaces = {PRIMARY: Namespace(PRIMARY, owner, self._context)}
        self._watches = Watches()
        self.refs = Refs(algorithm, self._context.packs, cache_bytes)
        base_bytes = appended_bytes = 0
        for number, text in enumerate(journal.replay(), 1):
            record = ops.decode(text, number)
            try:
                self._apply_or_undo(record)
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise ops.unreadable(number, str(error)) from error
            appended_bytes += len(text)
            if record.operations and record.operations[0].action == ops.SET_VERSION:
                base_bytes, appended_bytes = base_bytes + appended_bytes, 0
        # What this life has not touched by the time of its first snapshot is packed.
        self._context.snapshot_number = 1
        self._committer = Committer(
            journal, self._snapshot, base_bytes, appended_bytes, limit=limit
        )
        self._pack_bytes = pack_bytes

    async def run(self) -> None:
        """Commit transactions until cancelled."""
        await self._committer.run()

    @property
    def full_reason(self) -> str | None:
        """Why nothing new is to be written: the disk is full, in a sentence. None if it is not.

        Whatever is written nonetheless waits until there is room.
        """
        return self._committer.full_reason

    # Writing

    def commit(
        self, operations: Sequence[Operation], writer: str = "", sequence: int = 0
    ) -> "asyncio.Future[None]":
        """Do all the operations or none, in order; the future is done when they are durable.

        What is in the way of an operation gives way to it. A `writer` numbers its
        transactions; one that it sends again, because it never heard that it was done,
        is not done twice.
        """
        record = ops.record(operations, writer, sequence)
        return self._committer.submit(ops.encode(record), lambda: self._apply(record))

    async def transact(
        self, operations: Sequence[Operation], writer: str = "", sequence: int = 0
    ) -> None:
        """Do all the operations or none, in order, and return when they are durable.

        Unlike `commit`, nothing gives way to an operation: raises RpcError where something is in
        the way of one, which the words name by its index.
        """
        record = ops.record(operations, writer, sequence, strict=True)
        outcome: list[RpcError | None] = []
        await self._committer.submit(
            ops.encode(record), lambda: outcome.append(self._apply_or_undo(record))
        )
        if outcome[0] is not None:
            raise outcome[0]

    def _apply_or_undo(self, record: Record) -> RpcError | None:
        """Do a transaction, or return why it is refused. A replay comes to the same."""
        if not record.strict:
            self._apply(record)
            return None
        undo = self._context.undo = []
        try:
            self._apply(record)
        except RpcError as error:
            for action in reversed(undo):
                action()
            return error
        finally:
            self._context.undo = None
        return None

    def _apply(self, record: Record) -> None:
        if record.writer:
            namespace = self._namespaces.get(record.operations[0].namespace)
            if (
                namespace is None
                or namespace.applied_sequences.get(record.writer, 0) >= record.sequence
            ):
                return
        self._context.transaction_count += 1
        changes: list[tuple[str, str, Any]] = []
        for index, operation in enumerate(record.operations):
            try:
                self._apply_operation(operation, changes, strict=record.strict)
            except RpcError as error:
                message = f"operation {index} ({operation.action} {operation.key}): {error}"
                raise RpcError(error.errnum, message) from None
        if record.writer:
            namespace = self._namespaces.get(record.operations[0].namespace)
            if namespace is not None:
                namespace.applied_sequences[record.writer] = record.sequence
        for name in {name for name, _, _ in changes}:
            namespace = self._namespaces.get(name)
            if namespace is not None:
                namespace.version += 1
        for name, key, before in changes:
            include_below = isinstance(before, Directory | Pack | Link)
            self._watches.wake(name, key, include_below=include_below)

    def _apply_operation(
        self, operation: Operation, changes: list[tuple[str, str, Any]], *, strict: bool
    ) -> None:
        name, key = operation.namespace, operation.key
        if operation.action == "create":
            self._create(operation, strict=strict)
            return
        namespace = self._namespaces.get(name)
        if namespace is None:
            if strict and operation.action != "remove":
                raise RpcError(errno.ENOTSUP, f"there is no namespace {name}")
            return  # removed while the writer was writing: it has no reader
        if strict and key:
            key = namespace.resolve_writable(key, for_append=operation.action == "append")
        snapshot_number = self._context.snapshot_number
        match operation.action:
            case "put":
                changes.append((name, key, namespace.set(key, operation.value)))
            case "append":
                changes.append((name, key, namespace.append(key, operation.value)))
            case "unlink":
                changes.append((name, key, namespace.remove(key)))
            case "link" | "symlink":
                if operation.action == "link":
                    node = Link(".", operation.value.decode())
                else:
                    node = Link(*_decode_value(operation.value))
                namespace.set(key, node)
                changes.append((name, key, node))
            case "tree":
                node = unpack(_decode_value(operation.value), snapshot_number, snapshot_number)
                namespace.set(key, node)
                changes.append((name, key, node))
            case "graft":
                self._graft(namespace, operation, changes)
            case "remove":
                self._detach(name)
                keep_outdated_packs(namespace.root, self._context.packs)
                changes.append((name, "", namespace.root))
            case "fill":
                namespace.fill(
                    key, unpack(_decode_value(operation.value), snapshot_number, snapshot_number)
                )
            case "pack":
                names, compressed = _decode_value(operation.value)
                packed = Pack(compressed, len(names), snapshot_number)
                namespace.fill(key, dict.fromkeys(names, packed))
            case ops.SET_VERSION:
                namespace.version = operation.owner_or_version
        if namespace.replaced:
            changes += [(name, *each) for each in namespace.replaced]
            namespace.replaced = []

    def _create(self, operation: Operation, *, strict: bool) -> None:
        name = operation.namespace
        if name not in self._namespaces:
            namespace = self._namespaces[name] = Namespace(
                name, operation.owner_or_version, self._context
            )
            if operation.value:
                snapshot_number = self._context.snapshot_number
                namespace.set_root(
                    unpack(_decode_value(operation.value), snapshot_number, snapshot_number)
                )
            # A client that waits for something in it waits from before there was such a namespace.
            self._watches.wake(name, "", include_below=True)
        elif strict:
            raise RpcError(errno.EEXIST, f"there is a namespace {name} already")

    def _graft(
        self, namespace: Namespace, operation: Operation, changes: list[tuple[str, str, Any]]
    ) -> None:
        source = operation.value.decode()
        if source not in self._namespaces or source == operation.namespace:
            return
        root = self._detach(source).root
        namespace.remove(operation.key)
        if root:  # no directory is empty
            namespace.set(operation.key, root)
        changes.append((source, "", root))
        changes.append((operation.namespace, operation.key, root))

    def _detach(self, name: str) -> Namespace:
        namespace = self._namespaces.pop(name)
        if self._context.snapshot is not None:
            self._context.snapshot.take_all(name, "", namespace.root)
        return namespace

    # Reading

    def lookup(self, key: str, namespace: str = PRIMARY) -> bytes:
        """Return a value. Raises RpcError: ENOENT, ELOOP, or EISDIR for a directory."""
        found = self.find(split_key(key), namespace)
        if isinstance(found.node, VALUE_TYPES):
            return bytes(found.node)
        raise found.refusal or RpcError(errno.ENOENT if found.node is None else errno.EISDIR)

    def get(self, key: str, namespace: str = PRIMARY) -> bytes | None:
        """Return a value, or None where there is none."""
        found = self.find(split_key(key), namespace).node
        return bytes(found) if isinstance(found, VALUE_TYPES) else None

    def names(self, key: str, namespace: str = PRIMARY) -> list[str]:
        """Return the names in a directory, sorted; none if there is no such directory."""
        found = self.find(split_key(key), namespace).node
        return sorted(found) if isinstance(found, Directory) else []

    def namespaces(self) -> list[str]:
        """Return the names of all namespaces."""
        return list(self._namespaces)

    def owner(self, namespace: str) -> int | None:
        """Return the owner of a namespace; None if there is none of that name."""
        found = self._namespaces.get(namespace)
        return None if found is None else found.owner

    def charge(
        self, namespace: str, size: int, namespace_limit: float, *, is_running: bool = False
    ) -> None:
        """Count bytes that a guest is to write.

        Raises RpcError: ENOTSUP, or ENOSPC over `namespace_limit` and over what its user's jobs may
        hold.
        """
        charged = self._existing_namespace(namespace)
        if charged.guest_bytes + size > namespace_limit:
            raise RpcError(
                errno.ENOSPC, f"{charged.guest_bytes} bytes were written to {namespace} already"
            )
        self.quota.charge(namespace, charged.owner, size, is_running=is_running)
        charged.guest_bytes += size

    def size(self, key: str, namespace: str = PRIMARY) -> int:
        """Return how many bytes a value takes, or all that is in a directory; 0 for none.

        As `cost` has it. Links are not followed.
        """
        total, pending = 0, [self.find(split_key(key), namespace).node]
        while pending:
            node = pending.pop()
            if isinstance(node, VALUE_TYPES):
                total += len(node) + cost.ENTRY_BYTES
            elif isinstance(node, Pack):
                total += len(node.compressed)
            elif isinstance(node, Directory):
                total += cost.DIRECTORY_BYTES
                pending += node.values()
        return total

    def version(self, namespace: str) -> int:
        """Return how many transactions have changed a namespace. Raises RpcError(ENOTSUP)."""
        return self._existing_namespace(namespace).version

    def root(self, namespace: str) -> Directory:
        """Return the root of a namespace. Raises RpcError(ENOTSUP)."""
        return self._existing_namespace(namespace).root

    def blob(self, ref: str) -> bytes | None:
        """Return a blob, or None."""
        return self.refs.load(ref, (each.root for each in self._namespaces.values()))

    def watcher(self, *, recursive: bool = False) -> Watcher:
        """Return a watcher of keys that `find` returns; `recursive` for all below them, too."""
        return Watcher(self._watches, recursive=recursive)

    async def follow(
        self,
        key: str,
        namespace: str = PRIMARY,
        *,
        is_final: Callable[[], bool] = lambda: False,
        also_watch: str | None = None,
        part_end: Callable[[bytes | bytearray, int], int] = lambda value, offset: len(value),
    ) -> AsyncIterator[bytes]:
        """Return what is in a value, and whatever is appended to it, wherever its link leads.

        Waits for the key if it is not there. Ends when nothing is left to give and
        `is_final` says that nothing will come; it is asked at every change of the
        value, and of the primary key `also_watch`. `part_end` returns where the part ends that
        begins at an offset: there, if nothing is to be given yet.
        """
        offset = 0
        names, also_watched = split_key(key), (PRIMARY, tuple(split_key(also_watch or key)))
        with self.watcher() as watcher:
            while True:
                found = self.find(names, namespace)
                watcher.watch({*found.traversed, also_watched})
                has_grown = isinstance(found.node, VALUE_TYPES) and len(found.node) > offset
                end = part_end(found.node, offset) if has_grown else offset
                if end > offset:
                    chunk, offset = bytes(found.node[offset:end]), end
                    yield chunk
                elif is_final():
                    return
                else:
                    await watcher.wait()

    def find(
        self,
        names: Sequence[str],
        namespace: str = PRIMARY,
        *,
        follow_symlinks: bool = True,
        permitted: Callable[[str], bool] = lambda namespace: True,
    ) -> LookupResult:
        """Look for a key, behind all links, and behind one at its very end if `follow_symlinks`.

        What is found is not to be changed. `permitted` says into which namespaces links may lead.
        """
        traversed: list[NamespacedKey] = []
        for _ in range(MOST_LINKS + 1):
            traversed.append((namespace, tuple(names)))
            current = self._namespaces.get(namespace)
            found: Any = current.root if current else None
            for depth, name in enumerate(names):
                if type(found) is not Directory:
                    return LookupResult(None, traversed)  # below a value there is nothing
                found = found.get(name)
                kind = type(found)
                if kind is Pack:
                    found = unpack(self._context.packs.entries(found)[name], 0, 0)
                elif kind is Link and (follow_symlinks or depth + 1 < len(names)):
                    break
            else:
                return LookupResult(found, traversed)
            names = [*split_key(found.target), *names[depth + 1 :]]
            namespace = found.namespace or namespace
            if not permitted(namespace):
                return LookupResult(None, traversed, RpcError(errno.EPERM))
        return LookupResult(None, traversed, RpcError(errno.ELOOP))

    def _existing_namespace(self, namespace: str) -> Namespace:
        found = self._namespaces.get(namespace)
        if found is None:
            raise RpcError(errno.ENOTSUP, f"there is no namespace {namespace}")
        return found

    # Restarting

    def _snapshot(self) -> Iterator[bytes]:
        yield from Snapshot(
            list(self._namespaces.values()), self._context, self._pack_bytes
        ).records()


def _decode_value(value: bytes) -> Any:
    return msgspec.msgpack.decode(value)
