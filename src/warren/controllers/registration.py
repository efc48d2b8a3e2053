"""A rabbit as a node of its cluster: its agent says that it is one, and whether it runs pods."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from warren.base.clock import Clock
from warren.base.errors import WarrenError
from warren.base.objects import Change, Create, Key, Object
from warren.base.times import rfc3339
from warren.dws import kinds
from warren.kube.client import Client
from warren.kube.perform import perform

log = structlog.get_logger()

_AGAIN: Final = 2.0
"""Seconds after which an agent tries again."""

_UNABLE: Final = 10.0
"""Seconds after which it looks again whether pods can be run."""


async def register(
    client: Client,
    clock: Clock,
    name: str,
    address: str,
    unable: Callable[[], Awaitable[str | None]],
) -> None:
    """Make the Node of a rabbit, and return when it says that pods are run there.

    Until then it says why not, which `unable` tells, and is asked again: what hinders may pass.
    """
    made = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}}
    told: str | None = None
    while True:
        why_not = await unable() or ""
        status = Change(
            kind=kinds.NODE,
            key=Key("", name),
            patch={"status": _status(clock, name, address, why_not)},
            status=True,
        )
        try:
            if why_not != told:
                await perform(client, [Create(kind=kinds.NODE, object=made), status])
                told = why_not
            if not why_not:
                return
        except WarrenError as error:
            log.info("node not registered", node=name, reason=str(error))
        await asyncio.sleep(_AGAIN if told != why_not else _UNABLE)


def _status(clock: Clock, name: str, address: str, why_not: str) -> Object:
    ready = {
        "type": "Ready",
        "status": "False" if why_not else "True",
        "reason": "NotAble" if why_not else "Able",
        "message": why_not or "pods are run here",
        "lastTransitionTime": rfc3339(clock.now()),
    }
    return {
        "conditions": [ready],
        "addresses": [
            {"type": "InternalIP", "address": address},
            {"type": "Hostname", "address": name},
        ],
    }
