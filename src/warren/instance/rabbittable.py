"""Table `rabbit`, with the keys of flux-coral2 (coral2-spec section 1)."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec

from warren.lifecycle import tables
from warren.lifecycle.tables import Duration, Table, check_absolute

_DURATION_KEYS: Final = (
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


class RabbitTable(Table, frozen=True, rename="lower"):
    """Table `rabbit`, with the keys of flux-coral2 (coral2-spec section 1).

    A time of 0 is no limit, where its key does not say otherwise.
    """

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
    """FSD or seconds for which `deploy/scripts/zstop_clientmount.sh` waits for a job's storage.

    0 is not at all.
    """
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
        check_absolute("mapping", self.mapping)
        check_absolute("kubeconfig", self.kubeconfig)
        if not self.unsaved_results:
            raise ValueError("unsaved_results: is empty: name flush, drop or both")
        for field in _DURATION_KEYS:
            tables.check_value(field, tables.seconds, getattr(self, field))
        for name, texts in self.directives.items():
            if not name.strip() or "#" in name:
                raise ValueError(f"presets: {name!r} is no name: it has letters, and no '#'")
            if not texts or not all(each.lstrip().startswith("#DW") for each in texts):
                raise ValueError(f"presets.{name}: is no #DW directive, and no list of some")

    @property
    def directives(self) -> Mapping[str, Sequence[str]]:
        """The directives of each preset."""
        return {
            name: (texts,) if isinstance(texts, str) else texts
            for name, texts in self.presets.items()
        }

    @property
    def restricts_persistent(self) -> bool:
        """Whether the instance's owner alone may create persistent storage."""
        return self.restrict_persistent or self.restrict_persistent_creation

    def seconds(self, key: str) -> float | None:
        """Return a limit in seconds; None for no limit."""
        found = tables.seconds(getattr(self, key))
        return found if 0 < found < math.inf else None
