"""What a site allows and presumes: queues, limits, defaults, access (RFC 33).

The values of a configuration, spelled as Flux spells them, and what may be read from them
without knowing any job: which queues there are, and what holds in each (`queue_limits`). What holds
for one job is decided in `jobqueue` and `limits`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeVar

import msgspec

from warren.base.errors import UserMistake
from warren.lifecycle.tables import Duration, Table, check_durations, check_value, seconds
from warren.rfc import constraint, hostlist

T = TypeVar("T")

UNLIMITED: Final = -1
"""A limit that is none, where a queue lifts one of the whole instance."""

SIZE_KEYS: Final = ("nnodes", "ncores", "ngpus")
"""What the size of a job is counted in."""


Count = Annotated[int, msgspec.Meta(ge=UNLIMITED)]


def check_hosts(name: str, value: str) -> None:
    """Raise ValueError unless this is a list of hosts."""
    check_value(name, hostlist.decode, value)


def check_property(name: str, value: str) -> None:
    """Raise ValueError unless a node may have this property from a configuration."""
    problem = constraint.problem("properties", value)
    if problem is not None:
        raise ValueError(f"{name}: {problem.removeprefix('this ')}")
    if value.startswith("^"):
        raise ValueError(f"{name}: {value!r} says what a node must not have, and names no property")


class Sizes(Table, frozen=True):
    """Nodes, cores and gpus of a job; None where nothing is said."""

    nnodes: Count | None = None
    ncores: Count | None = None
    ngpus: Count | None = None


class JobSize(Table, frozen=True):
    max: Sizes = Sizes()
    min: Sizes = Sizes()


class Limits(Table, frozen=True):
    job_size: JobSize = JobSize()
    duration: Duration | None = None
    """The longest time limit; 0 is no limit."""

    def __post_init__(self) -> None:
        check_durations(self, "duration")


class SystemDefaults(Table, frozen=True):
    """Attributes of a job that names none of its own."""

    queue: str | None = None
    duration: Duration | None = None

    def __post_init__(self) -> None:
        check_durations(self, "duration")


class Defaults(Table, frozen=True):
    system: SystemDefaults = SystemDefaults()


class JobspecPolicy(Table, frozen=True):
    defaults: Defaults = Defaults()


class QueueAccess(Table, frozen=True):
    """Which users and groups may submit, by name; all users where both are empty."""

    allow_user: tuple[str, ...] = ()
    allow_group: tuple[str, ...] = ()


class Policy(Table, frozen=True):
    """Table `policy`, and `queues.NAME.policy`, which overrides it key by key."""

    jobspec: JobspecPolicy = JobspecPolicy()
    limits: Limits = Limits()
    access: QueueAccess = QueueAccess()


class Queue(Table, frozen=True):
    """Table `queues.NAME`."""

    hosts: str | None = None
    """A hostlist. Its nodes get the property `+NAME`, and the queue's jobs require that."""
    requires: tuple[str, ...] = ()
    """Properties that the queue's jobs require. Not beside `hosts`."""
    policy: Policy = Policy()
    parent: str | None = None
    """Makes a virtual queue: it has its parent's nodes, and waits while its parent is stopped."""

    def __post_init__(self) -> None:
        if self.hosts is not None:
            check_hosts("hosts", self.hosts)
        for name in self.requires:
            check_property("requires", name)


def queue_property(queue: str) -> str:
    """Return the property that the nodes of a queue with `hosts` have."""
    return f"+{queue}"


