"""The rules of directives, and what is said of each kind of mistake."""

import re

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.directives.rulebook import NNF, RULES, WORD, check
from tests.rfc.vectors import vector
from warren.directives.diagnostics import Mistake, alternatives
from warren.directives.parse import parse
from warren.directives.rules import ArgumentRule, Rule, from_object, rules_of, watched_states

JOBDW = "#DW jobdw type=xfs capacity=1GiB name=scratch"
COPY = "#DW copy_in source=/lus/in destination=$DW_JOB_scratch/"


def shown(*directives: str, rules: list[Rule] = RULES) -> str:
    """Return what is said of the mistake in the directives."""
    with pytest.raises(Mistake) as made:
        check([parse(each) for each in directives], rules)
    return made.value.text_with_carets


def rule(**definition: object) -> list[Rule]:
    """Make the rules of a command `x` with one argument `a`."""
    return [Rule("x", (msgspec.convert({"key": "^a$", **definition}, ArgumentRule),))]


def test_the_rules_that_are_tested_here_are_those_of_nnf() -> None:
    theirs = yaml.safe_load(vector("dws/nnf-ruleset.yaml").read_text())
    assert from_object(theirs) == RULES


@pytest.mark.parametrize(
    "directives",
    [
        [],
        [JOBDW],
        [JOBDW, COPY, "#DW copy_out source=$DW_JOB_scratch/ destination=/lus/out profile=fast"],
        [JOBDW, "#DW jobdw name=other capacity=20TB type=lustre profile=a-1"],
        [JOBDW + " requires=copy-offload,user-container-auth"],
        ["#DW create_persistent type=gfs2 name=keep"],
        ["#DW persistentdw name=keep", "#DW persistentdw name=keep"],
        ["#DW destroy_persistent name=keep"],
        ["#DW container name=box profile=p1 DW_JOB_scratch=scratch DW_GLOBAL_lus=/lus"],
    ],
)
def test_good_directives_pass(directives: list[str]) -> None:
    """Statement 002.28: `requires` is a list of words that patterns allow."""
    check([parse(each) for each in directives], RULES)


MISTAKES = [
    (
        "#DW jobdv type=xfs",
        "    ^^^^^",
        "Unknown command 'jobdv': it is one of container, copy_in, copy_out, create_persistent, "
        "destroy_persistent, jobdw or persistentdw. Did you mean 'jobdw'?",
    ),
    (
        "#DW zzz",
        "    ^^^",
        "Unknown command 'zzz': it is one of container, copy_in, copy_out, create_persistent, "
        "destroy_persistent, jobdw or persistentdw.",
    ),
    ("#DW jobdw type=xfs capacity=1GiB", "    ^^^^^", "jobdw needs name=…."),
    (
        "#DW jobdw capacity=1GiB name=scratch",
        "    ^^^^^",
        "jobdw needs type=…, which is one of raw, xfs, gfs2 or lustre.",
    ),
    (
        "#DW jobdw typ=xfs capacity=1GiB name=scratch",
        "          ^^^",
        "Unknown argument 'typ' for jobdw: it takes type, capacity, name, profile or requires. "
        "Did you mean 'type'?",
    ),
    (
        "#DW jobdw type=ext4 capacity=1GiB name=scratch",
        "               ^^^^",
        "Unknown type 'ext4': it is one of raw, xfs, gfs2 or lustre.",
    ),
    (
        "#DW jobdw type=lustr capacity=1GiB name=scratch",
        "               ^^^^^",
        "Unknown type 'lustr': it is one of raw, xfs, gfs2 or lustre. Did you mean 'lustre'?",
    ),
    (
        "#DW jobdw type=xfs capacity=1.5TiB name=scratch",
        "                            ^^^^^^",
        "'1.5TiB' is not a capacity: it is a whole number and one of KiB, MiB, GiB, TiB, KB, MB, "
        "GB or TB. Try 1536GiB.",
    ),
    (
        "#DW jobdw type=xfs capacity=lots name=scratch",
        "                            ^^^^",
        "'lots' is not a capacity: it is a whole number and one of KiB, MiB, GiB, TiB, KB, MB, "
        "GB or TB.",
    ),
    (
        "#DW jobdw type=xfs capacity=1GiB name=My_Scratch",
        "                                      ^^^^^^^^^^",
        "'My_Scratch' is not a name: it starts with a letter and has two or more lower-case "
        "letters, digits and '-'. Try my-scratch.",
    ),
    (
        "#DW jobdw type=xfs capacity=1GiB name=f",
        "                                      ^",
        "'f' is not a name: it starts with a letter and has two or more lower-case letters, "
        "digits and '-'.",
    ),
    (
        "#DW jobdw type=xfs capacity=1GiB name=",
        "                                 ^^^^^",
        "name needs a value: name=…",
    ),
    (
        "#DW jobdw type=xfs capacity=1GiB name",
        "                                 ^^^^",
        "name needs a value: name=…",
    ),
    (
        "#DW jobdw type=xfs capacity=1GiB name=ab requires=copy-ofload",
        "                                                  ^^^^^^^^^^^",
        "Unknown word 'copy-ofload' in requires: it takes copy-offload or user-container-auth. "
        "Did you mean 'copy-offload'?",
    ),
    (
        "#DW jobdw type=xfs capacity=1GiB name=ab requires=copy-offload,copy-offload",
        "                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^",
        "'copy-offload' is repeated in requires.",
    ),
    (
        "#DW container name=ab profile=cd DW_JOB_X=e",
        "                                 ^^^^^^^^",
        "Unknown argument 'DW_JOB_X' for container: it takes name or profile.",
    ),
]


