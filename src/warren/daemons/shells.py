"""The parent of the shells of this machine, as a process: `python -m warren.daemons.shells`."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import msgspec

from warren.base import userlimits
from warren.base.clock import SystemClock
from warren.base.processes import die_with_parent
from warren.daemons import clustershape, logs, rundir
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir, hold_lock, write_lock_holder
from warren.instance import config
from warren.instance.shell import imp, tmpdir
from warren.instance.shell.affinity import NodeCores
from warren.instance.shell.builtin import builtin
from warren.instance.shell.emulated import UserNamespaceSettings
from warren.instance.shell.parent import DetachLeft, ShellParent, StartRequest
from warren.instance.shell.plugins import ShellPlugin
from warren.instance.shell.shell import Shell
from warren.instance.shell.signals import TASK_SIGNALS
from warren.instance.shell.subreaper import run_under_subreaper
from warren.instance.shell.tasks import ProcessSpawner
from warren.rfc.fluid import JobId
from warren.rpc import munge
from warren.rpc.bus import Bus
from warren.rpc.client import ReconnectingHandle, connect
from warren.rpc.munge import NotInstalled
from warren.wlm.embedded.environment import DwsEnvironment


class NodeShellLife:
    """A shell's life on a node of this machine, in the process that was forked for it."""

    def __init__(
        self, state_dir: StateDir, nodes: Nodes, cores: int, rundir: Path, tmpdir_limit: int
    ) -> None:
        """`cores` is how many each node has, whatever the machine that they share has.

        `tmpdir_limit` is how many bytes a job's directory in `rundir` has, where root bounds them.
        """
        self._state_dir = state_dir
        self._rundir = rundir
        self._tmpdir_limit = tmpdir_limit
        self._nodes = nodes
        self._cores = NodeCores(ids=range(cores), emulated=True)
        self._owner = os.geteuid()
        self._parent = os.getpid()

    def prepare(self, start: StartRequest) -> bytes | None:
        if start.userid == self._owner:
            if self._owner == 0:
                self._give_directory(start, self._owner, os.getegid())
            self._nodes.enter(start.host)
            userlimits.raise_oom_score()
            return None
        settings = config.load(self._state_dir.config_file)
        if not settings.access.allow_guest_user:
            # It could not reach the instance, and would try for ever.
            raise imp.IdentityRefused(
                "jobs of guests do not run: access.allow-guest-user is not set"
            )
        sign = settings.sign
        credentials = munge.system_munge(sign.munge.socket_path)
        proven_payload = imp.proven_payload(
            start.J, start.userid, credentials, now=time.time(), ttl=sign.max_ttl
        )
        user = imp.account(start.userid)
        if user is None:
            raise imp.IdentityRefused(f"there is no user {start.userid} on this machine")
        self._give_directory(start, user.userid, user.gid)
        self._nodes.enter(start.host)
        imp.become(user)
        return proven_payload

    def _give_directory(self, start: StartRequest, userid: int, groupid: int) -> None:
        tmpdir.make_for_user(
            self._rundir, start.id, start.rank, userid, groupid, self._tmpdir_limit
        )

    def run_shell(self, start: StartRequest, proven_payload: bytes | None) -> int:
        # Now, since a change of user would undo it.
        die_with_parent()
        if os.getppid() != self._parent:
            return 1
        plugins = [
            *builtin(self._rundir, self._cores),
            DwsEnvironment(_NodePaths(self._nodes, start.host)),
        ]
        if self._nodes.in_user_namespaces:
            plugins.append(UserNamespaceSettings())
        return run_shell(self._state_dir.socket, plugins, start, proven_payload)

    def clean(self, start: StartRequest) -> int | None:
        return tmpdir.remove(self._rundir, start.id, start.rank)

    def left_mounts(self, host: str) -> DetachLeft | None:
        return self._nodes.left_mounts(host)


class _NodePaths(msgspec.Struct, frozen=True):
    """A `ShellNode` of `wlm.embedded.environment`: the paths of an emulated node."""

    nodes: Nodes
    name: str

    def local_path(self, path: str) -> str:
        return self.nodes.path_on_node(self.name, path)

    def is_mounted(self, path: str) -> bool:
        return self.nodes.has_storage(self.name, path)


def run_shell(
    socket: Path, plugins: Sequence[ShellPlugin], start: StartRequest, proven_payload: bytes | None
) -> int:
    """Run a shell to its end, for the instance at a socket; return its exit code."""
    # Not asyncio.run: what it puts away goes with the process, which ends now.
    return asyncio.new_event_loop().run_until_complete(
        _run_shell(socket, plugins, start, proven_payload)
    )


async def _run_shell(
    socket: Path, plugins: Sequence[ShellPlugin], start: StartRequest, proven_payload: bytes | None
) -> int:
    bus = Bus(os.geteuid())
    handle = ReconnectingHandle(lambda: connect(socket, bus), bus)
    shell = Shell(
        handle=handle,
        spawner=ProcessSpawner(),
        clock=SystemClock(),
        plugins=plugins,
        job=JobId(start.id),
        rank=start.rank,
        uri=f"local://{socket}",
        proven_payload=proven_payload,
    )
    loop = asyncio.get_running_loop()
    own_signals = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGUSR1, signal.SIGHUP)
    for signum in (*own_signals, *TASK_SIGNALS):
        loop.add_signal_handler(signum, shell.deliver, signum)
    signal.pthread_sigmask(
        signal.SIG_UNBLOCK, TASK_SIGNALS
    )  # before there are tasks, which inherit it
    async with asyncio.TaskGroup() as tasks:
        connecting = tasks.create_task(handle.run())
        code = await shell.run()
        connecting.cancel()
    return code


def main(state_dir: StateDir, *, isolated: bool) -> int:
    """Run the parent until SIGTERM, unless there is one already."""
    shape = clustershape.load(state_dir.shape_file)
    assert shape is not None
    nodes = Nodes(state_dir, shape, isolated=isolated)
    with suppress(NotInstalled):
        munge.load()  # once, for all who are forked
    # What is configured later holds for another parent: running jobs have theirs where they are.
    settings = config.load(state_dir.config_file)
    jobs_directory = rundir.directory(state_dir, settings)
    log_file = state_dir.logs / "shells.log"
    rotating_output = cast(TextIO, logs.RotatingStandardError(log_file, sys.stderr))
    sys.stderr = logs.ignore_write_errors(rotating_output)
    logs.configure(sys.stderr)
    try:
        with hold_lock(state_dir.shells_lock) as lock_descriptor:

            def run_parent() -> int:
                write_lock_holder(lock_descriptor)
                # Shells die with their parent, and we are the only one.
                tmpdir.sweep(jobs_directory)
                life = NodeShellLife(
                    state_dir, nodes, shape.cores, jobs_directory, settings.exec.tmpdir_limit
                )
                ShellParent(state_dir.socket, life, str(state_dir.path)).run()
                return 0

            # There is no other parent before what this one leaves is gone.
            return run_under_subreaper(
                run_parent, on_child_exit=lambda: write_lock_holder(lock_descriptor)
            )
    except BlockingIOError:
        return 1


if __name__ == "__main__":
    sys.exit(main(StateDir(Path(sys.argv[1])), isolated=sys.argv[2] == "isolated"))
