"""What the conductor does for a job, as a table that is made by asking `jobs.conduct.decide`."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from warren.base.objects import Change, Create, Object, Remove
from warren.dws import kinds
from warren.dws.binding import Binding, Phase
from warren.dws.jobs import conduct, jobactions
from warren.dws.jobs.jobsnapshot import Job, JobSnapshot
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import State, Workflow

_DIRECTIVE: Final = "#DW jobdw type=xfs capacity=1GiB name=scratch"
_BINDING: Final = Binding("flux", "fluxjob-", "flux-framework.readthedocs.io/workflow", {})
_META: Final = {"name": "fluxjob-1", "namespace": "default", "finalizers": [_BINDING.finalizer]}
_TASK: Final = {"type": "slot", "count": 1, "label": "task", "with": [{"type": "core", "count": 1}]}
_JOB: Final = Job(
    id=1,
    phase=Phase.HELD,
    binding=_BINDING,
    directives=(_DIRECTIVE,),
    resources=[{"type": "node", "count": 1, "with": [_TASK]}],
    nodes=("compute-00",),
)

JOBS: Final[Mapping[str, Job]] = {
    "held": replace(_JOB, nodes=()),
    "queued": replace(_JOB, phase=Phase.QUEUED, nodes=()),
    "starting": replace(_JOB, phase=Phase.STARTING),
    "running": replace(_JOB, phase=Phase.RUNNING, ran=True),
    "ending": replace(_JOB, phase=Phase.ENDING, ran=True),
    "ending, tasks never started": replace(_JOB, phase=Phase.ENDING, failed=True),
    "ending, canceled meanwhile": replace(
        _JOB,
        phase=Phase.ENDING,
        ran=True,
        failed=True,
        has_exception_while_ending=True,
        has_failed_while_ending=True,
    ),
    "over": replace(_JOB, phase=Phase.OVER),
}
"""The columns."""

_READY: Final = {"ready": True, "status": "Completed", "elapsedTimeLastState": "1s"}
_STATUSES: Final[Mapping[str, Mapping[str, Any]]] = {
    "in work": {"ready": False, "status": "DriverWait"},
    "ready": _READY,
    "in error": {"ready": False, "status": "Error", "message": "DW Directive 0: broken"},
}


def decision_table() -> Iterator[str]:
    """Yield the lines of the table: a row for each Workflow, a column for each job."""
    yield f"| Workflow | {' | '.join(JOBS)} |"
    yield f"|---|{'---|' * len(JOBS)}"
    yield _row("none", None)
    for state in State:
        for words, status in _STATUSES.items():
            yield _row(f"{state}, {words}", _workflow(state, status))
    moment = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    yield _row("is being deleted", _workflow(State.PRE_RUN, _READY, moment))


def _row(name: str, workflow: Object | None) -> str:
    cells = [", ".join(_words(conduct.decide(_snapshot(job, workflow)))) for job in JOBS.values()]
    return f"| {name} | {' | '.join(cells)} |"


def _words(actions: list[jobactions.Action]) -> Iterator[str]:
    """Say what actions are; what is only noted for the record is left out."""
    for action in actions:
        match action:
            case Create():
                yield "make the Workflow"
            case Remove():
                yield "delete the Workflow"
            case Change() if action.kind == kinds.WORKFLOW and "spec" in action.patch:
                yield f"ask for {action.patch['spec']['desiredState']}"
            case Change() if action.kind == kinds.WORKFLOW:
                yield "take the finalizer off"
            case Change():
                yield f"fill the {action.kind.name}"
            case jobactions.RaiseException(type_, _, severity):
                yield f"raise exception type `{type_}` of severity {severity}"
            case jobactions.ReleaseToScheduler():
                yield "release to the scheduler"
            case jobactions.Start():
                yield "start the tasks"
            case jobactions.Finish():
                yield "let the job go"
            case jobactions.FreeNodes():
                yield "free nodes"
            case jobactions.Drain():
                yield "drain nodes"


def _workflow(state: State, status: Mapping[str, Any], meta: Mapping[str, Any] = {}) -> Object:
    return {
        "metadata": {**_META, **meta},
        "spec": {"desiredState": state, "dwDirectives": [_DIRECTIVE], "jobID": "f1"},
        "status": {"state": state, "drivers": [], **status},
    }


def _snapshot(job: Job, workflow: Object | None) -> JobSnapshot:
    meta = {"name": "fluxjob-1-0", "namespace": "default"}
    need = {
        "allocationStrategy": "AllocatePerCompute",
        "minimumCapacity": 2**30,
        "label": "xfs",
        "constraints": {"labels": ["dataworkflowservices.github.io/storage=Rabbit"]},
    }
    storage = {
        "reference": {"kind": "Servers", **meta},
        "lifetime": "job",
        "allocationSets": [need],
    }
    breakdown = {
        "metadata": meta,
        "spec": {"directive": _DIRECTIVE},
        "status": {"ready": True, "storage": storage},
    }
    rabbit = {"name": "rabbit-0", "type": "Rabbit", "computesAccess": [{"name": "compute-00"}]}
    configuration = {
        "metadata": {"name": "default", "namespace": "default"},
        "spec": {"storageNodes": [rabbit]},
    }
    return JobSnapshot(
        job=job,
        workflow=None if workflow is None else read(workflow, Workflow),
        raw_workflow=workflow,
        breakdowns={meta["name"]: read(breakdown, DirectiveBreakdown)},
        servers={meta["name"]: read({"metadata": meta}, Servers)},
        computes=read({"metadata": _META, "data": []}, Computes),
        configuration=read(configuration, SystemConfiguration),
        mounted_nodes=("compute-00",),
        min_allocation_bytes=1,
        now=0.0,
    )
