"""What running jobs are told of their rabbits: that one fails, is taken out of service, is back."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from warren.base.objects import Object
from warren.dws import labels
from warren.dws.objects.storages import Storage
from warren.dws.rabbits import outofservice
from warren.dws.rabbits.rabbitstorages import effective_status
from warren.rfc import hostlist

EXCEPTION: Final = "rabbit-alert"
"""The type of the exceptions that tell it."""

SEVERITY: Final = 2

_BACK_MESSAGE: Final = "is Ready again"

_MAX_ALERTS: Final = 100
"""How many a job is told: one whose rabbit comes and goes all day has heard enough."""


def new_alerts(
    earlier: Collection[str], storages: Mapping[str, Storage], nodes: Collection[str]
) -> Iterator[str]:
    """Return what is news for a job on some nodes, of the rabbits that it depends on.

    `earlier` is what it was told before, in order.
    """
    if len(earlier) >= _MAX_ALERTS:
        return
    last_message_by_rabbit = {
        rabbit: message for rabbit, _, message in (each.partition(" ") for each in earlier)
    }
    for rabbit, storage in sorted(storages.items()):
        message = _trouble_of(storage, nodes) or _BACK_MESSAGE
        if message != last_message_by_rabbit.get(rabbit, _BACK_MESSAGE):
            yield f"{rabbit} {message}"


def _trouble_of(storage: Storage, nodes: Collection[str]) -> str:
    """Say what is wrong with a rabbit; nothing where all is well."""
    state = effective_status(storage)
    lost_nodes = [each.name for each in storage.status.access.computes if each.status != "Ready"]
    lost_hostlist = hostlist.encode(sorted(each for each in lost_nodes if each in nodes))
    if state == "Disabled":
        return f"is Disabled{outofservice.note_text(storage, labels.DISABLED)}"
    if state not in ("Ready", "Drained"):
        return f"is {state}"
    if lost_hostlist:
        return f"has lost its link to {lost_hostlist}"
    return (
        f"is Drained{outofservice.note_text(storage, labels.DRAINED)}" if state == "Drained" else ""
    )


def rabbits_of(obj: Object) -> tuple[str, ...]:
    """Index Servers by the rabbits that they name."""
    sets = _get_path(obj, "spec", "allocationSets")
    return tuple({server["name"] for each in sets for server in each.get("storage") or ()})


def nodes_of(obj: Object) -> tuple[str, ...]:
    """Index Computes by their nodes."""
    data = obj.get("data")
    return tuple({each["name"] for each in data}) if isinstance(data, list) else ()


def linked_nodes_of(storage: Object) -> Iterable[str]:
    """Return the compute nodes that a Storage, as it is stored, says are wired to it."""
    access = _get_path(storage, "status", "access")
    links = access.get("computes") if isinstance(access, Mapping) else None
    return [each["name"] for each in links or ()]


def _get_path(obj: Object, *names: str) -> Any:
    value: Any = obj
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value or ()
