"""Who may use persistent storage: its owner, and those with whom the owner shares it.

NNF's annotation shares it with all users (dws-spec section 0.1); ours names users and groups, by
number. Ingest, the controllers and the nodes that mount it all ask here (ADR 057).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from warren.dws import labels
from warren.dws.node import NodeTrouble

_EVERYONE: Final = "everyone"
_USER_PREFIX, _GROUP_PREFIX = "uid", "gid"
_ID_PATTERN: Final = re.compile("[0-9]{1,10}")
_NO_ID: Final = 2**32 - 1
"""What the kernel takes for no user and no group."""


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """The users that may use storage, besides its owner."""

    everyone: bool = False
    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()

    def __str__(self) -> str:
        """Write it as an annotation has it."""
        everyone = [_EVERYONE] if self.everyone else []
        users = [f"{_USER_PREFIX}:{each}" for each in sorted(self.users)]
        groups = [f"{_GROUP_PREFIX}:{each}" for each in sorted(self.groups)]
        return ",".join([*everyone, *users, *groups])

    def __bool__(self) -> bool:
        return self.everyone or bool(self.users or self.groups)

    def __or__(self, other: "Sharing") -> "Sharing":
        return Sharing(
            everyone=self.everyone or other.everyone,
            users=self.users | other.users,
            groups=self.groups | other.groups,
        )

    def __sub__(self, other: "Sharing") -> "Sharing":
        return Sharing(
            everyone=self.everyone and not other.everyone,
            users=self.users - other.users,
            groups=self.groups - other.groups,
        )


PRIVATE: Final = Sharing()


class NotShared(NodeTrouble):
    """A volume is mounted, and has no room to say with whom it is shared: some are not let in.

    Its owner and those whom it lets in all the same may use it.
    """

    def __init__(self, message: str, *, owner_userid: int, let_in: Sharing) -> None:
        super().__init__(message)
        self.owner_userid = owner_userid
        self.let_in = let_in


def may_use(owner_userid: int, sharing: Sharing, userid: int, groups: Collection[int] = ()) -> bool:
    """Return whether a user, who is in some groups, may use storage of an owner."""
    return (
        userid == owner_userid
        or sharing.everyone
        or userid in sharing.users
        or not sharing.groups.isdisjoint(groups)
    )


def from_annotations(annotations: Mapping[str, str]) -> Sharing:
    """Return with whom an instance is shared. What cannot be read lets no user in."""
    ignored = annotations.get(labels.IGNORE_UID, "").lower() == "true"
    return Sharing(everyone=ignored) | parse(annotations.get(labels.SHARED_WITH, ""))


def parse(text: str) -> Sharing:
    """Read what `str` of a Sharing has written, and leave out what it would not have."""
    words = text.split(",")
    return Sharing(
        everyone=_EVERYONE in words,
        users=frozenset(_ids(words, _USER_PREFIX)),
        groups=frozenset(_ids(words, _GROUP_PREFIX)),
    )


def annotations(sharing: Sharing) -> dict[str, str | None]:
    """Return the annotations of an instance that share it; None takes one off."""
    users_and_groups = str(sharing - Sharing(everyone=True))
    return {
        labels.IGNORE_UID: "true" if sharing.everyone else None,
        labels.SHARED_WITH: users_and_groups or None,
    }


def _ids(words: Iterable[str], wanted_prefix: str) -> Iterable[int]:
    for word in words:
        prefix, _, number = word.partition(":")
        if prefix == wanted_prefix and _ID_PATTERN.fullmatch(number) and int(number) < _NO_ID:
            yield int(number)
