"""The configuration of the instance: one TOML file, in the tables and words of Flux.

Every table has its default, and an empty file is a configuration. An unknown
key, or a value of the wrong kind, is refused with its path.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from warren.base import log
from warren.base.errors import UserMistake
from warren.instance import users
from warren.instance.jobtables import ExecTable, JobManagerTable
from warren.instance.rabbittable import RabbitTable
from warren.instance.servicetables import (
    AccessTable,
    ContentTable,
    IngestTable,
    JobListTable,
    KvsTable,
    ResourceTable,
    SchedTable,
    SignTable,
)
from warren.instance.storagetables import ContainersTable, DaemonTable, StorageTable
from warren.journal import files
from warren.lifecycle import policy, tables
from warren.lifecycle.policy import Policy, Queue
from warren.lifecycle.tables import Table

_DAEMON_PATTERN: Final = r"^[a-z][a-z0-9-]*$"
"""The name of a daemon, as a directive may have it."""


class Config(Table, frozen=True):
    """A whole configuration."""

    access: AccessTable = AccessTable()
    content: ContentTable = ContentTable()
    kvs: KvsTable = KvsTable()
    policy: Policy = Policy()
    queues: Mapping[str, Queue] = {}
    ingest: IngestTable = IngestTable()
    job_manager: JobManagerTable = JobManagerTable()
    job_list: JobListTable = JobListTable()
    exec: ExecTable = ExecTable()
    resource: ResourceTable = ResourceTable()
    sched: SchedTable = SchedTable()
    sign: SignTable = SignTable()
    storage: StorageTable = StorageTable()
    containers: ContainersTable = ContainersTable()
    rabbit: RabbitTable = RabbitTable()
    daemons: Mapping[Annotated[str, msgspec.Meta(pattern=_DAEMON_PATTERN)], DaemonTable] = {}


def load(path: Path) -> Config:
    """Read a file; where there is none, everything has its default. Raises UserMistake."""
    config = _read(path) if path.exists() else Config()
    for table, name in unknown_names(config):
        # A user may be added later; until then the name admits no user.
        log.warning(
            "there is no user or group of this name", path=str(path), table=table, name=name
        )
    return config


def check(source: Path) -> None:
    """Raise UserMistake for a file that is no configuration."""
    if not source.exists():
        raise UserMistake(f"{source}: there is no such file.")
    _read(source)


def install(source: Path, path: Path) -> None:
    """Check a configuration file, and copy it to where the instance has its own."""
    check(source)
    files.replace(path, source.read_bytes())


def parse(text: str, name: str = "the configuration") -> Config:
    """Read a configuration. Raises UserMistake with `name` and the path of the mistake."""
    decoded = tables.decode(text, name)
    try:
        config = msgspec.convert(decoded, Config)
        policy.check(config.queues, config.policy)
        _check_queues(config)
    except msgspec.ValidationError as error:
        problem, key_path = tables.explain(error, Config, decoded)
        message = f"{key_path}: {problem}" if key_path else problem
        raise UserMistake(f"{name}: {message}.") from error
    except UserMistake as mistake:
        raise UserMistake(f"{name}: {mistake}") from mistake
    return config


def _check_queues(config: Config) -> None:
    for number, queue in enumerate(config.rabbit.drain_queues):
        if queue not in config.queues:
            hint = f"name some of {', '.join(config.queues)}" if config.queues else "there is none"
            raise UserMistake(
                f"rabbit.drain_queues[{number}]: there is no queue {queue!r}: {hint}."
            )


def unknown_names(config: Config) -> Iterator[tuple[str, str]]:
    """Return the names of users and groups that do not exist, each with its table."""
    queue_policies = {
        f"queues.{name}.policy": queue.policy for name, queue in config.queues.items()
    }
    for table_path, table in {"policy": config.policy, **queue_policies}.items():
        for name in users.unknown_names(table.access.allow_user, table.access.allow_group):
            yield f"{table_path}.access", name


def to_builtins(config: Config) -> dict[str, Any]:
    """Return a configuration as a file would have it, without what is at its default."""
    return msgspec.to_builtins(config)  # type: ignore[no-any-return]


def from_builtins(decoded: Mapping[str, Any]) -> Config:
    """Return the configuration that `to_builtins` has written."""
    return msgspec.convert(decoded, Config)


def _read(path: Path) -> Config:
    try:
        return parse(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserMistake(f"{path} cannot be read: {error}.") from error
