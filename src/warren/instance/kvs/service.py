"""What may be asked of the KVS: `kvs.*`, and `kvs-watch.lookup`.

The owner reaches every namespace, a guest those that it owns, and never the primary one.
Topics, payloads and flags are those of the field. Three things are ours: `kvs.commit` takes
a `writer` and its `sequence`, so that a repeated request counts once; it leaves out the
`rootref` where the request says `"rootref": false`, for it costs a digest of everything that
has changed; and `kvs.list` gives the names in a directory, and what they are, with no digest
at all.
"""

import errno
import math
from collections.abc import Callable
from typing import Any, Final

from warren.instance.kvs import cost, dirents
from warren.instance.kvs import operations as ops
from warren.instance.kvs.operations import PRIMARY
from warren.instance.kvs.packs import Pack
from warren.instance.kvs.pastroot import BlobLookup, PastRoot
from warren.instance.kvs.spelling import parse_key, resolve
from warren.instance.kvs.store import Kvs, LookupResult
from warren.instance.kvs.tree import VALUE_TYPES, Directory, Link
from warren.rfc import treeobj
from warren.rfc.errors import BadFormat
from warren.rfc.kvsflags import READDIR, READLINK, TREEOBJ
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Cred, Payload, Request, RpcError

_SYNC: Final = 4
_COMMIT_FLAGS: Final = 1 | 2 | _SYNC
"""NO_MERGE and TXN_COMPACT change nothing here, and what is committed is synced in any case."""

LARGEST_ANSWER: Final = 8 * 2**20
"""Bytes of the longest value that is in one answer: longer ones are streamed, or read in blobs."""


