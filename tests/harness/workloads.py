"""A workload manager of another sort: Workflows made through the API, state by state.

It knows what it has done only as far as that stands in the API, so it goes on after a stop.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from tests.harness.world import World
from warren.base.objects import Change, Key, Remove
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.dws.objects.workflows import State
from warren.kube.client import AlreadyExists, Conflict, NotFound

_ORDER = list(State)


class Workloads:
    """Takes Workflows through their states."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._deleted: set[str] = set()
        """Workflows that it has asked to delete. Outlives every process."""
        self.env: dict[str, Mapping[str, str]] = {}
        """What each Workflow's job would find in its environment."""

    def status(self, control: Control, name: str) -> Mapping[str, Any]:
        """Return the status of a Workflow; empty if there is none."""
        try:
            found = control.api.store.get(kinds.WORKFLOW, _key(name))
        except NotFound:
            return {}
        return found.get("status") or {}

    async def make(
        self, control: Control, name: str, directives: str, *, userid: int = 1001
    ) -> None:
        """Make a Workflow, if it is not there or has been. Each line is a directive."""
        if name in self._deleted:
            return
        spec = {
            "desiredState": "Proposal",
            "dwDirectives": directives.splitlines(),
            "jobID": name,
            "userID": userid,
            "groupID": 1002,
            "wlmID": "kit",
        }
        try:
            made = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
            await control.api.store.create(kinds.WORKFLOW, made)
        except AlreadyExists:
            return

    async def reach(
        self, control: Control, name: str, state: State, nodes: Sequence[str] = ()
    ) -> Mapping[str, Any]:
        """Take a Workflow to a state, and return its status once it is ready there, or in Error."""
        while True:
            status = self.status(control, name)
            if name in self._deleted and not status:
                return status
            if status.get("status") == "Error" and status["state"] == state:
                return status
            if status.get("ready"):
                self.env[name] = status.get("env") or {}
                current = State(status["state"])
                if _ORDER.index(current) >= _ORDER.index(state):
                    return status
                await self._go_on(control, name, current, nodes)
            await asyncio.sleep(0.05)

    async def finish(self, control: Control, name: str, nodes: Sequence[str] = ()) -> None:
        """Take a Workflow through all of its states, and delete it."""
        await self.reach(control, name, State.TEARDOWN, nodes)
        await self.delete(control, name)

    async def delete(self, control: Control, name: str) -> None:
        """Delete a Workflow, and wait until it is gone."""
        self._deleted.add(name)
        try:
            await control.api.store.delete(Remove(kind=kinds.WORKFLOW, key=_key(name)))
        except NotFound:
            return
        await self._world.until(lambda: not self.status(control, name))

    async def _go_on(self, control: Control, name: str, state: State, nodes: Sequence[str]) -> None:
        store = control.api.store
        if state is State.PROPOSAL:
            for reference in self.status(control, name).get("directiveBreakdowns") or ():
                found = store.get(kinds.BREAKDOWN, Key("default", reference["name"]))["status"]
                if "storage" in found:
                    await self._fill(control, found["storage"], nodes)
            data = [{"name": node} for node in nodes]
            await store.patch(Change(kind=kinds.COMPUTES, key=_key(name), patch={"data": data}))
        following = _ORDER[_ORDER.index(state) + 1]
        await ask(control, name, following)

    async def _fill(
        self, control: Control, storage: Mapping[str, Any], nodes: Sequence[str]
    ) -> None:
        rabbits: dict[str, int] = {}
        for chassis in self._world.shape.chassis():
            own = [node for node in nodes if node in chassis.hosts]
            if own:
                rabbits[chassis.rabbit] = len(own)
        sets = [
            {
                "label": each["label"],
                "allocationSize": each["minimumCapacity"],
                "storage": [
                    {"name": rabbit, "allocationCount": count} for rabbit, count in rabbits.items()
                ],
            }
            for each in storage["allocationSets"]
        ]
        key = Key("default", storage["reference"]["name"])
        while True:
            try:
                patch = {"spec": {"allocationSets": sets}}
                await control.api.store.patch(Change(kind=kinds.SERVERS, key=key, patch=patch))
                return
            except NotFound:  # an instance makes its own, a little later
                await asyncio.sleep(0.05)


async def ask(control: Control, name: str, state: State) -> None:
    """Ask for a state."""
    patch = {"spec": {"desiredState": state}}
    try:
        await control.api.store.patch(Change(kind=kinds.WORKFLOW, key=_key(name), patch=patch))
    except Conflict:
        return


def _key(name: str) -> Key:
    return Key("default", name)
