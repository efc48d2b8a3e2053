"""An API of one guest's own, with the objects that its agent is for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from warren.base.clock import SystemClock
from warren.base.objects import Change, Key, Kind, Object
from warren.controllers.exports import Exports
from warren.controllers.localnode import LocalNode
from warren.daemons.agentreconcilers import build_agent
from warren.dws import kinds
from warren.journal import MemoryJournal
from warren.kube.admission import AdmitAll
from warren.kube.client import NotFound
from warren.kube.server.builtin import CRD
from warren.kube.server.local import LocalClient
from warren.kube.server.store import Store

SECONDS = 200.0

KINDS = (
    kinds.CLIENT_MOUNT,
    kinds.NNF_DATA_MOVEMENT,
    kinds.NNF_NODE,
    kinds.NNF_NODE_BLOCK_STORAGE,
    kinds.NNF_NODE_STORAGE,
)
"""Those that agents watch. To read all of deploy/crds takes a guest half a minute."""


class Api(LocalClient):
    """A client whose objects can be waited for."""

    async def when(self, kind: Kind, key: Key, condition: Callable[[Any], bool]) -> Object:
        """Return an object of which something is true by then; {} for one that has gone."""
        last: Object = {}
        try:
            async with asyncio.timeout(SECONDS):
                while True:
                    try:
                        last = await self.get(kind, key)
                    except NotFound:
                        last = {}
                    if condition(last):
                        return last
                    await asyncio.sleep(0.2)
        except TimeoutError:
            raise AssertionError(
                f"{kind.name} {key} has not become what it should: {last}"
            ) from None

    async def change(self, kind: Kind, key: Key, spec: Object) -> None:
        await self.patch(Change(kind=kind, key=key, patch={"spec": spec}))


@asynccontextmanager
async def served(
    node: str,
    machine: LocalNode,
    *,
    rabbit: bool,
    exports: Exports | None = None,
    detach: Any = None,
) -> AsyncIterator[Api]:
    """Run a store and the agent of one node for the length of a block."""
    store = Store(MemoryJournal(), SystemClock(), AdmitAll())
    running = [asyncio.ensure_future(store.run())]
    for kind in KINDS:
        await store.create(CRD, _definition(kind))
    api = Api(store)
    built = build_agent(
        api,
        SystemClock(),
        node,
        machine,
        is_rabbit=rabbit,
        exports=exports,
        disconnect_volume=detach,
    )
    running += [asyncio.ensure_future(part()) for part in built.runnables.values()]
    try:
        yield api
    finally:
        for each in running:
            each.cancel()
        await asyncio.wait(running)


def _definition(kind: Kind) -> Object:
    """Return the definition of a kind whose objects have any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    names = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
    }
    return {
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }
