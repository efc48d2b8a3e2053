"""A thousand ClientMounts on one agent: real directories, in the mount namespace of one node."""

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.journeys.conftest import Cluster

from benchmarks.measure import Result
from warren.base.objects import Change, Create, Key, Object, Remove, Write
from warren.dws import kinds
from warren.kube import http, kubeconfig
from warren.kube.client import Client
from warren.kube.informer import Informer, Informers
from warren.kube.perform import perform

_MOUNTS: Final = 1000
_AT_ONCE: Final = 50
_SECONDS: Final = 600.0
_NODE: Final = "compute-00"
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def on_one_agent() -> Iterator[Result]:
    """All of them made, unmounted and removed, each step as long as its last one takes."""
    with tempfile.TemporaryDirectory(prefix="warren-bench-") as directory:
        options = ("--rabbits", "1", "--computes", "1", "--flash", "directory")
        cluster = Cluster(Path(directory), *options)
        cluster.up()
        try:
            made = cluster("persistent", "create", "shared", "--type", "xfs", "--capacity", "1GiB")
            if made.returncode:
                raise RuntimeError(made.stderr)
            before = _cpu(cluster)
            for name, seconds in asyncio.run(_measured(cluster)).items():
                yield Result(name=f"1,000 ClientMounts on one agent, {name}", value=seconds,
                             unit="s")  # fmt: skip
            spent = _cpu(cluster) - before
            yield Result(name="1,000 ClientMounts on one agent, its CPU", value=spent, unit="s")
            cluster("persistent", "destroy", "shared")
        finally:
            cluster.down()


def _cpu(cluster: Cluster) -> float:
    """Return the seconds of CPU that the node's agent, and all that it has waited for, have had."""
    process = next(pid for name, pid in cluster.agents().items() if name == _NODE)
    stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, stat[11:15])) / _TICKS


async def _measured(cluster: Cluster) -> dict[str, float]:
    async with http.connect(kubeconfig.load(cluster.state.kubeconfig)) as client:
        informers = Informers(client)
        mounts, shares = informers.of(kinds.CLIENT_MOUNT), informers.of(kinds.NNF_NODE_STORAGE)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(informers.run())
            await informers.wait_synced()
            (share,) = shares.all()
            keys = [Key(_NODE, f"m{number}") for number in range(_MOUNTS)]
            creations: list[Write] = [
                Create(kind=kinds.CLIENT_MOUNT, object=_made(key, share, cluster.state.mounts))
                for key in keys
            ]
            undo = {"spec": {"desiredState": "unmounted"}}
            changes: list[Write] = [
                Change(kind=kinds.CLIENT_MOUNT, key=key, patch=undo) for key in keys
            ]
            taken = {
                "mounted": await _taken(client, mounts, "mounted", creations),
                "unmounted": await _taken(client, mounts, "unmounted", changes),
            }
            await _write(client, [Remove(kind=kinds.CLIENT_MOUNT, key=key) for key in keys])
            watching.cancel()
    return taken


def _made(key: Key, share: Object, root: Path) -> Object:
    meta = share["metadata"]
    mount = {
        "mountPath": str(root / "bench" / key.name),
        "type": "xfs",
        "targetType": "directory",
        "options": "",
        "setPermissions": False,
        "userID": os.getuid(),
        "groupID": os.getgid(),
        "device": {
            "type": "lvm",
            "lvm": {
                "deviceType": "nvme",
                "volumeGroup": meta["namespace"],
                "logicalVolume": f"{meta['uid']}-0",
            },
        },
    }
    return {
        "metadata": {"name": key.name, "namespace": key.namespace},
        "spec": {"node": _NODE, "desiredState": "mounted", "mounts": [mount]},
    }


async def _taken(client: Client, mounts: Informer, state: str, writes: Sequence[Write]) -> float:
    """Return the seconds from the first of some writes until all mounts are in a state."""
    there: set[str] = set()
    all_there = asyncio.Event()

    def look(news: Object) -> None:
        status = news.get("status") or {}
        if status.get("error"):
            raise AssertionError(f"{news['metadata']['name']}: {status['error']}")
        if status.get("allReady") and status["mounts"][0]["state"] == state:
            there.add(news["metadata"]["name"])
        if len(there) == _MOUNTS:
            all_there.set()

    mounts.listen(look)
    began = time.perf_counter()
    async with asyncio.timeout(_SECONDS):
        await _write(client, writes)
        await all_there.wait()
    return time.perf_counter() - began


async def _write(client: Client, writes: Sequence[Write]) -> None:
    """Write all that there is, some of it at once."""
    for at in range(0, len(writes), _AT_ONCE):
        async with asyncio.TaskGroup() as tasks:
            for each in writes[at : at + _AT_ONCE]:
                tasks.create_task(perform(client, [each]))


ALL = {"a thousand mounts": on_one_agent}
