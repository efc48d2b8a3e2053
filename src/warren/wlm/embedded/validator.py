"""The ingest validator: directives are judged before a job is accepted.

Everything that Proposal would refuse is refused here, with the place of the
mistake; and a job that could never fit is not left to wait for ever.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warren.base.errors import UserMistake
from warren.directives import rules as directive_rules
from warren.directives.parse import Directive, parse
from warren.directives.rules import Rule
from warren.dws import breakdown, resources, validation
from warren.dws.faults import Fault
from warren.dws.objects import LustreFileSystem, NnfStorageProfile
from warren.scheduling.graph import Refusal
from warren.scheduling.request import Request, from_jobspec
from warren.wlm import view


class StorageValidator:
    """Judges the storage part of jobspecs by what the API holds now."""

    def __init__(
        self,
        *,
        rules: Callable[[], Sequence[Rule]],
        file_systems: Callable[[], Sequence[LustreFileSystem]],
        profiles: Callable[[], Sequence[NnfStorageProfile]],
        feasible: Callable[[Request], Refusal | None],
        floor: int,
    ) -> None:
        self._rules = rules
        self._file_systems = file_systems
        self._profiles = profiles
        self._feasible = feasible
        self._floor = floor

    def __call__(self, spec: Mapping[str, Any]) -> None:
        """Raise UserMistake for a jobspec that must not be accepted."""
        texts = view.directives(spec)
        directives = [parse(text) for text in texts or ()]
        if texts is not None and not directives:
            raise UserMistake("The job's dw attribute holds no #DW directive.")
        directive_rules.check(directives, self._rules())
        validation.check(directives, self._file_systems())
        refusal = self._feasible(from_jobspec(self._rewritten(spec, directives)))
        if refusal is not None:
            raise UserMistake(refusal.reason)

    def _rewritten(
        self, spec: Mapping[str, Any], directives: Sequence[Directive]
    ) -> Mapping[str, Any]:
        """Give the jobspec as it will be when the storage side has rewritten it."""
        try:
            needs = [
                need
                for directive in directives
                if directive.command.text == "jobdw"
                for need in breakdown.needs_of(directive, self._profiles())
            ]
            changed = resources.rewritten(spec["resources"], needs, self._floor)
        except Fault as fault:
            raise UserMistake(f"{str(fault)[:1].upper()}{str(fault)[1:]}.") from fault
        return {**spec, "resources": changed} if changed is not None else spec
