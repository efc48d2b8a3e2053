"""Keys below a root that was given out, as they were then, as far as its blobs are known."""

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warren.instance.kvs.tree import MOST_LINKS, split_key
from warren.rfc import treeobj
from warren.rfc.errors import BadFormat
from warren.rpc.message import RpcError

BlobLookup = Callable[[str], bytes | None]
"""Returns a blob by its blobref."""


class PastRoot:
    """Lookups in blobs. All raise RpcError: ENOENT also for a blob that is kept no more."""

    def __init__(self, find_blob: BlobLookup) -> None:
        self._find_blob = find_blob

    def find(
        self, root: Mapping[str, Any], names: Sequence[str], *, follow_symlinks: bool
    ) -> Mapping[str, Any]:
        """Return the tree object of a key, behind a link at its very end if `follow_symlinks`."""
        for _ in range(MOST_LINKS + 1):
            found = root
            for depth, name in enumerate(names):
                entries = self.entries(found) if found["type"] in ("dir", "dirref") else {}
                if name not in entries:
                    raise RpcError(errno.ENOENT)
                found = entries[name]
                if found["type"] == "symlink" and (follow_symlinks or depth + 1 < len(names)):
                    break
            else:
                return found
            if "namespace" in found["data"]:
                raise RpcError(errno.EINVAL, "a link leads to another namespace, not to its past")
            names = [*split_key(found["data"]["target"]), *names[depth + 1 :]]
        raise RpcError(errno.ELOOP)

    def entries(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what is in a directory. Raises RpcError(ENOTDIR) where it is none."""
        if obj["type"] == "dirref":
            try:
                obj = treeobj.decode(self._blob(obj["data"][0]))
            except BadFormat:
                raise RpcError(errno.ENOTDIR) from None
        if obj["type"] != "dir":
            raise RpcError(errno.ENOTDIR)
        entries: Mapping[str, Any] = obj["data"]
        return entries

    def value(self, obj: Mapping[str, Any]) -> bytes:
        """Return a value. Raises RpcError(EISDIR) for a directory."""
        if obj["type"] == "val":
            return treeobj.read_val(obj)
        if obj["type"] != "valref":
            raise RpcError(errno.EISDIR)
        return b"".join(map(self._blob, obj["data"]))

    def _blob(self, ref: str) -> bytes:
        blob = self._find_blob(ref)
        if blob is None:
            raise RpcError(errno.ENOENT, f"the blob {ref} is not known any more")
        return blob
