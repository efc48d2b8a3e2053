"""What an agent is made of: the reconcilers that run on one node."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from warren.base.clock import Clock
from warren.controllers import heartbeats
from warren.controllers.exports import ExportReconciler, Exports
from warren.controllers.machine import Machine
from warren.controllers.mounts import MountReconciler
from warren.controllers.movement import MovementReconciler
from warren.controllers.nodestorage import RabbitReconciler
from warren.controllers.pods import PodReconciler, Runner
from warren.controllers.registration import NodeRegistration
from warren.daemons.together import INDEXES, Part, System, synced
from warren.dws.pods import podstatus
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler
from warren.node import worktime


@dataclass(kw_only=True)
class Agent(System):
    """What runs on one node."""

    mount_again: Callable[[], None]
    """Is to be called when the node may have lost what was mounted on it."""
    informers: Informers
    reconcilers: Sequence[Reconciler[Any]]


def agent(
    client: Client,
    clock: Clock,
    node: str,
    machine: Machine,
    *,
    rabbit: bool,
    runner: Runner | None = None,
    exports: Exports | None = None,
    detach: Callable[[str, str], Awaitable[None]] | None = None,
) -> Agent:
    """Build the agent of one node, which watches that node's namespace and nothing else.

    But for pods, which are where Workflows are: with a `runner` it runs those of its node.
    Where volumes are reached over a network, a rabbit has `exports`, and a compute node `detach`.
    """
    informers = Informers(client, namespace=node, indexes=INDEXES)
    parts: dict[str, Part] = {f"{node} informers": informers.run}
    mounts = MountReconciler(client, informers, machine, detach, limit=worktime.SECONDS)
    reconcilers: list[Reconciler[Any]] = [mounts.reconciler]
    if rabbit:
        own = RabbitReconciler(client, informers, machine, node, limit=worktime.SECONDS)
        movements = MovementReconciler(client, informers, machine, clock)
        reconcilers += [own.reconciler, own.announcer, movements.reconciler]
        if exports is not None:
            reconcilers.append(
                ExportReconciler(informers, exports, limit=worktime.SECONDS).reconciler
            )
        parts[f"{node} copies"] = movements.copies.run
        if runner is not None:
            parts[f"{node} kubelet"] = partial(_kubelet, client, clock, node, runner)
        parts[f"{node} lease"] = lambda: heartbeats.renew(client, clock, node)
    for name, part in synced(informers, reconcilers).items():
        parts[f"{node} {name}"] = part
    return Agent(
        parts=parts,
        mount_again=mounts.mount_again,
        informers=informers,
        reconcilers=reconcilers,
    )


async def _kubelet(client: Client, clock: Clock, node: str, runner: Runner) -> None:
    """Run the pods of a node, as soon as that is possible."""
    nodes = Informers(client)
    registration = NodeRegistration(client, nodes, clock, node, runner.host_address, runner.unable)
    parts = {"informers": nodes.run, **synced(nodes, [registration.reconciler])}

    async def run_pods() -> None:
        await registration.able.wait()
        await _run_pods(client, clock, node, runner)

    await System(parts={**parts, "pods": run_pods}).run()


async def _run_pods(client: Client, clock: Clock, node: str, runner: Runner) -> None:
    informers = Informers(client, indexes={"subdomain": podstatus.subdomain_of})
    pods = PodReconciler(client, informers, runner, clock, node)
    parts = {"informers": informers.run, "followers": pods.run}
    await System(parts=parts | synced(informers, [pods.reconciler])).run()
