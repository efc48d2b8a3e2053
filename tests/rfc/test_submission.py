"""Options that stand in a script (RFC 36)."""

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import submission
from warren.rfc.submission import BadDirective

SHELL = """\
#!/bin/sh
#FLUX: -N4                  # Request four nodes
#FLUX: --queue=batch        # Submit to the batch queue
#FLUX: --job-name=app001    # Set an explicit job name
flux run -N4 app
"""
PYTHON = '''\
#!/usr/bin/env python3
def main():
    """
    flux: -N4
    flux: --queue=batch
    flux: --job-name="my python job"
     \n\
    # Set some arbitrary user data:
    flux: --setattr=user.data=\'\'\'
    flux: x, y, z
    flux: a, b, c
    flux: \'\'\'
    """
    run()
'''
LUA = """\
#!/usr/bin/lua
--
-- flux: -N1 --exclusive
-- flux: --output=job.out
local app = require 'app'
app.run()
"""
MIXED = """\
#!/bin/sh
# Set flux directives
#FLUX: -N1
# Set job name:

#FLUX: --job-name=test
hostname; date
"""
DOCSTRING = '''\
"""
flux: --nodes=4

Set an arbitrary value in jobspec:
flux: --setattr=user.foo="hello, earth"
"""
'''


@pytest.mark.parametrize(
    ("script", "sentinel", "arguments"),
    [
        (SHELL, "#FLUX:", ["-N4", "--queue=batch", "--job-name=app001"]),
        (PYTHON, "    flux:", ["-N4", "--queue=batch", "--job-name=my python job",
                               "--setattr=user.data=x, y, z\na, b, c\n"]),
        (LUA, "-- flux:", ["-N1", "--exclusive", "--output=job.out"]),
        (MIXED, "#FLUX:", ["-N1", "--job-name=test"]),
        (DOCSTRING, "flux:", ["--nodes=4", "--setattr=user.foo=hello, earth"]),
        ("", None, []),
        ("#!/bin/sh\necho 'flux: no'\n", None, []),
        ("#fluxion: no\n# fLUX: no\nx flux: no", None, []),
        ("// flux:\r\n// flux: -N1\r\nint main", "// flux:", ["-N1"]),
        ("#flux: -x \'\'\'\r\n#flux: a\r\n#flux: \'\'\'\r\n", "#flux:", ["-x", "a\n"]),
    ],
)  # fmt: skip
def test_the_directives_of_a_script_are_found_in_any_language(
    script: str, sentinel: str | None, arguments: list[str]
) -> None:
    found = submission.parse(script)
    assert (found.sentinel, list(found.arguments)) == (sentinel, arguments)


@pytest.mark.parametrize(
    ("directive", "arguments"),
    [
        ("", []),
        ("   # nothing", []),
        ("-N4 -c 2", ["-N4", "-c", "2"]),
        ("\t-N4\t# -c2 : comment out for now", ["-N4"]),
        ("""--x='{"option": "arg"}'""", ['--x={"option": "arg"}']),
        ('''--x="it's"''', ["--x=it's"]),
        ('''--x="\\"\\\\\\$\\`\\n"''', ['--x="\\$`\\n']),
        ("--x=a\\ b\\#c\\'", ["--x=a b#c'"]),
        ("--x='a # b' --y='' # c", ["--x=a # b", "--y="]),
        ("--x '' \"\"", ["--x", "", ""]),
        ("--x='a'\"b\"c", ["--x=abc"]),
        ('--x="""{"key": 42}"""', ['--x={"key": 42}']),
        ("""--x='''It's a "job"'''""", ["""--x=It's a "job\""""]),
        ("""--x='''a # b'''c # d""", ["--x=a # bc"]),
        ('--x=""""""', ["--x="]),
        ('--x="""\\"""', ["--x=\\"]),
    ],
)
def test_words_are_quoted_as_in_a_shell(directive: str, arguments: list[str]) -> None:
    assert list(submission.parse(f"# flux:{directive}\ntrue").arguments) == arguments


def lines(*directives: str) -> str:
    return "".join(f"#FLUX:{each}\n" for each in directives)


@pytest.mark.parametrize(
    ("script", "value"),
    [
        (lines(' --x="""', " [config]", '   item = "foo"', ' """'), '[config]\n  item = "foo"\n'),
        (lines(' --x="""', " #DW jobdw", "", " #DW stage", '"""'), "#DW jobdw\n\n#DW stage\n"),
        (lines(" --x='''  ", " '", "  b'''"), "'\n b"),
        (lines(" --x='''", " '''  # done"), ""),
        (lines(" --x='''", "\ta", "\tb", " '''"), "a\nb\n"),
        (lines(" --x='''", "flux: a", " '''"), "flux: a\n"),
    ],
)  # fmt: skip
def test_a_text_of_several_lines_has_neither_sentinels_nor_common_indentation(
    script: str, value: str
) -> None:
    after = lines(" --next")
    assert submission.parse(script + after).arguments == (f"--x={value}", "--next")


