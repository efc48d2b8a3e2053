"""The state directory, its locks, and the site that it was made for."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from warren.base.errors import UserMistake
from warren.daemons import site as sites
from warren.daemons.site import Site
from warren.daemons.statedir import StateDir, held, holder


def test_the_directory_is_its_owners_alone(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "deep" / "state")
    state.prepare()

    assert stat.S_IMODE(state.path.stat().st_mode) == 0o700


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UserMistake, match="file/state cannot be made"):
        StateDir(tmp_path / "file" / "state").prepare()


def test_a_lock_names_its_holder_and_keeps_others_out(tmp_path: Path) -> None:
    lock = tmp_path / "lock"

    with held(lock):
        assert holder(lock) == os.getpid()
        with pytest.raises(BlockingIOError), held(lock):
            pass
    assert holder(lock) is None


def test_the_kernel_lets_go_of_a_lock_when_its_holder_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom warren.daemons.statedir import held\n"
        "with held(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert holder(lock) == process.pid
        process.kill()
        process.wait()

    assert holder(lock) is None


def test_a_cluster_that_does_not_run_has_no_status(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.announce(pid=os.getpid())

    assert state.status() is None
    with held(state.lock):
        assert state.status() == {"pid": os.getpid()}


def test_what_a_killed_predecessor_has_said_is_not_the_status(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.announce(pid=os.getpid() + 1)

    with held(state.lock):
        assert state.status() is None


def test_a_site_is_remembered(tmp_path: Path) -> None:
    site = Site(rabbits=3, computes_per_rabbit=2, global_file_systems=("/data",))
    sites.save(tmp_path / "site.json", site)

    assert sites.load(tmp_path / "site.json") == site
    assert sites.load(tmp_path / "other.json") is None


def test_a_broken_site_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "site.json").write_text('{"rabbits": "two"}')

    with pytest.raises(UserMistake, match=r"site\.json: .*rabbits"):
        sites.load(tmp_path / "site.json")


def test_compute_nodes_are_numbered_through() -> None:
    chassis = Site(rabbits=2, computes_per_rabbit=2).chassis()

    assert [each.rabbit for each in chassis] == ["rabbit-0", "rabbit-1"]
    assert chassis[1].hosts == ("compute-02", "compute-03")
