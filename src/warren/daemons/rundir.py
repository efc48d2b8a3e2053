"""Where the directories of jobs are, FLUX_JOB_TMPDIR, and the file system in memory that
bounds what they hold (ADR 030)."""

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from warren.base import log
from warren.base.errors import UserMistake
from warren.daemons.statedir import StateDir, lock_holder
from warren.instance import config as configuration
from warren.instance.config import Config
from warren.instance.shell import tmpfs
from warren.journal import files


def directory(state_dir: StateDir, config: Config) -> Path:
    """Return the directory of all jobs' directories: of this cluster alone, wherever it is."""
    if config.exec.rundir is None:
        return state_dir.tmp
    digest = hashlib.sha256(os.fsencode(state_dir.path)).hexdigest()[:16]
    return Path(config.exec.rundir, f"warren-{digest}")


def prepare(state_dir: StateDir, config: Config) -> None:
    """Make the directory, and bound what jobs write there. Raises UserMistake where it cannot be.

    What outlives us is left as it is: running jobs have their directories there. May be repeated.
    """
    path = directory(state_dir, config)
    if config.exec.rundir is not None and config.access.allow_guest_user:
        _check_reachable(path)
    try:
        _make(path)
        if is_in_use(state_dir):
            return
        _release_recorded(state_dir, except_for=path)
        files.replace(state_dir.rundir_record, os.fsencode(path))
        is_bounded = os.geteuid() == 0 and config.exec.tmpdir_limit > 0
        if os.geteuid() == 0 and path.is_mount() and not is_bounded:
            tmpfs.detach(path)
    except OSError as error:
        raise UserMistake(
            f"Jobs cannot have their directories in {path}: {error.strerror}. Set exec.rundir to a "
            "directory that is there."
        ) from error
    if is_bounded and not path.is_mount():
        try:
            tmpfs.mount_shared(path)
        except OSError as error:
            log.warning("directories of jobs are not bounded", why=error.strerror, path=str(path))


def release(state_dir: StateDir) -> None:
    """Unmount what bounds the directories, when no job runs any more, and remove theirs.

    The configuration may name another directory by now.
    """
    _release_recorded(state_dir)
    try:
        _release(state_dir, directory(state_dir, configuration.load(state_dir.config_file)))
    except UserMistake:
        _release(state_dir, state_dir.tmp)


def _release_recorded(state_dir: StateDir, *, except_for: Path | None = None) -> None:
    with suppress(FileNotFoundError):
        path = Path(os.fsdecode(state_dir.rundir_record.read_bytes()))
        if path != except_for:
            _release(state_dir, path)
            state_dir.rundir_record.unlink()


def _release(state_dir: StateDir, path: Path) -> None:
    if os.geteuid() == 0:
        for each in {path, state_dir.tmp}:
            try:
                if each.is_mount():
                    tmpfs.detach(each)
            except OSError as error:
                log.warning("directories stay mounted", why=error.strerror, path=str(each))
    if path != state_dir.tmp:
        with suppress(OSError):  # it is not there, or not empty
            path.rmdir()


def _make(path: Path) -> None:
    """Make a directory through which all users may go to their own, and none foresee another's."""
    try:
        path.mkdir()
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise UserMistake(
                f"{path} is not a directory of user {os.geteuid()}, who would keep the directories "
                "of jobs there: remove it."
            ) from None
    path.chmod(0o711)


def _check_reachable(path: Path) -> None:
    for parent in path.parents:
        if parent.exists() and not parent.stat().st_mode & stat.S_IXOTH:
            raise UserMistake(
                f"Jobs of guests cannot reach {path}: {parent} is closed to them. Set exec.rundir "
                "to a directory that all users may go through."
            )


def is_in_use(state_dir: StateDir) -> bool:
    """Return whether something of an earlier life may have jobs' directories in use."""
    if lock_holder(state_dir.shells_lock) is not None:
        return True
    return any(_is_held(record) for record in state_dir.nodes.glob("*/holder"))


def _is_held(record: Path) -> bool:
    return lock_holder(record.with_name("holder.lock")) is not None