@pytest.mark.parametrize(
    ("script", "line", "column", "problem"),
    [
        ("# flux: -N4\n# flux: -c2\necho\n\n# flux: --queue=batch", 5, 3,
         "this directive comes after line 3, which ends them"),
        ("# flux: -N4\n#x\n  # flux: -c2", 3, 5, "this directive comes after line 2, which ends"),
        ("# flux: -N4\n# FLUX: -c2", 2, 3, "this directive starts with '# FLUX:', not with"),
        ("# flux: -N4\n#flux: -c2", 2, 2, "this directive starts with '#flux:', not with '# flux"),
        ("# flux: nodes=4", 1, 9, "'nodes=4' is not an option: directives start with '-'"),
        ("#!x\n# flux: '' -x", 2, 9, "'' is not an option"),
        ("# flux: -x 'a", 1, 12, "this quote is not closed"),
        ('# flux: -x="a\\"', 1, 12, "this quote is not closed"),
        ("# flux: -x\\", 1, 11, "nothing comes after this backslash"),
        ("# flux: -S dw=#DW jobdw", 1, 15, "a '#' inside a word: quote it, or put a blank before"),
        ("# flux: -x ''' a\n# flux: '''", 1, 15, "a text of several lines starts on the line"),
        ("# flux: -x '''\n# flux: a", 1, 12, "these quotes are not closed on the directives"),
        ("# flux: -x '''\n# a\n# flux: '''", 1, 12, "these quotes are not closed on the directiv"),
        ("# flux: -x '''\n\n# flux: '''", 1, 12, "these quotes are not closed on the directives"),
        ("# flux: -x '''\n# flux: ''' -y", 2, 13, "nothing may come after the quotes that end"),
        ("# flux: -x '''\n# flux: '''y", 2, 12, "nothing may come after the quotes that end"),
    ],
)  # fmt: skip
def test_a_mistake_is_refused_with_its_line_and_column(
    script: str, line: int, column: int, problem: str
) -> None:
    with pytest.raises(BadDirective) as refused:
        submission.parse(script)
    assert (refused.value.line, refused.value.column) == (line, column)
    assert str(refused.value).startswith(f"line {line}, column {column}: {problem}")


def test_a_mistake_can_be_shown_with_a_caret() -> None:
    with pytest.raises(BadDirective) as refused:
        submission.parse("#!/bin/sh\n#FLUX: -N 'x\n")
    assert refused.value.text_with_carets == (
        "#FLUX: -N 'x\n          ^\nline 2, column 11: this quote is not closed"
    )


def test_words_remember_where_they_start() -> None:
    found = submission.parse("\n# flux: -N4\n# flux:  -S x='''\n# flux: a\n# flux: '''\n")
    assert [(word.text, word.line, word.column) for word in found.words] == [
        ("-N4", 2, 9), ("-S", 3, 10), ("x=a\n", 3, 13),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ("-N4", {}),
        ("-S dw='#DW jobdw' -N4", {"system": {"dw": "#DW jobdw"}}),
        ("-Sdw=x", {"system": {"dw": "x"}}),
        ("--setattr=system.a.b=1 --setattr system.a.c=true",
         {"system": {"a": {"b": 1, "c": True}}}),
        ("--setattr=user.a='[1]' -S .user.b=x=y -S .c=1.5",
         {"user": {"a": [1], "b": "x=y"}, "c": 1.5}),
        ("-S flag", {"system": {"flag": 1}}),
        ("-S a='{\"b\": 1}' -S a.c=2", {"system": {"a": {"b": 1, "c": 2}}}),
        ("-S a=" + "[" * 100, {"system": {"a": "[" * 100}}),
    ],
)  # fmt: skip
def test_settings_become_attributes(options: str, attributes: dict[str, Any]) -> None:
    assert submission.parse(f"# flux: {options}").attributes == attributes


@pytest.mark.parametrize(
    ("options", "column", "problem"),
    [
        ("-N4 -S", 13, "a setting is missing after -S"),
        ("-S =x", 12, "'=x' is not KEY=VALUE"),
        ("-S a..b=x", 12, "'a..b=x' is not KEY=VALUE"),
        ("--setattr=", 9, "'' is not KEY=VALUE"),
        ("-S ^a=file", 12, "'^a' is to be read from a file, which a script cannot have"),
        ("-S a=1 -S a.b=1", 19, "'system.a.b' lies in 'a', which has a value of its own"),
    ],
)
def test_a_bad_setting_is_refused_with_its_column(options: str, column: int, problem: str) -> None:
    found = submission.parse(f"# flux: {options}")
    with pytest.raises(BadDirective) as refused:
        _ = found.attributes
    assert str(refused.value) == f"line 1, column {column}: {problem}"


printable = st.text(st.characters(exclude_categories=["C"]), max_size=8)


@given(st.lists(printable, max_size=4), st.sampled_from(["#flux:", "  FLUX:", "-- flux:"]))
def test_what_a_shell_would_quote_is_read_as_the_shell_reads_it(
    arguments: list[str], sentinel: str
) -> None:
    script = f"{sentinel} -x {shlex.join(arguments)}\n"
    assert submission.parse(script).arguments == ("-x", *arguments)


@given(st.text(" a\"'\\-", max_size=12))
def test_quotes_are_read_as_the_standard_library_reads_them(directive: str) -> None:
    if "'''" in directive or '"""' in directive:
        return
    try:
        expected = shlex.split(directive)
    except ValueError:
        with pytest.raises(BadDirective):
            submission.parse(f"#flux: -x {directive}")
        return
    assert list(submission.parse(f"#flux: -x {directive}").arguments) == ["-x", *expected]


texts = st.lists(st.text("ab #'$", max_size=6), min_size=1, max_size=4)


@given(texts)
def test_any_lines_without_common_indentation_read_back(body: list[str]) -> None:
    body = ["x", *body]
    script = lines(' --x="""', *(f" {line}" for line in body), ' """')
    value = "".join(f"{line if line.strip() else ''}\n" for line in body)
    assert submission.parse(script).arguments == (f"--x={value}",)


@given(st.text("#flux: -N'\"\\\n", max_size=30).map(lambda text: f"#flux: -x\n{text}"))
def test_every_script_is_read_or_refused_at_a_place_in_it(script: str) -> None:
    try:
        submission.parse(script)
    except BadDirective as refused:
        line, column = refused.line, refused.column
    else:
        return
    assert 1 <= column <= len(script.split("\n")[line - 1]) + 1
