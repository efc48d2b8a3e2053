"""How logical volumes are activated and deactivated: LVM's commands, run with stand-ins on PATH.

The real ones take a device mapper: `tests/vm/inside/check_flash.py`.
"""

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Kept, NodeTrouble, Volume
from warren.node.blocks import BlockFlash
from warren.node.busy import GracePeriod
from warren.node.volumegroup import VolumeGroup

PLACE = "data.xfsStorage.blockDeviceCommands.rabbitCommands.lvChange"
ROW = {
    "lv_name": "a",
    "lv_size": "4096",
    "lv_tags": "warren.rabbit.r0,warren.owner.5.6,warren.made",
}

STAND_INS = {
    "lvs": """
[ -e gone ] && rows= || rows=$(cat row)
[ -e active ] && is=$(cat yes) || is=$(cat no)
[ -e opened ] && open=$(cat open-word) || open=
printf '{"report":[{"lv":[%s]}]}' "$(echo "$rows" | sed "s/ACTIVE/$is/; s/OPEN/$open/")"
""",
    "lvchange": """
(printf %s lvchange; printf '\\t%s' "$@"; echo) >> ran
[ ! -e fail-lvchange ] || { echo "lvchange: no" >&2; exit 5; }
case " $* " in
  *" vg/a "*) ;;
  *) exit 0 ;;
esac
case " $* " in
  *" --permission "*) ;;
  *" -an "*|*" --activate n "*) rm -f active ;;
  *) touch active ;;
esac
""",
    "lvremove": """
(printf %s lvremove; printf '\\t%s' "$@"; echo) >> ran
touch gone
""",
}


@dataclass(frozen=True)
class Group:
    """A volume group with one volume, that the stand-ins know of."""

    root: Path

    @property
    def disk(self) -> VolumeGroup:
        return VolumeGroup("r0", "vg", 2**20)

    def device(self, profile: ProfileCommands = NO_COMMANDS) -> str:
        return asyncio.run(self.disk.attach("a", profile))

    def give_back(self, profile: ProfileCommands = NO_COMMANDS) -> None:
        asyncio.run(self.disk.give_back("a", profile))

    def ran(self) -> list[list[str]]:
        """Return what was run since, but for looks."""
        file = self.root / "ran"
        lines = file.read_text().splitlines() if file.exists() else []
        file.write_text("")
        return [line.split("\t") for line in lines]

    @property
    def is_active(self) -> bool:
        return (self.root / "active").exists()


SPOKEN = [("active locally", ""), ("1", "0"), ("1", "-1"), ("active locally", "unknown")]
"""What lvs says of what is active, and of what is not or may not be, by lvm.conf."""


@pytest.fixture(params=SPOKEN)
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Group:
    for name, word in zip(("yes", "no"), request.param, strict=True):
        (tmp_path / name).write_text(word)
    row = {**ROW, "lv_active_locally": "ACTIVE", "lv_device_open": "OPEN"}
    (tmp_path / "row").write_text(json.dumps(row))
    (tmp_path / "open-word").write_text("1" if request.param[0] == "1" else "open")
    for name, body in STAND_INS.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncd {tmp_path}\n{body}")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return Group(tmp_path)


def saying(**lines: str) -> ProfileCommands:
    found = {f"{PLACE}.{name}": (line,) for name, line in lines.items()}
    return ProfileCommands(file_system="xfs", lines=found)


SHARED = saying(
    activate="--activate ys $VG_NAME/$LV_NAME", deactivate="--activate n $VG_NAME/$LV_NAME"
)
REMOVED = ["lvremove", "-y", "--config", "devices{issue_discards=1}", "vg/a"]


@pytest.mark.parametrize(
    ("profile", "words"),
    [(NO_COMMANDS, ["-ay", "vg/a"]), (SHARED, ["--activate", "ys", "vg/a"])],
)
def test_a_volume_is_activated_once_as_its_profile_says_it(
    group: Group, profile: ProfileCommands, words: list[str]
) -> None:
    assert group.device(profile) == "/dev/vg/a"
    assert group.ran() == [["lvchange", "-K", *words]]
    for other in (profile, NO_COMMANDS):
        assert group.device(other) == "/dev/vg/a"
    assert group.ran() == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "--permission r $VG_NAME/$LV_NAME",
            "lvChange.activate of the profile has not activated vg/a",
        ),
        *(
            (line, "lvChange.activate of the profile does not change vg/a alone")
            for line in (
                "--activate y other/b",
                "--activate y $VG_NAME",
                "--activate y $VG_NAME $LV_NAME",
                "--activate y /dev/$VG_NAME $VG_NAME/$LV_NAME",
            )
        ),
        ("--activate y $POOL_NAME", r"\$POOL_NAME has no value here"),
    ],
)
def test_a_line_that_activates_no_such_volume_fails_for_good(
    group: Group, line: str, why: str
) -> None:
    with pytest.raises(NodeTrouble, match=why) as caught:
        group.device(saying(activate=line))
    assert caught.value.fatal