class KvsService:
    """The `kvs` service."""

    def __init__(self, kvs: Kvs, namespace_limit: float = math.inf) -> None:
        """`namespace_limit` is how many bytes guests may write to one namespace."""
        self._kvs = kvs
        self._namespace_limit = namespace_limit

    def methods(self) -> Methods:
        return {
            "lookup": Method(self._lookup, guest=True),
            "list": Method(self._list, guest=True),
            "commit": Method(self._commit, guest=True),
            "getroot": Method(self._getroot, guest=True),
            "wait-version": Method(self._wait_version, guest=True),
            "namespace-create": Method(self._create),
            "namespace-remove": Method(self._remove),
            "namespace-list": Method(self._namespaces, guest=True),
        }

    # Reading

    async def _lookup(self, request: Request) -> Payload:
        lookup = Lookup(self._kvs, request, READDIR | READLINK | TREEOBJ)
        rootdir = request.payload.get("rootdir")
        if rootdir is None:
            return {"val": await lookup.object(lookup.find())}
        if not request.cred.is_owner:
            raise RpcError(errno.EPERM, "only the instance owner reads below a rootref")
        return {"val": lookup.read_rootdir(rootdir)}

    async def _list(self, request: Request) -> Payload:
        lookup = Lookup(self._kvs, request, 0)
        found = lookup.directory(lookup.find())
        return {"entries": {name: _node_type(node) for name, node in sorted(found.items())}}

    async def _getroot(self, request: Request) -> Payload:
        name = permitted_namespace(self._kvs, request)
        rootref = await self._kvs.refs.ref(self._kvs.root(name))
        return {
            "owner": self._kvs.owner(name),
            "rootseq": self._kvs.version(name),
            "rootref": rootref,
            "flags": 0,
            "namespace": name,
        }

    async def _wait_version(self, request: Request) -> Payload:
        name = permitted_namespace(self._kvs, request)
        rootseq = request.payload.get("rootseq")
        if type(rootseq) is not int:
            raise RpcError(errno.EPROTO, "kvs.wait-version takes a namespace and a rootseq")
        with self._kvs.watcher(recursive=True) as watcher:
            while True:
                watcher.watch({(name, ())})
                if self._kvs.owner(name) is None:
                    raise RpcError(errno.ENOTSUP, f"the namespace {name} was removed")
                if self._kvs.version(name) >= rootseq:
                    return await self._root_state(request, name)
                await watcher.wait()

    # Writing

    async def _commit(self, request: Request) -> Payload:
        name = permitted_namespace(self._kvs, request)
        payload = request.payload
        entries, flags = payload.get("ops", []), payload.get("flags", 0)
        writer, sequence = payload.get("writer", ""), payload.get("sequence", 0)
        if not (
            isinstance(entries, list) and isinstance(writer, str)
            and type(sequence) is int and abs(sequence) < 2**63 and type(flags) is int
        ):  # fmt: skip
            raise RpcError(errno.EPROTO, "kvs.commit takes ops, flags, writer and sequence")
        if flags & ~_COMMIT_FLAGS or (flags & _SYNC and name != PRIMARY):
            raise RpcError(errno.EINVAL, f"kvs.commit does not know the flags {flags} in {name}")
        find_blob = self._kvs.blob if request.cred.is_owner else None
        operations = [
            _operation(index, entry, name, find_blob) for index, entry in enumerate(entries)
        ]
        if not request.cred.is_owner:
            if sum(map(cost.entry_count, operations)) > cost.MOST_ENTRIES:
                message = f"the commit makes over {cost.MOST_ENTRIES} entries: send less in one"
                raise RpcError(errno.EMSGSIZE, message)
            size = sum(map(cost.byte_count, operations))
            self._kvs.charge(
                name, size + len(writer), self._namespace_limit, is_running=bool(writer)
            )
        if not writer:
            # What has a writer is a running job's, which has nowhere else to put it: it waits.
            self._check_room()
        if operations:
            await self._kvs.transact(operations, writer, sequence)
        return await self._root_state(request, name)

    async def _root_state(self, request: Request, name: str) -> Payload:
        """Return the root reference and the sequence number of a namespace."""
        answer: dict[str, Any] = {}
        if request.payload.get("rootref") is not False:
            answer["rootref"] = await self._kvs.refs.ref(self._kvs.root(name))
        return {"rootseq": self._kvs.version(name), **answer}

    def _check_room(self) -> None:
        if self._kvs.full_reason is not None:
            raise RpcError(errno.ENOSPC, self._kvs.full_reason)

    # Namespaces

    async def _create(self, request: Request) -> Payload:
        name, owner = request.payload.get("namespace"), request.payload.get("owner")
        rootref, flags = request.payload.get("rootref"), request.payload.get("flags", 0)
        if owner is None:
            owner = request.cred.userid
        if not isinstance(name, str) or type(owner) is not int or not 0 <= owner < 2**32:
            raise RpcError(errno.EPROTO, "kvs.namespace-create takes a namespace and its owner")
        if not name or "." in name or flags != 0:
            raise RpcError(errno.EINVAL, "a namespace has a name without dots, and no flags")
        self._check_room()
        entries: dict[str, Any] = {}
        if rootref is not None:
            entries = dirents.TreeReader(self._kvs.blob).directory_of(_ref(rootref))
        await self._kvs.transact([ops.create_namespace(name, owner, entries)])
        return {}

    async def _remove(self, request: Request) -> Payload:
        name = request.payload.get("namespace")
        if not isinstance(name, str):
            raise RpcError(errno.EPROTO, "kvs.namespace-remove takes a namespace")
        if name == PRIMARY:
            raise RpcError(errno.ENOTSUP, "the primary namespace stays")
        await self._kvs.transact([ops.remove_namespace(name)])
        return {}

    async def _namespaces(self, request: Request) -> Payload:
        names_and_owners = ((name, self._kvs.owner(name)) for name in self._kvs.namespaces())
        return {
            "namespaces": [
                {"namespace": name, "owner": owner, "flags": 0}
                for name, owner in names_and_owners
                if _is_permitted(request.cred, name, owner)
            ]
        }


def _operation(
    index: int, entry: Any, namespace: str, find_blob: BlobLookup | None
) -> ops.Operation:
    try:
        return dirents.read_operation(entry, namespace, find_blob)
    except RpcError as error:
        raise RpcError(error.errnum, f"operation {index}: {error}") from None


