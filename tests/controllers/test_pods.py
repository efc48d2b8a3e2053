"""Pods of a node: what is done about them, when, and what is told."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, caught_up
from tests.dws.builders import meta
from tests.kube.clusters import alongside
from warren.base.objects import Change, Key, Object, Remove, key_of
from warren.base.times import parse_rfc3339
from warren.controllers.pods import FINALIZER, PodReconciler
from warren.dws import kinds, labels
from warren.dws.node import NodeTrouble
from warren.dws.pods import podstatus
from warren.dws.pods.plans import Image
from warren.dws.pods.pod import PodState
from warren.kube.client import Unavailable
from warren.kube.informer import Informers
from warren.kube.server.local import LocalClient

POD = Key("default", "wf-r0")
IDENTITY = {"runAsUser": 1, "runAsGroup": 2}
APP = {"name": "app", "image": "index:1", "command": ["/x"], "securityContext": IDENTITY}


class FakeRunner:
    """A node whose containers do as they are told. What runs outlives an agent."""

    def __init__(self) -> None:
        self.plans: dict[str, Object] = {}
        self.states: dict[str, PodState] = {}
        self.hosts: dict[str, str] = {}
        self.removed: list[str] = []
        self.stopped: list[str] = []
        self.trouble: dict[str, Exception] = {}
        self.unfollowed: list[Exception] = []
        self.slow: dict[str, asyncio.Event] = {}
        """Images that are fetched for as long as these are not set."""
        self.tried: list[float] = []
        """When images and beginnings that failed were asked for."""
        self.told: list[str] = []
        self._news = asyncio.Condition()

    host_address = "127.9.0.1"

    async def why_unavailable(self) -> str | None:
        return None

    def uids(self) -> Sequence[str]:
        return [*self.plans]

    def state(self, uid: str) -> PodState | None:
        return self.states.get(uid)

    def address(self, uid: str) -> str | None:
        return "10.0.1.2" if uid in self.plans else None

    async def ensure_image(self, reference: str) -> Image:
        if "image" in self.trouble:
            self._try("image")
        if reference in self.slow:
            await self.slow[reference].wait()
        return Image(root=f"/images/{reference}")

    async def start(self, uid: str, make: Callable[[str], Object]) -> None:
        if "start" in self.trouble:
            self._try("start")
        if uid not in self.states:
            self.plans[uid] = make("10.0.1.2")
            await self.become(uid, {"name": "app", "startedAt": 0.0})

    def _try(self, what: str) -> None:
        self.tried.append(asyncio.get_running_loop().time())
        raise self.trouble[what]

    async def become(self, uid: str, app: Object, *, alive: bool = True, **more: Any) -> None:
        self.states[uid] = PodState(alive=alive, init=(), containers=(app,), **more)
        async with self._news:
            self._news.notify_all()

    async def end(self, uid: str, code: int = 0, **more: Any) -> None:
        app = {"name": "app", "startedAt": 0.0, "finishedAt": 1.0, "exitCode": code}
        await self.become(uid, app, alive=False, **more)

    async def follow(self, uid: str) -> AsyncIterator[PodState]:
        if self.unfollowed:
            raise self.unfollowed.pop()
        while uid in self.states:
            yield self.states[uid]
            if not self.states[uid].alive:
                return
            async with self._news:
                await self._news.wait()

    def stop(self, uid: str) -> None:
        self.stopped.append(uid)
        self.states[uid] = PodState(
            alive=True, init=(), containers=self.states[uid].containers, stopped=True
        )

    async def remove(self, uid: str) -> None:
        self.removed.append(uid)
        self.plans.pop(uid, None)
        self.states.pop(uid, None)

    def tell_hosts(self, uid: str, text: str) -> None:
        self.hosts[uid] = text
        self.told.append(uid)


def pod(name: str = "wf-r0", node: str = "r0", **spec: Any) -> Object:
    return {
        "metadata": meta(name),
        "spec": {
            "nodeName": node,
            "hostname": node,
            "subdomain": "wf",
            "restartPolicy": "Never",
            "containers": [APP],
            **spec,
        },
    }


Story = Callable[[Api, FakeRunner], Awaitable[None]]


@asynccontextmanager
async def agent(api: Api, runner: FakeRunner, node: str = "r0") -> AsyncIterator[None]:
    informers = Informers(LocalClient(api.store), indexes={"subdomain": podstatus.subdomain_of})
    pods = PodReconciler(api, informers, runner, api.clock, node)
    async with alongside(informers.run()):
        await informers.wait_synced()
        async with alongside(pods.reconciler.run()), alongside(pods.run()):
            yield


def lived(*stories: Story) -> None:
    """Live through stories, with a new agent for each."""

    async def main(api: Api) -> None:
        runner = FakeRunner()
        for story in stories:
            async with agent(api, runner):
                await story(api, runner)

    alone(main)


def status(api: Api, key: Key = POD) -> Mapping[str, Any]:
    found: Mapping[str, Any] = api.find(kinds.POD, key)["status"]
    return found


def uid(api: Api, key: Key = POD) -> str:
    return str(api.find(kinds.POD, key)["metadata"]["uid"])


def test_a_pod_is_run_to_its_end_and_told_of() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod())
        await caught_up()
        assert api.find(kinds.POD, POD)["metadata"]["finalizers"] == [FINALIZER]
        assert status(api)["phase"] == "Running"
        assert (status(api)["podIP"], status(api)["hostIP"]) == ("10.0.1.2", "127.9.0.1")
        assert runner.plans[uid(api)]["containers"][0]["root"] == "/images/index:1"
        await runner.end(uid(api))
        await caught_up()
        assert status(api)["phase"] == "Succeeded"
        assert runner.removed == []  # what it has printed is kept

    lived(story)


def test_pods_of_other_nodes_are_left_alone() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod(node="r1"))
        await caught_up()
        assert runner.plans == {}
        assert api.written == []

    lived(story)


def test_a_pod_that_is_removed_goes_when_nothing_of_it_runs_any_more() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod())
        await caught_up()
        own = uid(api)
        await api.remove(kinds.POD, POD)
        await caught_up()
        assert runner.stopped == [own]
        assert api.find(kinds.POD, POD) is not None
        await runner.end(own, 137, stopped=True)
        await caught_up()
        assert api.find(kinds.POD, POD) is None
        assert runner.uids() == []

    lived(story)


def test_a_pod_goes_on_while_its_agent_is_away_and_its_end_is_told_then() -> None:
    async def before(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod())
        await caught_up()

    async def after(api: Api, runner: FakeRunner) -> None:
        await caught_up()
        assert status(api)["phase"] == "Running"
        await runner.end(uid(api), 4)
        await caught_up()
        assert status(api)["phase"] == "Failed"
        (container,) = status(api)["containerStatuses"]
        assert container["state"]["terminated"]["exitCode"] == 4

    lived(before, after)


@pytest.mark.parametrize(
    "trouble", [NodeTrouble("it does not end"), OSError("no memory"), ValueError("no JSON")]
)
def test_a_pod_that_cannot_be_followed_ends_no_agent_and_is_followed_again(
    trouble: Exception,
) -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        runner.unfollowed += [trouble, trouble]
        await api.add(kinds.POD, pod())
        await caught_up()
        assert len(runner.unfollowed) == 1  # it is left in peace for a while
        await asyncio.sleep(60)
        assert runner.unfollowed == []
        await runner.end(uid(api))
        await caught_up()
        assert status(api)["phase"] == "Succeeded"

    lived(story)


def test_what_runs_is_left_alone_by_an_agent_that_begins() -> None:
    """Also where it has not heard yet which pods there are."""

    async def main(api: Api) -> None:
        await api.add(kinds.POD, pod())
        runner = FakeRunner()
        runner.plans[uid(api)] = {}
        await runner.become(uid(api), {"name": "app", "startedAt": 0.0})
        informers = Informers(LocalClient(api.store), indexes={"subdomain": podstatus.subdomain_of})
        pods = PodReconciler(api, informers, runner, api.clock, "r0")
        async with alongside(pods.reconciler.run()), alongside(pods.run()):
            await caught_up()
            async with alongside(informers.run()):
                await caught_up()
                assert status(api)["phase"] == "Running"
        assert runner.removed == []

    alone(main)


def test_what_has_ended_while_its_agent_was_away_is_told_and_asked_nothing_more() -> None:
    async def main(api: Api) -> None:
        runner = FakeRunner()
        async with agent(api, runner):
            await api.add(kinds.POD, pod())
            await caught_up()
        runner.told.clear()
        await runner.end(uid(api))
        async with agent(api, runner):
            await caught_up()
            assert status(api)["phase"] == "Succeeded"
            assert runner.told == []

    alone(main)


def test_a_pod_on_its_way_out_is_stopped_once_and_goes_though_its_agent_began_anew() -> None:
    async def before(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod())
        await caught_up()
        await api.remove(kinds.POD, POD)

    async def after(api: Api, runner: FakeRunner) -> None:
        await caught_up()
        assert runner.stopped == [uid(api)]
        await runner.end(uid(api), 137, stopped=True)
        await caught_up()
        assert api.find(kinds.POD, POD) is None

    lived(before, after)


def test_a_pod_that_others_hold_on_to_has_nothing_left_on_its_node() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        made = pod()
        made["metadata"]["finalizers"] = ["example.com/other"]
        await api.add(kinds.POD, made)
        await caught_up()
        await runner.end(uid(api))
        await api.remove(kinds.POD, POD)
        await caught_up()
        assert runner.uids() == []
        assert api.find(kinds.POD, POD)["metadata"]["finalizers"] == ["example.com/other"]
        # The finalizer is added once, and taken off once.
        assert [verb for verb, *_ in api.written].count("patch") == 2

    lived(story)


def test_each_container_that_ends_is_told_while_others_of_its_pod_run() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod())
        await caught_up()
        ended = {"name": "app", "startedAt": 0.0, "finishedAt": 1.0, "exitCode": 3}
        await runner.become(uid(api), ended)
        await caught_up()
        (container,) = status(api)["containerStatuses"]
        assert container["state"]["terminated"]["exitCode"] == 3

    lived(story)


def test_why_a_pod_does_not_begin_is_told() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        runner.trouble["start"] = NodeTrouble("no network")
        await api.add(kinds.POD, pod())
        await caught_up()
        (container,) = status(api)["containerStatuses"]
        assert container["state"]["waiting"] == {
            "reason": "CreatePodSandboxError",
            "message": "no network",
        }

    lived(story)


def test_what_runs_of_pods_that_went_while_the_agent_was_away_is_ended() -> None:
    async def main(api: Api) -> None:
        runner = FakeRunner()
        runner.plans["gone"] = {}
        await runner.become("gone", {"name": "app", "startedAt": 0.0})
        async with agent(api, runner):
            await caught_up()
        assert runner.removed == ["gone"]

    alone(main)


def test_an_image_that_cannot_be_had_is_told_and_asked_for_again() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        runner.trouble["image"] = NodeTrouble("there is no image index:1")
        await api.add(kinds.POD, pod())
        await caught_up()
        (container,) = status(api)["containerStatuses"]
        assert container["state"]["waiting"]["reason"] == "ErrImagePull"
        assert container["state"]["waiting"]["message"] == "there is no image index:1"
        del runner.trouble["image"]
        await asyncio.sleep(60)
        assert status(api)["phase"] == "Running"

    lived(story)


def test_an_image_that_cannot_be_read_ends_no_agent() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        runner.trouble["image"] = TypeError("'NoneType' object is not iterable")
        await api.add(kinds.POD, pod())
        await caught_up()
        (container,) = status(api)["containerStatuses"]
        assert container["state"]["waiting"]["reason"] == "ErrImagePull"
        assert "index:1 could not be had" in container["state"]["waiting"]["message"]
        del runner.trouble["image"]
        await asyncio.sleep(60)
        assert status(api)["phase"] == "Running"

    lived(story)


@pytest.mark.parametrize("what", ["image", "start"])
def test_what_has_failed_is_tried_again_soon_and_then_from_time_to_time(what: str) -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        runner.trouble[what] = NodeTrouble("not now")
        await api.add(kinds.POD, pod())
        await asyncio.sleep(300)
        pauses = [after - before for before, after in itertools.pairwise(runner.tried)]
        assert [1 <= pauses[0] < 2, 2 <= pauses[1] < 4, 4 <= pauses[2] < 8] == [True] * 3
        assert all(20 <= pause <= 26 for pause in pauses[5:])
        # It is told once.
        assert [verb for verb, *_ in api.written].count("status") <= 2

    lived(story)


def test_images_that_are_slow_hold_up_no_other_pod() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        for number in range(8):
            runner.slow[f"slow:{number}"] = asyncio.Event()
            slow = {**APP, "image": f"slow:{number}"}
            await api.add(kinds.POD, pod(f"slow-{number}", containers=[slow]))
        await api.add(kinds.POD, pod())
        await caught_up()
        assert status(api)["phase"] == "Running"
        (container,) = status(api, Key("default", "slow-0"))["containerStatuses"]
        assert container["state"]["waiting"]["reason"] == "Pulling"
        runner.slow["slow:0"].set()
        await caught_up()
        assert status(api, Key("default", "slow-0"))["phase"] == "Running"

    lived(story)


def test_pods_that_want_an_image_have_it_fetched_once() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        gate = runner.slow["index:1"] = asyncio.Event()
        fetched: list[str] = []
        fetch = runner.ensure_image

        async def counted(reference: str) -> Image:
            fetched.append(reference)
            return await fetch(reference)

        runner.ensure_image = counted  # type: ignore[method-assign]
        async with agent(api, runner, "r1"):
            for number in range(3):
                await api.add(kinds.POD, pod(f"wf-{number}", "r1"))
            assert fetched == ["index:1"]
            gate.set()
            await caught_up()
            for number in range(3):
                assert status(api, Key("default", f"wf-{number}"))["phase"] == "Running"

    lived(story)


def test_a_pod_that_is_removed_while_its_image_is_fetched_goes_at_once() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        runner.slow["index:1"] = asyncio.Event()
        await api.add(kinds.POD, pod())
        await caught_up()
        await api.remove(kinds.POD, POD)
        assert api.find(kinds.POD, POD) is None
        # Another one may want it after that.
        await api.add(kinds.POD, pod())
        runner.slow["index:1"].set()
        await caught_up()
        assert status(api)["phase"] == "Running"

    lived(story)


async def _removed(api: Api) -> None:
    await api.remove(kinds.POD, POD)


async def _removed_by_force(api: Api) -> None:
    """Without the agent's having seen it on its way out."""
    api.refusals["patch", kinds.POD] = Unavailable("not before it has gone")
    await api.store.patch(Change(kind=kinds.POD, key=POD, patch={"metadata": {"finalizers": None}}))
    await api.store.delete(Remove(kind=kinds.POD, key=POD))


