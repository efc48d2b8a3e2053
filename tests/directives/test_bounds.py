"""Where directives and patterns are at the edge: one more, or one less, is something else."""

import pytest

from warren.directives.capacity import suggestion
from warren.directives.diagnostics import (
    MAX_SHOWN,
    Finding,
    Mistake,
    Mistakes,
    did_you_mean,
    raise_mistakes,
)
from warren.directives.parse import MAX_WORD_LENGTH, try_parse
from warren.directives.patterns import MAX_PROGRAM_STEPS, BadPattern, occurs
from warren.directives.rules import ArgumentRule, Rule, check_directives

# Mistakes


def finding(start: int, end: int, directive: int = 0) -> Finding:
    return Finding(directive, Mistake("#DW jobdw name=a", start, end, "No.", "Try b."))


@pytest.mark.parametrize(
    ("other", "overlaps"),
    [
        (finding(4, 9), True),
        (finding(8, 12), True),
        (finding(0, 5), True),
        (finding(9, 12), False),
        (finding(0, 4), False),
        (finding(4, 9, directive=1), False),
    ],
)
def test_mistakes_overlap_that_are_in_the_same_words(other: Finding, overlaps: bool) -> None:
    own = finding(4, 9)
    assert own.overlaps(other) is other.overlaps(own) is overlaps


def test_a_mistake_is_a_sentence_and_what_would_be_right() -> None:
    mistake = finding(0, 1).mistake
    assert (mistake.sentence, mistake.suggestion, str(mistake)) == ("No.", "Try b.", "No. Try b.")


def test_the_only_mistake_is_told_as_it_is_and_several_together() -> None:
    raise_mistakes([])
    one = finding(0, 1)
    with pytest.raises(Mistake) as alone:
        raise_mistakes([one])
    assert alone.value is one.mistake
    with pytest.raises(Mistakes, match=r"^No\. Try b\.\nNo\. Try b\.$"):
        raise_mistakes([one, one])


@pytest.mark.parametrize(
    ("more", "told"), [(0, None), (1, "There is 1 more."), (2, "There are 2 more.")]
)
def test_of_many_mistakes_the_first_are_told_and_the_rest_counted(
    more: int, told: str | None
) -> None:
    lines = str(Mistakes([finding(0, 1)] * (MAX_SHOWN + more))).splitlines()
    assert lines == ["No. Try b."] * MAX_SHOWN + ([told] if told else [])


@pytest.mark.parametrize(("length", "suggested"), [(128, True), (129, False)])
def test_a_near_word_is_looked_for_up_to_a_length(length: int, suggested: bool) -> None:
    assert bool(did_you_mean("a" * length, ["a" * 128])) is suggested


# Words


def mistake(text: str) -> Mistake:
    (only,) = try_parse(text).mistakes
    return only


def test_a_text_that_is_empty_is_wrong_at_its_beginning() -> None:
    assert (mistake("").start, mistake("").end) == (0, 1)


def test_a_word_that_is_too_long_is_shown_by_its_first_letter() -> None:
    begun = mistake(f"#DW jobdw {'a' * (MAX_WORD_LENGTH + 1)}")
    assert (begun.start, begun.end) == (10, 11)
    assert try_parse(f"#DW jobdw {'a' * MAX_WORD_LENGTH}").mistakes == ()


@pytest.mark.parametrize("value", ["'a'", "''", '"a"', "a'b"])
def test_a_value_may_have_quotes_that_are_closed(value: str) -> None:
    assert try_parse(f"#DW jobdw name={value} type=xfs").mistakes == ()


@pytest.mark.parametrize("value", ["'a", '"a', "'a\""])
def test_a_value_with_a_quote_that_is_open_is_told(value: str) -> None:
    assert "no quotes" in str(mistake(f"#DW jobdw name={value} b'"))


@pytest.mark.parametrize(
    ("text", "suggested"),
    [
        ("#DWx name=a", "Try #DW x."),
        ("#dwjobdw name=a", "Try #DW jobdw."),
        ("#dw jobdw", "Try #DW, in capitals."),
        ("#D", None),
    ],
)
def test_a_beginning_that_is_nearly_right_is_told(text: str, suggested: str | None) -> None:
    assert mistake(text).suggestion == suggested


# Capacities, and lists without words


@pytest.mark.parametrize(
    ("text", "suggested"),
    [("1.5MiB", "1536KiB"), ("1.5KiB", "2KiB"), ("1.5PiB", "1536TiB"), ("0.2KB", "1KB")],
)
def test_a_capacity_in_parts_is_one_in_smaller_units(text: str, suggested: str) -> None:
    assert suggestion(text) == f"Try {suggested}."


def test_a_list_that_has_no_words_on_this_cluster_says_so() -> None:
    requires = ArgumentRule(key="^requires$", type="list-of-string", patterns=("^$",))
    rule = Rule(command="jobdw", rule_defs=(requires,))
    (told,) = check_directives(["#DW jobdw requires=x"], [rule]).findings
    assert str(told.mistake) == (
        "Unknown word 'x' in requires: this cluster offers none. "
        "Leave it out, or ask an admin for it."
    )


def told(argument: ArgumentRule, text: str) -> list[str]:
    found = check_directives([text], [Rule(command="jobdw", rule_defs=(argument,))]).findings
    return [str(each.mistake) for each in found]


@pytest.mark.parametrize(("name", "suggested"), [("Ab", "Try ab."), ("A", None), ("7", None)])
def test_a_name_is_suggested_where_one_is_left_that_is_long_enough(
    name: str, suggested: str | None
) -> None:
    argument = ArgumentRule(key="^name$", type="string", pattern="^[a-z][a-z0-9-]+$")
    (words,) = told(argument, f"#DW jobdw name={name}")
    assert words.endswith(suggested or "letters, digits and '-'.")


def test_an_argument_of_a_type_that_is_not_known_may_be_anything() -> None:
    assert told(ArgumentRule(key="^x$", type="of-later"), "#DW jobdw x=?") == []


# Patterns


def is_refused(pattern: str) -> bool:
    try:
        occurs(pattern, "x")
    except BadPattern:
        return True
    return False


def test_a_pattern_has_so_many_steps_and_groups_and_no_more() -> None:
    assert not is_refused("x" * MAX_PROGRAM_STEPS)
    assert is_refused("x" * (MAX_PROGRAM_STEPS + 1))
    assert is_refused("|".join(["x" * (MAX_PROGRAM_STEPS // 2)] * 2))
    assert not is_refused("(" * 50 + "x" + ")" * 50)
    assert is_refused("(" * 51 + "x" + ")" * 51)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\Ba", "ba", True),
        (r"\Ba", "a", False),
        (r"a\bb", "-ab", False),
        (r"a\b-", "xa-", True),
    ],
)
def test_words_have_an_end_on_either_side(pattern: str, text: str, expected: bool) -> None:
    assert occurs(pattern, text) is expected
