"""What is wrong with a directive that creates, uses or destroys persistent storage."""

from collections.abc import Iterator, Mapping
from typing import Final

from warren.directives.diagnostics import Mistake, did_you_mean
from warren.directives.parse import Directive, Token
from warren.dws.node import RawVolumeAccess
from warren.dws.persistent import expiry
from warren.dws.persistent.instances import asks_for_same
from warren.dws.reservednames import reserved_prefix
from warren.dws.validation.facts import Facts, InstanceFacts
from warren.dws.validation.jobdirectives import JobDirectives, value_of
from warren.dws.validation.newstorage import size_mistakes, type_mistakes
from warren.dws.validation.offloaduse import offload_mistakes

_MAX_NAME_LENGTH: Final = 63
"""Characters of an instance's name, which its storage carries as a label."""


def create_persistent_mistakes(
    directive: Directive, index: int, job: JobDirectives, facts: Facts
) -> Iterator[Mistake]:
    """Find what is wrong with storage that is to outlive its job."""
    yield from _alone_mistakes(directive, job)
    if not facts.may_create:
        yield directive.mistake(
            directive.command,
            "Only the instance owner can create persistent storage here.",
            "Ask an admin to create it, and to share it with you.",
        )
    yield from type_mistakes(directive, facts)
    if directive.argument("capacity") is None and directive.values.get("type") != "lustre":
        yield directive.mistake(
            directive.command,
            "Creating persistent storage requires a capacity.",
            "Add capacity=100GiB, or what you need.",
        )
    yield from size_mistakes(directive)
    name = value_of(directive, "name")
    if name is not None and not (len(name.text) <= _MAX_NAME_LENGTH and name.text[-1:].isalnum()):
        yield directive.mistake(
            name,
            f"The name of persistent storage has {_MAX_NAME_LENGTH} characters at most, and ends "
            "with a letter or a digit.",
            "Choose another name.",
        )
    prefix = None if name is None else reserved_prefix(name.text)
    if name is not None and prefix is not None:
        yield directive.mistake(
            name,
            f"Names that begin with {prefix!r} are reserved for what is made for jobs and rabbits.",
            "Choose another name.",
        )
        return
    instance = None if name is None else (facts.instances or {}).get(name.text)
    if name is not None and instance is not None:
        if instance.deleting:
            yield directive.mistake(
                name,
                f"The persistent storage {name.text!r} is being destroyed.",
                "Wait until it is gone, or choose another name.",
            )
        elif not facts.is_owner(instance):
            yield directive.mistake(
                name,
                f"The persistent storage {name.text!r} exists, and is another user's.",
                "Choose another name.",
            )
        elif instance.directive is not None and not asks_for_same(instance.directive, directive):
            yield directive.mistake(
                name,
                f"The persistent storage {name.text!r} exists, and was made by "
                f"{instance.directive!r}.",
                "Choose another name, or destroy it first.",
            )


def _alone_mistakes(directive: Directive, job: JobDirectives) -> Iterator[Mistake]:
    if job.directive_count > 1:
        yield directive.mistake(
            directive.command,
            f"A {directive.command.text} is the only directive of its job.",
            "Submit a job of its own for it.",
        )


def persistentdw_mistakes(
    directive: Directive, index: int, job: JobDirectives, facts: Facts
) -> Iterator[Mistake]:
    """Find what is wrong with persistent storage that a job is to use."""
    yield from offload_mistakes(directive, job, facts)
    name = value_of(directive, "name")
    if name is None:
        return
    if job.persistentdw_indexes.get(name.text) != index:
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is named by an earlier persistentdw of this "
            "job.",
            "Once is enough.",
        )
    elif facts.instances is not None:
        yield from _use_mistakes(directive, name, facts.instances, facts)


def _use_mistakes(
    directive: Directive, name: Token, instances: Mapping[str, InstanceFacts], facts: Facts
) -> Iterator[Mistake]:
    instance = instances.get(name.text)
    if name.text in facts.storage_of_dependencies and (instance is None or not instance.is_usable):
        return
    if instance is None:
        usable = [each.name for each in instances.values() if facts.may_use(each)]
        yield directive.mistake(
            name,
            f"There is no persistent storage named {name.text!r}.",
            did_you_mean(name.text, sorted(usable))
            or "Make it first, with create_persistent, or wait for the job that does: "
            "--dependency=afterok:JOBID.",
        )
    elif instance.deleting:
        yield directive.mistake(
            name, f"The persistent storage {name.text!r} is being destroyed.", "Make another."
        )
    elif not facts.may_use(instance):
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is another user's.",
            f"Its user may share it: warren persistent share {name.text} --user=YOU.",
        )
    elif (expiry_mistake := _expiry_mistake(instance, facts)) is not None:
        yield directive.mistake(name, *expiry_mistake)
    elif not instance.is_usable:
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is still being made.",
            "Submit again when its state is Active, or with --dependency=afterok:JOBID.",
        )
    elif (
        instance.fs_type == "raw"
        and facts.raw_volume_access is RawVolumeAccess.FOR_ROOT
        and facts.userid
    ):
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is raw, and raw volumes are for root alone "
            "here: the rabbits make them as loop devices, and who holds one reaches the storage "
            "of others.",
        )


def _expiry_mistake(instance: InstanceFacts, facts: Facts) -> tuple[str, str] | None:
    """Return what is wrong with storage that does not last as long as the job, and what helps."""
    if instance.expires is None or facts.now is None:
        return None
    expires_at = expiry.expiry_text(instance.expires)
    if instance.expires <= facts.now:
        return (
            f"The persistent storage {instance.name!r} has expired at {expires_at}.",
            "Make another.",
        )
    if facts.now + facts.duration <= instance.expires:
        return None
    return (
        f"The persistent storage {instance.name!r} expires at {expires_at}, before the job's time "
        "limit.",
        "Give the job a shorter one, or ask its user for: warren persistent expire "
        f"{instance.name} --for=TIME.",
    )


def destroy_persistent_mistakes(
    directive: Directive, index: int, job: JobDirectives, facts: Facts
) -> Iterator[Mistake]:
    """Find why persistent storage cannot be destroyed."""
    yield from _alone_mistakes(directive, job)
    name = value_of(directive, "name")
    instance = None if name is None else (facts.instances or {}).get(name.text)
    if name is None or instance is None or instance.deleting:
        return  # what is not there is destroyed
    if not facts.is_owner(instance):
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is another user's, and only that user can "
            "destroy it.",
        )
    elif instance.in_use and not facts.has_dependencies:
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} cannot be destroyed while jobs use it.",
            "Submit this when they have ended, such as with --dependency=afterany:JOBID.",
        )
