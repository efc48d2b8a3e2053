"""What an examination has found is removed, one thing after the other."""

import asyncio

import pytest

from warren.daemons.repair import remove_all
from warren.dws.audit import Finding, FindingType
from warren.dws.node import NodeTrouble


def _finding(name: str) -> Finding:
    return Finding(type=FindingType.MOUNT, where="r0", name=name, why="left")


def test_what_cannot_be_removed_is_told_and_the_rest_is_removed() -> None:
    removed: list[str] = []

    async def remove(finding: Finding) -> None:
        if finding.name == "b":
            raise NodeTrouble("it is busy")
        removed.append(finding.name)

    failures = asyncio.run(remove_all(map(_finding, "abc"), remove))

    assert (removed, failures) == (["a", "c"], ["r0: it is busy"])


def test_a_bug_ends_the_repair() -> None:
    async def remove(finding: Finding) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(remove_all([_finding("a")], remove))