async def _failed_by_another(api: Api) -> None:
    await api.change(kinds.POD, POD, {"status": {"phase": "Failed"}}, status=True)
    await asyncio.sleep(30)  # it is seen when the image is tried next


async def _overdue(api: Api) -> None:
    await asyncio.sleep(40)
    assert status(api)["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize("ending", [_removed, _removed_by_force, _failed_by_another, _overdue])
def test_an_image_that_no_pod_wants_any_more_is_not_asked_for_again(
    ending: Callable[[Api], Awaitable[None]],
) -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        runner.trouble["image"] = NodeTrouble("there is no image index:1")
        await api.add(kinds.POD, pod(activeDeadlineSeconds=40))
        await caught_up()
        await ending(api)
        await caught_up()
        runner.tried.clear()
        await asyncio.sleep(600)
        assert runner.tried == []

    lived(story)


def test_a_pod_that_asks_for_what_is_not_done_fails_with_the_reason() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod(hostNetwork=True))
        await caught_up()
        assert (status(api)["phase"], status(api)["reason"]) == ("Failed", "Unfit")
        assert "hostNetwork" in status(api)["message"]
        await api.remove(kinds.POD, POD)
        await caught_up()
        assert api.find(kinds.POD, POD) is None

    lived(story)


def test_a_config_map_that_comes_late_is_waited_for() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        volumes = [{"name": "config", "configMap": {"name": "site"}}]
        await api.add(kinds.POD, pod(volumes=volumes))
        await caught_up()
        (container,) = status(api)["containerStatuses"]
        assert container["state"]["waiting"]["message"] == "there is no ConfigMap site"
        await api.add(kinds.CONFIG_MAP, {"metadata": meta("site"), "data": {"a": "1"}})
        await asyncio.sleep(60)
        assert runner.plans[uid(api)]["volumes"] == {"config": {"files": {"a": "MQ=="}}}

    lived(story)


