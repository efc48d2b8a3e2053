"""LVM as flash: real metadata, on a volume group of the test's own. Takes root.

LVM is told to see no device but the test's, and, without a device mapper in the
kernel, to activate nothing.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.node.copied import User
from warren.base.bytesize import MIB
from warren.dws.commandlines import ProfileCommands
from warren.dws.node import NodeTrouble, Volume
from warren.node import volumegroup
from warren.node.blocks import BlockFlash, VolumeRecord
from warren.node.volumegroup import VolumeGroup

EXTENT = 4 * MIB
SIZE = 31 * EXTENT
"""Of the volume group: LVM has kept some of the device for itself."""

HAS_DEVICE_MAPPER = Path("/dev/mapper/control").exists() and any(
    line.split()[1:] == ["device-mapper"] for line in Path("/proc/misc").read_text().splitlines()
)

CONFIGURATION = """
global {{ activation={activation} locking_dir="{root}/lock" use_lvmlockd=0 use_lvmpolld=0 }}
activation {{ monitoring=0 }}
devices {{
    use_devicesfile=0 global_filter=["a|^{device}$|", "r|.*|"]
    obtain_device_list_from_udev=0
}}
backup {{ backup=0 archive=0 }}
"""


@dataclass(frozen=True)
class Group:
    """A volume group, and the device that it is on."""

    name: str
    device: Path
    user: User

    def disk(self, rabbit: str = "rabbit1", capacity: int = SIZE) -> VolumeGroup:
        return VolumeGroup(rabbit, self.name, capacity)

    def volume(self, name: str = "a", size: int = EXTENT, kind: str = "ext4") -> Volume:
        return Volume(
            rabbit="rabbit1",
            name=name,
            size=size,
            file_system=kind,
            userid=self.user.userid,
            groupid=self.user.groupid,
        )

    def reserve(self, name: str = "a", size: int = EXTENT, rabbit: str = "rabbit1") -> VolumeRecord:
        return asyncio.run(self.disk(rabbit).reserve(self.volume(name, size)))

    def give_back(self, name: str = "a", rabbit: str = "rabbit1") -> None:
        asyncio.run(self.disk(rabbit).give_back(name))

    def sizes(self, rabbit: str = "rabbit1") -> dict[str, int]:
        return {name: found.size for name, found in self.disk(rabbit).volumes().items()}

    def lvm(self, *words: str) -> str:
        return subprocess.check_output(words, text=True, stderr=subprocess.DEVNULL)

    def all(self) -> set[str]:
        """Every logical volume that there is, of all origins."""
        return set(self.lvm("lvs", "--noheadings", "-o", "lv_name", self.name).split())

    def place(self, name: str) -> int:
        """Where on the device a volume begins."""
        words = ["--noheadings", "--units", "b", "--nosuffix"]
        start = int(self.lvm("pvs", *words, "-o", "pe_start"))
        first = self.lvm("lvs", *words, "-o", "seg_start_pe,devices", f"{self.name}/{name}")
        return start + int(first.rpartition("(")[2].rstrip(")\n ")) * EXTENT


@pytest.fixture
def group(loop_devices: Path, user: User, monkeypatch: pytest.MonkeyPatch) -> Iterator[Group]:
    if shutil.which("lvm") is None:
        pytest.skip("LVM is not installed")
    file = loop_devices / "device"
    with file.open("wb") as opened:
        opened.truncate(SIZE + EXTENT)
    words = ["losetup", "--find", "--show", str(file)]
    device = subprocess.check_output(words, text=True).strip()
    system = loop_devices / "lvm"
    system.mkdir()
    (system / "lvm.conf").write_text(
        CONFIGURATION.format(root=loop_devices, device=device, activation=int(HAS_DEVICE_MAPPER))
    )
    monkeypatch.setenv("LVM_SYSTEM_DIR", str(system))
    group = Group(f"warren-test-{os.getpid()}", Path(device), user)
    try:
        group.lvm("pvcreate", "-q", device)
        group.lvm("vgcreate", "-q", group.name, device)
        yield group
        group.lvm("vgremove", "-q", "-y", group.name)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


LV_CREATE = "data.xfsStorage.blockDeviceCommands.rabbitCommands.lvCreate"


def creating(line: str) -> ProfileCommands:
    return ProfileCommands(file_system="xfs", lines={LV_CREATE: (line,)})


def test_a_profile_says_how_a_logical_volume_is_made(group: Group) -> None:
    """The line is that of NNF's example profile: as many stripes as there are devices."""
    line = (
        "--zero n --activate n --size $LV_SIZE --stripes $DEVICE_NUM --stripesize=32KiB "
        "--name $LV_NAME $VG_NAME"
    )
    tags = "--addtag site --addtag less$DEVICE_NUM-1"
    volume = replace(group.volume(size=2 * EXTENT), commands=creating(f"{line} {tags}"))
    for _ in range(2):
        asyncio.run(group.disk().reserve(volume))

    assert group.sizes() == {"a": 2 * EXTENT}
    found = group.lvm("lvs", "--noheadings", "-o", "lv_tags", f"{group.name}/a").strip().split(",")
    assert {"site", "less0", "warren.rabbit.rabbit1"} <= {*found}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("-Zn -an -Wn --size $LV_SIZE --name b $VG_NAME", "has made no .*/a: name it by"),
        ("--size $LV_SIZE --name $LV_NAME $POOL_NAME", r"\$POOL_NAME has no value here"),
        ("--thinpool lake -V $LV_SIZE --name $LV_NAME $VG_NAME", "has no thin pool lake"),
    ],
)
def test_a_line_that_makes_no_such_volume_fails_for_good(group: Group, line: str, why: str) -> None:
    with pytest.raises(NodeTrouble, match=why) as caught:
        asyncio.run(group.disk().reserve(replace(group.volume(), commands=creating(line))))
    assert caught.value.fatal
    assert "a" not in group.sizes()


