"""What an agent is made of: the reconcilers that run on one node."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warren.base.clock import Clock
from warren.controllers import heartbeats
from warren.controllers.machine import Machine
from warren.controllers.mounts import MountReconciler
from warren.controllers.movement import MovementReconciler
from warren.controllers.nodestorage import RabbitReconciler
from warren.controllers.pods import PodReconciler, Runner
from warren.controllers.registration import register
from warren.daemons.together import INDEXES, Part, System, synced
from warren.dws import podstatus
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler


@dataclass(kw_only=True)
class Agent(System):
    """What runs on one node."""

    mount_again: Callable[[], None]
    """Is to be called when the node may have lost what was mounted on it."""


@dataclass(frozen=True, kw_only=True)
class Kubelet:
    """What a rabbit runs pods with."""

    runner: Runner
    why_not: str = ""
    """Why it runs none, if it does not."""


def agent(
    client: Client,
    clock: Clock,
    node: str,
    machine: Machine,
    *,
    rabbit: bool,
    kubelet: Kubelet | None = None,
) -> Agent:
    """Build the agent of one node, which watches that node's namespace and nothing else.

    But for pods, which are where Workflows are: with a `kubelet` it runs those of its node.
    """
    informers = Informers(client, namespace=node, indexes=INDEXES)
    parts: dict[str, Part] = {f"{node} informers": informers.run}
    mounts = MountReconciler(client, informers, machine)
    reconcilers: list[Reconciler[Any]] = [mounts.reconciler]
    if rabbit:
        own = RabbitReconciler(client, informers, machine, node)
        movements = MovementReconciler(client, informers, machine, clock)
        reconcilers += [own.reconciler, own.announcer, movements.reconciler]
        parts[f"{node} copies"] = movements.copies.run
        if kubelet is not None:
            parts |= _kubelet(client, clock, node, kubelet)
        parts[f"{node} lease"] = lambda: heartbeats.renew(client, clock, node)
    for name, part in synced(informers, reconcilers).items():
        parts[f"{node} {name}"] = part
    return Agent(parts=parts, mount_again=mounts.mount_again)


def _kubelet(client: Client, clock: Clock, node: str, kubelet: Kubelet) -> dict[str, Part]:
    address, why_not = kubelet.runner.host_address, kubelet.why_not
    parts: dict[str, Part] = {
        f"{node} registration": lambda: register(client, clock, node, address, why_not)
    }
    if not why_not:
        informers = Informers(client, indexes={"subdomain": podstatus.subdomain_of})
        pods = PodReconciler(client, informers, kubelet.runner, clock, node)
        parts[f"{node} pod informers"] = informers.run
        parts[f"{node} pod followers"] = pods.run
        for name, part in synced(informers, [pods.reconciler]).items():
            parts[f"{node} {name}"] = part
    return parts
