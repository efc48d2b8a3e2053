"""The tables of services: which users may connect, what is kept, which nodes there are."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from warren.lifecycle import policy
from warren.lifecycle.tables import Table
from warren.rfc import idset
from warren.rfc.errors import BadFormat
from warren.rfc.treeobj import Algorithm
from warren.scheduling.matchpolicy import MatchPolicy


class AccessTable(Table, frozen=True):
    """Table `access`: which users besides the owner may connect to the instance."""

    allow_guest_user: bool = False
    """Whether other users than the owner may connect, and submit jobs."""
    allow_root_owner: bool = False
    """Whether root may do what the owner may."""


def _is_idset(text: str) -> bool:
    try:
        idset.decode(text)
    except BadFormat:
        return False
    return True


class ResourceTable(Table, frozen=True):
    """Table `resource`."""

    exclude: str = ""
    """Nodes that jobs never get: an idset or a hostlist."""
    properties: Mapping[str, str] = {}
    """Hostlists by the property that their nodes have."""

    def __post_init__(self) -> None:
        if not _is_idset(self.exclude):
            policy.check_hosts("exclude", self.exclude)
        for name, hosts in self.properties.items():
            policy.check_property("properties", name)
            if name.startswith("+"):
                raise ValueError(f"properties: {name!r} is for the nodes of a queue with hosts")
            policy.check_hosts(f"properties.{name}", hosts)


class SchedTable(Table, frozen=True):
    """Table `sched`."""

    policy: Literal["fcfs", "easy"] = "easy"
    """First come, first served; or small jobs pass one that waits, where it loses nothing."""
    queue_depth: Annotated[int, msgspec.Meta(ge=1)] = 32
    """How many jobs of each queue are looked at that cannot begin."""
    match_policy: MatchPolicy = MatchPolicy.FIRST
    """Which nodes jobs get, of those that would do."""


class IngestTable(Table, frozen=True):
    """Table `ingest`."""

    max_payload: Annotated[int, msgspec.Meta(ge=1024)] = 4 * 2**20
    """Bytes of the longest signed request that is read."""


class JobListTable(Table, frozen=True):
    """Table `job-list`."""

    private: bool = False
    """Whether users see no jobs but their own."""


class SignMungeTable(Table, frozen=True):
    """Table `sign.munge`."""

    socket_path: str | None = None
    """Where munged listens, if not at its usual place."""


class SignTable(Table, frozen=True):
    """Table `sign`: what proves that a request is its user's."""

    max_ttl: Annotated[int, msgspec.Meta(ge=1)] = 14 * 24 * 3600
    """Seconds that a signed request holds: a job that waits for longer does not start."""
    munge: SignMungeTable = SignMungeTable()


class KvsTable(Table, frozen=True):
    """Table `kvs`."""

    guest_limit: Annotated[int, msgspec.Meta(ge=2**20)] = 2**30
    """Bytes that a user may write to the namespace of one job, output included."""
    user_limit: Annotated[int, msgspec.Meta(ge=2**20)] = 2**32
    """Bytes that the records of all jobs of a user may have, those that are over included."""


class ContentTable(Table, frozen=True):
    """Table `content`."""

    hash: Algorithm = "sha1"
    """What names blobs, for the whole life of the instance: sha1 or sha256."""
