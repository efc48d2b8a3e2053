"""Admission of Workflows: the rules of `warren.dws`, as the API server asks for them."""

from collections.abc import Sequence
from typing import Final

from warren.base.objects import Object
from warren.directives import rules as directive_rules
from warren.directives.diagnostics import MAX_SHOWN, Finding
from warren.directives.rules import Rule
from warren.dws import kinds
from warren.dws.workflow import states
from warren.kube.admission import AdmissionLister, Denied, Operation, Review

WEBHOOK = "vworkflow.kb.io"
"""The webhook by which a real cluster asks for these rules."""


class WorkflowAdmission:
    """Admits Workflows by the installed directive rules, and all other objects unchanged."""

    def __init__(self) -> None:
        self._list_objects: AdmissionLister = lambda kind: []

    def read_rules_from(self, list_objects: AdmissionLister) -> None:
        """Set what lists the rules: the store that asks for admission, or an informer."""
        self._list_objects = list_objects

    async def admit(self, review: Review) -> Object | None:
        kind, new = review.kind, review.new
        if kind.plural != kinds.WORKFLOW.plural or kind.group != kinds.WORKFLOW.group:
            return new
        if review.operation is Operation.CREATE and new is not None:
            return self._admit_new(new)
        if review.operation is Operation.UPDATE and new is not None and review.old is not None:
            _deny_if(states.update_refusal(review.old, new))
        return new

    def _admit_new(self, obj: Object) -> Object:
        _deny_if(states.create_refusal(obj))
        rules = self._rules()
        findings = directive_rules.check_directives(
            obj["spec"].get("dwDirectives") or (), rules
        ).findings
        _deny_if(_message(findings) if findings else None)
        return states.with_initial_status(obj, rules)

    def _rules(self) -> Sequence[Rule]:
        rule_objects = [
            obj
            for obj in self._list_objects(kinds.DIRECTIVE_RULE)
            if obj["metadata"]["namespace"] == kinds.RULES_NAMESPACE
        ]
        return directive_rules.rules_of(rule_objects)


def _message(findings: Sequence[Finding]) -> str:
    """Return a line for each mistake, with the directive that it is in."""
    lines = [
        f"{finding.mistake} (DW Directive {finding.directive_index}: "
        f"{_shorten(finding.mistake.text)})"
        for finding in findings[:MAX_SHOWN]
    ]
    left = len(findings) - len(lines)
    return "\n".join([*lines, *([f"And {left} more."] if left else [])])


def _shorten(directive: str) -> str:
    return repr(
        directive if len(directive) <= _MOST_CHARACTERS else f"{directive[: _MOST_CHARACTERS - 1]}…"
    )


_MOST_CHARACTERS: Final = 200
"""Characters of a directive that are repeated."""


def _deny_if(why_not: str | None) -> None:
    if why_not is not None:
        raise Denied(why_not, WEBHOOK)
