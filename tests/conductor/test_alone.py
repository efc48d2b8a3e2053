"""The conductor alone: a job, its Workflow, and what is done for either."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.conductor.jobs import Jobs
from tests.controllers.alone import Api, alone, caught_up, informed, running
from tests.dws.builders import BINDING, JOBDW, configuration, meta, need, raw_workflow
from tests.harness.virtual import VirtualClock
from tests.kube.clusters import alongside
from warren.base.bytesize import GIB
from warren.base.objects import Change, Key, Kind, Remove
from warren.base.placing import HeldFlash
from warren.conductor.conductor import Conductor, Settings
from warren.dws import kinds, labels
from warren.dws.binding import Phase
from warren.dws.jobs import abort
from warren.dws.jobs.jobsnapshot import Job
from warren.dws.jobs.timeouts import Timeouts
from warren.dws.objects.decoding import Malformed, OthersMalformed
from warren.kube.client import Conflict, Forbidden, Refused, Unavailable

KEY = Key("default", "fluxjob-7")
JOB = Job(
    id=7,
    phase=Phase.HELD,
    binding=BINDING,
    formatted_id="f7",
    userid=1001,
    groupid=1002,
    directives=(JOBDW,),
    resources=[{"type": "node", "count": 2, "with": []}],
)
WITH_NODES = replace(JOB, phase=Phase.STARTING, nodes=("n0", "n1"))
PATIENCE = 10.0

Story = Callable[[Api, Jobs, Conductor], Awaitable[None]]


def conducted(story: Story, *jobs: Job, hidden: Collection[Kind] = ()) -> None:
    async def main(api: Api) -> None:
        manager = Jobs(*jobs)
        await story(api, manager, Conductor(api, api.informers, manager, api.clock, GIB))

    alone(main, hidden=hidden)


async def workflow(api: Api, state: str | None = "Proposal", **options: Any) -> Any:
    """Make the job's Workflow."""
    finalizers = options.pop("finalizers", [BINDING.finalizer])
    made = raw_workflow(
        JOBDW, state=state, metadata={"name": KEY.name, "finalizers": finalizers}, **options
    )
    return await api.add(kinds.WORKFLOW, made)


def own(workflow: Any) -> dict[str, str]:
    return {
        labels.WORKFLOW_NAME: KEY.name,
        labels.WORKFLOW_NAMESPACE: KEY.namespace,
        labels.WORKFLOW_UID: workflow["metadata"]["uid"],
    }


async def child(api: Api, kind: Kind, made: Any, key: Key, **rest: Any) -> None:
    found = meta(key.name, key.namespace, labels=own(made))
    await api.add(kind, {"metadata": found, **rest})


async def dependents(api: Api, made: Any, strategy: str = "AllocatePerCompute") -> None:
    """Make what a Workflow in Proposal has got."""
    first = Key("default", f"{KEY.name}-0")
    await child(api, kinds.COMPUTES, made, KEY, data=[])
    await child(api, kinds.SERVERS, made, first, spec={})
    needs = msgspec.to_builtins(need("xfs", GIB, strategy))
    storage = {"reference": {"name": first.name}, "lifetime": "job", "allocationSets": [needs]}
    status = {"ready": True, "storage": storage}
    spec = {"directive": JOBDW, "userID": 1001}
    await child(api, kinds.BREAKDOWN, made, first, spec=spec, status=status)
    await api.add(kinds.SYSTEM_CONFIGURATION, msgspec.to_builtins(configuration()))


def asked(jobs: Jobs, *verbs: str) -> list[tuple[Any, ...]]:
    return [each for each in jobs.asked if each[0] in verbs]


def spec(api: Api) -> Any:
    return api.find(kinds.WORKFLOW, KEY)["spec"]


# A job and its Workflow, step by step


def test_a_held_job_gets_its_workflow_and_is_shown_its_name() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        async with informed(api):
            assert await conductor.reconcile(7) is None

        found = api.find(kinds.WORKFLOW, KEY)
        assert found["spec"]["dwDirectives"] == [JOBDW]
        assert found["metadata"]["finalizers"] == [BINDING.finalizer]
        assert jobs.asked == [("memo", 7, {"rabbit_workflow": KEY.name})]
        assert jobs.passes == [(7, None)]

    conducted(story, JOB)


def test_a_proposal_that_is_ready_releases_the_job_with_what_it_needs() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        made = await workflow(api, ready=True)
        await api.change(kinds.WORKFLOW, KEY, {"status": {"elapsedTimeLastState": "1.5s"}})
        await dependents(api, made)
        async with informed(api):
            await conductor.reconcile(7)

        ((_, _, resources),) = asked(jobs, "release_to_scheduler")
        assert "ssd" in str(resources)
        ((_, _, notes),) = asked(jobs, "record")  # all that is kept, in one commit
        assert notes["rabbit_workflow"]["metadata"]["uid"] == made["metadata"]["uid"]
        assert notes["rabbit_proposal_timing"] == "1.5s"
        assert jobs.known[7].phase is Phase.QUEUED

    conducted(story, JOB)


