"""Strategic merge patches: how clients change objects of Kubernetes' own kinds.

A merge patch (RFC 7386) that knows which lists are merged by a key of their items, and takes
directives: `$patch` replaces or deletes, `$setElementOrder/NAME` orders, and
`$deleteFromPrimitiveList/NAME` takes values away. Kinds that are defined by clients have none.
"""

from collections.abc import Iterator, Mapping, Sequence
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


def strategic(old: Object, patch: Any) -> Object:
    """Give the object after the patch; neither is modified. Raises Refused for what is no patch."""
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
    kept = patch.get(_RETAIN)
    new = {name: old[name] for name in old if kept is None or name in kept}
    for name, value in patch.items():
        if name.startswith(_DELETE):
            plain = name.removeprefix(_DELETE)
            new[plain] = [each for each in new.get(plain) or () if each not in value]
        elif name.startswith("$"):
            continue
        elif value is None:
            new.pop(name, None)
        else:
            new[name] = _merged(name, new.get(name), value)
    for name, order in patch.items():
        plain = name.removeprefix(_ORDER)
        if plain != name and isinstance(new.get(plain), list):
            new[plain] = _ordered(plain, new[plain], order)
    return new


def _merged(name: str, old: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _object(old if isinstance(old, Mapping) else {}, value)
    if not isinstance(value, list):
        return value
    before = list(old) if isinstance(old, list | tuple) else []
    if name in _SETS:
        return [*before, *(each for each in value if each not in before)]
    key = _key(name, [*before, *value])
    return _list(key, before, value) if key else value


def _key(name: str, items: Sequence[Any]) -> str:
    """Give what tells the items of a list apart, or nothing."""
    objects = [each for each in items if isinstance(each, Mapping)]
    if name == "ports":
        return next((key for key in _PORTS if any(key in each for each in objects)), "")
    return _KEYS.get(name, "") if len(objects) == len(items) else ""


def _list(key: str, old: Sequence[Any], patches: Sequence[Mapping[str, Any]]) -> list[Any]:
    if any(each.get(_PATCH) == "replace" for each in patches):
        return [each for each in patches if _PATCH not in each]
    found = {each[key]: each for each in old if key in each}
    for each in patches:
        if key not in each:
            raise Refused(f"an item of a list that is merged has no {key}")
        if each.get(_PATCH) == "delete":
            found.pop(each[key], None)
        else:
            found[each[key]] = _object(found.get(each[key], {}), each)
    return list(found.values())


def _ordered(name: str, items: Sequence[Any], order: Sequence[Any]) -> list[Any]:
    """Give items in an order; those that it does not name stay behind the one before them."""
    key = _key(name, items)
    wanted = [each.get(key) if isinstance(each, Mapping) else each for each in order]
    placed: list[tuple[int, int, Any]] = []
    last = -1
    for index, (identity, item) in enumerate(_identified(key, items)):
        if identity in wanted:
            last = wanted.index(identity)
        placed.append((last, index, item))
    return [item for _, _, item in sorted(placed, key=lambda each: each[:2])]


def _identified(key: str, items: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    for item in items:
        yield (item.get(key) if key and isinstance(item, Mapping) else item), item
