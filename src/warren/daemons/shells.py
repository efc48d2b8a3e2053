"""The parent of the shells of this machine, as a process: `python -m warren.daemons.shells`."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from warren.base.clock import SystemClock
from warren.daemons import logs
from warren.daemons import site as sites
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir, held
from warren.instance import config, munge
from warren.instance.munge import NotInstalled
from warren.instance.shell import imp, tmpdir
from warren.instance.shell.builtin import builtin
from warren.instance.shell.parent import Order, ShellParent
from warren.instance.shell.plugins import ShellPlugin
from warren.instance.shell.processes import die_with_parent
from warren.instance.shell.shell import Shell
from warren.instance.shell.signals import PASSED
from warren.instance.shell.tasks import ProcessSpawner
from warren.instance.shell.tmpdir import sweep
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus
from warren.rpc.client import Patient, connect
from warren.wlm.embedded.environment import DwsEnvironment


class NodeShell:
    """A shell's life on a node of this machine, in the process that was forked for it."""

    def __init__(self, state: StateDir, nodes: Nodes) -> None:
        self._state = state
        self._nodes = nodes
        self._owner = os.geteuid()
        self._parent = os.getpid()

    def prepare(self, order: Order) -> bytes | None:
        if order.userid == self._owner:
            self._nodes.enter(order.host)
            return None
        settings = config.load(self._state.config)
        if not settings.access.allow_guest_user:
            # It could not reach the instance, and would try for ever.
            raise imp.Refused("jobs of guests do not run: access.allow-guest-user is not set")
        sign = settings.sign
        credentials = munge.of_this_machine(sign.munge.socket_path)
        request = imp.proven(order.J, order.userid, credentials, now=time.time(), ttl=sign.max_ttl)
        user = imp.account(order.userid)
        if user is None:
            raise imp.Refused(f"there is no user {order.userid} on this machine")
        tmpdir.give(self._state.tmp, order.id, order.rank, user.userid, user.group)
        self._nodes.enter(order.host)
        imp.become(user)
        return request

    def live(self, order: Order, request: bytes | None) -> int:
        # Now, since a change of user would undo it.
        die_with_parent()
        if os.getppid() != self._parent:
            return 1
        storage = DwsEnvironment(lambda path: self._nodes.place(order.host, path))
        plugins = [*builtin(self._state.tmp), storage]
        return life(self._state.socket, plugins, order, request)

    def clean(self, order: Order) -> int | None:
        return tmpdir.remove(self._state.tmp, order.id, order.rank)


def life(socket: Path, plugins: Sequence[ShellPlugin], order: Order, request: bytes | None) -> int:
    """Live a shell's life, for the instance at a socket; give its exit code."""
    # Not asyncio.run: what it puts away goes with the process, which ends now.
    return asyncio.new_event_loop().run_until_complete(_lived(socket, plugins, order, request))


async def _lived(
    socket: Path, plugins: Sequence[ShellPlugin], order: Order, request: bytes | None
) -> int:
    serving = Bus(os.geteuid())
    patient = Patient(lambda: connect(socket, serving), serving)
    shell = Shell(
        handle=patient,
        spawner=ProcessSpawner(),
        clock=SystemClock(),
        plugins=plugins,
        job=JobId(order.id),
        rank=order.rank,
        uri=f"local://{socket}",
        request=request,
    )
    loop = asyncio.get_running_loop()
    ours = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGHUP)
    for signum in (*ours, *range(PASSED + 1, signal.NSIG)):
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
    with suppress(NotInstalled):
        munge.load()  # once, for all who are forked
    # Everybody may go to his own job's directory there, and nobody foresee another's.
    state.tmp.mkdir(exist_ok=True)
    state.tmp.chmod(0o711)
    try:
        with held(state.shells_lock):
            sweep(state.tmp)  # shells die with their parent, and we are the only one
            ShellParent(
                state.socket,
                f"FLUX_URI={state.uri}",
                NodeShell(state, nodes),
                str(state.path),
            ).run()
    except BlockingIOError:
        return 1
    return 0


if __name__ == "__main__":
    logs.configure()
    sys.exit(main(StateDir(Path(sys.argv[1])), isolated=sys.argv[2] == "isolated"))
