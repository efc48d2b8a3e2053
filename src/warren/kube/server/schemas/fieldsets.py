"""Sets of an object's fields, in the form in which `managedFields` writes them (FieldsV1).

A set is a tree of names: `f:spec` is a field, `k:{"name":"x"}` an element of a list by its
keys, `v:"x"` one by its value, `i:0` one by its index. A name with nothing under it is in the
set; one with something is only if `.` is under it. Nothing here knows an object or a schema.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

Fields = Mapping[str, Any]
"""A set, which is never modified. The empty one is `{}`, and never stands inside another."""

Path = tuple[str, ...]

SELF: Final = "."
_SELF_ONLY: Final[Fields] = {SELF: {}}


def union(one: Fields, other: Fields) -> Fields:
    """Return what is in either."""
    result = dict(one)
    for name, under in other.items():
        if name in one and name != SELF:
            result[name] = _collapsed(union(_expanded(one[name]), _expanded(under)))
        else:
            result[name] = under
    return result


def difference(one: Fields, other: Fields) -> Fields:
    """Return what is in the first alone."""
    result = dict(one)
    for name in one.keys() & other.keys():
        rest = difference(_expanded(one[name]), _expanded(other[name])) if name != SELF else {}
        if rest:
            result[name] = _collapsed(rest)
        else:
            del result[name]
    return result


def intersection(one: Fields, other: Fields) -> Fields:
    """Return what is in both."""
    result = {}
    for name, under in one.items():
        if name == SELF and name in other:
            result[name] = under
        elif name in other:
            both = intersection(_expanded(under), _expanded(other[name]))
            if both:
                result[name] = _collapsed(both)
    return result


def paths(fields: Fields) -> Iterator[Path]:
    """Return everything in a set by its path."""
    for name, under in fields.items():
        if name == SELF:
            yield ()
        else:
            yield from ((name, *path) for path in paths(_expanded(under)))


def path_text(path: Path) -> str:
    """Write a path for people: `.spec.ports[name="http"].port`."""
    return "".join(map(_element_text, path))


def _element_text(name: str) -> str:
    kind, _, text = name.partition(":")
    match kind:
        case "k":
            keys = orjson.loads(text).items()
            return f"[{','.join(f'{key}={orjson.dumps(value).decode()}' for key, value in keys)}]"
        case "v":
            return f"[={text}]"
        case "i":
            return f"[{text}]"
        case _:
            return f".{text}"


def _expanded(under: Fields) -> Fields:
    """Return the set under a name, with `.` in it where the name is in the set by itself."""
    return under or _SELF_ONLY


def _collapsed(under: Fields) -> Fields:
    """Return what is written under a name: nothing where only the name itself is in the set."""
    return {} if under == _SELF_ONLY else under
