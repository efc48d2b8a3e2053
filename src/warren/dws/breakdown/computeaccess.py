"""The access constraints that a breakdown states for each file system (dws-spec section 3.2)."""

from collections.abc import Mapping, Sequence
from typing import Final

from warren.dws.objects.storageprofiles import NnfStorageProfile

_NETWORK: Final = {"type": "network", "priority": "mandatory"}
_PHYSICAL: Final = {"type": "physical", "priority": "mandatory"}
_PHYSICAL_IF_POSSIBLE: Final = {"type": "physical", "priority": "bestEffort"}

ACCESS_CONSTRAINTS: Final[Mapping[str, Sequence[Mapping[str, str]]]] = {
    "raw": (_PHYSICAL,),
    "xfs": (_PHYSICAL,),
    "ext4": (_PHYSICAL,),
    "gfs2": (_NETWORK, _PHYSICAL),
}
"""In which ways nodes must reach a file system of each type (dws-spec section 3.2)."""


def access_constraints(
    fs_type: str, label: str, profile: NnfStorageProfile | None
) -> Sequence[Mapping[str, str]]:
    """Return in which ways nodes must reach a set of a file system (dws-spec section 3.2)."""
    if fs_type != "lustre":
        return ACCESS_CONSTRAINTS.get(fs_type, (_PHYSICAL,))
    target = profile.data.lustre_storage.target_options.get(label) if profile is not None else None
    prefers_physical = target is not None and target.colocate_computes
    return (_NETWORK, _PHYSICAL_IF_POSSIBLE) if prefers_physical else (_NETWORK,)


def is_node_local(fs_type: str) -> bool:
    """Return whether each allocation of a file system of this type is one compute node's."""
    return fs_type != "lustre" and _PHYSICAL in ACCESS_CONSTRAINTS.get(fs_type, (_PHYSICAL,))
