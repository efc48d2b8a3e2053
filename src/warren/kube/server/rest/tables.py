"""What `kubectl get` prints: Tables, from the printer columns of a kind."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from warren.base.objects import Object
from warren.base.times import age, parse_rfc3339
from warren.kube.server.printing import AGE_COLUMN
from warren.kube.server.resources import Column, Resource
from warren.kube.server.rest.views import META_VERSION, View, metadata_of

_NAME_COLUMN: Final = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name must be unique within a namespace.",
    "priority": 0,
}


def table(
    resource: Resource, version: str, items: Iterable[Object], list_version: str, now: float
) -> dict[str, Any]:
    """Return objects as a Table."""
    columns = resource.columns.get(version) or (AGE_COLUMN,)
    # A column that shows the name elsewhere shows it there.
    shows_name = any(column.path == ".metadata.name" for column in columns)
    return {
        "kind": View.TABLE.value,
        "apiVersion": META_VERSION,
        "metadata": {"resourceVersion": list_version},
        "columnDefinitions": [
            *([] if shows_name else [_NAME_COLUMN]),
            *(_definition(column) for column in columns),
        ],
        "rows": [_row(obj, columns, now, shows_name) for obj in items],
    }


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": "string" if column.type == "date" else column.type,
        "format": "",
        "description": "",
        "priority": column.priority,
    }


def _row(obj: Object, columns: Sequence[Column], now: float, shows_name: bool) -> dict[str, Any]:
    cells = [_cell(obj, column, now) for column in columns]
    if not shows_name:
        cells.insert(0, obj["metadata"].get("name", ""))  # a bookmark has none
    return {"cells": cells, "object": metadata_of(obj)}


def _cell(obj: Object, column: Column, now: float) -> Any:
    try:
        value = _value_at(obj, column.path) if column.cell is None else column.cell(obj)
        if value is None:
            return ""
        if column.type == "date":
            return age(now - parse_rfc3339(value))
        return _CELL_CONVERSIONS.get(column.type, str)(value)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "<invalid>"  # one object that makes no sense does not hide the others


def _value_at(obj: Object, path: str) -> Any:
    value: Any = obj
    for name in path.strip(".").split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


_CELL_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "integer": int,
    "number": float,
    "boolean": lambda value: "true" if value else "false",
}