@pytest.mark.parametrize("hidden", [(), (kinds.SERVERS,)])
def test_a_job_with_persistent_storage_is_released_for_the_nodes_that_it_is_for(
    hidden: Collection[Kind],
) -> None:
    """Also where the Servers of the storage have not been seen yet."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        made = await workflow(api, ready=True)
        await using(api, made)
        shares = [{"name": "r0", "allocationCount": 2}]
        sets = [{"label": "xfs", "allocationSize": GIB, "storage": shares}]
        await api.add(kinds.SERVERS, {"metadata": meta("pers"), "spec": {"allocationSets": sets}})
        async with informed(api):
            await conductor.reconcile(7)

        assert jobs.allowed == {7: ("n0", "n1")}
        assert asked(jobs, "release_to_scheduler") == [("release_to_scheduler", 7, JOB.resources)]

    conducted(story, JOB, hidden=hidden)


def test_a_job_whose_persistent_storage_is_gone_fails_and_is_not_placed_anywhere() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await using(api, await workflow(api, ready=True))
        async with informed(api):
            await conductor.reconcile(7)

        ((_, _, _, note, _),) = asked(jobs, "raise_exception")
        assert note == "persistent storage 'pers' is gone"
        assert asked(jobs, "release_to_scheduler") == []

    conducted(story, JOB)


async def using(api: Api, made: Any) -> None:
    """Make what a Workflow in Proposal has got that uses persistent storage."""
    place = {"name": "pers", "namespace": "default", "fieldPath": "servers.spec.allocationSets[0]"}
    location = {
        "access": [{"type": "physical", "priority": "mandatory"}],
        "reference": {"kind": "Servers", **place},
    }
    status = {"ready": True, "compute": {"constraints": {"location": [location]}}}
    spec = {"directive": "#DW persistentdw name=pers", "userID": 1001}
    first = Key("default", f"{KEY.name}-0")
    await child(api, kinds.BREAKDOWN, made, first, spec=spec, status=status)
    await api.add(kinds.SYSTEM_CONFIGURATION, msgspec.to_builtins(configuration()))


def test_a_job_that_has_nodes_has_its_servers_filled_in_before_setup_is_asked_for() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await dependents(api, await workflow(api, ready=True))
        async with informed(api):
            await conductor.reconcile(7)

        servers = api.find(kinds.SERVERS, Key("default", f"{KEY.name}-0"))
        (filled,) = servers["spec"]["allocationSets"]
        assert filled["storage"] == [{"name": "r0", "allocationCount": 2}]
        assert [kind for _, kind, _ in api.written] == [kinds.SERVERS, kinds.WORKFLOW]
        assert spec(api)["desiredState"] == "Setup"
        # Nodes tell all that there is to know of it.
        assert asked(jobs, "flash") == []
        assert asked(jobs, "memo") == [("memo", 7, {"rabbits": "r0"})]

    conducted(story, WITH_NODES)


def test_storage_that_is_not_beside_each_node_is_where_the_job_was_given_it() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await dependents(api, await workflow(api, ready=True), "AllocateSingleServer")
        jobs.held = [HeldFlash("r1", node_count=2, unit_gib=1, units=1)]
        async with informed(api):
            await conductor.reconcile(7)

        servers = api.find(kinds.SERVERS, Key("default", f"{KEY.name}-0"))
        (filled,) = servers["spec"]["allocationSets"]
        assert filled["storage"] == [{"name": "r1", "allocationCount": 1}]

    conducted(story, WITH_NODES)


def test_when_all_is_mounted_the_job_starts_with_the_names_of_its_storage() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        env = {"DW_JOB_x": "/mnt/x"}
        await workflow(api, "PreRun", ready=True, status={"env": env})
        async with informed(api):
            await conductor.reconcile(7)

        assert asked(jobs, "start") == [("start", 7, env)]

    conducted(story, WITH_NODES)


ENDING = replace(WITH_NODES, phase=Phase.ENDING, ran=True)


def test_after_teardown_the_job_is_let_go() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Teardown", ready=True)
        async with informed(api):
            await conductor.reconcile(7)

        assert asked(jobs, "finish") == [("finish", 7)]
        assert api.written == []

    conducted(story, ENDING)


@pytest.mark.parametrize("known", [True, False])
def test_the_workflow_of_a_job_that_is_over_or_unknown_is_torn_down_and_deleted(
    known: bool,
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "PreRun")
        async with informed(api):
            await conductor.reconcile(7)
            assert spec(api)["desiredState"] == "Teardown"
            done = {"state": "Teardown", "ready": True, "status": "Completed"}
            await api.change(kinds.WORKFLOW, KEY, {"status": done}, status=True)
            await conductor.reconcile(7)

        assert api.find(kinds.WORKFLOW, KEY) is None
        assert jobs.asked == []

    conducted(story, *([replace(JOB, phase=Phase.OVER)] if known else []))


def test_while_jobs_are_told_anew_none_is_taken_to_be_over() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "PreRun")
        jobs.synced.clear()
        async with informed(api):
            reconciling = asyncio.ensure_future(conductor.reconcile(7))
            await caught_up()
            assert not reconciling.done()
            jobs.known[7] = replace(WITH_NODES, phase=Phase.RUNNING)
            jobs.synced.set()
            await reconciling

        assert spec(api)["desiredState"] == "PreRun"

    conducted(story)


# While flash cannot be given back


@pytest.mark.parametrize(
    ("n1", "freed"),
    [
        ("unmounted", [("free", 7, ("n0", "n1"))]),
        ("mounted", [("free", 7, ("n0",))]),
        (None, [("free", 7, ("n0",))]),
    ],
)
def test_nodes_that_have_let_go_of_their_mounts_go_back_without_the_flash(
    n1: str | None, freed: list[tuple[Any, ...]]
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        transient = {"status": "TransientCondition", "message": "in use"}
        made = await workflow(api, "Teardown", status=transient)
        for node, state in (("n0", "unmounted"), ("n1", n1)):
            await mount(api, made, node, state)
        async with informed(api):
            await conductor.reconcile(7)

        assert asked(jobs, "free") == freed

    conducted(story, ENDING)


async def mount(api: Api, made: Any, node: str, state: str | None) -> None:
    """Make a mount that is to be unmounted, and is in a state."""
    mounts = [{"mountPath": "/m", "type": "xfs", "device": {"type": "lvm"}}]
    spec = {"node": node, "desiredState": "unmounted", "mounts": mounts}
    status = mounted(state) if state else {}
    await child(api, kinds.CLIENT_MOUNT, made, Key(node, "m"), spec=spec, status=status)


def mounted(state: str) -> Any:
    return {"mounts": [{"state": state, "ready": True}], "allReady": True}


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("deleted", [False, True])
def test_a_node_that_lets_go_after_the_trouble_has_begun_goes_back_then(
    gone: bool, deleted: bool
) -> None:
    """Nothing changes in the Workflow by that."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        status = {} if deleted else {"status": "TransientCondition", "message": "in use"}
        made = await workflow(api, "Teardown", finalizers=["nnf"], status=status)
        for node in ("n0", "n1"):
            await mount(api, made, node, "mounted")
        if deleted:
            await api.remove(kinds.WORKFLOW, KEY)
        async with running(api, conductor.run()):
            assert asked(jobs, "free") == []
            mount_of_n1 = Key("n1", "m")
            if gone:
                await api.remove(kinds.CLIENT_MOUNT, mount_of_n1)
            else:
                done = {"status": mounted("unmounted")}
                await api.change(kinds.CLIENT_MOUNT, mount_of_n1, done, status=True)
            await caught_up()
            assert asked(jobs, "free") == [("free", 7, ("n1",))]
            if not gone:
                await api.remove(kinds.CLIENT_MOUNT, mount_of_n1)  # that is no news any more
                await caught_up()
                assert len(asked(jobs, "free")) == 1

    conducted(story, ENDING)


