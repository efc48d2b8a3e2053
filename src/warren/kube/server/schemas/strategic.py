"""Strategic merge patches: how clients change objects of Kubernetes' own kinds.

A merge patch (RFC 7386) that knows which lists are merged by a key of their items, and takes
directives: `$patch` replaces or deletes, `$setElementOrder/NAME` orders, and
`$deleteFromPrimitiveList/NAME` takes values away. Kinds that are defined by clients have none.
What a directive says is checked before it is done: it says what type it has, and where it was.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from warren.base.objects import Object
from warren.kube.client import Refused

_KEYS: Final[Mapping[str, str]] = {
    "addresses": "type",
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "secrets": "name",
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
    "webhooks": "name",
}
"""By which of their fields the items of a list are told apart; others are replaced as a whole."""

_PORTS: Final = ("containerPort", "port")
"""The same for the ports of containers and of services, which share a name."""

_SETS: Final = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values that are merged."""

_PATCH: Final = "$patch"
_ORDER: Final = "$setElementOrder/"
_DELETE: Final = "$deleteFromPrimitiveList/"
_RETAIN: Final = "$retainKeys"


def strategic_merge(old: Object, patch: Any) -> Object:
    """Return the object after the patch; neither is modified.

    Raises Refused for what is no patch, and for a directive that does not fit what is there.
    """
    if not isinstance(patch, Mapping):
        raise Refused("a strategic merge patch is an object")
    return _object(old, patch)


def _object(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    match patch.get(_PATCH):
        case "replace":
            return {name: value for name, value in patch.items() if name != _PATCH}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise Refused(f"{_PATCH}: {other!r} is not replace, delete or merge")
    kept = set(_plain(_RETAIN, patch[_RETAIN])) if _RETAIN in patch else old
    new = {name: old[name] for name in old if name in kept}
    for name, value in patch.items():
        if name.startswith(_DELETE):
            plain, gone = name.removeprefix(_DELETE), set(_plain(name, value))
            if (there := new.get(plain)) is not None:
                new[plain] = [each for each in _plain(plain, there) if each not in gone]
        elif name.startswith("$"):
            continue
        elif value is None:
            new.pop(name, None)
        else:
            new[name] = _merged(name, new.get(name), value)
    for name, order in patch.items():
        plain = name.removeprefix(_ORDER)
        if plain != name:
            wanted = _check_list(name, order)
            if isinstance(new.get(plain), list):
                new[plain] = _ordered(plain, new[plain], wanted)
    return new


def _check_list(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise Refused(f"{name}: this is not a list")
    return value


def _plain(name: str, value: Any) -> Sequence[Any]:
    if any(isinstance(each, Mapping | list | tuple) for each in _check_list(name, value)):
        raise Refused(f"{name}: this is not a list of plain values")
    return _check_list(name, value)


def _merged(name: str, old: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _object(old if isinstance(old, Mapping) else {}, value)
    if not isinstance(value, list):
        return value
    before = list(old) if isinstance(old, list | tuple) else []
    if name in _SETS:
        there = set(_plain(name, before))
        return [*before, *(each for each in _plain(name, value) if each not in there)]
    key = _key(name, [*before, *value])
    return _list(key, before, value) if key else value


def _key(name: str, items: Sequence[Any]) -> str:
    """Return what tells the items of a list apart, or nothing."""
    if not all(isinstance(each, Mapping) for each in items):
        return ""
    if name == "ports":
        return next((key for key in _PORTS if any(key in each for each in items)), "")
    return _KEYS.get(name, "")


def _list(key: str, old: Sequence[Any], patches: Sequence[Mapping[str, Any]]) -> list[Any]:
    if any(each.get(_PATCH) == "replace" for each in patches):
        return [each for each in patches if _PATCH not in each]
    found = {_identity(key, each): each for each in old if key in each}
    for each in patches:
        identity = _identity(key, each)
        if each.get(_PATCH) == "delete":
            found.pop(identity, None)
        else:
            found[identity] = _object(found.get(identity, {}), each)
    return list(found.values())


def _identity(key: str, item: Mapping[str, Any]) -> Any:
    """Return by what an item is told apart from others. Raises Refused."""
    if key not in item:
        raise Refused(f"an item of a list that is merged has no {key}")
    if not isinstance(item[key], str | int):
        raise Refused(f"{key}: items are told apart by it; it is neither a string nor a number")
    return item[key]


def _ordered(name: str, items: Sequence[Any], order: Sequence[Any]) -> list[Any]:
    """Return items in an order; those that it does not name stay behind the one before them."""
    key = _key(name, items)
    wanted: dict[Any, int] = {}
    for each in order:
        identity = each.get(key) if isinstance(each, Mapping) else each
        if not isinstance(identity, Mapping | list | tuple):
            wanted.setdefault(identity, len(wanted))
    placed: list[tuple[int, int, Any]] = []
    last = -1
    for index, item in enumerate(items):
        identity = item.get(key) if key else item
        if not isinstance(identity, Mapping | list | tuple):
            last = wanted.get(identity, last)
        placed.append((last, index, item))
    return [item for _, _, item in sorted(placed, key=lambda each: each[:2])]
