"""What a conductor looks up beside a Workflow: mounts, copies, rabbits, persistent storage."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.conductor.jobs import Jobs
from tests.conductor.test_alone import (  # fmt: skip
    ENDING,
    JOB,
    KEY,
    WITH_NODES,
    asked,
    child,
    conducted,
    dependents,
    own,
    using,
    workflow,
)
from tests.controllers.alone import Api, alone, caught_up, informed, running
from tests.dws.builders import BINDING, JOBDW, configuration, meta, need, raw_workflow, settled
from tests.harness.logs import capture_logs
from warren.base.bytesize import GIB
from warren.base.objects import Key
from warren.base.times import parse_rfc3339, rfc3339_micro
from warren.conductor.conductor import Conductor, Settings
from warren.dws import kinds, labels
from warren.dws.binding import Phase
from warren.dws.jobs import abort
from warren.dws.jobs.jobactions import CONTAINER_LOG, SUMMARY_KEY
from warren.dws.jobs.timeouts import Timeouts
from warren.dws.node import TIMED_OUT, InUse, Kept, NodeTrouble
from warren.dws.objects.meta import Meta
from warren.dws.rabbits import selftest
from warren.kube.client import Forbidden

RUNNING = replace(WITH_NODES, phase=Phase.RUNNING, ran=True)
VOLUME = {"type": "lvm", "lvm": {"volumeGroup": "r0", "logicalVolume": "v"}}
MOUNTS = [{"mountPath": "/m", "type": "xfs", "device": VOLUME}]
CREATE = "#DW create_persistent type=xfs capacity=1GiB name=pers"
CONTAINER = "#DW container name=beside profile=index"


async def mount(
    api: Api,
    made: Any,
    node: str,
    state: str,
    name: str = "m",
    owner: str | None = None,
    error: NodeTrouble | None = None,
) -> None:
    # Whose it is its namespace says; an agent may write the rest of those of its own.
    spec = {"node": "another", "desiredState": state, "mounts": MOUNTS}
    key = Key(node, name)
    status = settled(state)
    if error is not None:
        unready = [{"state": state, "ready": False}]
        status = {"mounts": unready, "allReady": False, "error": error.as_error()}
    await child(api, kinds.CLIENT_MOUNT, made, key, spec=spec, status=status)
    carried = {labels.TARGET_OWNER: owner or made["metadata"]["uid"]}
    await api.change(kinds.CLIENT_MOUNT, key, {"metadata": {"labels": carried}})


async def copy(api: Api, made: Any, name: str, **status: Any) -> None:
    ends = {"source": {"path": f"/{name}"}, "destination": {"path": "/to"}}
    await child(api, kinds.NNF_DATA_MOVEMENT, made, Key("r0", name), spec=ends, status=status)


async def rabbit(api: Api, name: str, **access: Any) -> None:
    status = {"status": "Ready", "capacity": 64 * GIB, "access": access}
    await api.add(kinds.STORAGE, {"metadata": meta(name, "default"), "spec": {}, "status": status})


async def wired(api: Api) -> None:
    await api.add(kinds.SYSTEM_CONFIGURATION, msgspec.to_builtins(configuration()))


def notes(jobs: Jobs) -> dict[str, Any]:
    return {key: value for _, _, values in asked(jobs, "record") for key, value in values.items()}


# Nodes that a job may lose


FAILING = NodeTrouble("it cannot be mounted")
SLOW = NodeTrouble(f"mount {TIMED_OUT} 20 s")


@pytest.mark.parametrize(
    ("own", "persistent", "at_fault"),
    [
        ("failing", None, True),
        ("failing", "failing", True),
        # What its users have made of it, such as full, is no trouble of the node.
        ("mounted", "failing", False),
        (None, "failing", False),
        # It may be about to mount it: that of another node is no trouble of this one.
        ("unmounted", None, False),
        ("unmounted", "failing", False),
        # Its user may have the flash so busy, with another job.
        ("slow", None, False),
        ("slow", "failing", False),
        (None, None, False),  # it was not asked
    ],
)
@pytest.mark.parametrize("seconds", [None, 170, 180])
def test_a_job_goes_on_without_a_node_that_is_drained_if_it_cannot_mount_what_is_the_jobs_own(
    own: str | None, persistent: str | None, at_fault: bool, seconds: float | None
) -> None:
    """A guest could take all nodes but one from others, with storage that cannot be mounted.

    When PreRun has taken all its time, so many seconds, a node that says nothing cannot, either, if
    it has had the time to.
    """
    is_late = seconds is not None

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        status = {"status": "TransientCondition"}
        if is_late:
            conductor.configure(Settings(timeouts=Timeouts(prerun=seconds, transient=None)))
            status = {"desiredStateChange": rfc3339_micro(api.clock.now())}
        made = await workflow(api, "PreRun", status=status)
        await wired(api)
        await mount(api, made, "n0", "mounted")
        for state, name, owner in ((own, "m", None), (persistent, "p", "an-instance")):
            if state in ("failing", "slow"):
                trouble = FAILING if state == "failing" else SLOW
                await mount(api, made, "n1", "mounted", name, owner, trouble)
            elif state is not None:
                await mount(api, made, "n1", state, name, owner)
        async with informed(api):
            await conductor.reconcile(7)
            await asyncio.sleep(100 if seconds is None else seconds)
            await conductor.reconcile(7)

        is_drained = at_fault or (seconds == 180 and own == "unmounted")
        drain = [("drain", ("n1",), "rabbit storage is not there")]
        assert [each[:4] for each in jobs.asked] == [
            *(drain if is_drained else []),
            ("raise_exception", 7, "dws-node-failure", "n1"),
        ]
        found = api.find(kinds.WORKFLOW, KEY)
        assert found["spec"]["forceReady"]
        assert found["metadata"]["annotations"] == {labels.LOST_NODES: "n1"}

    conducted(story, replace(WITH_NODES, max_lost_nodes=1))


# Copies


def test_time_for_copies_runs_from_when_the_last_of_them_went_on() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        conductor.configure(Settings(timeouts=Timeouts(teardown_after=600.0)))
        now = api.clock.now()
        moments = {"desiredStateChange": rfc3339_micro(now - 500)}
        made = await workflow(api, "DataOut", status=moments)
        noted = {labels.ENDED_AT: rfc3339_micro(now - 500)}
        change = {"metadata": {"annotations": noted}}
        await api.change(kinds.WORKFLOW, KEY, change)
        for name, ago in (("a", 400), ("b", 100), ("c", 300)):
            went_on = {"lastMessageTime": rfc3339_micro(now - ago)}
            await copy(api, made, name, state="Running", commandStatus=went_on)
        await copy(api, made, "d", state="Starting")
        async with informed(api):
            delay = await conductor.reconcile(7)
            assert delay == pytest.approx(now - 100 + 600 - api.clock.now(), abs=0.01)

    conducted(story, ENDING)


def test_copies_are_in_the_record_of_a_job_that_ends_when_it_is_first_looked_at() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        conductor.configure(Settings(max_recorded_movements=1))
        made = await workflow(api, "DataOut", ready=True)
        await copy(api, made, "a", state="Finished", status="Success")
        await copy(api, made, "b", state="Finished", status="Failed")
        async with informed(api):
            await conductor.reconcile(7)

        (kept,) = notes(jobs)["rabbit_datamovements"]
        assert kept["metadata"]["name"] == "b"
        assert notes(jobs)[SUMMARY_KEY]["copied"] == {"Success": 1, "Failed": 1}

    conducted(story, ENDING)


# Persistent storage


def test_a_job_places_the_persistent_storage_that_it_makes_though_it_was_not_seen_yet() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        made = await workflow(api, ready=True)
        first, pers = Key("default", f"{KEY.name}-0"), Key("default", "pers")
        storage = {
            "reference": {"kind": "Servers", "name": pers.name, "namespace": pers.namespace},
            "lifetime": "persistent",
            "allocationSets": [msgspec.to_builtins(need("xfs", GIB))],
        }
        maker = {"directive": CREATE, "userID": 1001}
        status = {"ready": True, "storage": storage}
        await child(api, kinds.BREAKDOWN, made, first, spec=maker, status=status)
        owner = api.find(kinds.BREAKDOWN, first)["metadata"]
        owned = labels.of_owner(kinds.BREAKDOWN, msgspec.convert(owner, Meta))
        spec = {"name": "pers", "fsType": "xfs", "userID": 1001}
        await api.add(
            kinds.PERSISTENT_INSTANCE,
            {"metadata": meta("pers", "default", labels=owned), "spec": spec},
        )
        await api.add(kinds.SERVERS, {"metadata": meta("pers", "default"), "spec": {}})
        await wired(api)
        async with informed(api):
            await conductor.reconcile(7)

        assert asked(jobs, "raise_exception") == []
        (filled,) = api.find(kinds.SERVERS, pers)["spec"]["allocationSets"]
        assert filled["storage"] == [{"name": "r0", "allocationCount": 2}]

    conducted(story, WITH_NODES)


# Rabbits


IN_USE = Kept("kept by process 7")


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("out_of_reach", [(), ("n1",)])
def test_others_are_kept_from_what_has_storage_of_a_job_that_was_let_go_before_it(
    deleted: bool, out_of_reach: tuple[str, ...]
) -> None:
    """From a node and its rabbit, and from one that fails; not from one whose flash is in use."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        jobs.aborted.add(7)
        made = await workflow(api, "PreRun", ready=True)
        await child(api, kinds.COMPUTES, made, KEY, data=[{"name": "n0"}, {"name": "n1"}])
        await mount(api, made, "n0", "unmounted")
        await mount(api, made, "n1", "unmounted", error=FAILING)
        rabbits = ("r0", "r1", "r2", "r3")
        held = {
            "label": "xfs",
            "storage": {each: {"allocationSize": GIB, "ready": True} for each in rabbits[:3]},
        }
        first = Key("default", f"{KEY.name}-0")
        await child(api, kinds.SERVERS, made, first, spec={}, status={"allocationSets": [held]})
        for name in rabbits:
            await rabbit(api, name)
        for name, trouble in (("r1", IN_USE), ("r2", FAILING)):
            key = Key(name, "share")
            spec = {"count": 1, "capacity": GIB, "fileSystemType": "xfs"}
            status = {"error": trouble.as_error()}
            await child(api, kinds.NNF_NODE_STORAGE, made, key, spec=spec, status=status)
            held_back = {"metadata": {"finalizers": [labels.NODE_STORAGE_FINALIZER]}}
            await api.change(kinds.NNF_NODE_STORAGE, key, held_back)
            await api.remove(kinds.NNF_NODE_STORAGE, key)
        if out_of_reach:
            named = {"metadata": meta("default", "default")}
            data = {"nodes": dict.fromkeys(out_of_reach, "Disabled")}
            await api.add(kinds.SYSTEM_STATUS, {**named, "data": data})
        if deleted:
            await api.remove(kinds.WORKFLOW, KEY)
        async with informed(api):
            await conductor.reconcile(7)

        assert jobs.asked == [("drain", ("n1",), abort.DRAIN_REASON)]
        disabled = [
            name
            for name in rabbits
            if api.find(kinds.STORAGE, Key("default", name))["spec"].get("state") == "Disabled"
        ]
        assert disabled == (["r2"] if out_of_reach else ["r0", "r2"])
        assert labels.ABORTED in api.find(kinds.WORKFLOW, KEY)["metadata"]["annotations"]

    conducted(story, replace(ENDING, phase=Phase.OVER))


