"""The key-value store: namespaces of keys in directories, values that can be appended to.

Nothing is visible before it is durable. Keys are dotted paths; a link puts
another namespace at a key, which is how a job's guest namespace is found under
the job's directory while it lives.
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from warren.journal import Journal
from warren.journal.committer import Committer
from warren.rfc import treeobj
from warren.rfc.errors import BadFormat
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError

PRIMARY: Final = "primary"
_APPEND: Final = 32


class Operation(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One step of a transaction."""

    deed: Literal["put", "append", "unlink", "link", "create", "remove", "graft"]
    namespace: str
    key: str = ""
    value: bytes = b""
    """What to put or append; for a link, the namespace that it leads to."""
    owner: int = 0
    """Who owns a namespace that is created."""


def put(key: str, value: bytes, namespace: str = PRIMARY) -> Operation:
    """Set a key."""
    return Operation("put", namespace, key, value)


def append(key: str, value: bytes, namespace: str = PRIMARY) -> Operation:
    """Add to the end of a key's value; make the key if it is not there."""
    return Operation("append", namespace, key, value)


def unlink(key: str) -> Operation:
    """Remove a key and what is below it."""
    return Operation("unlink", PRIMARY, key)


def link(key: str, namespace: str) -> Operation:
    """Let a namespace be found at a key."""
    return Operation("link", PRIMARY, key, namespace.encode())


def create_namespace(name: str, owner: int) -> Operation:
    """Make an empty namespace, unless it is there."""
    return Operation("create", name, owner=owner)


def graft(key: str, namespace: str) -> Operation:
    """Put what a namespace holds at a key, in place of the link, and remove the namespace."""
    return Operation("graft", PRIMARY, key, namespace.encode())


class _Record(msgspec.Struct, frozen=True, array_like=True):
    operations: tuple[Operation, ...]
    writer: str = ""
    sequence: int = 0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Record)


@dataclass
class _Link:
    namespace: str


_Directory = dict[str, Any]
"""Directories, links and values by name. A value is `bytes` until it is appended to, and a
`bytearray` from then on: neither has a place among what the garbage collector goes over."""

_VALUE: Final = (bytes, bytearray)


@dataclass(slots=True, eq=False)
class _Watched:
    """Who waits for a key, and the keys below it that somebody waits for."""

    waiting: set[asyncio.Event] = field(default_factory=set)
    below: dict[str, "_Watched"] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.waiting or self.below)

    def add(self, names: Sequence[str], changed: asyncio.Event) -> None:
        place = self
        for name in names:
            if name not in place.below:
                place.below[name] = _Watched()
            place = place.below[name]
        place.waiting.add(changed)

    def discard(self, names: Sequence[str], changed: asyncio.Event) -> None:
        path = [self]
        for name in names:
            path.append(path[-1].below[name])
        path[-1].waiting.discard(changed)
        for place, name in zip(reversed(path[:-1]), reversed(names), strict=True):
            if place.below[name]:
                break
            del place.below[name]

    def find(self, names: Sequence[str]) -> "_Watched | None":
        place = self
        for name in names:
            following = place.below.get(name)
            if following is None:
                return None
            place = following
        return place

    def wake(self) -> None:
        for changed in self.waiting:
            changed.set()

    def wake_all(self) -> None:
        """Wake those who wait for the key, or for anything below it."""
        self.wake()
        for place in self.below.values():
            place.wake_all()


@dataclass
class _Namespace:
    owner: int
    root: _Directory = field(default_factory=dict)
    writers: dict[str, int] = field(default_factory=dict)
    """The last sequence number of each numbered writer."""


