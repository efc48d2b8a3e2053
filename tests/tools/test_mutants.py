"""What mutants are made of a module, which tests try them, and what ends a trial."""

import ast
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest
from tools.mutants import __main__ as command
from tools.mutants.changes import ROOT, Mutant, mutants_of, mutated
from tools.mutants.covering import Coverage, importers
from tools.mutants.results import Results
from tools.mutants.trials import DIED, TIME_LIMIT, Trial, code_of, nested, try_each

PATH = ROOT / "src" / "warren" / "dws" / "example.py"


def mutants(text: str, path: Path = PATH) -> list[Mutant]:
    return mutants_of(path, dedent(text))


def changes(text: str) -> list[str]:
    return [each.change for each in mutants(text)]


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("x = a < b", ["`a < b` becomes `a <= b`"]),
        ("a < b > c", [f"`a < b > c` becomes `{new}`" for new in ("a <= b > c", "a < b >= c")]),
        ("x = a in b", ["`a in b` becomes `a not in b`"]),
        ("x = a is not b", ["`a is not b` becomes `a is b`"]),
        ("x = a and b", ["`a and b` becomes `a or b`"]),
        ("x = not a", ["`not a` becomes `a`"]),
        ("x = True", ["`True` becomes `False`"]),
        ("x = 3", ["`3` becomes `4`"]),
        ("x = min(a, b)", ["`min(a, b)` becomes `max(a, b)`"]),
        ("x = all(a)", ["`all(a)` becomes `any(a)`"]),
        ("f(x)", ["`f(x)` is deleted"]),
        ("a.b = x", ["`a.b = x` is deleted"]),
        ("a[b] = x", ["`a[b] = x` is deleted"]),
        ("a += b", ["`a += b` is deleted"]),
        ("del a", ["`del a` is deleted"]),
        ("for x in y:\n    continue", ["`continue` is deleted"]),
        ("def f():\n    return x", ["`return x` becomes `return None`"]),
        ("if a:\n    x = b", ["`a` becomes `True`", "`a` becomes `False`"]),
        ("x = [y for y in z if y]", ["`y` becomes `True`", "`y` becomes `False`"]),
    ],
)  # fmt: skip
def test_a_node_is_changed_into_what_may_be_confused_with_it(text: str, made: list[str]) -> None:
    assert changes(text) == made


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""',
        "x = 'text'",
        "x = f'{a == 1}'",
        "x: Literal[1]",
        "def f(x: Annotated[int, 1]) -> Literal[2]: ...",
        "@dataclass(frozen=True)\nclass C(Base, frozen=True): ...",
        "log.info('told', size=1)",
        "raise Trouble(1)",
        "assert x == 1",
        "def f():\n    return None",
        "def f():\n    return",
        "def __repr__(self):\n    return 1",
        "class P(Protocol):\n    x = 1",
        "zip(a, b, strict=True).x",
        "while True:\n    pass",
    ],
)
def test_text_types_logs_and_assertions_are_left_alone(text: str) -> None:
    assert changes(text) == []


def test_a_mutant_differs_from_its_module_in_the_one_change_and_keeps_its_lines() -> None:
    text = "def f(x):\n    if x > 1:\n        g(x)\n    return x\n"
    trees = [mutated(text, each.number) for each in mutants(text)]

    assert [ast.unparse(tree) for tree in trees] == [
        "def f(x):\n    if x >= 1:\n        g(x)\n    return x",
        "def f(x):\n    if True:\n        g(x)\n    return x",
        "def f(x):\n    if False:\n        g(x)\n    return x",
        "def f(x):\n    if x > 2:\n        g(x)\n    return x",
        "def f(x):\n    if x > 1:\n        pass\n    return x",
        "def f(x):\n    if x > 1:\n        g(x)\n    return None",
    ]
    assert all(tree.body[0].end_lineno == 4 for tree in trees)
    for tree in trees:
        compile(tree, "f", "exec")


def test_a_change_which_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no change 1"):
        mutated("x = 1", 1)


def test_a_mutant_is_remembered_by_its_function_wherever_that_stands() -> None:
    before = mutants("def f():\n    return x\n")
    moved = mutants("y = g\n\n\ndef f():\n    return x\n")
    other = mutants("def f():\n    return y\n")

    assert before[0].key == moved[0].key
    assert before[0].key != other[0].key


def test_equal_lines_of_a_function_are_remembered_apart() -> None:
    found = mutants("def f():\n    g()\n    g()\n")
    assert len({each.key for each in found}) == 2


def test_what_is_in_a_function_is_known_by_the_outermost_one_and_defaults_are_outside() -> None:
    found = mutants("""
        class C:
            x = 1
            @property
            def f(self, y=2):
                def inner():
                    return 3
                return inner
        """)

    assert {(each.change, each.function) for each in found if "becomes" in each.change} == {
        ("`1` becomes `2`", None),
        ("`2` becomes `3`", None),
        ("`3` becomes `4`", "C.f"),
        ("`return 3` becomes `return None`", "C.f"),
        ("`return inner` becomes `return None`", "C.f"),
    }


def test_the_code_of_a_changed_function_is_found_by_name_and_line(tmp_path: Path) -> None:
    file = ROOT / "tools" / "mutants" / "changes.py"
    one = next(each for each in mutants_of(file, file.read_text()) if each.function == "digest")

    code = code_of(one)

    assert (code.co_name, code.co_firstlineno) == ("digest", one.first_line)


def test_the_functions_within_a_function_are_changed_with_it() -> None:
    text = "def f():\n    def g():\n        return lambda: 1\n    return g\n"
    code = next(nested(compile(text, "f", "exec")))
    assert [each.co_name for each in nested(code)][:1] == ["g"]
    assert "<lambda>" in {each.co_name for each in nested(code)}