def test_the_mounts_of_a_usual_teardown_wake_no_job() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        made = await workflow(api, "Teardown")
        await mount(api, made, "n0", "mounted")
        async with running(api, conductor.run()):
            seen = len(jobs.passes)
            done = {"status": mounted("unmounted")}
            await api.change(kinds.CLIENT_MOUNT, Key("n0", "m"), done, status=True)
            await api.remove(kinds.CLIENT_MOUNT, Key("n0", "m"))
            assert len(jobs.passes) == seen

    conducted(story, ENDING)


# What is wrong


def test_a_job_that_its_site_does_not_allow_fails_before_it_has_a_workflow() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        jobs.refused = "Only the instance's owner may."
        async with informed(api):
            await conductor.reconcile(7)

        assert jobs.asked == [
            ("raise_exception", 7, "dws-create", "Only the instance's owner may.", 0)
        ]
        assert api.find(kinds.WORKFLOW, KEY) is None

    conducted(story, JOB)


def test_a_job_whose_workflow_the_api_will_not_have_is_told_so() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        api.refusals["create", kinds.WORKFLOW] = Refused("line 1: no such command")
        async with informed(api):
            assert await conductor.reconcile(7) is None

        assert jobs.asked == [("raise_exception", 7, "dws-create", "line 1: no such command", 0)]
        assert jobs.passes == [(7, "line 1: no such command")]

    conducted(story, JOB)


def test_what_we_may_not_do_is_told_to_the_admin_and_not_to_the_job() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        api.refusals["create", kinds.WORKFLOW] = Forbidden("no role")
        async with informed(api):
            with pytest.raises(Forbidden):
                await conductor.reconcile(7)

        assert (jobs.asked, jobs.passes) == ([], [])

    conducted(story, JOB)


@pytest.mark.parametrize(
    ("phase", "type"), [(Phase.STARTING, "dws-setup"), (Phase.RUNNING, "exception")]
)
@pytest.mark.parametrize("failed", [True, False])
def test_a_job_hears_of_a_mistake_by_where_it_is_and_only_while_that_matters(
    phase: Phase, type: str, failed: bool
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Proposal", ready=True, finalizers=["x", BINDING.finalizer])
        api.refusals["patch", kinds.WORKFLOW] = Refused("no")
        await api.remove(kinds.WORKFLOW, KEY)
        async with informed(api):
            await conductor.reconcile(7)

        told = [each for each in asked(jobs, "raise_exception") if each[2] == type]
        assert told == ([] if failed else [("raise_exception", 7, type, "no", 0)])
        assert jobs.passes == [(7, "no")]

    job = replace(WITH_NODES, phase=phase, failed=failed)
    conducted(story, job)


@pytest.mark.parametrize("phase", [Phase.ENDING, Phase.OVER])
def test_a_job_that_is_ending_hears_of_no_mistake(phase: Phase) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "PreRun", ready=True)
        api.refusals["patch", kinds.WORKFLOW] = Refused("no")
        async with informed(api):
            await conductor.reconcile(7)

        assert asked(jobs, "raise_exception") == []
        assert jobs.passes == [(7, "no")]

    conducted(story, replace(WITH_NODES, phase=phase))


@pytest.mark.parametrize("phase", [Phase.ENDING, Phase.OVER])
def test_a_teardown_that_was_refused_is_asked_for_again_and_the_admin_told_once(
    phase: Phase, heard: list[MutableMapping[str, Any]]
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "PreRun", ready=True)
        refused = Refused("a policy has denied the request")
        api.refusals["patch", kinds.WORKFLOW] = refused
        async with running(api, conductor.run()):
            api.refusals["patch", kinds.WORKFLOW] = refused
            await asyncio.sleep(40)
            assert spec(api)["desiredState"] == "PreRun"
            await asyncio.sleep(30)
            assert spec(api)["desiredState"] == "Teardown"

        warnings = [each["reason"] for each in heard if each["log_level"] == "warning"]
        assert warnings == ["a policy has denied the request"]

    conducted(story, replace(WITH_NODES, phase=phase))


