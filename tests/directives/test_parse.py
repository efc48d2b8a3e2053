"""Directives taken apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.directives.diagnostics import Mistake
from warren.directives.parse import parse, split

JOBDW = "#DW jobdw type=xfs capacity=1GiB name=scratch"
COPY = "#DW copy_in source=/lus/in destination=$DW_JOB_scratch/"


def test_a_directive_is_a_command_and_arguments_split_at_their_first_equals_sign() -> None:
    directive = parse("#DW copy_in source=/a=b  destination=/c flag empty=")

    assert directive.command.text == "copy_in"
    assert directive.values == {"source": "/a=b", "destination": "/c", "flag": "true", "empty": ""}


words = st.text("ab=#DW_-/$é", min_size=1, max_size=6)


@given(st.lists(words, max_size=5), st.sampled_from([" ", "  ", "\t"]))
def test_every_token_stands_where_it_says(arguments: list[str], gap: str) -> None:
    text = gap.join([" #DW", "jobdw", *arguments])
    try:
        directive = parse(text)
    except Mistake:
        return
    for argument in directive.arguments:
        for token in (argument.key, argument.value):
            if token is not None:
                assert text[token.start : token.end] == token.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "\n^\nA directive starts with #DW and a space."),
        ("jobdw a=b", "jobdw a=b\n^^^^^\nA directive starts with #DW and a space."),
        (
            "#DWjobdw",
            "#DWjobdw\n^^^^^^^^\nA directive starts with #DW and a space. Try #DW jobdw.",
        ),
        (
            "  #dw jobdw",
            "  #dw jobdw\n  ^^^\nA directive starts with #DW and a space. Try #DW, in capitals.",
        ),
        (
            "#DW jobdw command=a",
            "#DW jobdw command=a\n          ^^^^^^^^^\n"
            "No argument is named command: the command is the word after #DW.",
        ),
        (
            "\t#DW jobdw =x",
            "\t#DW jobdw =x\n\t          ^^\nAn argument has a name before its '='.",
        ),
        ("#DW", "#DW\n^^^\nA command is missing after #DW. Try jobdw."),
        ("#DW ", "#DW \n^^^\nA command is missing after #DW. Try jobdw."),
        ("#DW jobdw =x", "#DW jobdw =x\n          ^^\nAn argument has a name before its '='."),
        (
            "#DW jobdw name=a type=xfs name=b",
            "#DW jobdw name=a type=xfs name=b\n"
            "                          ^^^^^^\n"
            "The argument name is repeated.",
        ),
        (
            "#DW copy_in source=/data/in\\ put destination=b",
            "#DW copy_in source=/data/in\\ put destination=b\n"
            "            ^^^^^^^^^^^^^^^^^^^^\n"
            "A directive knows no quotes, and a value ends at the first space. "
            "Use a path without spaces, such as that of a link.",
        ),
        (
            "#DW copy_in source='/in put'",
            "#DW copy_in source='/in put'\n"
            "            ^^^^^^^^^^^^^^^^\n"
            "A directive knows no quotes, and a value ends at the first space. "
            "Use a path without spaces, such as that of a link.",
        ),
        ("#DW x a a", "#DW x a a\n        ^\nThe argument a is repeated."),
    ],
)
def test_what_is_no_directive_is_shown_with_carets_under_the_place(text: str, shown: str) -> None:
    with pytest.raises(Mistake) as made:
        parse(text)
    assert made.value.text_with_carets == shown


@pytest.mark.parametrize(
    ("block", "directives"),
    [
        ("", []),
        (" \n ", []),
        (JOBDW, [JOBDW]),
        (f"\n{JOBDW}\n{COPY}\n", [JOBDW, COPY]),
        (f"{JOBDW} {COPY}", [JOBDW, COPY]),
        ("#DW\tjobdw\n  type=xfs", ["#DW jobdw type=xfs"]),
        ("preset #DW jobdw", ["preset", "#DW jobdw"]),
        ("preset", ["preset"]),
        ("#DW jobdw name=a#DW", ["#DW jobdw name=a#DW"]),
        ("#DW #DW", ["#DW", "#DW"]),
        ("#DWarf", ["#DWarf"]),
        ("#DW jobdw \\\n  name=a \\\n", ["#DW jobdw name=a"]),
        ("#DW jobdw \\ \r\n#DW name=a\n#DW x", ["#DW jobdw name=a", "#DW x"]),
        ("#DW jobdw \\\n# name=a\\\n\n#DW x", ["#DW jobdw name=a", "#DW x"]),
        ("#DW jobdw \\", ["#DW jobdw"]),
    ],
)
def test_a_block_is_cut_into_its_directives(block: str, directives: list[str]) -> None:
    assert list(split(block)) == directives


@given(st.text("#DW \nab=", max_size=30))
def test_no_word_of_a_block_is_lost(block: str) -> None:
    assert " ".join(split(block)).split() == block.split()
