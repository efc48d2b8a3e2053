"""What is known of the cluster that is to carry directives out, and of its persistent storage."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.dws.containers.containerprofiles import ContainerProfile
from warren.dws.node import FILE_SYSTEM_TYPES, RawVolumeAccess
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.persistent import expiry, sharing
from warren.dws.persistent.instances import USABLE_STATES
from warren.dws.persistent.sharing import PRIVATE, Sharing, may_use
from warren.dws.pods.pod import NO_RUNTIME_MESSAGE


class InstanceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A PersistentStorageInstance, as far as directives may name it."""

    name: str
    fs_type: str
    userid: int
    sharing: Sharing = PRIVATE
    """Who else than its user may use it, though not destroy it."""
    is_usable: bool = True
    """Whether its file systems are there."""
    deleting: bool = False
    expires: float | None = None
    """In seconds since the epoch; None is never."""
    in_use: bool = False
    directive: str | None = None
    """What has made it."""


def instance_facts(obj: Mapping[str, Any]) -> InstanceFacts:
    """Read a PersistentStorageInstance (dws-spec section 7)."""
    metadata, spec = obj["metadata"], obj["spec"]
    return InstanceFacts(
        name=metadata["name"],
        fs_type=spec.get("fsType", ""),
        userid=spec.get("userID", 0),
        sharing=sharing.from_annotations(metadata.get("annotations") or {}),
        is_usable=(obj.get("status") or {}).get("state") in USABLE_STATES,
        expires=expiry.from_annotations(metadata.get("annotations") or {}),
        deleting="deletionTimestamp" in metadata or spec.get("state") == "Destroying",
        in_use=bool(spec.get("consumerReferences")),
        directive=spec.get("dwDirective"),
    )


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the cluster that is to carry directives out.

    What is None is not known, and what depends on it is not checked.
    """

    userid: int | None
    """Whose directives these are."""
    may_create: bool = True
    """Whether that user may create persistent storage."""
    groups: Collection[int] = ()
    """The groups that this user is in, where persistent storage is shared with some."""
    file_systems: Sequence[LustreFileSystem] | None
    raw_volume_access: RawVolumeAccess | None
    """Who may have raw volumes (`rabbitstorages.raw_volume_access`)."""
    instances: Mapping[str, InstanceFacts] | None = None
    """The instances of the Workflow's namespace by name."""
    storage_profiles: Sequence[NnfStorageProfile] | None = None
    supported_types: Sequence[str] | None = FILE_SYSTEM_TYPES
    """The types of file systems that there are."""
    why_not_made: Callable[[str], str | None] = lambda fs_type: None
    """Tells why no rabbit makes a type of file systems; None where one does."""
    runs_containers: bool | None = False
    """Whether it runs containers."""
    why_no_containers: str = NO_RUNTIME_MESSAGE
    """Why it does not."""
    container_profiles: Mapping[str, ContainerProfile] | None = None
    """The profiles of containers that directives choose from, by name."""
    groupid: int | None = None
    """The group of the job."""
    now: float | None = None
    """In seconds since the epoch."""
    duration: float = 0.0
    """For how many seconds the job may run; 0 is without end."""
    has_dependencies: bool = False
    """Whether the job begins after others: what is in use now may not be then."""
    storage_of_dependencies: frozenset[str] = frozenset()
    """The persistent storage that the jobs create after which it begins."""
    copy_profiles: frozenset[str] | None = frozenset()
    """The names of its NnfDataMovementProfiles, which copies may name."""
    has_offload: bool = False
    """Whether running jobs may ask it for copies, with `requires=copy-offload`."""

    def is_owner(self, instance: InstanceFacts) -> bool:
        """Return whether persistent storage is this user's own."""
        return self.userid is None or instance.userid == self.userid

    def may_use(self, instance: InstanceFacts) -> bool:
        """Return whether this user may use persistent storage."""
        return self.userid is None or may_use(
            instance.userid, instance.sharing, self.userid, self.groups
        )


NO_FACTS: Final = Facts(
    userid=None,
    file_systems=None,
    raw_volume_access=None,
    supported_types=None,
    runs_containers=None,
    copy_profiles=None,
)
"""What is known where there is no cluster to ask."""