def test_a_job_that_may_not_have_heard_of_a_mistake_is_looked_at_later() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        jobs.heard_after = 5.0
        await workflow(api, "Proposal", ready=True)
        async with informed(api):
            assert await conductor.reconcile(7) == 5.0
            jobs.known[7] = replace(jobs.known[7], failed=False, phase=Phase.RUNNING)
            await trouble(api, "Error")
            await caught_up()
            assert await conductor.reconcile(7) == 5.0

        assert len(asked(jobs, "raise_exception")) == 2

    conducted(story, replace(JOB, phase=Phase.STARTING, unreadable_reason="why"))


BAD_R = "R: version is 2, not 1"


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.STARTING, Phase.RUNNING])
def test_a_job_whose_nodes_cannot_be_told_fails_with_the_reason(phase: Phase) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Proposal", ready=True)
        async with informed(api):
            await conductor.reconcile(7)

        ((_, _, _, note, severity),) = asked(jobs, "raise_exception")
        assert (note, severity) == (f"what the job was given cannot be read: {BAD_R}", 0)
        assert jobs.passes == [(7, note)]
        assert spec(api)["desiredState"] == "Proposal"

    conducted(story, replace(JOB, phase=phase, unreadable_reason=BAD_R))


@pytest.mark.parametrize("phase", [Phase.ENDING, Phase.OVER])
def test_one_that_ends_gives_its_storage_back_all_the_same(phase: Phase) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Proposal", ready=True)
        async with informed(api):
            await conductor.reconcile(7)

        assert asked(jobs, "raise_exception") == []
        assert spec(api)["desiredState"] == "Teardown"

    conducted(story, replace(JOB, phase=phase, unreadable_reason=BAD_R))


async def malformed(api: Api, kind: Kind, key: Key, **rest: Any) -> None:
    """Put an object there that is not of its kind, as an API without schemas takes it."""
    await api.add(kind, {"kind": kind.name, "metadata": meta(key.name, key.namespace), **rest})


def test_a_job_whose_workflow_cannot_be_read_fails_with_the_reason_and_no_other_job() -> None:
    other = replace(JOB, id=8)

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await malformed(api, kinds.WORKFLOW, KEY, spec={"desiredState": 5})
        async with running(api, conductor.run()):
            await asyncio.sleep(1)

            ((_, number, _, note, severity),) = asked(jobs, "raise_exception")
            assert (number, severity) == (7, 0)
            assert re.match(r"Workflow fluxjob-7: .* at `\$\.spec\.desiredState`", note)
            assert api.find(kinds.WORKFLOW, other.workflow_key)
            assert set(conductor.wait_reasons([7, 8])) == {8}

    conducted(story, JOB, other)


def test_a_configuration_that_cannot_be_read_is_no_jobs_mistake() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await malformed(api, kinds.SYSTEM_CONFIGURATION, kinds.CONFIGURATION_KEY, spec=5)
        async with informed(api):
            with pytest.raises(Malformed, match="SystemConfiguration"):
                await conductor.reconcile(7)

        assert jobs.asked == []
        assert jobs.passes == []

    conducted(story, JOB)


def test_a_rabbit_that_cannot_be_read_is_no_mistake_of_a_running_job() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await dependents(api, await workflow(api, "PreRun", ready=True))
        await malformed(api, kinds.STORAGE, Key("default", "r0"), spec=5)
        async with informed(api):
            with pytest.raises(OthersMalformed, match="Storage r0: "):
                await conductor.reconcile(7)

        assert asked(jobs, "raise_exception") == []
        assert jobs.passes == []

    conducted(story, replace(WITH_NODES, phase=Phase.RUNNING))


def test_persistent_storage_whose_servers_cannot_be_read_is_no_mistake_of_its_users() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await using(api, await workflow(api, ready=True))
        await malformed(api, kinds.SERVERS, Key("default", "pers"), spec=5)
        async with informed(api):
            with pytest.raises(OthersMalformed, match="Servers pers: "):
                await conductor.reconcile(7)

        assert asked(jobs, "raise_exception", "release_to_scheduler") == []

    conducted(story, JOB)


def test_what_is_asked_about_a_job_is_answered_when_the_api_is_back() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        away = api.refusals["create", kinds.WORKFLOW] = Unavailable("it is away")
        async with running(api, conductor.run()):
            for _ in range(120):
                api.refusals["create", kinds.WORKFLOW] = away
                await asyncio.sleep(0.5)
            assert jobs.passes == []
            api.refusals.clear()
            await asyncio.sleep(60)

        assert set(jobs.passes) == {(7, None)}
        assert asked(jobs, "raise_exception") == []

    conducted(story, JOB)


async def marked(api: Api, mark: str | None) -> None:
    """Make a Workflow in Proposal, as that of an instance."""
    await workflow(api, "Proposal", ready=True)
    if mark is not None:
        metadata = {"labels": {labels.WLM_INSTANCE: mark}}
        await api.change(kinds.WORKFLOW, KEY, {"metadata": metadata})