def test_with_a_role_of_before_all_rabbits_of_a_job_that_was_let_go_are_disabled() -> None:
    """Its node was not drained and its flash not given back until an admin applied the role."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        jobs.aborted.add(7)
        made = await workflow(api, "PreRun", ready=True)
        await child(api, kinds.COMPUTES, made, KEY, data=[{"name": "n0"}])
        await mount(api, made, "n0", "mounted")
        held = {"label": "xfs", "storage": {"r0": {"allocationSize": GIB, "ready": True}}}
        first = Key("default", f"{KEY.name}-0")
        await child(api, kinds.SERVERS, made, first, spec={}, status={"allocationSets": [held]})
        for name in ("r0", "r1"):
            await rabbit(api, name)
        async with informed(api):
            with capture_logs("warning") as logs:
                for _ in range(2):
                    api.refusals["list", kinds.NNF_NODE_STORAGE] = Forbidden("no role")
                    await conductor.reconcile(7)
                    unmarked = {"metadata": {"annotations": {labels.ABORTED: None}}}
                    await api.change(kinds.WORKFLOW, KEY, unmarked)

        assert jobs.asked == [("drain", ("n0",), abort.DRAIN_REASON)] * 2
        disabled = [
            name
            for name in ("r0", "r1")
            if api.find(kinds.STORAGE, Key("default", name))["spec"].get("state") == "Disabled"
        ]
        assert disabled == ["r0"]
        assert [each["reason"] for each in logs if "rbac" in each["event"]] == ["no role"]

    conducted(story, replace(ENDING, phase=Phase.OVER))


@pytest.mark.parametrize("says_so", [True, False])
def test_a_rabbit_that_fails_is_disabled_though_its_agent_waits_as_for_what_is_in_use(
    says_so: bool,
) -> None:
    """Whether it says so then, or waits on. It was looked at once, and nobody came back to it."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        jobs.aborted.add(7)
        made = await workflow(api, "PreRun", ready=True)
        await child(api, kinds.COMPUTES, made, KEY, data=[{"name": "n1"}])
        await mount(api, made, "n1", "unmounted", error=InUse("m is in use by process 7"))
        held = {"label": "xfs", "storage": {"r0": {"allocationSize": GIB, "ready": True}}}
        first = Key("default", f"{KEY.name}-0")
        await child(api, kinds.SERVERS, made, first, spec={}, status={"allocationSets": [held]})
        await rabbit(api, "r0")
        async with informed(api):
            assert await conductor.reconcile(7) == 30
            assert jobs.asked == []
            if says_so:
                error = {"status": {"error": FAILING.as_error()}}
                await api.change(kinds.CLIENT_MOUNT, Key("n1", "m"), error, status=True)
            else:
                await asyncio.sleep(299)
                assert await conductor.reconcile(7) == 30
                await asyncio.sleep(1)
            assert await conductor.reconcile(7) is None

        assert jobs.asked == [("drain", ("n1",), abort.DRAIN_REASON)]
        found = api.find(kinds.STORAGE, Key("default", "r0"))
        assert found["spec"]["state"] == "Disabled"

    conducted(story, replace(ENDING, phase=Phase.OVER))


