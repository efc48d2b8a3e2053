"""The agents of some emulated nodes of this machine, as one process.

`python -m warren.daemons.emulatedagents STATEDIR isolated|linked NODE...`
"""

import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from warren.base import log, userlimits
from warren.base.clock import SystemClock
from warren.controllers.localnode import LocalNode
from warren.controllers.mounts import WORKERS
from warren.daemons import clustershape, users
from warren.daemons.agentreconcilers import build_agent
from warren.daemons.child import run_child
from warren.daemons.nodes import Nodes
from warren.daemons.rungroup import RunGroup
from warren.daemons.statedir import StateDir
from warren.instance import config
from warren.kube import kubeconfig
from warren.kube.http import connect
from warren.node import holders, hostmounts, podmemory, threads
from warren.node.behaviour import parse as parse_behaviour
from warren.node.busy import GracePeriod
from warren.node.faulty import FaultyNode


async def main(state_dir: StateDir, node_names: list[str], *, isolated: bool) -> None:
    """Run the agents of these nodes until cancelled."""
    threads.set_thread_pool_size(WORKERS * len(node_names))
    shape = clustershape.load(state_dir.shape_file)
    assert shape is not None
    settings = config.load(state_dir.config_file)
    storage = settings.storage
    grace_period = GracePeriod(seconds=storage.busy_seconds, policy=storage.busy_policy)
    rabbits = {chassis.rabbit for chassis in shape.chassis()}
    memory = None
    if not rabbits.isdisjoint(node_names):
        limits = podmemory.Limits(*settings.containers.memory_limits(userlimits.total_memory()))
        memory = podmemory.find(str(state_dir.path), limits)
        if memory is None:
            log.warning("containers take any memory", reason=podmemory.NO_CONTROLLER)
    nodes = Nodes(state_dir, shape, isolated=isolated, grace_period=grace_period, pod_memory=memory)
    async with AsyncExitStack() as stack:
        run_group = RunGroup()
        behaviour = parse_behaviour(shape.faults)
        for name in node_names:
            real_node = nodes.local_node(name)
            simulated = shape.flash == "simulated"
            local_node: LocalNode = (
                FaultyNode(name, real_node, behaviour) if simulated else real_node
            )
            access = kubeconfig.load(state_dir.user_kubeconfig(users.node_user(name)))
            client = await stack.enter_async_context(connect(access, component="agent"))
            agent = build_agent(
                client,
                SystemClock(),
                name,
                local_node,
                is_rabbit=name in rabbits,
                runner=nodes.pods(name) if name in rabbits else None,
            )
            run_group.runnables.update(agent.runnables)
            if isolated:
                # Jobs that were about to start when the power went wait for their nodes, too.
                keep_holder_running = partial(
                    holders.keep_running, nodes.namespace(name), agent.mount_again
                )
                run_group.runnables[f"{name} holder"] = keep_holder_running
        if isolated:
            namespaces = [nodes.namespace(name) for name in node_names]
            run_group.runnables["host mounts"] = partial(hostmounts.follow_unmounts, namespaces)
        await run_group.run()


if __name__ == "__main__":
    run_child(main(StateDir(Path(sys.argv[1])), sys.argv[3:], isolated=sys.argv[2] == "isolated"))
