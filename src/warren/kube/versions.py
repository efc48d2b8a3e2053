"""Which version of each group of kinds to speak with a cluster.

Asked once, at the start. Which versions we speak at all is told by whoever knows the
kinds; what a server serves beside them does not matter.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from warren.base.errors import UserMistake
from warren.kube.client import NotFound


class NotSpoken(UserMistake):
    """The cluster serves no version of a group that we speak."""


class Api(Protocol):
    """Documents of an API."""

    async def read(self, path: str) -> Any:
        """Give the document at a path. Raises NotFound, Refused and Unavailable."""
        ...


async def choose(api: Api, spoken: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Give for each group the first of its versions that the API serves.

    `spoken` has the versions that we speak, the one we like best first. Raises NotSpoken
    for all groups together that have none, and what the API raises.
    """
    served = {group: await _served(api, group) for group in spoken}
    chosen = {
        group: next((each for each in versions if each in served[group]), None)
        for group, versions in spoken.items()
    }
    lacking = [
        f"{group} (served: {', '.join(served[group]) or 'nothing'}; "
        f"spoken: {', '.join(spoken[group])})"
        for group, version in chosen.items()
        if version is None
    ]
    if lacking:
        raise NotSpoken(
            f"The cluster serves no version that Warren speaks of {' and of '.join(lacking)}: "
            "install CRDs of a release that has one, then start again."
        )
    return {group: version for group, version in chosen.items() if version is not None}


async def _served(api: Api, group: str) -> list[str]:
    try:
        told = await api.read(f"/apis/{group}")
    except NotFound:
        return []
    return [each["version"] for each in told["versions"]]
