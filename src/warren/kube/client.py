"""The `Client` protocol, to a Kubernetes API. Adapters: `local` (in process) and `http`."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from warren.base.errors import Retryable, UserMistake, WarrenError
from warren.base.objects import Change, Key, Kind, Object, Remove


class NotFound(WarrenError):
    """The object is not there."""


class AlreadyExists(WarrenError):
    """An object of that name is there."""


class Conflict(Retryable):
    """The object has changed since it was seen: look again."""

    delay = 0.05


class Expired(Retryable):
    """The watch starts too far back: list again, at once."""

    delay = 0.0


class Refused(UserMistake):
    """The API will not have it, and says why: invalid, forbidden, denied by admission."""


class Invalid(Refused):
    """The definition of its kind does not know what the object says."""


class Forbidden(Refused, Retryable):
    """The API does not know us, or its roles do not let us, as of now.

    A server that has just started refuses all requests until it has read its roles. Else it is for
    its admin to give us one: to be told either way, and to be asked again.
    """

    delay = 1.0


class Unavailable(Retryable):
    """The API does not answer."""

    delay = 1.0


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch: ADDED, MODIFIED or DELETED, and the object after it; or BOOKMARK."""

    type: str
    object: Object


class Listing(msgspec.Struct, frozen=True):
    """Objects of a kind, and the resourceVersion that a watch goes on from."""

    items: list[Object]
    resource_version: str


class Client(Protocol):
    """Reads and writes objects. Objects are shared, and never modified.

    Every method raises Unavailable when the API does not answer, Refused
    when it will not do what is asked, and Forbidden when we may not ask for it.
    """

    async def get(self, kind: Kind, key: Key) -> Object:
        """Return one object. Raises NotFound."""
        ...

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        """Return the objects of a namespace, or of all, that carry all the labels."""
        ...

    def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        """Return changes after the resourceVersion `since`, until the API ends the watch.

        Raises Expired.
        """
        ...

    async def create(self, kind: Kind, obj: Object) -> Object:
        """Make an object. Raises AlreadyExists."""
        ...

    async def patch(self, change: Change) -> Object:
        """Merge into an object. Raises NotFound, and Conflict if it is not the one seen."""
        ...

    async def delete(self, remove: Remove) -> None:
        """Delete an object, or mark it for its finalizers.

        Raises NotFound, and Conflict if it is not the one that is meant.
        """
        ...


class LogReader(Protocol):
    """Reads what containers print. Raises what a `Client` raises."""

    def log(self, pod: Key, container: str, lines: int) -> AsyncIterator[bytes]:
        """Return the last `lines` lines that a container of a pod has printed, in pieces.

        Raises NotFound, and Refused where it has not begun.
        """
        ...