# What holds in a queue


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What holds in one queue: by its own policy, else its parent's, else the instance's."""

    name: str | None = None
    """None is the anonymous queue."""
    parent: str | None = None
    properties: tuple[str, ...] = ()
    """What the nodes of its jobs have."""
    default_duration: float = 0.0
    """The time limit of a job that has none, in seconds; 0 leaves it without one."""
    max_duration: float = math.inf
    """The longest time limit, in seconds."""
    min_sizes: Mapping[str, int] = msgspec.field(default_factory=dict)
    """The limits that there are, by what they count."""
    max_sizes: Mapping[str, int] = msgspec.field(default_factory=dict)
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    """Which groups may submit; all users if these and `users` are empty."""

    @property
    def restricted(self) -> bool:
        """Whether only some users may submit."""
        return bool(self.users or self.groups)


def queue_limits(queues: Mapping[str, Queue], policy: Policy) -> dict[str | None, QueueLimits]:
    """Return what holds in each queue; where none is configured, in the anonymous one."""
    if not queues:
        return {None: _queue_limits([policy])}
    limits_by_queue: dict[str | None, QueueLimits] = {}
    for name, queue in queues.items():
        parent = queue if queue.parent is None else queues[queue.parent]
        policies = [queue.policy, policy]
        if queue.parent is not None:
            policies.insert(1, parent.policy)
        properties = parent.requires
        if parent.hosts is not None:
            properties = (queue_property(queue.parent or name),)
        limits_by_queue[name] = _queue_limits(policies, name, queue.parent, properties)
    return limits_by_queue


def default_queue(queues: Mapping[str, Queue], policy: Policy) -> str | None:
    """Return the queue of jobs that name none: the one that is configured, or the only one."""
    default = policy.jobspec.defaults.system.queue
    return next(iter(queues)) if default is None and len(queues) == 1 else default


def _queue_limits(
    policies: Sequence[Policy],
    name: str | None = None,
    parent: str | None = None,
    properties: tuple[str, ...] = (),
) -> QueueLimits:
    """Read policies, the first of which overrides the others."""
    default_duration = seconds(
        _first(each.jobspec.defaults.system.duration for each in policies) or 0
    )
    max_duration = seconds(_first(each.limits.duration for each in policies) or 0)
    sizes = [each.limits.job_size for each in policies]
    access = next((each.access for each in policies if each.access != QueueAccess()), QueueAccess())
    return QueueLimits(
        name=name,
        parent=parent,
        properties=properties,
        # A jobspec, which is JSON, has no infinity: 0 is no limit there.
        default_duration=0.0 if math.isinf(default_duration) else default_duration,
        max_duration=max_duration or math.inf,
        min_sizes=_limits([each.min for each in sizes]),
        max_sizes=_limits([each.max for each in sizes]),
        users=frozenset(access.allow_user),
        groups=frozenset(access.allow_group),
    )


def _limits(sizes: Sequence[Sizes]) -> dict[str, int]:
    limit_by_key = {key: _first(getattr(each, key) for each in sizes) for key in SIZE_KEYS}
    return {
        key: limit
        for key, limit in limit_by_key.items()
        if limit is not None and limit != UNLIMITED
    }


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


# Mistakes


def check(queues: Mapping[str, Queue], policy: Policy) -> None:
    """Raise UserMistake where queues and policy do not go together (RFC 33)."""
    for name, queue in queues.items():
        _check_queue(name, queue, queues)
    default = policy.jobspec.defaults.system.queue
    if default is not None and default not in queues:
        raise UserMistake(
            f"policy.jobspec.defaults.system.queue names {default!r}, which is no queue: "
            f"{queue_choices(queues)}."
        )
    if default is None and len(queues) > 1:
        raise UserMistake(
            "policy.jobspec.defaults.system.queue is missing: jobs that name no queue need one of "
            f"{', '.join(queues)}."
        )
    for limits in queue_limits(queues, policy).values():
        where = "policy" if limits.name is None else f"queues.{limits.name}.policy"
        for size_key in SIZE_KEYS:
            least, most = (
                limits.min_sizes.get(size_key, 0),
                limits.max_sizes.get(size_key, math.inf),
            )
            if least > most:
                raise UserMistake(
                    f"{where}.limits.job-size: no job has at least {least} and at most {most} "
                    f"{size_key}."
                )


def _check_queue(name: str, queue: Queue, queues: Mapping[str, Queue]) -> None:
    path = f"queues.{name}"
    if not name or set(name) & set(" \t\n!&'\"^`|(),"):
        raise UserMistake(f"{path}: a queue's name has no blanks and none of !&'\"^`|(),.")
    if queue.hosts is not None and queue.requires:
        raise UserMistake(f"{path} has both hosts and requires: leave one of them out.")
    if queue.policy.jobspec.defaults.system.queue is not None:
        raise UserMistake(f"{path}.policy names a default queue: only the table policy may.")
    if queue.parent is None:
        return
    if queue.hosts is not None or queue.requires:
        raise UserMistake(f"{path} has a parent, whose nodes it takes: leave out hosts, requires.")
    parent = queues.get(queue.parent)
    if parent is None:
        raise UserMistake(f"{path}.parent names {queue.parent!r}, which is no queue.")
    if parent.parent is not None:
        raise UserMistake(f"{path}.parent names {queue.parent!r}, which has a parent itself.")


def queue_choices(queues: Iterable[str]) -> str:
    """Return which queues there are, for an error about an unknown one."""
    names = ", ".join(queues)
    return f"name one of {names}" if names else "there are none"
