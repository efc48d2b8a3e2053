"""What a rabbit offers on the network, in a tree of targets as the kernel's is."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.nvmet import FakeTargets
from warren.dws.node import NodeTrouble
from warren.node import nvmetree
from warren.node.nvmenames import NvmeVolume, dhchap_key, host_id, host_nqn, model_number
from warren.node.nvmetarget import Configfs, Exports
from warren.node.nvmetree import ListenAddress, Port, Step, Subsystem, TargetTree

LISTENING = ListenAddress(address="10.0.0.1")
TARGET = NvmeVolume("rabbit-0", "uid-0")


class Rabbit:
    """A rabbit with devices for its volumes."""

    def __init__(
        self, targets: FakeTargets, name: str = "rabbit-0", secret: bytes | None = None
    ) -> None:
        self.targets = targets
        self.devices = {"uid-0": "/dev/a", "uid-1": "/dev/b"}
        self.exports = Exports(name, self._device, LISTENING, targets, secret)

    async def _device(self, volume: str) -> str:
        return self.devices[volume]

    def export(self, volume: str, *nodes: str) -> None:
        asyncio.run(self.exports.export(volume, nodes))

    def offered(self) -> dict[str, tuple[str, frozenset[str]]]:
        """What each node that finds a subsystem at a port may have of it."""
        tree = self.targets.tree
        return {
            nqn: (found.namespaces["1"]["device_path"], found.hosts)
            for nqn, found in tree.subsystems.items()
            if found.namespaces["1"]["enable"] == "1"
            and found.attributes["attr_allow_any_host"] == "0"
            and any(nqn in port.subsystems for port in tree.ports.values())
        }


@pytest.fixture
def rabbit() -> Rabbit:
    return Rabbit(FakeTargets())


def hosts(*nodes: str) -> frozenset[str]:
    return frozenset(map(host_nqn, nodes))


# Names


def test_names_come_from_the_volume_and_stay_what_they_are() -> None:
    assert TARGET.nqn == "nqn.2014-08.org.nvmexpress:uuid:" + TARGET.nqn[-36:]
    assert NvmeVolume("rabbit-0", "uid-0").nqn == TARGET.nqn
    # They are written down: another one is another device for a node that is connected.
    assert (TARGET.nqn[-36:], TARGET.serial, TARGET.namespace_uuid, host_id("node1")) == PINNED


PINNED = (
    "c6e1a6d1-f13a-534a-b5cb-e49f6a5c73be",
    "34b6588eb0a95604a21b",
    "1c1b0a16-710a-5d0f-9a06-5b30f36e44d3",
    "2116daee-8f3a-5082-b2fb-fcbf6afdb57a",
)


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_two_volumes_share_no_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = (
        NvmeVolume(*(each.replace("/", "") for each in one)),
        NvmeVolume(*(each.replace("/", "") for each in other)),
    )
    same = (first.rabbit, first.volume) == (second.rabbit, second.volume)
    for name in ("nqn", "serial", "namespace_uuid"):
        assert (getattr(first, name) == getattr(second, name)) is same


@given(st.text())
def test_a_model_number_is_one_that_the_kernel_takes(rabbit: str) -> None:
    words = model_number(rabbit)

    assert 0 < len(words) <= 40
    assert words == words.strip()
    assert all(" " <= char <= "~" for char in words)


# What is offered


def test_a_volume_is_offered_to_the_nodes_that_are_named_and_to_none_else(rabbit: Rabbit) -> None:
    rabbit.export("uid-0", "node1", "node2")

    assert rabbit.offered() == {TARGET.nqn: ("/dev/a", hosts("node1", "node2"))}
    (port,) = rabbit.targets.tree.ports.values()
    assert port.attributes == {
        "addr_trtype": "tcp",
        "addr_adrfam": "ipv4",
        "addr_traddr": "10.0.0.1",
        "addr_trsvcid": "4420",
    }


def test_what_is_offered_already_is_left_as_it_is(rabbit: Rabbit) -> None:
    rabbit.export("uid-0", "node1")
    rabbit.targets.done.clear()
    rabbit.export("uid-0", "node1")

    assert rabbit.targets.done == []


SECRET = b"0123456789abcdef" * 4


def test_with_a_secret_nodes_are_let_in_that_prove_who_they_are() -> None:
    rabbit = Rabbit(FakeTargets(), secret=SECRET)
    rabbit.export("uid-0", "node1", "node2")
    rabbit.export("uid-1", "node1")

    keys = {host_nqn(node): dhchap_key(SECRET, node) for node in ("node1", "node2")}
    assert rabbit.targets.tree.keys == keys
    # Before it is let in: what stops in between lets none in without.
    for nqn in keys:
        told = [index for index, step in enumerate(rabbit.targets.done) if nqn in step.path]
        kinds = [type(rabbit.targets.done[index]) for index in told][:3]
        assert kinds == [nvmetree.Make, nvmetree.Write, nvmetree.Link]
    rabbit.targets.done.clear()
    rabbit.export("uid-0", "node1", "node2")
    assert rabbit.targets.done == []
    assert SECRET.decode() not in repr(rabbit.targets) + str(keys)


def test_nodes_that_are_let_in_without_proof_have_to_prove_it_when_there_is_a_secret(
    rabbit: Rabbit,
) -> None:
    rabbit.export("uid-0", "node1")
    again = Rabbit(rabbit.targets, secret=SECRET)
    again.export("uid-0", "node1")

    assert rabbit.targets.tree.keys == {host_nqn("node1"): dhchap_key(SECRET, "node1")}


def test_a_kernel_to_which_nothing_can_be_proven_lets_no_node_in() -> None:
    rabbit = Rabbit(FakeTargets(has_keys=False), secret=SECRET)
    with pytest.raises(NodeTrouble, match=r"dhchap_key: No such file .*from Linux 6.0 on"):
        rabbit.export("uid-0", "node1")

    assert rabbit.offered() == {}


def test_a_key_is_its_nodes_alone_and_written_as_the_specification_has_it() -> None:
    one = dhchap_key(SECRET, "node1")
    assert one not in (dhchap_key(SECRET, "node2"), dhchap_key(SECRET[1:], "node1"))
    # It is written down: a rabbit and its nodes may be of different versions.
    assert one == PINNED_KEY


PINNED_KEY = "DHHC-1:00:2ZE7iePzFeFB4MomOxA/OwY02VrSCDYY06Hxz1Yc6WrBjW5r:"


def test_nothing_is_left_when_no_node_reaches_it_any_more(rabbit: Rabbit) -> None:
    rabbit.export("uid-0", "node1")
    rabbit.export("uid-1", "node1", "node2")
    rabbit.export("uid-0")
    assert rabbit.offered() == {
        NvmeVolume("rabbit-0", "uid-1").nqn: ("/dev/b", hosts("node1", "node2"))
    }
    asyncio.run(rabbit.exports.withdraw("uid-1"))
    asyncio.run(rabbit.exports.withdraw("uid-1"))

    assert rabbit.targets.tree == TargetTree()
    assert rabbit.targets.hosts == set()


def test_a_node_that_may_reach_it_no_more_is_cut_off_before_it_is_kept_out(
    rabbit: Rabbit,
) -> None:
    rabbit.export("uid-0", "node1", "node2")
    rabbit.targets.done.clear()
    rabbit.export("uid-0", "node2")

    assert rabbit.targets.done[0] == nvmetree.Unlink(f"ports/1/subsystems/{TARGET.nqn}")
    assert rabbit.offered() == {TARGET.nqn: ("/dev/a", hosts("node2"))}
    assert rabbit.targets.hosts == hosts("node2")


def test_a_volume_whose_device_is_another_by_now_is_offered_as_that(rabbit: Rabbit) -> None:
    rabbit.export("uid-0", "node1")
    rabbit.devices["uid-0"] = "/dev/b"
    rabbit.export("uid-0", "node1")

    assert rabbit.offered() == {TARGET.nqn: ("/dev/b", hosts("node1"))}


def test_what_others_have_made_is_left_to_them(rabbit: Rabbit) -> None:
    theirs = TargetTree(
        subsystems={"theirs": Subsystem(attributes={"attr_model": "Linux"})},
        ports={
            "1": Port(
                attributes={**LISTENING.attributes, "addr_trsvcid": "4421"},
                subsystems=frozenset({"theirs"}),
            ),
            "2": Port(attributes=LISTENING.attributes, subsystems=frozenset({"theirs"})),
        },
    )
    rabbit.targets.tree = theirs
    rabbit.export("uid-0", "node1")
    assert TARGET.nqn in rabbit.targets.tree.ports["2"].subsystems
    rabbit.export("uid-0")
    asyncio.run(rabbit.exports.withdraw_others([]))

    assert rabbit.targets.tree == theirs


def test_volumes_that_are_no_more_are_withdrawn_and_other_rabbits_are_left_alone(
    rabbit: Rabbit,
) -> None:
    other = Rabbit(rabbit.targets, "rabbit-1")
    for each in (rabbit, other):
        each.export("uid-0", "node1")
        each.export("uid-1", "node1")
    asyncio.run(rabbit.exports.withdraw_others(["uid-1"]))

    assert set(rabbit.offered()) == {
        NvmeVolume("rabbit-0", "uid-1").nqn,
        NvmeVolume("rabbit-1", "uid-0").nqn,
        NvmeVolume("rabbit-1", "uid-1").nqn,
    }


def test_a_device_that_is_not_there_is_told_with_the_place(rabbit: Rabbit) -> None:
    rabbit.targets.devices.clear()

    with pytest.raises(NodeTrouble, match="namespaces/1/enable: Device or resource busy"):
        rabbit.export("uid-0", "node1")
    assert rabbit.offered() == {}


def test_a_machine_without_the_modules_says_which_it_lacks(tmp_path: Path) -> None:
    async def device(volume: str) -> str:
        return "/dev/a"

    exports = Exports("rabbit-0", device, LISTENING, Configfs(tmp_path / "nvmet"))

    with pytest.raises(NodeTrouble, match=r"No such file or directory: .* nvmet and nvmet-tcp"):
        asyncio.run(exports.export("uid-0", ["node1"]))


# Whenever the agent dies


def until_killed(targets: FakeTargets, steps: Collection[Step], after: int) -> bool:
    """Do some of the steps; return whether there were more."""
    for number, step in enumerate(steps):
        if number == after:
            return True
        targets.apply(step)
    return False


@given(
    st.lists(st.frozensets(st.sampled_from(["node1", "node2", "node3"])), min_size=1, max_size=5),
    st.data(),
)
def test_an_agent_that_dies_anywhere_finds_its_own_work_again(
    wanted: list[frozenset[str]], data: st.DataObject
) -> None:
    rabbit = Rabbit(FakeTargets())
    for nodes in wanted:
        tree = rabbit.targets.tree
        if nodes:
            steps = nvmetree.export_steps(tree, TARGET, "/dev/a", nodes, LISTENING)
        else:
            steps = nvmetree.withdraw_steps(tree, TARGET.nqn)
        until_killed(rabbit.targets, steps, data.draw(st.integers(0, len(steps)), "dies after"))
        # Never is a node let in that was not asked for, then or before.
        known = set().union(*(each.hosts for each in rabbit.targets.tree.subsystems.values()))
        assert known <= hosts(*set().union(*wanted))
    rabbit.export("uid-0", *wanted[-1])

    asked = {TARGET.nqn: ("/dev/a", hosts(*wanted[-1]))} if wanted[-1] else {}
    assert rabbit.offered() == asked
    rabbit.export("uid-0")
    asyncio.run(rabbit.exports.withdraw_others([]))
    assert rabbit.targets.tree.subsystems == {}
