"""Directives found in a script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.directives.script import read

JOBDW = "#DW jobdw type=xfs capacity=1GiB name=scratch"
COPY = "#DW copy_in source=/lus/in destination=$DW_JOB_scratch/"


def directives(text: str) -> list[str]:
    return list(read(text).directives)


def remarks(text: str) -> list[str]:
    return [remark.text_with_carets("job.sh") for remark in read(text).remarks]


def test_a_script_has_its_directives_in_its_leading_comments() -> None:
    script = f"#!/bin/sh\n# a job\n\n  # of mine\n{JOBDW}  \n#DWarf\n#DW\n{COPY}\ndate\n"

    assert directives(script) == [JOBDW, "#DW", COPY]
    assert remarks(script) == []


@pytest.mark.parametrize("text", ["", "date\n", f"\x7fELF\0\n{JOBDW}\n"])
def test_what_has_no_directives_has_none(text: str) -> None:
    assert directives(text) == remarks(text) == []


SEED = """\
#DW jobdw name=my-gfs2 type=gfs2 capacity=1TB
#DW persistentdw name=some-lustre
#DW container name=my-foo profile=foo \\
{0}DW_JOB_foo-local-storage=my-gfs2 \\
{0}DW_PERSISTENT_foo-persistent-storage=some-lustre
"""

WHOLE = [
    "#DW jobdw name=my-gfs2 type=gfs2 capacity=1TB",
    "#DW persistentdw name=some-lustre",
    "#DW container name=my-foo profile=foo DW_JOB_foo-local-storage=my-gfs2 "
    "DW_PERSISTENT_foo-persistent-storage=some-lustre",
]


@pytest.mark.parametrize("before", ["", "  ", "#", "# ", "#DW ", "#DW\t", "  # ", "#   "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_directive_goes_on_in_the_next_line_whatever_stands_before_it(
    before: str, end: str
) -> None:
    """Statement 001.7: the seed's example has nothing before what goes on."""
    assert directives(SEED.format(before).replace("\n", end)) == WHOLE


@pytest.mark.parametrize("before", ["#", "#DW "])
def test_a_directive_may_go_on_in_comments_without_a_remark(before: str) -> None:
    assert remarks(SEED.format(before)) == []


def test_a_line_that_is_a_command_too_is_told_with_its_place() -> None:
    sentence = (
        "This line belongs to the directive above it, and the script's interpreter reads it, too, "
        "as a command. Begin it with #DW."
    )

    assert remarks("#!/bin/sh\n#DW jobdw type=xfs \\\n  name=a\n#DW x\n") == [
        f"job.sh, line 3:\n  name=a\n  ^^^^^^\n{sentence}"
    ]


@pytest.mark.parametrize("rest", ["", "\n", "\n\ndate\n", "\n#\ndate\n"])
def test_a_directive_that_nothing_follows_ends_with_its_backslash(rest: str) -> None:
    assert directives(f"{JOBDW} \\{rest}") == [JOBDW]
    assert remarks(f"{JOBDW} \\{rest}") == []


gaps = st.tuples(
    st.sampled_from(["", " ", "\t"]),
    st.sampled_from(["\\", "\\ "]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(["", " ", "#", "#DW ", "  # "]),
).map("".join)


@given(st.lists(st.tuples(gaps, st.sampled_from(["a", "b=1", "c=$DW_X", "--"])), max_size=6))
def test_no_word_behind_a_backslash_is_lost(rest: list[tuple[str, str]]) -> None:
    script = "#DW jobdw" + "".join(gap + word for gap, word in rest)

    assert directives(f"{script}\n{COPY}") == [
        " ".join(["#DW jobdw", *(word for _, word in rest)]),
        COPY,
    ]


@pytest.mark.parametrize(
    ("line", "carets"),
    [
        ("# DW jobdw type=xfs name=a", "^^^^"),
        ("#dw jobdw type=xfs name=a", "^^^"),
        ("#Dw jobdw type=xfs name=a", "^^^"),
        ("  #DW jobdw type=xfs name=a", "  ^^^"),
    ],
)
def test_what_looks_like_a_directive_and_is_none_is_told(line: str, carets: str) -> None:
    (shown,) = remarks(f"#!/bin/sh\n\n{line}\n{COPY}\n")

    place, *rest = shown.splitlines()
    assert place == "job.sh, line 3:"
    assert rest == [
        line,
        carets,
        "This is a comment and no directive. "
        "Write #DW, in capitals, without a space in it, at the beginning of the line.",
    ]


@pytest.mark.parametrize(
    "line",
    ["# DW is what we call it", "##DW jobdw type=xfs", "# dw: a=b", "#DWarf a=b", "# copy a=b"],
)
def test_a_comment_is_told_nothing(line: str) -> None:
    assert remarks(f"{line}\n") == []


def test_a_directive_behind_the_first_command_is_told() -> None:
    assert remarks(f"{JOBDW}\ndate\n# a comment\n{COPY}\n") == [
        f"job.sh, line 4:\n{COPY}\n^^^\n"
        "Directives stand before the script's commands: this one is not read. Move it above them."
    ]


def test_line_ends_of_windows_are_told_once_and_keep_no_directive_from_being_read() -> None:
    script = f"#!/bin/sh\n{JOBDW}\n{COPY}\ndate\n".replace("\n", "\r\n")
    (shown,) = remarks(script)

    assert directives(script) == [JOBDW, COPY]
    assert shown.startswith("job.sh, line 1:\n#!/bin/sh\n  ^^^^^^^\nThe lines end as those of Wi")
    assert shown.endswith(r"Convert the script with sed -i 's/\r$//'.")


@pytest.mark.parametrize("rest", ["", "\n", "\ndate\n"])
def test_the_first_line_alone_may_end_as_those_of_windows_do(rest: str) -> None:
    (shown,) = remarks(f"#!/bin/sh\r{rest}")
    assert shown.startswith("job.sh, line 1:\n#!/bin/sh\n")
    assert remarks(f"#!/bin/sh\n#!/bin/sh\r{rest}") == []
