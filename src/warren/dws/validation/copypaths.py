"""What is wrong with the ends of a copy, and with paths of global file systems."""

from collections.abc import Iterator, Mapping

from warren.directives.diagnostics import Mistake, alternatives, did_you_mean
from warren.directives.parse import Argument, Directive, Token
from warren.dws.copies import staging
from warren.dws.validation.facts import Facts
from warren.dws.validation.jobdirectives import (
    JobDirectives,
    suggestion,
    type_of,
    value_of,
    variable,
)


def copy_mistakes(
    directive: Directive, index: int, job: JobDirectives, facts: Facts
) -> Iterator[Mistake]:
    """Find what is wrong with a copy_in or copy_out."""
    storage_argument = staging.STORAGE_ARGUMENT_BY_COMMAND[directive.command.text]
    for key in ("source", "destination"):
        argument = directive.argument(key)
        if argument is None or argument.value is None:
            continue
        path = staging.parse(argument.value.text)
        if path.storage is not None:
            storage_mistakes = list(
                _storage_path_mistakes(directive, argument.value, path, job, facts)
            )
            yield from storage_mistakes
            if key != storage_argument and not storage_mistakes:
                yield directive.mistake(
                    argument.value,
                    f"The {key} of {directive.command.text} is a path in a global file system: "
                    "within its own storage a job copies by itself.",
                )
        elif key == storage_argument:
            yield directive.mistake(
                argument.value,
                f"The {storage_argument} of {directive.command.text} is storage of the job: "
                f"write $DW_JOB_ and the name of a jobdw.",
                suggestion(job),
            )
        else:
            yield from global_path_mistakes(directive, argument, path.path, facts)
    profile = value_of(directive, "profile")
    if profile and facts.copy_profiles is not None and profile.text not in facts.copy_profiles:
        profile_names = sorted(facts.copy_profiles)
        yield directive.mistake(
            profile,
            f"There is no profile of copies named {profile.text!r} here.",
            f"Take {alternatives(profile_names)}." if profile_names else "Leave it out.",
        )


def _storage_path_mistakes(
    directive: Directive, value: Token, path: staging.StagingPath, job: JobDirectives, facts: Facts
) -> Iterator[Mistake]:
    """Find what is wrong with the storage in which a path lies."""
    variable_token = Token(value.text.partition("/")[0], value.start)
    name = path.storage or ""
    command = {"job": "jobdw", "persistent": "persistentdw"}[path.lifetime]
    names: Mapping[str, object] = job.jobdws if path.lifetime == "job" else job.persistentdw_indexes
    if name not in names:
        if not job.may_have_unknown_names:
            variables = (variable(path.lifetime, each) for each in names)  # the first will do
            yield directive.mistake(
                variable_token,
                f"This job has no {command} named {name!r}.",
                did_you_mean(variable_token.text, variables)
                or (f"Add #DW persistentdw name={name}." if path.lifetime != "job" else None)
                or suggestion(job),
            )
    elif type_of(path.lifetime, name, job, facts) == "raw":
        yield directive.mistake(
            variable_token, f"Data movement cannot be used with {name!r}, which is raw."
        )


def global_path_mistakes(
    directive: Directive, argument: Argument, path: str, facts: Facts
) -> Iterator[Mistake]:
    """Find a path that lies in no global file system of the cluster."""
    value = argument.value
    assert value is not None
    if not path.startswith("/"):
        yield directive.mistake(
            value if value.text else argument.key,
            f"{path!r} is no path of a global file system: it begins with '/'.",
            "$DW_JOB_ begins a path in the job's storage." if path.startswith("$") else None,
        )
    elif facts.file_systems is not None and not staging.file_system_of(path, facts.file_systems):
        roots = ", ".join(each.spec.mount_root for each in facts.file_systems)
        hint = f"Its global file systems are {roots}." if roots else "It has no global one."
        yield directive.mistake(
            value, f"No global file system of this cluster contains {path!r}.", hint
        )