@pytest.mark.parametrize(
    ("mark", "desired"), [(None, "Teardown"), ("here", "Teardown"), ("there", "Proposal")]
)
def test_a_workflow_without_a_job_is_torn_down_unless_it_is_another_instances(
    mark: str | None, desired: str, heard: list[MutableMapping[str, Any]]
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await marked(api, mark)
        async with running(api, conductor.run()):
            await api.change(kinds.WORKFLOW, KEY, {"metadata": {"annotations": {"a": "b"}}})
            assert spec(api)["desiredState"] == desired
            assert (7, None) in jobs.passes  # for its plugin may ask
            await api.change(
                kinds.WORKFLOW, KEY, {"metadata": {"labels": {labels.WLM_INSTANCE: None}}}
            )
            assert spec(api)["desiredState"] == "Teardown"

    conducted(story)
    told = [each["workflows"] for each in heard if "another instance" in each["event"]]
    assert told == ([[KEY.name]] if mark == "there" else [])


@pytest.mark.parametrize("phase", [Phase.HELD, Phase.STARTING, Phase.ENDING])
def test_a_job_leaves_another_instances_workflow_of_its_name_alone(phase: Phase) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await marked(api, "there")
        before = api.find(kinds.WORKFLOW, KEY)
        async with running(api, conductor.run()):
            await caught_up()
        assert api.find(kinds.WORKFLOW, KEY) == before
        assert asked(jobs, "start") == asked(jobs, "release_to_scheduler") == []
        assert asked(jobs, "finish") == [("finish", 7)]
        assert len(asked(jobs, "raise_exception")) == (phase is not Phase.ENDING)

    conducted(story, replace(JOB, phase=phase))


def test_workflows_are_marked_as_their_instances() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        async with informed(api):
            await conductor.reconcile(7)
        found = api.find(kinds.WORKFLOW, KEY)["metadata"]
        assert found["labels"] == {labels.WLM_INSTANCE: "here"}

    conducted(story, JOB)


def test_a_job_on_a_node_without_a_rabbit_fails() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await dependents(api, await workflow(api, ready=True))
        async with informed(api):
            await conductor.reconcile(7)

        assert asked(jobs, "raise_exception") == [
            ("raise_exception", 7, "dws-setup", "node n9 is wired to no rabbit", 0)
        ]

    conducted(story, replace(WITH_NODES, nodes=("n0", "n9")))


@pytest.mark.parametrize("there", [True, False])
def test_servers_are_gone_only_if_the_api_itself_says_so(there: bool) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await dependents(api, await workflow(api, ready=True))
        first = Key("default", f"{KEY.name}-0")
        if not there:
            await api.remove(kinds.SERVERS, first)
        async with informed(api):
            await conductor.reconcile(7)

        assert ("list", kinds.SERVERS) in api.asked
        if there:
            assert spec(api)["desiredState"] == "Setup"
            assert asked(jobs, "raise_exception") == []
        else:
            note = f"the Servers {first.name} are gone"
            assert asked(jobs, "raise_exception") == [("raise_exception", 7, "dws-setup", note, 0)]

    conducted(story, WITH_NODES, hidden=[kinds.SERVERS])


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("job", [JOB, WITH_NODES])
def test_what_a_job_needs_is_not_taken_to_be_nothing_before_it_is_seen(
    job: Job, there: bool
) -> None:
    """A breakdown is watched apart from its Workflow, and may be seen later, or be gone."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        first = Key("default", f"{KEY.name}-0")
        named = {"kind": "DirectiveBreakdown", "name": first.name, "namespace": first.namespace}
        made = await workflow(api, ready=True, status={"directiveBreakdowns": [named]})
        await dependents(api, made)
        if not there:
            await api.remove(kinds.BREAKDOWN, first)
        async with informed(api):
            await conductor.reconcile(7)

        servers = api.find(kinds.SERVERS, first)
        if not there:
            ((_, _, _, note, _),) = asked(jobs, "raise_exception")
            assert note == f"the DirectiveBreakdown {first.name} is gone"
            assert asked(jobs, "release_to_scheduler") == []
            assert spec(api)["desiredState"] == "Proposal"
        elif job.phase is Phase.HELD:
            ((_, _, resources),) = asked(jobs, "release_to_scheduler")
            assert "ssd" in str(resources)
        else:
            assert servers["spec"]["allocationSets"][0]["storage"]
            assert spec(api)["desiredState"] == "Setup"

    conducted(story, job, hidden=[kinds.BREAKDOWN])


# Transient conditions


async def trouble(api: Api, status: str) -> None:
    said = {"status": status, "message": "in the way"}
    await api.change(kinds.WORKFLOW, KEY, {"status": said}, status=True)


def test_a_transient_condition_is_borne_for_a_while_counted_from_when_it_was_first_seen() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Setup")
        async with informed(api):
            await trouble(api, "TransientCondition")
            assert await conductor.reconcile(7) == PATIENCE
            await asyncio.sleep(4)
            assert await conductor.reconcile(7) == pytest.approx(PATIENCE - 4)
            assert jobs.asked == []
            await asyncio.sleep(6)
            assert await conductor.reconcile(7) is None

        ((_, _, _, note, _),) = asked(jobs, "raise_exception")
        assert "'TransientCondition' state too long: in the way" in note

    conducted(story, WITH_NODES)


class Settable(VirtualClock):
    """A clock that an admin sets."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


@pytest.mark.parametrize("ahead", [3600.0, -3600.0])
def test_a_clock_that_is_set_meanwhile_neither_ends_nor_prolongs_it(ahead: float) -> None:
    async def story(api: Api, jobs: Jobs, _: Conductor) -> None:
        clock = Settable()
        conductor = Conductor(api, api.informers, jobs, clock, GIB)
        await workflow(api, "Setup")
        async with informed(api):
            await trouble(api, "TransientCondition")
            await conductor.reconcile(7)
            await asyncio.sleep(4)
            clock.ahead = ahead
            assert await conductor.reconcile(7) == pytest.approx(PATIENCE - 4)
            assert asked(jobs, "raise_exception") == []
            await asyncio.sleep(6)
            await conductor.reconcile(7)
            assert len(asked(jobs, "raise_exception")) == 1

    conducted(story, WITH_NODES)


def test_one_that_has_passed_is_forgotten_and_the_next_has_its_own_time() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Setup")
        async with informed(api):
            await trouble(api, "TransientCondition")
            await conductor.reconcile(7)
            await trouble(api, "DriverWait")
            assert await conductor.reconcile(7) is None
            await asyncio.sleep(100)
            await trouble(api, "TransientCondition")
            assert await conductor.reconcile(7) == PATIENCE

        assert asked(jobs, "raise_exception") == []

    conducted(story, WITH_NODES)


def test_one_of_a_workflow_that_is_gone_is_forgotten_too() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        made = raw_workflow(JOBDW, state="Setup", metadata={"name": KEY.name, "finalizers": []})
        await api.add(kinds.WORKFLOW, made)
        async with informed(api):
            await trouble(api, "TransientCondition")
            await conductor.reconcile(7)
            await api.remove(kinds.WORKFLOW, KEY)
            jobs.known[7] = replace(JOB, failed=True)
            await conductor.reconcile(7)
            await asyncio.sleep(100)
            jobs.known[7] = WITH_NODES
            await api.add(kinds.WORKFLOW, made)
            await trouble(api, "TransientCondition")
            assert await conductor.reconcile(7) == PATIENCE

    conducted(story, WITH_NODES)


# Memos


def test_what_a_job_was_shown_it_is_not_shown_again_until_that_changes() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await dependents(api, await workflow(api, ready=True))
        async with informed(api):
            for _ in range(2):
                await conductor.reconcile(7)
            assert len(asked(jobs, "memo")) == 1
            jobs.known[7] = replace(WITH_NODES, nodes=("n0", "n2"))
            await api.change(kinds.WORKFLOW, KEY, {"spec": {"desiredState": "Proposal"}})
            await conductor.reconcile(7)

        assert asked(jobs, "memo") == [
            ("memo", 7, {"rabbits": "r0"}),
            ("memo", 7, {"rabbits": "r[0-1]"}),
        ]

    conducted(story, WITH_NODES)


def test_a_conductor_that_ends_before_it_shows_the_rabbits_is_followed_by_one_that_does() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await dependents(api, await workflow(api, ready=True))
        async with informed(api):
            await conductor.reconcile(7)
            ((*_, memo),) = asked(jobs, "memo")
            jobs.asked.clear()
            following = Conductor(api, api.informers, jobs, api.clock, GIB)
            await caught_up()
            for _ in range(2):
                await following.reconcile(7)

        assert asked(jobs, "memo") == [("memo", 7, memo)]

    conducted(story, WITH_NODES)


def test_how_long_a_state_took_is_told_once() -> None:
    told: list[tuple[str, float]] = []

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        conductor.on_state_ready = lambda state, seconds: told.append((state, seconds))
        wf = await workflow(api, desired="DataIn", state="DataIn", ready=True)
        await dependents(api, wf)
        await api.change(kinds.WORKFLOW, KEY, {"status": {"elapsedTimeLastState": "1m2.5s"}})
        async with informed(api):
            for _ in range(2):
                api.refusals["patch", kinds.WORKFLOW] = Conflict("it has changed")
                with pytest.raises(Conflict):
                    await conductor.reconcile(7)
            await conductor.reconcile(7)

    conducted(story, WITH_NODES)
    assert told == [("datain", 62.5)]


def test_a_job_is_shown_the_same_once_while_its_workflow_is_behind() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await dependents(api, await workflow(api, ready=True))
        async with informed(api):
            for _ in range(3):
                api.refusals["patch", kinds.WORKFLOW] = Conflict("it has changed")
                with pytest.raises(Conflict):
                    await conductor.reconcile(7)
            await conductor.reconcile(7)

        assert asked(jobs, "memo") == [("memo", 7, {"rabbits": "r0"})]

    conducted(story, WITH_NODES)


def test_so_is_one_whose_workflow_is_not_seen_yet() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        async with informed(api):
            for _ in range(3):
                await conductor.reconcile(7)

        assert jobs.asked == [("memo", 7, {"rabbit_workflow": KEY.name})]

    conducted(story, JOB, hidden=[kinds.WORKFLOW])


def test_nothing_is_done_before_all_is_known_of_the_api() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        async with alongside(conductor.run()):
            await caught_up()
            assert (api.written, jobs.passes) == ([], [])
            async with informed(api):
                assert api.keys(kinds.WORKFLOW) == [str(KEY)]

    conducted(story, JOB)


def test_a_namesake_of_a_job_that_is_over_is_shown_everything() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        async with informed(api):
            await conductor.reconcile(7)
            await api.change(kinds.WORKFLOW, KEY, {"metadata": {"finalizers": []}})
            await api.remove(kinds.WORKFLOW, KEY)
            jobs.known[7] = replace(JOB, phase=Phase.OVER)
            await conductor.reconcile(7)
            jobs.known[7] = JOB
            await conductor.reconcile(7)

        assert len(asked(jobs, "memo")) == 2

    conducted(story, JOB)


# What jobs wait for


def test_what_jobs_wait_for_is_told_of_those_that_wait_for_their_storage() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Setup")
        await api.add(kinds.SYSTEM_CONFIGURATION, msgspec.to_builtins(configuration()))
        async with informed(api):
            assert conductor.wait_reasons([7, 8, 9, 10]) == {
                7: "waits for Setup on r0",
                8: "waits for its Workflow",
            }

    running = replace(WITH_NODES, id=9, phase=Phase.RUNNING)
    conducted(story, WITH_NODES, replace(JOB, id=8), running)


def test_without_a_configuration_the_state_is_told_without_a_place() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Setup")
        async with informed(api):
            assert conductor.wait_reasons([7]) == {7: "waits for Setup"}

    conducted(story, WITH_NODES)


def test_a_job_whose_storage_is_there_waits_for_nothing() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Setup", ready=True)
        async with informed(api):
            assert conductor.wait_reasons([7]) == {}

    conducted(story, WITH_NODES)


# News


def test_every_job_is_looked_at_once_all_are_known() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        jobs.synced.clear()
        async with running(api, conductor.run()):
            assert jobs.passes == []
            jobs.synced.set()
            await caught_up()
            assert {job for job, _ in jobs.passes} == {7, 8}

    conducted(story, JOB, replace(JOB, id=8))


def test_news_of_a_job_or_its_workflow_or_what_belongs_to_that_wakes_it() -> None:
    """Statement 000.62: watches persist, and what is done is decided by the state."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        quiet = replace(JOB, phase=Phase.NEW)
        async with running(api, conductor.run()):
            jobs.put(quiet)
            await caught_up()
            assert jobs.passes == [(7, None)]
            made = await workflow(api, "Proposal", ready=True)
            seen = len(jobs.passes)
            assert seen > 1
            directive = {"spec": {"directive": JOBDW, "userID": 1001}}
            for kind, rest in (
                (kinds.BREAKDOWN, directive),
                (kinds.SERVERS, {"spec": {}}),
                (kinds.COMPUTES, {"data": []}),
            ):
                await child(api, kind, made, Key("default", f"{KEY.name}-0"), **rest)
                assert len(jobs.passes) > seen
                seen = len(jobs.passes)

    conducted(story)


@pytest.mark.parametrize("limits", [Timeouts(), Timeouts(setup=1e9)])
def test_in_the_middle_of_a_state_there_is_no_news_but_for_limits_and_trouble(
    limits: Timeouts,
) -> None:
    """What drivers write one after the other costs no look at the job."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        conductor.configure(Settings(timeouts=limits))
        made = await workflow(api, "Setup")
        async with running(api, conductor.run()):
            await caught_up()
            seen = len(jobs.passes)
            await child(api, kinds.SERVERS, made, Key("default", f"{KEY.name}-0"), spec={})
            await caught_up()
            assert (len(jobs.passes) > seen) is limits.limits_states
            seen = len(jobs.passes)
            await trouble(api, "TransientCondition")
            assert len(jobs.passes) > seen
            seen = len(jobs.passes)
            await trouble(api, "DriverWait")
            assert len(jobs.passes) > seen
            await api.delete(Remove(kind=kinds.WORKFLOW, key=KEY))
            await caught_up()
            assert len(jobs.passes) > seen + 1

    conducted(story, WITH_NODES)


@pytest.mark.parametrize("late", [False, True])
def test_a_workflow_without_a_job_is_torn_down_in_the_middle_of_any_state(late: bool) -> None:
    """The job was purged while no conductor was there."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        if not late:
            await workflow(api, "Setup")
        async with running(api, conductor.run()):
            if late:
                await workflow(api, "Setup")
            await caught_up()
            assert spec(api)["desiredState"] == "Teardown"

    conducted(story)


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.ENDING])
def test_a_teardown_that_is_not_the_jobs_own_is_news_at_once(phase: Phase) -> None:
    """Before any controller takes it up."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Setup" if phase is Phase.STARTING else "Teardown")
        async with running(api, conductor.run()):
            seen = len(jobs.passes)
            change = {"spec": {"desiredState": "Teardown"}, "metadata": {"annotations": {"a": "b"}}}
            await api.change(kinds.WORKFLOW, KEY, change)
            await caught_up()
            told = [each[3] for each in asked(jobs, "raise_exception")]
            if phase is Phase.STARTING:
                assert len(told) == 1
                assert f"Workflow {KEY.name} is torn down" in told[0]
            else:
                assert (told, len(jobs.passes)) == ([], seen)

    conducted(story, replace(WITH_NODES, phase=phase))


