"""Which version of each group of kinds to speak with a cluster.

Asked once, at the start. Which versions we speak at all is told by the module that knows the
kinds; what a server serves beside them does not matter.
"""

import asyncio
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from warren.base.errors import UserMistake
from warren.kube.client import Forbidden, NotFound
from warren.kube.queue import backoff
from warren.kube.refusallog import RefusalLog


class UnsupportedVersions(UserMistake):
    """The cluster serves no version of a group that we speak."""


class Api(Protocol):
    """Documents of an API."""

    async def read(self, path: str) -> Any:
        """Return the document at a path. Raises NotFound, Refused and Unavailable."""
        ...


async def choose(api: Api, supported: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return for each group the first of its versions that the API serves.

    `supported` has the versions that we speak, the one we like best first. Raises
    UnsupportedVersions for all groups together that have none, and what the API raises.
    """
    served_by_group = {group: await _served_versions(api, group) for group in supported}
    version_by_group = {
        group: next((each for each in versions if each in served_by_group[group]), None)
        for group, versions in supported.items()
    }
    unsupported = [
        f"{group} (served: {', '.join(served_by_group[group]) or 'nothing'}; "
        f"spoken: {', '.join(supported[group])})"
        for group, version in version_by_group.items()
        if version is None
    ]
    if unsupported:
        raise UnsupportedVersions(
            f"The cluster serves no version that Warren speaks of {' and of '.join(unsupported)}: "
            "install CRDs of a release that has one, then start again."
        )
    return {group: version for group, version in version_by_group.items() if version is not None}


async def choose_when_allowed(
    api: Api,
    supported: Mapping[str, Sequence[str]],
    *,
    seconds: float,
    jitter: Callable[[], float] = random.random,
) -> dict[str, str]:
    """Return what `choose` gives, asked again for so many seconds while we may not ask.

    A server that has just started refuses all requests. Raises Forbidden when that is over.
    """
    loop, refusals = asyncio.get_running_loop(), RefusalLog()
    deadline = loop.time() + seconds
    for failures in itertools.count(1):
        try:
            return await choose(api, supported)
        except Forbidden as error:
            delay = backoff(error.delay, failures, jitter())
            if loop.time() + delay > deadline:
                raise
            refusals.note_refusal("versions", str(error))
            await asyncio.sleep(delay)
    raise AssertionError("it is asked until there is an end")


async def _served_versions(api: Api, group: str) -> list[str]:
    try:
        group_document = await api.read(f"/apis/{group}")
    except NotFound:
        return []
    return [each["version"] for each in group_document["versions"]]