def test_a_volume_is_deactivated_as_its_profile_says_it_and_surely(group: Group) -> None:
    group.device(SHARED)
    group.ran()
    group.give_back(SHARED)
    assert group.ran() == [
        ["lvchange", "--activate", "n", "vg/a"],
        ["lvchange", "-an", "vg/a"],
        REMOVED,
    ]
    assert not group.is_active
    group.give_back(SHARED)
    assert group.ran() == []


def test_what_is_not_active_has_nothing_run_on_it_before_it_goes(group: Group) -> None:
    group.give_back(SHARED)
    assert group.ran() == [["lvchange", "-an", "vg/a"], REMOVED]


def test_a_line_that_names_the_group_changes_no_other_volume_of_it(group: Group) -> None:
    with pytest.raises(NodeTrouble, match="does not change vg/a alone"):
        group.device(saying(activate="--activate y $VG_NAME"))
    assert group.ran() == []
    group.device()
    group.ran()
    group.give_back(saying(deactivate="--activate n $VG_NAME"))
    assert group.ran() == [["lvchange", "-an", "vg/a"], REMOVED]


@pytest.mark.parametrize(
    "line", ["--nonsense other/b", "--activate n $POOL_NAME", "--permission r $VG_NAME/$LV_NAME"]
)
def test_a_line_that_deactivates_nothing_keeps_no_volume(group: Group, line: str) -> None:
    group.device()
    group.give_back(saying(deactivate=line))
    assert group.ran()[-2:] == [["lvchange", "-an", "vg/a"], REMOVED]
    assert not group.is_active


@pytest.mark.parametrize("is_open", [True, False])
def test_a_volume_that_is_in_use_stays_whatever_its_profile_says(
    group: Group, is_open: bool
) -> None:
    """It is told apart from one that cannot be deactivated for a fault of the rabbit's."""
    group.device()
    (group.root / "fail-lvchange").touch()
    if is_open:
        (group.root / "opened").touch()
    with pytest.raises(NodeTrouble, match="lvchange: no") as end:
        group.give_back(SHARED)
    assert isinstance(end.value, Kept) is is_open
    assert REMOVED not in group.ran()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_volume_is_kept_if_it_is_in_use_and_not_if_its_flash_fails(
    group: Group, is_open: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that a rabbit is Disabled, or is not, for the job's storage (ADR 110)."""
    group.device()
    (group.root / "fail-lvchange").touch()
    if is_open:
        (group.root / "opened").touch()
    flash = BlockFlash(lambda _: group.disk, group.root, grace_period=GracePeriod(seconds=0))

    async def devices(disk: VolumeGroup, name: str) -> list[str]:
        return ["/dev/null"]

    monkeypatch.setattr(VolumeGroup, "devices", devices)
    with pytest.raises(NodeTrouble, match=r"r0/a is kept by .*lvchange: no") as end:
        asyncio.run(flash.release("r0", "a"))
    assert isinstance(end.value, Kept) is is_open


@pytest.mark.parametrize("profile", [SHARED, NO_COMMANDS])
def test_after_a_start_of_its_machine_a_volume_is_activated_by_its_profile_alone(
    group: Group, profile: ProfileCommands, tmp_path: Path
) -> None:
    """Where the profile says nothing, it is when it is mounted."""
    volume = Volume(
        rabbit="r0", name="a", size=4096, file_system="xfs", userid=5, groupid=6, commands=profile
    )
    asyncio.run(BlockFlash(lambda rabbit: group.disk, tmp_path).make(volume))
    wanted = [["lvchange", "-K", "--activate", "ys", "vg/a"]]
    assert group.ran() == (wanted if profile else [])
