"""Cgroups of jobs: on each hierarchy that this machine has, or none; and how one is chosen."""

import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.instance.waiting import wait_for
from warren.base.processes import parents
from warren.instance.shell import cgroups
from warren.instance.shell.cgroups import Cgroup, Cgroups

KINDS = {"cgroup.kill": 0, "cgroup.freeze": 0, "freezer": 1}
"""The ways to kill, by the place of their hierarchy in the order of preference."""


def hierarchy(kind: str) -> Path | None:
    """Return where this process is in a hierarchy in which such a kill can be."""
    wanted = "freezer.state" if kind == "freezer" else kind
    for _, ours, files in cgroups._hierarchies(Path("/proc/self")):
        if wanted in files:
            return ours
    return None


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cgroups]:
    """Cgroups of which nothing is left, where killing works in one way."""
    ours = hierarchy(request.param)
    if ours is None:
        pytest.skip(f"there is no hierarchy with {request.param} here")
    base = ours / f"warren-test-{uuid.uuid4()}"
    try:
        base.mkdir()
    except OSError as error:
        pytest.skip(f"this user makes no cgroups: {error.strerror}")
    if request.param == "cgroup.freeze":
        without_kill(monkeypatch)
    yield Cgroups(base)
    for place in base.iterdir():
        if place.is_dir():
            assert Cgroup(place).pids() == []
            assert Cgroup(place).remove()
    base.rmdir()


def without_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be on a kernel that cannot kill a cgroup by itself."""
    write = cgroups._write

    def old(path: Path, text: str) -> None:
        if path.name == "cgroup.kill":
            raise FileNotFoundError(path)
        write(path, text)

    monkeypatch.setattr(cgroups, "_write", old)


def inside(cgroup: Cgroup, script: str) -> "subprocess.Popen[bytes]":
    """Run a script in a cgroup."""
    return subprocess.Popen(["sh", "-c", script], preexec_fn=cgroup.enter)


def ended(cgroup: Cgroup) -> bool:
    cgroup.kill()
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    return cgroup.remove()


WAYS_OUT = {
    "none": "sleep 1000",
    "a session of its own": "setsid sleep 1000",
    "no parent": "(sh -c 'sleep 1000 & sleep 1000' &) ; sleep 1000",
    "no parent, session nor environment": "(env -i setsid sleep 1000 >&- 2>&- &) ; sleep 1000",
    "deaf": "trap '' TERM HUP INT; while :; do sleep 1000; done",
    "stopped": "sleep 1000 & kill -STOP $!; sleep 1000",
    "forking all the time": "while :; do (sleep 1000 &); sleep 0.001; done",
}


@pytest.mark.parametrize("script", WAYS_OUT.values(), ids=WAYS_OUT)
def test_nothing_gets_out_and_all_of_it_is_killed(made: Cgroups, script: str) -> None:
    cgroup = made.make("7-0")
    with inside(cgroup, script) as process:
        wait_for(lambda: len(cgroup.pids()) > script.count("sleep 1000") - 1)
        known = cgroup.pids()
        assert process.pid in known
        assert not cgroup.remove()
        wait_for(lambda: ended(cgroup))
        assert not set(known) & set(parents())


def test_one_is_killed_and_no_other(made: Cgroups) -> None:
    first, second = made.make("7-0"), made.make("7-0")
    with inside(first, "sleep 1000"), inside(second, "sleep 1000") as other:
        wait_for(lambda: first.pids() and second.pids())
        wait_for(lambda: ended(first))
        assert other.poll() is None
        wait_for(lambda: ended(second))


def test_cgroups_within_go_too(made: Cgroups) -> None:
    """Root's own jobs may make some."""
    outer = made.make("7-0")
    inner = outer._path / "inner"
    inner.mkdir()
    with inside(Cgroup(inner), "sleep 1000"):
        wait_for(outer.pids)
        wait_for(lambda: ended(outer))
    assert not inner.exists()


def test_what_is_gone_is_no_trouble(made: Cgroups) -> None:
    cgroup = made.make("7-0")
    assert cgroup.remove()
    cgroup.kill()
    assert cgroup.pids() == []
    assert cgroup.remove()


def test_where_all_of_them_were_removed_new_ones_are_made(made: Cgroups) -> None:
    assert Cgroup(made._base).remove()

    assert made.make("7-0").remove()


# Which hierarchy


def machine(place: Path, cgroup: str, *mounts: str) -> Path:
    """A /proc/self of a machine; cgroup files are in `place`."""
    proc = place / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(cgroup)
    lines = [f"30 1 0:{number} {mount}\n" for number, mount in enumerate(mounts)]
    (proc / "mountinfo").write_text("".join(lines))
    return proc


def found(proc: Path) -> list[tuple[str, str, str]]:
    return [(str(top), str(ours), files[0]) for top, ours, files in cgroups._hierarchies(proc)]


