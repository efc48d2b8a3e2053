"""What can be done to the store, and how the journal writes it down."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from warren.base.errors import UserMistake

PRIMARY: Final = "primary"

Action = Literal[
    "put",
    "append",
    "unlink",
    "link",
    "symlink",
    "tree",
    "create",
    "remove",
    "graft",
    # What only snapshots have.
    "fill",
    "pack",
    "at",  # SET_VERSION
]

SET_VERSION: Final = "at"
"""The action that sets a namespace's version. It keeps its name: journals have it."""


class JournalUnreadable(UserMistake):
    """The KVS's journal has what this Warren cannot read: its admin can mend that."""


class Operation(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One step of a transaction."""

    action: Action
    namespace: str
    key: str = ""
    value: bytes = b""
    """What to put or append; for a link or a graft, the namespace that it is about."""
    owner_or_version: int = 0
    """Of `create`, the owner of the namespace; of SET_VERSION, its version."""


def put(key: str, value: bytes, namespace: str = PRIMARY) -> Operation:
    """Set a key."""
    return Operation("put", namespace, key, value)


def append(key: str, value: bytes, namespace: str = PRIMARY) -> Operation:
    """Add to the end of a key's value; make the key if it is not there."""
    return Operation("append", namespace, key, value)


def unlink(key: str, namespace: str = PRIMARY) -> Operation:
    """Remove a key and what is below it."""
    return Operation("unlink", namespace, key)


def link(key: str, namespace: str) -> Operation:
    """Link a key to a namespace."""
    return Operation("link", PRIMARY, key, namespace.encode())


def symlink(
    key: str, target: str, target_namespace: str = "", namespace: str = PRIMARY
) -> Operation:
    """Link a key to another one, of the same namespace or of the one in `target_namespace`."""
    return Operation("symlink", namespace, key, encode((target, target_namespace)))


def tree(key: str, entries: Mapping[str, Any], namespace: str = PRIMARY) -> Operation:
    """Put a directory at a key: values, links as (target, namespace), and more directories."""
    return Operation("tree", namespace, key, encode(entries))


def create_namespace(name: str, owner: int, entries: Mapping[str, Any] | None = None) -> Operation:
    """Make a namespace that holds `entries`, as `tree` has them, unless it is there."""
    value = encode(entries) if entries else b""
    return Operation("create", name, value=value, owner_or_version=owner)


def remove_namespace(name: str) -> Operation:
    """Remove a namespace with all that it holds."""
    return Operation("remove", name)


def set_version(namespace: str, version: int) -> Operation:
    """Set the version of a namespace, as the last record of it in a snapshot does."""
    return Operation(SET_VERSION, namespace, owner_or_version=version)


def graft(key: str, namespace: str) -> Operation:
    """Put what a namespace holds at a key, in place of the link, and remove the namespace."""
    return Operation("graft", PRIMARY, key, namespace.encode())


class Record(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One transaction."""

    operations: tuple[Operation, ...]
    writer: str = ""
    sequence: int = 0
    strict: bool = False
    """Whether the transaction is refused where something is in the way of a step.

    Otherwise what is in the way gives way."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


def record(
    operations: Sequence[Operation], writer: str = "", sequence: int = 0, strict: bool = False
) -> Record:
    """Make a record."""
    return Record(tuple(operations), writer, sequence, strict)


def encode(value: Any) -> bytes:
    """Write a record, or what an operation has for a value."""
    return _encoder.encode(value)


def decode(encoded: bytes, number: int) -> Record:
    """Read a record, the `number`-th of its journal. Raises JournalUnreadable for what is none."""
    try:
        return _decoder.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unreadable(number, str(error)) from error


def unreadable(number: int, reason: str) -> JournalUnreadable:
    """Return the error for a journal with something that this Warren cannot have written."""
    return JournalUnreadable(
        f"Record {number} of the KVS's journal cannot be read ({reason}): if a newer Warren has "
        "written it, use that one; if the disk has failed, restore the state file from a copy."
    )