@pytest.mark.parametrize(("directive", "carets", "sentence"), MISTAKES)
def test_a_mistake_is_shown_in_its_directive_with_carets_and_a_sentence(
    directive: str, carets: str, sentence: str
) -> None:
    assert shown(directive) == f"{directive}\n{carets}\n{sentence}"


def test_a_name_that_is_taken_is_shown_where_it_is_taken_again() -> None:
    assert shown(JOBDW, "#DW jobdw name=scratch type=xfs capacity=2GiB").splitlines() == [
        "#DW jobdw name=scratch type=xfs capacity=2GiB",
        "          ^^^^^^^^^^^^",
        "The name 'scratch' is taken by an earlier jobdw of this job.",
    ]


def test_two_rules_for_one_command_do_not_take_the_name_from_each_other() -> None:
    check([parse(JOBDW)], [*RULES, *RULES])


@pytest.mark.parametrize(
    ("definition", "argument", "said"),
    [
        ({"type": "integer"}, "a=x", "a is a whole number, not 'x'."),
        ({"type": "integer"}, "a=1.5", "a is a whole number, not '1.5'."),
        ({"type": "integer", "min": 2}, "a=1", "a is at least 2."),
        ({"type": "integer", "max": 9}, "a=10", "a is at most 9."),
        ({"type": "integer"}, "a=" + "9" * 4000, "a is a whole number, not '" + "9" * 4000 + "'."),
        ({"type": "integer"}, "a", "a needs a value: a=…"),
        ({"type": "bool", "pattern": "."}, "a=yes", "a is true or false, not 'yes'."),
        ({"type": "bool", "isValueRequired": True}, "a", "a needs a value: a=…"),
        ({"type": "string", "pattern": "^x+$"}, "a=y", "'y' is not a a: it must match ^x+$."),
        ({"type": "string", "pattern": "^(xfs)$"}, "a=y", "Unknown a 'y': it is xfs."),
        (
            {"type": "list-of-string", "patterns": ["^x+$"]},
            "a=y",
            "Unknown word 'y' in a: it takes ^x+$.",
        ),
        ({"type": "string"}, "b=y", "Unknown argument 'b' for x: it takes a."),
    ],
)
def test_each_type_of_argument_has_its_sentence(
    definition: dict[str, object], argument: str, said: str
) -> None:
    assert shown(f"#DW x {argument}", rules=rule(**definition)).splitlines()[2] == said


