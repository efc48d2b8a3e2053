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
from warren.daemons.together import INDEXES, Part, System, synced
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler


@dataclass(kw_only=True)
class Agent(System):
    """What runs on one node."""

    mount_again: Callable[[], None]
    """Is to be called when the node may have lost what was mounted on it."""


def agent(client: Client, clock: Clock, node: str, machine: Machine, *, rabbit: bool) -> Agent:
    """Build the agent of one node, which watches that node's namespace and nothing else."""
    informers = Informers(client, namespace=node, indexes=INDEXES)
    parts: dict[str, Part] = {f"{node} informers": informers.run}
    mounts = MountReconciler(client, informers, machine)
    reconcilers: list[Reconciler[Any]] = [mounts.reconciler]
    if rabbit:
        own = RabbitReconciler(client, informers, machine, node)
        movements = MovementReconciler(client, informers, machine, clock)
        reconcilers += [own.reconciler, own.announcer, movements.reconciler]
        parts[f"{node} copies"] = movements.copies.run
        parts[f"{node} lease"] = lambda: heartbeats.renew(client, clock, node)
    for name, part in synced(informers, reconcilers).items():
        parts[f"{node} {name}"] = part
    return Agent(parts=parts, mount_again=mounts.mount_again)
