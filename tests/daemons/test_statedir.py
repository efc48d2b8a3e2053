"""The state directory, its locks, and the shape of the cluster that it was made for."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import users
from warren.base.errors import UserMistake
from warren.daemons import clustershape
from warren.daemons.clustershape import ClusterShape
from warren.daemons.statedir import StateDir, hold_lock, lock_holder
from warren.journal.sqlite import SqliteJournal
from warren.rpc import sockets


def test_the_directory_is_its_owners_alone(tmp_path: Path) -> None:
    state = StateDir(tmp_path / "deep" / "state")
    state.prepare()

    assert stat.S_IMODE(state.path.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["jobs.db", "objects.db"])
def test_a_directory_that_is_not_new_is_refused_without_what_says_what_it_is(
    tmp_path: Path, name: str
) -> None:
    state = StateDir(tmp_path)
    state.prepare()
    state.check_complete()
    with SqliteJournal(tmp_path / name):
        pass

    with pytest.raises(UserMistake, match=r"site\.json is missing, .* restore it from a copy"):
        state.check_complete()
    clustershape.save(state.shape_file, ClusterShape())
    state.check_complete()


def test_a_directory_in_the_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shells.lock").mkdir()

    with pytest.raises(UserMistake, match=r"shells\.lock is a directory"):
        StateDir(tmp_path).check_complete()


@pytest.mark.parametrize("damage", ["empty", "garbage", "a directory"])
def test_a_site_that_cannot_be_read_is_refused_by_its_name(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "site.json"
    if damage == "a directory":
        path.mkdir()
    else:
        path.write_bytes(b"" if damage == "empty" else b"\xff{")

    with pytest.raises(UserMistake, match=r"site\.json(:| cannot be read)"):
        clustershape.load(path)


def test_what_is_announced_is_the_owners_alone(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.announce(pid=1)
    state.announce(pid=2)

    assert stat.S_IMODE(state.status_file.stat().st_mode) == 0o600


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(UserMistake, match="file/state cannot be made"):
        StateDir(tmp_path / "file" / "state").prepare()


def test_a_lock_names_its_holder_and_keeps_others_out(tmp_path: Path) -> None:
    lock = tmp_path / "lock"

    with hold_lock(lock):
        assert lock_holder(lock) == os.getpid()
        with pytest.raises(BlockingIOError), hold_lock(lock):
            pass
    assert lock_holder(lock) is None


def test_the_kernel_lets_go_of_a_lock_when_its_holder_is_killed(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from warren.daemons.statedir import hold_lock\n"
        "with hold_lock(Path(sys.argv[1])):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(lock)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert lock_holder(lock) == process.pid
        process.kill()
        process.wait()

    assert lock_holder(lock) is None


def test_a_cluster_that_does_not_run_has_no_status(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.announce(pid=os.getpid())

    assert state.status() is None
    with hold_lock(state.lock):
        assert state.status() == {"pid": os.getpid()}


def test_what_a_killed_predecessor_has_said_is_not_the_status(tmp_path: Path) -> None:
    state = StateDir(tmp_path)
    state.announce(pid=os.getpid() + 1)

    with hold_lock(state.lock):
        assert state.status() is None


def test_a_site_is_remembered(tmp_path: Path) -> None:
    shape = ClusterShape(rabbits=3, computes_per_rabbit=2, global_file_systems=("/data",))
    clustershape.save(tmp_path / "site.json", shape)

    assert clustershape.load(tmp_path / "site.json") == shape
    assert clustershape.load(tmp_path / "other.json") is None


def test_a_broken_site_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "site.json").write_text('{"rabbits": "two"}')

    with pytest.raises(UserMistake, match=r"site\.json: .*rabbits"):
        clustershape.load(tmp_path / "site.json")


def test_compute_nodes_are_numbered_through() -> None:
    chassis = ClusterShape(rabbits=2, computes_per_rabbit=2).chassis()

    assert [each.rabbit for each in chassis] == ["rabbit-0", "rabbit-1"]
    assert chassis[1].hosts == ("compute-02", "compute-03")


# Guests


@pytest.fixture
def reachable() -> Iterator[StateDir]:
    """A state directory that all users can come to, and what an older version has left there."""
    with users.common_ground() as ground:
        state = StateDir(ground / "state")
        state.prepare()
        state.announce(pid=os.getpid())
        (state.path / "kubeconfig").touch(0o644)
        (state.path / "users").chmod(0o755)
        yield state


def modes(state: StateDir) -> set[int]:
    return {stat.S_IMODE(entry.lstat().st_mode) & 0o077 for entry in state.path.iterdir()}


def test_guests_go_through_the_directory_and_everything_else_is_closed(
    reachable: StateDir,
) -> None:
    reachable.set_guest_access(guests=True)
    assert stat.S_IMODE(reachable.path.stat().st_mode) == 0o711
    assert modes(reachable) == {0}

    with socket_at(reachable):
        reachable.set_guest_access(guests=True)
        assert stat.S_IMODE(reachable.socket.stat().st_mode) == 0o666

    reachable.set_guest_access(guests=False)
    assert stat.S_IMODE(reachable.path.stat().st_mode) == 0o700


@contextmanager
def socket_at(state: StateDir) -> Iterator[None]:
    with sockets.listen(state.socket, 0o666):
        yield
    sockets.remove(state.socket)


def test_a_link_is_not_followed_when_things_are_closed(reachable: StateDir) -> None:
    target = reachable.path.parent / "target"
    target.touch(0o644)
    (reachable.path / "link").symlink_to(target)
    reachable.set_guest_access(guests=True)

    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_a_directory_that_guests_cannot_reach_is_refused_by_the_name_of_what_is_closed(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o700)
    state = StateDir(tmp_path / "state")
    state.prepare()

    with pytest.raises(UserMistake, match=f"Guests cannot reach {state.path}: {tmp_path} is clo"):
        state.set_guest_access(guests=True)


real = pytest.mark.skipif(users.why_not() is not None, reason=str(users.why_not()))


@real
def test_a_guest_learns_that_the_cluster_runs_and_no_more(reachable: StateDir) -> None:
    guest, _ = users.userids()

    def status() -> object:
        return [reachable.status(), reachable.is_closed]

    assert users.acting_as(guest, status) == [None, True]
    reachable.set_guest_access(guests=True)
    assert users.acting_as(guest, status) == [None, False]
    with socket_at(reachable):
        assert users.acting_as(guest, status) == [{}, False]


@real
def test_another_users_directory_is_no_place_for_a_cluster(reachable: StateDir) -> None:
    guest, _ = users.userids()

    def prepared() -> str:
        with pytest.raises(UserMistake) as mistake:
            reachable.prepare()
        return str(mistake.value)

    reachable.set_guest_access(guests=True)
    assert users.acting_as(guest, prepared) == (
        f"The state directory {reachable.path} is user 0's, who alone may do this: name another "
        "directory with --statedir or WARREN_STATEDIR."
    )


@real
def test_root_may_do_what_the_owner_may(reachable: StateDir) -> None:
    os.chown(reachable.path, *[users.userids()[0]] * 2)

    reachable.prepare()
    reachable.check_owner()
