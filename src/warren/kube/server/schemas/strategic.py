"""Strategic merge patches: how clients change objects of Kubernetes' own kinds.

A merge patch (RFC 7386) that knows which lists are merged by a key of their items, and takes
directives: `$patch` replaces or deletes, `$setElementOrder/NAME` orders, and
`$deleteFromPrimitiveList/NAME` takes values away. Kinds that are defined by clients have none.
A directive is checked before it is done, and refused where it does not fit what is there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from warren.base.objects import Object
from warren.kube.client import Refused

_MERGE_KEY_BY_LIST: Final[Mapping[str, str]] = {
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

_PORT_KEYS: Final = ("containerPort", "port")
"""The same for the ports of containers and of services, which share a name."""

_MERGED_SETS: Final = frozenset({"finalizers", "podCIDRs"})
"""Lists of plain values that are merged."""

_PATCH_DIRECTIVE: Final = "$patch"
_ORDER_PREFIX: Final = "$setElementOrder/"
_DELETE_PREFIX: Final = "$deleteFromPrimitiveList/"
_RETAIN_DIRECTIVE: Final = "$retainKeys"


def strategic_merge(old: Object, patch: Any) -> Object:
    """Return the object after the patch; neither is modified.

    Raises Refused for what is no patch, and for a directive that does not fit what is there.
    """
    if not isinstance(patch, Mapping):
        raise Refused("a strategic merge patch is an object")
    return _merge_object(old, patch)


def _merge_object(old: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    match patch.get(_PATCH_DIRECTIVE):
        case "replace":
            return {name: value for name, value in patch.items() if name != _PATCH_DIRECTIVE}
        case "delete":
            return {}
        case None | "merge":
            pass
        case other:
            raise Refused(f"{_PATCH_DIRECTIVE}: {other!r} is not replace, delete or merge")
    kept_names = (
        set(_check_plain_list(_RETAIN_DIRECTIVE, patch[_RETAIN_DIRECTIVE]))
        if _RETAIN_DIRECTIVE in patch
        else old
    )
    new = {name: old[name] for name in old if name in kept_names}
    for name, value in patch.items():
        if name.startswith(_DELETE_PREFIX):
            list_name = name.removeprefix(_DELETE_PREFIX)
            deleted_values = set(_check_plain_list(name, value))
            if (present := new.get(list_name)) is not None:
                new[list_name] = [
                    each
                    for each in _check_plain_list(list_name, present)
                    if each not in deleted_values
                ]
        elif name.startswith("$"):
            continue
        elif value is None:
            new.pop(name, None)
        else:
            new[name] = _merge_value(name, new.get(name), value)
    for name, order in patch.items():
        list_name = name.removeprefix(_ORDER_PREFIX)
        if list_name != name:
            order_values = _check_list(name, order)
            if isinstance(new.get(list_name), list):
                new[list_name] = _ordered(list_name, new[list_name], order_values)
    return new


def _check_list(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise Refused(f"{name}: this is not a list")
    return value


def _check_plain_list(name: str, value: Any) -> Sequence[Any]:
    if any(isinstance(each, Mapping | list | tuple) for each in _check_list(name, value)):
        raise Refused(f"{name}: this is not a list of plain values")
    return _check_list(name, value)


def _merge_value(name: str, old: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _merge_object(old if isinstance(old, Mapping) else {}, value)
    if not isinstance(value, list):
        return value
    before = list(old) if isinstance(old, list | tuple) else []
    if name in _MERGED_SETS:
        present = set(_check_plain_list(name, before))
        return [*before, *(each for each in _check_plain_list(name, value) if each not in present)]
    key = _merge_key(name, [*before, *value])
    return _merge_list(key, before, value) if key else value


def _merge_key(name: str, items: Sequence[Any]) -> str:
    """Return what tells the items of a list apart, or nothing."""
    if not all(isinstance(each, Mapping) for each in items):
        return ""
    if name == "ports":
        return next((key for key in _PORT_KEYS if any(key in each for each in items)), "")
    return _MERGE_KEY_BY_LIST.get(name, "")


def _merge_list(key: str, old: Sequence[Any], patches: Sequence[Mapping[str, Any]]) -> list[Any]:
    if any(each.get(_PATCH_DIRECTIVE) == "replace" for each in patches):
        return [each for each in patches if _PATCH_DIRECTIVE not in each]
    merged_by_identity = {_identity(key, each): each for each in old if key in each}
    for each in patches:
        identity = _identity(key, each)
        if each.get(_PATCH_DIRECTIVE) == "delete":
            merged_by_identity.pop(identity, None)
        else:
            merged_by_identity[identity] = _merge_object(merged_by_identity.get(identity, {}), each)
    return list(merged_by_identity.values())


def _identity(key: str, item: Mapping[str, Any]) -> Any:
    """Return by what an item is told apart from others. Raises Refused."""
    if key not in item:
        raise Refused(f"an item of a list that is merged has no {key}")
    if not isinstance(item[key], str | int):
        raise Refused(f"{key}: items are told apart by it; it is neither a string nor a number")
    return item[key]


def _ordered(name: str, items: Sequence[Any], order: Sequence[Any]) -> list[Any]:
    """Return items in an order; those that it does not name stay behind the one before them."""
    key = _merge_key(name, items)
    position_by_identity: dict[Any, int] = {}
    for each in order:
        identity = each.get(key) if isinstance(each, Mapping) else each
        if not isinstance(identity, Mapping | list | tuple):
            position_by_identity.setdefault(identity, len(position_by_identity))
    placed: list[tuple[int, int, Any]] = []
    last_position = -1
    for index, item in enumerate(items):
        identity = item.get(key) if key else item
        if not isinstance(identity, Mapping | list | tuple):
            last_position = position_by_identity.get(identity, last_position)
        placed.append((last_position, index, item))
    return [item for _, _, item in sorted(placed, key=lambda each: each[:2])]
