"""What a site allows and presumes: queues, limits, defaults, access (RFC 33).

The values of a configuration, spelled as Flux spells them, and what may be read from them
without knowing any job: which queues there are, and what holds in each. What holds for one
job is decided where jobs come in.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec

from warren.base.errors import UserMistake

UNLIMITED: Final = -1
"""A limit that is none, where a queue lifts one of the whole instance."""


class Table(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A table of the configuration. A key that nobody knows is a mistake."""


Count = Annotated[int, msgspec.Meta(ge=UNLIMITED)]


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
    duration: str | float | None = None
    """The longest time limit, as FSD or in seconds; 0 is no limit."""


class SystemDefaults(Table, frozen=True):
    """Attributes of a job that names none of its own."""

    queue: str | None = None
    duration: str | float | None = None


class Defaults(Table, frozen=True):
    system: SystemDefaults = SystemDefaults()


class JobspecPolicy(Table, frozen=True):
    defaults: Defaults = Defaults()


class QueueAccess(Table, frozen=True):
    """Who may submit; everybody where both are empty."""

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


def check(queues: Mapping[str, Queue], policy: Policy) -> None:
    """Raise UserMistake where queues and policy do not go together (RFC 33)."""
    for name, queue in queues.items():
        _check_queue(name, queue, queues)
    default = policy.jobspec.defaults.system.queue
    if default is None:
        return
    if default not in queues:
        raise UserMistake(
            f"policy.jobspec.defaults.system.queue names {default!r}, which is no queue: "
            f"{_named(list(queues))}."
        )


def _check_queue(name: str, queue: Queue, queues: Mapping[str, Queue]) -> None:
    path = f"queues.{name}"
    if not name or set(name) & set(" \t\n!&'\"^`|()"):
        raise UserMistake(f"{path}: a queue's name has no blanks and none of !&'\"^`|().")
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


def _named(queues: Sequence[str]) -> str:
    return f"name one of {', '.join(queues)}" if queues else "there are none"
