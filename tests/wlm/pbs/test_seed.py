"""Every paragraph of the design that asked for the hook has a test that cites it.

A test cites by a line `Seed: ` in its docstring, and the design's own words behind it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared" / "seeds"

NOTHING_TO_HOLD = [
    "PBS Design Changes for Shasta",
    "v1.4 - Pass the",
    "Please provide comments",
    "New PBS hook",
    "What happens if the hook alarms",
    "Hook's attributes/HK file",
    "Hook Configuration File",
    "Details about what happens at",
    "NOTE:",
    "When Cray's tasks encounter a problem",
    "Authentication and the mandatory Python modules",
    "Forming the URIs",
    "Rationale for why we decided",
    "Ideas for possible future enhancements",
    "OSS Site Map",
    "Project Documentation Main Page",
    "Developer Guide Pages",
]
"""Headings, history and links."""


def plain(text: str) -> str:
    return " ".join(text.translate({0x2013: "-", 0x2019: "'", 0x201C: '"', 0x201D: '"'}).split())


def citations() -> Iterator[tuple[str, str]]:
    """Return what tests cite, each with its test."""
    for folder in ("wlm/pbs", "interop", "atom"):
        for path in sorted((ROOT / "tests" / folder).glob("test_*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    for words in re.findall(
                        r"^\s*Seed: (.*)$", ast.get_docstring(node) or "", re.M
                    ):
                        yield f"{path.name}::{node.name}", plain(words)


@pytest.fixture(scope="module")
def paragraphs() -> list[str]:
    found = sorted(SHARED.glob("004_*.txt"))
    if not found:
        pytest.skip("the design document is not beside the project")
    # Points of a list are paragraphs, too.
    pieces = re.split(r"\n\s*\n|\n(?=\s*\u2022)", found[0].read_text())
    return [plain(each) for each in pieces if each.strip()]


def test_what_is_cited_is_what_the_design_says(paragraphs: list[str]) -> None:
    cited = list(citations())
    assert len(cited) > 20
    strange = [(test, words) for test, words in cited if not any(words in p for p in paragraphs)]
    assert strange == []


def test_every_paragraph_has_a_test_that_cites_it(paragraphs: list[str]) -> None:
    words = [each for _, each in citations()]
    held = [
        paragraph
        for paragraph in paragraphs
        if not any(paragraph.startswith(opening) for opening in NOTHING_TO_HOLD)
    ]
    assert len(held) > 15
    assert [each for each in held if not any(cited in each for cited in words)] == []
