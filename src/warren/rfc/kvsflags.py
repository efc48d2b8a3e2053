"""Flags of requests to the key-value store: of lookups, watches and commits.

Numbers are those of flux-core's `kvs.lookup`, `kvs-watch.lookup` and `kvs.commit`.
"""

from typing import Final

READDIR: Final = 1
READLINK: Final = 2
WATCH: Final = 4
WAITCREATE: Final = 8
TREEOBJ: Final = 16
WATCH_FULL: Final = 64
WATCH_UNIQ: Final = 128
WATCH_APPEND: Final = 256
STREAM: Final = 512
WATCH_INITIAL_SENTINEL: Final = 1024

TXN_APPEND: Final = 32
"""Of one operation of a commit: add to the value that is there."""
