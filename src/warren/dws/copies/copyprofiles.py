"""NnfDataMovementProfiles: how copies are made, which one a directive takes, what none may say.

A directive names a profile or takes the default. Where there is no default, the copier makes its
copies. The directive has its own copy of the profile, which is pinned, from Proposal on
(dws-spec section 11.4).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from warren.base.errors import UserMistake
from warren.base.objects import Object
from warren.directives.diagnostics import alternatives, did_you_mean
from warren.dws import kinds, labels
from warren.dws.copies import commands
from warren.dws.faults import Fault
from warren.dws.objects.decoding import Malformed, read_json
from warren.dws.objects.meta import Meta
from warren.dws.profilemistakes import ProfileMistake


class CopyProfile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is read of the `data` of a profile."""

    default: bool = False
    pinned: bool = False
    command: str
    slots: int = 8
    max_slots: int = 0
    store_stdout: bool = False
    create_dest_dir: bool = True


def choose(name: str | None, profiles: Mapping[str, Object]) -> Object | None:
    """Find the profile that a directive names, or the default, if there is one. Raises Fault."""
    if name is not None:
        if name in profiles:
            return profiles[name]
        remedy = "There is none: name none"
        if profiles:
            remedy = did_you_mean(name, profiles) or f"Take {alternatives(sorted(profiles))}"
        raise Fault(
            f"Unable to find NnfDataMovementProfile: {name}. {remedy}",
            type="User",
            argument="profile",
        )
    defaults = [obj for obj in profiles.values() if obj["data"].get("default")]
    if len(defaults) > 1:
        names = ", ".join(sorted(obj["metadata"]["name"] for obj in defaults))
        raise Fault(
            f"{len(defaults)} NnfDataMovementProfiles are the default, and one may be: {names}"
        )
    return defaults[0] if defaults else None


def movement_additions(profile: Object | None) -> tuple[Object, Object]:
    """Return what a profile adds to the annotations and to the spec of a movement. Raises Fault."""
    if profile is None:
        return {}, {}
    reference = {
        "kind": kinds.COPY_PROFILE.name,
        "name": profile["metadata"]["name"],
        "namespace": profile["metadata"]["namespace"],
    }
    return {labels.COPY_PROFILE: annotation(profile)}, {"profileReference": reference}


def annotation(profile: Object) -> str:
    """Write what the agent needs of a pinned profile. Raises Fault for one that is wrong."""
    data = profile.get("data") or {}
    fields = {name: data[name] for name in _FIELDS if name in data}
    for mistake in mistakes({**profile, "data": {**data, "default": False, "pinned": True}}):
        name = profile["metadata"]["name"]
        raise Fault(f"the NnfDataMovementProfile {name} cannot be used: {mistake}")
    return msgspec.json.encode(fields, order="sorted").decode()


_FIELDS = ("command", "slots", "maxSlots", "storeStdout", "createDestDir")


def copy_options(movement_meta: Meta) -> dict[str, Any]:
    """Return the fields of a Copy that its movement's profile sets. Raises UserMistake."""
    text = movement_meta.annotations.get(labels.COPY_PROFILE)
    if text is None:
        return {}
    try:
        profile = read_json(text, CopyProfile)
    except Malformed as error:
        raise UserMistake(f"The movement's annotation {labels.COPY_PROFILE}: {error}") from None
    method = commands.parse(profile.command)
    if not method.words:
        return {"verify": method.verify, "rate": method.rate}
    return {
        "command": method.words,
        "hosts": commands.hostfile_text(profile.slots, profile.max_slots),
        "makes_directories": profile.create_dest_dir,
        "tells_output": profile.store_stdout,
    }


def mistakes(new: Object, old: Object | None = None) -> Sequence[ProfileMistake]:
    """Return all that is wrong with a profile as it is to be, or with what is changed in it."""
    try:
        profile = msgspec.convert(new.get("data") or {}, CopyProfile)
    except msgspec.ValidationError as error:
        return [ProfileMistake("data", str(error))]
    return list(_mistakes(profile, new, old))


def _mistakes(profile: CopyProfile, new: Object, old: Object | None) -> Iterator[ProfileMistake]:
    if profile.default and profile.pinned:
        yield ProfileMistake("data.default", "a pinned profile cannot be the default")
    old_data = (old or {}).get("data") or {}
    if old is not None and bool(old_data.get("pinned")) is not profile.pinned:
        yield ProfileMistake("data.pinned", "cannot be changed: make another profile")
    elif profile.pinned and old is not None and old_data != new["data"]:
        yield ProfileMistake("data", "of a pinned profile cannot be changed")
    elif not profile.pinned and new["metadata"].get("namespace") != kinds.PROFILES_NAMESPACE:
        where = kinds.PROFILES_NAMESPACE
        yield ProfileMistake("metadata.namespace", f"profiles that are not pinned are in {where}")
    for name, value in (("slots", profile.slots), ("maxSlots", profile.max_slots)):
        if value < 0:
            yield ProfileMistake(f"data.{name}", "is a number from 0 on")
    try:
        commands.parse(profile.command)
    except UserMistake as error:
        yield ProfileMistake("data.command", str(error).removesuffix("."))
