"""Jobs that end before their time: cancelled in any state, out of time, failing, stubborn."""

import asyncio
import itertools

import pytest

from tests.journeys.conftest import Cluster, wait_for
from tests.journeys.following import follow
from warren.dws.objects.workflows import State
from warren.lifecycle.states import Result
from warren.rfc import fluid
from warren.rpc.client import connect
from warren.rpc.message import RpcError

XFS = "#DW jobdw type=xfs capacity=320MiB name=scratch"
COPY_IN = "#DW copy_in source=$GLOBAL/input destination=$DW_JOB_scratch/"
COPY_OUT = "#DW copy_out source=$DW_JOB_scratch/done destination=$GLOBAL/results/"

TRIES = 5
"""Some states pass quickly: so many jobs are started, at the most, to hit one."""

_numbers = itertools.count()


def cancel(cluster: Cluster, job: str) -> bool:
    """Cancel a job without the time that a command takes to start; tell if it was there."""
    request = {"id": fluid.parse(job), "type": "cancel", "severity": 0, "note": "enough of it"}

    async def asked() -> bool:
        async with connect(cluster.state.socket) as handle:
            try:
                await handle.rpc("job-manager.raise", request)
            except RpcError:
                return False
        return True

    return asyncio.run(asked())


def lived(cluster: Cluster, state: State) -> tuple[str, list[State]]:
    """Cancel a job the moment that it is in a state; return it, and the states that it had."""
    script = cluster.script("short.sh", 'echo > "$DW_JOB_scratch/done"', XFS, COPY_IN, COPY_OUT)
    job, seen, there = "", list[State](), True
    for workflow in follow(cluster, "-N2", script, GLOBAL=str(cluster.shared)):
        now = workflow.status.state
        if now is not None and now not in seen:
            job = str(workflow.spec.job_id)
            seen.append(now)
            if now is state:
                there = cancel(cluster, job)
    return job, seen if there else []


@pytest.mark.parametrize("state", State)
def test_a_job_cancelled_in_any_state_is_torn_down_at_once(cluster: Cluster, state: State) -> None:
    (cluster.shared / "input").write_bytes(bytes(4 * 2**20))
    straight = [*itertools.takewhile(lambda each: each is not state, State), state]
    if state is not State.TEARDOWN:
        straight.append(State.TEARDOWN)
    for _ in range(TRIES):
        job, seen = lived(cluster, state)
        cluster.wait_clean()
        if seen == straight:
            break
    assert seen == straight

    # Also where its tasks have succeeded before: what they have written was not waited for.
    ended = cluster.job(job)
    assert ended["result"] == Result.CANCELED.bit
    assert (ended["exception_type"], ended["exception_note"]) == ("cancel", "enough of it")


def test_a_job_cancelled_while_it_waits_for_nodes_never_has_any(cluster: Cluster) -> None:
    first = cluster.submit("-N8", "sleep", "300")
    cluster.wait_event(first, "start")
    second = cluster.submit("-N1", cluster.script("second.sh", "true", XFS))
    cluster.wait_event(second, "priority")
    cluster("cancel", "-m", "enough of it", second)
    told = cluster("job", "attach", second)
    wait_for(lambda: cluster.workflows() == [])
    cluster("cancel", first)
    cluster.wait_event(first, "clean")
    cluster.wait_clean()

    assert cluster.job(second)["result"] == Result.CANCELED.bit
    assert "alloc" not in cluster.events(second)
    assert "enough of it" in told.stderr


@pytest.mark.parametrize(
    ("body", "options", "result", "note"),
    [
        ("exit 3", (), Result.FAILED, None),
        ("sleep 300", ("-t", "5s"), Result.TIMEOUT, "resource allocation expired"),
    ],
)
def test_what_a_failing_job_has_written_is_copied_out(
    cluster: Cluster, body: str, options: tuple[str, ...], result: Result, note: str | None
) -> None:
    place = cluster.shared / f"failing-{next(_numbers)}"
    place.mkdir()
    script = cluster.script("failing.sh", f'echo > "$DW_JOB_scratch/done"; {body}', XFS, COPY_OUT)
    job = cluster.submit("-N2", *options, script, GLOBAL=str(place))
    cluster("job", "attach", job)
    cluster.wait_clean()

    ended = cluster.job(job)
    assert (ended["result"], ended.get("exception_note")) == (result.bit, note)
    assert len(list(place.glob("results/*/done"))) == 2


def test_tasks_that_ignore_the_signal_to_end_are_killed_and_leave_nothing(
    cluster: Cluster,
) -> None:
    body = 'trap "" TERM; echo > "$DW_JOB_scratch/stubborn"; while :; do sleep 1; done'
    job = cluster.submit("-N2", cluster.script("stubborn.sh", body, XFS))
    wait_for(lambda: len(cluster.written("stubborn")) == 2)
    cluster("cancel", job)
    cluster.wait_clean()

    assert cluster.job(job)["result"] == Result.CANCELED.bit
