"""A pod's end on the bridge of all pods."""

import os
import socket
import subprocess
from contextlib import suppress

from warren.node.podprocess.kernel import PodTrouble


def connect_bridge(network_pid: int, address: str) -> None:
    """Connect this pod to the bridge, in the network namespace of the process `network_pid`.

    A pod that has ended and had the address before loses its own, which its user may have kept
    by a socket that a process elsewhere holds.
    """
    on_bridge = ["nsenter", f"--target={network_pid}", "--net", "ip", "link"]
    name = f"pod{socket.inet_aton(address.partition('/')[0]).hex()}"
    add = ["add", name, "up", "master", "pods", "type", "veth"]
    peer = ["peer", "name", "eth0", "netns", str(os.getpid())]
    try:
        _run([*on_bridge, *add, *peer])
    except PodTrouble:
        with suppress(PodTrouble):
            _run([*on_bridge, "delete", name])
        _run([*on_bridge, *add, *peer])
    commands = [f"addr add {address} dev eth0", "link set eth0 up", "link set lo up"]
    _run(["ip", "-batch", "-"], "\n".join(commands))
    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as file:
        file.write("0")


def _run(argv: list[str], text: str = "") -> None:
    result = subprocess.run(argv, input=text.encode(), capture_output=True, timeout=20)
    if result.returncode:
        message = (
            result.stderr.decode(errors="replace").strip() or f"exit status {result.returncode}"
        )
        raise PodTrouble(f"{argv[0]}: {message}")
