"""What the store says no with: the sentences that Kubernetes' clients and scripts look for."""

from typing import Any

from warren.base.objects import Kind
from warren.kube.client import AlreadyExists, Conflict, NotFound, Refused, Unavailable


class ObjectNotFound(NotFound):
    """There is no object of that name."""

    def __init__(self, kind: Kind, name: str) -> None:
        super().__init__(f'{kind} "{name}" not found')
        self.kind = kind
        self.name = name


class ResourceNotServed(NotFound):
    """There is no such kind, or not in this version."""

    def __init__(self) -> None:
        super().__init__("the server could not find the requested resource")


class ObjectAlreadyExists(AlreadyExists):
    """There is an object of that name already."""

    def __init__(self, kind: Kind, name: str) -> None:
        super().__init__(f'{kind} "{name}" already exists')
        self.kind = kind
        self.name = name


_MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class ObjectConflict(Conflict):
    """The object is not the one, or not in the version, that the write was decided on."""

    def __init__(self, kind: Kind, name: str, why: str = _MODIFIED) -> None:
        super().__init__(f'Operation cannot be fulfilled on {kind} "{name}": {why}')
        self.kind = kind
        self.name = name


class ResourceVersionTooLarge(Unavailable):
    """What is asked for is of a version that there has not been yet."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(f"Timeout: Too large resource version: {version}, current: {newest}")


def failed_precondition(what: str, wanted: Any, found: Any) -> str:
    """Return the message of `ObjectConflict` for a precondition that does not hold."""
    return f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {found}"


class DiskFull(Unavailable):
    """The disk is full: nothing new is stored until there is room."""


class LogNotAvailable(Refused):
    """What a container prints cannot be had, at least not yet."""


class AddressMismatch(Refused):
    """What is written says that it is another object than the one of its address."""
