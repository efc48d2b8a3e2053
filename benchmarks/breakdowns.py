"""Directives in Proposal: admitted, broken down beside many old copies, and placed."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace
from tests.conductor.jobs import Jobs
from tests.controllers.alone import Api, caught_up, informed, opened
from tests.dws.builders import BINDING, JOBDW, configuration, meta, need, raw_profile
from tests.harness import virtual

from benchmarks.measure import Result, median_ms, percentile
from warren.base.bytesize import GIB
from warren.base.objects import Key, key_of
from warren.base.placing import HeldFlash
from warren.conductor.conductor import Conductor
from warren.controllers.breakdown import BreakdownController
from warren.daemons.clusterobjects import manifests
from warren.daemons.workflowadmission import WorkflowAdmission
from warren.dws import kinds, labels
from warren.dws.binding import Phase
from warren.dws.breakdown.allocationneeds import ACROSS_SERVERS, PER_COMPUTE
from warren.dws.jobs.jobsnapshot import Job
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta
from warren.dws.objects.workflows import Workflow
from warren.dws.storage import storageprofiles
from warren.kube.admission import Operation, Review

DIRECTIVES: Final = [JOBDW.replace("my-fs", f"fs-{number}") for number in range(10)]

COPIES: Final = 10_000
"""Pinned profiles of other jobs."""


def admitted() -> Iterator[Result]:
    """What admission makes of the Workflow."""
    rules = [obj for obj in manifests("rules.yaml") if obj["kind"] == kinds.DIRECTIVE_RULE.name]
    admission = WorkflowAdmission()
    admission.read_rules_from(lambda kind: rules)
    new = {
        "metadata": {"name": "wf", "namespace": "default"},
        "spec": {"desiredState": "Proposal", "dwDirectives": DIRECTIVES},
    }
    review = Review(operation=Operation.CREATE, kind=kinds.WORKFLOW, key=key_of(new), new=new)
    taken = median_ms(lambda: asyncio.run(admission.admit(review)), 20)
    yield Result(name="ten directives, admitted", value=taken, unit="ms", budget=10)


def broken_down() -> Iterator[Result]:
    """What the controller does for all ten, to the status of the last."""
    for copies in (0, COPIES):
        taken = virtual.run(_measure_breakdown(copies))
        name = f"ten directives, broken down, {copies} copies"
        yield Result(name=name, value=taken, unit="ms", budget=50)


async def _measure_breakdown(copies: int) -> float:
    taken = []
    async with opened() as api:
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        for number in range(copies):
            owner = read(meta(f"old-{number}"), Meta)
            copy = storageprofiles.pinned_copy(raw_profile(), kinds.BREAKDOWN, owner, {})
            await api.store.create(kinds.NNF_STORAGE_PROFILE, copy)
        controller = BreakdownController(api, api.informers)
        async with informed(api):
            for turn in range(9):
                taken.append(await _break_down(api, controller, f"wf{turn}"))
    return percentile(taken, 0.5)


async def _break_down(api: Api, controller: BreakdownController, workflow: str) -> float:
    found = [Key("default", f"{workflow}-{index}") for index in range(len(DIRECTIVES))]
    for key, text in zip(found, DIRECTIVES, strict=True):
        metadata = {"name": key.name, "namespace": key.namespace}
        spec = {"directive": text, "userID": 1}
        await api.store.create(kinds.BREAKDOWN, {"metadata": metadata, "spec": spec})
    await caught_up()
    spent = 0.0
    for _ in range(2):  # the copy, then the rest
        began = time.perf_counter()
        for key in found:
            await controller.reconcile(key)
        spent += time.perf_counter() - began
        await caught_up()
    for key in found:
        assert api.find(kinds.BREAKDOWN, key)["status"]["ready"]
    return spent * 1000


RABBITS, WIRED = 720, 16
"""The largest system that there is, of which one job has all nodes."""


def placed() -> Iterator[Result]:
    """What controller and conductor do for a job of all nodes, from its breakdown to Setup."""
    for kind, strategy in (("xfs", PER_COMPUTE), ("lustre", ACROSS_SERVERS)):
        taken = virtual.run(_measure_placement(kind, strategy))
        name = f"{RABBITS * WIRED} nodes on {RABBITS} rabbits, broken down and placed, {kind}"
        yield Result(name=name, value=taken, unit="ms CPU", budget=50)


async def _measure_placement(kind: str, strategy: str) -> float:
    hosts = {
        f"rabbit{rabbit}": [f"node{rabbit * WIRED + node}" for node in range(WIRED)]
        for rabbit in range(RABBITS)
    }
    nodes = tuple(host for each in hosts.values() for host in each)
    made_of = [{"type": "node", "count": len(nodes), "with": [{"type": "core", "count": 1}]}]
    job = Job(
        id=7,
        phase=Phase.HELD,
        binding=BINDING,
        userid=1001,
        groupid=1002,
        formatted_id="fX",
        directives=(JOBDW,),
        resources=made_of,
    )
    jobs = Jobs(job)
    jobs.held = [HeldFlash(rabbit, node_count=WIRED, unit_gib=1, units=500) for rabbit in hosts]
    spent = []
    async with opened() as api:
        await api.add(kinds.SYSTEM_CONFIGURATION, msgspec.to_builtins(configuration(hosts)))
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        controller = BreakdownController(api, api.informers)
        conductor = Conductor(api, api.informers, jobs, api.clock, GIB)
        async with informed(api):
            await _break_down(api, controller, "warm")
            broken = await _break_down(api, controller, "wf") / len(DIRECTIVES)
            for number in range(100, 109):
                key = BINDING.workflow_key(number)
                await _make_proposed(api, key, kind, strategy)
                jobs.known[number] = replace(job, id=number)
                cpu = 0.0
                for phase, names in ((Phase.HELD, ()), (Phase.STARTING, nodes)):
                    jobs.known[number] = replace(jobs.known[number], phase=phase, nodes=names)
                    began = time.process_time()
                    await conductor.reconcile(number)
                    cpu += time.process_time() - began
                    await caught_up()
                assert api.find(kinds.WORKFLOW, key)["spec"]["desiredState"] == "Setup"
                servers = api.find(kinds.SERVERS, Key(key.namespace, f"{key.name}-0"))
                assert len(servers["spec"]["allocationSets"][0]["storage"]) == RABBITS
                spent.append(cpu * 1000 + broken)
    return percentile(spent, 0.5)


async def _make_proposed(api: Api, key: Key, kind: str, strategy: str) -> None:
    """Make a Workflow in Proposal that is ready, with all that it has got."""
    spec = {"desiredState": "Proposal", "dwDirectives": [JOBDW], "jobID": "f", "wlmID": "flux",
            "userID": 1001, "groupID": 1002}  # fmt: skip
    status = {"state": "Proposal", "ready": True, "status": "Completed"}
    about = {"name": key.name, "namespace": key.namespace}
    made = await api.add(kinds.WORKFLOW, {"metadata": about, "spec": spec, "status": status})
    own = labels.of_workflow(read(made, Workflow))
    servers = f"{key.name}-0"
    size = 10 * GIB if strategy == PER_COMPUTE else RABBITS * 100 * GIB
    needs = msgspec.to_builtins(need(kind, size, strategy))
    storage = {"reference": {"name": servers}, "lifetime": "job", "allocationSets": [needs]}
    directive = {"directive": JOBDW, "userID": 1001}
    for each, name, rest in (
        (kinds.COMPUTES, key.name, {"data": []}),
        (kinds.SERVERS, servers, {"spec": {}}),
        (kinds.BREAKDOWN, servers,
         {"spec": directive, "status": {"ready": True, "storage": storage}}),
    ):  # fmt: skip
        await api.add(each, {"metadata": {**about, "name": name, "labels": own}, **rest})


ALL = {
    "directives admitted": admitted,
    "directives broken down": broken_down,
    "breakdown and placement of a job of all nodes": placed,
}
