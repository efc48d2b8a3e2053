"""What a client commits: tree objects, read into operations.

`val` and `valref` are values, `dir` and `dirref` directories with all that is in them,
`symlink` is a link, and null removes. What a tree object names by its digest is looked up
now, and copied.
"""

import errno
from collections.abc import Mapping
from typing import Any, Final

from warren.instance.kvs import operations as ops
from warren.instance.kvs.operations import Operation
from warren.instance.kvs.pastroot import BlobLookup
from warren.instance.kvs.spelling import parse_key, writable_key
from warren.instance.kvs.tree import MAX_DEPTH
from warren.rfc import treeobj
from warren.rfc.errors import BadFormat
from warren.rfc.kvsflags import TXN_APPEND
from warren.rpc.message import RpcError

_MAX_COPIED_BYTES: Final = 64 * 2**20
"""Bytes that one commit may copy from blobs."""


def read_operation(entry: Any, namespace: str, find_blob: BlobLookup | None) -> Operation:
    """Read one entry of a commit: `{key, flags, dirent}`.

    Without `find_blob` it is a guest's, which names none, and makes no links: what guests write is
    read for them by the instance, and in the end stands in its own namespace.

    Raises RpcError: EPERM for that, EPROTO for what is malformed, EINVAL for what is no tree
    object and a key that cannot be written, ENOENT for a blob that is not there, ENOTDIR for one
    that is no directory, EFBIG.
    """
    try:
        key, flags, dirent = entry["key"], entry.get("flags", 0), entry["dirent"]
    except (KeyError, TypeError, AttributeError):
        raise RpcError(errno.EPROTO, "it does not have key, flags and dirent") from None
    if type(flags) is not int or flags & ~TXN_APPEND:
        raise RpcError(errno.EPROTO, f"its flags are {flags!r}, not 0 or {TXN_APPEND}")
    key = writable_key(key)
    if dirent is None:
        return ops.unlink(key, namespace)
    try:
        if flags:
            return ops.append(key, treeobj.read_val(dirent), namespace)
        treeobj.check(dirent)
        node = TreeReader(find_blob).node(dirent, MAX_DEPTH - len(parse_key(key)))
    except BadFormat as error:
        raise RpcError(errno.EINVAL, str(error)) from None
    if isinstance(node, bytes):
        return ops.put(key, node, namespace)
    if isinstance(node, dict):
        return ops.tree(key, node, namespace)
    target, target_namespace = node
    return ops.symlink(key, target, target_namespace, namespace)


class TreeReader:
    """Reads tree objects with everything that they name, up to so many bytes."""

    def __init__(self, find_blob: BlobLookup | None) -> None:
        self._find_blob = find_blob
        self._bytes_left = _MAX_COPIED_BYTES

    def node(self, obj: Mapping[str, Any], depth_left: int = MAX_DEPTH) -> Any:
        """Return a value, a link as (target, namespace), or a directory of such."""
        match obj["type"]:
            case "val":
                return treeobj.read_val(obj)
            case "valref":
                return b"".join(map(self._blob, obj["data"]))
            case "symlink":
                if self._find_blob is None:
                    raise RpcError(errno.EPERM, "links are the instance owner's to make")
                target = ".".join(parse_key(obj["data"]["target"], "the target")) or "."
                return target, obj["data"].get("namespace", "")
            case "dir":
                return self.directory(obj, depth_left)
            case "dirref":
                return self.directory_of(obj["data"][0], depth_left)
        raise RpcError(errno.EINVAL, f"directories of type {obj['type']} are not known here")

    def directory_of(self, ref: str, depth_left: int = MAX_DEPTH) -> dict[str, Any]:
        """Return the directory that a blob is. Raises RpcError(ENOTDIR) where it is none."""
        try:
            obj = treeobj.decode(self._blob(ref))
        except BadFormat:
            obj = {}
        if obj.get("type") != "dir":
            raise RpcError(errno.ENOTDIR, f"the blob {ref} is no directory")
        return self.directory(obj, depth_left)

    def directory(self, obj: Mapping[str, Any], depth_left: int) -> dict[str, Any]:
        """Return what is in a `dir`."""
        if depth_left <= 0:
            raise RpcError(errno.EINVAL, f"a directory is more than {MAX_DEPTH} names deep")
        return {name: self.node(each, depth_left - 1) for name, each in obj["data"].items()}

    def _blob(self, ref: str) -> bytes:
        if self._find_blob is None:
            raise RpcError(errno.EPERM, "blobs are the instance owner's to name")
        blob = self._find_blob(ref)
        if blob is None:
            raise RpcError(errno.ENOENT, f"there is no blob {ref}")
        self._bytes_left -= len(blob)
        if self._bytes_left < 0:
            raise RpcError(errno.EFBIG, f"a commit copies at most {_MAX_COPIED_BYTES} bytes")
        return blob
