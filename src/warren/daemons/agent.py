"""The agents of some nodes of this machine, as one process: `python -m warren.daemons.agent`."""

import sys
from contextlib import AsyncExitStack
from pathlib import Path

from warren.base.clock import SystemClock
from warren.daemons import site as sites
from warren.daemons import users
from warren.daemons.agents import agent
from warren.daemons.child import be
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir
from warren.daemons.system import System
from warren.kube import kubeconfig
from warren.kube.http import connect


async def main(state: StateDir, names: list[str], *, isolated: bool) -> None:
    """Be the agents of these nodes until cancelled."""
    site = sites.load(state.site)
    assert site is not None
    nodes = Nodes(state, site, isolated=isolated)
    rabbits = {chassis.rabbit for chassis in site.chassis()}
    async with AsyncExitStack() as stack:
        together = System()
        for name in names:
            access = kubeconfig.load(state.user(users.node_user(name)))
            client = await stack.enter_async_context(connect(access, component="agent"))
            one = agent(client, SystemClock(), name, nodes.machine(name), rabbit=name in rabbits)
            together.parts.update(one.parts)
        await together.run()


if __name__ == "__main__":
    be(main(StateDir(Path(sys.argv[1])), sys.argv[3:], isolated=sys.argv[2] == "isolated"))
