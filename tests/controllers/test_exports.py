"""One rabbit: which nodes reach its volumes over a network, and until when."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, informed, running
from tests.dws.builders import meta
from warren.base.objects import Key
from warren.controllers.exports import ExportReconciler
from warren.dws import kinds
from warren.dws.node import NodeTrouble

KEY = Key("r0", "s")
SECOND = Key("r0", "t")
SHARE = kinds.NNF_NODE_STORAGE
BLOCK = kinds.NNF_NODE_BLOCK_STORAGE


class Offered:
    """What a rabbit offers: to each volume's nodes."""

    def __init__(self) -> None:
        self.volumes: dict[str, set[str]] = {"of nobody": {"n9"}}
        self.trouble: NodeTrouble | None = None

    async def export(self, volume: str, nodes: Collection[str]) -> None:
        if self.trouble is not None:
            raise self.trouble
        if nodes:
            self.volumes[volume] = set(nodes)
        else:
            self.volumes.pop(volume, None)

    async def withdraw_others(self, volumes: Collection[str]) -> None:
        self.volumes = {name: each for name, each in self.volumes.items() if name in volumes}


Story = Callable[[Api, Offered, ExportReconciler], Awaitable[None]]


def with_rabbit(story: Story) -> None:
    async def main(api: Api) -> None:
        offered = Offered()
        await story(api, offered, ExportReconciler(api.informers, offered))

    alone(main)


def share(**metadata: Any) -> dict[str, Any]:
    spec = {"count": 2, "capacity": 10, "fileSystemType": "xfs", "userID": 1, "groupID": 2}
    return {"metadata": meta("s", "r0", **metadata), "spec": spec}


def flash(*access: list[str], shared: bool = False, **metadata: Any) -> dict[str, Any]:
    allocations = [{"capacity": 10, "access": each} for each in access]
    spec = {"sharedAllocation": shared, "allocations": allocations}
    return {"metadata": meta("s", "r0", **metadata), "spec": spec}


def test_each_volume_is_offered_to_its_nodes_while_these_have_access() -> None:
    async def story(api: Api, offered: Offered, rabbit: ExportReconciler) -> None:
        uid = (await api.add(SHARE, share()))["metadata"]["uid"]
        await api.add(BLOCK, flash(["r0"], ["r0"]))
        async with running(api, rabbit.reconciler.run()):
            assert offered.volumes == {}
            spec = flash(["r0", "n0"], ["r0", "n1"])["spec"]
            await api.change(BLOCK, KEY, {"spec": spec})
            assert offered.volumes == {f"{uid}-0": {"n0"}, f"{uid}-1": {"n1"}}
            spec = flash(["r0"], ["r0", "n1"])["spec"]
            await api.change(BLOCK, KEY, {"spec": spec})
            assert offered.volumes == {f"{uid}-1": {"n1"}}

    with_rabbit(story)


def test_volumes_that_share_an_allocation_have_the_same_nodes() -> None:
    async def story(api: Api, offered: Offered, rabbit: ExportReconciler) -> None:
        uid = (await api.add(SHARE, share()))["metadata"]["uid"]
        await api.add(BLOCK, flash(["r0", "n0", "n1"], shared=True))
        async with running(api, rabbit.reconciler.run()):
            nodes = {"n0", "n1"}
            assert offered.volumes == {f"{uid}-0": nodes, f"{uid}-1": nodes}

    with_rabbit(story)


def test_an_agent_that_starts_withdraws_what_belongs_to_no_object() -> None:
    async def story(api: Api, offered: Offered, rabbit: ExportReconciler) -> None:
        uid = (await api.add(SHARE, share()))["metadata"]["uid"]
        offered.volumes[f"{uid}-0"] = {"n0"}
        await api.add(BLOCK, flash(["r0", "n0"], ["r0"]))
        async with running(api, rabbit.reconciler.run()):
            assert offered.volumes == {f"{uid}-0": {"n0"}}

    with_rabbit(story)


@pytest.mark.parametrize("kind", [SHARE, BLOCK])
@pytest.mark.parametrize("finalizers", [[], ["mine"]])
def test_nothing_is_offered_of_storage_that_goes_or_has_gone(
    kind: Any, finalizers: list[str]
) -> None:
    async def story(api: Api, offered: Offered, rabbit: ExportReconciler) -> None:
        await api.add(SHARE, share(finalizers=finalizers))
        await api.add(BLOCK, flash(["r0", "n0"], ["r0", "n0"], finalizers=finalizers))
        async with running(api, rabbit.reconciler.run()):
            assert len(offered.volumes) == 2
            await api.remove(kind, KEY)
            assert offered.volumes == {}

    with_rabbit(story)


def test_storage_in_trouble_stays_with_its_nodes() -> None:
    async def story(api: Api, offered: Offered, rabbit: ExportReconciler) -> None:
        await api.add(SHARE, {**share(), "status": {"ready": False, "health": "Degraded"}})
        await api.add(BLOCK, flash(["r0", "n0"], ["r0"]))
        async with running(api, rabbit.reconciler.run()):
            assert list(offered.volumes.values()) == [{"n0"}]

    with_rabbit(story)


def test_trouble_is_tried_again() -> None:
    async def story(api: Api, offered: Offered, rabbit: ExportReconciler) -> None:
        await api.add(SHARE, share())
        await api.add(BLOCK, flash(["r0", "n0"], ["r0"]))
        offered.trouble = NodeTrouble("nvmet: not there")
        async with informed(api):
            with pytest.raises(NodeTrouble):
                await rabbit.reconcile(KEY)
        offered.trouble = None
        async with running(api, rabbit.reconciler.run()):
            await asyncio.sleep(0)
            assert len(offered.volumes) == 1

    with_rabbit(story)


class OneAtATime(Offered):
    """A rabbit that takes its time, and counts what is asked of it meanwhile."""

    at_a_time = 0
    most = 0

    async def export(self, volume: str, nodes: Collection[str]) -> None:
        self.at_a_time += 1
        self.most = max(self.most, self.at_a_time)
        await asyncio.sleep(1)
        await super().export(volume, nodes)
        self.at_a_time -= 1


def test_what_is_offered_is_offered_one_after_the_other() -> None:
    """What was not seen when a share went would be withdrawn otherwise."""

    async def main(api: Api) -> None:
        offered = OneAtATime()
        rabbit = ExportReconciler(api.informers, offered)
        for key in (KEY, SECOND):
            one, block = share(), flash(["r0", "n0"], ["r0"])
            for kind, each in ((SHARE, one), (BLOCK, block)):
                await api.add(kind, {**each, "metadata": {**each["metadata"], "name": key.name}})
        async with running(api, rabbit.reconciler.run()):
            await asyncio.sleep(10)
        assert len(offered.volumes) == 2
        assert offered.most == 1

    alone(main)


def test_what_others_offer_stays_when_a_share_goes() -> None:
    async def story(api: Api, offered: Offered, rabbit: ExportReconciler) -> None:
        async with running(api, rabbit.reconciler.run()):
            for key, node in ((KEY, "n0"), (SECOND, "n1")):
                named = {"name": key.name}
                one = share()
                await api.add(SHARE, {**one, "metadata": {**one["metadata"], **named}})
                block = flash(["r0", node], ["r0"])
                await api.add(BLOCK, {**block, "metadata": {**block["metadata"], **named}})
            assert sorted(map(sorted, offered.volumes.values())) == [["n0"], ["n1"]]
            await api.remove(BLOCK, KEY)
            await api.remove(SHARE, KEY)
            assert list(offered.volumes.values()) == [{"n1"}]

    with_rabbit(story)
