"""What a job waits for, in words."""

import pytest

from tests.dws.builders import BINDING
from warren.dws.binding import Phase
from warren.dws.jobs.jobsnapshot import Job
from warren.dws.jobs.waits import reason
from warren.dws.objects.decoding import read
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import State, Workflow

CONFIGURATION = read(
    {
        "metadata": {"name": "default", "namespace": "default"},
        "spec": {
            "storageNodes": [
                {
                    "type": "Rabbit",
                    "name": f"rabbit-{number}",
                    "computesAccess": [{"name": f"compute-{number}", "index": 0}],
                }
                for number in range(2)
            ]
        },
    },
    SystemConfiguration,
)

JOB = Job(id=1, phase=Phase.STARTING, binding=BINDING, nodes=("compute-0", "compute-1"))


def workflow(wanted: State, state: State | None, message: str = "", *, ready: bool) -> Workflow:
    return read(
        {
            "metadata": {"name": "fluxjob-1", "namespace": "default"},
            "spec": {"desiredState": wanted, "dwDirectives": [], "wlmID": "flux", "jobID": "1"},
            "status": {"state": state, "ready": ready, "message": message, "env": {}},
        },
        Workflow,
    )


SETUP = workflow(State.SETUP, State.SETUP, "allocation set not ready", ready=False)


@pytest.mark.parametrize(
    ("phase", "found", "said"),
    [
        (Phase.HELD, None, "waits for its Workflow"),
        (Phase.ENDING, None, None),
        (
            Phase.STARTING,
            workflow(State.SETUP, State.PROPOSAL, ready=True),
            "waits for Setup, which no controller has taken up",
        ),
        (Phase.STARTING, SETUP, "waits for Setup on rabbit-[0-1]: allocation set not ready"),
        (
            Phase.STARTING,
            workflow(State.PRE_RUN, State.PRE_RUN, ready=False),
            "waits for PreRun on compute-[0-1]",
        ),
        (
            Phase.ENDING,
            workflow(State.TEARDOWN, State.TEARDOWN, "delete", ready=False),
            "waits for Teardown on rabbit-[0-1]: delete",
        ),
        (Phase.STARTING, workflow(State.SETUP, State.SETUP, ready=True), None),
        (Phase.QUEUED, SETUP, None),
        (Phase.RUNNING, SETUP, None),
    ],
)
def test_a_wait_is_told_with_state_place_and_message(
    phase: Phase, found: Workflow | None, said: str | None
) -> None:
    assert reason(in_phase(phase), found, CONFIGURATION) == said


@pytest.mark.parametrize(
    ("phase", "found", "said"),
    [
        (Phase.HELD, None, "for others"),
        (Phase.HELD, SETUP, "waits for Setup: allocation set not ready"),
        (Phase.ENDING, None, None),
    ],
)
def test_a_job_that_waits_for_other_jobs_of_its_user_is_told_so_while_it_has_no_workflow(
    phase: Phase, found: Workflow | None, said: str | None
) -> None:
    held = Job(id=1, phase=phase, binding=BINDING)
    assert reason(held, found, CONFIGURATION, "for others") == said


def test_a_job_without_nodes_yet_waits_nowhere() -> None:
    held = Job(id=1, phase=Phase.HELD, binding=BINDING)
    proposal = workflow(State.PROPOSAL, State.PROPOSAL, "status pending", ready=False)

    assert reason(held, proposal, None) == "waits for Proposal: status pending"


def in_phase(phase: Phase) -> Job:
    return Job(id=JOB.id, phase=phase, binding=BINDING, nodes=JOB.nodes)
