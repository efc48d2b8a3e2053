"""A rabbit as a node of its cluster: its agent says that it is one, and whether it runs pods."""

import asyncio
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


async def register(client: Client, clock: Clock, name: str, address: str, why_not: str) -> None:
    """Make the Node of a rabbit what it should be, until that is done; and live until cancelled.

    `why_not` says why the rabbit does not run pods; it is empty where it does.
    """
    made = {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {}}
    status = Change(
        kind=kinds.NODE,
        key=Key("", name),
        patch={"status": _status(clock, name, address, why_not)},
        status=True,
    )
    while True:
        try:
            await perform(client, [Create(kind=kinds.NODE, object=made), status])
            break
        except WarrenError as error:
            log.info("node not registered", node=name, reason=str(error))
            await asyncio.sleep(_AGAIN)
    await asyncio.Event().wait()


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
