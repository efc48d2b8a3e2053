"""The namespaces that a pod leaves for, what it takes with it, and the lock that says it lives."""

import fcntl
import os
import socket

from warren.node.podprocess.kernel import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    PodTrouble,
    check_call,
    clone_mount,
    join_namespace,
    libc,
    mount,
)

_REASON_BYTES = 2000
"""Bytes of the reason why volumes cannot be had."""


def clone_mounts(rabbit_pid: int | None, paths: list[str]) -> list[int]:
    """Return descriptors of clones of a rabbit's mounts, by a child that enters its namespace.

    The process `rabbit_pid` holds that namespace; where it is None, this process is in it.
    """
    if not paths:
        return []
    parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        try:
            if rabbit_pid is not None:
                if os.geteuid() != 0:
                    join_namespace(rabbit_pid, "user", CLONE_NEWUSER)
                join_namespace(rabbit_pid, "mnt", CLONE_NEWNS)
            for path in paths:
                socket.send_fds(child_end, [b"."], [clone_mount(path)])
        except (PodTrouble, OSError) as error:
            child_end.send(str(error).encode()[:_REASON_BYTES])
        finally:
            os._exit(0)
    child_end.close()
    mount_fds: list[int] = []
    with parent_end:
        for _ in paths:
            message, received, _, _ = socket.recv_fds(parent_end, _REASON_BYTES, 1)
            if not received:
                raise PodTrouble(message.decode() or "the volumes cannot be had")
            mount_fds += received
    os.waitpid(child, 0)
    return mount_fds


def enter_own_namespaces(network_pid: int) -> None:
    """Leave for namespaces of our own, where ours is the power over them."""
    if os.geteuid() != 0:
        join_namespace(network_pid, "user", CLONE_NEWUSER)
    check_call(libc.unshare(CLONE_NEWNS | CLONE_NEWNET), "namespaces")
    mount("none", "/", "", MS_REC | MS_PRIVATE)


def become_init(directory: str, lock_fd: int) -> None:
    """Go on as process 1 of a new PID namespace, with which the kernel ends all others of it."""
    check_call(libc.unshare(CLONE_NEWPID), "a namespace of processes")
    reader, writer = os.pipe()
    if os.fork():
        os.close(lock_fd)  # before the end of the pipe says so
        os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
    os.close(lock_fd)
    try:
        take_lock(directory)
    except BlockingIOError:
        os._exit(0)  # one that was begun meanwhile is the pod
    # bubblewrap looks for its containers there.
    mount("proc", "/proc", "proc", MS_NODEV | MS_NOSUID | MS_NOEXEC)


def take_lock(directory: str) -> int:
    """Say that we live, by a lock: the process that holds it is the pod of this directory."""
    lock_fd = os.open(f"{directory}/lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.lockf(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock_fd