class Lookup:
    """A request to look up a key: whose it is, where the key is, and in which form to answer."""

    def __init__(
        self, kvs: Kvs, request: Request, allowed_flags: int, largest_answer: int = LARGEST_ANSWER
    ) -> None:
        self._kvs = kvs
        self.namespace = permitted_namespace(kvs, request)
        flags = request.payload.get("flags", 0)
        if type(flags) is not int:
            raise RpcError(errno.EPROTO, "flags is not a number")
        if flags & ~allowed_flags or (flags & READLINK and flags & READDIR):
            raise RpcError(errno.EINVAL, f"{request.topic} does not know the flags {flags}")
        self.flags = flags
        self._largest_answer = largest_answer
        key = request.payload.get("key", ".")
        self._names = parse_key(key)
        self._must_be_directory = len(self._names) > 0 and key.endswith(".")
        self._is_permitted: Callable[[str], bool] = lambda name: _is_permitted(
            request.cred, name, self._kvs.owner(name)
        )

    def find(self) -> LookupResult:
        """Look for the key, as things are now."""
        names = resolve(self._kvs, self._names, self.namespace)
        follow_symlinks = self._must_be_directory or not self.flags & (READLINK | TREEOBJ)
        return self._kvs.find(
            names, self.namespace, follow_symlinks=follow_symlinks, permitted=self._is_permitted
        )

    async def object(self, found: LookupResult) -> dict[str, Any]:
        """Return what was found as the tree object that was asked for. Raises RpcError."""
        # Both is what names the directory, not what lists it.
        if self.flags & READDIR and not self.flags & TREEOBJ:
            return await self._kvs.refs.directory_object(self.directory(found))
        node = self.node(found)
        if self.flags & READLINK and not isinstance(node, Link):
            raise RpcError(errno.EINVAL, "it is no link")
        if self.flags & (READLINK | TREEOBJ):
            return await self._kvs.refs.object(node)
        return treeobj.val(self.value(found))

    def value(self, found: LookupResult) -> bytes:
        """Return the value that was found. Raises RpcError."""
        node = self.node(found)
        if not isinstance(node, VALUE_TYPES):
            raise RpcError(errno.EISDIR)
        if len(node) > self._largest_answer:
            raise RpcError(errno.EFBIG, f"it has {len(node)} bytes: read it as a stream")
        return bytes(node)

    def directory(self, found: LookupResult) -> Directory:
        """Return the directory that was found. Raises RpcError."""
        node = self.node(found)
        if not isinstance(node, Directory):
            raise RpcError(errno.ENOTDIR)
        return node

    def node(self, found: LookupResult) -> Any:
        """Return the node that was found. Raises RpcError."""
        if found.node is None:
            raise found.refusal or RpcError(errno.ENOENT)
        if self._must_be_directory and not isinstance(found.node, Directory):
            raise RpcError(errno.ENOTDIR)
        return found.node

    def read_rootdir(self, rootdir: Any) -> dict[str, Any]:
        """Return the tree object of the key below a root that was given out. Raises RpcError."""
        try:
            treeobj.check(rootdir)
        except BadFormat as error:
            raise RpcError(errno.EPROTO, f"rootdir: {error}") from None
        past = PastRoot(self._kvs.blob)
        follow_symlinks = not self.flags & (READLINK | TREEOBJ)
        found = past.find(rootdir, self._names, follow_symlinks=follow_symlinks)
        if self.flags & READDIR and not self.flags & TREEOBJ:
            return treeobj.directory(past.entries(found))
        if self.flags & READLINK and found["type"] != "symlink":
            raise RpcError(errno.EINVAL, "it is no link")
        if self.flags & (READLINK | TREEOBJ):
            return dict(found)
        return treeobj.val(past.value(found))


def permitted_namespace(kvs: Kvs, request: Request) -> str:
    """Return the namespace of a request. Raises RpcError: EPROTO, ENOTSUP, or EPERM."""
    name = request.payload.get("namespace", PRIMARY)
    if not isinstance(name, str):
        raise RpcError(errno.EPROTO, "the namespace is not a string")
    owner = kvs.owner(name)
    if owner is None:
        raise RpcError(errno.ENOTSUP, f"there is no namespace {name}")
    if not _is_permitted(request.cred, name, owner):
        raise RpcError(errno.EPERM)
    return name


def _is_permitted(cred: Cred, name: str, owner: int | None) -> bool:
    return cred.is_owner or (name != PRIMARY and owner == cred.userid)


def _node_type(node: Any) -> str:
    if isinstance(node, Directory | Pack):
        return "dir"
    return "symlink" if isinstance(node, Link) else "val"


def _ref(rootref: Any) -> str:
    try:
        return treeobj.check_blobref(rootref, "rootref")
    except BadFormat as error:
        raise RpcError(errno.EPROTO, str(error)) from None