def test_a_pod_is_stopped_when_its_time_is_over_and_kept() -> None:
    """Statement 001.15: pods are left for inspection."""

    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod(activeDeadlineSeconds=30))
        await caught_up()
        assert runner.stopped == []
        await asyncio.sleep(31)
        assert runner.stopped == [uid(api)]
        await runner.end(uid(api), 137, stopped=True)
        await caught_up()
        assert (status(api)["phase"], status(api)["reason"]) == ("Failed", "DeadlineExceeded")
        assert runner.removed == []

    lived(story)


@pytest.mark.parametrize("slow", [True, False])
def test_a_pod_that_never_begins_fails_when_its_time_is_over(slow: bool) -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        if slow:
            runner.slow["index:1"] = asyncio.Event()
        else:
            runner.trouble["start"] = NodeTrouble("no network")
        await api.add(kinds.POD, pod(activeDeadlineSeconds=30))
        await asyncio.sleep(120)
        assert (status(api)["phase"], status(api)["reason"]) == ("Failed", "DeadlineExceeded")

    lived(story)


def test_a_pod_is_not_stopped_before_its_time_is_over() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod(activeDeadlineSeconds=30))
        await asyncio.sleep(28.5)
        assert 29 < api.clock.now() - parse_rfc3339(status(api)["startTime"]) < 30
        # News of another one has it looked at.
        sibling = await api.store.create(kinds.POD, pod("wf-r1", "r1"))
        address = {"status": {"podIP": "10.0.2.2"}}
        await api.store.patch(
            Change(kind=kinds.POD, key=key_of(sibling), patch=address, status=True)
        )
        await asyncio.sleep(0.1)
        assert "r1.wf" in runner.hosts[uid(api)]
        assert runner.stopped == []

    lived(story)


