"""NnfStorageProfiles: which one a directive takes, its pinned copy, and what is wrong in one.

A directive names a profile or takes the default, and from then on reads its own copy, which
is pinned: what is changed in the source meanwhile changes nothing for it (dws-spec section 10).
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.base.objects import Key, Kind, Object
from warren.directives import capacity
from warren.directives.diagnostics import alternatives, did_you_mean
from warren.dws import commandlines, kinds, labels
from warren.dws.commandlines import ProfileCommands
from warren.dws.faults import Fault
from warren.dws.node import LUSTRE
from warren.dws.objects.decoding import Malformed, read
from warren.dws.objects.meta import Meta
from warren.dws.objects.storageprofiles import LustreProfile, NnfStorageProfile
from warren.dws.profilemistakes import ProfileMistake
from warren.dws.storage import lustre, mgscommands

# Choice


def index_choices(obj: Object) -> tuple[str, ...]:
    """Index the profiles that directives choose from, by their namespace: no copies."""
    namespace, data = obj["metadata"].get("namespace"), obj.get("data")
    if data is None and obj.get("kind") == kinds.CONTAINER_PROFILE.name:
        data = obj.get("spec")  # the container RFC's form
    if namespace != kinds.PROFILES_NAMESPACE or not isinstance(data, Mapping):
        return ()
    return () if data.get("pinned") else (namespace,)


def choose(name: str | None, profiles: Sequence[NnfStorageProfile]) -> NnfStorageProfile:
    """Find the profile that a directive names, or the one that is the default. Raises Fault."""
    if name is not None:
        for profile in profiles:
            if profile.metadata.name == name:
                return profile
        known = sorted(profile.metadata.name for profile in profiles)
        remedy = did_you_mean(name, known) or f"Take {alternatives(known)}"
        why = f"Unable to find NnfStorageProfile: {name}. {remedy}"
        raise Fault(why, type="User", argument="profile")
    defaults = [profile for profile in profiles if profile.data.default]
    if not defaults:
        namespace = kinds.PROFILES_NAMESPACE
        raise Fault(f"no NnfStorageProfile in {namespace} is the default, and one must be")
    if len(defaults) > 1:
        names = ", ".join(sorted(profile.metadata.name for profile in defaults))
        count = len(defaults)
        raise Fault(f"{count} NnfStorageProfiles are the default, and one must be: {names}")
    return defaults[0]


# The pinned copy


def pinned_copy(
    source: Object, owner_kind: Kind, meta: Meta, extra_labels: Mapping[str, str]
) -> Object:
    """Copy a profile for an owner, whose name and namespace the copy has.

    Everything that it says is in the copy, whether it is known here or not. `extra_labels`
    are those of the copy beside its owner's.
    """
    return {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {**extra_labels, **labels.of_owner(owner_kind, meta)},
            "ownerReferences": labels.owner_references(owner_kind, meta),
        },
        "data": {**source["data"], "default": False, "pinned": True},
    }


def pinned_profile_key(storage_meta: Meta) -> Key | None:
    """Return which profile was pinned for a storage; None if none was."""
    storage_labels = storage_meta.labels
    if labels.PINNED_PROFILE_NAME not in storage_labels:
        return None
    namespace = storage_labels.get(labels.PINNED_PROFILE_NAMESPACE, storage_meta.namespace)
    return Key(namespace, storage_labels[labels.PINNED_PROFILE_NAME])


def check_copy(obj: Object, owner_kind: Kind, meta: Meta) -> None:
    """Raise the Fault of a profile that has the place of an owner's copy and is none."""
    if labels.is_owner(owner_kind, meta, obj["metadata"].get("labels") or {}):
        return
    name = f"NnfStorageProfile {meta.namespace}/{meta.name}"
    is_older = labels.owner_of(obj) == (f"{owner_kind.name} {meta.namespace}/{meta.name}",)
    if is_older:
        raise Fault(f"{name} is of an earlier {owner_kind.name} and about to go", severity="Minor")
    raise Fault(f"{name} is in the way of the copy for {owner_kind.name} {meta.name}: remove it")


# Values


