"""Admission: rules that see a write before it is stored.

The rules are pure functions of other packages; the embedded API server calls them
in process, and on a real cluster a webhook answers with the same ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

import msgspec

from warren.base.objects import Key, Kind, Object
from warren.kube.client import Refused


class Denied(Refused):
    """Admission has denied the request; the sentence says why."""

    def __init__(self, why: str, webhook: str = "") -> None:
        """`webhook` is the name of the one that has denied it, or would have on a real cluster."""
        super().__init__(why)
        self.webhook = webhook


class Operation(StrEnum):
    """What is about to be done to an object."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


class User(msgspec.Struct, frozen=True):
    """The user of a request: a name, and the groups that it belongs to."""

    name: str
    groups: frozenset[str] = frozenset()


APISERVER = User("system:apiserver", frozenset({"system:masters"}))
"""The server itself, and what shares its process."""


@dataclass(frozen=True, kw_only=True)
class Review:
    """One write that asks for admission."""

    operation: Operation
    kind: Kind
    key: Key
    """Its name may be empty: not every new object has one yet."""
    old: Object | None = None
    """As it is; None where it is about to be created."""
    new: Object | None = None
    """As it is to be; None where it is about to be deleted."""
    user: User = APISERVER
    through_status: bool = False
    """Through the status subresource."""
    dry_run: bool = False
    warn: Callable[[str], None] = field(default=lambda warning: None, compare=False)
    """Is told what the writer should know of a write that is admitted."""


class Admission(Protocol):
    """Decides on writes."""

    async def admit(self, review: Review) -> Object | None:
        """Return the object as it is to be stored: `review.new`, or another one. Raises Denied."""
        ...


class AdmitAll:
    """No rules."""

    async def admit(self, review: Review) -> Object | None:
        return review.new


class AdmissionChain:
    """Several rules, each of which sees what those before it have made of the object."""

    def __init__(self, rules: Sequence[Admission]) -> None:
        self._rules = rules

    async def admit(self, review: Review) -> Object | None:
        for rule in self._rules:
            admitted = await rule.admit(review)
            if admitted is not review.new:
                review = replace(review, new=admitted)
        return review.new


AdmissionLister = Callable[[Kind], list[Object]]
"""Returns all stored objects of a kind, for admission to look at."""
