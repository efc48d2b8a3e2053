"""`kvs-watch.lookup`: what a key has, and what it has whenever that changes.

An answer is made when its reader has taken the one before: a slow reader sees less
of what is between, and costs no more. With WATCH_APPEND nothing is left out, for what was
appended is still there.

A missing key ends the stream with ENOENT; with WAITCREATE its first value is waited for. A
namespace that goes away ends it with ENOTSUP. Without WATCH, a stream ends after its first
answer, or after the last part of it with STREAM.
"""

import errno
import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

import orjson

from warren.instance.kvs.operations import PRIMARY
from warren.instance.kvs.refs import LARGEST_BLOB
from warren.instance.kvs.service import LARGEST_ANSWER, Lookup
from warren.instance.kvs.store import Kvs, LookupResult
from warren.instance.kvs.tree import VALUE_TYPES
from warren.rfc import treeobj
from warren.rfc.kvsflags import (
    READDIR,
    READLINK,
    STREAM,
    TREEOBJ,
    WAITCREATE,
    WATCH,
    WATCH_APPEND,
    WATCH_FULL,
    WATCH_INITIAL_SENTINEL,
    WATCH_UNIQ,
)
from warren.rpc.bus import Methods, StreamingMethod
from warren.rpc.message import Payload, Request, RpcError

_FORMS: Final = READDIR | READLINK | TREEOBJ
_WATCH_MODES: Final = WATCH_FULL | WATCH_UNIQ | WATCH_APPEND
_ALLOWED_FLAGS: Final = _FORMS | WATCH | WAITCREATE | _WATCH_MODES | STREAM | WATCH_INITIAL_SENTINEL


class KvsWatch:
    """The `kvs-watch` service."""

    def __init__(
        self, kvs: Kvs, *, largest_answer: int = LARGEST_ANSWER, part_bytes: int = LARGEST_BLOB
    ) -> None:
        """An answer has up to `largest_answer` bytes of a value; in a stream, `part_bytes`."""
        self._kvs = kvs
        self._largest_answer = largest_answer
        self._part_bytes = part_bytes

    def methods(self) -> Methods:
        return {"lookup": StreamingMethod(self._lookup, guest=True)}

    async def _lookup(self, request: Request) -> AsyncIterator[Payload]:
        await self._wait_namespace(request)
        lookup = Lookup(self._kvs, request, _ALLOWED_FLAGS, self._largest_answer)
        flags = lookup.flags
        if flags & _WATCH_MODES and not flags & WATCH:
            raise RpcError(errno.EINVAL, "WATCH_FULL, WATCH_UNIQ and WATCH_APPEND need WATCH")
        if flags & (WATCH_APPEND | STREAM) and flags & _FORMS:
            message = "WATCH_APPEND and STREAM do not go with READDIR, READLINK or TREEOBJ"
            raise RpcError(errno.EINVAL, message)
        state = _ReaderState(lookup, self._part_bytes)
        # Values are told of by their keys; of a directory, everything below it is a part.
        with self._kvs.watcher(recursive=bool(flags & _FORMS)) as watcher:
            while True:
                found = lookup.find()
                watcher.watch(set(found.traversed))
                if self._kvs.owner(lookup.namespace) is None:
                    raise RpcError(errno.ENOTSUP, f"the namespace {lookup.namespace} was removed")
                if found.node is None and flags & WAITCREATE and not state.has_sent:
                    await watcher.wait()
                    continue
                is_first = not state.has_sent
                async for answer in state.answers(found):
                    yield answer
                    del answer  # it may be large, and the next one may be long in coming
                del found
                if is_first and flags & WATCH_INITIAL_SENTINEL:
                    yield {"val": None}
                if not flags & WATCH:
                    return
                await watcher.wait()

    async def _wait_namespace(self, request: Request) -> None:
        """Wait until a namespace is made. Only the owner may: it has no other yet."""
        name, flags = request.payload.get("namespace", PRIMARY), request.payload.get("flags", 0)
        if not (
            isinstance(name, str) and type(flags) is int
            and flags & WAITCREATE and request.cred.is_owner
        ):  # fmt: skip
            return
        with self._kvs.watcher() as watcher:
            while self._kvs.owner(name) is None:
                watcher.watch({(name, ())})
                await watcher.wait()


class _ReaderState:
    """What a reader has seen: how much of a value, or its digest."""

    def __init__(self, lookup: Lookup, part_bytes: int) -> None:
        self._lookup_request = lookup
        self._part_bytes = part_bytes
        self._offset = 0
        self._digest = b""
        self.has_sent = False

    async def answers(self, found: LookupResult) -> AsyncIterator[Payload]:
        """Return what a reader is to see now. Raises RpcError where that is the end."""
        flags = self._lookup_request.flags
        if flags & (WATCH_APPEND | STREAM):
            for part in self._parts(found):
                self.has_sent = True
                yield {"val": treeobj.val(part)}
            return
        obj = await self._lookup_request.object(found)
        if flags & (WATCH_FULL | WATCH_UNIQ):
            digest = hashlib.sha1(orjson.dumps(obj), usedforsecurity=False).digest()
            if digest == self._digest:
                return
            self._digest = digest
        self.has_sent = True
        yield {"val": obj}

    def _parts(self, found: LookupResult) -> Iterator[bytes]:
        """Return a value in parts of which none is too large for a message."""
        node = self._lookup_request.node(found)
        if not isinstance(node, VALUE_TYPES):
            raise RpcError(errno.EISDIR)
        if not self._lookup_request.flags & WATCH_APPEND:
            self._offset = 0
        if len(node) < self._offset:
            raise RpcError(errno.EINVAL, "the value was replaced by a shorter one")
        if not node and not self.has_sent:
            yield b""
        while self._offset < len(node):
            part = bytes(node[self._offset : self._offset + self._part_bytes])
            self._offset += len(part)
            yield part