def test_the_second_version_comes_first_and_of_the_first_the_freezer(tmp_path: Path) -> None:
    proc = machine(
        tmp_path,
        "8:freezer,misc:/ours\n4:memory:/elsewhere\n1:name=systemd:/\n0::/deep/ours\n",
        "/ /c/memory rw shared:1 - cgroup cgroup rw,memory",
        "/ /c/freezer rw - cgroup cgroup rw,misc,freezer",
        "/ /c/unified rw shared:2 master:3 - cgroup2 cgroup2 rw",
        "/ /tmp rw - tmpfs tmpfs rw",
    )

    assert found(proc) == [
        ("/c/unified", "/c/unified/deep/ours", "cgroup.kill"),
        ("/c/freezer", "/c/freezer/ours", "freezer.state"),
    ]


def test_a_part_of_a_hierarchy_that_is_mounted_is_enough(tmp_path: Path) -> None:
    proc = machine(tmp_path, "0::/pod/ours\n", "/pod /c rw - cgroup2 cgroup2 rw")

    assert found(proc) == [("/c", "/c/ours", "cgroup.kill")]


def test_another_part_whose_name_begins_the_same_is_not_ours(tmp_path: Path) -> None:
    proc = machine(tmp_path, "0::/pods/ours\n", "/pod /c rw - cgroup2 cgroup2 rw")

    assert found(proc) == []


def test_without_hierarchies_there_are_no_cgroups(tmp_path: Path) -> None:
    for proc in (tmp_path / "nowhere", machine(tmp_path, "", "/ /tmp rw - tmpfs tmpfs rw")):
        assert cgroups.cluster_cgroups("x", proc) is None
        assert cgroups.base_cgroups("x", proc) == []


def test_where_none_can_be_made_there_are_none_and_nothing_stays(tmp_path: Path) -> None:
    """A plain directory is no hierarchy: its files do not come by themselves."""
    proc = machine(tmp_path, "0::/\n", f"/ {tmp_path}/c rw - cgroup2 cgroup2 rw")
    assert cgroups.cluster_cgroups("x", proc) is None

    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "cgroup.procs").touch()
    assert cgroups.cluster_cgroups("x", proc) is None
    assert [each.name for each in (tmp_path / "c").iterdir()] == ["cgroup.procs"]


def test_what_a_predecessor_has_made_elsewhere_is_found(tmp_path: Path) -> None:
    name = cgroups._name("/a/cluster")
    proc = machine(tmp_path, "0::/here\n", f"/ {tmp_path}/c rw - cgroup2 cgroup2 rw")
    for place in (f"c/there/{name}/7-0.1", f"c/there/{cgroups._name('/another')}", "c/here"):
        (tmp_path / place).mkdir(parents=True)

    assert [each._path for each in cgroups.base_cgroups("/a/cluster", proc)] == [
        tmp_path / "c" / "there" / name
    ]


# Other users

OTHER_USER = 12345


@pytest.fixture
def as_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("it takes cgroups of two users")


def session_with_base(place: Path) -> tuple[Path, Path]:
    """A machine's /proc/self, and the cgroup of a cluster's jobs, in a session in a slice."""
    proc = machine(place, "0::/slice/session\n", f"/ {place}/c rw - cgroup2 cgroup2 rw")
    base = place / "c" / "slice" / "session" / cgroups._name("/a/cluster")
    (base / "7-0.1").mkdir(parents=True)
    return proc, base


@pytest.mark.usefixtures("as_root")
@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize(
    ("of", "asked_for", "is_found"),
    [(OTHER_USER, None, False), (OTHER_USER, 0, False), (OTHER_USER, OTHER_USER, True)],
)
def test_a_cgroup_that_another_user_has_power_over_is_no_clusters(
    tmp_path: Path, depth: int, of: int, asked_for: int | None, *, is_found: bool
) -> None:
    """It has a cluster's name, which is no secret, and what is in it is killed as the cluster's."""
    proc, base = session_with_base(tmp_path)
    os.chown([base, *base.parents][depth], of, of)

    found = cgroups.base_cgroups("/a/cluster", proc, owner=asked_for)
    assert [each._path for each in found] == ([base] if is_found else [])


@pytest.mark.usefixtures("as_root")
def test_cgroups_of_other_users_are_not_gone_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc, base = session_with_base(tmp_path)
    os.chown(base.parent, OTHER_USER, OTHER_USER)
    listed: list[str] = []
    scandir = os.scandir

    def noting_scandir(path: str) -> Iterator["os.DirEntry[str]"]:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noting_scandir)

    assert cgroups.base_cgroups("/a/cluster", proc) == []
    assert [Path(each).name for each in listed] == ["c", "slice"]


@pytest.mark.usefixtures("as_root")
def test_cgroups_are_made_where_no_other_user_has_power_over_them(tmp_path: Path) -> None:
    """As where root starts a cluster with sudo in a user's session, which was delegated."""
    proc, base = session_with_base(tmp_path)
    session, above = base.parent, base.parent.parent
    os.chown(session, OTHER_USER, OTHER_USER)
    for each in (session, above):
        (each / "cgroup.procs").touch()
    (above / base.name).mkdir()
    (above / base.name / "cgroup.kill").touch()

    found = cgroups.cluster_cgroups("/a/cluster", proc)
    assert found is not None
    assert found._base == above / base.name
