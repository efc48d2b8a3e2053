"""The configuration of the instance: one TOML file, in the tables and words of Flux.

Every table has its default, and an empty file is a configuration. An unknown
key, or a value of the wrong kind, is refused with its path.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import structlog

from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.directives import capacity
from warren.instance import users
from warren.journal import files
from warren.lifecycle import policy, tables
from warren.lifecycle.policy import Policy, Queue
from warren.lifecycle.tables import Duration, Table, demand_durations
from warren.rfc import idset
from warren.rfc.errors import BadFormat
from warren.rfc.treeobj import Algorithm
from warren.scheduling.matching import MatchPolicy

log = structlog.get_logger()

_LEAST_TMPDIR: Final = 2**20
_SOME: Final = re.compile(r"(queues|daemons)\[\.\.\.\](.*)")
_DAEMON: Final = r"^[a-z][a-z0-9-]*$"
"""The name of a daemon, as a directive may have it."""


class Access(Table, frozen=True):
    """Table `access`: which users besides the owner may connect to the instance."""

    allow_guest_user: bool = False
    """Whether other users than the owner may connect, and submit jobs."""
    allow_root_owner: bool = False
    """Whether root may do what the owner may."""


def _demand_moment(kill_timeout: Duration) -> None:
    if tables.seconds(kill_timeout) == 0:
        raise ValueError("kill-timeout is 0: processes need a moment to end, make it longer")


def _demand_absolute(name: str, path: str | None) -> None:
    if path is not None and not path.startswith("/"):
        raise ValueError(f"{name}: {path!r} is not an absolute path")


class Perilog(Table, frozen=True):
    """Tables `job-manager.prolog` and `job-manager.epilog`: a command around each job."""

    command: tuple[str, ...] = ()
    per_rank: bool = False
    timeout: Duration | None = None
    """FSD or seconds; 0 is no limit. Without one a prolog has 30m, an epilog no limit."""
    kill_timeout: Duration = 60.0
    cancel_on_exception: bool | None = None
    """Without one: a prolog is, an epilog is not."""
    exit_on_first_error: bool = False
    """Whether, with `per-rank`, the first failure on a node ends the commands of the others."""

    def __post_init__(self) -> None:
        demand_durations(self, "timeout", "kill_timeout")
        _demand_moment(self.kill_timeout)


class Housekeeping(Table, frozen=True):
    """Table `job-manager.housekeeping`: known, but refused where it names a command."""

    command: tuple[str, ...] = ()
    release_after: Duration | None = None

    def __post_init__(self) -> None:
        demand_durations(self, "release_after")
        if self.command:
            raise ValueError("command is not offered: make it an epilog's command, with per-rank")


class JobManager(Table, frozen=True):
    prolog: Perilog = Perilog()
    epilog: Perilog = Perilog()
    housekeeping: Housekeeping = Housekeeping()
    inactive_age_limit: Duration | None = None
    """FSD or seconds after which inactive jobs are purged; None keeps them."""
    inactive_num_limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """How many inactive jobs are kept; None keeps all."""
    archive: str | None = None
    """A file that jobs are appended to before they are purged; None is no archive."""

    def __post_init__(self) -> None:
        demand_durations(self, "inactive_age_limit")
        _demand_absolute("archive", self.archive)


class Exec(Table, frozen=True):
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
        demand_durations(self, "kill_timeout")
        _demand_moment(self.kill_timeout)
        _demand_absolute("rundir", self.rundir)
        if 0 < self.tmpdir_limit < _LEAST_TMPDIR:
            raise ValueError(
                f"tmpdir-limit is {self.tmpdir_limit}: it is at least {_LEAST_TMPDIR} bytes, or 0 "
                "for no limit"
            )


def _idset(text: str) -> bool:
    try:
        idset.decode(text)
    except BadFormat:
        return False
    return True


class Resource(Table, frozen=True):
    """Table `resource`."""

    exclude: str = ""
    """Nodes that jobs never get: an idset or a hostlist."""
    properties: Mapping[str, str] = {}
    """Hostlists by the property that their nodes have."""

    def __post_init__(self) -> None:
        if not _idset(self.exclude):
            policy.demand_hosts("exclude", self.exclude)
        for name, hosts in self.properties.items():
            policy.demand_property("properties", name)
            if name.startswith("+"):
                raise ValueError(f"properties: {name!r} is for the nodes of a queue with hosts")
            policy.demand_hosts(f"properties.{name}", hosts)


class Sched(Table, frozen=True):
    """Table `sched`."""

    policy: Literal["fcfs", "easy"] = "easy"
    """First come, first served; or small jobs pass one that waits, where it loses nothing."""
    queue_depth: Annotated[int, msgspec.Meta(ge=1)] = 32
    """How many jobs of each queue are looked at that cannot begin."""
    match_policy: MatchPolicy = MatchPolicy.FIRST
    """Which nodes jobs get, of those that would do."""


class Ingest(Table, frozen=True):
    """Table `ingest`."""

    max_payload: Annotated[int, msgspec.Meta(ge=1024)] = 4 * 2**20
    """Bytes of the longest signed request that is read."""


class JobList(Table, frozen=True):
    """Table `job-list`."""

    private: bool = False
    """Whether users see no jobs but their own."""


class SignMunge(Table, frozen=True):
    """Table `sign.munge`."""

    socket_path: str | None = None
    """Where munged listens, if not at its usual place."""


class Sign(Table, frozen=True):
    """Table `sign`: what proves that a request is its user's."""

    max_ttl: Annotated[int, msgspec.Meta(ge=1)] = 14 * 24 * 3600
    """Seconds that a signed request holds: a job that waits for longer does not start."""
    munge: SignMunge = SignMunge()


