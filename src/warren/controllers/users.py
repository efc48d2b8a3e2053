"""Whose an object is: users have their turns at the controllers, however many objects one has."""

from collections.abc import Callable

from warren.base.objects import Key, Object
from warren.kube.informer import Informer

UserKey = int | str | None
"""Whose turn it is: a user's id, or for objects that do not tell it, what else the objects of one
user share."""


def user_in_spec(obj: Object) -> UserKey:
    """Return the user that the objects of a Workflow have in their spec."""
    user: UserKey = obj.get("spec", {}).get("userID")
    return user


def user_getter(
    informer: Informer, user_of: Callable[[Object], UserKey] = user_in_spec
) -> Callable[[Key], UserKey]:
    """Return what returns the user of an object by its key; None where there is none."""

    def user(key: Key) -> UserKey:
        obj = informer.get(key)
        return user_of(obj) if obj is not None else None

    return user
