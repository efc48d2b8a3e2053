"""Structural schemas: what a CustomResourceDefinition says of its objects, ready for use.

A schema is compiled once into two things: a tree of nodes, which prunes, defaults and finds
duplicates, and a validator of the JSON Schema that means the same. Rules in CEL
(`x-kubernetes-validations`) are not evaluated: what they alone forbid is admitted (ADR 034).

Objects are decoded JSON: dicts, lists and scalars. They are never modified, nor is a schema; what
comes back may share parts with both.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from jsonschema_rs import Draft7Validator, RegexOptions, ValidationError

from warren.kube.client import Refused
from warren.kube.server.schemas.causes import INTEGER_BOUNDS, Cause, cause, duplicate_cause

_ABSENT: Final = object()
_NO_FIELDS: Final[Mapping[str, Any]] = {}
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
_UNSUPPORTED_KEYWORDS: Final = (
    "$ref", "definitions", "dependencies", "patternProperties", "id", "$schema", "additionalItems",
    "deprecated",
)  # fmt: skip
_COPIED_KEYWORDS: Final = (
    "required", "enum", "pattern", "minLength", "maxLength", "minItems", "maxItems",
    "minProperties", "maxProperties", "multipleOf",
)  # fmt: skip
# Those that mean the same to Kubernetes and to the validator; others are not looked at.
_FORMATS: Final = ("date", "date-time", "email", "hostname", "ipv4", "ipv6", "uri", "uuid")
_INT_OR_STRING: Final = [{"type": "integer"}, {"type": "string"}]


class CompiledSchema:
    """One version of a kind. `compile` makes it."""

    def __init__(self, root: "_SchemaNode", validator: Draft7Validator) -> None:
        self._root = root
        self._validator = validator

    def prune(self, obj: Any, known: Any = None) -> tuple[Any, list[str]]:
        """Return the object without the fields that the schema does not have, and their paths.

        What the object shares with `known`, which is pruned already, is not looked at.

        `apiVersion`, `kind` and `metadata` stay as they are, at the root and in embedded objects.
        An object without unknown fields is given back itself.
        """
        unknown: list[str] = []
        return self._root.prune(obj, "", unknown, known), unknown

    def apply_defaults(self, obj: Any, known: Any = None) -> Any:
        """Return the object with defaults where fields are missing from objects that are there.

        A null that its field does not allow gives way to the default, or is dropped. An object
        that lacks nothing is given back itself. What the object shares with `known`, which has
        its defaults already, is not looked at.
        """
        return self._root.apply_defaults(obj, known)

    def violations(self, obj: Any) -> list[Cause]:
        """Return all that is wrong with an object, by field. It should be pruned and defaulted.

        Raises Refused for what cannot be checked: it is nested too deeply, or is no JSON.
        """
        try:
            causes = [] if self._validator.is_valid(obj) else self._errors(obj)
            causes.extend(self._root.duplicates(obj, ""))
        except (TypeError, ValueError) as error:
            raise Refused(f"the object cannot be checked: {error}") from error
        return sorted(causes, key=lambda one: one.field)

    def _errors(self, obj: Any) -> list[Cause]:
        return [cause(error) for error in self._validator.iter_errors(obj)]


def compile(schema: Mapping[str, Any], where: str = "openAPIV3Schema") -> CompiledSchema:
    """Prepare a schema for use.

    Raises Refused, with the path below `where`, if objects could not be served by it.
    """
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise Refused(f'{where}.type: Invalid value: must be "object" at the root')
    try:
        return CompiledSchema(
            _node(schema, where, is_resource=True), _validator(_json_schema(schema), where)
        )
    except RecursionError:
        raise Refused(f"{where}: the schema is nested too deeply") from None


# Nodes


class _SchemaNode:
    """One place of a schema: what may be below it, and what stands there by default.

    Fields of an object that have no node of their own have `additional`, and are unknown if that is
    None.
    """

    __slots__ = (
        "additional",
        "checks_duplicates",
        "default",
        "field_defaults",
        "fields",
        "is_set",
        "items",
        "list_map_keys",
        "may_default",
        "null_default",
        "preserves_unknown",
        "prunes",
    )

    def __init__(
        self,
        *,
        fields: Mapping[str, "_SchemaNode"] | None = None,
        additional: "_SchemaNode | None" = None,
        items: "_SchemaNode | None" = None,
        preserves_unknown: bool = True,
        nullable: bool = False,
    ) -> None:
        self.fields = fields or {}
        self.additional = additional
        self.items = items
        self.preserves_unknown = preserves_unknown
        self.default: Any = _ABSENT
        self.null_default: Any = None if nullable else _ABSENT
        """What takes the place of a null: itself where it is allowed."""
        self.is_set = False
        self.list_map_keys: Sequence[str] = ()
        below = [node for node in (*self.fields.values(), additional, items) if node is not None]
        self.field_defaults = [
            (name, node.default)
            for name, node in self.fields.items()
            if node.default is not _ABSENT
        ]
        # Whole branches are passed over in which there is nothing to do.
        self.prunes: bool = not preserves_unknown or any(node.prunes for node in below)
        self.may_default: bool = (
            bool(self.fields) or additional is not None or (items is not None and items.may_change)
        )
        self.checks_duplicates: bool = any(node.checks_duplicates for node in below)

    @property
    def may_change(self) -> bool:
        """Whether defaulting may change the value, be it null or not."""
        return self.may_default or self.null_default not in (None, _ABSENT)

    def set_default(self, default: Any) -> None:
        """Make this the default of the place."""
        self.default = self.apply_defaults(default)
        if self.null_default is _ABSENT:
            self.null_default = self.default

    def prune(self, value: Any, path: str, unknown: list[str], known: Any = None) -> Any:
        if not self.prunes or value is known:
            return value
        if isinstance(value, dict):
            return self._prune_object(value, path, unknown, known)
        if self.items is not None and isinstance(value, list | tuple):
            items = self.items
            result = [items.prune(item, f"{path}[{i}]", unknown) for i, item in enumerate(value)]
            return result if _differ(result, value) else value
        return value

    def _prune_object(
        self, value: dict[str, Any], path: str, unknown: list[str], known: Any
    ) -> dict[str, Any]:
        result = value
        fields, additional = self.fields, self.additional
        known_fields = known if isinstance(known, dict) else _NO_FIELDS
        for name, item in value.items():
            before = known_fields.get(name, _ABSENT)
            if item is before:
                continue
            node = fields.get(name, additional)
            if node is None:
                if self.preserves_unknown:
                    continue
                unknown.append(_child(path, name))
                new = _ABSENT
            elif node.prunes:
                new = node.prune(item, _child(path, name), unknown, before)
            else:
                continue
            if new is not item:
                result = _with(result, value, name, new)
        return result

    def apply_defaults(self, value: Any, known: Any = None) -> Any:
        if not self.may_default or value is known:
            return value
        if isinstance(value, dict):
            return self._apply_object_defaults(value, known)
        if self.items is not None and isinstance(value, list | tuple):
            result = [self.items.apply_item_defaults(item) for item in value]
            return result if _differ(result, value) else value
        return value

    def apply_item_defaults(self, item: Any) -> Any:
        """Return what an item of a list becomes; one that must not be null stays."""
        if item is None:
            return None if self.null_default is _ABSENT else self.null_default
        return self.apply_defaults(item)

    def _apply_object_defaults(self, value: dict[str, Any], known: Any) -> dict[str, Any]:
        result = value
        fields, additional = self.fields, self.additional
        known_fields = known if isinstance(known, dict) else _NO_FIELDS
        for name, item in value.items():
            before = known_fields.get(name, _ABSENT)
            if item is before:
                continue
            node = fields.get(name, additional)
            if node is None:
                continue
            if item is None:
                new = node.null_default
            elif node.may_default:
                new = node.apply_defaults(item, before)
            else:
                continue
            if new is not item:
                result = _with(result, value, name, new)
        for name, default in self.field_defaults:
            if name not in value:
                result = _with(result, value, name, default)
        return result

    def duplicates(self, value: Any, path: str) -> Iterator[Cause]:
        if not self.checks_duplicates:
            return
        if isinstance(value, dict):
            for name, item in value.items():
                if name in self.fields:
                    yield from self.fields[name].duplicates(item, _child(path, name))
                elif self.additional is not None:
                    yield from self.additional.duplicates(item, f"{path}[{name}]")
        elif isinstance(value, list | tuple):
            if self.is_set or self.list_map_keys:
                yield from self._repeated(value, path)
            if self.items is not None and self.items.checks_duplicates:
                for index, item in enumerate(value):
                    yield from self.items.duplicates(item, f"{path}[{index}]")

    def _repeated(self, values: Sequence[Any], path: str) -> Iterator[Cause]:
        identities: set[bytes] = set()
        for index, item in enumerate(values):
            if self.list_map_keys and not isinstance(item, dict):
                continue  # its type is wrong, which is told anyway
            value = (
                {key: item[key] for key in self.list_map_keys if key in item}
                if self.list_map_keys
                else item
            )
            identity = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
            if identity in identities:
                yield duplicate_cause(f"{path}[{index}]", value)
            identities.add(identity)


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _with(result: dict[str, Any], original: dict[str, Any], name: str, new: Any) -> dict[str, Any]:
    """Return the result with a field changed; a copy of the original from the first change on."""
    if result is original:
        result = dict(original)
    if new is _ABSENT:
        del result[name]
    else:
        result[name] = new
    return result


def _differ(new: Sequence[Any], old: Sequence[Any]) -> bool:
    return any(a is not b for a, b in zip(new, old, strict=True))


_ANYTHING: Final = _SchemaNode(nullable=True)
_RESOURCE_FIELDS: Final = dict.fromkeys(("apiVersion", "kind", "metadata"), _ANYTHING)


# Compiling


def _node(schema: Mapping[str, Any], path: str, *, is_resource: bool = False) -> _SchemaNode:
    """Make the node of a schema, and all below it; `is_resource` where an API object stands."""
    _check_schema(schema, path)
    is_resource = is_resource or bool(schema.get("x-kubernetes-embedded-resource"))
    fields = {
        name: _node(field, f"{path}.properties[{name}]")
        for name, field in _mapping(schema, "properties", path).items()
    }
    node = _SchemaNode(
        fields={**fields, **_RESOURCE_FIELDS} if is_resource else fields,
        additional=_additional(schema, path),
        items=_items(schema, path),
        preserves_unknown=_preserves_unknown(schema),
        nullable=bool(schema.get("nullable")),
    )
    _set_list_type(node, schema, path)
    if schema.get("default") is not None:
        _check_default(node, schema, f"{path}.default")
        node.set_default(schema["default"])
    return node


def _preserves_unknown(schema: Mapping[str, Any]) -> bool:
    """Return whether fields stay that are not specified; what is no object has none to lose."""
    return (
        bool(schema.get("x-kubernetes-preserve-unknown-fields")) or schema.get("type") != "object"
    )


def _additional(schema: Mapping[str, Any], path: str) -> _SchemaNode | None:
    additional = schema.get("additionalProperties")
    if additional is None:
        return None
    if additional is False or "properties" in schema:
        raise Refused(
            f"{path}.additionalProperties: Forbidden: not false, and not beside properties"
        )
    return _ANYTHING if additional is True else _node(additional, f"{path}.additionalProperties")


def _items(schema: Mapping[str, Any], path: str) -> _SchemaNode | None:
    if schema.get("type") != "array":
        return None
    if "items" not in schema:
        raise Refused(f"{path}.items: Required value: must be specified")
    return _node(schema["items"], f"{path}.items")


def _set_list_type(node: _SchemaNode, schema: Mapping[str, Any], path: str) -> None:
    """Note in what way the items of a list are unique."""
    list_type = schema.get("x-kubernetes-list-type", "atomic")
    if list_type not in ("atomic", "set", "map"):
        raise Refused(f"{path}.x-kubernetes-list-type: Unsupported value: {list_type!r}")
    keys = schema.get("x-kubernetes-list-map-keys", ())
    if list_type == "map":
        fields = node.items.fields if node.items is not None else {}
        if not keys or not set(keys) <= fields.keys():
            raise Refused(
                f"{path}.x-kubernetes-list-map-keys: Required value: properties of the items"
            )
        node.list_map_keys = keys
    node.is_set = list_type == "set"
    node.checks_duplicates = node.checks_duplicates or list_type != "atomic"


def _check_schema(schema: Any, path: str) -> None:
    """Raise Refused for what is no schema, or one that does not say what stands there."""
    if not isinstance(schema, Mapping):
        raise Refused(f"{path}: Invalid value: this is not a schema")
    for name in _UNSUPPORTED_KEYWORDS:
        if name in schema:
            raise Refused(f"{path}.{name}: Forbidden: {name} is not supported")
    type_name = schema.get("type")
    if type_name is not None and type_name not in _TYPES:
        raise Refused(
            f"{path}.type: Unsupported value: {type_name!r}: it is one of {', '.join(_TYPES)}"
        )
    untyped_extensions = ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
    if type_name is None and not any(schema.get(name) for name in untyped_extensions):
        raise Refused(f"{path}.type: Required value: must not be empty for specified fields")


def _check_default(node: _SchemaNode, schema: Mapping[str, Any], path: str) -> None:
    """Raise Refused for a default that would make every object invalid."""
    default = schema["default"]
    unknown: list[str] = []
    node.prune(default, "", unknown)
    if unknown:
        raise Refused(f"{path}: Invalid value: {unknown[0]} is an unknown field")
    defaulted = node.apply_defaults(default)
    for error in _validator(_json_schema(schema), path).iter_errors(defaulted):
        raise Refused(f"{path}: {cause(error).message}")


def _mapping(schema: Mapping[str, Any], name: str, path: str) -> Mapping[str, Any]:
    value = schema.get(name, {})
    if not isinstance(value, Mapping):
        raise Refused(f"{path}.{name}: Invalid value: this is not an object")
    return value


# Translating


def _validator(json_schema: dict[str, Any], path: str) -> Draft7Validator:
    # The patterns of this engine run in linear time, as Kubernetes' do; the default one's do not.
    try:
        return Draft7Validator(json_schema, validate_formats=True, pattern_options=RegexOptions())
    except ValidationError as error:
        raise Refused(f"{path}{_path_text(error.instance_path)}: {error.message}") from error


def _path_text(path: Sequence[str | int]) -> str:
    """Spell a path inside a schema: `.properties[spec].pattern`."""
    text, after_properties = "", False
    for step in path:
        text += f"[{step}]" if after_properties or isinstance(step, int) else f".{step}"
        after_properties = not after_properties and step == "properties"
    return text


def _json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema that admits the same, without what does not constrain anything."""
    result = {name: schema[name] for name in _COPIED_KEYWORDS if name in schema}
    result.update(_types(schema))
    result.update(_bounds(schema))
    if schema.get("format") in _FORMATS:
        result["format"] = schema["format"]
    result.update(_nested_keywords(schema))
    result.update(_junctor_keywords(schema))
    if schema.get("x-kubernetes-embedded-resource"):
        result["required"] = sorted({*result.get("required", ()), "apiVersion", "kind"})
    return result


