"""How the API spells what is wrong with an object: the causes of an Invalid Status.

It knows what each keyword of a schema complains about, and no schema. The wording is that of
Kubernetes, because people and programs look for it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson
from jsonschema_rs import ValidationError

INTEGER_BOUNDS: Final[Mapping[str, tuple[int, int]]] = {
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
"""What an integer of a format can hold. Schemas state it as bounds, causes as the format."""


class Cause(msgspec.Struct, frozen=True):
    """One thing that is wrong, as `details.causes` of a Status lists it."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required_cause(field: str) -> Cause:
    """Return the cause for a field that is missing."""
    return Cause(field, "FieldValueRequired", "Required value")


def duplicate_cause(field: str, value: Any) -> Cause:
    """Return the cause for an item that is in a set, or its keys in a map, a second time."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {_json(value)}")


def mistyped_cause(field: str, wanted: str, value: Any) -> Cause:
    """Return the cause for a value that is not of the type that its field has."""
    return _type(field, (wanted,), value)


def cause(error: ValidationError) -> Cause:
    """Return the cause of what the validator found."""
    field = dotted_path(error.instance_path)
    keyword, limit, value = error.kind.name, error.kind.value, error.instance
    if _beyond_format(keyword, limit):
        return _out_of_format(field, limit, value)
    return _CAUSES[keyword](field, limit, value)


def dotted_path(path: Sequence[str | int]) -> str:
    """Spell a path as causes do: `spec.allocationSets[0].label`."""
    spelled = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return spelled.removeprefix(".")


def _json(value: Any) -> str:
    # Integers of any size may have come in; JSON's own limit is not what is wrong with them.
    return str(value) if type(value) is int else orjson.dumps(value).decode()


def _invalid(field: str, value: Any, complaint: str) -> Cause:
    message = f"Invalid value: {_json(value)}: {field} in body {complaint}"
    return Cause(field, "FieldValueInvalid", message)


def _missing(field: str, name: Any, _: Any) -> Cause:
    return required_cause(f"{field}.{name}".removeprefix("."))


_TYPE_NAMES: Final[Mapping[type, str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def _type(field: str, wanted: Any, value: Any) -> Cause:
    type_name = _json(_TYPE_NAMES[type(value)])
    types = ",".join(name for name in wanted if name != "null")
    complaint = f"{field} in body must be of type {types}: {type_name}"
    return Cause(field, "FieldValueTypeInvalid", f"Invalid value: {type_name}: {complaint}")


def _format(field: str, wanted: Any, value: Any) -> Cause:
    quoted_value = _json(value)
    complaint = f"{field} in body must be of type {wanted}: {quoted_value}"
    return Cause(field, "FieldValueTypeInvalid", f"Invalid value: {quoted_value}: {complaint}")


def _beyond_format(keyword: str, limit: Any) -> bool:
    return keyword in ("minimum", "maximum") and any(
        limit in bounds for bounds in INTEGER_BOUNDS.values()
    )


def _out_of_format(field: str, limit: int, value: Any) -> Cause:
    name = next(name for name, bounds in INTEGER_BOUNDS.items() if limit in bounds)
    return _invalid(field, value, f"must be of type integer with format {name}")


def _enum(field: str, options: Any, value: Any) -> Cause:
    supported = ", ".join(
        _json(option if isinstance(option, str) else _json(option)) for option in options
    )
    message = f"Unsupported value: {_json(value)}: supported values: {supported}"
    return Cause(field, "FieldValueNotSupported", message)


def _too_long(field: str, limit: Any, _: Any) -> Cause:
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def _too_many(field: str, limit: Any, value: Any) -> Cause:
    items = "item" if limit == 1 else "items"
    message = f"Too many: {len(value)}: must have at most {limit} {items}"
    return Cause(field, "FieldValueTooMany", message)


def _value_cause(complaint: str) -> Callable[[str, Any, Any], Cause]:
    """Return a function for causes that quote the value, and the limit in place of `{}`."""
    return lambda field, limit, value: _invalid(field, value, complaint.format(limit))


def _count_cause(complaint: str) -> Callable[[str, Any, Any], Cause]:
    """Return a function for causes that tell how many items there are."""
    return lambda field, limit, value: _invalid(field, len(value), complaint.format(limit))


_CAUSES: Final[Mapping[str, Callable[[str, Any, Any], Cause]]] = {
    "required": _missing,
    "type": _type,
    "format": _format,
    "enum": _enum,
    "maxLength": _too_long,
    "maxItems": _too_many,
    "maxProperties": _too_many,
    "minLength": _value_cause("should be at least {} chars long"),
    "pattern": _value_cause("should match '{}'"),
    "minimum": _value_cause("should be greater than or equal to {}"),
    "maximum": _value_cause("should be less than or equal to {}"),
    "exclusiveMinimum": _value_cause("should be greater than {}"),
    "exclusiveMaximum": _value_cause("should be less than {}"),
    "multipleOf": _value_cause("should be a multiple of {}"),
    "minItems": _count_cause("should have at least {} items"),
    "minProperties": _count_cause("should have at least {} properties"),
    "anyOf": _value_cause("must validate at least one schema (anyOf)"),
    "oneOf": _value_cause("must validate one and only one schema (oneOf)"),
    "not": _value_cause("must not validate the schema (not)"),
}
"""By keyword: the field, the keyword's value in the schema, and the value that it dislikes."""
