"""Whether anything is left to decide where nothing goes on: news that woke no reconciler.

Controllers and the conductor are woken by what may have them decide something, and by nothing
else (ADR 095). Where a piece of news is taken for none, what it asks for is never done, or
only once something else happens. So all keys are reconciled whenever everything is at rest: a
reconcile that writes something then has missed the news that was to wake it.
"""

import asyncio
from collections.abc import Hashable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from warren.base.objects import Change, Kind, Object, Remove, key_of
from warren.conductor.conductor import Conductor
from warren.dws import kinds
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler
from warren.rpc.message import Handle, Payload

KEYS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "workflow": (kinds.WORKFLOW,),
    "storage": (kinds.NNF_STORAGE, kinds.SERVERS),
    "access": (kinds.NNF_ACCESS,),
    "breakdown": (kinds.BREAKDOWN,),
}
"""The kinds of what the controllers have as their keys."""

LOOKS: Final = frozenset({"job-info.lookup", "resource.status"})
"""Requests to the instance that only ask."""

_DONE: ContextVar[list[str] | None] = ContextVar("what a reconcile at rest has done", default=None)


class Rest:
    """Stands where a process has its `Counted`, and looks at everything while that is at rest."""

    def __init__(self, wrong: list[str]) -> None:
        """What is found is added to `wrong`."""
        self._wrong = wrong
        self._reconcilers: dict[str, Reconciler[Any]] = {}
        self._informers: Informers | None = None
        self._jobs: Any = None
        self.looks = 0
        """How many reconciles there were at rest."""

    def register_controllers(
        self, informers: Informers, reconcilers: Iterable[Reconciler[Any]]
    ) -> None:
        self._informers = informers
        self._reconcilers = {each.name: each for each in reconcilers if each.name in KEYS}

    def register_conductor(self, conductor: Conductor) -> None:
        self._jobs = conductor._wlm
        self._jobs._handle = _Told(self._jobs._handle)
        self._reconcilers[conductor.reconciler.name] = conductor.reconciler

    def client(self, client: Client) -> Client:
        return _Noted(client)

    async def run(self) -> None:
        """Look again and again until cancelled, less and less often."""
        delay = 0.03
        while True:
            await asyncio.sleep(delay)
            delay = min(delay * 1.1, 600.0)
            await self._look()

    async def _look(self) -> None:
        for reconciler in self._reconcilers.values():
            for key in self._keys(reconciler.name):
                if not all(map(_rests, self._reconcilers.values())):
                    return
                # One that is put off is not forgotten.
                if key not in reconciler._queue._timers:
                    await self._reconciled(reconciler, key)

    async def _reconciled(self, reconciler: Reconciler[Any], key: Hashable) -> None:
        done: list[str] = []
        token = _DONE.set(done)
        try:
            await reconciler._reconcile(key)
        finally:
            _DONE.reset(token)
        self.looks += 1
        if done:
            self._wrong.append(f"at rest, {reconciler.name} had to {', '.join(done)} for {key}")

    def _keys(self, name: str) -> list[Hashable]:
        assert self._informers is not None
        if name not in KEYS:
            return list(self._jobs.job_ids())
        found = (self._informers.of(kind).all() for kind in KEYS[name])
        return list(dict.fromkeys(key_of(obj) for objects in found for obj in objects))


def _rests(reconciler: Reconciler[Any]) -> bool:
    load = reconciler.load()
    return not (load.depth or load.working)


def _note(what: str) -> None:
    done = _DONE.get()
    if done is not None:
        done.append(what)


class _Told:
    """The instance, as the conductor tells it things."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.stream = handle.stream

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        if topic not in LOOKS:
            _note(topic)
        return await self._handle.rpc(topic, payload)


class _Noted:
    """A client of which writes at rest are noted."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.get = client.get
        self.list = client.list
        self.watch = client.watch

    async def create(self, kind: Kind, obj: Object) -> Object:
        _note(f"create {kind.name}")
        return await self._client.create(kind, obj)

    async def patch(self, change: Change) -> Object:
        _note(f"patch {change.kind.name}")
        return await self._client.patch(change)

    async def delete(self, remove: Remove) -> None:
        _note(f"delete {remove.kind.name}")
        await self._client.delete(remove)