# Which tests


def covering(text: str, lines: dict[int, list[str]]) -> list[list[str]]:
    seconds = {"a::slow": 2.0, "a::fast": 0.5, "b::other": 1.0, "a::story": 2.1}
    known = Coverage(seconds=seconds, lines={str(PATH): lines})
    return [known.tests(each) for each in mutants(text)]


def test_a_mutant_is_tried_by_the_tests_that_run_its_statement_fastest_first_and_no_slow_ones() -> (
    None
):
    text = "def f(\n    x\n):\n    g(\n        3)\n    g(4)\n"
    lines = {4: ["a::slow", "a::story", "a::fast"], 6: ["b::other"]}

    assert covering(text, lines)[:2] == [["a::fast", "a::slow"]] * 2
    assert covering(text, lines)[2:] == [["b::other"]] * 2


def test_the_block_below_a_condition_is_none_of_its_lines() -> None:
    text = "def f(x):\n    if x:\n        y = z\n"
    assert covering(text, {3: ["a::fast"]}) == [[], []]


def test_what_runs_when_a_module_is_loaded_is_tried_by_all_tests_that_use_the_module() -> None:
    assert covering("x = 1\ndef f():\n    y = z", {3: ["a::fast"]}) == [["a::fast"]]
    assert covering("x = 1", {}) == [[]]


def test_so_is_it_by_the_tests_of_those_who_import_it() -> None:
    here = ROOT / "tools" / "mutants"
    paths = [str(here / name) for name in ("changes.py", "covering.py", "trials.py")]
    assert importers("tools.mutants.changes", paths) == paths[1:]
    assert importers("tools.mutants.covering", paths) == paths[2:]


def test_of_many_files_those_that_run_most_of_the_module_try_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tools.mutants.covering.CLOSEST_FILES", 1)
    assert covering("x = 1", {3: ["a::fast", "b::other"], 4: ["b::other"]}) == [["b::other"]]


# Trials


def trial(seconds: float = 60) -> Trial:
    return Trial(mutant=mutants("x = 1")[0], tests=["a::b"], limits={}, seconds=seconds)


def test_a_trial_tells_what_killed_its_mutant() -> None:
    told: list[str | None] = []
    try_each([trial()] * 3, lambda one: one.tests[0], lambda one, killer: told.append(killer))
    assert told == ["a::b"] * 3


def test_a_mutant_that_no_test_notices_survives() -> None:
    told: list[str | None] = []
    try_each([trial()], lambda one: None, lambda one, killer: told.append(killer))
    assert told == [None]


def test_a_mutant_that_never_ends_or_ends_its_process_is_killed() -> None:
    told: list[str | None] = []
    try_each([trial(0.1)], lambda one: time.sleep(3600), lambda one, killer: told.append(killer))
    try_each([trial()], lambda one: sys.exit(3), lambda one, killer: told.append(killer))
    assert told == [TIME_LIMIT, DIED]


# What is kept


def test_a_result_holds_until_what_it_depends_on_changes(tmp_path: Path) -> None:
    killed, survivor = mutants("x = 1\ny = 2")
    test, other = tmp_path / "test_a.py", tmp_path / "test_b.py"
    for each in (test, other):
        each.write_text("")
    tests = [f"{test}::a", f"{other}::b"]
    results = Results(tmp_path)
    results.add(killed, tests, tests[0])
    results.add(survivor, tests, None)

    again = Results(tmp_path)
    assert again.holds(killed, tests)
    assert again.killer(killed) == tests[0]
    assert again.holds(survivor, tests)
    assert again.killer(survivor) is None
    assert not again.holds(survivor, [*tests, "c::d"])

    other.write_text("changed")
    again = Results(tmp_path)
    assert again.holds(killed, tests)
    assert not again.holds(survivor, tests)

    test.write_text("changed")
    assert not Results(tmp_path).holds(killed, tests)


# Choosing


def test_a_sample_takes_as_many_of_each_package_and_the_same_for_the_same_seed() -> None:
    many = [
        one
        for package in ("dws", "lifecycle")
        for one in mutants("x = 1\n" * 9, ROOT / "src" / "warren" / package / "example.py")
    ]

    sample = command.sample_of(many, 3, seed=7)

    assert [one.package for one in sample] == ["dws"] * 3 + ["lifecycle"] * 3
    assert sample == command.sample_of(many, 3, seed=7)
    assert len(command.sample_of(many, 100, seed=7)) == 18


def test_an_explained_mutant_is_not_counted_and_an_explanation_of_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = tmp_path / "explained.toml"
    words = ["[[explained]]", 'module = "warren.dws.example"', 'change = "`1` becomes `2`"']
    found = mutants("x = 1\ny = 1")
    listed.write_text("\n".join([*words, 'line = "x = 1"', 'reason = "because"']))
    assert command.unexplained(found, listed) == found[1:]

    listed.write_text("\n".join([*words, 'line = "z = 1"', 'reason = "because"']))
    with pytest.raises(SystemExit, match="1"):
        command.unexplained(found, listed)
    assert "explains what is not there: warren.dws.example: z = 1" in capsys.readouterr().out


def test_all_mutants_that_are_explained_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Or `make mutants` would refuse to begin, as it does after a name in such a line changes."""
    assert command.unexplained(command.all_mutants()), capsys.readouterr().out


@pytest.mark.parametrize(
    ("killed", "of", "words"),
    [
        (9, 10, "killed 9 of 10, 90 %"),
        (899, 1000, "killed 899 of 1000, 89 %"),
        (0, 0, "killed 0 of 0, 100 %"),
    ],
)
def test_the_share_is_rounded_down(killed: int, of: int, words: str) -> None:
    assert command.share(killed, of) == words
