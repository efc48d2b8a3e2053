"""Values as their schema divides them: what is owned, compared, merged and removed by itself.

Maps are divided unless the schema says `x-kubernetes-map-type: atomic`. Lists are atomic unless
it says `x-kubernetes-list-type: map` or `set`. The rules are those of Kubernetes' server-side
apply. Nothing here knows owners.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from warren.kube.client import Refused
from warren.kube.server.schemas.fieldsets import SELF, Fields, Path, path_text

Schema = Mapping[str, Any]

_UNTYPED: Final[Schema] = {}


class Part(NamedTuple):
    """A field of a map or an element of a list."""

    value: Any
    schema: Schema
    declared: bool = False
    """Whether the schema has a field of that name. A declared field has no `.` entry: only what is
    under it is owned."""


class Comparison(NamedTuple):
    """The fields that are new or other than they were, and those that are gone."""

    changed: Fields
    removed: Fields


def parts(value: Any, schema: Schema) -> dict[str, Part] | None:
    """Return the parts of a value by their FieldsV1 names; None for one that is atomic.

    A list whose elements lack their keys, or have the same ones, is atomic, too.
    """
    if isinstance(value, Mapping):
        if schema.get("x-kubernetes-map-type") == "atomic":
            return None
        return {f"f:{name}": _field(name, inner, schema) for name, inner in value.items()}
    if _is_list(value) and schema.get("x-kubernetes-list-type") in ("map", "set"):
        items = schema.get("items", _UNTYPED)
        element_parts = {
            name: Part(element, items)
            for element in value
            if (name := _element_name(element, schema)) is not None
        }
        return element_parts if len(element_parts) == len(value) else None
    return None


def check_unique_elements(value: Any, schema: Schema, path: Path = ()) -> None:
    """Raise Refused for a list whose elements cannot be told apart."""
    value_parts = parts(value, schema)
    if value_parts is None and _is_list(value) and schema.get("x-kubernetes-list-type") == "map":
        keys = ", ".join(_list_map_keys(schema))
        raise Refused(f"{path_text(path)}: each element needs its own {keys}")
    if value_parts is None and _is_list(value) and schema.get("x-kubernetes-list-type") == "set":
        raise Refused(f"{path_text(path)}: a set has each element once")
    for name, part in (value_parts or {}).items():
        check_unique_elements(part.value, part.schema, (*path, name))


def fields_of(value: Any, schema: Schema) -> Fields:
    """Return the fields that a manager owns by applying this value."""
    return _owned_fields(Part(value, schema, declared=True))


def compare(old: Any, new: Any, schema: Schema) -> Comparison | None:
    """Return how a value has changed; None if it is atomic, before or after.

    Cheap where the two share what has not changed, which is not looked into.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        old, new = _without_common(old, new)
    elif not (_is_list(old) and _is_list(new)):
        return None
    before, after = parts(old, schema), parts(new, schema)
    if before is None or after is None:
        return None
    changed: dict[str, Fields] = {}
    removed = {name: _all_fields(part) for name, part in before.items() if name not in after}
    for name, part in after.items():
        if name not in before:
            changed[name] = _all_fields(part)
        elif before[name].value != part.value:
            inner = compare(before[name].value, part.value, part.schema)
            if inner is None:
                changed[name] = _all_fields(part)
                gone_fields = _inner_fields(before[name])
            else:
                gone_fields = inner.removed
                if inner.changed:
                    changed[name] = inner.changed
            if gone_fields:
                removed[name] = gone_fields
    return Comparison(changed, removed)