class Kvs:
    """All namespaces. `run` must be running for commits to come to an end."""

    def __init__(self, journal: Journal, owner: int) -> None:
        self._namespaces = {PRIMARY: _Namespace(owner)}
        self._watchers: dict[str, _Watched] = {}
        held = 0
        for record in journal.replay():
            self._apply(_decoder.decode(record))
            held += len(record)
        self._committer = Committer(journal, self._snapshot, held)

    async def run(self) -> None:
        """Commit transactions until cancelled."""
        await self._committer.run()

    # Writing

    def commit(
        self, operations: Sequence[Operation], writer: str = "", sequence: int = 0
    ) -> "asyncio.Future[None]":
        """Do all the operations or none, in order; the future is done when they are durable.

        A `writer` numbers its transactions; one that it sends again, because it
        never heard that it was done, is not done twice.
        """
        record = _Record(tuple(operations), writer, sequence)
        return self._committer.submit(_encoder.encode(record), lambda: self._apply(record))

    def _apply(self, record: _Record) -> None:
        if record.writer:
            namespace = self._namespaces.get(record.operations[0].namespace)
            if namespace is None or namespace.writers.get(record.writer, 0) >= record.sequence:
                return
            namespace.writers[record.writer] = record.sequence
        for operation in record.operations:
            self._do(operation)

    def _do(self, operation: Operation) -> None:
        if operation.deed == "create":
            self._namespaces.setdefault(operation.namespace, _Namespace(operation.owner))
            return
        namespace = self._namespaces.get(operation.namespace)
        if namespace is None:
            return  # removed while the writer was writing: there is nobody to read it
        match operation.deed:
            case "put":
                self._set(namespace, operation.key, operation.value)
                self._wake(operation.namespace, operation.key)
            case "append":
                self._append(namespace, operation.key, operation.value)
                self._wake(operation.namespace, operation.key)
            case "unlink":
                self._remove(namespace, operation.key)
                self._wake_below(operation.namespace, operation.key)
            case "link":
                self._set(namespace, operation.key, _Link(operation.value.decode()))
                self._wake_below(operation.namespace, operation.key)
            case "graft":
                source = self._namespaces.pop(operation.value.decode(), None)
                if source is not None:
                    self._remove(namespace, operation.key)
                    if source.root:  # no directory is empty
                        self._set(namespace, operation.key, source.root)
                    self._wake_below(operation.value.decode(), "")
                    self._wake_below(operation.namespace, operation.key)

    @staticmethod
    def _set(namespace: _Namespace, key: str, node: Any) -> None:
        place, last = _made(namespace.root, key)
        place[last] = node

    @staticmethod
    def _append(namespace: _Namespace, key: str, value: bytes) -> None:
        place, last = _made(namespace.root, key)
        found = place.get(last)
        if isinstance(found, bytearray):
            found += value
        elif isinstance(found, bytes):
            place[last] = bytearray(found + value)
        else:
            place[last] = value

    @staticmethod
    def _remove(namespace: _Namespace, key: str) -> None:
        *parents, last = key.split(".")
        path = [namespace.root]
        for name in parents:
            following = path[-1].get(name)
            if not isinstance(following, dict):
                return
            path.append(following)
        path[-1].pop(last, None)
        for place, name in zip(reversed(path[:-1]), reversed(parents), strict=True):
            if place[name]:
                break
            del place[name]

    # Reading

    def lookup(self, key: str, namespace: str = PRIMARY) -> bytes:
        """Give a value. Raises RpcError: ENOENT, or EISDIR for a directory."""
        found = self._resolve(key, namespace)
        if found is None:
            raise RpcError(errno.ENOENT)
        if not isinstance(found, _VALUE):
            raise RpcError(errno.EISDIR)
        return bytes(found)

    def get(self, key: str, namespace: str = PRIMARY) -> bytes | None:
        """Give a value, or None where there is none."""
        found = self._resolve(key, namespace)
        return bytes(found) if isinstance(found, _VALUE) else None

    def names(self, key: str, namespace: str = PRIMARY) -> list[str]:
        """Give the names in a directory, sorted; none if there is no such directory."""
        found = self._resolve(key, namespace)
        return sorted(found) if isinstance(found, dict) else []

    def namespaces(self) -> list[str]:
        """Give the names of all namespaces."""
        return list(self._namespaces)

    def owner(self, namespace: str) -> int | None:
        """Give who owns a namespace; None if there is none of that name."""
        found = self._namespaces.get(namespace)
        return None if found is None else found.owner

    async def follow(
        self,
        key: str,
        namespace: str = PRIMARY,
        *,
        final: Callable[[], bool] = lambda: False,
        also: str | None = None,
    ) -> AsyncIterator[bytes]:
        """Give what is in a value, and whatever is appended to it, wherever its link leads.

        Waits for the key if it is not there. Ends when nothing is left to give and
        `final` says that nothing will come; it is asked at every change of the
        value, and of the primary key `also`.
        """
        offset = 0
        changed = asyncio.Event()
        watched: set[tuple[str, str]] = set()
        try:
            while True:
                changed.clear()
                places, found = self._walk(key, namespace)
                wanted = {*places, (PRIMARY, also or key)}
                for place in watched - wanted:
                    self._unwatch(*place, changed)
                for place in wanted - watched:
                    self._watch(*place, changed)
                watched = wanted
                if isinstance(found, _VALUE) and len(found) > offset:
                    chunk, offset = bytes(found[offset:]), len(found)
                    yield chunk
                elif final():
                    return
                else:
                    await changed.wait()
        finally:
            for place in watched:
                self._unwatch(*place, changed)

    def _resolve(self, key: str, namespace: str) -> Any:
        _, found = self._walk(key, namespace)
        return found

    def _walk(self, key: str, namespace: str) -> tuple[list[tuple[str, str]], Any]:
        """Give where a key is looked for, which is here and where links lead, and what it has."""
        places = [(namespace, key)]
        space = self._namespaces.get(namespace)
        found: Any = space.root if space else None
        names = _names(key)
        for index, name in enumerate(names):
            found = found.get(name) if isinstance(found, dict) else None
            if isinstance(found, _Link):
                further, found = self._walk(".".join(names[index + 1 :]), found.namespace)
                return [*places, *further], found
        return places, found

    # Waking

    def _watch(self, namespace: str, key: str, changed: asyncio.Event) -> None:
        self._watchers.setdefault(namespace, _Watched()).add(_names(key), changed)

    def _unwatch(self, namespace: str, key: str, changed: asyncio.Event) -> None:
        self._watchers[namespace].discard(_names(key), changed)
        if not self._watchers[namespace]:
            del self._watchers[namespace]

    def _wake(self, namespace: str, key: str) -> None:
        watched = self._watched(namespace, key)
        if watched is not None:
            watched.wake()

    def _wake_below(self, namespace: str, key: str) -> None:
        watched = self._watched(namespace, key)
        if watched is not None:
            watched.wake_all()

    def _watched(self, namespace: str, key: str) -> _Watched | None:
        watched = self._watchers.get(namespace)
        return None if watched is None else watched.find(_names(key))

    # Restarting

    def _snapshot(self) -> Iterable[bytes]:
        for name, namespace in self._namespaces.items():
            if name != PRIMARY:
                yield _encoder.encode(_Record((create_namespace(name, namespace.owner),)))
            for key, node in _leaves(namespace.root):
                if isinstance(node, _Link):
                    operation = Operation("link", name, key, node.namespace.encode())
                else:
                    operation = put(key, bytes(node), name)
                yield _encoder.encode(_Record((operation,)))
            for writer, sequence in namespace.writers.items():
                # To create what is there does nothing: the record keeps the number alone.
                nothing = create_namespace(name, namespace.owner)
                yield _encoder.encode(_Record((nothing,), writer, sequence))

    # Serving

    def methods(self) -> Methods:
        """Give the `kvs` service. Guests reach the namespaces that they own."""
        return {
            "lookup": Method(self._serve_lookup, guest=True),
            "commit": Method(self._serve_commit, guest=True),
        }

    async def _serve_lookup(self, request: Request) -> Payload:
        namespace = self._permitted(request)
        return {"val": treeobj.val(self.lookup(str(request.payload.get("key", "")), namespace))}

    async def _serve_commit(self, request: Request) -> Payload:
        namespace = self._permitted(request)
        entries = request.payload.get("ops") or []
        writer = request.payload.get("writer", "")
        sequence = request.payload.get("sequence", 0)
        if not (
            isinstance(entries, list) and isinstance(writer, str) and isinstance(sequence, int)
        ):
            raise RpcError(errno.EPROTO, "kvs.commit takes ops, writer and sequence")
        operations = [_operation(entry, namespace) for entry in entries]
        if operations:
            await self.commit(operations, writer, sequence)
        return {}

    def _permitted(self, request: Request) -> str:
        namespace = str(request.payload.get("namespace", PRIMARY))
        owner = self.owner(namespace)
        if owner is None:
            raise RpcError(errno.ENOENT, f"there is no namespace {namespace}")
        if not request.cred.owner and (namespace == PRIMARY or owner != request.cred.userid):
            raise RpcError(errno.EPERM)
        return namespace


def _operation(entry: Any, namespace: str) -> Operation:
    """Read one entry of a commit request: `{key, flags, dirent}`."""
    try:
        key, flags, dirent = entry["key"], entry.get("flags", 0), entry["dirent"]
        if not isinstance(key, str):
            raise TypeError("the key is not a string")
        if dirent is None:
            return Operation("unlink", namespace, key)
        deed: Literal["append", "put"] = "append" if flags & _APPEND else "put"
        return Operation(deed, namespace, key, treeobj.read_val(dirent))
    except (KeyError, TypeError, AttributeError, BadFormat) as error:
        raise RpcError(errno.EPROTO, f"a malformed KVS operation: {error}") from None


def _names(key: str) -> list[str]:
    return key.split(".") if key and key != "." else []


def _made(root: _Directory, key: str) -> tuple[_Directory, str]:
    """Give the directory that a key is in, which is made if it is not there, and its last name."""
    *parents, last = key.split(".")
    place = root
    for name in parents:
        following = place.get(name)
        if not isinstance(following, dict):
            following = place[name] = {}
        place = following
    return place, last


def _leaves(directory: _Directory, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, node in directory.items():
        if isinstance(node, dict):
            yield from _leaves(node, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", node
