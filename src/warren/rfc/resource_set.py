"""What a job or a system has: resource sets, version 1 (RFC 20)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warren.rfc import hostlist, idset
from warren.rfc.errors import BadFormat


@dataclass(frozen=True)
class Rank:
    """One node: its rank, its host name, and its cores as ids."""

    rank: int
    host: str
    cores: tuple[int, ...]


def encode(
    ranks: Sequence[Rank],
    *,
    slots: int | None = None,
    starttime: float = 0.0,
    expiration: float = 0.0,
    scheduling: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write R. Times are seconds since the epoch, 0 for unset."""
    ordered = sorted(ranks, key=lambda rank: rank.rank)
    lite: dict[str, list[int]] = {}
    for rank in ordered:
        lite.setdefault(idset.encode(rank.cores), []).append(rank.rank)
    execution: dict[str, Any] = {
        "R_lite": [
            {"rank": idset.encode(ids), "children": {"core": cores}} for cores, ids in lite.items()
        ],
        "starttime": starttime,
        "expiration": expiration,
        "nodelist": [hostlist.encode(rank.host for rank in ordered)],
    }
    if slots is not None:
        execution["nslots"] = slots
    result: dict[str, Any] = {"version": 1, "execution": execution}
    if scheduling is not None:
        result["scheduling"] = scheduling
    return result


def decode(r: Mapping[str, Any]) -> list[Rank]:
    """Read R's nodes in ascending rank. Raises BadFormat where R is not RFC 20's."""
    try:
        if r["version"] != 1:
            raise BadFormat(f"R is of version {r['version']}, not 1")
        cores = {
            rank: idset.decode(entry["children"]["core"])
            for entry in r["execution"]["R_lite"]
            for rank in idset.decode(entry["rank"])
        }
        hosts = nodelist(r)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadFormat(f"R is malformed: {error!r}") from None
    if len(hosts) != len(cores):
        raise BadFormat(f"R names {len(hosts)} hosts for {len(cores)} ranks")
    return [Rank(rank, host, cores[rank]) for rank, host in zip(sorted(cores), hosts, strict=True)]


def nodelist(r: Mapping[str, Any]) -> list[str]:
    """Give R's hosts, in ascending order of their ranks."""
    return hostlist.decode(",".join(r["execution"]["nodelist"]))


def without_scheduling(r: Mapping[str, Any]) -> dict[str, Any]:
    """Give R as everyone but the scheduler sees it."""
    return {key: value for key, value in r.items() if key != "scheduling"}


def ranks_text(ranks: Iterable[Rank]) -> str:
    """Give the ranks as an idset."""
    return idset.encode(rank.rank for rank in ranks)
