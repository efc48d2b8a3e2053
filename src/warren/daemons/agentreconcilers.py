"""What an agent is made of: the reconcilers that run on one node."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from warren.base.clock import Clock
from warren.controllers import heartbeats
from warren.controllers.exports import ExportReconciler, Exports
from warren.controllers.links import LinkReconciler, Probe
from warren.controllers.localnode import LocalNode
from warren.controllers.mgs import MgsReconciler
from warren.controllers.mounts import MountReconciler
from warren.controllers.movement import MovementReconciler
from warren.controllers.nodestorage import NodeStorageReconciler
from warren.controllers.pods import PodReconciler, PodRunner
from warren.controllers.registration import NodeRegistration
from warren.daemons.rungroup import INDEXES, RunGroup, Runnable, runnables_after_sync
from warren.dws.pods import podstatus
from warren.dws.rabbits import links
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler
from warren.node import worktime


class Agent(RunGroup, kw_only=True):
    """The agent of one node: what runs there together."""

    mount_again: Callable[[], None]
    """Mounts everything again: for a node that may have lost its mounts."""
    informers: Informers
    reconcilers: Sequence[Reconciler[Any]]


def build_agent(
    client: Client,
    clock: Clock,
    node: str,
    local_node: LocalNode,
    *,
    is_rabbit: bool,
    runner: PodRunner | None = None,
    exports: Exports | None = None,
    disconnect_volume: Callable[[str, str], Awaitable[None]] | None = None,
    probe: Probe | None = None,
    link_policy: links.LinkTestPolicy | None = None,
) -> Agent:
    """Build the agent of one node, which watches that node's namespace and nothing else.

    But for pods, which are where Workflows are: with a `runner` it runs those of its node.
    Where volumes are reached over a network, a rabbit has `exports`, and a compute node
    `disconnect_volume` and a `probe` of its rabbit, which it makes by the `link_policy`.
    """
    informers = Informers(client, namespace=node, indexes=INDEXES)
    runnables: dict[str, Runnable] = {f"{node} informers": informers.run}
    separate_reconcilers: list[Reconciler[Any]] = []
    link_reconciler = None
    if probe is not None:
        # With informers of its own: an older role does not let the agent list what these list, and
        # the others would never be synced.
        link_informers = Informers(client, namespace=node)
        policy = link_policy or links.LinkTestPolicy()
        link_reconciler = LinkReconciler(client, link_informers, clock, node, probe, policy)
        link_runnables = {
            "informers": link_informers.run,
            **runnables_after_sync(link_informers, [link_reconciler.reconciler]),
        }
        runnables[f"{node} link"] = RunGroup(runnables=link_runnables).run
        separate_reconcilers.append(link_reconciler.reconciler)
    mount_reconciler = MountReconciler(
        client,
        informers,
        local_node,
        disconnect_volume,
        on_rabbit=is_rabbit,
        on_failure=link_reconciler.test_now if link_reconciler is not None else lambda: None,
        timeout=worktime.RECONCILE_TIMEOUT,
    )
    reconcilers: list[Reconciler[Any]] = [mount_reconciler.reconciler]
    if is_rabbit:
        node_storage_reconciler = NodeStorageReconciler(
            client,
            informers,
            local_node,
            node,
            over_network=exports is not None,
            timeout=worktime.RECONCILE_TIMEOUT,
        )
        movement_reconciler = MovementReconciler(client, informers, local_node, clock)
        # With informers of its own, too, for the same reason.
        mgs_informers = Informers(client, namespace=node)
        mgs_reconciler = MgsReconciler(
            client, mgs_informers, local_node, timeout=worktime.RECONCILE_TIMEOUT
        )
        mgs_reconcilers: list[Reconciler[Any]] = [
            mgs_reconciler.reconciler,
            mgs_reconciler.command_reconciler,
        ]
        mgs_runnables = {
            "informers": mgs_informers.run,
            **runnables_after_sync(mgs_informers, mgs_reconcilers),
        }
        runnables[f"{node} mgs"] = RunGroup(runnables=mgs_runnables).run
        separate_reconcilers += mgs_reconcilers
        reconcilers += [
            node_storage_reconciler.reconciler,
            node_storage_reconciler.block_reconciler,
            node_storage_reconciler.nnf_node_reconciler,
            movement_reconciler.reconciler,
        ]
        if exports is not None:
            reconcilers.append(
                ExportReconciler(informers, exports, timeout=worktime.RECONCILE_TIMEOUT).reconciler
            )
        runnables[f"{node} copies"] = movement_reconciler.copies.run
        if runner is not None:
            runnables[f"{node} kubelet"] = partial(_kubelet, client, clock, node, runner)
        runnables[f"{node} lease"] = lambda: heartbeats.renew(client, clock, node)
    for name, runnable in runnables_after_sync(informers, reconcilers).items():
        runnables[f"{node} {name}"] = runnable
    return Agent(
        runnables=runnables,
        mount_again=mount_reconciler.mount_again,
        informers=informers,
        reconcilers=[*reconcilers, *separate_reconcilers],
    )


async def _kubelet(client: Client, clock: Clock, node: str, runner: PodRunner) -> None:
    """Run the pods of a node, as soon as that is possible."""
    node_informers = Informers(client)
    registration = NodeRegistration(
        client, node_informers, clock, node, runner.host_address, runner.why_unavailable
    )
    runnables = {
        "informers": node_informers.run,
        **runnables_after_sync(node_informers, [registration.reconciler]),
    }

    async def run_pods() -> None:
        await registration.can_run_pods.wait()
        await _run_pods(client, clock, node, runner)

    await RunGroup(runnables={**runnables, "pods": run_pods}).run()


async def _run_pods(client: Client, clock: Clock, node: str, runner: PodRunner) -> None:
    informers = Informers(client, indexes={"subdomain": podstatus.subdomain_of})
    pods = PodReconciler(client, informers, runner, clock, node)
    runnables = {"informers": informers.run, "followers": pods.run}
    await RunGroup(runnables=runnables | runnables_after_sync(informers, [pods.reconciler])).run()
