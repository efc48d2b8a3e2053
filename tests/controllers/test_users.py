"""Users have their turns at the controllers: none waits for all that another one has."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, caught_up, informed
from tests.dws.builders import meta
from tests.dws.test_containers import BARE
from tests.kube.clusters import alongside
from warren.base.objects import Key, Kind
from warren.controllers.access import AccessController
from warren.controllers.breakdown import BreakdownController
from warren.controllers.shutdowns import ShutdownController
from warren.controllers.storage import StorageController
from warren.controllers.workflow import WorkflowController
from warren.dws import kinds
from warren.kube.runtime import Reconciler


def workflows(api: Api) -> Reconciler[Key]:
    return WorkflowController(api, api.informers, api.clock, "/mnt/nnf").reconciler


def breakdowns(api: Api) -> Reconciler[Key]:
    return BreakdownController(api, api.informers).reconciler


def storages(api: Api) -> Reconciler[Key]:
    return StorageController(api, api.informers, api.clock).reconciler


def accesses(api: Api) -> Reconciler[Key]:
    return AccessController(api, api.informers).reconciler


def shutdowns(api: Api) -> Reconciler[Key]:
    return ShutdownController(api, api.informers).reconciler


def waiting_for_containers(name: str, user: int) -> Any:
    """Return a Workflow whose containers are asked to end."""
    return {
        "metadata": meta(name),
        "spec": {"userID": user, "dwDirectives": [BARE]},
        "status": {"state": "PostRun", "ready": False},
    }


def plain(name: str, user: int) -> Any:
    return {"metadata": meta(name), "spec": {"userID": user}}


@pytest.mark.parametrize(
    ("controller", "made", "kind", "new"),
    [
        (WorkflowController, workflows, kinds.WORKFLOW, plain),
        (BreakdownController, breakdowns, kinds.BREAKDOWN, plain),
        (StorageController, storages, kinds.NNF_STORAGE, plain),
        (AccessController, accesses, kinds.NNF_ACCESS, plain),
        (ShutdownController, shutdowns, kinds.WORKFLOW, waiting_for_containers),
    ],
)
def test_what_many_objects_of_a_user_need_does_not_keep_another_user_waiting(
    controller: Any,
    made: Callable[[Api], Reconciler[Key]],
    kind: Kind,
    new: Callable[[str, int], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reconciled: list[str] = []

    async def reconcile(self: Any, key: Key) -> None:
        reconciled.append(key.name)

    monkeypatch.setattr(controller, "reconcile", reconcile)

    async def main(api: Api) -> None:
        reconciler = made(api)
        async with informed(api):
            owners = {f"many-{number}": 1001 for number in range(20)} | {"other": 1002}
            for name, user in owners.items():
                await api.add(kind, new(name, user))
            async with alongside(reconciler.run()):
                await caught_up()
        assert len(reconciled) == len(owners)
        assert reconciled.index("other") == 1

    alone(main)
