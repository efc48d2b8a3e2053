"""All mistakes of all directives at once, and what a dumb reading of the rules says of them."""

import re
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.directives.rulebook import CAPACITY, NNF, RULES, WORD
from warren.directives.diagnostics import MAX_SHOWN, Finding, Mistakes
from warren.directives.parse import MAX_WORD_LENGTH
from warren.directives.rules import ArgumentRule, Rule, check_directives, from_object

JOBDW = "#DW jobdw type=xfs capacity=1GiB name=scratch"


def told(*directives: str, rules: Sequence[Rule] = RULES) -> list[tuple[int, str]]:
    """Return the directive and the sentence of each mistake."""
    findings = check_directives(directives, rules).findings
    return [(found.directive_index, found.mistake.sentence) for found in findings]


def test_every_mistake_of_every_directive_is_told_in_order() -> None:
    assert [words[:30] for _, words in told("#DW jobdw type=zfs capacity=1 nam=a_b", "#DW x")] == [
        "Unknown type 'zfs': it is one ",
        "'1' is not a capacity: it is a",
        "Unknown argument 'nam' for job",
        "Unknown command 'x': it is one",
    ]


def test_a_key_that_is_misspelled_is_not_missing_too() -> None:
    assert len(told("#DW jobdw typ=xfs capacity=1GiB name=ab")) == 1
    assert told("#DW jobdw zzz=xfs capacity=1GiB name=ab")[1] == (
        0,
        "jobdw needs type=…, which is one of raw, xfs, gfs2 or lustre.",
    )


def test_all_that_is_missing_is_told() -> None:
    assert [words.partition("=")[0] for _, words in told("#DW jobdw")] == [
        "jobdw needs type",
        "jobdw needs capacity",
        "jobdw needs name",
    ]


@pytest.mark.parametrize(
    "directive", ["", "jobdw type=zfs", "#DW", "#DWjobdw type=zfs", "#DW nope name=A capacity=1"]
)
def test_what_is_no_directive_has_one_mistake(directive: str) -> None:
    assert len(told(directive)) == 1


def test_form_and_meaning_are_told_together() -> None:
    words = [words for _, words in told("#DW jobdw type=zfs name=ab name=ab capacity=1GiB =x")]
    assert [each[:20] for each in words] == [
        "The argument name is",
        "An argument has a na",
        "Unknown type 'zfs': ",
    ]


def test_what_two_objects_say_of_a_command_is_told_once() -> None:
    assert len(told("#DW jobdw type=xfs name=ab capacity=1", rules=[*RULES, *RULES])) == 1


def test_each_wrong_word_of_a_list_is_told_and_a_repeated_one_once() -> None:
    directive = f"{JOBDW} requires=a,b,copy-offload,copy-offload,copy-offload"
    assert [words[:22] for _, words in told(directive)] == [
        "Unknown word 'a' in re",
        "Unknown word 'b' in re",
        "'copy-offload' is repe",
    ]


def test_a_name_that_is_taken_twice_is_told_twice() -> None:
    assert [index for index, _ in told(JOBDW, JOBDW, JOBDW)] == [1, 2]


def test_a_rule_that_cannot_be_read_is_an_admins_to_correct() -> None:
    broken = Rule("x", (ArgumentRule("^a$", "string", pattern="(?=a)"),))
    (found,) = check_directives(["#DW x a=1"], [broken]).findings
    assert str(found.mistake) == (
        "a cannot be checked: the pattern '(?=a)' has what only Python's expressions have, or "
        "Perl's, at 2. Tell an admin, who can correct the DWDirectiveRule."
    )


def test_an_argument_is_as_long_as_a_path_at_most() -> None:
    longest = "/" + "a" * (MAX_WORD_LENGTH - len("source=/"))
    copy = f"#DW copy_in source={longest} destination=/b"
    assert told(copy) == []
    assert told(copy.replace("=/a", "=/aa")) == [
        (0, "A word has 4096 characters at most, as a path has.")
    ]


def test_many_mistakes_are_counted_and_not_all_shown() -> None:
    findings = check_directives(["#DW x"] * (MAX_SHOWN + 3), RULES).findings
    mistakes = Mistakes(findings)
    assert mistakes.text_with_carets.count("#DW x\n    ^\nUnknown command") == MAX_SHOWN
    assert str(mistakes).splitlines()[MAX_SHOWN:] == ["There are 3 more."]


# What rules may be (section 2)


@pytest.mark.parametrize(
    ("definition", "argument", "good"),
    [
        # Without a value
        ({"type": "bool"}, "a", True),
        ({"type": "bool", "pattern": "."}, "a", True),
        ({"type": "bool", "isValueRequired": True}, "a", False),
        ({"type": "string"}, "a", True),
        ({"type": "string", "pattern": "."}, "a", True),
        ({"type": "string", "pattern": "^[a-z]+$"}, "a", False),
        ({"type": "string", "isValueRequired": True}, "a", False),
        ({"type": "integer"}, "a", False),
        ({"type": "list-of-string"}, "a", True),
        ({"type": "list-of-string", "patterns": ["^x$"]}, "a", False),
        # With an empty one
        ({"type": "string", "isValueRequired": True}, "a=", True),
        ({"type": "string", "pattern": "^x$"}, "a=", False),
        ({"type": "integer"}, "a=", False),
        ({"type": "bool", "pattern": "."}, "a=", False),
        ({"type": "list-of-string", "patterns": ["^x$"]}, "a=", False),
        # Of each type
        ({"type": "bool", "pattern": "."}, "a=0", False),
        ({"type": "bool", "pattern": "."}, "a=FALSE", True),
        ({"type": "integer", "min": -3}, "a=-4", False),
        ({"type": "integer", "min": -3}, "a=+5", True),
        ({"type": "list-of-string"}, "a=x,x", False),
        ({"type": "list-of-string", "patterns": ["^x$", "y"]}, "a=x,zyz", True),
    ],
)
def test_each_type_says_what_values_it_has(
    definition: dict[str, object], argument: str, good: bool
) -> None:
    rule = Rule("x", (msgspec.convert({"key": "^a$", **definition}, ArgumentRule),))
    assert (told(f"#DW x {argument}", rules=[rule]) == []) is good


