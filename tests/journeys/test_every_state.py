"""kill -9 in every state of a Workflow: of the control process, of everything, of one agent."""

import itertools
import os
import signal
from collections.abc import Callable

import pytest

from tests.harness.extent import chosen
from tests.journeys.conftest import Cluster, wait_for
from tests.journeys.following import at
from warren.dws import kinds
from warren.dws.objects.workflows import State

DIRECTIVES = (
    "#DW jobdw type=xfs capacity=320MiB name=scratch",
    "#DW copy_in source=$GLOBAL/input destination=$DW_JOB_scratch/",
    "#DW copy_out source=$DW_JOB_scratch/done destination=$GLOBAL/results/",
)
BODY = """cd "$DW_JOB_scratch"; cp input early; sleep 0.4; cp early done"""

TRIES = 5
"""Some states pass quickly: so many jobs are started, at the most, to hit one."""

_numbers = itertools.count()


class Once:
    """One job on two nodes, with input and results of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._place = cluster.shared / f"once-{next(_numbers)}"
        self._place.mkdir()
        self._input = os.urandom(4 * 2**20)
        (self._place / "input").write_bytes(self._input)
        self._script = cluster.script("once.sh", BODY, *DIRECTIVES)

    def start_and(self, action: Callable[[], None], state: State) -> str:
        """Start it, do a action the moment that it is in a state, and return its id."""
        return at(self._cluster, state, action, "-N2", self._script, GLOBAL=str(self._place))

    def assert_whole(self) -> None:
        """The results are there, and are what came in."""
        found = list(self._place.glob("results/*/done"))
        assert len(found) == 2
        assert all(path.read_bytes() == self._input for path in found)


def hit(
    cluster: Cluster,
    state: State,
    kill: Callable[[], None],
    again: Callable[[], None],
    excuse: str = "",
) -> bool:
    """Kill something while a job is in a state, and see the job through; tell if it was hit.

    Some jobs may fail, with this excuse.
    """
    once = Once(cluster)
    job = once.start_and(kill, state)
    found = [each["status"]["state"] for each in cluster.stored(kinds.WORKFLOW)]
    again()
    cluster("job", "attach", job)
    cluster.wait_clean()
    ended = cluster.job(job)
    if ended["success"]:
        once.assert_whole()
    else:
        assert excuse
        assert excuse in str(ended["exception_note"])
    return found == [state]


@pytest.mark.parametrize("state", chosen(list(State), usual=3))
def test_a_job_survives_the_control_process_in_any_state(cluster: Cluster, state: State) -> None:
    assert any(hit(cluster, state, cluster.kill, cluster.up) for _ in range(TRIES))


@pytest.mark.parametrize("state", chosen(list(State), usual=3))
def test_after_a_power_cut_in_any_state_the_job_completes_or_says_why_not(
    cluster: Cluster, state: State
) -> None:
    # The power may have been on for a moment too long, and tasks have been running.
    excuse = "shells were lost" if state is State.PRE_RUN else ""

    assert any(
        hit(cluster, state, cluster.kill_everything, cluster.up, excuse) for _ in range(TRIES)
    )


@pytest.mark.parametrize(
    ("node", "state"),
    chosen(
        [
            ("rabbit-0", State.SETUP),
            ("rabbit-0", State.DATA_IN),
            ("compute-00", State.PRE_RUN),
            ("compute-00", State.POST_RUN),
            ("rabbit-0", State.DATA_OUT),
            ("rabbit-0", State.TEARDOWN),
        ],
        usual=3,
    ),
)
def test_a_job_survives_an_agent_while_it_has_work(
    cluster: Cluster, node: str, state: State
) -> None:
    def once() -> bool:
        agent = cluster.agents()[node]
        return hit(
            cluster,
            state,
            kill=lambda: os.kill(agent, signal.SIGKILL),
            again=lambda: wait_for(lambda: cluster.agents().get(node, agent) != agent),
        )

    assert any(once() for _ in range(TRIES))


def test_what_tasks_have_written_is_theirs_when_the_control_process_is_back(
    cluster: Cluster,
) -> None:
    def kill() -> None:
        wait_for(lambda: len(cluster.written("early")) == 2)
        cluster.kill()

    assert any(hit(cluster, State.PRE_RUN, kill, cluster.up) for _ in range(TRIES))
