"""A compute node's connections, in a tree as sysfs is: what is connected, and by what words."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warren.dws.node import TIMED_OUT, NodeTrouble
from warren.node import commands, filewriter
from warren.node.filesystems import DlmCluster
from warren.node.nvmehost import (
    NvmeController,
    NvmeHost,
    NvmeTimeouts,
    TransportAddress,
    connect_options,
    connections_of_node,
)
from warren.node.nvmenames import NvmeVolume, dhchap_key, host_id, host_nqn, model_number
from warren.node.remoteflash import RemoteFlash

TARGET = NvmeVolume("rabbit-0", "uid-0")
REACH = {"rabbit-0": TransportAddress(host="127.0.0.1", port=4421)}


@dataclass(frozen=True)
class Node:
    """A node that has /sys and /dev in a directory."""

    root: Path

    def host(self, connect: float = 0.0, secret: bytes | None = None) -> NvmeHost:
        return NvmeHost(
            "node1",
            REACH,
            NvmeTimeouts(connect=connect),
            controllers=self.root / "class",
            blocks=self.root / "block",
            fabrics=self.root / "fabrics",
            connections=self.root / "ctl",
            secret=secret,
        )

    def connected(
        self,
        name: str = "nvme0",
        target: NvmeVolume = TARGET,
        host: str = "node1",
        state: str = "live",
    ) -> Path:
        """Have a connection, and return the file by which it is ended."""
        path = self.root / "class" / name
        path.mkdir(parents=True)
        for attribute, text in {
            "subsysnqn": target.nqn,
            "hostnqn": host_nqn(host),
            "state": state,
            "model": model_number(target.rabbit).ljust(40),
            "delete_controller": "",
        }.items():
            (path / attribute).write_text(f"{text}\n" if text else "")
        return path / "delete_controller"

    def device(self, name: str, target: NvmeVolume = TARGET, hidden: bool = False) -> None:
        path = self.root / "block" / name
        (path / "device").mkdir(parents=True)
        (path / "uuid").write_text(f"{target.namespace_uuid}\n")
        (path / "hidden").write_text(f"{int(hidden)}\n")
        (path / "device" / "subsysnqn").write_text(f"{target.nqn}\n")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "fabrics").touch()
    return Node(tmp_path)


def test_the_kernel_is_told_who_asks_for_what_and_how_long_it_is_worth_waiting() -> None:
    policy = NvmeTimeouts(keep_alive=7, reconnect=3, controller_loss=90)

    said = dict(
        word.split("=")
        for word in connect_options(TARGET, "node1", "10.0.0.1", 4420, policy).split(",")
    )

    assert said == {
        "transport": "tcp",
        "traddr": "10.0.0.1",
        "trsvcid": "4420",
        "nqn": TARGET.nqn,
        "hostnqn": host_nqn("node1"),
        "hostid": host_id("node1"),
        "keep_alive_tmo": "7",
        "reconnect_delay": "3",
        "ctrl_loss_tmo": "90",
        "fast_io_fail_tmo": "90",
    }


def test_a_node_may_wait_for_ever() -> None:
    said = connect_options(TARGET, "node1", "10.0.0.1", 4420, NvmeTimeouts(controller_loss=None))

    assert "ctrl_loss_tmo=-1" in said
    assert "fast_io_fail_tmo" not in said


def test_connections_of_others_are_not_the_nodes() -> None:
    def controller(name: str, host: str, model: str) -> NvmeController:
        return NvmeController(
            name=name, subsystem_nqn="s", host_nqn=host, state="live", model=model
        )

    own = controller("nvme1", host_nqn("node1"), model_number("rabbit-0"))
    disk = controller("nvme0", "", "Some maker's SSD")
    admins = controller("nvme2", host_nqn("node1"), "Linux")
    other = controller("nvme3", host_nqn("node2"), model_number("rabbit-0"))

    assert connections_of_node([disk, own, admins, other], "node1") == [own]


def test_a_volume_that_is_connected_is_found_by_its_uuid(node: Node) -> None:
    node.connected("nvme3")
    node.device("nvme3c3n1", hidden=True)
    node.device("nvme3n1")
    node.device("nvme1n1", NvmeVolume("rabbit-0", "uid-1"))

    assert asyncio.run(node.host().connect("rabbit-0", "uid-0")) == "/dev/nvme3n1"
    assert (node.root / "fabrics").read_text() == ""
    source = asyncio.run(RemoteFlash(node.host()).source("rabbit-0", "uid-0", "xfs"))
    assert source.arguments[-1] == "/dev/nvme3n1"


def test_one_that_is_not_is_asked_for_at_its_rabbits_address(node: Node) -> None:
    with pytest.raises(NodeTrouble, match="rabbit-0/uid-0 cannot be reached"):
        asyncio.run(node.host().connect("rabbit-0", "uid-0"))

    said = (node.root / "fabrics").read_text()
    assert said == connect_options(TARGET, "node1", "127.0.0.1", 4421, NvmeTimeouts())


SECRET = b"0123456789abcdef" * 4


def test_a_node_with_a_secret_proves_who_it_is_and_its_users_cannot_read_how(node: Node) -> None:
    (node.root / "ctl").mkdir(mode=0o755)
    with pytest.raises(NodeTrouble):
        asyncio.run(node.host(secret=SECRET).connect("rabbit-0", "uid-0"))

    said = (node.root / "fabrics").read_text()
    assert said.endswith(f",dhchap_secret={dhchap_key(SECRET, 'node1')}")
    assert (node.root / "ctl").stat().st_mode & 0o777 == 0o700


def test_a_node_whose_users_could_read_its_key_does_not_connect(node: Node) -> None:
    with pytest.raises(NodeTrouble, match=r"ctl: No such file .* users could read the node's key"):
        asyncio.run(node.host(secret=SECRET).connect("rabbit-0", "uid-0"))

    assert (node.root / "fabrics").read_text() == ""


def test_no_argument_of_a_process_has_the_key(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.root / "ctl").mkdir()
    seen: list[str] = []
    run = commands.run

    async def watched(argv: Sequence[str], **connect_options: Any) -> str:
        seen.extend(argv)
        return await run(argv, **connect_options)

    monkeypatch.setattr(commands, "run", watched)
    with pytest.raises(NodeTrouble):
        asyncio.run(node.host(secret=SECRET).connect("rabbit-0", "uid-0"))

    assert dhchap_key(SECRET, "node1") in (node.root / "fabrics").read_text()
    assert not any("DHHC" in word for word in seen)


@pytest.mark.parametrize(("state", "has_device"), [("connecting", True), ("live", False)])
def test_a_connection_that_is_under_way_is_waited_for_and_told_as_what_takes_long(
    node: Node, state: str, *, has_device: bool
) -> None:
    node.connected(state=state)
    if has_device:
        node.device("nvme0n1")

    # Nodes that say so are only slow, and none is drained for it (ADR 111).
    words = f"the wait for its device {TIMED_OUT} 0 s: its connection is {state}$"
    with pytest.raises(NodeTrouble, match=words):
        asyncio.run(node.host().connect("rabbit-0", "uid-0"))
    assert (node.root / "fabrics").read_text() == ""


def test_what_the_kernel_said_before_a_connection_was_under_way_does_not_count(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(argv: Sequence[str], *, text: str) -> str:
        node.connected(state="connecting")
        raise NodeTrouble("Operation already in progress")

    monkeypatch.setattr(commands, "run", refuse)
    monkeypatch.setattr("warren.node.nvmehost._POLL_INTERVAL", 0.0)
    clock = SimpleNamespace(monotonic=iter(range(3)).__next__)
    monkeypatch.setattr("warren.node.nvmehost.time", clock)

    with pytest.raises(NodeTrouble, match=TIMED_OUT):
        asyncio.run(node.host(connect=2.0).connect("rabbit-0", "uid-0"))


def test_a_rabbit_that_does_not_answer_is_told_by_its_address(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(argv: Sequence[str], *, text: str) -> str:
        raise NodeTrouble(f"{argv[0]} {TIMED_OUT} 20 s")

    monkeypatch.setattr(commands, "run", silent)

    # Nodes that say so are only slow, and none is drained for it (ADR 111).
    words = f"127.0.0.1 port 4421: no answer: the request {TIMED_OUT} 20 s$"
    with pytest.raises(NodeTrouble, match=words):
        asyncio.run(node.host().connect("rabbit-0", "uid-0"))


def test_a_rabbit_whose_address_is_looked_up_for_long_is_told_as_what_takes_long(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(commands, "COMMAND_TIMEOUT", 0.01)
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", silent)

    words = rf"has no address: the look-up {TIMED_OUT} 0\.01 s$"
    with pytest.raises(NodeTrouble, match=words):
        asyncio.run(node.host().connect("rabbit-0", "uid-0"))


def test_a_rabbit_without_an_address_is_told_by_its_name(node: Node) -> None:
    with pytest.raises(NodeTrouble, match=r"no-such\.invalid port 4420: has no address"):
        asyncio.run(node.host().connect("no-such.invalid", "uid-0"))


def test_a_node_without_the_module_says_which_it_lacks(node: Node) -> None:
    (node.root / "fabrics").unlink()

    with pytest.raises(NodeTrouble, match="load the kernel module nvme-tcp"):
        asyncio.run(node.host().connect("rabbit-0", "uid-0"))


def test_only_the_volume_that_is_named_is_let_go_of(node: Node) -> None:
    ended = node.connected("nvme0")
    kept = node.connected("nvme1", NvmeVolume("rabbit-0", "uid-1"))
    asyncio.run(node.host().disconnect("rabbit-0", "uid-0"))
    asyncio.run(node.host().disconnect("rabbit-0", "uid-2"))

    assert (ended.read_text(), kept.read_text()) == ("1", "")


def test_what_nothing_uses_is_let_go_of_by_an_agent_that_starts(node: Node) -> None:
    ended = node.connected("nvme0")
    kept = node.connected("nvme1", host="node2")
    asyncio.run(node.host().disconnect_unused())

    assert (ended.read_text(), kept.read_text()) == ("1", "")


def test_a_machine_without_nvme_has_nothing_to_let_go_of(tmp_path: Path) -> None:
    host = Node(tmp_path / "none").host()

    asyncio.run(host.disconnect("rabbit-0", "uid-0"))
    asyncio.run(host.disconnect_unused())


def test_raw_volumes_are_refused_for_good(node: Node) -> None:
    with pytest.raises(NodeTrouble, match="use a file system") as caught:
        asyncio.run(RemoteFlash(node.host()).source("rabbit-0", "uid-0", "raw"))

    assert caught.value.fatal


def test_a_gfs2_is_mounted_as_one_by_the_nodes_of_a_cluster_alone(node: Node) -> None:
    node.connected()
    node.device("nvme0n1")
    with pytest.raises(NodeTrouble, match=r"network\.cluster") as caught:
        asyncio.run(RemoteFlash(node.host()).source("rabbit-0", "uid-0", "gfs2"))
    assert caught.value.fatal

    attached = RemoteFlash(node.host(), DlmCluster(name="site", journals=2))
    source = asyncio.run(attached.source("rabbit-0", "uid-0", "gfs2"))
    assert source.arguments == ("-t", "gfs2", "-o", "nodev,nosuid", "/dev/nvme0n1")


def test_what_the_kernel_refuses_is_told_in_its_words() -> None:
    argv = [sys.executable, "-I", "-S", filewriter.__file__]

    done = subprocess.run([*argv, "/dev/full"], input="1", capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, "No space left on device\n")
