"""`warren workflows` and `warren rabbits`: the storage side, for people without kubectl."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from warren.base.bytesize import format_bytes
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
def workflows(statedir: StateDir, as_json: bool) -> None:
    """List Workflows: the state of each job's storage, and what it waits for."""
    from warren.base.times import age

    (workflow_objects,) = list_objects(statedir, kinds.WORKFLOW)
    if as_json:
        print_json({"items": workflow_objects})
        return
    rows = []
    for each in workflow_objects:
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
    print_table(headers, rows, right_aligned="AGE")


def list_rabbits(statedir: StateDir, as_json: bool) -> None:
    """Print the rabbits: their flash, and what it is allocated to."""
    storages, shares, block_storages, configurations = list_objects(
        statedir,
        kinds.STORAGE,
        kinds.NNF_NODE_STORAGE,
        kinds.NNF_NODE_BLOCK_STORAGE,
        kinds.SYSTEM_CONFIGURATION,
    )
    shown_rabbits = rabbit_summaries(storages, shares, block_storages, configurations)
    if as_json:
        print_json({"rabbits": shown_rabbits})
        return
    from warren.rfc import hostlist

    rows = [
        (
            each["name"],
            each["status"],
            format_bytes(each["capacity"]),
            format_bytes(each["allocated"]),
            format_bytes(max(0, each["capacity"] - each["allocated"])),
            hostlist.encode(each["computes"]),
            ",".join(each["workflows"]),
            ",".join(each["persistent"]),
            ",".join(each["system"]),
            each["message"],
        )
        for each in shown_rabbits
    ]
    owner_headers = ("WORKFLOWS", "PERSISTENT", "SYSTEM")
    headers = (
        "NAME",
        "STATUS",
        "CAPACITY",
        "ALLOCATED",
        "FREE",
        "COMPUTES",
        *owner_headers,
        "MESSAGE",
    )
    print_table(headers, rows, right_aligned="CAPACITY ALLOCATED FREE")


def rabbit_summaries(
    storages: Sequence[Object],
    shares: Sequence[Object],
    block_storages: Sequence[Object],
    configurations: Sequence[Object],
) -> list[dict[str, Any]]:
    """Return what there is to say of each rabbit: its flash in bytes, and what has taken it."""
    allocated_bytes_by_rabbit = _allocated_bytes(shares, block_storages)
    computes_by_rabbit = {
        node["name"]: [each["name"] for each in node.get("computesAccess", ())]
        for configuration in configurations
        for node in configuration["spec"].get("storageNodes", ())
    }
    owners_by_rabbit: dict[str, dict[str, set[str]]] = {}
    for share in shares:
        kind, name = _owner(share)
        names_by_kind = owners_by_rabbit.setdefault(share["metadata"]["namespace"], {})
        names_by_kind.setdefault(kind, set()).add(name)
    return [
        _rabbit_summary(storage, allocated_bytes_by_rabbit, computes_by_rabbit, owners_by_rabbit)
        for storage in storages
    ]


_OWNER_KINDS: Final = ("workflows", "persistent", "system")


def _owner(share: Object) -> tuple[str, str]:
    """Return the owner of a share: one of `_OWNER_KINDS`, and its name."""
    share_labels = share["metadata"].get("labels") or {}
    if labels.WORKFLOW_NAME in share_labels:
        return "workflows", share_labels[labels.WORKFLOW_NAME]
    persistent, owner = labels.persistent_instance_of(share), labels.owner_of(share)
    full_name = persistent[0] if persistent else owner[0].rpartition(" ")[2] if owner else ""
    namespace, _, name = full_name.rpartition("/")
    # What is where all of it is, as a rule, is called by its name alone.
    shown_name = name if namespace == kinds.DEFAULT_NAMESPACE else full_name
    return ("persistent" if persistent else "system"), shown_name


def _allocated_bytes(
    shares: Sequence[Object], block_storages: Sequence[Object]
) -> Mapping[str, int]:
    """Return how many bytes of flash volumes take on each rabbit."""
    bytes_by_rabbit: Counter[str] = Counter()
    for block_storage in block_storages:
        allocations = block_storage["spec"].get("allocations") or ()
        sizes = (each.get("capacity", 0) for each in allocations)
        bytes_by_rabbit[block_storage["metadata"]["namespace"]] += sum(sizes)
    for share in shares:
        if "blockReference" not in share["spec"]:  # of an older version
            size = share["spec"]["count"] * share["spec"]["capacity"]
            bytes_by_rabbit[share["metadata"]["namespace"]] += size
    return bytes_by_rabbit


def _rabbit_summary(
    storage: Object,
    allocated_bytes_by_rabbit: Mapping[str, int],
    computes_by_rabbit: Mapping[str, list[str]],
    owners_by_rabbit: Mapping[str, Mapping[str, set[str]]],
) -> dict[str, Any]:
    name = storage["metadata"]["name"]
    names_by_kind = owners_by_rabbit.get(name, {})
    status = storage.get("status", {})
    return {
        "name": name,
        "state": storage["spec"].get("state", ""),
        "status": status.get("status", "Starting"),
        "message": status.get("message") or "",
        "capacity": status.get("capacity", 0),
        "allocated": allocated_bytes_by_rabbit.get(name, 0),
        "computes": computes_by_rabbit.get(name, []),
        **{kind: sorted(names_by_kind.get(kind, ())) for kind in _OWNER_KINDS},
    }


def list_objects(statedir: StateDir, *listed_kinds: Kind) -> list[list[Object]]:
    """List the objects of some kinds."""
    from warren.kube import kubeconfig
    from warren.kube.http import connect

    require_running(statedir)
    statedir.check_owner()

    async def work() -> list[list[Object]]:
        async with connect(kubeconfig.load(statedir.kubeconfig)) as client:
            return [(await client.list(kind)).items for kind in listed_kinds]

    return run(work())
