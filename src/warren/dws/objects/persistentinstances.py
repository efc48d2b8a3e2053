"""PersistentStorageInstances: storage that outlives jobs."""

import msgspec

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Error, Meta, Reference


class PersistentSpec(Struct, frozen=True):
    name: str
    fs_type: str
    dw_directive: str = ""
    user_id: int = msgspec.field(name="userID", default=0)
    state: str = "Active"
    consumer_references: tuple[Reference, ...] = ()


class PersistentStatus(Struct, frozen=True):
    state: str = ""
    servers: Reference | None = None
    error: Error | None = None


class PersistentStorageInstance(Struct, frozen=True):
    """Storage that outlives the Workflow that has made it."""

    metadata: Meta
    spec: PersistentSpec
    status: PersistentStatus = PersistentStatus()
