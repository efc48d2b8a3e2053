"""Objects are decoded as far as decisions read them.

They are sent back only as patches, so that fields that are not known here survive. Sizes are
bytes.
"""

from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from warren.base.errors import Retryable, UserMistake
from warren.base.objects import Object

T = TypeVar("T")


class Malformed(UserMistake):
    """An object that is not of its kind, or no object; the sentence names the path."""


class OthersMalformed(Retryable):
    """An object is not of its kind, and not of those whose work it was read for."""

    delay = 30.0


class Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an object, with the fields that decisions read, in camel case on the wire."""


class _DecodingKey:
    """What the cache of decoded objects is keyed by: an object, by its identity, and its type."""

    __slots__ = ("object", "struct_type")

    def __init__(self, obj: Object, struct_type: type[Any]) -> None:
        self.object = obj
        self.struct_type = struct_type

    def __hash__(self) -> int:
        return hash((id(self.object), self.struct_type))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _DecodingKey)
            and self.object is other.object
            and self.struct_type is other.struct_type
        )


@lru_cache(maxsize=2**14)
def _decode(key: _DecodingKey) -> Any:
    return msgspec.convert(key.object, type=key.struct_type)


def read(obj: Object, struct_type: type[T]) -> T:
    """Decode an object. Raises Malformed with the path of what is wrong.

    Objects are never modified, and each reconcile reads dozens of them: what was decoded
    lately is not decoded again.
    """
    try:
        decoded: T = _decode(_DecodingKey(obj, struct_type))
    except msgspec.ValidationError as error:
        metadata = obj.get("metadata", {})
        raise Malformed(f"{obj.get('kind')} {metadata.get('name')}: {error}") from None
    return decoded


def read_other(obj: Object, struct_type: type[T]) -> T:
    """Decode an object of others. Raises OthersMalformed: no job may fail for it."""
    try:
        return read(obj, struct_type)
    except Malformed as error:
        raise OthersMalformed(str(error)) from error


def read_json(text: bytes | str, struct_type: type[T]) -> T:
    """Decode JSON that anyone may have sent. Raises Malformed, however it is malformed."""
    try:
        return msgspec.json.decode(text, type=struct_type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Malformed(str(error)) from None