@pytest.mark.parametrize("name", ["fluxjob-x", "slurm-7", "7", "fluxjob-7-0"])
def test_workflows_of_others_wake_no_job(name: str) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        async with running(api, conductor.run()):
            await api.add(kinds.WORKFLOW, raw_workflow(metadata={"name": name}))
        assert jobs.passes == []

    conducted(story)


def test_a_pass_that_is_to_be_made_later_is() -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        await workflow(api, "Setup")
        async with running(api, conductor.run()):
            await trouble(api, "TransientCondition")
            assert asked(jobs, "raise_exception") == []
            await asyncio.sleep(2 * PATIENCE)
            assert len(asked(jobs, "raise_exception")) == 1

    conducted(story, WITH_NODES)


# What was let go before its storage


@pytest.mark.parametrize(("other", "back"), [(True, ("n1",)), (False, ("n0", "n1"))])
@pytest.mark.parametrize("is_read", [True, False])
def test_nodes_that_another_job_that_was_let_go_has_do_not_return(
    other: bool, back: tuple[str, ...], is_read: bool
) -> None:
    """Also where the other job's Workflow cannot be read."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        conductor.configure(Settings(return_to_service=True))
        marked = {labels.ABORTED: "before"}
        made = await workflow(api, "Teardown", ready=True)
        change = Change(kind=kinds.WORKFLOW, key=KEY, patch={"metadata": {"annotations": marked}})
        await api.patch(change)
        await child(api, kinds.COMPUTES, made, KEY, data=[{"name": "n0"}, {"name": "n1"}])
        second = raw_workflow(JOBDW, state="Teardown", metadata={"name": "fluxjob-8"})
        second["metadata"]["annotations"] = marked if other else {}
        if not is_read:
            second["spec"] = {"desiredState": 5}
        await api.add(kinds.WORKFLOW, second)
        data = [{"name": "n0"}, {"name": "n5"}]
        await api.add(kinds.COMPUTES, {"metadata": meta("fluxjob-8", "default"), "data": data})
        async with informed(api):
            await conductor.reconcile(7)

        assert asked(jobs, "undrain") == [("undrain", back, "failed to unmount rabbit")]

    conducted(story, replace(JOB, phase=Phase.OVER))


@pytest.mark.parametrize("returns", [True, False])
def test_nodes_return_whose_workflow_went_while_no_conductor_was_there(returns: bool) -> None:
    """Those of one that is still there wait for it, also where it is not marked yet."""

    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        settings = Settings(return_to_service=returns)
        following = Conductor(api, api.informers, jobs, api.clock, GIB, settings)
        wiring = {"r0": ("n0", "n1"), "r1": ("n2", "n3")}
        await api.add(kinds.SYSTEM_CONFIGURATION, msgspec.to_builtins(configuration(wiring)))
        noted = {labels.ABORTED: "before", labels.ABORTED_NODES: "n0"}
        for name, annotations, node in (
            ("fluxjob-8", noted, None),
            ("fluxjob-9", {}, "n1"),  # it is over, and was let go a moment ago
            ("fluxjob-7", {}, "n2"),  # it runs, on a node that is drained for another job
        ):
            other = raw_workflow(JOBDW, state="Teardown", metadata={"name": name})
            other["metadata"]["annotations"] = annotations
            await api.add(kinds.WORKFLOW, other)
            if node is not None:
                data = [{"name": node}]
                await api.add(kinds.COMPUTES, {"metadata": meta(name, "default"), "data": data})
        async with running(api, following.run()):
            await caught_up()

        back = [("undrain", ("n2", "n3"), abort.DRAIN_REASON)]
        assert asked(jobs, "undrain") == (back if returns else [])

    conducted(story, replace(JOB, phase=Phase.RUNNING))


@pytest.mark.parametrize(
    ("annotations", "data"),
    [
        ({labels.ABORTED_NODES: "n1"}, "of no kind"),
        ({labels.ABORTED_NODES: "n["}, [{"name": "n1"}]),
    ],
)
def test_nodes_return_beside_an_object_that_cannot_be_read(
    annotations: dict[str, str], data: Any, heard: list[MutableMapping[str, Any]]
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        following = Conductor(
            api, api.informers, jobs, api.clock, GIB, Settings(return_to_service=True)
        )
        wiring = {"r0": ("n0", "n1"), "r1": ("n2", "n3")}
        await api.add(kinds.SYSTEM_CONFIGURATION, msgspec.to_builtins(configuration(wiring)))
        bad = raw_workflow(JOBDW, state="Teardown", metadata={"name": "fluxjob-8"})
        bad["metadata"]["annotations"] = annotations
        await api.add(kinds.WORKFLOW, bad)
        await api.add(kinds.COMPUTES, {"metadata": meta("fluxjob-8", "default"), "data": data})
        other = raw_workflow(JOBDW, state="Teardown", metadata={"name": "fluxjob-9"})
        await api.add(kinds.WORKFLOW, other)
        waiting = {"metadata": meta("fluxjob-9", "default"), "data": [{"name": "n0"}]}
        await api.add(kinds.COMPUTES, waiting)
        async with running(api, following.run()):
            await caught_up()

        assert asked(jobs, "undrain") == [("undrain", ("n2", "n3"), abort.DRAIN_REASON)]

    conducted(story)
    told = [each["workflow"] for each in heard if "nodes are not known" in each["event"]]
    assert told == ["fluxjob-8"]


@pytest.mark.parametrize(
    ("returns", "back"), [(True, [("undrain", ("n1",), abort.DRAIN_REASON)]), (False, [])]
)
def test_nodes_return_when_a_workflow_that_was_deleted_is_gone(
    returns: bool, back: list[tuple[Any, ...]]
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        conductor.configure(Settings(return_to_service=returns))
        noted = {labels.ABORTED: "before", labels.ABORTED_NODES: "n[0-1]"}
        await workflow(api, "Teardown", finalizers=["nnf"])
        await api.change(kinds.WORKFLOW, KEY, {"metadata": {"annotations": noted}})
        # Of another job that was let go, which has one of the nodes, too.
        second = raw_workflow(JOBDW, state="Teardown", metadata={"name": "fluxjob-8"})
        second["metadata"]["annotations"] = noted
        await api.add(kinds.WORKFLOW, second)
        data = [{"name": "n0"}]
        await api.add(kinds.COMPUTES, {"metadata": meta("fluxjob-8", "default"), "data": data})
        async with running(api, conductor.run()):
            await api.remove(kinds.WORKFLOW, KEY)
            assert asked(jobs, "undrain") == []
            await api.change(kinds.WORKFLOW, KEY, {"metadata": {"finalizers": []}})
            assert api.find(kinds.WORKFLOW, KEY) is None
            await caught_up()

        assert asked(jobs, "undrain") == back

    conducted(story, replace(JOB, phase=Phase.OVER))


def test_a_workflow_whose_noted_nodes_cannot_be_read_is_gone_like_another(
    heard: list[MutableMapping[str, Any]],
) -> None:
    async def story(api: Api, jobs: Jobs, conductor: Conductor) -> None:
        conductor.configure(Settings(return_to_service=True))
        await workflow(api, "Teardown", finalizers=["nnf"])
        noted = {labels.ABORTED: "before", labels.ABORTED_NODES: "n["}
        await api.change(kinds.WORKFLOW, KEY, {"metadata": {"annotations": noted}})
        async with running(api, conductor.run()):
            await api.remove(kinds.WORKFLOW, KEY)
            await api.change(kinds.WORKFLOW, KEY, {"metadata": {"finalizers": []}})
            await caught_up()

        assert asked(jobs, "undrain") == []

    conducted(story, replace(JOB, phase=Phase.OVER))
    assert [each["workflow"] for each in heard if "aborted job are not" in each["event"]] == [
        KEY.name
    ]
