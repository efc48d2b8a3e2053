"""Cgroups of jobs: a job's processes on one node, known and killed together.

A process leaves neither its session nor its parent nor its environment behind and escapes:
its cgroup stays. There is nothing to limit in them, so any hierarchy serves: version 2, or
the freezer of version 1, as the machine has it. They are made below the cgroup that this
process is in, which is as far as a user may have been given the right to; or if another user has
power over that one, as where root has begun in a user's session, below the nearest above it.
"""

import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from warren.base import cgrouptrees
from warren.base.processes import send_signal

_FREEZE_CHECKS: Final = 50
_FREEZE_CHECK_PAUSE: Final = 0.001
"""Seconds between two looks whether a cgroup is frozen."""


class Cgroup:
    """One cgroup."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def enter(self) -> None:
        """Put this process in, and whatever it will start. Raises OSError."""
        _write(self._path / "cgroup.procs", "0")

    def pids(self) -> list[int]:
        """Return the processes that are in it, or below it."""
        found: list[int] = []
        for directory in self._subtree():
            with suppress(OSError):
                found += _pids(directory)
        return found

    def kill(self) -> None:
        """Kill all that is in it, once; what is being forked meanwhile comes with the next call."""
        try:
            _write(self._path / "cgroup.kill", "1")
        except FileNotFoundError:
            for directory in self._subtree():
                _kill_one(directory)

    def remove(self) -> bool:
        """Remove it if nothing is left in it; return whether it is gone."""
        try:
            os.rmdir(self._path)
        except FileNotFoundError:
            return True
        except OSError:
            if self.pids():
                return False
            for directory in self._subtree():
                with suppress(OSError):
                    os.rmdir(directory)
            return not self._path.exists()
        return True

    def children(self) -> Iterator[tuple[str, "Cgroup"]]:
        """Return the cgroups that are directly in it, by name."""
        with suppress(OSError):
            for entry in self._path.iterdir():
                if entry.is_dir():
                    yield entry.name, Cgroup(entry)

    def _subtree(self) -> list[Path]:
        """Return the cgroup and those in it, the innermost first."""
        return [Path(directory) for directory, _, _ in os.walk(self._path, topdown=False)]


class Cgroups:
    """Makes the cgroups of one cluster's jobs."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._made_count = 0

    def make(self, name: str) -> Cgroup:
        """Make a cgroup, of a name that is no other's. Raises OSError."""
        while True:
            self._made_count += 1
            path = self._base / f"{name}.{self._made_count}"
            try:
                os.mkdir(path)
            except FileExistsError:
                continue  # what a predecessor has in it does not die
            except FileNotFoundError:
                self._base.mkdir(exist_ok=True)
            else:
                return Cgroup(path)


def cluster_cgroups(cluster: str, proc: Path = Path("/proc/self")) -> Cgroups | None:
    """Return the cgroups for a cluster's jobs; None where this process may not make any."""
    for top, own_directory, kill_files in _hierarchies(proc):
        trusted = cgrouptrees.trusted_upwards(own_directory, top, {0, os.geteuid()})
        if not trusted:
            continue
        base = trusted[0] / _name(cluster)
        try:
            base.mkdir(exist_ok=True)
        except OSError:
            continue
        # A process is moved by a user that may write at both ends and where they meet.
        movable = all(
            os.access(each / "cgroup.procs", os.W_OK) for each in (own_directory, trusted[0])
        )
        if movable and any((base / each).exists() for each in kill_files):
            return Cgroups(base)
        base.rmdir()
    return None


def base_cgroups(
    cluster: str, proc: Path = Path("/proc/self"), *, owner: int | None = None
) -> list[Cgroup]:
    """Return the cgroups that those of a cluster's jobs are in, wherever in the hierarchies.

    The cluster is of the user `owner`, or of the one that asks. One that another user than that
    and root has power over is not the cluster's: its name is no secret.
    """
    userids = {0, os.geteuid() if owner is None else owner}
    return [
        Cgroup(base)
        for top in {top for top, _, _ in _hierarchies(proc)}
        for base in cgrouptrees.find_named(top, _name(cluster), userids)
    ]


def job_by_pid(cluster: str, *, owner: int | None = None) -> dict[int, int]:
    """Return the jobs of a cluster by their processes: `make` had names `JOB-RANK`."""
    return {
        pid: int(job)
        for base in base_cgroups(cluster, owner=owner)
        for name, cgroup in base.children()
        if (job := name.partition("-")[0]).isdecimal()
        for pid in cgroup.pids()
    }


def _name(cluster: str) -> str:
    return f"warren-{hashlib.sha256(cluster.encode()).hexdigest()[:16]}"


def _hierarchies(proc: Path) -> Iterator[tuple[Path, Path, tuple[str, ...]]]:
    """Return the hierarchies that serve, the best first.

    Of each where it is mounted, where this process is in it, and the files of which its cgroups
    have one if this kernel can kill in them.
    """
    for version, controller, kill_files in (
        (2, "", ("cgroup.kill", "cgroup.freeze")),
        (1, "freezer", ("freezer.state",)),
    ):
        for top, own_directory in cgrouptrees.find(version, controller, proc):
            yield top, own_directory, kill_files


def _kill_one(directory: Path) -> None:
    """Kill what is in one cgroup, none of which can run or end while it is looked at."""
    freeze, thaw = {
        True: (("cgroup.freeze", "1"), ("cgroup.freeze", "0")),
        False: (("freezer.state", "FROZEN"), ("freezer.state", "THAWED")),
    }[(directory / "cgroup.freeze").exists()]
    with suppress(OSError):
        _write(directory / freeze[0], freeze[1])
    try:
        for _ in range(_FREEZE_CHECKS):
            if _is_frozen(directory):
                break
            time.sleep(_FREEZE_CHECK_PAUSE)
        send_signal(lambda: _pids(directory), signal.SIGKILL)
    except OSError:
        return  # it was removed
    finally:
        with suppress(OSError):
            _write(directory / thaw[0], thaw[1])


def _pids(directory: Path) -> list[int]:
    # Those of other process namespaces are shown as 0.
    return list(filter(None, map(int, (directory / "cgroup.procs").read_text().split())))


def _is_frozen(directory: Path) -> bool:
    try:
        return (directory / "freezer.state").read_text() == "FROZEN\n"
    except FileNotFoundError:
        return "frozen 1" in (directory / "cgroup.events").read_text()


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
