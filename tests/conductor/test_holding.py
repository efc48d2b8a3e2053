"""What keeps a rabbit out of service: storage of jobs that were let go before it."""

from typing import Any

import pytest

from tests.conductor.test_returntoservice import RABBIT, WORKFLOW, disabled, made, returned
from tests.controllers.alone import Api, caught_up
from tests.dws.builders import JOBDW, meta, raw_workflow
from warren.base.bytesize import GIB
from warren.base.objects import Key, Remove
from warren.conductor.returntoservice import ReturnToService
from warren.dws import kinds, labels

OTHER = Key("default", "fluxjob-8")


async def other_storage(api: Api, *, marked: bool, workflow: bool = True) -> None:
    """Make another job's storage on the rabbit."""
    if workflow:
        raw = raw_workflow(JOBDW, state="Teardown", metadata={"name": OTHER.name})
        raw["metadata"]["annotations"] = {labels.ABORTED: "then"} if marked else {}
        await api.add(kinds.WORKFLOW, raw)
    own = {labels.WORKFLOW_NAME: OTHER.name, labels.WORKFLOW_NAMESPACE: OTHER.namespace}
    metadata: dict[str, Any] = meta("fluxjob-8-0", "default", labels=own)
    shares = [{"name": RABBIT.name, "allocationCount": 1}]
    sets = [{"label": "xfs", "allocationSize": GIB, "storage": shares}]
    await api.add(kinds.SERVERS, {"metadata": metadata, "spec": {"allocationSets": sets}})


@pytest.mark.parametrize(
    ("marked", "workflow", "tested"),
    [(True, True, False), (False, True, True), (False, False, True)],
)
def test_a_rabbit_waits_for_all_storage_of_jobs_that_were_let_go_and_for_no_other(
    marked: bool, workflow: bool, tested: bool
) -> None:
    async def story(api: Api, returning: ReturnToService) -> None:
        await other_storage(api, marked=marked, workflow=workflow)
        await api.delete(Remove(kind=kinds.WORKFLOW, key=WORKFLOW))
        await disabled(api)
        await caught_up()
        assert bool(made(api)) is tested

    returned(story)
