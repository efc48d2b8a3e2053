"""The controller of batch Jobs: what wakes it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tests.controllers.alone import Api, alone, running
from tests.dws.builders import meta
from warren.base.objects import Key, key_of
from warren.base.times import rfc3339
from warren.controllers.batchjobs import BatchJobController
from warren.dws import kinds
from warren.dws.pods import jobpods
from warren.dws.pods.jobpods import FIRST_PAUSE
from warren.kube.informer import Informers
from warren.kube.server.local import LocalClient

JOB = {
    "metadata": meta("index"),
    "spec": {
        "backoffLimit": 1,
        "template": {"spec": {"containers": [], "nodeSelector": {"kubernetes.io/hostname": "r0"}}},
    },
}


def with_controller(story: Callable[[Api], Awaitable[None]]) -> None:
    async def main(api: Api) -> None:
        informers = Informers(LocalClient(api.store), indexes={"job": jobpods.job_of})
        controller = BatchJobController(api, informers, api.clock)
        async with running(api, informers.run(), controller.reconciler.run()):
            await story(api)

    alone(main)


def pods(api: Api) -> list[Any]:
    return sorted(api.store.objects_of(kinds.POD), key=lambda each: str(key_of(each)))


def status(api: Api) -> Any:
    return api.find(kinds.BATCH_JOB, Key("default", "index"))["status"]


async def ended(api: Api, name: str, phase: str) -> None:
    terminated = {"state": {"terminated": {"finishedAt": rfc3339(api.clock.now())}}}
    patch = {"status": {"phase": phase, "containerStatuses": [terminated]}}
    await api.change(kinds.POD, Key("default", name), patch, status=True)


def test_a_job_comes_to_its_end_by_the_news_of_its_pods() -> None:
    async def story(api: Api) -> None:
        await api.add(kinds.BATCH_JOB, JOB)
        (first,) = pods(api)
        assert first["spec"]["nodeName"] == "r0"
        assert status(api)["active"] == 1
        await ended(api, first["metadata"]["name"], "Failed")
        assert (status(api)["active"], status(api)["failed"]) == (0, 1)
        await asyncio.sleep(FIRST_PAUSE + 1)
        assert len(pods(api)) == 2
        second = next(each for each in pods(api) if not each.get("status"))
        await ended(api, second["metadata"]["name"], "Succeeded")
        assert [each["type"] for each in status(api)["conditions"]] == ["Complete"]

    with_controller(story)


def test_a_pod_that_was_removed_by_hand_is_made_again() -> None:
    async def story(api: Api) -> None:
        await api.add(kinds.BATCH_JOB, JOB)
        (first,) = pods(api)
        await api.remove(kinds.POD, key_of(first))
        (again,) = pods(api)
        assert again["metadata"]["name"] == first["metadata"]["name"]
        assert again["metadata"]["uid"] != first["metadata"]["uid"]

    with_controller(story)


def test_pods_of_others_are_left_alone() -> None:
    async def story(api: Api) -> None:
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "index", "uid": "1"}
        theirs = {"metadata": meta("theirs", ownerReferences=[owner]), "spec": {}}
        await api.add(kinds.POD, theirs)
        assert api.written == []

    with_controller(story)


def test_a_job_is_woken_by_its_own_pods_alone_and_is_nothing_to_do_once_it_is_gone() -> None:
    async def main(api: Api) -> None:
        informers = Informers(LocalClient(api.store), indexes={"job": jobpods.job_of})
        controller = BatchJobController(api, informers, api.clock)
        woken: list[Key] = []
        controller.reconciler.add = lambda key, changed=None: woken.append(key)  # type: ignore[method-assign]
        async with running(api, informers.run()):
            for kind in ("ReplicaSet", "Job"):
                owner = {"apiVersion": "x", "kind": kind, "name": f"{kind.lower()}-1", "uid": "1"}
                named = meta(kind.lower(), ownerReferences=[owner])
                await api.add(kinds.POD, {"metadata": named, "spec": {}})
            assert {*woken} == {Key("default", "job-1")}
            assert await controller.reconcile(Key("default", "job-1")) is None
        assert api.written == []

    alone(main)
