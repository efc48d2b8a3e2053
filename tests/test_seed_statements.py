"""Every statement of the seeds 000 to 003 has a test that cites it, or a reason why not.

A test cites by a line of its docstring: `Statement 003.7: ` or `Statements 003.5, 003.14: `, and
behind it what the statement says. What counts is a function that is run as a test.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SEEDS = {"000": 63, "001": 47, "002": 30, "003": 40}
"""How many statements there are: of rabbits under Flux, containers, the directive breakdown, and
RFC 16."""
KNOWN = [f"{seed}.{number}" for seed, most in SEEDS.items() for number in range(1, most + 1)]

NOT_YET: dict[str, str] = {}
"""What has no test, with the reason. It becomes shorter, and no longer."""

CITATION = re.compile(r"^\s*Statements?\s+(\d{3}\.\d+(?:,\s*\d{3}\.\d+)*):\s+\S")


def citations(source: str) -> Iterator[tuple[str, str]]:
    """Return the tests of a module, each with a number that it cites."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_test(node.name):
            for line in (ast.get_docstring(node) or "").splitlines():
                found = CITATION.match(line)
                for number in re.split(r",\s*", found[1]) if found else ():
                    yield node.name, number


def is_test(name: str) -> bool:
    return name.startswith("test_")


@pytest.fixture(scope="module")
def cited() -> list[tuple[str, str]]:
    """Every citation of a statement of these seeds, with its test."""
    found = []
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text()
        if "Statement" in source:
            place = path.relative_to(TESTS)
            found += [(f"{place}::{test}", number) for test, number in citations(source)]
    return [(test, number) for test, number in found if number.partition(".")[0] in SEEDS]


def test_every_statement_has_a_test_that_cites_it_or_a_reason(cited: list[tuple[str, str]]) -> None:
    numbers = {number for _, number in cited}

    assert [each for each in KNOWN if each not in numbers] == list(NOT_YET)


def test_no_test_cites_a_statement_that_there_is_not(cited: list[tuple[str, str]]) -> None:
    assert [(test, number) for test, number in cited if number not in KNOWN] == []


@pytest.mark.parametrize(
    ("docstring", "numbers"),
    [
        ("Statement 003.7: a request goes to the scheduler.", ["003.7"]),
        ("Statements 003.5, 003.14: the id is returned.", ["003.5", "003.14"]),
        ("One line.\n\n    Statement 003.1: one.\n    Statement 003.2: two.", ["003.1", "003.2"]),
        ("See statement 003.7: it is told there.", []),
        ("Statement 003.7", []),
        ("Statement 003.7:", []),
    ],
)
def test_a_citation_is_a_line_with_numbers_and_what_they_say(
    docstring: str, numbers: list[str]
) -> None:
    body = f'"""{docstring}"""'
    for head in ("def test_it()", "async def test_it()"):
        assert list(citations(f"{head}:\n    {body}")) == [("test_it", each) for each in numbers]
    assert list(citations(f"def helper():\n    {body}\nclass Test:\n    {body}")) == []
