"""A pod as a process: it has the pod's namespaces, runs its containers and tells how they are.

Run as a program, with a directory that holds `plan.json` (`warren.dws.pods.plans`) and
`machine.json` (`warren.node.pods`). It imports little else of Warren, and begins in 50 ms:

1. It takes the volumes out of its rabbit's mount namespace (open_tree(2)), and listens on the
   ports of its node.
2. It leaves for namespaces of its own: mounts, of which none reaches others, processes, of which
   it is the first, and network, with an end on the bridge of all pods. An ordinary user does that
   in the user namespace that has the bridge.
3. Its containers run by bubblewrap(1) as their user, in a user namespace with that one user and no
   capabilities, each on an overlay of its image whose upper layer is in memory and bounded.
4. `state.json` says how they are. Those who connect to `socket` are sent a newline when that
   changes, and told that all is over by the end of the connection: what has ended leaves nothing
   but the directory.

With this process die its containers, and with them its namespaces and all that is mounted. What
their user does to them, in a container or from the machine, changes nothing of that.
"""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

from warren.base.tcpusers import open_netlink
from warren.node.podprocess.kernel import PodTrouble
from warren.node.podprocess.ownnamespaces import (
    become_init,
    clone_mounts,
    enter_own_namespaces,
    take_lock,
)
from warren.node.podprocess.pod import Pod, write_state
from warren.node.podprocess.podfiles import mount_volumes
from warren.node.podprocess.podlink import connect_bridge
from warren.node.podprocess.podports import forward, listen


def _report_started() -> None:
    """Close standard output, for the end of which an agent waits: the pod has begun."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), sys.stdout.fileno())


async def _run_pod(
    pod: Pod,
    listener: socket.socket,
    listeners: list[tuple[socket.socket, int]],
    netlink: socket.socket,
) -> None:
    address = pod.plan["address"].partition("/")[0]
    await forward(listeners, address, netlink)
    await asyncio.start_unix_server(pod.follow, sock=listener)
    # An agent that knows of a pod may stop it: the pod has to understand that before it tells, and
    # the first process of a namespace is not ended by a signal that it does not understand.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, pod.stop)
    pod.publish_state()
    await pod.wait_state_written()
    _report_started()
    await pod.run()
    await pod.wait_state_written()


def main(directory: str) -> None:
    """Run the pod of a directory to its end, in the process that calls this."""
    try:
        lock_fd = take_lock(directory)
    except BlockingIOError:
        return  # an agent that did not see another begin has begun this one: it was slow
    if os.path.exists(f"{directory}/state.json"):
        return  # the other one has even ended
    with open(f"{directory}/plan.json", "rb") as file:
        plan = json.load(file)
    with open(f"{directory}/machine.json", "rb") as file:
        plan |= json.load(file)
    listener = socket.socket(socket.AF_UNIX)
    # Its own path may be longer than a socket's.
    directory_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    if os.path.lexists(f"{directory}/socket"):
        os.unlink(f"{directory}/socket")  # of one that was killed before it began
    listener.bind(f"/proc/self/fd/{directory_fd}/socket")
    listener.listen()
    is_root = os.geteuid() == 0
    try:
        paths = [each["path"] for each in plan["volumes"].values() if "path" in each]
        mount_fds = clone_mounts(plan["rabbit"], paths)
        listeners = listen(plan["ports"])
        netlink = open_netlink()  # of the node's network, as the ports are
        enter_own_namespaces(plan["network"])
        connect_bridge(plan["network"], plan["address"])
        become_init(directory, lock_fd)
        mount_volumes(plan, mount_fds)
    except (PodTrouble, OSError, subprocess.SubprocessError) as error:
        failed_state = {
            "init": [{"name": each["name"]} for each in plan["init"]],
            "containers": [{"name": each["name"]} for each in plan["containers"]],
            "stopped": False,
            "error": str(error),
        }
        write_state(directory, failed_state)
        return
    asyncio.run(_run_pod(Pod(directory, plan, is_root=is_root), listener, listeners, netlink))
