"""Which types of file systems the rabbits make, by the indexes of their Storages."""

from warren.dws.objects.decoding import read
from warren.dws.objects.storages import Storage
from warren.dws.rabbits import rabbitstorages
from warren.kube.informer import Informer


def why_not_made(storages: Informer, file_system: str) -> str | None:
    """Return why no rabbit makes a type of file systems; None where one does, or none is there."""
    # All rabbits are looked at only for a refusal.
    if storages.is_indexed("supported type", file_system):
        return None
    return rabbitstorages.why_not_made(
        file_system, (read(obj, Storage) for obj in storages.values())
    )


def is_made_by_some_only(storages: Informer, file_system: str) -> bool:
    """Return whether some rabbits make a type of file systems, and others do not."""
    return storages.is_indexed("unsupported type", file_system) and storages.is_indexed(
        "supported type", file_system
    )