def factor(text: str) -> float:
    """Read a capacityScalingFactor. Raises UserMistake."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not (isfinite(number) and number > 0):
        raise UserMistake(f"{text!r} is not a factor: write a number above 0, such as 1.5.")
    return number


def padding(text: str, size: int) -> int:
    """Return the bytes of an allocationPadding: bytes, a size, or percent. Raises UserMistake."""
    percent = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)%", text)
    if percent is not None:
        return int(float(percent[1]) * 0.01 * size)
    return capacity.parse(text or "0")


# What none may say


def mistakes(new: Object, old: Object | None = None) -> list[ProfileMistake]:
    """Return all that is wrong with a profile as it is to be, or with what is changed in it."""
    try:
        profile = read(new, NnfStorageProfile)
    except Malformed as error:
        return [ProfileMistake("data", str(error))]
    return [*_flag_mistakes(profile, old), *_content_mistakes(profile)]


def _flag_mistakes(profile: NnfStorageProfile, old: Object | None) -> Iterator[ProfileMistake]:
    data, namespace = profile.data, profile.metadata.namespace
    if data.default and data.pinned:
        yield ProfileMistake("data.default", "a pinned profile cannot be the default")
    if old is not None and bool((old.get("data") or {}).get("pinned")) is not data.pinned:
        yield ProfileMistake("data.pinned", "cannot be changed: make another profile")
    elif not data.pinned and namespace != kinds.PROFILES_NAMESPACE:
        profiles_namespace = kinds.PROFILES_NAMESPACE
        yield ProfileMistake(
            "metadata.namespace", f"profiles that are not pinned are in {profiles_namespace}"
        )


def _content_mistakes(profile: NnfStorageProfile) -> Iterator[ProfileMistake]:
    for name, options in profile.data.file_system_profiles.items():
        path = f"data.{name}Storage"
        yield from _value_mistakes(
            f"{path}.capacityScalingFactor", factor, options.capacity_scaling_factor
        )
        yield from _value_mistakes(
            f"{path}.allocationPadding", padding, options.allocation_padding, 1
        )
        yield from _variable_mistakes(path, options.variable_override)
        yield from _command_mistakes(path, **options.commands)
        yield from _volume_group_mistakes(path, options.block_device_commands)
    yield from _lustre_mistakes("data.lustreStorage", profile.data.lustre_storage)


def _volume_group_mistakes(
    path: str, block_commands: Mapping[str, Any]
) -> Iterator[ProfileMistake]:
    """Find what would change all of a site's volume group, on a rabbit."""
    rabbit = block_commands.get("rabbitCommands")
    if not isinstance(rabbit, Mapping):
        return
    group = f"{path}.{commandlines.BLOCK_DEVICE_COMMANDS}.rabbitCommands"
    changing_lines = {f"{group}.lvChange.{name}" for name in ("activate", "deactivate")}
    try:
        lines = [*commandlines.lines_of(rabbit, group)]
    except UserMistake:
        return  # that is told elsewhere, as what makes no sense is
    for where, line in lines:
        if where not in changing_lines or not line.strip() or any(commandlines.mistakes(line)):
            continue
        if not commandlines.changes_one_volume(shlex.split(line), "$VG_NAME/$LV_NAME"):
            why = "the group has volumes of others: name the one by $VG_NAME/$LV_NAME, alone"
            yield ProfileMistake(where, why)


def _lustre_mistakes(path: str, lustre_profile: LustreProfile) -> Iterator[ProfileMistake]:
    mgt = lustre_profile.mgt_options
    is_set_by_path = {
        f"{path}.combinedMgtMdt": lustre_profile.combined_mgt_mdt,
        f"{path}.mgtOptions.externalMgs": bool(mgt.external_mgs),
        f"{path}.mgtOptions.standaloneMgtPoolName": bool(mgt.standalone_mgt_pool_name),
    }
    first_path, *other_paths = [
        field_path for field_path, is_set in is_set_by_path.items() if is_set
    ] or [""]
    for field_path in other_paths:
        yield ProfileMistake(
            field_path, f"cannot be beside {first_path}: a file system has one MGT"
        )
    for label, options in lustre_profile.target_options.items():
        where = f"{path}.{OPTIONS_FIELD_BY_LABEL[label]}"
        if options.count is not None and options.scale is not None:
            yield ProfileMistake(f"{where}.scale", f"cannot be beside {where}.count: leave one out")
        if label == "ost":
            yield from _value_mistakes(
                f"{where}.capacityScalingFactor", factor, options.capacity_scaling_factor
            )
        else:
            yield from _value_mistakes(f"{where}.capacity", size_of_target, options.capacity)
        yield from _variable_mistakes(where, options.variable_override)
        yield from _command_mistakes(where, **options.commands)
    for line in mgt.pre_mount_commands:
        for name in mgscommands.variables_without_value(line, mgt.variable_override):
            why = f"{name} has no value here: an MGS is told of a file system, and of no target"
            yield ProfileMistake(f"{path}.mgtOptions.preMountCommands", why)
    client = lustre_profile.client_options
    yield from _variable_mistakes(f"{path}.clientOptions", client.variable_override)
    yield from _command_mistakes(f"{path}.clientOptions", commandlines=client.commandlines)