@pytest.mark.parametrize(
    ("command", "pool"),
    [
        (["lvcreate", "--thinpool", "vg/lake", "-V", "1g"], "lake"),
        (["lvcreate", "--thin", "--thinpool", "lake", "vg"], "lake"),
        (["lvcreate", "--thinpool=vg/lake"], "lake"),
        (["lvcreate", "-L", "1g", "vg"], None),
        (["lvcreate", "--thinpool"], ""),
    ],
)
def test_a_thin_pool_is_named_by_its_option(command: list[str], pool: str | None) -> None:
    assert volumegroup._pool_name(command) == pool


# Room


def test_a_rabbit_has_what_the_group_has_and_no_more_than_it_was_given(group: Group) -> None:
    group.reserve(size=3 * EXTENT)

    assert asyncio.run(group.disk(capacity=2 * SIZE).capacity()) == SIZE
    assert asyncio.run(group.disk(capacity=SIZE // 2).capacity()) == SIZE // 2


def test_what_others_have_in_the_group_is_not_the_rabbits(group: Group) -> None:
    group.lvm("lvcreate", "-y", "-an", "-Zn", "-Wn", "-l", "10", "-n", "home", group.name)

    assert asyncio.run(group.disk().capacity()) == SIZE - 10 * EXTENT
    assert group.sizes() == {}
    with pytest.raises(NodeTrouble, match=f"rabbit1 has {SIZE - 10 * EXTENT} bytes"):
        group.reserve("a", SIZE)


def test_a_volume_is_found_again_by_another_process(group: Group) -> None:
    made = group.reserve("a", EXTENT + 1)

    assert made == VolumeRecord(
        size=2 * EXTENT, userid=group.user.userid, groupid=group.user.groupid, formatted=False
    )
    assert group.disk().volumes() == {"a": made}
    assert asyncio.run(group.disk().find("a")) == made
    assert asyncio.run(group.disk().find("b")) is None


def test_what_is_reserved_twice_is_there_once(group: Group) -> None:
    assert group.reserve("a", SIZE) == group.reserve("a", SIZE)
    assert group.sizes() == {"a": SIZE}


def test_those_who_come_at_once_do_not_get_more_than_there_is(group: Group) -> None:
    disk = group.disk(capacity=2 * EXTENT)

    async def main() -> list[object]:
        reserves = [disk.reserve(group.volume(name)) for name in ("a", "a", "b", "c", "d")]
        return list(await asyncio.gather(*reserves, return_exceptions=True))

    answers = asyncio.run(main())

    assert sum(isinstance(answer, NodeTrouble) for answer in answers) == 2
    assert sum(group.sizes().values()) == 2 * EXTENT


def test_a_full_group_refuses_for_good(group: Group) -> None:
    group.reserve("a", SIZE - EXTENT)

    with pytest.raises(NodeTrouble, match=f"rabbit1 has {EXTENT} bytes of flash left") as caught:
        group.reserve("b", EXTENT + 1)

    assert caught.value.fatal
    assert group.all() == {"a"}
    group.reserve("c", EXTENT)


def test_that_a_volume_is_made_is_remembered(group: Group) -> None:
    group.reserve("a")
    group.reserve("b")
    asyncio.run(group.disk().set_formatted("a"))
    asyncio.run(group.disk().set_formatted("a"))

    assert {name: found.formatted for name, found in group.disk().volumes().items()} == {
        "a": True,
        "b": False,
    }


def test_what_is_given_back_gives_its_room_back(group: Group) -> None:
    group.reserve("a", SIZE)
    asyncio.run(group.disk().set_formatted("a"))
    group.give_back("a")
    group.give_back("a")

    assert group.all() == set()
    assert not group.reserve("a", SIZE).formatted


def test_what_was_in_a_volume_is_discarded_and_nothing_else_is(group: Group) -> None:
    group.reserve("a")
    group.reserve("b")
    with group.device.open("r+b") as opened:
        for name in "ab":
            opened.seek(group.place(name))
            opened.write(b"secret--" * (EXTENT // 8))
    places = {name: group.place(name) for name in "ab"}
    group.give_back("a")

    with group.device.open("rb") as opened:
        opened.seek(places["a"])
        assert opened.read(EXTENT) == bytes(EXTENT)
        opened.seek(places["b"])
        assert opened.read(EXTENT) == b"secret--" * (EXTENT // 8)


def test_the_volumes_can_be_had_where_an_event_loop_runs(group: Group) -> None:
    group.reserve()

    async def main() -> set[str]:
        return set(group.disk().volumes())

    assert asyncio.run(main()) == {"a"}


# Whose is what


def test_what_is_not_warrens_is_never_taken_for_it(group: Group) -> None:
    group.lvm("lvcreate", "-y", "-an", "-Zn", "-Wn", "-l", "1", "-n", "home", group.name)
    group.give_back("home")
    with pytest.raises(NodeTrouble, match="already exists"):
        group.reserve("home")
    with pytest.raises(NodeTrouble, match="rabbit1/home does not exist"):
        asyncio.run(group.disk().attach("home"))

    assert group.all() == {"home"}
    assert group.sizes() == {}


def test_rabbits_that_share_a_group_leave_each_others_volumes_alone(group: Group) -> None:
    group.reserve("a", rabbit="rabbit1")
    group.reserve("b", rabbit="rabbit2")
    group.give_back("b", rabbit="rabbit1")

    assert group.sizes("rabbit1") == {"a": EXTENT}
    assert group.sizes("rabbit2") == {"b": EXTENT}
    assert asyncio.run(group.disk("rabbit1").capacity()) == SIZE - EXTENT


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", "/dev/sda"])
def test_a_name_that_leads_elsewhere_is_refused(group: Group, name: str) -> None:
    with pytest.raises(NodeTrouble, match="is no name of a volume") as caught:
        group.reserve(name)

    assert caught.value.fatal
    assert group.all() == set()


def test_the_groups_of_the_machine_are_known_by_name(group: Group) -> None:
    assert asyncio.run(volumegroup.volume_group_names()) == {group.name}


def test_a_group_that_is_not_there_is_told_in_lvms_words(group: Group) -> None:
    disk = VolumeGroup("rabbit1", "nowhere", SIZE)

    for action in (disk.capacity(), disk.reserve(group.volume()), disk.give_back("a")):
        with pytest.raises(NodeTrouble, match='Volume group "nowhere" not found'):
            asyncio.run(action)


def test_a_machine_without_lvm_says_so(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(NodeTrouble, match="vgs cannot be run: it is not there"):
            asyncio.run(volumegroup.volume_group_names())


# Devices


@pytest.mark.skipif(not HAS_DEVICE_MAPPER, reason="no device mapper in this kernel")
@pytest.mark.parametrize("kind", ["ext4", "raw"])
def test_a_volume_has_a_device_that_is_given_back_when_it_is_not_used(
    group: Group, kind: str
) -> None:
    blocks = BlockFlash(lambda rabbit: group.disk(rabbit), group.device.parent)
    asyncio.run(blocks.make(group.volume("a", 4 * EXTENT, kind)))
    source = asyncio.run(blocks.source("rabbit1", "a", kind))
    assert source.arguments[-1] == f"/dev/{group.name}/a"
    with Path(source.arguments[-1]).open("r+b"):
        with pytest.raises(NodeTrouble, match="in use"):
            asyncio.run(blocks.release("rabbit1", "a"))
        assert group.sizes() == {"a": 4 * EXTENT}

    asyncio.run(blocks.make(group.volume("a", 4 * EXTENT, kind)))
    asyncio.run(blocks.release("rabbit1", "a"))

    assert group.all() == set()
    assert not Path(source.arguments[-1]).exists()
