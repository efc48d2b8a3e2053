"""A DirectiveBreakdown and what it is decided by, as seen by one reconcile."""

from collections.abc import Callable, Sequence

import msgspec

from warren.base.objects import Object
from warren.dws import kinds, labels
from warren.dws.objects.assignments import Servers
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.storageprofiles import NnfStorageProfile


class BreakdownSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A DirectiveBreakdown, and what it is decided by, as it was seen."""

    breakdown: DirectiveBreakdown
    profiles: Sequence[Object]
    """Those that directives choose from."""
    pinned_profile: Object | None = None
    """The profile that has the name of the directive's pinned copy."""
    instance: PersistentStorageInstance | None = None
    """The persistent storage that the directive names."""
    servers: Servers | None = None
    """The Servers that have the instance's name."""
    only_some_rabbits_make: Callable[[str], bool] = lambda fs_type: False
    """Tells whether some rabbits make a type of file systems and others do not."""

    @property
    def instance_servers(self) -> Servers | None:
        """The Servers of the instance: any other object may have its name."""
        if self.instance is None or self.servers is None:
            return None
        object_labels = self.servers.metadata.labels
        is_own = labels.is_owner(kinds.PERSISTENT_INSTANCE, self.instance.metadata, object_labels)
        return self.servers if is_own else None

    def decoded_profiles(self) -> Sequence[NnfStorageProfile]:
        return [read(obj, NnfStorageProfile) for obj in self.profiles]
