"""The allocation sets that a directive needs, made by a profile (dws-spec section 3.1)."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from warren.base.errors import UserMistake
from warren.directives import capacity
from warren.directives.parse import Directive
from warren.dws import labels
from warren.dws.faults import Fault
from warren.dws.objects.breakdowns import AllocationNeed, Colocation, Constraints
from warren.dws.objects.storageprofiles import (
    FileSystemProfile,
    LustreTargetOptions,
    NnfStorageProfile,
)
from warren.dws.rabbits import rabbitstorages
from warren.dws.storage import storageprofiles

T = TypeVar("T")

PER_COMPUTE: Final = "AllocatePerCompute"
ACROSS_SERVERS: Final = "AllocateAcrossServers"
SINGLE_SERVER: Final = "AllocateSingleServer"
PER_SERVER: Final = "AllocatePerServer"
"""One allocation on each server: DWS defines it, and no directive needs it. It is never written
here, and refused where storage is placed."""

MGT_COLOCATION_KEY: Final = "lustre-mgt"
"""What keeps two MGTs off one rabbit."""

RABBIT_LABEL: Final = f"{labels.STORAGE_TYPE}=Rabbit"
"""The label that every set asks for, and every rabbit carries."""


def needs_of(directive: Directive, profile: NnfStorageProfile) -> list[AllocationNeed]:
    """Return the allocation sets that a directive needs, made by a profile (dws-spec section 3.1).

    Sizes are bytes, scaled and then padded. Raises Fault.
    """
    fs_type = directive.values.get("type", "")
    if fs_type == "lustre":
        return _lustre_needs(directive, profile)
    options = profile.data.file_system_profiles.get(fs_type)
    if options is None:
        known_types = ", ".join([*profile.data.file_system_profiles, "lustre"])
        why = f"there is no file system of type {fs_type!r}: take one of {known_types}"
        raise Fault(why, type="User", argument="type")
    path = f"data.{fs_type}Storage"
    size = _scaled_capacity(directive, profile, f"{path}.capacityScalingFactor", options)
    padding_path = f"{path}.allocationPadding"
    size += _parse_value(
        profile, padding_path, storageprofiles.padding, options.allocation_padding, size
    )
    constraints = Constraints(labels=(*options.storage_labels, RABBIT_LABEL))
    return [
        AllocationNeed(
            allocation_strategy=PER_COMPUTE,
            minimum_capacity=_checked_size(directive, size),
            label=fs_type,
            constraints=constraints,
        )
    ]


def with_supported_type_label(
    needs: Iterable[AllocationNeed], fs_type: str
) -> list[AllocationNeed]:
    """Return allocation sets that ask for rabbits which make a type of file systems."""
    label = rabbitstorages.supported_type_label(fs_type)
    return [
        replace(
            need,
            constraints=replace(need.constraints, labels=(label, *need.constraints.labels)),
        )
        for need in needs
    ]


def has_standalone_mgt(profile: NnfStorageProfile) -> bool:
    lustre = profile.data.lustre_storage
    mgt = lustre.mgt_options
    return bool(
        mgt.standalone_mgt_pool_name and not mgt.external_mgs and not lustre.combined_mgt_mdt
    )


def _lustre_needs(directive: Directive, profile: NnfStorageProfile) -> list[AllocationNeed]:
    """Return the sets of targets: an MGT comes with them, or there is one, or it is all."""
    lustre = profile.data.lustre_storage
    mdts_apart = (Colocation(key=""),) if lustre.mdt_options.exclusive else ()
    mgts_apart = (Colocation(key=MGT_COLOCATION_KEY),)
    if has_standalone_mgt(profile):
        _check_standalone_mgt(directive, profile)
        return [_target_need(profile, "mgt", SINGLE_SERVER, mgts_apart)]
    path = (
        f"data.lustreStorage.{storageprofiles.OPTIONS_FIELD_BY_LABEL['ost']}.capacityScalingFactor"
    )
    size = _checked_size(directive, _scaled_capacity(directive, profile, path, lustre.ost_options))
    ost = _target_need_of_size("ost", ACROSS_SERVERS, size, lustre.ost_options, ())
    if lustre.combined_mgt_mdt:
        # The capacity is that of an MDT, as NNF has it; all else is said of both.
        return [
            ost,
            _target_need(
                profile, "mgtmdt", ACROSS_SERVERS, mdts_apart or mgts_apart, capacity_label="mdt"
            ),
        ]
    mdt = _target_need(profile, "mdt", ACROSS_SERVERS, mdts_apart)
    if lustre.mgt_options.external_mgs:
        return [ost, mdt]
    return [ost, mdt, _target_need(profile, "mgt", SINGLE_SERVER, mgts_apart)]


def _check_standalone_mgt(directive: Directive, profile: NnfStorageProfile) -> None:
    """Raise the Fault of a directive that is not for an MGT alone."""
    name = profile.metadata.name
    if directive.command.text != "create_persistent":
        raise Fault(
            "standaloneMgtPoolName option can only be used with 'create_persistent' directive: "
            f"take another profile than {directive.values.get('profile', name)}",
            type="User",
            argument="profile",
        )
    if "capacity" in directive.values:
        raise Fault(
            "creating persistent MGT does not accept 'capacity' argument: its profile says how "
            "large it is",
            type="User",
            argument="capacity",
        )


def _target_need(
    profile: NnfStorageProfile,
    label: str,
    strategy: str,
    colocation: tuple[Colocation, ...],
    *,
    capacity_label: str = "",
) -> AllocationNeed:
    """Return a set of targets, of the size that a profile has for `capacity_label`, or for them."""
    options_by_label, capacity_label = (
        profile.data.lustre_storage.target_options,
        capacity_label or label,
    )
    path = f"data.lustreStorage.{storageprofiles.OPTIONS_FIELD_BY_LABEL[capacity_label]}.capacity"
    size = _parse_value(
        profile, path, storageprofiles.size_of_target, options_by_label[capacity_label].capacity
    )
    return _target_need_of_size(label, strategy, size, options_by_label[label], colocation)


def _target_need_of_size(
    label: str,
    strategy: str,
    size: int,
    options: LustreTargetOptions,
    colocation: tuple[Colocation, ...],
) -> AllocationNeed:
    return AllocationNeed(
        allocation_strategy=strategy,
        minimum_capacity=size,
        label=label,
        constraints=Constraints(
            labels=(*options.storage_labels, RABBIT_LABEL),
            count=options.count,
            scale=options.scale,
            colocation=colocation,
        ),
    )


def _scaled_capacity(
    directive: Directive,
    profile: NnfStorageProfile,
    path: str,
    options: FileSystemProfile | LustreTargetOptions,
) -> int:
    """Return the bytes that a directive asks for, scaled."""
    requested = _requested_bytes(directive)
    scaled = (
        _parse_value(profile, path, storageprofiles.factor, options.capacity_scaling_factor)
        * requested
    )
    if scaled >= capacity.MAX_BYTES_EXCLUSIVE:
        raise _too_large_fault(directive)
    if scaled < 1:
        raise Fault(
            f"{directive.values['capacity']!r} is too small: scaled by the profile's "
            f"{options.capacity_scaling_factor}, it is less than a byte",
            type="User",
            argument="capacity",
        )
    return int(scaled)


def _requested_bytes(directive: Directive) -> int:
    text = directive.values.get("capacity")
    if text is None:
        is_persistent = directive.command.text == "create_persistent"
        directive_text = "creating persistent storage" if is_persistent else directive.command.text
        why = f"{directive_text} requires 'capacity' argument, such as capacity=100GiB"
        raise Fault(why, type="User")
    try:
        size = capacity.parse(text)
    except UserMistake as error:
        raise Fault(str(error).removesuffix("."), type="User", argument="capacity") from error
    if size == 0:
        raise Fault("'capacity' must be a non-zero value", type="User", argument="capacity")
    return size


def _parse_value(
    profile: NnfStorageProfile, path: str, parse: Callable[..., T], *arguments: Any
) -> T:
    """Read a value of a profile. Raises Fault, for the administrators of profiles."""
    try:
        return parse(*arguments)
    except UserMistake as error:
        name = profile.metadata.name
        raise Fault(f"NnfStorageProfile {name} is wrong: {path}: {error}".rstrip(".")) from error


def _checked_size(directive: Directive, size: int) -> int:
    if size >= capacity.MAX_BYTES_EXCLUSIVE:
        raise _too_large_fault(directive)
    return size


def _too_large_fault(directive: Directive) -> Fault:
    return Fault(
        f"{directive.values['capacity']!r} is too large: with what its file system needs for "
        "itself, a capacity is less than 8 EiB",
        type="User",
        argument="capacity",
    )
