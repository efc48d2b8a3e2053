"""What the directives of one job have between them: the names that they give and use."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from warren.directives.diagnostics import Finding
from warren.directives.parse import Directive, Token
from warren.dws.validation.facts import Facts


class JobDirectives(msgspec.Struct, frozen=True, kw_only=True):
    """What the directives of one job have between them. Names are those of `name=`."""

    directive_count: int
    jobdws: Mapping[str, Directive]
    """Each jobdw by its name."""
    persistentdw_indexes: Mapping[str, int]
    """The index of each persistentdw by name, of the first one where several have the same."""
    may_have_unknown_names: bool
    """Whether there may be storage whose name is not known."""
    container_index: int | None
    """The index of the first container."""

    @classmethod
    def of(
        cls,
        directives: Sequence[Directive | None],
        findings_by_index: Mapping[int, Sequence[Finding]],
        commands: Collection[str],
    ) -> "JobDirectives":
        """Read the directives of a job; what is not one of `commands` is a site's own.

        `findings_by_index` are those that are known already, by the index of their directive.
        """
        jobdws: dict[str, Directive] = {}
        persistentdw_indexes: dict[str, int] = {}
        may_have_unknown_names = False
        container_index = None
        for index, directive in enumerate(directives):
            if directive is None:
                may_have_unknown_names = True
                continue
            command, name = directive.command, value_of(directive, "name")
            findings = findings_by_index.get(index, ())
            may_be_storage = command.text not in commands and bool(findings)
            if may_be_storage or command.text in ("jobdw", "persistentdw"):
                may_have_unknown_names |= may_be_storage or name is None
                may_have_unknown_names |= name is not None and any(
                    _contains(finding, name) for finding in findings
                )
            if name is not None and command.text == "jobdw":
                jobdws.setdefault(name.text, directive)
            if name is not None and command.text == "persistentdw":
                persistentdw_indexes.setdefault(name.text, index)
            if command.text == "container" and container_index is None:
                container_index = index
        return cls(
            directive_count=len(directives),
            jobdws=jobdws,
            persistentdw_indexes=persistentdw_indexes,
            may_have_unknown_names=may_have_unknown_names,
            container_index=container_index,
        )


def _contains(finding: Finding, token: Token) -> bool:
    return finding.mistake.start <= token.start < finding.mistake.end


def value_of(directive: Directive, key: str) -> Token | None:
    """Return a value that is there, and not empty."""
    argument = directive.argument(key)
    value = None if argument is None else argument.value
    return value if value is not None and value.text else None


def type_of(lifetime: str, name: str, job: JobDirectives, facts: Facts) -> str | None:
    """Return the type of a storage that directives of the job name, if it is known."""
    if lifetime == "job":
        return job.jobdws[name].values.get("type")
    instance = (facts.instances or {}).get(name)
    return instance.fs_type if instance is not None else None


def variable(lifetime: str, name: str) -> str:
    """Return how paths name a storage: `$DW_JOB_scratch`."""
    return f"$DW_{lifetime.upper()}_{name.replace('-', '_')}"


def suggestion(job: JobDirectives) -> str | None:
    """Return the advice to begin a path in the first storage of a job."""
    for name in job.jobdws:
        return f"Try {variable('job', name)}/."
    return None
