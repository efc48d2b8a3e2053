"""Which CPUs of its machine a node's tasks are bound to (shell option `cpu-affinity`). Pure.

R names a node's cores. A node that has its machine to itself was given as many CPUs as cores, in
the same order. Nodes that are emulated on one machine have cores one after the other over its
CPUs, and begin again where the CPUs end (ADR 039).
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Sequence
from math import gcd
from typing import Final, Literal

import msgspec

from warren.rfc import idset
from warren.rfc.errors import BadFormat

MOST_CPUS: Final = 2**16
"""CPUs that one set of a map may name."""

_GROUPS_PATTERN: Final = re.compile(r"0[xX][0-9a-fA-F]{1,8}(,(0[xX])?[0-9a-fA-F]{1,8})*")
_MASK_PATTERN: Final = re.compile(r"0[xX][0-9a-fA-F]{1,16384}")


class CpuAffinity(msgspec.Struct, frozen=True, kw_only=True):
    """What a job asks for."""

    kind: Literal["on", "off", "per-task", "map"] = "on"
    """All cores for each task, none in particular, a share for each, or `sets`."""
    sets: Sequence[frozenset[int]] = ()
    """CPUs for each task of a node; where there are more tasks, from the first set on again."""
    verbose: bool = False
    """Whether the job's author is told where each task is bound."""
    dry_run: bool = False
    """Whether the author is told, and no task is bound."""


class NodeCores(msgspec.Struct, frozen=True, kw_only=True):
    """The cores of a node, and what its machine is."""

    ids: Sequence[int]
    """In ascending order."""
    emulated: bool
    """Whether nodes are emulated on the machine, each with as many cores."""


def read(value: object) -> CpuAffinity:
    """Read the option, `[verbose|dry-run,]on|off|per-task|map:SET;...`. Raises BadFormat."""
    text = "on" if value in (True, 1) else value
    if not isinstance(text, str):
        raise _refusal(value)
    first, comma, rest = text.partition(",")
    verbose, dry_run = first in ("verbose", "dry-run"), first == "dry-run"
    if verbose:
        text = rest if comma else "on"
    match text:
        case "on" | "off" | "per-task":
            return CpuAffinity(kind=text, verbose=verbose, dry_run=dry_run)
    if not text.startswith("map:"):
        raise _refusal(value)
    sets = tuple(map(_set, text.removeprefix("map:").split(";")))
    return CpuAffinity(kind="map", sets=sets, verbose=verbose, dry_run=dry_run)


def _refusal(value: object) -> BadFormat:
    return BadFormat(f"is {value!r}, not one of on, off, per-task, map:LIST")


def _set(text: str) -> frozenset[int]:
    """Read CPUs: a list, or a mask in one piece, or one in groups of 32 bits."""
    if _MASK_PATTERN.fullmatch(text):
        cpus = _bits(int(text, 16))
    elif _GROUPS_PATTERN.fullmatch(text):
        cpus = _bits(int("".join(group[-8:].zfill(8) for group in _without_prefixes(text)), 16))
    else:
        try:
            cpus = frozenset(idset.decode(text, limit=MOST_CPUS))
        except BadFormat as error:
            raise BadFormat(f"map: {error}") from None
    if not cpus:
        raise BadFormat(f"map: {text!r} names no CPU")
    return cpus


def _without_prefixes(text: str) -> list[str]:
    return [group.lower().removeprefix("0x") for group in text.split(",")]


def _bits(mask: int) -> frozenset[int]:
    return frozenset(number for number in range(mask.bit_length()) if mask >> number & 1)


def choose_cpus(
    rank: int, cores: Collection[int], node: NodeCores, available: Sequence[int]
) -> tuple[int, ...]:
    """Choose CPUs of those `available` for a job's cores on a node: one each while there are more.

    `rank` is the node's in the system. None are chosen where the node was given more CPUs than it
    has cores: which of them are its own is not known, and two jobs would have the same.
    """
    count = len(available)
    if not node.emulated and count > len(node.ids):
        return ()
    first = core_offset(rank, len(node.ids), count) if node.emulated else 0
    chosen: dict[int, None] = {}
    for core in sorted(cores)[:count]:
        position = first + bisect_left(node.ids, core)
        # Another core of the job may have come to lie on the same CPU, with one beside it free.
        while available[position % count] in chosen:
            position += 1
        chosen[available[position % count]] = None
    return tuple(chosen)


def core_offset(rank: int, core_count: int, cpu_count: int) -> int:
    """Return where the cores of an emulated node begin: after those of the nodes before it.

    Each time that the nodes are through, the next ones begin one further: jobs often use the
    first core of each node, and those of all nodes would be on the same few CPUs.
    """
    if core_count == 0:
        return 0
    return rank * core_count + rank // (cpu_count // gcd(core_count, cpu_count))