class KvsTable(Table, frozen=True):
    """Table `kvs`."""

    guest_limit: Annotated[int, msgspec.Meta(ge=2**20)] = 2**30
    """Bytes that a user may write to the namespace of one job, output included."""
    user_limit: Annotated[int, msgspec.Meta(ge=2**20)] = 2**32
    """Bytes that the records of all jobs of a user may have, those that are over included."""


class Content(Table, frozen=True):
    """Table `content`."""

    hash: Algorithm = "sha1"
    """What names blobs, for the whole life of the instance: sha1 or sha256."""


class Daemon(Table, frozen=True):
    """Table `daemons.NAME`, which is ours: a daemon that jobs may name with `requires`."""

    prolog: tuple[str, ...] = ()
    """Starts it for a job, on each of its nodes."""
    epilog: tuple[str, ...] = ()
    """Stops it."""
    timeout: Duration = 300.0
    """FSD or seconds for each of the two; 0 is no limit."""
    kill_timeout: Duration = 10.0
    """FSD or seconds between the signal that ends it then and SIGKILL."""

    def __post_init__(self) -> None:
        demand_durations(self, "timeout", "kill_timeout")
        _demand_moment(self.kill_timeout)
        if not (self.prolog or self.epilog):
            raise ValueError("has neither prolog nor epilog: name the command that starts it")
        for name in ("prolog", "epilog"):
            command = getattr(self, name)
            # It is run as the instance's owner: which program that is must not depend on a PATH.
            _demand_absolute(name, command[0] if command else None)


class Storage(Table, frozen=True):
    """Table `storage`, which is ours: what nodes do about storage that is in use at its end."""

    busy_timeout: Duration = 30.0
    """FSD or seconds for which a process that still uses a job's storage is waited for."""
    busy_policy: Literal["kill", "keep"] = "kill"
    """Whether processes of the job's user are killed then. Others never are."""
    flash_quantum: str | None = None
    """A capacity in whole GiB, of which jobs get so many as they need; None is one pool."""
    scale: int | None = None
    """How finely sets are shared out of which no profile says so, from 1, as few allocations as
    hold them, to 10, one for each node; None is in proportion to the nodes on each rabbit."""
    most_allocations: Mapping[str, int] = {}
    """The most allocations of sets of which no profile says the number, by their labels."""

    placement: Literal["nodes", "any"] = "nodes"
    """Whether storage that nodes reach over the network is on rabbits of the job's own nodes
    alone, or on any where those have no room."""

    persistent_max: Duration | None = None
    """FSD or seconds for which persistent storage is kept at most; None is without end."""

    def __post_init__(self) -> None:
        demand_durations(self, "busy_timeout")
        if self.persistent_max is not None:
            demand_durations(self, "persistent_max")
        if self.scale is not None and not 1 <= self.scale <= 10:
            raise ValueError(f"scale: {self.scale} is not from 1 to 10")
        for label, most in self.most_allocations.items():
            if most < 1:
                raise ValueError(f"most-allocations.{label}: {most} is less than 1")
        if self.flash_quantum is not None and not self._quantum():
            raise ValueError(
                f"flash-quantum: {self.flash_quantum!r} is not a whole number of GiB: write 4GiB"
            )

    @property
    def most_lifetime(self) -> float | None:
        """Seconds for which persistent storage is kept at most."""
        return None if self.persistent_max is None else tables.seconds(self.persistent_max)

    @property
    def quantum_gib(self) -> int | None:
        """GiB of each piece that a rabbit's flash is given out in; None is one pool."""
        return None if self.flash_quantum is None else self._quantum()

    def _quantum(self) -> int:
        """Return the quantum in GiB; 0 where it is none."""
        try:
            gib, rest = divmod(capacity.parse(self.flash_quantum or ""), GIB)
        except UserMistake:
            return 0
        return 0 if rest else gib

    @property
    def busy_seconds(self) -> float:
        return tables.seconds(self.busy_timeout)