OPTIONS_FIELD_BY_LABEL: Final[Mapping[str, str]] = {
    "mgt": "mgtOptions",
    "mdt": "mdtOptions",
    "mgtmdt": "mgtMdtOptions",
    "ost": "ostOptions",
}
"""The field of a profile with the options of Lustre targets, by their labels."""


def size_of_target(text: str) -> int:
    """Return the bytes of a Lustre target. Raises UserMistake."""
    size = capacity.parse(text)
    if size == 0:
        raise UserMistake(f"{text!r} is no room for a target: write more, such as 5GiB.")
    return size


def _value_mistakes(path: str, parse: Any, *arguments: Any) -> Iterator[ProfileMistake]:
    try:
        parse(*arguments)
    except UserMistake as error:
        yield ProfileMistake(path, str(error).removesuffix("."))


def _variable_mistakes(path: str, override: Mapping[str, str]) -> Iterator[ProfileMistake]:
    for name in override:
        where = f"{path}.variableOverride"
        if not name.startswith("$"):
            yield ProfileMistake(
                where, f"{name!r} does not start with $: the name of a variable does"
            )
        elif not commandlines.is_variable(name):
            yield ProfileMistake(where, commandlines.unknown_variable_message(name))
        elif name == "$MOUNT_PATH":
            why = "all jobs' storage on a node would be mounted at one path"
            yield ProfileMistake(where, f"{name} cannot have another value: {why}")
        elif commandlines.is_fixed(name):
            yield ProfileMistake(
                where,
                f"{name} cannot have another value: nodes find what they have made by it",
            )


def _command_mistakes(path: str, **groups: Any) -> Iterator[ProfileMistake]:
    """Find what is wrong with command lines, by the names of the groups that they are in."""
    try:
        for where, line in commandlines.lines_of(groups, path):
            for why in commandlines.mistakes(line):
                yield ProfileMistake(where, why)
    except UserMistake as error:
        where, _, why = str(error).removesuffix(".").partition(": ")
        yield ProfileMistake(where, why)


def lustre_commands(
    profile: NnfStorageProfile | None, label: str, variables: Mapping[str, str]
) -> ProfileCommands:
    """Return the commands of the Lustre targets of a label, and of clients. Raises UserMistake.

    What the profile does not say is as it has to be.
    """
    lustre_profile = profile.data.lustre_storage if profile is not None else LustreProfile()
    options, path = (
        lustre_profile.target_options[label],
        f"data.lustreStorage.{OPTIONS_FIELD_BY_LABEL[label]}",
    )
    client_options, clients_path = lustre_profile.client_options, "data.lustreStorage.clientOptions"
    client_lines = {**lustre.CLIENT_DEFAULTS, **client_options.commandlines}
    target_lines = {"commandlines": {**lustre.default_command_lines(label), **options.commandlines}}
    lines = [
        *commandlines.lines_of(target_lines, path),
        *commandlines.lines_of({"commandlines": client_lines}, clients_path),
    ]
    overrides = {
        path: _overrides(options.variable_override),
        clients_path: _overrides(client_options.variable_override),
    }
    return commandlines.collect(LUSTRE, lines, variables, overrides)


def commands_of(
    profile: NnfStorageProfile | None, fs_type: str, variables: Mapping[str, str]
) -> ProfileCommands:
    """Return the commands that a profile has for a type of file systems. Raises UserMistake."""
    options = profile.data.file_system_profiles.get(fs_type) if profile is not None else None
    if options is None:
        return commandlines.NO_COMMANDS
    path = f"data.{fs_type}Storage"
    lines = commandlines.lines_of(options.commands, path)
    overrides = {path: _overrides(options.variable_override)}
    return commandlines.collect(fs_type, lines, variables, overrides)


def _overrides(override: Mapping[str, str]) -> Mapping[str, str]:
    """Return the values that a profile gives to variables.

    Copies that were pinned by earlier versions may give some to variables whose value is the node's
    alone: their storage was made without them, and is found so.
    """
    return {name: value for name, value in override.items() if not commandlines.is_fixed(name)}
