"""Where the words of a script's directives stand in the script."""

from warren.directives.script import LocatedDirective, Word, locate_directives, read

SCRIPT = """\
#!/bin/sh
#DW jobdw type=xfs \\
#DW   name=scratch
#DW copy_in source=/a destination=/b
"""


def places(one: LocatedDirective, part: str) -> tuple[int, int, int]:
    start = one.text.index(part)
    return one.line_and_columns(start, start + len(part))


def test_words_are_divided_into_the_directives_that_they_are_of() -> None:
    found = locate_directives(read(SCRIPT).words)

    assert [each.text for each in found] == [
        "#DW jobdw type=xfs name=scratch",
        "#DW copy_in source=/a destination=/b",
    ]


def test_a_part_of_a_directive_is_where_its_script_has_it() -> None:
    jobdw, copy = locate_directives(read(SCRIPT).words)

    assert places(jobdw, "#DW") == (2, 0, 3)
    assert places(jobdw, "jobdw") == places(jobdw, "jobdw ") == (2, 4, 9)
    assert places(jobdw, "xfs") == (2, 15, 18)
    assert places(jobdw, "scratch") == (3, 11, 18)
    assert places(copy, "copy_in source=/a") == (4, 4, 21)


def test_what_goes_on_in_the_next_line_is_shown_as_far_as_the_end_of_its_first_one() -> None:
    jobdw, _ = locate_directives(read(SCRIPT).words)

    assert places(jobdw, "jobdw type=xfs name") == (2, 4, 18)


def test_a_word_of_a_variable_is_shown_with_all_of_its_place() -> None:
    one = LocatedDirective((Word("#DW", 1, 0, 3), Word("jobdw", 1, 4, 4), Word("name=a", 1, 9, 6)))

    assert places(one, "obd") == (1, 4, 8)
    assert places(one, "name") == (1, 9, 13)


def test_what_is_behind_all_words_is_shown_at_the_first_of_them() -> None:
    one = LocatedDirective((Word("#DW", 3, 2, 3),))

    assert one.line_and_columns(3, 4) == (3, 2, 3)


def test_words_before_the_first_directive_are_one_by_themselves() -> None:
    words = [Word("jobdw", 1, 0, 5), Word("#DW", 2, 0, 3)]

    assert [each.text for each in locate_directives(words)] == ["jobdw", "#DW"]


def test_a_word_that_ends_with_the_backslash_is_where_it_is_without_it() -> None:
    (one,) = locate_directives(read("#DW jobdw name=a\\\\\n#DW type=xfs \\\n\n").words)

    assert one.text == "#DW jobdw name=a type=xfs"
    assert places(one, "name=a") == (1, 10, 16)
    assert places(one, "type") == (2, 4, 8)
