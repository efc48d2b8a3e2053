"""`warren workflows` and `warren rabbits`: the storage side, for people without kubectl."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click

from warren.base.bytesize import human
from warren.base.objects import Kind, Object
from warren.base.times import parse_rfc3339
from warren.cli.common import (
    json_option,
    print_json,
    print_table,
    require_running,
    run,
    statedir_option,
)
from warren.daemons.statedir import StateDir
from warren.dws import kinds, labels


@click.command()
@statedir_option
@json_option
def workflows(state: StateDir, as_json: bool) -> None:
    """List Workflows: where each job's storage is, and what it waits for."""
    from warren.base.times import age

    (found,) = _listed(state, kinds.WORKFLOW)
    if as_json:
        print_json({"items": found})
        return
    rows = []
    for each in found:
        status = each.get("status", {})
        created = parse_rfc3339(each["metadata"]["creationTimestamp"])
        rows.append(
            (
                each["metadata"]["name"],
                each["spec"]["jobID"],
                each["spec"]["desiredState"],
                status.get("state", ""),
                "yes" if status.get("ready") else "no",
                status.get("status", ""),
                age(time.time() - created),
                status.get("message", ""),
            )
        )
    headers = ("NAME", "JOBID", "DESIRED", "STATE", "READY", "STATUS", "AGE", "MESSAGE")
    print_table(headers, rows, right="AGE")


@click.command()
@statedir_option
@json_option
def rabbits(state: StateDir, as_json: bool) -> None:
    """List rabbits: their flash, and who has it."""
    storages, shares, blocks, configurations = _listed(
        state,
        kinds.STORAGE,
        kinds.NNF_NODE_STORAGE,
        kinds.NNF_NODE_BLOCK_STORAGE,
        kinds.SYSTEM_CONFIGURATION,
    )
    flash = _flash(shares, blocks)
    computes = {
        node["name"]: [each["name"] for each in node.get("computesAccess", ())]
        for configuration in configurations
        for node in configuration["spec"].get("storageNodes", ())
    }
    found = [_rabbit(storage, shares, flash, computes) for storage in storages]
    if as_json:
        print_json({"rabbits": found})
        return
    from warren.rfc import hostlist

    rows = [
        (
            each["name"],
            each["status"],
            human(each["capacity"]),
            human(each["allocated"]),
            human(each["capacity"] - each["allocated"]),
            hostlist.encode(each["computes"]),
            ",".join(each["workflows"]),
        )
        for each in found
    ]
    headers = ("NAME", "STATUS", "CAPACITY", "ALLOCATED", "FREE", "COMPUTES", "WORKFLOWS")
    print_table(headers, rows, right="CAPACITY ALLOCATED FREE")


def _flash(shares: Sequence[Object], blocks: Sequence[Object]) -> Mapping[str, int]:
    """Return how many bytes of flash volumes take on each rabbit."""
    found: Counter[str] = Counter()
    for block in blocks:
        sizes = (each["capacity"] for each in block["spec"]["allocations"])
        found[block["metadata"]["namespace"]] += sum(sizes)
    for share in shares:
        if "blockReference" not in share["spec"]:  # of an older version
            size = share["spec"]["count"] * share["spec"]["capacity"]
            found[share["metadata"]["namespace"]] += size
    return found


def _rabbit(
    storage: Object,
    shares: Sequence[Object],
    flash: Mapping[str, int],
    computes: Mapping[str, list[str]],
) -> dict[str, Any]:
    name = storage["metadata"]["name"]
    own = [share for share in shares if share["metadata"]["namespace"] == name]
    status = storage.get("status", {})
    return {
        "name": name,
        "state": storage["spec"].get("state", ""),
        "status": status.get("status", "Starting"),
        "capacity": status.get("capacity", 0),
        "allocated": flash.get(name, 0),
        "computes": computes.get(name, []),
        "workflows": sorted(
            {share["metadata"]["labels"].get(labels.WORKFLOW_NAME, "") for share in own}
        ),
    }


def _listed(state: StateDir, *wanted: Kind) -> list[list[Object]]:
    """List the objects of some kinds."""
    from warren.kube import kubeconfig
    from warren.kube.http import connect

    require_running(state)
    state.demand_owner()

    async def work() -> list[list[Object]]:
        async with connect(kubeconfig.load(state.kubeconfig)) as client:
            return [(await client.list(kind)).items for kind in wanted]

    return run(work())
