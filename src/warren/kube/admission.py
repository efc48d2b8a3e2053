"""Admission: rules that see an object before it is stored.

The rules are somebody else's pure functions; the embedded API server calls them
in process, and on a real cluster a webhook answers with the same ones.
"""

from collections.abc import Callable
from typing import Protocol

from warren.base.objects import Kind, Object
from warren.kube.client import Refused


class Denied(Refused):
    """Admission has denied the request; the sentence says why."""


class Admission(Protocol):
    """Decides on creations and updates. Deletions are never refused."""

    def create(self, kind: Kind, obj: Object) -> Object:
        """Give the object as it is to be stored. Raises Denied."""
        ...

    def update(self, kind: Kind, old: Object, new: Object) -> None:
        """Raise Denied where `new` may not take the place of `old`."""
        ...


class AdmitAll:
    """No rules."""

    def create(self, kind: Kind, obj: Object) -> Object:
        return obj

    def update(self, kind: Kind, old: Object, new: Object) -> None:
        return None


Reader = Callable[[Kind], list[Object]]
"""What admission may look at: all stored objects of a kind."""
