"""The ingest validator: directives are judged before a job is accepted.

Everything that Proposal would refuse is refused here, with the place of the
mistake; and a job that could never fit is not left to wait for ever.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.directives import rules as directive_rules
from warren.directives.diagnostics import did_you_mean, listed
from warren.directives.parse import Directive, parse
from warren.directives.rules import Rule
from warren.dws import breakdown, persistent, rabbits, resources, validation
from warren.dws.faults import Fault
from warren.dws.objects import AllocationNeed, LustreFileSystem, NnfStorageProfile, Storage
from warren.scheduling.graph import Refusal
from warren.scheduling.request import Request, from_jobspec
from warren.wlm import view

MOST: Final = 64
"""Directives of one job. Each has objects of its own, and every pass looks at all of them."""

LONGEST: Final = 2**16
"""Characters of all directives of one job: objects and their journal have them again and again."""


class StorageValidator:
    """Judges the storage part of jobspecs by what the API holds now."""

    def __init__(
        self,
        *,
        rules: Callable[[], Sequence[Rule]],
        file_systems: Callable[[], Sequence[LustreFileSystem]],
        profiles: Callable[[], Sequence[NnfStorageProfile]],
        rabbits: Callable[[], Iterable[Storage]],
        feasible: Callable[[Request], Refusal | None],
        floor: int,
    ) -> None:
        self._rules = rules
        self._file_systems = file_systems
        self._profiles = profiles
        self._rabbits = rabbits
        self._feasible = feasible
        self._floor = floor

    def __call__(self, spec: Mapping[str, Any], userid: int) -> None:
        """Raise UserMistake for a jobspec that must not be accepted from this user."""
        texts = view.directives(spec)
        _demand_few(texts or ())
        directives = [parse(text) for text in texts or ()]
        if texts is not None and not directives:
            raise UserMistake("The job's dw attribute holds no #DW directive.")
        view.failure_tolerance(spec)
        directive_rules.check(directives, self._rules())
        _refuse_persistent(directives)
        if directives:
            raw = rabbits.raw_volumes(self._rabbits())
            validation.check(directives, self._file_systems(), raw=raw, userid=userid)
        refusal = self._feasible(from_jobspec(self._rewritten(spec, directives)))
        if refusal is not None:
            raise UserMistake(refusal.reason)

    def _rewritten(
        self, spec: Mapping[str, Any], directives: Sequence[Directive]
    ) -> Mapping[str, Any]:
        """Return the jobspec as it will be when the storage side has rewritten it."""
        try:
            needs = [
                need
                for directive in directives
                if directive.command.text == "jobdw"
                for need in self._needs(directive)
            ]
            changed = resources.rewritten(spec["resources"], needs, self._floor)
        except Fault as fault:
            raise UserMistake(_sentence(fault)) from fault
        return {**spec, "resources": changed} if changed is not None else spec

    def _needs(self, directive: Directive) -> Sequence[AllocationNeed]:
        """Return what a jobdw needs. Raises Mistake where an argument is wrong, and Fault."""
        profiles = self._profiles()
        try:
            return breakdown.needs_of(directive, profiles)
        except Fault as fault:
            argument = directive.argument(fault.argument)
            if argument is None or argument.value is None:
                raise
            remedy = None
            if fault.argument == "profile":
                known = sorted(profile.metadata.name for profile in profiles)
                remedy = did_you_mean(argument.value.text, known) or f"Take {listed(known)}."
            raise directive.mistake(argument.value, _sentence(fault), remedy) from fault


def _demand_few(texts: Sequence[str]) -> None:
    if len(texts) > MOST:
        raise UserMistake(
            f"The job has {len(texts)} directives, and one has {MOST} at most: "
            "copy a directory rather than each file in it."
        )
    if sum(map(len, texts)) > LONGEST:
        raise UserMistake(
            f"The job's directives have {sum(map(len, texts))} characters together, and {LONGEST} "
            "at most: use shorter names, such as that of a link."
        )


def _refuse_persistent(directives: Sequence[Directive]) -> None:
    """Raise Mistake where a directive is about persistent storage."""
    for directive in directives:
        if directive.command.text in persistent.COMMANDS:
            # Its flash is counted with no job once its maker is over, a user would run on any
            # nodes, and what cannot be destroyed would keep a job from its end.
            raise directive.mistake(
                directive.command,
                "Jobs cannot create, use or destroy persistent storage on this cluster yet: the "
                "scheduler neither counts its flash nor places jobs beside it.",
                "A Workflow that is made through the Kubernetes API can.",
            )


def _sentence(fault: Fault) -> str:
    return f"{str(fault)[:1].upper()}{str(fault)[1:]}."