def test_what_was_done_for_a_job_that_was_let_go_is_not_done_again_before_it_goes() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        jobs.aborted.add(7)
        await workflow(api, "Teardown", ready=True)
        marked = {"metadata": {"annotations": {labels.ABORTED: "then"}}}
        await api.change(kinds.WORKFLOW, KEY, marked)
        async with informed(api):
            await conductor.reconcile(7)

        assert asked(jobs, "drain") == []
        assert api.find(kinds.WORKFLOW, KEY) is None

    conducted(story, replace(ENDING, phase=Phase.OVER))


def test_a_running_job_hears_at_once_of_the_rabbits_of_its_flash_and_of_its_nodes() -> None:
    """Of those that only another job depends on it hears nothing."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        made = await workflow(api, "PreRun", ready=True)
        await child(api, kinds.COMPUTES, made, KEY, data=[{"name": "n0"}, {"name": "n1"}])
        shares = [{"name": "r1", "allocationCount": 1}]
        sets = [{"label": "xfs", "allocationSize": GIB, "storage": shares}]
        first = Key("default", f"{KEY.name}-0")
        await child(api, kinds.SERVERS, made, first, spec={"allocationSets": sets})
        await wired(api)
        await rabbit(api, "r0", computes=[{"name": "n0", "status": "Ready"}])
        for name in ("r1", "r2"):
            await rabbit(api, name)
        async with running(api, conductor.run()):
            assert asked(jobs, "raise_exception") == []
            failing = {"status": {"status": "Failed"}}
            for name in ("r2", "r1"):
                await api.change(kinds.STORAGE, Key("default", name), failing, status=True)
            assert [each[3] for each in asked(jobs, "raise_exception")] == ["r1 is Failed"]
            # As it was told of that, the job knows of it.
            jobs.known[7] = replace(RUNNING, alerts=("r1 is Failed",))
            link = {"status": {"access": {"computes": [{"name": "n0", "status": "Offline"}]}}}
            await api.change(kinds.STORAGE, Key("default", "r0"), link, status=True)

        assert [each[2:] for each in asked(jobs, "raise_exception")] == [
            ("rabbit-alert", "r1 is Failed", 2),
            ("rabbit-alert", "r0 has lost its link to n0", 2),
        ]

    conducted(story, RUNNING)


def test_whether_rabbits_return_is_a_setting_that_may_be_changed() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        note = {labels.DISABLED: '{"by": "warren", "since": "then", "reason": "bad"}'}
        metadata = meta("r0", "default", annotations=note)
        await api.add(kinds.STORAGE, {"metadata": metadata, "spec": {"state": "Disabled"}})
        async with running(api, conductor.run()):
            assert api.find(kinds.NNF_STORAGE, selftest.test_key("r0")) is None
            conductor.configure(Settings(return_to_service=True))
            await caught_up()
            assert api.find(kinds.NNF_STORAGE, selftest.test_key("r0")) is not None

    conducted(story)


# The site's rules


@pytest.mark.parametrize("phase", [Phase.HELD, Phase.ENDING])
def test_only_a_job_that_is_about_to_get_its_workflow_is_held_against_the_sites_rules(
    phase: Phase,
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        jobs.refused = "Only the instance's owner may."
        if phase is Phase.HELD:
            await dependents(api, await workflow(api, ready=True))
        async with informed(api):
            await conductor.reconcile(7)

        assert jobs.passes == [(7, None)]
        assert asked(jobs, "raise_exception") == []
        assert asked(jobs, "release_to_scheduler", "finish") != []

    conducted(story, replace(JOB, phase=phase))


# What is said of a job's storage


def test_what_there_is_to_say_of_storage_is_said_of_jobs_with_a_workflow() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        made = await workflow(api, "Setup")
        await dependents(api, made)
        await mount(api, made, "n0", "mounted")
        await mount(api, made, "n1", "unmounted")
        await copy(api, made, "a", state="Running")
        nodes = {"data": [{"name": "n0"}, {"name": "n1"}]}
        await api.change(kinds.COMPUTES, KEY, nodes)
        shares = [{"name": "r0", "allocationCount": 2}]
        sets = [{"label": "xfs", "allocationSize": GIB, "storage": shares}]
        filled = {"spec": {"allocationSets": sets}}
        await api.change(kinds.SERVERS, Key("default", f"{KEY.name}-0"), filled)
        async with informed(api):
            told = await conductor.storage(7)
            assert told is not None
            assert (told["workflow"], told["state"]) == (KEY.name, "Setup")
            assert (told["rabbits"], told["bytes"]) == ({"r0": 2 * GIB}, 2 * GIB)
            assert (told["nodes"], told["mounted"]) == ("n[0-1]", "n0")
            assert told["copied"] == {"Running": 1}
            assert told["containers"] == []
            assert told["waits"] == "waits for Setup on r0"
            assert await conductor.storage(8) is None  # has no Workflow
            assert await conductor.storage(9) is None  # is not known

    conducted(story, WITH_NODES, replace(JOB, id=8))


# What containers have printed


@pytest.mark.parametrize("reads", [True, False])
def test_what_containers_have_printed_is_kept_where_it_can_be_read(reads: bool) -> None:
    class Reader:
        async def log(self, pod: Key, container: str, lines: int) -> Any:
            yield b"no data\n"

    async def main(api: Api) -> None:
        jobs = Jobs(ENDING)
        reader: Any = Reader() if reads else None
        conductor = Conductor(api, api.informers, jobs, api.clock, GIB, Settings(), reader)
        metadata = {"name": KEY.name, "finalizers": [BINDING.finalizer]}
        raw = raw_workflow(JOBDW, state="DataOut", ready=True, metadata=metadata)
        raw["spec"]["dwDirectives"] = [JOBDW, CONTAINER]
        made = await api.add(kinds.WORKFLOW, raw)
        ended = {"name": "app", "state": {"terminated": {"exitCode": 3}}}
        pod = meta("p", KEY.namespace, labels=own(made))
        status = {"phase": "Failed", "containerStatuses": [ended]}
        await api.add(kinds.POD, {"metadata": pod, "spec": {"nodeName": "r0"}, "status": status})
        async with informed(api):
            await conductor.reconcile(7)

        assert notes(jobs).get(CONTAINER_LOG) == ("no data\n" if reads else None)
        (told,) = notes(jobs)[SUMMARY_KEY]["containers"]
        assert (told["pod"], told["exit"]) == ("p", 3)
        assert api.find(kinds.WORKFLOW, KEY)["spec"]["desiredState"] == "Teardown"

    alone(main)


def test_pods_are_listed_only_for_a_record() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "PreRun", ready=True)
        directives = {"spec": {"dwDirectives": [JOBDW, CONTAINER]}}
        await api.change(kinds.WORKFLOW, KEY, directives)
        async with informed(api):
            await conductor.reconcile(7)

        assert ("list", kinds.POD) not in api.asked
        assert len(asked(jobs, "start")) == 1

    conducted(story, WITH_NODES)


def test_persistent_storage_is_looked_up_only_for_a_job_that_is_to_be_placed_beside_it() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await using(api, await workflow(api, "PreRun", ready=True))
        async with informed(api):
            await conductor.reconcile(7)

        assert ("get", kinds.SERVERS) not in api.asked
        assert len(asked(jobs, "start")) == 1

    conducted(story, WITH_NODES)


def test_a_job_whose_storage_and_workflow_are_gone_at_once_is_told_so() -> None:
    """Some of what belongs to a Workflow may be seen for longer than the Workflow."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        made = await workflow(api, ready=True, finalizers=[])
        reference = {"kind": "Servers", "name": "pers", "namespace": "default"}
        storage = {"reference": reference, "lifetime": "persistent"}
        status = {"ready": True, "storage": storage}
        spec = {"directive": CREATE, "userID": 1001}
        first = Key("default", f"{KEY.name}-0")
        await child(api, kinds.BREAKDOWN, made, first, spec=spec, status=status)
        await api.remove(kinds.WORKFLOW, KEY)
        async with informed(api):
            await conductor.reconcile(7)

        assert jobs.passes == [(7, "persistent storage 'pers' is gone")]

    conducted(story, WITH_NODES)


