"""Shells on nodes, some of which have lost their namespace."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.node.processes import eventually
from warren.daemons.clustershape import ClusterShape
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir
from warren.dws.node import NodeTrouble
from warren.node import namespaces
from warren.node.namespaces import mount_points

NODES = ("compute-00", "compute-01", "compute-02")


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    missing = asyncio.run(namespaces.why_unavailable())
    if missing is not None:
        pytest.skip(f"no mount namespaces: {missing}")
    made = Nodes(StateDir(tmp_path), ClusterShape(), isolated=True)
    yield made
    for node in NODES:
        made.namespace(node).end()


def test_a_node_that_was_never_mounted_on_has_the_machines_mounts_and_its_own_name(
    nodes: Nodes,
) -> None:
    before = os.readlink("/proc/self/ns/mnt")
    child = os.fork()
    if child == 0:
        nodes.enter("compute-00", seconds=0)
        right = (
            os.readlink("/proc/self/ns/mnt") == before
            and not nodes.has_storage("compute-00", str(nodes.mount_prefix / "x"))
            and socket.gethostname() == "compute-00"
        )
        os._exit(0 if right else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nodes_without_namespaces_have_the_machines_name(tmp_path: Path) -> None:
    before = os.readlink("/proc/self/ns/uts")
    Nodes(StateDir(tmp_path), ClusterShape(), isolated=False).enter("compute-00", seconds=0)

    assert os.readlink("/proc/self/ns/uts") == before


def test_tasks_do_not_start_on_a_node_that_has_lost_its_mounts(nodes: Nodes) -> None:
    namespace = nodes.namespace("compute-00")
    asyncio.run(namespace.ensure())
    namespace.end()
    eventually(lambda: namespace.holder is None)

    with pytest.raises(NodeTrouble, match="compute-00 has lost its mount namespace"):
        nodes.enter("compute-00", seconds=0)


def test_a_shell_that_has_entered_a_node_sees_whether_storage_is_there(nodes: Nodes) -> None:
    asyncio.run(nodes.namespace("compute-00").ensure())
    child = os.fork()
    if child == 0:
        nodes.enter("compute-00", seconds=0)
        here = str(nodes.mount_prefix)
        right = nodes.has_storage("compute-00", here) and not nodes.has_storage(
            "compute-00", f"{here}/x"
        )
        os._exit(0 if right else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert str(nodes.mount_prefix) not in mount_points(os.getpid())


def test_the_processes_of_all_nodes_are_found_by_one_look_at_the_machine(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    real = os.listdir

    def listdir(path: str) -> list[str]:
        looks.append(str(path))
        return real(path)

    with ExitStack() as stack:
        tasks = [stack.enter_context(task_on(nodes, node)) for node in NODES]
        monkeypatch.setattr(os, "listdir", listdir)
        assert sorted(nodes.processes()) == sorted(tasks)
        monkeypatch.undo()
    assert looks.count("/proc") == 1
    eventually(lambda: nodes.processes() == [])


@contextmanager
def task_on(nodes: Nodes, node: str) -> Iterator[int]:
    """Have a process of its own on a node."""
    enter = asyncio.run(nodes.namespace(node).nsenter_command())
    with subprocess.Popen(
        [*enter, "sh", "-c", "echo in; read never"], stdin=PIPE, stdout=PIPE
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"in\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize(("userid", "isolated"), [(0, True), (1000, False), (1000, True)])
def test_only_an_ordinary_users_nodes_are_in_user_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, userid: int, isolated: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: userid)
    nodes = Nodes(StateDir(tmp_path), ClusterShape(), isolated=isolated)

    assert nodes.in_user_namespaces == (isolated and userid != 0)
