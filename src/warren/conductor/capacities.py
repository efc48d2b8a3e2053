"""How much flash rabbits have: looked up when it has changed, and not for each job."""

from warren.base.bytesize import GIB
from warren.base.objects import Key, Object, key_of
from warren.dws import kinds
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import Storage
from warren.kube.informer import Informer


class Capacities:
    """The capacities of all rabbits, as their Storages tell them."""

    def __init__(self, storages: Informer) -> None:
        self._storages = storages
        self._capacity_bytes: dict[Key, int] = {}
        self._largest_gib: int | None = None
        """None where it is to be computed anew, since a capacity has changed."""
        storages.listen(self._changed)

    def largest_gib(self) -> int | None:
        """Return how many GiB the largest rabbit has; None where none has told."""
        if self._largest_gib is None:
            self._largest_gib = max(self._capacity_bytes.values(), default=0) // GIB
        return self._largest_gib or None

    def _changed(self, obj: Object) -> None:
        key = key_of(obj)
        if key.namespace != kinds.DEFAULT_NAMESPACE:
            return
        raw = self._storages.get(key)
        capacity = read(raw, Storage).status.capacity if raw is not None else 0
        if capacity != self._capacity_bytes.pop(key, 0):
            self._largest_gib = None
        if capacity:
            self._capacity_bytes[key] = capacity
