"""What the tour of `warren demo` tries."""

import re

import pytest

from warren.base.errors import UserMistake
from warren.cli.cluster.tour import CASES, refused
from warren.daemons.cluster import manifests
from warren.directives.parse import parse
from warren.dws import kinds


def test_the_tour_tries_every_command_and_every_type_that_the_rules_know() -> None:
    (rule,) = (obj for obj in manifests("rules.yaml") if obj["kind"] == kinds.RULE.name)
    tried = [parse(each) for case in CASES for each in case.directives]

    assert {each.command.text for each in tried} == {each["command"] for each in rule["spec"]}
    (pattern,) = {
        definition["pattern"]
        for command in rule["spec"]
        for definition in command["ruleDefs"]
        if definition["key"] == "^type$"
    }
    types = set(re.findall(r"\w+", pattern))
    assert {each.values["type"] for each in tried if each.command.text == "jobdw"} == types


@pytest.mark.parametrize(
    ("text", "reasons"),
    [
        ("the job is refused.\n#DW a b=c\n      ^\nNo b.", ["No b."]),
        ("the job is refused.\n#DW a\n    ^\nNo a.\n\n#DW bb\n    ^^\nNo bb.", ["No a.", "No bb."]),
        ("the job is refused: there is no room.", []),
        ("#DW a\n^^^ not\nNo a.", []),
        ("#DW a\n\nNo a.", []),
        ("#DW a\n   ^", []),
    ],
)  # fmt: skip
def test_a_refusal_of_directives_is_told_from_any_other(text: str, reasons: list[str]) -> None:
    assert refused(UserMistake(text)) == reasons
