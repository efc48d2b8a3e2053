"""The rules of `warren.dws`, in the shape that an API server asks them."""

from collections.abc import Sequence

from warren.base.objects import Kind, Object
from warren.directives import rules as directive_rules
from warren.directives.diagnostics import Mistake
from warren.directives.parse import parse
from warren.directives.rules import Rule
from warren.dws import kinds, workflow
from warren.kube.admission import Denied, Reader


class WorkflowAdmission:
    """Admits Workflows by the directive rules that are installed; everything else as it is."""

    def __init__(self) -> None:
        self._reader: Reader = lambda kind: []

    def connect(self, reader: Reader) -> None:
        """Say where the rules are read: in the store that asks for admission."""
        self._reader = reader

    def create(self, kind: Kind, obj: Object) -> Object:
        if kind.plural != kinds.WORKFLOW.plural or kind.group != kinds.WORKFLOW.group:
            return obj
        why_not = workflow.create_refusal(obj)
        if why_not is not None:
            raise Denied(why_not)
        rules = self._rules()
        try:
            directives = [parse(text) for text in obj["spec"].get("dwDirectives") or ()]
            directive_rules.check(directives, rules)
        except Mistake as mistake:
            raise Denied(str(mistake)) from mistake
        return workflow.admitted(obj, rules)

    def update(self, kind: Kind, old: Object, new: Object) -> None:
        if kind.plural == kinds.WORKFLOW.plural and kind.group == kinds.WORKFLOW.group:
            why_not = workflow.update_refusal(old, new)
            if why_not is not None:
                raise Denied(why_not)

    def _rules(self) -> Sequence[Rule]:
        found = [
            obj
            for obj in self._reader(kinds.RULE)
            if obj["metadata"]["namespace"] == kinds.RULES_NAMESPACE
        ]
        return directive_rules.rules_of(found)
