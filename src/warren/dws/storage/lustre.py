"""Lustre, as what it is made of: targets, command lines, and the names of file systems.

A file system has an MGT, MDTs and OSTs, or an MGT that is an MDT, too; or it uses the MGT of
others. Which sets of targets there are is decided in `dws.breakdown` (dws-spec section 3.1).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.objects import Change, Key
from warren.dws import kinds, reports
from warren.dws.objects.lustrefilesystems import NnfLustreMGT, Requester
from warren.dws.objects.nnfstorages import NnfStorageSet

SET_LABELS: Final = ("mgt", "mdt", "mgtmdt", "ost")
"""The labels of its allocation sets, and of the targets in them."""

LABELS_WITH_MGS: Final = ("mgt", "mgtmdt")
"""Those of the sets whose first target is the MGS."""

MIN_TARGET_SIZE: Final = 4_000_000_000
"""Bytes of a target, however few are asked for (dws-spec section 5)."""

_ZPOOL_CREATE_OPTIONS: Final = "-O canmount=off -o cachefile=none $POOL_NAME $DEVICE_LIST"
_MKFS_OPTIONS: Final[Mapping[str, str]] = {
    "mgt": "--mgs",
    "mdt": "--mdt --fsname=$FS_NAME --mgsnode=$MGS_NID --index=$INDEX",
    "mgtmdt": "--mgs --mdt --fsname=$FS_NAME --index=$INDEX",
    "ost": "--ost --fsname=$FS_NAME --mgsnode=$MGS_NID --index=$INDEX",
}


def default_command_lines(label: str) -> Mapping[str, str]:
    """Return the command lines of targets of a label for which a profile has none."""
    backing_options = "--backfstype=$BACKFS --mkfsoptions=nnf:jobid=$JOBID $ZVOL_NAME"
    return {
        "zpoolCreate": _ZPOOL_CREATE_OPTIONS,
        "mkfs": f"{_MKFS_OPTIONS[label]} {backing_options}",
        "mountTarget": "$ZVOL_NAME $MOUNT_PATH",
        "unmountTarget": "$MOUNT_PATH",
        "zpoolDestroy": "$POOL_NAME",
    }


CLIENT_DEFAULTS: Final[Mapping[str, str]] = {
    "mountCompute": "$MGS_NID:/$FS_NAME $MOUNT_PATH",
    "mountRabbit": "$MGS_NID:/$FS_NAME $MOUNT_PATH",
}


_MOUNT_HOOKS: Final = ("PreMount", "PostMount", "PreUnmount", "PostUnmount")
CLIENT_COMMAND_NAMES: Final[Mapping[str, Sequence[str]]] = {
    side: (
        f"mount{side.capitalize()}",
        "rabbitPostSetup",
        *(f"{side}{each}" for each in _MOUNT_HOOKS),
    )
    for side in ("rabbit", "compute")
}
"""The names in a profile of the commands that clients on each side run. The first that mounts a
file system runs what is after its setup, wherever that is."""

# Targets


class TargetShare(msgspec.Struct, frozen=True, kw_only=True):
    """What one rabbit has of an allocation set, as one share."""

    rabbit: str
    number: int
    """Which of the rabbit's shares in its set this is, from 0."""
    count: int
    label: str
    start_index: int
    """The index of its first target."""


def target_shares(targets: NnfStorageSet) -> Iterator[TargetShare]:
    """Return the shares of a set in order. A file system has one MGT, and MDTs beside it."""
    last_number_by_rabbit: dict[str, int] = {}
    start = 0
    for node in targets.nodes:
        counts = [node.count]
        if targets.name == "mgtmdt" and not start and node.count > 1:
            counts = [1, node.count - 1]
        for count in counts:
            number = last_number_by_rabbit[node.name] = last_number_by_rabbit.get(node.name, -1) + 1
            label = "mdt" if targets.name == "mgtmdt" and start else targets.name
            yield TargetShare(
                rabbit=node.name, number=number, count=count, label=label, start_index=start
            )
            start += count


def components(sets: Sequence[NnfStorageSet]) -> dict[str, Any]:
    """Return which rabbits have which targets, as a status tells it."""
    rabbits_by_component: dict[str, list[str]] = {}
    for each in sets:
        rabbits_by_component[f"{each.name}s"] = [node.name for node in each.nodes]
    rabbits = sorted({node.name for each in sets for node in each.nodes})
    return {**rabbits_by_component, "nnfNodes": rabbits}


def variables(sets: Sequence[NnfStorageSet]) -> dict[str, str]:
    """Return what command lines may say of how many targets there are."""
    counts = {each.name: sum(node.count for node in each.nodes) for each in sets}
    found = {f"$NUM_{label.upper()}S": str(counts.get(label, 0)) for label in SET_LABELS}
    found["$NUM_NNFNODES"] = str(len({node.name for each in sets for node in each.nodes}))
    return found


# Names of file systems

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def next_name(name: str) -> str:
    """Return the name after another: of as many letters, counted by the last."""
    letters = [*name]
    for position in reversed(range(len(letters))):
        if letters[position] != _LETTERS[-1]:
            letters[position] = chr(ord(letters[position]) + 1)
            return "".join(letters)
        letters[position] = _LETTERS[0]
    return "".join(letters)


def naming_change(mgt: NnfLustreMGT) -> Change | None:
    """Return the change that gives each storage that claims an MGT a file system name of its own.

    Those that claim it no more are forgotten. None where all have a name, which is not given out
    again before all others were.
    """
    claimants = dict.fromkeys(mgt.spec.claim_list)
    kept_claims = [each for each in mgt.status.claim_list if each.reference in claimants]
    named_claimants = {each.reference for each in kept_claims}
    taken_names = {each.fsname for each in kept_claims} | {*mgt.spec.fs_name_black_list}
    candidate = mgt.status.fs_name_next or mgt.spec.fs_name_start
    new_claims: list[tuple[Requester, str]] = []
    for reference in claimants:
        if reference in named_claimants:
            continue
        while candidate in taken_names:
            candidate = next_name(candidate)
        new_claims.append((reference, candidate))
        taken_names.add(candidate)
        candidate = next_name(candidate)
    if not new_claims and len(kept_claims) == len(mgt.status.claim_list):
        return None
    claims = [*((each.reference, each.fsname) for each in kept_claims), *new_claims]
    status = {
        "fsNameNext": candidate,
        "claimList": [{"reference": reference_of(each), "fsname": name} for each, name in claims],
    }
    return reports.status(kinds.LUSTRE_MGT, mgt.metadata, status)


def reference_of(requester: Requester) -> dict[str, str]:
    """Return the reference by which a storage has asked for something."""
    found = reference_to(requester.kind, requester.key)
    return {**found, "uid": requester.uid} if requester.uid else found


def reference_to(kind: str, key: Key) -> dict[str, str]:
    """Return a reference to an object."""
    return {"kind": kind, "name": key.name, "namespace": key.namespace}
