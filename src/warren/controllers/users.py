"""Whose an object is: users have their turns at the controllers, however many objects one has."""

from collections.abc import Callable

from warren.base.objects import Key
from warren.kube.informer import Informer


def user_getter(informer: Informer) -> Callable[[Key], int | None]:
    """Return what returns the user of an object by its key; None where there is none.

    It is the one that the objects of a Workflow have in their spec.
    """

    def user(key: Key) -> int | None:
        obj = informer.get(key)
        return obj.get("spec", {}).get("userID") if obj is not None else None

    return user