def test_pods_of_a_subdomain_hear_of_each_other() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod())
        await caught_up()
        own = uid(api)
        assert "10.0.1.2 r0.wf.default.svc.cluster.local " in runner.hosts[own]
        assert "r1.wf" not in runner.hosts[own]
        await api.add(kinds.POD, {**pod("wf-r1", "r1"), "status": {"podIP": "10.0.2.2"}})
        await caught_up()
        assert "10.0.2.2 r1.wf.default.svc.cluster.local " in runner.hosts[own]

    lived(story)


def test_pods_are_not_woken_by_what_they_are_not_told_of_others() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod())
        other = Key("default", "wf-r1")
        await api.add(kinds.POD, {**pod("wf-r1", "r1"), "status": {"podIP": "10.0.2.2"}})
        runner.told.clear()
        await api.change(kinds.POD, other, {"metadata": {"labels": {"a": "b"}}})
        await api.change(kinds.POD, other, {"status": {"phase": "Running"}}, status=True)
        assert runner.told == []
        await api.change(kinds.POD, other, {"status": {"podIP": "10.0.2.3"}}, status=True)
        assert "10.0.2.3 r1.wf" in runner.hosts[uid(api)]
        await api.remove(kinds.POD, other)
        assert "r1.wf" not in runner.hosts[uid(api)]

    lived(story)


