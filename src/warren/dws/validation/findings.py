"""What is wrong with directives together, and on their cluster: whether each can be carried out.

Asked before a job is accepted, so that its author hears at once, with the place of each mistake;
in Proposal, where a real cluster asks; and by `warren check` (dws-spec section 2.2).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from warren.directives.diagnostics import Finding, Mistake
from warren.directives.parse import Directive
from warren.dws.validation.containeruse import container_mistakes
from warren.dws.validation.copypaths import copy_mistakes
from warren.dws.validation.facts import Facts
from warren.dws.validation.jobdirectives import JobDirectives
from warren.dws.validation.newstorage import jobdw_mistakes, profile_mistakes
from warren.dws.validation.persistentstorage import (
    create_persistent_mistakes,
    destroy_persistent_mistakes,
    persistentdw_mistakes,
)


def findings(
    directives: Sequence[Directive | None], facts: Facts, known: Sequence[Finding] = ()
) -> list[Finding]:
    """Return the mistakes of directives in order: those that are known, and those found here.

    What follows from a mistake that is known is left out.
    """
    by_directive: dict[int, list[Finding]] = {}
    for finding in known:
        by_directive.setdefault(finding.directive_index, []).append(finding)
    job = JobDirectives.of(directives, by_directive, _VALIDATORS)
    all_findings: list[Finding] = []
    for index, directive in enumerate(directives):
        known_of_directive = by_directive.get(index, [])
        all_findings += known_of_directive
        if directive is None:
            continue
        for mistake in _validate(directive, index, job, facts, faultless=not known_of_directive):
            finding = Finding(index, mistake)
            is_of_whole_directive = mistake.start == directive.command.start
            if is_of_whole_directive or not any(
                finding.overlaps(other) for other in known_of_directive
            ):
                all_findings.append(finding)
    return all_findings


_Validator = Callable[[Directive, int, JobDirectives, Facts], Iterator[Mistake]]

_VALIDATORS: Final[Mapping[str, _Validator]] = {
    "jobdw": jobdw_mistakes,
    "create_persistent": create_persistent_mistakes,
    "destroy_persistent": destroy_persistent_mistakes,
    "persistentdw": persistentdw_mistakes,
    "copy_in": copy_mistakes,
    "copy_out": copy_mistakes,
    "container": container_mistakes,
}
"""What checks each command. One that is not here is of a site, and left to its driver."""


def _validate(
    directive: Directive, index: int, job: JobDirectives, facts: Facts, *, faultless: bool
) -> Iterator[Mistake]:
    validator = _VALIDATORS.get(directive.command.text)
    if validator is None:
        return
    mistakes = list(validator(directive, index, job, facts))
    yield from mistakes
    if faultless and not mistakes and facts.storage_profiles is not None:
        yield from profile_mistakes(directive, facts.storage_profiles)