# Settings


@pytest.mark.parametrize(
    ("settings", "looked_at"), [(Settings(), []), (Settings(drains=False), [7, 8])]
)
def test_jobs_are_looked_at_anew_when_settings_have_changed(
    settings: Settings, looked_at: list[int]
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        async with running(api, conductor.run()):
            jobs.passes.clear()
            conductor.configure(settings)
            await caught_up()
            assert sorted(job for job, _ in jobs.passes) == looked_at

    quiet = replace(JOB, phase=Phase.NEW)
    conducted(story, quiet, replace(quiet, id=8))


def test_how_long_a_state_took_is_told_of_a_namesake_of_a_job_that_is_over_too() -> None:
    told: list[tuple[str, float]] = []

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        conductor.on_state_ready = lambda state, seconds: told.append((state, seconds))
        status = {"elapsedTimeLastState": "2s"}
        await workflow(api, "PreRun", ready=True, status=status, finalizers=[])
        async with informed(api):
            await conductor.reconcile(7)
            jobs.known[7] = replace(JOB, phase=Phase.OVER)
            await conductor.reconcile(7)
            await caught_up()
            await api.remove(kinds.WORKFLOW, KEY)
            jobs.known[7] = WITH_NODES
            await workflow(api, "PreRun", ready=True, status=status)
            await conductor.reconcile(7)

    conducted(story, WITH_NODES)
    assert told == [("prerun", 2.0)] * 2


# When a job is looked at


@pytest.mark.parametrize(("setup", "delay"), [(3.0, 3.0), (100.0, 10.0)])
def test_of_two_moments_to_look_again_it_is_the_first(setup: float, delay: float) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        conductor.configure(Settings(timeouts=Timeouts(setup=setup)))
        now = rfc3339_micro(api.clock.now())
        status = {"status": "TransientCondition", "desiredStateChange": now}
        await workflow(api, "Setup", status=status)
        async with informed(api):
            passed = api.clock.now() - parse_rfc3339(now)
            found = await conductor.reconcile(7)
            wanted = delay if delay == 10.0 else delay - passed
            assert found == pytest.approx(wanted, abs=0.01)

    conducted(story, WITH_NODES)


def test_what_drivers_write_into_a_workflow_on_their_way_is_no_news() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Setup")
        async with running(api, conductor.run()):
            jobs.passes.clear()
            said = {"status": {"message": "half of it"}}
            await api.change(kinds.WORKFLOW, KEY, said, status=True)
            assert jobs.passes == []
            done = {"status": {"ready": True, "status": "Completed"}}
            await api.change(kinds.WORKFLOW, KEY, done, status=True)
            assert jobs.passes != []

    conducted(story, WITH_NODES)


def test_what_belongs_to_workflows_of_others_wakes_no_job() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        asked_for: list[int] = []
        name = "slurm-7"
        await api.add(kinds.WORKFLOW, raw_workflow(ready=True, metadata={"name": name}))
        async with informed(api):
            conductor.reconciler.add = asked_for.append  # type: ignore[method-assign, assignment]
            carried = {labels.WORKFLOW_NAME: name, labels.WORKFLOW_NAMESPACE: "default"}
            metadata = meta("slurm-7-0", "default", labels=carried)
            await api.add(kinds.SERVERS, {"metadata": metadata, "spec": {}})
        assert asked_for == []

    conducted(story)
