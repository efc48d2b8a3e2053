"""What a container beside a job costs over what runs it, which is bubblewrap."""

import asyncio
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.journeys.conftest import Cluster

from benchmarks.measure import Result, median_ms
from warren.base.objects import Create, Key, Object, Remove
from warren.dws import kinds
from warren.kube import http, kubeconfig
from warren.kube.client import Client
from warren.kube.informer import Informer, Informers
from warren.kube.perform import perform

_TIMES: Final = 15
_SECONDS: Final = 60.0
_BUILD: Final = Path(__file__).parents[1] / "examples" / "containers" / "busybox" / "build"
_USER: Final = os.geteuid() or 65534


def beside_a_job() -> Iterator[Result]:
    """One pod after the other, and one batch Job, each with a container that ends at once."""
    if any(shutil.which(each) is None for each in ("bwrap", "umoci", "busybox")):
        print("containers: bubblewrap, umoci or busybox is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="warren-bench-") as directory:
        cluster = Cluster(Path(directory), "--rabbits", "1", "--computes", "1")
        cluster.state.prepare()
        subprocess.run([_BUILD, cluster.state.images / "busybox"], check=True)
        cluster.up()
        try:
            pods, jobs = asyncio.run(_measured(cluster))
            engine = median_ms(lambda: _engine(cluster), _TIMES)
        finally:
            cluster.down()
    over = "over the engine"
    yield Result(name="a container by bubblewrap alone", value=engine, unit="ms")
    yield Result(name=f"a pod on a rabbit, {over}", value=pods - engine, unit="ms", budget=100)
    yield Result(name=f"a batch Job, {over}", value=jobs - engine, unit="ms", budget=100)


def _engine(cluster: Cluster) -> None:
    (root,) = (cluster.state.image_cache / "unpacked").glob("*/rootfs")
    subprocess.run(
        ["bwrap", "--unshare-user", "--uid", str(_USER), "--unshare-pid", "--unshare-ipc",
         "--unshare-uts", "--ro-bind", root, "/", "--proc", "/proc", "--dev", "/dev",
         "--cap-drop", "ALL", "/bin/true"],
        check=True,
    )  # fmt: skip


async def _measured(cluster: Cluster) -> tuple[float, float]:
    """Return how long a pod and a Job take, in milliseconds, from their creation to their end."""
    async with http.connect(kubeconfig.load(cluster.state.kubeconfig)) as client:
        informers = Informers(client)
        pods, jobs = informers.of(kinds.POD), informers.of(kinds.BATCH_JOB)
        nodes = informers.of(kinds.NODE)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(informers.run())
            await informers.wait_synced()
            while nodes.is_empty:  # noqa: ASYNC110 - the agent says when it is ready
                await asyncio.sleep(0.05)
            await _taken(client, pods, _pod("first"))  # has the image unpacked
            found = [
                statistics.median(
                    [await _taken(client, informer, made(f"a{n}")) for n in range(_TIMES)]
                )
                for informer, made in ((pods, _pod), (jobs, _job))
            ]
            watching.cancel()
    return found[0], found[1]


async def _taken(client: Client, informer: Informer, obj: Object) -> float:
    kind, key = informer.kind, Key(kinds.DEFAULT_NAMESPACE, obj["metadata"]["name"])
    ended = asyncio.Event()

    def look(news: Object) -> None:
        if news["metadata"]["name"] == key.name and _has_ended(news):
            ended.set()

    informer.listen(look)
    began = time.perf_counter()
    async with asyncio.timeout(_SECONDS):
        await perform(client, [Create(kind=kind, object=obj)])
        await ended.wait()
    taken = (time.perf_counter() - began) * 1000
    await perform(client, [Remove(kind=kind, key=key)])
    return taken


def _has_ended(obj: Object) -> bool:
    status = obj.get("status") or {}
    if status.get("phase") == "Failed" or status.get("failed"):
        raise AssertionError(f"the container has failed: {status}")
    return status.get("phase") == "Succeeded" or any(
        each["type"] == "Complete" for each in status.get("conditions") or ()
    )


def _spec() -> Object:
    identity = {"runAsUser": _USER, "runAsGroup": _USER}
    app = {
        "name": "app",
        "image": "busybox",
        "command": ["/bin/true"],
        "securityContext": identity,
    }
    return {"restartPolicy": "Never", "containers": [app]}


def _meta(name: str) -> Object:
    return {"name": name, "namespace": kinds.DEFAULT_NAMESPACE}


def _pod(name: str) -> Object:
    return {"metadata": _meta(name), "spec": {**_spec(), "nodeName": "rabbit-0"}}


def _job(name: str) -> Object:
    where = {"nodeSelector": {"kubernetes.io/hostname": "rabbit-0"}}
    template = {"spec": {**_spec(), **where}}
    return {
        "metadata": _meta(name),
        "spec": {"completions": 1, "parallelism": 1, "backoffLimit": 0, "template": template},
    }


ALL = {"containers beside a job": beside_a_job}
