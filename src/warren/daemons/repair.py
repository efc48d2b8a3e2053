"""Removes what an examination has found, one thing after the other."""

from collections.abc import Awaitable, Callable, Iterable

from warren.dws.audit import Finding
from warren.dws.node import NodeTrouble


async def remove_all(
    findings: Iterable[Finding], remove: Callable[[Finding], Awaitable[None]]
) -> list[str]:
    """Remove what was found; return what could not be removed: a failure does not stop the rest."""
    failures = []
    for finding in findings:
        try:
            await remove(finding)
        except NodeTrouble as trouble:
            failures.append(f"{finding.where}: {trouble}")
    return failures
