"""The graph of the largest system with rabbits, made of its R and its mapping."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Result
from warren.rfc import resource_set
from warren.rfc.resource_set import NodeResources

RABBITS, WIRED, GPUS = 696, 16, 4

BUDGETS = {4: 1.0, 96: 4.0}
"""Seconds of CPU time, by how many cores a node has."""


def graphs() -> Iterator[Result]:
    """What `warren dws2jgf` takes, from its start to its end."""
    hosts = [f"node{number}" for number in range(RABBITS * WIRED)]
    with tempfile.TemporaryDirectory() as home:
        mapping, r = Path(home, "mapping"), Path(home, "R")
        mapping.write_text(json.dumps(_mapping(hosts)))
        for cores, budget in BUDGETS.items():
            each = (tuple(range(cores)), tuple(range(GPUS)))
            ranks = (NodeResources(rank, host, *each) for rank, host in enumerate(hosts))
            r.write_text(json.dumps(resource_set.encode_nodes(ranks)))
            yield Result(
                name=f"dws2jgf of {len(hosts)} nodes, {cores} cores and {GPUS} gpus",
                value=_seconds(mapping, r),
                unit="s CPU",
                budget=budget,
            )


def _mapping(hosts: list[str]) -> dict[str, dict[str, object]]:
    wired = {
        f"rabbit{number}": hosts[number * WIRED : (number + 1) * WIRED] for number in range(RABBITS)
    }
    return {
        "computes": {host: rabbit for rabbit, each in wired.items() for host in each},
        "rabbits": {
            rabbit: {"capacity": 36 * 2**40, "hostlist": ",".join(each)}
            for rabbit, each in wired.items()
        },
    }


def _seconds(mapping: Path, r: Path) -> float:
    """Return how much CPU time the command takes, as a process of its own."""
    before = os.times()
    with r.open() as given:
        subprocess.run(
            [sys.executable, "-m", "warren", "dws2jgf", "--cluster-name=c", str(mapping)],
            stdin=given,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
    after = os.times()
    return (
        after.children_user - before.children_user + after.children_system - before.children_system
    )


ALL = {"dws2jgf": graphs}
