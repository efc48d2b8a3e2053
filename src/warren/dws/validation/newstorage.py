"""What is wrong with a directive that makes storage: its type, its size, its profile."""

from collections.abc import Iterator, Sequence
from typing import Final

from warren.base.errors import UserMistake
from warren.directives import capacity
from warren.directives.diagnostics import Mistake, alternatives
from warren.directives.parse import Directive
from warren.dws.breakdown import allocationneeds
from warren.dws.faults import Fault
from warren.dws.node import RawVolumeAccess
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.storage import storageprofiles
from warren.dws.validation.facts import Facts
from warren.dws.validation.jobdirectives import JobDirectives, value_of
from warren.dws.validation.offloaduse import offload_mistakes


def jobdw_mistakes(
    directive: Directive, index: int, job: JobDirectives, facts: Facts
) -> Iterator[Mistake]:
    """Find what is wrong with storage of a job's own."""
    yield from type_mistakes(directive, facts)
    yield from size_mistakes(directive)
    yield from offload_mistakes(directive, job, facts)


def type_mistakes(directive: Directive, facts: Facts) -> Iterator[Mistake]:
    """Find a type of file systems that no rabbit makes, or not for this user."""
    type_token = value_of(directive, "type")
    if type_token is None:
        return
    if facts.supported_types is not None and type_token.text not in facts.supported_types:
        yield directive.mistake(
            type_token,
            f"File systems of type {type_token.text} are not made by this cluster: its rabbits "
            f"make {alternatives(facts.supported_types)}.",
            "Try type=xfs, of which each compute node has its own.",
        )
    elif type_token.text == "raw" and facts.raw_volume_access is RawVolumeAccess.NONE:
        yield directive.mistake(
            type_token,
            "Volumes of type raw cannot be made here: a raw volume is a block device, "
            "and the rabbits' volumes are directories.",
            "Try type=xfs, or ask an admin for rabbits with block devices.",
        )
    elif (why := facts.why_not_made(type_token.text)) is not None:
        yield directive.mistake(
            type_token,
            f"No rabbit makes file systems of type {type_token.text}: {why}.",
            "Take another type, or ask an admin for this one.",
        )
    elif (
        type_token.text == "raw"
        and facts.raw_volume_access is RawVolumeAccess.FOR_ROOT
        and facts.userid
    ):
        yield directive.mistake(
            type_token,
            "Volumes of type raw are for root alone here: the rabbits make them as loop devices, "
            "and who holds one reaches the storage of others.",
            "Try type=xfs, or ask an admin for rabbits with volume groups.",
        )


def size_mistakes(directive: Directive) -> Iterator[Mistake]:
    """Find a capacity that is none."""
    size = value_of(directive, "capacity")
    if size is None:
        return
    try:
        if capacity.parse(size.text) == 0:
            yield directive.mistake(size, "'capacity' must be a non-zero value.", "Try 100GiB.")
    except UserMistake as mistake:
        yield directive.mistake(size, str(mistake))


_STORAGE_COMMANDS: Final = ("jobdw", "create_persistent")


def profile_mistakes(
    directive: Directive, available: Sequence[NnfStorageProfile]
) -> Iterator[Mistake]:
    """Find what the profile says against a directive that makes storage."""
    if directive.command.text not in _STORAGE_COMMANDS or directive.argument("type") is None:
        return
    try:
        profile = storageprofiles.choose(directive.values.get("profile"), available)
        allocationneeds.needs_of(directive, profile)
    except Fault as fault:
        value = value_of(directive, fault.argument)
        yield directive.mistake(value or directive.command, _sentence(fault))


def _sentence(fault: Fault) -> str:
    sentence = f"{str(fault)[:1].upper()}{str(fault)[1:]}"
    return sentence if sentence.endswith("?") else f"{sentence}."