def test_a_namesake_of_a_pod_that_went_is_another_pod() -> None:
    async def story(api: Api, runner: FakeRunner) -> None:
        await api.add(kinds.POD, pod())
        await caught_up()
        first = uid(api)
        await runner.end(first)
        await caught_up()
        await api.remove(kinds.POD, POD)
        await caught_up()
        await api.add(kinds.POD, pod())
        await caught_up()
        assert first in runner.removed
        assert runner.uids() == [uid(api)]

    lived(story)


def as_user(userid: int) -> Object:
    return {"containers": [{**APP, "securityContext": {**IDENTITY, "runAsUser": userid}}]}


def unsaid(workflow: str) -> Object:
    """Return what a pod says that does not say as whom it runs, but of which Workflow it is."""
    return {"containers": [{**APP, "securityContext": None}], "workflow": workflow}


@pytest.mark.parametrize(
    ("many", "other"),
    [(as_user(1001), as_user(1002)), (unsaid("first"), unsaid("second"))],
    ids=["by user", "by Workflow"],
)
def test_pods_of_a_user_that_take_long_to_begin_keep_no_other_user_waiting(
    many: Object, other: Object
) -> None:
    began: list[str] = []

    class Slow(FakeRunner):
        async def start(self, uid: str, make: Callable[[str], Object]) -> None:
            began.append(uid)
            await asyncio.sleep(30)

    async def add(api: Api, name: str, spec: Object) -> None:
        made = pod(name, **{key: value for key, value in spec.items() if key != "workflow"})
        made["metadata"]["labels"] = {labels.WORKFLOW_UID: spec.get("workflow", "both")}
        await api.add(kinds.POD, made)

    async def main(api: Api) -> None:
        async with agent(api, Slow()):
            for number in range(20):
                await add(api, f"many-{number}", many)
            await add(api, "other", other)
            await caught_up()
            assert uid(api, Key("default", "other")) in began

    alone(main)
