"""An index of objects by their labels, so that a list by label need not look at all of them."""

from collections.abc import Iterable, Mapping

from warren.base.objects import Key, Object


class LabelIndex:
    """The keys of one resource's objects, by each label that they carry."""

    def __init__(self) -> None:
        self._keys_by_label: dict[tuple[str, str], set[Key]] = {}

    def update(self, key: Key, before: Object | None, after: Object | None) -> None:
        """File an object as it is now, instead of as it was."""
        old, new = _labels(before), _labels(after)
        if old == new:
            return
        for label in old - new:
            keys = self._keys_by_label[label]
            keys.discard(key)
            if not keys:
                del self._keys_by_label[label]
        for label in new - old:
            self._keys_by_label.setdefault(label, set()).add(key)

    def find(self, labels: Mapping[str, str]) -> Iterable[Key]:
        """Return the keys of the objects that carry all of these labels, one or more."""
        key_sets = sorted(
            (self._keys_by_label.get(label, set()) for label in labels.items()), key=len
        )
        return key_sets[0].intersection(*key_sets[1:])


def _labels(obj: Object | None) -> set[tuple[str, str]]:
    labels = (obj or {}).get("metadata", {}).get("labels") or {}
    return set(labels.items())
