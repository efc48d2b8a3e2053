"""A Workflow of ten directives in Proposal: admitted, and broken down beside many old copies."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from tests.controllers.alone import Api, caught_up, informed, opened
from tests.dws.builders import JOBDW, meta, raw_profile
from tests.harness import virtual

from benchmarks.measure import Result, median_ms, percentile
from warren.base.objects import Key, key_of
from warren.controllers.breakdown import BreakdownController
from warren.daemons.cluster import manifests
from warren.daemons.workflowadmission import WorkflowAdmission
from warren.dws import kinds, profiles
from warren.dws.objects import Meta, read
from warren.kube.admission import Operation, Review

DIRECTIVES: Final = [JOBDW.replace("my-fs", f"fs-{number}") for number in range(10)]

COPIES: Final = 10_000
"""Pinned profiles of other jobs."""


def admitted() -> Iterator[Result]:
    """What admission makes of the Workflow."""
    rules = [obj for obj in manifests("rules.yaml") if obj["kind"] == kinds.RULE.name]
    admission = WorkflowAdmission()
    admission.connect(lambda kind: rules)
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
        taken = virtual.run(_broken_down(copies))
        name = f"ten directives, broken down, {copies} copies"
        yield Result(name=name, value=taken, unit="ms", budget=50)


async def _broken_down(copies: int) -> float:
    taken = []
    async with opened() as api:
        await api.add(kinds.NNF_STORAGE_PROFILE, raw_profile())
        for number in range(copies):
            owner = read(meta(f"old-{number}"), Meta)
            copy = profiles.pinned(raw_profile(), kinds.BREAKDOWN, owner, {})
            await api.store.create(kinds.NNF_STORAGE_PROFILE, copy)
        controller = BreakdownController(api, api.informers)
        async with informed(api):
            for turn in range(9):
                taken.append(await _one(api, controller, f"wf{turn}"))
    return percentile(taken, 0.5)


async def _one(api: Api, controller: BreakdownController, workflow: str) -> float:
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


ALL = {"directives admitted": admitted, "directives broken down": broken_down}
