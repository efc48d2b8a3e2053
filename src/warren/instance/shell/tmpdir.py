"""A directory of a job's own on each node, FLUX_JOB_TMPDIR, and the files that the job brought.

It is made before the tasks start and removed when the shell ends. A shell that is killed
cannot remove it: the next parent of shells does (`sweep`), when no shell lives.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from warren.instance.shell.archive import BadArchive, extract
from warren.instance.shell.options import CannotRun
from warren.instance.shell.plugins import RunningShell, ShellPlugin
from warren.rfc import fluid, jobspec

VARIABLE: Final = "FLUX_JOB_TMPDIR"


class Tmpdir(ShellPlugin):
    """The plugin. Directories are made below `root`, which is there and which users may write."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: Path | None = None

    async def init(self, shell: RunningShell) -> None:
        path = place(self._root, shell.part.job, shell.part.rank)
        try:
            if path.exists() and path.lstat().st_uid == os.geteuid():
                _remove(path)  # of a shell before this one
            path.mkdir(0o700)
        except OSError as error:
            raise CannotRun(f"the job's directory {path}: {error.strerror}") from error
        self._made = path
        shell.environment[VARIABLE] = str(path)
        files = jobspec.system(shell.part.jobspec).get("files")
        if files is not None:
            try:
                extract(files, path)
            except BadArchive as error:
                raise CannotRun(f"attributes.system.files: {error}") from error
            except OSError as error:
                raise CannotRun(f"files of the job: {error.filename}: {error.strerror}") from error

    def exit(self, shell: RunningShell) -> None:
        if self._made is not None:
            _remove(self._made)


def place(root: Path, job: int, rank: int) -> Path:
    """Give where a shell's directory is."""
    return root / f"jobtmp-{rank}-{fluid.f58plain(job)}"


def remove(root: Path, job: int, rank: int) -> None:
    """Remove what a shell that is dead has left. Nothing may be left; that is no trouble."""
    _remove_others(place(root, job, rank))


def sweep(root: Path) -> None:
    """Remove what all shells have left, of which none lives."""
    for path in root.glob("jobtmp-*"):
        _remove_others(path)


def _remove_others(path: Path) -> None:
    if os.geteuid() == 0:
        # Root needs no permission of the directory's owner, who may be at work in it still:
        # nothing but what removes by name within an open directory is safe.
        shutil.rmtree(path, ignore_errors=True)
    else:
        _remove(path)


def _remove(path: Path) -> None:
    def unlock(function: Callable[..., Any], name: str, why: Any) -> None:
        # A directory that nobody may write: it is ours, so that we may let us.
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
        shutil.rmtree(path, onerror=_quiet(unlock))


def _quiet(function: Callable[..., None]) -> Callable[..., None]:
    def call(*about: Any) -> None:
        try:
            function(*about)
        except OSError:
            return  # what cannot be removed is left, with its name that tells whose it was

    return call
