"""Whose an object is: users have their turns at the controllers, however many objects one has."""

from collections.abc import Callable

from warren.base.objects import Key, Object
from warren.kube.informer import Informer

User = int | str | None
"""A user's id; of objects that do not tell it, what else the objects of one user share."""


def user_in_spec(obj: Object) -> User:
    """Return the user that the objects of a Workflow have in their spec."""
    user: User = obj.get("spec", {}).get("userID")
    return user


def user_getter(
    informer: Informer, user_of: Callable[[Object], User] = user_in_spec
) -> Callable[[Key], User]:
    """Return what returns the user of an object by its key; None where there is none."""

    def user(key: Key) -> User:
        obj = informer.get(key)
        return user_of(obj) if obj is not None else None

    return user