def _types(schema: Mapping[str, Any]) -> dict[str, Any]:
    if schema.get("x-kubernetes-int-or-string"):
        types = ["integer", "string"]
    elif "type" in schema:
        types = [schema["type"]]
    else:
        return {}
    if schema.get("nullable"):
        types.append("null")
    return {"type": types if len(types) > 1 else types[0]}


def _bounds(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the bounds of a number, of which OpenAPI says beside them that they are exclusive."""
    bounds: dict[str, Any] = {}
    lowest, highest = INTEGER_BOUNDS.get(schema.get("format", ""), (None, None))
    if lowest is not None and schema.get("type") == "integer":
        bounds = {"minimum": lowest, "maximum": highest}
    for side, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if side in schema:
            bounds[exclusive if schema.get(exclusive) else side] = schema[side]
    return bounds


def _nested_keywords(schema: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    fields = schema.get("properties", {})
    if isinstance(fields, Mapping):
        fields = {name: _inner_schema(field) for name, field in fields.items()}
        fields = {name: field for name, field in fields.items() if field != {}}
    if fields != {}:
        result["properties"] = fields
    for name in ("items", "not"):
        if name in schema:
            result[name] = _inner_schema(schema[name])
    if isinstance(schema.get("additionalProperties"), Mapping):
        result["additionalProperties"] = _inner_schema(schema["additionalProperties"])
    return result


def _junctor_keywords(schema: Mapping[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in _JUNCTORS:
        # Generators repeat in `anyOf` what the extension says already.
        if name in schema and schema[name] != _INT_OR_STRING:
            alternatives = schema[name]
            result[name] = (
                [_inner_schema(one) for one in alternatives]
                if isinstance(alternatives, list)
                else alternatives
            )
    return result


def _inner_schema(schema: Any) -> dict[str, Any] | None:
    """Translate a schema; what is none becomes null, of which the validator tells the place."""
    # As it is, it might be a schema to the validator: `false`, which OpenAPI does not know.
    return _json_schema(schema) if isinstance(schema, Mapping) else None
