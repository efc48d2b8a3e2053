"""The rules of `warren.dws`, in the shape that an API server asks them."""

from collections.abc import Sequence

from warren.base.objects import Object
from warren.directives import rules as directive_rules
from warren.directives.diagnostics import Mistake
from warren.directives.parse import parse
from warren.directives.rules import Rule
from warren.dws import kinds, workflowstates
from warren.kube.admission import Denied, Operation, Reader, Review

WEBHOOK = "vworkflow.kb.io"
"""The webhook that has these rules on a real cluster."""


class WorkflowAdmission:
    """Admits Workflows by the directive rules that are installed; everything else as it is."""

    def __init__(self) -> None:
        self._reader: Reader = lambda kind: []

    def connect(self, reader: Reader) -> None:
        """Set where the rules are read: in the store that asks for admission."""
        self._reader = reader

    async def admit(self, review: Review) -> Object | None:
        kind, new = review.kind, review.new
        if kind.plural != kinds.WORKFLOW.plural or kind.group != kinds.WORKFLOW.group:
            return new
        if review.operation is Operation.CREATE and new is not None:
            return self._created(new)
        if review.operation is Operation.UPDATE and new is not None and review.old is not None:
            _allow(workflowstates.update_refusal(review.old, new))
        return new

    def _created(self, obj: Object) -> Object:
        _allow(workflowstates.create_refusal(obj))
        rules = self._rules()
        try:
            directives = [parse(text) for text in obj["spec"].get("dwDirectives") or ()]
            directive_rules.check(directives, rules)
        except Mistake as mistake:
            raise Denied(str(mistake), WEBHOOK) from mistake
        return workflowstates.admitted(obj, rules)

    def _rules(self) -> Sequence[Rule]:
        found = [
            obj
            for obj in self._reader(kinds.RULE)
            if obj["metadata"]["namespace"] == kinds.RULES_NAMESPACE
        ]
        return directive_rules.rules_of(found)


def _allow(why_not: str | None) -> None:
    if why_not is not None:
        raise Denied(why_not, WEBHOOK)
