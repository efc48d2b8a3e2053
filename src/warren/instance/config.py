"""The configuration of the instance: one TOML file, in the tables and words of Flux.

Every table has its default, and an empty file is a configuration. A key that nobody
knows, or a value of the wrong kind, is refused with its path.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from warren.base.errors import UserMistake
from warren.lifecycle import policy
from warren.lifecycle.policy import Policy, Queue, Table
from warren.rfc import duration
from warren.rfc.errors import BadFormat


class Access(Table, frozen=True):
    """Table `access`: who besides the owner may talk to the instance."""

    allow_guest_user: bool = False
    """Whether other users than the owner may connect, and submit jobs."""
    allow_root_owner: bool = False
    """Whether root may do what the owner may."""


class Perilog(Table, frozen=True):
    """Tables `job-manager.prolog` and `job-manager.epilog`: a command around each job."""

    command: tuple[str, ...] = ()
    per_rank: bool = False
    timeout: str | float | None = None
    """FSD or seconds; 0 is no limit. Without one a prolog has 30m, an epilog no limit."""
    kill_timeout: str | float = 60.0
    cancel_on_exception: bool | None = None
    """Without one: a prolog is, an epilog is not."""
    exit_on_first_error: bool = False
    """Whether, with `per-rank`, the first failure on a node ends the commands of the others."""


class Housekeeping(Table, frozen=True):
    """Table `job-manager.housekeeping`: a command on each node after each job."""

    command: tuple[str, ...] = ()
    release_after: str | float | None = None


class JobManager(Table, frozen=True):
    prolog: Perilog = Perilog()
    epilog: Perilog = Perilog()
    housekeeping: Housekeeping = Housekeeping()
    inactive_age_limit: str | float | None = None
    """FSD or seconds after which inactive jobs are purged; None keeps them."""
    inactive_num_limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many inactive jobs are kept; None keeps all."""


class Exec(Table, frozen=True):
    """Table `exec`."""

    kill_timeout: str | float = 5.0
    """FSD or seconds between one signal to a job's tasks and a stronger one."""
    max_kill_count: Annotated[int, msgspec.Meta(ge=1)] = 8
    """After so many SIGKILLs the nodes of what does not die are drained."""

    @property
    def kill_seconds(self) -> float:
        return seconds(self.kill_timeout)


class Resource(Table, frozen=True):
    """Table `resource`."""

    exclude: str = ""
    """Nodes that jobs never get: an idset or a hostlist."""
    properties: Mapping[str, str] = {}
    """Hostlists by the property that their nodes have."""


class Sched(Table, frozen=True):
    """Table `sched`."""

    policy: Literal["fcfs", "easy"] = "easy"
    """First come, first served; or small jobs pass one that waits, where it loses nothing."""
    queue_depth: Annotated[int, msgspec.Meta(ge=1)] = 32
    """How many jobs of each queue are looked at that cannot begin."""


class Ingest(Table, frozen=True):
    """Table `ingest`."""

    max_payload: Annotated[int, msgspec.Meta(ge=1024)] = 4 * 2**20
    """Bytes of the longest signed request that is read."""


class Config(Table, frozen=True):
    """A whole configuration."""

    access: Access = Access()
    policy: Policy = Policy()
    queues: Mapping[str, Queue] = {}
    ingest: Ingest = Ingest()
    job_manager: JobManager = JobManager()
    exec: Exec = Exec()
    resource: Resource = Resource()
    sched: Sched = Sched()


def load(path: Path) -> Config:
    """Read a file; where there is none, everything has its default. Raises UserMistake."""
    try:
        return parse(path.read_text(), str(path))
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise UserMistake(f"{path} cannot be read: {error}.") from error


def keep(given: Path, path: Path) -> None:
    """Copy a configuration that can be read to where the instance has its own."""
    if not given.exists():
        raise UserMistake(f"{given}: there is no such file.")
    load(given)
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(given.read_bytes())
    unfinished.rename(path)


def parse(text: str, name: str = "the configuration") -> Config:
    """Read a configuration. Raises UserMistake with `name` and the path of the mistake."""
    try:
        config = msgspec.convert(tomllib.loads(text), Config)
        policy.check(config.queues, config.policy)
        _check_times(config)
    except tomllib.TOMLDecodeError as error:
        raise UserMistake(f"{name} is not TOML: {error}.") from error
    except msgspec.ValidationError as error:
        raise UserMistake(f"{name}: {_told(str(error))}.") from error
    except UserMistake as mistake:
        raise UserMistake(f"{name}: {mistake}") from mistake
    return config


def seconds(length: str | float) -> float:
    """Read a length of time, as FSD or in seconds. Raises BadFormat."""
    return duration.parse(str(length))


def _check_times(config: Config) -> None:
    """Raise UserMistake for a length of time that is none, or too short to be one."""
    manager = config.job_manager
    lengths = {
        "exec.kill-timeout": config.exec.kill_timeout,
        "job-manager.prolog.timeout": manager.prolog.timeout,
        "job-manager.prolog.kill-timeout": manager.prolog.kill_timeout,
        "job-manager.epilog.timeout": manager.epilog.timeout,
        "job-manager.epilog.kill-timeout": manager.epilog.kill_timeout,
    }
    for path, length in lengths.items():
        try:
            known = seconds(length) if length is not None else 1.0
        except BadFormat as error:
            raise UserMistake(f"{path}: {error}.") from error
        if known == 0 and path.endswith("kill-timeout"):
            raise UserMistake(f"{path} is 0: processes need a moment to end, make it longer.")


def _told(words: str) -> str:
    """Put the path, which msgspec names last and with a `$`, where one looks for it."""
    problem, _, path = words.partition(" - at `$.")
    return f"{path.removesuffix('`')}: {problem}" if path else words
