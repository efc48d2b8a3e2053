"""What a guest's operations cost the store: memory, which is more than what is written, and time.

Keys and values of a few bytes are objects of hundreds, and so is each directory on the way to one.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from warren.instance.kvs.operations import Operation

ENTRY_BYTES: Final = 100
"""Bytes that an entry of a directory is counted for, besides its name and its value."""
DIRECTORY_BYTES: Final = 300
"""Bytes that a directory is counted for, besides what is in it."""

MOST_ENTRIES: Final = 2**13
"""Entries that one commit of a guest's may make: nothing else is done meanwhile."""


def entry_count(operation: Operation) -> int:
    """Return how many entries an operation may make: of directories on the way to its key, too."""
    if operation.action == "unlink":
        return 1
    nested_count = 0
    if operation.action == "tree":
        nested_count = sum(1 for _ in _names_below(msgspec.msgpack.decode(operation.value)))
    return operation.key.count(".") + 1 + nested_count


def byte_count(operation: Operation) -> int:
    """Return how many bytes an operation may take: as if all directories were to be made."""
    directories = entry_count(operation) - 1
    return len(operation.key) + len(operation.value) + ENTRY_BYTES + directories * DIRECTORY_BYTES


def _names_below(directory: Mapping[str, Any]) -> Iterator[str]:
    for name, node in directory.items():
        yield name
        if isinstance(node, dict):
            yield from _names_below(node)
