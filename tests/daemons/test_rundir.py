"""Where the directories of jobs are, and what bounds them."""

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.base.test_fuse import silent_of
from tests.harness import users
from warren.base.errors import UserMistake
from warren.daemons import rundir
from warren.daemons.statedir import StateDir, hold_lock
from warren.instance import config
from warren.instance.config import Config
from warren.instance.shell import tmpdir

MIB = 2**20
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts file systems")


@pytest.fixture
def state() -> Iterator[StateDir]:
    """A state directory to which all users can come, whose mounts go with the test."""
    with users.common_ground() as ground:
        state = StateDir(ground / "state")
        state.prepare()
        try:
            yield state
        finally:
            rundir.release(state)
        assert str(ground) not in Path("/proc/mounts").read_text()


def given(state: StateDir, limit: int = MIB) -> Path:
    settings = Config()
    rundir.prepare(state, settings)
    directory = rundir.directory(state, settings)
    tmpdir.make_for_user(directory, 1, 0, 1000, 1000, limit)
    return tmpdir.job_directory(directory, 1, 0)


def test_it_is_in_the_state_directory_and_all_users_may_go_through(state: StateDir) -> None:
    rundir.prepare(state, Config())
    rundir.prepare(state, Config())

    assert rundir.directory(state, Config()) == state.tmp
    assert stat.S_IMODE(state.tmp.stat().st_mode) == 0o711


def test_it_may_be_elsewhere_and_each_cluster_has_its_own_there(
    state: StateDir, tmp_path: Path
) -> None:
    settings = config.parse(f'exec.rundir = "{tmp_path}"\nexec.tmpdir-limit = 0')
    rundir.prepare(state, settings)

    directory = rundir.directory(state, settings)
    assert directory.parent == tmp_path
    assert directory.is_dir()
    assert directory != rundir.directory(StateDir(tmp_path), settings)


@pytest.mark.parametrize("end", ["down", "up"])
def test_what_was_mounted_goes_though_the_configuration_names_another_place_by_now(
    state: StateDir, tmp_path: Path, end: str
) -> None:
    """As after `warren config reload`, which says that it holds from the next start on."""
    (tmp_path / "new").mkdir()
    old = config.parse(f'exec.rundir = "{tmp_path}"')
    new = f'exec.rundir = "{tmp_path}/new"'
    rundir.prepare(state, old)
    state.config_file.write_text(new)

    if end == "down":
        rundir.release(state)
    else:
        rundir.prepare(state, config.parse(new))

    assert not rundir.directory(state, old).exists()
    assert rundir.directory(state, config.parse(new)).exists() == (end == "up")


def test_a_place_that_is_not_there_is_refused(state: StateDir, tmp_path: Path) -> None:
    settings = config.parse(f'exec.rundir = "{tmp_path}/none"')

    with pytest.raises(UserMistake, match=f"Jobs cannot have their directories in {tmp_path}/none"):
        rundir.prepare(state, settings)


def test_a_link_in_its_place_is_refused(state: StateDir, tmp_path: Path) -> None:
    settings = config.parse(f'exec.rundir = "{tmp_path}"')
    rundir.directory(state, settings).symlink_to(tmp_path)

    with pytest.raises(UserMistake, match="is not a directory of user"):
        rundir.prepare(state, settings)


def test_a_place_that_guests_cannot_reach_is_refused(state: StateDir, tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    settings = config.parse(f'exec.rundir = "{tmp_path}/closed"\naccess.allow-guest-user = true\n')

    with pytest.raises(UserMistake, match=f"{tmp_path}.* is closed to them"):
        rundir.prepare(state, settings)


@root
def test_a_directory_takes_so_many_bytes_and_files_and_no_more(state: StateDir) -> None:
    path = given(state)

    with (path / "file").open("wb") as file, pytest.raises(OSError, match="No space left"):
        file.write(b"x" * 2 * MIB)
    (path / "file").unlink()
    with suppress(OSError):
        for number in range(2000):
            (path / str(number)).touch()
    assert len(list(path.iterdir())) < 1024
    assert (path.stat().st_uid, stat.S_IMODE(path.stat().st_mode)) == (1000, 0o700)


@root
def test_a_directory_goes_with_all_that_is_in_it_even_if_it_is_in_use(state: StateDir) -> None:
    path = given(state)
    (path / "a").mkdir()
    with (path / "a" / "file").open("w") as file:
        assert tmpdir.remove(state.tmp, 1, 0) is None
        file.write("still")
    assert list(state.tmp.iterdir()) == []

    given(state)
    tmpdir.sweep(state.tmp)
    assert list(state.tmp.iterdir()) == []


@root
@pytest.mark.parametrize("remove", [lambda top: tmpdir.remove(top, 1, 0), tmpdir.sweep])
def test_a_directory_goes_with_what_its_user_has_mounted_there_and_root_may_not_enter(
    state: StateDir, remove: Callable[[Path], object]
) -> None:
    path = given(state)
    with silent_of(1000, path):
        with pytest.raises(PermissionError):
            path.stat()
        remove(state.tmp)
        assert list(state.tmp.iterdir()) == []


@root
def test_another_shell_of_a_job_has_a_directory_where_its_user_has_mounted_something(
    state: StateDir,
) -> None:
    path = given(state)
    with silent_of(1000, path):
        given(state)
        assert path.stat().st_uid == 1000


@root
def test_a_directory_of_a_shell_before_it_is_made_anew(state: StateDir) -> None:
    (given(state) / "file").touch()

    assert list(given(state).iterdir()) == []


@root
def test_every_namespace_sees_what_is_mounted_later(state: StateDir) -> None:
    rundir.prepare(state, Config())
    words = "echo ready; read go; ls -d $0; read end"
    unshare = ["unshare", "--mount", "--propagation", "slave", "sh", "-c", words]
    path = tmpdir.job_directory(state.tmp, 1, 0)
    with subprocess.Popen(
        [*unshare, f"{path}/file"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as inside:
        assert inside.stdin is not None
        assert inside.stdout is not None
        inside.stdout.readline()
        (given(state) / "file").touch()
        inside.stdin.write("go\n")
        inside.stdin.flush()
        assert inside.stdout.readline() == f"{path}/file\n"
        inside.stdin.close()


@root
def test_without_a_limit_directories_are_plain(state: StateDir) -> None:
    rundir.prepare(state, config.parse("exec.tmpdir-limit = 0"))
    tmpdir.make_for_user(state.tmp, 1, 0, 1000, 1000, 0)

    assert not tmpdir.job_directory(state.tmp, 1, 0).is_mount()


@root
def test_what_running_jobs_have_is_left_as_it_is(state: StateDir) -> None:
    state.tmp.mkdir()
    (state.tmp / "jobtmp-0-f1").mkdir()
    with hold_lock(state.shells_lock):
        rundir.prepare(state, Config())
        assert (state.tmp / "jobtmp-0-f1").is_dir()

    rundir.prepare(state, Config())
    path = given(state)
    with hold_lock(state.shells_lock):
        rundir.prepare(state, config.parse("exec.tmpdir-limit = 0"))
        assert path.is_mount()
    rundir.prepare(state, config.parse("exec.tmpdir-limit = 0"))
    assert not state.tmp.is_mount()


@root
def test_to_release_it_is_to_unmount_everything(state: StateDir) -> None:
    given(state)
    rundir.release(state)
    rundir.release(state)

    assert not state.tmp.is_mount()
