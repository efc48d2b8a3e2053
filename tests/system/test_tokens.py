"""A job and the containers beside it know each other by a token, in a whole cluster."""

import asyncio
import errno
import os
import pwd
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from tests.harness import virtual
from tests.harness.world import World, opened
from warren.base.objects import Change, Object, key_of
from warren.daemons.compose import Control
from warren.dws import containerauth, kinds
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.rpc.message import RpcError

WITH = "#DW jobdw type=gfs2 capacity=1GiB name=scratch requires=user-container-auth"
BESIDE = "#DW container name=beside profile=index DW_JOB_index_data=scratch"
USER = os.getuid() or pwd.getpwnam("nobody").pw_uid
"""Containers are never root's."""
PROFILE: Object = {
    "metadata": {"name": "index", "namespace": kinds.PROFILES_NAMESPACE},
    "data": {
        "storages": [{"name": "DW_JOB_index_data"}],
        "spec": {"containers": [{"name": "main", "image": "index:1", "command": ["/index"]}]},
    },
}


async def kubelet(control: Control) -> None:
    """Be the kubelet of all rabbits: what is made runs, and ends well when it is told to."""
    store = control.api.store
    while True:
        for pod in list(store.objects_of(kinds.POD)):
            job = store.get(kinds.BATCH_JOB, _owner(pod))
            ending = "activeDeadlineSeconds" in job["spec"]
            ready = {"type": "Ready", "status": "True"}
            status = {"phase": "Succeeded"} if ending else {
                "phase": "Running", "conditions": [ready]}  # fmt: skip
            if pod.get("status", {}).get("phase") != status["phase"]:
                patch = {"status": status}
                await store.patch(Change(kind=kinds.POD, key=key_of(pod), patch=patch, status=True))
        await asyncio.sleep(1)


def _owner(pod: Object) -> Any:
    (owner,) = pod["metadata"]["ownerReferences"]
    return key_of({"metadata": {"name": owner["name"], "namespace": "default"}})


def test_tasks_have_the_token_and_no_record_of_the_job_has_it() -> None:
    tokens: list[str] = []

    async def life(world: World, control: Control) -> None:
        store = control.api.store
        for chassis in world.shape.chassis():
            await store.create(kinds.NODE, {"metadata": {"name": chassis.rabbit}})
        await store.create(kinds.CONTAINER_PROFILE, PROFILE)
        running = asyncio.ensure_future(kubelet(control))
        await asyncio.sleep(1)
        job = await world.submit(control, attributes={"dw": f"{WITH}\n{BESIDE}"})
        await world.until(lambda: world.seen)

        (secret,) = [
            each
            for each in store.objects_of(kinds.SECRET)
            if each["metadata"]["name"] == f"fluxjob-{job}-token"
        ]
        tokens.append(containerauth.token_of(secret) or "")
        asked = {"id": job}
        stranger = control.instance.bus.handle(USER + 1)
        with pytest.raises(RpcError) as refused:
            await stranger.rpc("workflow.token", asked)
        assert refused.value.errnum == errno.EPERM

        ended = await world.ended(control, job)
        assert ended.result is Result.COMPLETED
        kept = await control.instance.bus.handle().rpc(
            "job-info.lookup", {"id": job, "keys": ["jobspec", "eventlog", "rabbit_workflow"]}
        )
        assert tokens[0] not in orjson.dumps(kept).decode()
        await world.until(lambda: not list(store.objects_of(kinds.SECRET)))
        running.cancel()

    def play(command: Sequence[str], environment: Mapping[str, str]) -> TaskBehavior:
        return TaskBehavior(seconds=5)

    async def main() -> None:
        async with opened(play=play) as world:
            world.owner = USER
            await world.live(lambda control: life(world, control))
            given = {each["DW_WORKFLOW_TOKEN"] for each in world.seen.values()}
            assert given == set(tokens)

    virtual.run(main())
