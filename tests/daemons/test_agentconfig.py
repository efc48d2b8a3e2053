"""The configuration of an agent: mistakes are told with their place, and flash is made."""

import asyncio
from pathlib import Path

import pytest

from warren.base.errors import UserMistake
from warren.daemons import agentconfig
from warren.daemons.agentconfig import Config, FlashTable
from warren.daemons.network import Network
from warren.dws.node import NodeTrouble, Volume
from warren.lifecycle import tables
from warren.node import loops, volumegroup
from warren.node.directory import DirectoryFlash


def parsed(text: str) -> Config:
    return tables.parse(text, Config, "agent.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('nodes = "x"', "agent.toml: there is no key 'nodes' here, but there is 'node'."),
        ('node = ""', "agent.toml: node: a node has a name."),
        ('mounts = "mnt"', "mounts: 'mnt' is no absolute path"),
        ('mounts = "/"', "mounts: '/' is no absolute path"),
        ('mounts = "/mnt/../etc"', "mounts: '/mnt/../etc' is no absolute path without '..'"),
        ('more-mounts = ["/a", "b"]', "more-mounts: 'b' is no absolute path"),
        ('namespace = "own"', "namespace: 'own' is no absolute path"),
        ('busy-timeout = "soon"', "busy-timeout: "),
        ('flash.kind = "tape"', "agent.toml: flash.kind: "),
        ('flash.kind = "device"', "flash: device: kind 'device' needs it"),
        ('flash.kind = "volume-group"', "flash: volume-group: kind 'volume-group' needs it"),
        ('flash.device = "/dev/sdb"', "flash: device: kind 'directory' has none"),
        ('flash.capacity = "much"', "flash: capacity: 'much' is not a capacity"),
        ('flash.capacity = "0GiB"', "flash: capacity: 0 bytes hold nothing"),
        ("flash.faults.make.fails = 1", "flash: faults: kind 'directory' has none"),
        (
            'flash = { kind = "simulated", faults = { mnt = {} } }',
            "agent.toml: flash: faults: mnt is no action of a node: take make",
        ),
        ("mounts = ", "agent.toml is not TOML"),
        (f"mounts = {'[' * 5000}", "agent.toml is not TOML: "),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(UserMistake) as mistake:
        parsed(text)
    assert told in str(mistake.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="cannot be read"):
        agentconfig.load(tmp_path / "agent.toml")


def test_a_rabbit_has_to_say_how_much_it_has_and_a_compute_node_need_not(tmp_path: Path) -> None:
    config = Config(namespace=str(tmp_path))

    told = agentconfig.refusal(config, is_rabbit=True)
    assert told == "flash.capacity: kind 'directory' needs it, such as 3TiB"
    assert agentconfig.refusal(config, is_rabbit=False) is None


def test_a_device_has_to_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "why_unavailable", lambda: None)
    table = FlashTable(kind="device", device=str(tmp_path / "none"))
    config = Config(namespace=str(tmp_path), flash=table)

    told = agentconfig.refusal(config, is_rabbit=True)
    assert told == f"flash.device: {tmp_path}/none is no block device"


def test_flash_is_where_it_is_said_and_no_name_leads_out_of_it(tmp_path: Path) -> None:
    table = FlashTable(directory=str(tmp_path / "flash"), capacity="1GiB")
    flash, disks = agentconfig.build_flash(Config(flash=table), tmp_path)
    assert isinstance(flash, DirectoryFlash)
    assert disks is None
    asyncio.run(flash.make(_volume("rabbit-0")))
    assert (tmp_path / "flash" / "rabbit-0" / "v").is_dir()

    image = FlashTable(kind="image", directory=str(tmp_path / "flash"), capacity="1GiB")
    blocks, _ = agentconfig.build_flash(Config(flash=image), tmp_path)
    for rabbit in ("..", "a/b"):
        for some in (flash, blocks):
            with pytest.raises(NodeTrouble, match="no name of a volume or group"):
                asyncio.run(some.make(_volume(rabbit)))


def _volume(rabbit: str) -> Volume:
    return Volume(rabbit=rabbit, name="v", size=1, file_system="xfs", userid=0, groupid=0)


def test_directories_are_all_file_systems_and_no_device(tmp_path: Path) -> None:
    made = asyncio.run(agentconfig.file_system_support(Config(), tmp_path))
    assert {kind for kind, why_not in made.items() if why_not is None} == {"xfs", "ext4", "gfs2"}
    assert made["raw"] is not None


def test_what_lacks_a_program_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    image = FlashTable(kind="image", capacity="1GiB")
    made = asyncio.run(agentconfig.file_system_support(Config(flash=image), tmp_path))
    assert made["xfs"] == "mkfs.xfs is not installed"
    assert made["ext4"] == "mkfs.ext4 and debugfs are not installed"


def test_over_a_network_there_are_block_devices_with_file_systems(tmp_path: Path) -> None:
    network = Network(listen="10.0.0.1")
    why_not = agentconfig.refusal(Config(network=network, namespace="/n"), is_rabbit=True)
    assert why_not == "flash.kind: directories are not offered over a network: take another kind"
    assert agentconfig.refusal(Config(network=network, namespace="/n"), is_rabbit=False) is None
    told = agentconfig.refusal(Config(network=Network(), namespace="/n"), is_rabbit=True)
    assert told is not None
    assert told.startswith("network.listen: ")

    image = FlashTable(kind="image", capacity="1GiB")
    config = Config(network=network, namespace="/n", flash=image, node="rabbit-0")
    made = asyncio.run(agentconfig.file_system_support(config, tmp_path))
    assert made["raw"] == "nodes have file systems attached, and no bare devices"
    assert "corosync" in (made["gfs2"] or "")


def test_agents_offer_and_attach_where_there_is_a_network(tmp_path: Path) -> None:
    image = FlashTable(kind="image", capacity="1GiB")
    network = Network(listen="10.0.0.1")
    config = Config(network=network, namespace=str(tmp_path / "n"), flash=image, node="rabbit-0")
    rabbit = agentconfig.build_node(config, tmp_path, is_rabbit=True)
    compute = agentconfig.build_node(config, tmp_path, is_rabbit=False)
    assert (rabbit.exports is None, rabbit.nvme_host is None) == (False, True)
    assert (compute.exports is None, compute.nvme_host is None) == (True, False)
    wired = Config(namespace=str(tmp_path / "n"), flash=image)
    for each in (True, False):
        found = agentconfig.build_node(wired, tmp_path, is_rabbit=each)
        assert found.exports is None
        assert found.nvme_host is None


def test_a_volume_group_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def names() -> set[str]:
        return {"vg0", "rabbit"}

    monkeypatch.setattr(volumegroup, "volume_group_names", names)
    table = FlashTable(kind="volume-group", volume_group="flash")
    told = asyncio.run(agentconfig.volume_group_refusal(Config(flash=table)))
    assert told == "flash.volume-group: there is no flash; there are rabbit, vg0"
    assert asyncio.run(agentconfig.volume_group_refusal(Config())) is None
