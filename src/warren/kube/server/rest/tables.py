"""What `kubectl get` prints: Tables, from the printer columns of a kind."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from warren.base.objects import Object
from warren.base.times import parse_rfc3339
from warren.kube.server.resources import Column, Resource

_NAME: Final = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name must be unique within a namespace.",
    "priority": 0,
}
_AGE: Final = Column("Age", "date", ".metadata.creationTimestamp")


def wanted(accept: str) -> bool:
    """Tell whether a client asks for a Table."""
    return "as=Table" in accept


def table(
    resource: Resource, version: str, items: Iterable[Object], list_version: str, now: float
) -> dict[str, Any]:
    """Give objects as a Table."""
    columns = resource.columns.get(version) or (_AGE,)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": list_version},
        "columnDefinitions": [_NAME, *(_definition(column) for column in columns)],
        "rows": [_row(obj, columns, now) for obj in items],
    }


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": "string" if column.type == "date" else column.type,
        "format": "",
        "description": "",
        "priority": column.priority,
    }


def _row(obj: Object, columns: Sequence[Column], now: float) -> dict[str, Any]:
    cells = [obj["metadata"]["name"], *(_cell(obj, column, now) for column in columns)]
    partial = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
    return {"cells": cells, "object": partial}


def _cell(obj: Object, column: Column, now: float) -> Any:
    value: Any = obj
    for name in column.path.strip(".").split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if value is None:
        return ""
    try:
        if column.type == "date":
            return age(now - parse_rfc3339(value))
        return _CELLS.get(column.type, str)(value)
    except (TypeError, ValueError):
        return "<invalid>"  # one object that makes no sense does not hide the others


_CELLS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "integer": int,
    "number": float,
    "boolean": lambda value: "true" if value else "false",
}


def age(seconds: float) -> str:
    """Write an age as kubectl does: `42s`, `7m12s`, `3h5m`, `2d4h`."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes}m" if hours < 8 and minutes else f"{hours}h"
    days, hours = divmod(hours, 24)
    return f"{days}d{hours}h" if days < 8 and hours else f"{days}d"
