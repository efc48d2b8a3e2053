"""Volume groups in a guest, where no udevd is."""

import json
import os
import subprocess
from pathlib import Path

CONFIGURATION = """
global {{ use_lvmlockd=0 use_lvmpolld=0 }}
activation {{ monitoring=0 }}
devices {{ use_devicesfile=0 obtain_device_list_from_udev=0 global_filter=[{filters}] }}
backup {{ backup=0 archive=0 }}
"""


def configure(*hidden: str) -> None:
    """Have this process, and those that it starts, use LVM without udevd.

    It takes no notice of devices that are `hidden`.
    """
    system = Path("/run/lvm-conf")
    system.mkdir(exist_ok=True)
    (system / "lvm.conf").write_text(
        CONFIGURATION.format(filters=", ".join([*(f'"r|^{each}$|"' for each in hidden), '"a|.*|"']))
    )
    os.environ |= {"LVM_SYSTEM_DIR": str(system), "DM_DISABLE_UDEV": "1"}


def run(*words: str, text: str | None = None) -> str:
    done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout


def make(group: str, device: str) -> None:
    """Make a volume group of one device."""
    run("vgcreate", "-q", "-y", group, device)


def groups() -> set[str]:
    """Return the volume groups that there are."""
    return set(run("vgs", "--noheadings", "-o", "vg_name").split())


def volumes(group: str) -> set[str]:
    """Return every logical volume of a group."""
    report = json.loads(run("lvs", "--reportformat", "json", "-o", "lv_name", group))
    return {row["lv_name"] for row in report["report"][0]["lv"]}
