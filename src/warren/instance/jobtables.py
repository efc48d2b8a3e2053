"""The tables of jobs: commands around them, signals and directories, what is remembered."""

from typing import Annotated, Final

import msgspec

from warren.lifecycle import tables
from warren.lifecycle.tables import (
    Duration,
    Table,
    check_absolute,
    check_durations,
    check_kill_timeout,
)

_LEAST_TMPDIR_BYTES: Final = 2**20


class PerilogTable(Table, frozen=True):
    """Tables `job-manager.prolog` and `job-manager.epilog`: a command around each job."""

    command: tuple[str, ...] = ()
    per_rank: bool = False
    timeout: Duration | None = None
    """FSD or seconds; 0 is no limit. Without one a prolog has 30m, an epilog no limit."""
    kill_timeout: Duration = 60.0
    cancel_on_exception: bool | None = None
    """Whether an exception cancels it; None is yes for a prolog, and no for an epilog."""
    exit_on_first_error: bool = False
    """Whether, with `per-rank`, the first failure on a node ends the commands of the others."""

    def __post_init__(self) -> None:
        check_durations(self, "timeout", "kill_timeout")
        check_kill_timeout(self.kill_timeout)


class HousekeepingTable(Table, frozen=True):
    """Table `job-manager.housekeeping`: known, but refused where it names a command."""

    command: tuple[str, ...] = ()
    release_after: Duration | None = None

    def __post_init__(self) -> None:
        check_durations(self, "release_after")
        if self.command:
            raise ValueError("command is not offered: make it an epilog's command, with per-rank")


class JobManagerTable(Table, frozen=True):
    """Table `job-manager`."""

    prolog: PerilogTable = PerilogTable()
    epilog: PerilogTable = PerilogTable()
    housekeeping: HousekeepingTable = HousekeepingTable()
    inactive_age_limit: Duration | None = None
    """FSD or seconds after which inactive jobs are purged; None keeps them."""
    inactive_num_limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many inactive jobs are kept; None keeps all."""
    archive: str | None = None
    """A file that jobs are appended to before they are purged; None is no archive."""

    def __post_init__(self) -> None:
        check_durations(self, "inactive_age_limit")
        check_absolute("archive", self.archive)


class ExecTable(Table, frozen=True):
    """Table `exec`."""

    kill_timeout: Duration = 5.0
    """FSD or seconds between one signal to a job's tasks and a stronger one."""
    max_kill_count: Annotated[int, msgspec.Meta(ge=1)] = 8
    """After so many SIGKILLs the nodes of what does not die are drained."""
    rundir: str | None = None
    """Where jobs have their directories, FLUX_JOB_TMPDIR; None is the state directory."""
    tmpdir_limit: Annotated[int, msgspec.Meta(ge=0)] = 64 * 2**20
    """Bytes that such a directory has, in memory, where root runs the instance.

    0 makes it a plain one, which may be as large as the file system that it is on.
    """

    @property
    def kill_seconds(self) -> float:
        return tables.seconds(self.kill_timeout)

    def __post_init__(self) -> None:
        check_durations(self, "kill_timeout")
        check_kill_timeout(self.kill_timeout)
        check_absolute("rundir", self.rundir)
        if 0 < self.tmpdir_limit < _LEAST_TMPDIR_BYTES:
            raise ValueError(
                f"tmpdir-limit is {self.tmpdir_limit}: it is at least {_LEAST_TMPDIR_BYTES} bytes, "
                "or 0 for no limit"
            )
