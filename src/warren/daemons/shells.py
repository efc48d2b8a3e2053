"""The parent of the shells of this machine, as a process: `python -m warren.daemons.shells`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from warren.base.clock import SystemClock
from warren.daemons import logs
from warren.daemons import site as sites
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir, held
from warren.instance.shell.parent import ShellParent
from warren.instance.shell.shell import Shell
from warren.instance.shell.tasks import ProcessSpawner, die_with_parent
from warren.rfc.fluid import JobId
from warren.rpc.client import Patient, connect
from warren.wlm.embedded.environment import DwsEnvironment


def be_shell(state: StateDir, nodes: Nodes, job: int, rank: int, host: str) -> int:
    """Live a shell's life in this process, which was just forked for it."""
    parent = os.getppid()
    nodes.enter(host)
    die_with_parent()
    if os.getppid() != parent:
        return 1
    return asyncio.run(_shell(state, nodes, job, rank, host))


async def _shell(state: StateDir, nodes: Nodes, job: int, rank: int, host: str) -> int:
    patient = Patient(lambda: connect(state.socket))
    shell = Shell(
        handle=patient,
        spawner=ProcessSpawner(),
        clock=SystemClock(),
        plugins=[DwsEnvironment(lambda path: nodes.place(host, path))],
        job=JobId(job),
        rank=rank,
        uri=state.uri,
    )
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGHUP):
        loop.add_signal_handler(signum, shell.deliver, signum)
    async with asyncio.TaskGroup() as tasks:
        connected = tasks.create_task(patient.run())
        code = await shell.run()
        connected.cancel()
    return code


def main(state: StateDir, *, isolated: bool) -> int:
    """Be the parent until SIGTERM, unless there is one already."""
    site = sites.load(state.site)
    assert site is not None
    nodes = Nodes(state, site, isolated=isolated)
    try:
        with held(state.shells_lock):
            ShellParent(
                state.socket,
                f"FLUX_URI={state.uri}",
                lambda job, rank, host: be_shell(state, nodes, job, rank, host),
            ).run()
    except BlockingIOError:
        return 1
    return 0


if __name__ == "__main__":
    logs.configure()
    sys.exit(main(StateDir(Path(sys.argv[1])), isolated=sys.argv[2] == "isolated"))