_LIMITS: Final = (
    "tc_timeout",
    "setup_timeout",
    "prerun_timeout",
    "postrun_timeout",
    "teardown_after",
    "teardown_latest",
    "epilog_timeout",
    "prolog_timeout",
)
"""The keys of table `rabbit` that are lengths of time."""


class RabbitPolicy(Table, frozen=True):
    """Table `rabbit.policy`."""

    maximums: Mapping[
        Literal["xfs", "gfs2", "raw", "lustre"], Annotated[int, msgspec.Meta(ge=0)]
    ] = {}
    """GiB of storage that a job may have for each of its nodes, by type."""


class Rabbit(Table, frozen=True, rename="lower"):
    """Table `rabbit`, with the keys of flux-coral2 (coral2-spec section 1). 0 is no limit."""

    kubeconfig: str | None = None
    """The file by which `warren conductor` finds the cluster, where it is told of no other."""
    dws_api_version: str | None = None
    """The version of `dataworkflowservices.github.io` that it speaks where the cluster has it."""
    nnf_api_version: str | None = None
    """The version of `nnf.cray.hpe.com`."""
    mapping: str | None = None
    """The file that says which nodes are wired to which rabbit, for `warren getrabbit`."""
    save_datamovements: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many of a job's NnfDataMovements are kept with its record, those that failed first."""
    tc_timeout: Duration = 10.0
    """FSD or seconds for which a Workflow may be in TransientCondition."""
    setup_timeout: Duration = 0.0
    """FSD or seconds for making a job's storage."""
    prerun_timeout: Duration = 0.0
    """FSD or seconds for mounting it."""
    postrun_timeout: Duration = 0.0
    """FSD or seconds for unmounting it: then nothing is copied out."""
    teardown_after: Duration = 0.0
    """FSD or seconds for PostRun and DataOut, from when a copy last went on."""
    teardown_latest: Duration = 0.0
    """FSD or seconds for both, however well copies go on; 0 is ten times `teardown_after`."""
    epilog_timeout: Duration = 0.0
    """FSD or seconds after which a job is let go before its storage."""
    restrict_persistent: bool = False
    """Whether the instance's owner alone may create persistent storage."""
    restrict_persistent_creation: bool = False
    """The same: flux-coral2 documents this name, and reads the other one."""
    prolog_timeout: Duration = 1800.0
    """FSD or seconds for which `deploy/scripts/zstop_clientmount.sh` waits for a job's storage."""
    policy: RabbitPolicy = RabbitPolicy()
    presets: Mapping[str, str | tuple[str, ...]] = {}
    """Directives by the name that a job may say in their place: a text, or one for each."""
    unsaved_results: tuple[Literal["flush", "drop"], ...] = ("flush", "drop")
    """What jobs that are cancelled may have done with what they have written; the first is what
    those get that do not say (`dw_unsaved_results`)."""
    drain_compute_nodes: bool = True
    """Whether nodes that lose the link to their rabbit are drained."""
    soft_drain: bool = True
    """Whether those that are not drained are kept from jobs with storage."""
    return_to_service: bool = False
    """Whether nodes and rabbits that were taken out of service with the storage of a job return by
    themselves, rabbits after a test."""
    drain_queues: tuple[str, ...] = ()
    """The queues of whose nodes some may be drained; none are all nodes."""

    def __post_init__(self) -> None:
        _demand_absolute("mapping", self.mapping)
        _demand_absolute("kubeconfig", self.kubeconfig)
        if not self.unsaved_results:
            raise ValueError("unsaved_results: is empty: name flush, drop or both")
        for field in _LIMITS:
            tables.demand(field, tables.seconds, getattr(self, field))
        for name, texts in self.directives.items():
            if not name.strip() or "#" in name:
                raise ValueError(f"presets: {name!r} is no name: it has letters, and no '#'")
            if not texts or not all(each.lstrip().startswith("#DW") for each in texts):
                raise ValueError(f"presets.{name}: is no #DW directive, and no list of some")

    @property
    def directives(self) -> Mapping[str, Sequence[str]]:
        """The directives of each preset."""
        return {
            name: (given,) if isinstance(given, str) else given
            for name, given in self.presets.items()
        }

    @property
    def restricts_persistent(self) -> bool:
        """Whether the instance's owner alone may create persistent storage."""
        return self.restrict_persistent or self.restrict_persistent_creation

    def seconds(self, key: str) -> float | None:
        """Return a limit in seconds; None for no limit."""
        found = tables.seconds(getattr(self, key))
        return found if 0 < found < math.inf else None


