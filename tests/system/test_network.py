"""Storage that nodes reach over a network: what is offered to whom during a job's life."""

import asyncio
from collections.abc import Collection

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, GLOBAL, opened
from warren.controllers.exports import ExportReconciler
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.daemons.rungroup import RunGroup, Runnable, runnables_after_sync
from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import NodeTrouble
from warren.dws.persistent.sharing import Sharing
from warren.kube.informer import Informers
from warren.kube.server.local import LocalClient
from warren.lifecycle.states import Result
from warren.node.simulated import SimulatedNode

DW = {"dw": "\n".join(DIRECTIVES)}


class Network:
    """What rabbits offer, what nodes have mounted, and which of them lost it before they had
    unmounted it."""

    def __init__(self) -> None:
        self.offers: dict[str, dict[str, set[str]]] = {}
        self.mounted: dict[str, str] = {}
        self.most = 0
        self.cut_off: list[str] = []

    def demand(self, node: str, rabbit: str, volume: str) -> None:
        if node not in self.offers.get(rabbit, {}).get(volume, ()):
            raise NodeTrouble(f"{rabbit}/{volume} cannot be reached")


class Rabbit:
    """What one rabbit offers."""

    def __init__(self, network: Network, name: str) -> None:
        self._network = network
        self._own = network.offers.setdefault(name, {})

    async def export(self, volume: str, nodes: Collection[str]) -> None:
        self._forget(volume, nodes)
        if nodes:
            self._own[volume] = set(nodes)
        self._network.most = max(self._network.most, len(self._own))

    async def withdraw_others(self, volumes: Collection[str]) -> None:
        for volume in set(self._own) - set(volumes):
            self._forget(volume, ())

    def _forget(self, volume: str, nodes: Collection[str]) -> None:
        for node in self._own.pop(volume, set()) - set(nodes):
            if self._network.mounted.get(node) == volume:
                self._network.cut_off.append(node)


class Node(SimulatedNode):
    """A compute node that mounts what it is offered."""

    network: Network
    own: str

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        self.network.demand(self.own, rabbit, name)
        await super().mount(rabbit, name, file_system, path, shared, profile)
        self.network.mounted[self.own] = name

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        await super().unmount(path, userid, profile)
        self.network.mounted.pop(self.own, None)


def test_volumes_are_offered_to_a_jobs_nodes_while_these_have_them_mounted() -> None:
    async def main() -> None:
        network = Network()
        shape = ClusterShape(rabbits=2, global_file_systems=(GLOBAL,))
        rabbits = {chassis.rabbit for chassis in shape.chassis()}
        async with opened(shape) as world:

            def machine(node: str, rabbit: str) -> SimulatedNode:
                if node in rabbits:
                    return SimulatedNode(node, world.flash[rabbit])
                made = Node(node, world.flash[rabbit])
                made.network, made.own = network, node
                return made

            world.machine = machine

            async def life(control: Control) -> None:
                runnables: dict[str, Runnable] = {}
                for rabbit in sorted(rabbits):
                    informers = Informers(LocalClient(control.api.store), namespace=rabbit)
                    exports = ExportReconciler(informers, Rabbit(network, rabbit))
                    own = {
                        "informers": informers.run,
                        **runnables_after_sync(informers, [exports.reconciler]),
                    }
                    runnables |= {f"{rabbit} {name}": part for name, part in own.items()}
                running = asyncio.ensure_future(RunGroup(runnables=runnables).run())
                job = await world.submit(control, attributes=DW, nodes=6)
                ended = await world.ended(control, job)
                assert ended.job.result is Result.COMPLETED
                await world.assert_nothing_left(control)
                running.cancel()
                await asyncio.wait({running})

            async with asyncio.timeout(3600):  # of virtual time
                await world.live(life)
        assert network.most > 0
        assert network.offers == {rabbit: {} for rabbit in rabbits}
        assert network.cut_off == []
        assert world.without_storage == []

    virtual.run(main())
