"""The words for why a job waits: one kind for each thing that may be in its way."""

from collections.abc import Mapping
from enum import StrEnum
from math import inf
from typing import Any, Final

import msgspec


class ReasonKind(StrEnum):
    """What is in the way of a job."""

    NEVER = "never"
    """The system is too small for it, whatever ends or is given back."""
    CONSTRAINT = "constraint"
    """Too few nodes meet its constraint."""
    EXCLUDED = "excluded"
    """Nodes that would do are never given out."""
    NODES = "nodes"
    """Running jobs have the nodes."""
    CORES = "cores"
    """Running jobs have the cores, of slots that may lie anywhere."""
    FLASH = "flash"
    """Running jobs have the flash; nodes are free."""
    CHASSIS = "chassis"
    """Nodes are free, and too few of them on one chassis."""
    DRAINED = "drained"
    OFFLINE = "offline"
    TAGGED = "tagged"
    """Nodes would do but for their tag: each has lost its link to a rabbit (`tags`)."""
    RABBITS = "rabbits"
    """Flash that would do is not ready: rabbits are offline, disabled, drained or not known."""
    CAPACITY = "capacity"
    """Rabbits say that they have less flash than the resource graph has."""
    EXTERNAL = "external"
    """Storage of no running job has the flash."""
    RESERVED = "reserved"
    """There is room, and it is reserved for jobs that wait before it."""
    DEPTH = "depth"
    """There is room, and so many jobs wait before it that it is not looked at."""
    TURN = "turn"
    """There is room, and the scheduler is about to give it."""


WITHHELD_KINDS: Final = (
    ReasonKind.EXTERNAL,
    ReasonKind.CAPACITY,
    ReasonKind.TAGGED,
    ReasonKind.OFFLINE,
    ReasonKind.RABBITS,
    ReasonKind.DRAINED,
)
"""What is kept from jobs for a time. The last are blamed first: they are the easiest to undo."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job waits."""

    kinds: tuple[ReasonKind, ...]
    """All that must go for the job to start; the first is the reason in one word."""
    sentence: str
    """For the job's author, going on from the job's id."""
    numbers: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """The arithmetic, as values of JSON."""
    t_estimate: float = inf
    """When its turn will have come at the latest, if what it waits for is reserved for it."""

    @property
    def kind(self) -> ReasonKind:
        return self.kinds[0]
