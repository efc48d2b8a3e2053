"""What the directives of one job have between them: the names that they give and use."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from warren.directives.diagnostics import Finding
from warren.directives.parse import Directive, Token
from warren.dws.validation.facts import Facts


class JobDirectives(msgspec.Struct, frozen=True, kw_only=True):
    """What the directives of one job have between them. Names are those of `name=`."""

    size: int
    jobdws: Mapping[str, Directive]
    """Each jobdw."""
    persistent_index: Mapping[str, int]
    """Each persistentdw, the first one of its name."""
    may_have_unknown_names: bool
    """Whether there may be storage whose name is not known."""
    container_index: int | None
    """The first one."""

    @classmethod
    def of(
        cls,
        directives: Sequence[Directive | None],
        mistaken: Mapping[int, Sequence[Finding]],
        commands: Collection[str],
    ) -> "JobDirectives":
        """Read the directives of a job; what is not one of `commands` is a site's own."""
        storage: dict[str, Directive] = {}
        persistent: dict[str, int] = {}
        doubtful = False
        container = None
        for index, directive in enumerate(directives):
            if directive is None:
                doubtful = True
                continue
            command, name = directive.command, value_of(directive, "name")
            wrong = mistaken.get(index, ())
            unknown = command.text not in commands and bool(wrong)
            if unknown or command.text in ("jobdw", "persistentdw"):
                doubtful |= unknown or name is None
                doubtful |= name is not None and any(_contains(found, name) for found in wrong)
            if name is not None and command.text == "jobdw":
                storage.setdefault(name.text, directive)
            if name is not None and command.text == "persistentdw":
                persistent.setdefault(name.text, index)
            if command.text == "container" and container is None:
                container = index
        return cls(
            size=len(directives),
            jobdws=storage,
            persistent_index=persistent,
            may_have_unknown_names=doubtful,
            container_index=container,
        )


def _contains(found: Finding, token: Token) -> bool:
    return found.mistake.start <= token.start < found.mistake.end


def value_of(directive: Directive, key: str) -> Token | None:
    """Return a value that is there, and not empty."""
    argument = directive.argument(key)
    found = None if argument is None else argument.value
    return found if found is not None and found.text else None


def type_of(lifetime: str, name: str, job: JobDirectives, facts: Facts) -> str | None:
    """Return the type of a storage that directives of the job name, if it is known."""
    if lifetime == "job":
        return job.jobdws[name].values.get("type")
    found = (facts.persistent or {}).get(name)
    return found.file_system if found is not None else None


def variable(lifetime: str, name: str) -> str:
    """Return how paths name a storage: `$DW_JOB_scratch`."""
    return f"$DW_{lifetime.upper()}_{name.replace('-', '_')}"


def suggestion(job: JobDirectives) -> str | None:
    """Return the advice to begin a path in the first storage of a job."""
    for name in job.jobdws:
        return f"Try {variable('job', name)}/."
    return None
