"""Which flash the scheduler may give to jobs: that of rabbits whose Storages are Ready."""

from collections.abc import Iterable
from typing import Protocol

from warren.base.objects import Key, Object, key_of
from warren.dws import kinds
from warren.dws.objects import Storage, read
from warren.dws.rabbits import standing, usable
from warren.kube.informer import Informer


class Scheduler(Protocol):
    """Is told of each rabbit's flash, as often as there is news of it."""

    def set_ssds(self, rabbit: str, *, up: bool, state: str = "") -> None: ...


def follow(storages: Informer, rabbits: Iterable[str], scheduler: Scheduler) -> None:
    """Tell the scheduler what it may give out, from now on; and nothing that is not known."""

    def tell(key: Key) -> None:
        raw = storages.get(key)
        if raw is None:
            scheduler.set_ssds(key.name, up=False)
            return
        storage = read(raw, Storage)
        up = usable(storage)
        scheduler.set_ssds(key.name, up=up, state=standing(storage))

    def changed(obj: Object) -> None:
        key = key_of(obj)
        if key.namespace == kinds.DEFAULT_NAMESPACE:
            tell(key)

    for rabbit in rabbits:
        tell(Key(kinds.DEFAULT_NAMESPACE, rabbit))
    storages.listen(changed)
