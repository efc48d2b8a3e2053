"""Table `rabbit` of a broker's configuration, as flux-coral2 reads it (coral2-spec section 1)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import structs

from warren.base.errors import UserMistake
from warren.instance.rabbittable import RabbitTable

_RESTRICTION_KEYS = ("restrict_persistent", "restrict_persistent_creation")
"""The keys that forbid guests to create persistent storage. Without either, it is forbidden."""


def read(configuration: Mapping[str, Any]) -> RabbitTable:
    """Read the table. Keys that are not known are passed over. Raises UserMistake."""
    table = dict(_table(configuration))
    for key in unknown_keys(configuration):
        del table[key]
    if not any(key in table for key in _RESTRICTION_KEYS):
        table[_RESTRICTION_KEYS[0]] = True
    try:
        return msgspec.convert(table, RabbitTable)
    except msgspec.ValidationError as error:
        raise UserMistake(f"The broker's configuration, table rabbit: {error}.") from error


def properties_of(configuration: Mapping[str, Any], queues: Iterable[str]) -> frozenset[str]:
    """Return the properties that make nodes those of some queues. Raises UserMistake.

    A name that is no queue's is taken for a property, as flux-coral2 does.
    """
    queue_tables = configuration.get("queues", {})
    properties: set[str] = set()
    for queue in queues:
        requires = queue_tables[queue].get("requires") if queue in queue_tables else [queue]
        if not requires:
            raise UserMistake(
                f"--drain-queues: queue {queue} requires no property: it has all nodes."
            )
        properties.update(requires)
    return frozenset(properties)


def unknown_keys(configuration: Mapping[str, Any]) -> Iterator[str]:
    """Return the keys of the table that nothing here reads."""
    known_keys = {field.encode_name for field in structs.fields(RabbitTable)}
    yield from sorted(_table(configuration).keys() - known_keys)


def _table(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    table = configuration.get("rabbit", {})
    if not isinstance(table, Mapping):
        raise UserMistake("The broker's configuration: rabbit is not a table.")
    return table
