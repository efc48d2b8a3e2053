"""What objects of all kinds have: metadata, references, and the errors of statuses."""

from collections.abc import Mapping

from warren.base.objects import Key
from warren.dws.objects.decoding import Struct


class Meta(Struct, frozen=True):
    """What every object's metadata says."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None


class Reference(Struct, frozen=True):
    """A reference to an object."""

    kind: str = ""
    name: str = ""
    namespace: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class Error(Struct, frozen=True):
    """The `error` of most statuses."""

    debug_message: str
    user_message: str = ""
    type: str = "Internal"
    severity: str = "Minor"