def test_a_key_is_found_anywhere_and_the_first_definition_counts() -> None:
    rules = [Rule("x", (ArgumentRule("a", "integer"), ArgumentRule("^bab$", "string")))]
    assert told("#DW x bab=1", rules=rules) == []
    assert told("#DW x bab=z", rules=rules) == [(0, "bab is a whole number, not 'z'.")]


def test_a_scope_is_shared_by_the_rules_that_name_it() -> None:
    named = ArgumentRule("^n$", "string", unique_within="names")
    rules = [Rule("x", (named,)), Rule("y", (named,))]
    assert told("#DW x n=1", "#DW y n=1", rules=rules) == [
        (1, "The name '1' is taken by an earlier x of this job.")
    ]


# The dumb oracle


def _accepts(directives: Sequence[str]) -> bool:
    """Say by section 2.1, read word for word, whether NNF's rules accept some directives."""
    taken: set[tuple[str, str]] = set()
    for text in directives:
        words = text.split()
        if not words or words[0] != "#DW" or len(words) < 2:
            return False
        definitions = next(
            (each["ruleDefs"] for each in NNF["spec"] if each["command"] == words[1]),  # type: ignore[index]
            None,
        )
        if definitions is None:
            return False
        met: set[str] = set()
        keys = [word.split("=", 1)[0] for word in words[2:]]
        if len(set(keys)) < len(keys) or "command" in keys:
            return False
        for word in words[2:]:
            key, equals, value = word.partition("=")
            definition = next((d for d in definitions if re.search(d["key"], key)), None)
            if definition is None or not equals:  # all of NNF's need a value
                return False
            met.add(definition["key"])
            values = value.split(",") if definition["type"] == "list-of-string" else [value]
            wanted = definition.get("patterns") or [definition.get("pattern", "")]
            if len(set(values)) < len(values):
                return False
            if not all(any(re.search(p, v) for p in wanted) for v in values):
                return False
            scope = definition.get("uniqueWithin")
            if scope and (scope, value) in taken:
                return False
            taken.add((scope or "", value))
        if any(d.get("isRequired") and d["key"] not in met for d in definitions):
            return False
    return True


values = st.one_of(
    st.sampled_from(
        ["xfs", "raw", "gfs2", "zfs", "1GiB", "1.5TiB", "20TB", "1tb", "ab", "cd", "A", "a", "",
         "a_b", "copy-offload", "copy-offload,copy-offload", "user-container-auth,copy-offload"]
    ),
    st.text("ab1GiB-,=", max_size=5),
)  # fmt: skip
keys = st.sampled_from(
    ["type", "capacity", "name", "profile", "requires", "source", "destination", "DW_JOB_ab",
     "DW_GLOBAL_x", "command", "typ", ""]
)  # fmt: skip
arguments = st.one_of(st.builds("{}={}".format, keys, values), keys)
good = st.sampled_from(
    [
        JOBDW,
        "#DW copy_in source=/lus/a destination=$DW_JOB_ab/",
        "#DW create_persistent type=raw name=ab",
        "#DW persistentdw name=ab",
        "#DW destroy_persistent name=ab",
        "#DW container name=ab profile=cd",
    ]
)
commands = st.sampled_from([*(each["command"] for each in NNF["spec"]), "nope", "command"])  # type: ignore[index]
directives = st.one_of(
    good,
    st.builds(lambda text, more: " ".join([text, *more]), good, st.lists(arguments, max_size=2)),
    st.builds(
        lambda first, command, more: " ".join([first, command, *more]),
        st.sampled_from(["#DW", "#dw", "#DWx"]),
        commands,
        st.lists(arguments, max_size=5),
    ),
)


@given(st.lists(directives, max_size=4))
def test_directives_are_good_exactly_where_the_rules_read_word_for_word_say_so(
    texts: list[str],
) -> None:
    assert (not check_directives(texts, RULES).findings) is _accepts(texts)


@given(st.lists(directives, max_size=4))
def test_every_mistake_stands_in_its_directive(texts: list[str]) -> None:
    found: Sequence[Finding] = check_directives(texts, RULES).findings
    for each in found:
        mistake = each.mistake
        assert mistake.text == texts[each.directive_index]
        assert 0 <= mistake.start < mistake.end <= max(len(mistake.text), 1)
        assert mistake.sentence.endswith((".", "…"))


def test_the_oracle_knows_good_from_bad() -> None:
    assert _accepts([JOBDW])
    assert not _accepts([JOBDW, JOBDW])
    assert re.search(CAPACITY, "1GiB")
    assert re.search(WORD, "ab")
    assert from_object(NNF) == RULES