class Config(Table, frozen=True):
    """A whole configuration."""

    access: Access = Access()
    content: Content = Content()
    kvs: KvsTable = KvsTable()
    policy: Policy = Policy()
    queues: Mapping[str, Queue] = {}
    ingest: Ingest = Ingest()
    job_manager: JobManager = JobManager()
    job_list: JobList = JobList()
    exec: Exec = Exec()
    resource: Resource = Resource()
    sched: Sched = Sched()
    sign: Sign = Sign()
    storage: Storage = Storage()
    rabbit: Rabbit = Rabbit()
    daemons: Mapping[Annotated[str, msgspec.Meta(pattern=_DAEMON)], Daemon] = {}


def load(path: Path) -> Config:
    """Read a file; where there is none, everything has its default. Raises UserMistake."""
    config = _read(path) if path.exists() else Config()
    for place, name in unknown_names(config):
        # A user may be added later; until then the name admits no one.
        log.warning(
            "there is no user or group of this name", path=str(path), table=place, name=name
        )
    return config


def keep(given: Path, path: Path) -> None:
    """Check a configuration file, and copy it to where the instance has its own."""
    if not given.exists():
        raise UserMistake(f"{given}: there is no such file.")
    _read(given)
    files.replace(path, given.read_bytes())


def parse(text: str, name: str = "the configuration") -> Config:
    """Read a configuration. Raises UserMistake with `name` and the path of the mistake."""
    decoded = tables.decode(text, name)
    try:
        config = msgspec.convert(decoded, Config)
        policy.check(config.queues, config.policy)
        _demand_queues(config)
    except msgspec.ValidationError as error:
        raise UserMistake(f"{name}: {_explained(error, decoded)}.") from error
    except UserMistake as mistake:
        raise UserMistake(f"{name}: {mistake}") from mistake
    return config


def _demand_queues(config: Config) -> None:
    for number, queue in enumerate(config.rabbit.drain_queues):
        if queue not in config.queues:
            there = f"name some of {', '.join(config.queues)}" if config.queues else "there is none"
            raise UserMistake(
                f"rabbit.drain_queues[{number}]: there is no queue {queue!r}: {there}."
            )


def unknown_names(config: Config) -> Iterator[tuple[str, str]]:
    """Return the names of users and groups that do not exist, each with its table."""
    tables = {f"queues.{name}.policy": queue.policy for name, queue in config.queues.items()}
    for place, table in {"policy": config.policy, **tables}.items():
        for name in users.unknown(table.access.allow_user, table.access.allow_group):
            yield f"{place}.access", name


def plain(config: Config) -> dict[str, Any]:
    """Return a configuration as a file would have it, without what is at its default."""
    return msgspec.to_builtins(config)  # type: ignore[no-any-return]


def from_plain(decoded: Mapping[str, Any]) -> Config:
    """Return the configuration that `plain` has written."""
    return msgspec.convert(decoded, Config)


def _read(path: Path) -> Config:
    try:
        return parse(path.read_text(), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UserMistake(f"{path} cannot be read: {error}.") from error


def _explained(error: msgspec.ValidationError, decoded: Mapping[str, Any]) -> str:
    """Return a problem after the path of its place."""
    problem, place = tables.explain(error, Config)
    some = _SOME.fullmatch(place)
    if some is not None:
        name = _first_invalid(decoded[some[1]], Queue if some[1] == "queues" else Daemon)
        place = f"{some[1]}.{name}{some[2]}"
    return f"{place}: {problem}" if place else problem


def _first_invalid(named: Mapping[str, Any], shape: type) -> str:
    """Return the name of the first table that is invalid, which msgspec does not tell."""
    for name, table in named.items():
        try:
            msgspec.convert(table, shape)
        except msgspec.ValidationError:
            return name
    raise AssertionError("one of them is wrong")