def merged(old: Any, new: Any, schema: Schema) -> Any:
    """Return the old value with all of the new one. Neither is modified."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return _merged_map(old, new, schema)
    if _is_list(old) and _is_list(new):
        before, after = parts(old, schema), parts(new, schema)
        if before is not None and after is not None:
            return list(_merged_list(before, after))
    return new


def remove_fields(value: Any, schema: Schema, dropped: Fields, kept: Fields) -> Any:
    """Return a value without the parts in `dropped`, but for what `kept` has of them."""
    value_parts = parts(value, schema)
    if value_parts is None:
        return value
    remaining = {
        name: remove_fields(part.value, part.schema, dropped[name], kept[name])
        if name in dropped
        else part.value
        for name, part in value_parts.items()
        if name not in dropped or name in kept
    }
    if isinstance(value, Mapping):
        return {name.removeprefix("f:"): inner for name, inner in remaining.items()}
    # An element that stays for what others own in it stays findable.
    return [_with_keys(inner, value_parts[name].value, schema) for name, inner in remaining.items()]


def _field(name: str, value: Any, schema: Schema) -> Part:
    properties = schema.get("properties", _UNTYPED)
    if name in properties:
        return Part(value, properties[name], declared=True)
    additional = schema.get("additionalProperties")
    return Part(value, additional if isinstance(additional, Mapping) else _UNTYPED)


def _element_name(value: Any, schema: Schema) -> str | None:
    """Return the name of a list's element; None if it lacks a key."""
    if schema["x-kubernetes-list-type"] == "set":
        return f"v:{orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()}"
    if not isinstance(value, Mapping):
        return None
    defaults = schema.get("items", _UNTYPED).get("properties", _UNTYPED)
    keys = {
        key: value.get(key, defaults.get(key, {}).get("default")) for key in _list_map_keys(schema)
    }
    if None in keys.values():
        return None
    return f"k:{orjson.dumps(keys, option=orjson.OPT_SORT_KEYS).decode()}"


def _list_map_keys(schema: Schema) -> Sequence[str]:
    keys: Sequence[str] = schema.get("x-kubernetes-list-map-keys", ())
    return keys


def _with_keys(element: Any, before: Any, schema: Schema) -> Any:
    keys = {
        key: before[key] for key in _list_map_keys(schema) if key in before and key not in element
    }
    return {**keys, **element} if keys else element


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _owned_fields(part: Part, *, include_declared: bool = False) -> Fields:
    """Return the owned fields under a part, declared ones themselves too if `include_declared`."""
    inner_parts = parts(part.value, part.schema)
    if not inner_parts:
        return {}
    under = {
        name: _owned_fields(inner, include_declared=include_declared)
        for name, inner in inner_parts.items()
    }
    return under if part.declared and not include_declared else {SELF: {}, **under}


def _all_fields(part: Part) -> Fields:
    """Return a part and all that is under it, each as owned itself."""
    return _owned_fields(part, include_declared=True)


def _inner_fields(part: Part) -> Fields:
    """Return all that is under a part, without the part itself."""
    return {name: under for name, under in _all_fields(part).items() if name != SELF}


def _without_common(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two maps without what they agree on."""
    after = {
        name: value
        for name, value in new.items()
        if name not in old or (old[name] is not value and old[name] != value)
    }
    before = {name: value for name, value in old.items() if name in after or name not in new}
    return before, after


def _merged_map(old: Mapping[str, Any], new: Mapping[str, Any], schema: Schema) -> Any:
    if schema.get("x-kubernetes-map-type") == "atomic":
        return new
    result = dict(old)
    for name, value in new.items():
        if name in old:
            result[name] = merged(old[name], value, _field(name, value, schema).schema)
        else:
            result[name] = value
    return result


def _merged_list(before: dict[str, Part], after: dict[str, Part]) -> Iterator[Any]:
    """Return the elements of both: in the new order, the old ones where they were."""
    waiting_names, placed_names = deque(before), set()
    for name, part in after.items():
        while waiting_names and (waiting_names[0] not in after or waiting_names[0] in placed_names):
            if waiting_names[0] not in after:
                yield before[waiting_names[0]].value
            waiting_names.popleft()
        yield merged(before[name].value, part.value, part.schema) if name in before else part.value
        placed_names.add(name)
    yield from (before[name].value for name in waiting_names if name not in after)
