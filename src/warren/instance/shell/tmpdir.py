"""A directory of a job's own on each node, FLUX_JOB_TMPDIR, and the files that the job brought.

It is made before the tasks start and removed when the shell ends. A shell that is killed
cannot remove it: the parent of shells does (`remove`), or the next one (`sweep`), when no
shell lives. Where shells are of several users, only root makes names there, which all users
can foresee: the parent makes a user's directory (`make_for_user`), and removes it.

Where root has mounted a file system on `rundir`, each is one as well, in memory and
of a size: no job fills the disk by it, or takes the room of another job (ADR 030).
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from warren.instance.shell import tmpfs
from warren.instance.shell.archive import BadArchive, extract
from warren.instance.shell.options import CannotRun
from warren.instance.shell.plugins import RunningShell, ShellPlugin
from warren.rfc import fluid, jobspec

VARIABLE: Final = "FLUX_JOB_TMPDIR"


class Tmpdir(ShellPlugin):
    """The plugin. Directories are made below `rundir`, unless `make_for_user` has made them."""

    def __init__(self, rundir: Path) -> None:
        self._rundir = rundir
        self._directory: Path | None = None

    async def init(self, shell: RunningShell) -> None:
        path = job_directory(self._rundir, shell.info.job, shell.info.rank)
        try:
            _make(path)
        except OSError as error:
            raise CannotRun(f"the job's directory {path}: {error.strerror}") from error
        self._directory = path
        shell.environment[VARIABLE] = str(path)
        files = jobspec.system(shell.info.jobspec).get("files")
        if files is not None:
            try:
                extract(files, path)
            except BadArchive as error:
                raise CannotRun(f"attributes.system.files: {error}") from error
            except OSError as error:
                raise CannotRun(f"files of the job: {error.filename}: {error.strerror}") from error

    def exit(self, shell: RunningShell) -> None:
        if self._directory is not None and not self._directory.is_mount():
            _remove(self._directory)


def job_directory(rundir: Path, job: int, rank: int) -> Path:
    """Return where a shell's directory is."""
    return rundir / f"jobtmp-{rank}-{fluid.f58plain(job)}"


def make_for_user(
    rundir: Path, job: int, rank: int, userid: int, gid: int, limit_bytes: int
) -> None:
    """As root: make the directory of a user's shell, of `limit_bytes`. Raises OSError."""
    path = job_directory(rundir, job, rank)
    _detach(path)
    if path.exists():  # of a shell before this one
        subprocess.run(_removal_command(path), check=False)
    path.mkdir(0o700)
    os.chown(path, userid, gid)
    if rundir.is_mount():
        tmpfs.mount(path, limit_bytes, userid, gid)


def remove(rundir: Path, job: int, rank: int) -> int | None:
    """Remove what a shell that is dead has left, if anything.

    Return the id of the process that does it where that may take long; it is to be waited for.
    """
    path = job_directory(rundir, job, rank)
    _detach(path)
    try:
        path.rmdir()  # nearly always empty
    except FileNotFoundError:
        return None
    except OSError:
        if os.geteuid() == 0:
            with suppress(OSError):
                return os.posix_spawnp("rm", _removal_command(path), os.environ)
            return None  # the next sweep removes it: no root goes through a user's tree by paths
        _remove(path)
    return None


def sweep(rundir: Path) -> None:
    """Remove what all shells have left, of which none lives."""
    for path in rundir.glob("jobtmp-*"):
        _detach(path)
        if os.geteuid() == 0:
            subprocess.run(_removal_command(path), check=False)
        else:
            _remove(path)


def _detach(path: Path) -> None:
    """Detach a directory's own file system, with all that is in it, if it has one.

    It is not asked for: its user may have mounted something of a server's there, which answers
    root with an error, or not at all (fuse(4)).
    """
    if os.geteuid() == 0:
        with suppress(OSError):  # then what is in it is removed
            tmpfs.detach(path)


def _removal_command(path: Path) -> list[str]:
    """Return the command by which root removes a user's tree.

    The user's processes may still write to it, and make it as large and as deep as they like.
    """
    return ["rm", "-rf", "--", str(path)]


def _make(path: Path) -> None:
    try:
        path.mkdir(0o700)
    except FileExistsError:
        if path.lstat().st_uid != os.geteuid():
            raise
        if path.is_mount():
            return  # made just now, with nothing in it
        # Of a shell before this one; or made for us where we may make none.
        _remove(path)
        with suppress(FileExistsError):
            path.mkdir(0o700)


def _remove(path: Path) -> None:
    def unlock(function: Callable[..., Any], name: str, why: Any) -> None:
        # A directory without write permission: it is ours, so that we may set it.
        for locked in (Path(name).parent, Path(name)):
            if locked.is_relative_to(path) and locked.is_dir() and not locked.is_symlink():
                locked.chmod(0o700)
        if function in (os.unlink, os.rmdir):
            function(name)
        else:
            shutil.rmtree(name, ignore_errors=True)

    try:
        path.rmdir()  # nearly always empty
    except FileNotFoundError:
        return
    except OSError:
        with suppress(RecursionError):  # so deep a tree is a mistake
            shutil.rmtree(path, onerror=_ignoring_errors(unlock))


def _ignoring_errors(function: Callable[..., None]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        try:
            function(*arguments)
        except OSError:
            return  # what cannot be removed is left; its name has the job's id

    return call
