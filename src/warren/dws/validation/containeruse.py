"""What is wrong with a container: its profile, and the storage that it is given."""

from collections.abc import Iterator, Mapping
from typing import Final

from warren.base.errors import UserMistake
from warren.directives import capacity
from warren.directives.diagnostics import Mistake, alternatives, did_you_mean
from warren.directives.parse import Argument, Directive, Token
from warren.dws.containers import containerprofiles
from warren.dws.validation.copypaths import global_path_mistakes
from warren.dws.validation.facts import Facts
from warren.dws.validation.jobdirectives import JobDirectives, type_of, value_of

_TYPES_NOT_FOR_CONTAINERS: Final = ("xfs", "ext4")
"""Only one computer at a time may mount these, and the container's is not the job's."""


def container_mistakes(
    directive: Directive, index: int, job: JobDirectives, facts: Facts
) -> Iterator[Mistake]:
    """Find what is wrong with a container beside a job."""
    if facts.runs_containers is False and not _is_started_by_others(directive, facts):
        yield directive.mistake(
            directive.command,
            f"Containers cannot run here: {facts.why_no_containers}.",
            "Take the directive out, and start the program in the job.",
        )
        return
    if job.container_index != index:
        yield directive.mistake(
            directive.command, "Only one container directive is supported for each job."
        )
    if facts.userid == 0:
        yield directive.mistake(
            directive.command,
            "Containers run as the job's user, and never as root.",
            "Submit as another user.",
        )
    profile_name = value_of(directive, "profile")
    if profile_name is not None and facts.container_profiles is not None:
        yield from _profile_mistakes(directive, profile_name, job, facts)
    for argument in directive.arguments:
        if argument.value is None:
            continue
        key = argument.key.text
        if key.startswith("DW_JOB_"):
            yield from _storage_mistakes(directive, argument.value, "job", job, facts)
        elif key.startswith("DW_PERSISTENT_"):
            yield from _storage_mistakes(directive, argument.value, "persistent", job, facts)
        elif key.startswith("DW_GLOBAL_"):
            yield from global_path_mistakes(directive, argument, argument.value.text, facts)


def _is_started_by_others(directive: Directive, facts: Facts) -> bool:
    """Return whether the profile of a directive leaves its containers to others to start."""
    profile = (facts.container_profiles or {}).get(directive.values.get("profile", ""))
    return profile is not None and not profile.data.create_container


def _profile_mistakes(
    directive: Directive, profile_name: Token, job: JobDirectives, facts: Facts
) -> Iterator[Mistake]:
    """Find what a container's profile says against its directive."""
    available = facts.container_profiles or {}
    profile = available.get(profile_name.text)
    if profile is None:
        yield directive.mistake(
            profile_name,
            f"There is no container profile named {profile_name.text!r} here.",
            did_you_mean(profile_name.text, sorted(available))
            or (
                f"Take {alternatives(sorted(available))}."
                if available
                else "Ask an admin to make it."
            ),
        )
        return
    users = profile.restriction(facts.userid, facts.groupid)
    if users is not None:
        yield directive.mistake(
            profile_name, f"The container profile {profile_name.text!r} is for {users} alone."
        )
    mpi = profile.data.mpi_spec
    if facts.runs_containers and profile.data.create_container and mpi and mpi.copy_offload:
        yield directive.mistake(
            profile_name,
            f"The container profile {profile_name.text!r} is for copy offload, which there is none "
            "of here.",
            "Leave the container out: requires=copy-offload is all that it takes here."
            if facts.has_offload
            else None,
        )
    argument_by_storage: dict[str, Argument] = {}
    for argument in directive.arguments:
        name = containerprofiles.argument_name(argument.key.text)
        if not name.startswith("DW_"):
            continue
        if name not in profile.storage_by_argument:
            yield directive.mistake(
                argument.key,
                f"The container profile {profile_name.text!r} has no storage {argument.key.text}.",
                did_you_mean(name, profile.storage_by_argument),
            )
        elif name in argument_by_storage:
            yield directive.mistake(argument.key, f"{name} is there twice.", "Once is enough.")
        argument_by_storage.setdefault(name, argument)
    for name, need in profile.storage_by_argument.items():
        if name in argument_by_storage:
            yield from _capacity_mistakes(
                directive, argument_by_storage[name].value, need.minimum_capacity, job
            )
        elif not need.optional:
            yield directive.mistake(
                profile_name,
                f"The container profile {profile_name.text!r} needs the storage {name}.",
                f"Add {name}= and the name of a storage of the job.",
            )


def _capacity_mistakes(
    directive: Directive, value: Token | None, minimum: str, job: JobDirectives
) -> Iterator[Mistake]:
    """Find a jobdw that is smaller than the application needs."""
    jobdw = job.jobdws.get(value.text) if value is not None else None
    size = jobdw.values.get("capacity") if jobdw is not None else None
    if value is None or not size or not minimum:
        return
    try:
        is_too_small = capacity.parse(size) < capacity.parse(minimum)
    except UserMistake:
        return  # that is told of the jobdw
    if is_too_small:
        yield directive.mistake(
            value,
            f"The application needs {minimum}, and {value.text!r} has {size}.",
            f"Write capacity={minimum} there.",
        )


def _storage_mistakes(
    directive: Directive, value: Token, lifetime: str, job: JobDirectives, facts: Facts
) -> Iterator[Mistake]:
    names: Mapping[str, object] = job.jobdws if lifetime == "job" else job.persistentdw_indexes
    if value.text not in names:
        command = "jobdw" if lifetime == "job" else "persistentdw"
        if not job.may_have_unknown_names:
            yield directive.mistake(
                value,
                f"This job has no {command} named {value.text!r}.",
                did_you_mean(value.text, names),
            )
        return
    fs_type = type_of(lifetime, value.text, job, facts)
    if fs_type in _TYPES_NOT_FOR_CONTAINERS:
        yield directive.mistake(
            value,
            f"Containers cannot use {value.text!r}, which is {fs_type}.",
            "Make it of type gfs2, lustre or raw.",
        )
