"""All decisions together: from a held job to nothing left, in any order, cut off anywhere."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dws.builders import COPY_IN, COPY_OUT, JOBDW
from tests.dws.cluster import NAME, Cluster
from warren.base.objects import Remove
from warren.dws import kinds
from warren.dws.binding import Phase

ORDER = ["Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown"]
ALL = (JOBDW, COPY_IN, COPY_OUT)


def keys(cluster: Cluster, kind: object) -> list[str]:
    return sorted(str(key) for one, key in cluster.objects if one == kind)


def test_a_job_gets_its_storage_and_gives_it_back() -> None:
    cluster = Cluster(*ALL)

    cluster.settle()
    assert cluster.phase is Phase.RUNNING
    assert cluster.states == ORDER[:4]
    assert cluster.env == {
        "DW_WORKFLOW_NAME": "fluxjob-7",
        "DW_WORKFLOW_NAMESPACE": "default",
        "DW_JOB_my_fs": "/mnt/nnf/uid-fluxjob-7-0",
        "DW_JOB_XFS": "/mnt/nnf/uid-fluxjob-7-0",
        "DW_JOBS": "my-fs:/mnt/nnf/uid-fluxjob-7-0",
    }
    assert keys(cluster, kinds.CLIENT_MOUNT) == [
        f"{node}/default-fluxjob-7-0-computes" for node in ("n0", "n1", "n2")
    ]
    assert keys(cluster, kinds.NNF_NODE_STORAGE) == [
        f"{rabbit}/default-fluxjob-7-0-xfs-0" for rabbit in ("r0", "r1")
    ]

    cluster.phase = Phase.ENDING
    cluster.settle()
    assert cluster.phase is Phase.OVER
    assert cluster.states == ORDER
    assert cluster.objects == {}


@pytest.mark.parametrize("broken", ["r0", "r1", "n1"])
def test_a_node_on_which_nothing_succeeds_fails_the_job_and_nothing_is_left(broken: str) -> None:
    cluster = Cluster(*ALL)
    cluster.broken = {broken}

    cluster.settle()

    assert cluster.failed
    assert not cluster.ran
    assert cluster.states[-1] == "Teardown"
    assert cluster.objects == {}


def test_a_workflow_that_somebody_deletes_fails_the_job_and_nothing_is_left() -> None:
    cluster = Cluster(*ALL)
    cluster.settle()

    cluster.write(Remove(kind=kinds.WORKFLOW, key=NAME))
    cluster.settle()

    assert cluster.failed
    assert cluster.phase is Phase.OVER
    assert cluster.objects == {}


TURNS = st.lists(
    st.tuples(st.integers(0, 30), st.none() | st.integers(0, 3)), min_size=20, max_size=120
)


@settings(max_examples=60, deadline=None)
@given(TURNS, st.integers(0, 120), st.booleans(), st.sampled_from(["", "", "r0", "n1"]))
def test_in_any_order_and_cut_off_anywhere_a_job_comes_to_the_same_end(
    turns: list[tuple[int, int | None]], cancelled: int, deleted: bool, broken: str
) -> None:
    cluster = Cluster(*ALL)
    cluster.broken = {broken}
    for number, (who, upto) in enumerate(turns):
        if number == cancelled and cluster.phase is not Phase.OVER:
            cluster.phase, cluster.failed = Phase.ENDING, True
            if deleted:
                cluster.write(Remove(kind=kinds.WORKFLOW, key=NAME))
        names = list(cluster.deciders())
        cluster.pass_of(names[who % len(names)], upto)
    cluster.settle()
    if cluster.phase is Phase.RUNNING:
        assert not broken
        assert cluster.states == ORDER[:4]
        cluster.phase = Phase.ENDING
        cluster.settle()

    assert cluster.phase is Phase.OVER
    assert cluster.objects == {}
    assert cluster.states == sorted(cluster.states, key=ORDER.index)
    if not cluster.failed:
        assert cluster.states == ORDER
