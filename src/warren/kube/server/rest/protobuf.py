"""Objects as Go's clients send them: Kubernetes' protobuf, read into what JSON would say.

A decoder only: clients that send protobuf take JSON for an answer. What a number means is in
`messages`; the wire format is that of protobuf. Nothing here knows a request, nor whether an
object makes sense.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import orjson

from warren.kube.server.rest.messages import MESSAGE_BY_KIND, MESSAGES

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\0"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Malformed(ValueError):
    """A body that is not what its content type says."""


class UnknownKind(Malformed):
    """A body may be in order, but the fields of its kind are not known here."""


def decode(data: bytes) -> dict[str, Any]:
    """Return the JSON object that a body stands for, with apiVersion and kind.

    What Go leaves out of JSON is left out, and so is what would be null: a time, an empty list.
    Fields that are not in the table are skipped, as the API server of Kubernetes does. Raises
    UnknownKind for a kind that is not in the table, and Malformed for bytes that no client writes.
    """
    if not data.startswith(_MAGIC):
        raise Malformed("the body does not begin with k8s and a zero byte")
    # A runtime.Unknown: 1 is its TypeMeta, 2 the object, 3 its encoding, 4 its content type.
    envelope = dict(_fields(data[len(_MAGIC) :]))
    if _text(envelope.get(3, b"")) or _text(envelope.get(4, b"")) not in ("", CONTENT_TYPE):
        raise Malformed("the object in the body is not written in protobuf")
    type_meta: dict[str, Any] = {}
    _read_message("TypeMeta", envelope.get(1, b""), type_meta)
    api_version, kind = type_meta.get("apiVersion", ""), type_meta.get("kind", "")
    # A client deletes in the words of the group that it deletes from.
    message = kind if kind == "DeleteOptions" else MESSAGE_BY_KIND.get((api_version, kind))
    if message is None:
        raise UnknownKind(f"{kind!r} of {api_version!r} is read from JSON or YAML, not protobuf")
    obj: dict[str, Any] = {"apiVersion": api_version, "kind": kind}
    _read_message(message, envelope.get(2, b""), obj)
    return obj


# The wire format

_Value = int | bytes | None
"""What a field holds: a varint, or bytes; None for numbers of fixed size, which are not read."""

_VARINT: Final = 0
_BYTES: Final = 2
_FIXED_SIZES: Final = {1: 8, 5: 4}


def _fields(data: bytes) -> Iterator[tuple[int, _Value]]:
    """Return the fields of a message by number, in the order in which they are written."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, wire_type = key >> 3, key & 7
        if not number:
            raise Malformed("a field has the number 0")
        value: _Value = None
        if wire_type == _VARINT:
            value, position = _varint(data, position)
        elif wire_type == _BYTES:
            size, start = _varint(data, position)
            position = start + size
            value = data[start:position]
        elif wire_type in _FIXED_SIZES:
            position += _FIXED_SIZES[wire_type]
        else:
            raise Malformed(f"field {number} is of a wire type that is not used: {wire_type}")
        if position > len(data):
            raise Malformed(f"the body ends within field {number}")
        yield number, value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a number at a position, and return it with the position after it."""
    if position < len(data) and data[position] < 0x80:  # nearly all of them, and quickly
        return data[position], position + 1
    value = 0
    for shift, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value & (2**64 - 1), position + shift + 1
    raise Malformed("the body ends within a number, or a number does not end")


# Messages


def _read_message(message: str, data: _Value, into: dict[str, Any]) -> None:
    """Read a message into an object. What is there twice is merged, or the last one counts."""
    table = MESSAGES[message]
    for number, value in _fields(_bytes(data)):
        field = table.get(number)
        if field is None:
            continue
        if field.collection == "[]":
            into.setdefault(field.name, []).append(_value(field.type, value))
        elif field.collection:
            entry = dict(_fields(_bytes(value)))
            map_value = _value(field.type, entry.get(2, b""))
            into.setdefault(field.name, {})[_text(entry.get(1, b""))] = map_value
        elif field.type in MESSAGES and field.type not in _JSON_WRITERS:
            _read_message(
                field.type, value, into.setdefault(field.name, {}) if field.name else into
            )
        elif (single := _value(field.type, value)) or field.keeps_zero:
            into[field.name] = single
        else:
            into.pop(field.name, None)


def _value(type_name: str, value: _Value) -> Any:
    """Read one value as JSON writes it."""
    match type_name:
        case "string":
            return _text(value)
        case "bytes":
            return base64.b64encode(_bytes(value)).decode()
        case "int":
            number = _number(value)
            return number - 2**64 if number >= 2**63 else number
        case "bool":
            return _number(value) != 0
    fields: dict[str, Any] = {}
    _read_message(type_name, value, fields)
    return _JSON_WRITERS[type_name](fields) if type_name in _JSON_WRITERS else fields


def _number(value: _Value) -> int:
    if not isinstance(value, int):
        raise Malformed("there is something else where a number is expected")
    return value


def _bytes(value: _Value) -> bytes:
    if not isinstance(value, bytes):
        raise Malformed("there is a number where something else is expected")
    return value


def _text(value: _Value) -> str:
    try:
        return _bytes(value).decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not UTF-8") from None


# Messages that JSON writes in a word


def _moment(found: Mapping[str, Any], precision: str) -> str | None:
    """Write a time. One without any field is Go's zero time, which is null in JSON."""
    if not found:
        return None
    # Whole numbers all the way: a float would not hold the microseconds of every year.
    micros = found.get("nanos", 0) // 1000
    try:
        moment = _EPOCH + timedelta(seconds=found.get("seconds", 0), microseconds=micros)
    except OverflowError:
        raise Malformed("a time is not within the years 1 to 9999") from None
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")


def _int_or_string(found: Mapping[str, Any]) -> int | str:
    name, empty = ("strVal", "") if found.get("type") else ("intVal", 0)
    value: int | str = found.get(name, empty)
    return value


def _fields_v1(found: Mapping[str, Any]) -> Any:
    """Return the set of fields, which is JSON within the protobuf."""
    try:
        return orjson.loads(found.get("raw", "{}"))
    except orjson.JSONDecodeError:
        raise Malformed("the fields that a manager owns are not JSON") from None


_JSON_WRITERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "Time": lambda found: _moment(found, "seconds"),
    "MicroTime": lambda found: _moment(found, "microseconds"),
    "IntOrString": _int_or_string,
    "Quantity": lambda found: found.get("string", "0"),
    "ExtraValue": lambda found: found.get("items", []),
    "FieldsV1": _fields_v1,
}