@pytest.mark.parametrize(
    ("definition", "argument"),
    [
        ({"type": "integer"}, "a=-5"),
        ({"type": "integer", "min": 2, "max": 9}, "a=2"),
        ({"type": "integer", "min": 2, "max": 9}, "a=9"),
        ({"type": "bool"}, "a"),
        ({"type": "bool"}, "a=whatever"),
        ({"type": "bool", "pattern": "."}, "a=True"),
        ({"type": "string"}, "a="),
        ({"type": "list-of-string"}, "a=x,y"),
    ],
)
def test_each_type_of_argument_accepts_its_own(
    definition: dict[str, object], argument: str
) -> None:
    check([parse(f"#DW x {argument}")], rule(**definition))


def test_the_only_choice_is_named_when_it_is_missing() -> None:
    only = rule(type="string", pattern="^(xfs)$", isRequired=True)
    assert shown("#DW x", rules=only).endswith("\nx needs a=…, which is xfs.")


def test_a_command_without_arguments_takes_nothing() -> None:
    assert shown("#DW x a=1", rules=[Rule("x")]).endswith("'a' for x: it takes nothing.")


def test_without_rules_no_command_is_known_and_no_directives_are_fine() -> None:
    assert shown(JOBDW, rules=[]).endswith("'jobdw': no directive rules are installed.")
    check([], [])


@given(st.text("abcXYZ019-_.é", min_size=1, max_size=8))
def test_the_name_that_is_suggested_is_a_name(text: str) -> None:
    directive = f"#DW jobdw type=xfs capacity=1GiB name={text}"
    if re.search(WORD, text):
        check([parse(directive)], RULES)
        return
    _, _, suggestion = shown(directive).partition(" Try ")
    assert not suggestion or re.search(WORD, suggestion.removesuffix("."))


def test_words_are_listed_as_a_person_would() -> None:
    assert alternatives(["raw", "xfs", "gfs2"]) == "raw, xfs or gfs2"
    assert alternatives(["raw"]) == "raw"


# The work that rules foresee


def test_each_state_that_a_rule_watches_is_a_piece_of_work_of_its_driver() -> None:
    assert list(watched_states([parse(JOBDW), parse(COPY)], RULES)) == [
        *((0, "nnf", state) for state in ("Proposal", "Setup", "PreRun", "PostRun", "Teardown")),
        *((1, "nnf", state) for state in ("Proposal", "DataIn", "Teardown")),
    ]


@pytest.mark.parametrize(
    ("command", "count"),
    [
        ("jobdw", 5),
        ("create_persistent", 3),
        ("destroy_persistent", 2),
        ("persistentdw", 5),
        ("copy_in", 3),
        ("copy_out", 3),
        ("container", 5),
        ("unknown", 0),
    ],
)
def test_each_command_has_as_much_work_as_nnf_gives_it(command: str, count: int) -> None:
    assert len(list(watched_states([parse(f"#DW {command}")], RULES))) == count


def test_work_that_two_rules_foresee_is_done_once() -> None:
    assert len(list(watched_states([parse(JOBDW)], [*RULES, *RULES]))) == 5


def test_a_rule_may_name_another_driver() -> None:
    labelled = {
        "metadata": {"name": "rules"},
        "spec": [{"command": "x", "driverLabel": "mine", "watchStates": "Setup"}, {"command": "y"}],
    }
    read = rules_of([labelled, NNF])
    assert [each.driver_label for each in read[:3]] == ["mine", "rules", "nnf"]
    assert list(watched_states([parse("#DW x"), parse("#DW y")], read)) == [(0, "mine", "Setup")]
