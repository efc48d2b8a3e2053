"""Tree objects of what is in the store, and blobs by their digests (RFC 10, 11).

Nothing here is made before it is asked for. A directory keeps its digest until something
in it or below it changes, so that to ask again costs what has changed since, and the
directories on the way there.

Which blobs can be had: those of directories as they are now; those that were made for
digests that were given out, the latest 64 MiB, and 16 MiB of what was packed then; and those
that clients have stored, the latest 64 MiB. What is in a directory is known from when the
directory's own blob was asked for. So a client that was given a root, and goes down from it, finds
everything, until too much has changed since. What is committed by its digest is copied, and
stays though its blob goes.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import orjson

from warren.instance.kvs.packs import Pack, PackCache
from warren.instance.kvs.tree import Directory, Link, unpack
from warren.rfc import treeobj
from warren.rfc.treeobj import Algorithm

LONGEST_INLINE: Final = 72
"""Base64 characters of the longest value that is in its directory; others are blobs."""

LARGEST_BLOB: Final = 2**20
"""Bytes of the largest blob."""

CACHE_BYTES: Final = 64 * 2**20
"""Bytes of the latest blobs that are kept, of each sort."""

_SLICE_SECONDS: Final = 0.004
_PASSES: Final = 3
"""How often others have their turn while a digest is made, until it is made in one go."""


class _RecentBlobs:
    """The latest blobs, up to so many bytes."""

    def __init__(self, cache_bytes: int) -> None:
        self._cache_bytes = cache_bytes
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def keep(self, ref: str, blob: bytes) -> None:
        if ref in self._blobs:
            self._blobs.move_to_end(ref)
            return
        self._blobs[ref] = blob
        self._size += len(blob)
        while self._size > self._cache_bytes:
            _, oldest = self._blobs.popitem(last=False)
            self._size -= len(oldest)

    def find(self, ref: str) -> bytes | None:
        return self._blobs.get(ref)


class Refs:
    """Digests and blobs."""

    def __init__(
        self, algorithm: Algorithm, packs: PackCache, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self.algorithm: Algorithm = algorithm
        self._packs = packs
        self._made_blobs = _RecentBlobs(cache_bytes)
        self._client_blobs = _RecentBlobs(cache_bytes)

    # Blobs

    def store(self, blob: bytes) -> str:
        """Keep a client's blob, and return its name."""
        ref = treeobj.blobref(blob, self.algorithm)
        self._client_blobs.keep(ref, blob)
        return ref

    def load(self, ref: str, roots: Iterable[Directory]) -> bytes | None:
        """Return a blob, or None; `roots` are where directories are looked for."""
        for cache in (self._client_blobs, self._made_blobs):
            found = cache.find(ref)
            if found is not None:
                return found
        return self._make_blob(ref, roots)

    def _make_blob(self, ref: str, roots: Iterable[Directory]) -> bytes | None:
        """Make the blob of a directory that has the digest, and keep those of its values."""
        algorithm, _, digits = ref.partition("-")
        if algorithm != self.algorithm:
            return None
        digest = bytes.fromhex(digits)
        pending = list(roots)
        while pending:
            directory = pending.pop()
            if directory.digest == digest:
                return self._blob(directory)
            for node in directory.values():
                if isinstance(node, Directory):
                    pending.append(node)
            found = self._find_packed(_packs(directory), digest)
            if found is not None:
                return found
        return self._find_packed(self._packs.outdated, digest)

    def _find_packed(self, packs: Iterable[Pack], digest: bytes) -> bytes | None:
        for packed in packs:
            for name, each in (packed.digests or {}).items():
                if each == digest:
                    return self._packed_blob(packed, name)
        return None

    def _packed_blob(self, packed: Pack, name: str) -> bytes:
        """Return the blob of a directory in a pack, and keep those of all that is below it."""
        directory = unpack(self._packs.entries(packed)[name], 0, 0)
        assert isinstance(directory, Directory)
        self.ref_now(directory)
        return self._blob(directory)

    # Tree objects

    async def ref(self, root: Directory) -> str:
        """Return the blobref of a directory as it is now. Others have their turn meanwhile."""
        for _ in range(_PASSES):
            began = asyncio.get_running_loop().time()
            for _ in self._hash_missing(root):
                if asyncio.get_running_loop().time() - began > _SLICE_SECONDS:
                    await asyncio.sleep(0)
                    began = asyncio.get_running_loop().time()
            if root.digest is not None:
                return self._blobref(root.digest)
        # It changes faster than that: what has changed since the last pass is little.
        return self.ref_now(root)

    def ref_now(self, root: Directory) -> str:
        """Return the blobref of a directory at once."""
        for _ in self._hash_missing(root):
            pass
        assert root.digest is not None
        return self._blobref(root.digest)

    async def object(self, node: Any) -> dict[str, Any]:
        """Return the tree object of a node: a directory is a dirref."""
        if isinstance(node, Directory):
            return treeobj.dirref(await self.ref(node))
        return self._leaf_object(node)

    async def directory_object(self, directory: Directory) -> dict[str, Any]:
        """Return the tree object of a directory with what is in it."""
        await self.ref(directory)
        return {"ver": 1, "type": "dir", "data": self._entries(directory)}

    def _blobref(self, digest: bytes) -> str:
        return f"{self.algorithm}-{digest.hex()}"

    def _hash_missing(self, root: Directory) -> Iterator[None]:
        """Make the digests that are missing at a directory and below, the deepest first.

        Between two steps anything may change.
        """
        pending: list[tuple[Directory, bool]] = [(root, False)]
        while pending:
            directory, ready = pending.pop()
            if directory.digest is not None:
                continue
            if not ready:
                pending.append((directory, True))
                for packed in _packs(directory):
                    if packed.digests is None:
                        self._hash_pack(packed)
                        yield
                pending += [
                    (node, False)
                    for node in list(directory.values())
                    if isinstance(node, Directory)
                ]
                continue
            if any(
                (isinstance(node, Directory) and node.digest is None)
                or (isinstance(node, Pack) and node.digests is None)
                for node in directory.values()
            ):  # fmt: skip
                continue  # changed meanwhile: the next pass does it
            blob = self._blob(directory)
            directory.digest = self._digest(blob)
            self._made_blobs.keep(self._blobref(directory.digest), blob)
            yield

    def _hash_pack(self, packed: Pack) -> None:
        # Their blobs are not kept: they can be made again, for packs do not change.
        packed.digests = {
            name: self._packed_digest(each) for name, each in self._packs.entries(packed).items()
        }

    def _packed_digest(self, entries: Mapping[str, Any]) -> bytes:
        """Return the digest of a directory that is as packs have it."""
        objects: dict[str, Any] = {}
        for name, node in entries.items():
            if isinstance(node, dict):
                objects[name] = treeobj.dirref(self._blobref(self._packed_digest(node)))
            else:
                objects[name] = self._leaf_object(unpack(node, 0, 0), keep=False)
        return self._digest(_encode({"ver": 1, "type": "dir", "data": objects}))

    def _blob(self, directory: Directory) -> bytes:
        return _encode({"ver": 1, "type": "dir", "data": self._entries(directory)})

    def _entries(self, directory: Directory) -> dict[str, Any]:
        """Return the tree objects in a directory, whose directories have their digests."""
        objects: dict[str, Any] = {}
        for name, node in directory.items():
            if isinstance(node, Directory | Pack):
                digest = node.digest if isinstance(node, Directory) else (node.digests or {})[name]
                assert digest is not None
                objects[name] = treeobj.dirref(self._blobref(digest))
            else:
                objects[name] = self._leaf_object(node)
        return objects

    def _leaf_object(self, node: Any, *, keep: bool = True) -> dict[str, Any]:
        """Return the tree object of a value or a link."""
        if isinstance(node, Link):
            return treeobj.symlink(node.target, node.namespace or None)
        if 4 * ((len(node) + 2) // 3) <= LONGEST_INLINE:
            return treeobj.val(bytes(node))
        refs = []
        for start in range(0, len(node), LARGEST_BLOB):
            blob = bytes(node[start : start + LARGEST_BLOB])
            refs.append(treeobj.blobref(blob, self.algorithm))
            if keep:
                self._made_blobs.keep(refs[-1], blob)
        return treeobj.valref(refs)

    def _digest(self, blob: bytes) -> bytes:
        return hashlib.new(self.algorithm, blob, usedforsecurity=False).digest()


def _packs(directory: Directory) -> set[Pack]:
    return {node for node in directory.values() if isinstance(node, Pack)}


def _encode(obj: Mapping[str, Any]) -> bytes:
    # As treeobj.encode writes it, which would check each time what cannot be wrong here.
    return orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)
