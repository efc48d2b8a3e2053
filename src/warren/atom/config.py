"""The configuration of the ATOM service: one TOML file, and everything has its default."""

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec

from warren.base.errors import UserMistake
from warren.lifecycle import tables
from warren.lifecycle.tables import Duration, Table, check_durations

DEFAULT_SOCKET: Final = Path("/var/run/atomd/atomd.sock")
"""Where PBS's hook asks, unless it is configured otherwise."""


class SiteCommand(Table, frozen=True):
    """A command at the start or at the end of each job."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    timeout: Duration = 20.0
    """FSD or seconds. Those of all start commands, and the wait for a slot, together must be less
    than the timeout of PBS's hook."""

    @property
    def timeout_seconds(self) -> float:
        return tables.seconds(self.timeout)

    def __post_init__(self) -> None:
        check_durations(self, "timeout")
        if self.timeout_seconds in (0, float("inf")):
            raise ValueError("timeout: every command needs a limit that is more than 0")
        if any("\0" in argument for argument in self.command):
            raise ValueError("command: no program can be given a NUL character")
        program = self.command[0]
        is_executable = os.path.isfile(program) and os.access(program, os.X_OK)
        if not os.path.isabs(program) or not is_executable:
            raise ValueError(
                f"command: {program} is not the absolute path of a program that can be executed"
            )


class Config(Table, frozen=True):
    """The configuration of the service."""

    socket: str | None = None
    """Where the service listens; None is the usual path."""
    socket_mode: Annotated[int, msgspec.Meta(ge=0, le=0o777)] = 0o600
    socket_group: str | None = None
    allow_users: tuple[str, ...] = ()
    """Users that may use the service, besides root and the user that it runs as."""
    max_jobs: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    parallel: Annotated[int, msgspec.Meta(ge=1)] = 16
    """How many jobs' starts run at a time, and how many jobs' ends."""
    stop_timeout: Duration = 10.0
    """How long commands that are under way may go on when the service is told to stop."""
    start: tuple[SiteCommand, ...] = ()
    end: tuple[SiteCommand, ...] = ()

    def __post_init__(self) -> None:
        check_durations(self, "stop_timeout")
        if tables.seconds(self.stop_timeout) == float("inf"):
            raise ValueError("stop-timeout: a service that is told to stop needs a limit")
        if self.socket is not None and not os.path.isabs(self.socket):
            raise ValueError(f"socket: {self.socket!r} is not an absolute path")
        for name in self.allow_users:
            _check_exists(pwd.getpwnam, "allow-users", "user", name)
        if self.socket_group is not None:
            _check_exists(grp.getgrnam, "socket-group", "group", self.socket_group)

    @property
    def allowed_userids(self) -> frozenset[int]:
        """The ids of the users that may use the service."""
        return frozenset(
            {0, os.geteuid(), *(pwd.getpwnam(name).pw_uid for name in self.allow_users)}
        )

    @property
    def socket_gid(self) -> int | None:
        return None if self.socket_group is None else grp.getgrnam(self.socket_group).gr_gid


def load(path: Path) -> Config:
    """Read a file. Raises UserMistake with its name and the path of the mistake."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserMistake(f"{path} cannot be read: {error}.") from error
    return tables.parse(text, Config, str(path))


def _check_exists(find: Callable[[str], object], key: str, what: str, name: str) -> None:
    try:
        find(name)
    except KeyError:
        raise ValueError(f"{key}: no {what} is named {name!r}") from None
