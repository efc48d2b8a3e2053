"""Packs: neighbours in a directory that were not used for long, compressed together.

A store remembers far more jobs than it works on. What is over is kept for users that
read it now and then: each of the directories in a pack has its name in the directory
that it is in, and all of them have the pack for their value.
"""

import zlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from warren.instance.kvs.operations import encode

LARGEST_PACK: Final = 64 * 2**10
"""Bytes that go into a pack. To read one of its directories is to decompress all of it."""

_COMPRESSION_LEVEL: Final = 3
_MOST_UNPACKED: Final = 32
"""Packs that are kept decompressed for the next reader."""
_OUTDATED_BYTES: Final = 16 * 2**20
"""Bytes of packs that are kept for their digests though the tree has newer ones in their place."""


class Pack:
    """Some directories by name, compressed. `PackCache.entries` decompresses them."""

    __slots__ = ("compressed", "digests", "initial_count", "last_snapshot")

    def __init__(self, compressed: bytes, directory_count: int, last_snapshot: int) -> None:
        self.compressed = compressed
        self.initial_count = directory_count
        """How many directories were in it when it was made, or read from the journal."""
        self.last_snapshot = last_snapshot
        """The last snapshot that has it."""
        self.digests: Mapping[str, bytes] | None = None
        """The digests of its directories, if they were asked for."""


def pack(entries: Mapping[str, Any], last_snapshot: int) -> Pack:
    """Pack directories, which are as `tree.to_plain` returns them."""
    return Pack(zlib.compress(encode(entries), _COMPRESSION_LEVEL), len(entries), last_snapshot)


class PackCache:
    """A cache: the packs that were read last, and those that roots given out refer to."""

    def __init__(self) -> None:
        self._unpacked: OrderedDict[Pack, dict[str, Any]] = OrderedDict()
        self._outdated_size = 0
        self.outdated: OrderedDict[Pack, None] = OrderedDict()
        """Packs with digests, out of which something was taken: the latest of them. Clients that
        were given the digests still find their blobs."""

    def keep_outdated(self, packed: Pack) -> None:
        """Keep a pack of which the tree has lost something, if its digests are known outside."""
        if packed.digests is None or packed in self.outdated:
            return
        self.outdated[packed] = None
        self._outdated_size += len(packed.compressed)
        while self._outdated_size > _OUTDATED_BYTES:
            oldest, _ = self.outdated.popitem(last=False)
            self._outdated_size -= len(oldest.compressed)

    def entries(self, packed: Pack) -> dict[str, Any]:
        """Return what is in a pack. It is not to be changed."""
        found = self._unpacked.get(packed)
        if found is None:
            found = msgspec.msgpack.decode(zlib.decompress(packed.compressed))
            assert isinstance(found, dict)
            self._unpacked[packed] = found
            if len(self._unpacked) > _MOST_UNPACKED:
                self._unpacked.popitem(last=False)
        else:
            self._unpacked.move_to_end(packed)
        return found
