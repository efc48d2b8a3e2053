"""Flash that is in no job's R is not given to jobs, and none is counted twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.scheduling.systems import matched, system, want
from warren.base.bytesize import GIB
from warren.rfc.fluid import JobId
from warren.scheduling.external import ExistingStorage, StorageAccounts
from warren.scheduling.graph import Allocation, Graph, Refusal

JOB = JobId(7)


def test_storage_of_no_job_counts_from_the_beginning_to_its_end() -> None:
    taken = StorageAccounts()
    made = ExistingStorage(bytes_by_rabbit={"r0": 3 * GIB, "r1": 1})
    assert taken.set("default/a", made, allocated=False) == {"r0": 3, "r1": 1}
    assert taken.set(
        "default/b", ExistingStorage(bytes_by_rabbit={"r0": GIB + 1}), allocated=False
    ) == {"r0": 5}
    assert taken.set("default/a", None, allocated=False) == {"r0": 2, "r1": 0}
    assert taken.set("default/a", None, allocated=False) == {}


def test_storage_that_a_job_makes_counts_when_the_job_gives_its_resources_back() -> None:
    taken = StorageAccounts()
    made = ExistingStorage(bytes_by_rabbit={"r0": 3 * GIB}, job=JOB)
    assert taken.set("default/a", made, allocated=True) == {}
    assert taken.set_allocated(JOB, allocated=True) == {}
    assert taken.set_allocated(JOB, allocated=False) == {"r0": 3}
    assert taken.set_allocated(JOB, allocated=False) == {}
    assert taken.set("default/a", None, allocated=False) == {"r0": 0}


def test_after_a_restart_the_order_of_jobs_and_storage_does_not_matter() -> None:
    taken = StorageAccounts()
    made = ExistingStorage(bytes_by_rabbit={"r0": 3 * GIB}, job=JOB)
    assert taken.set("default/a", made, allocated=False) == {"r0": 3}
    assert taken.set_allocated(JOB, allocated=True) == {"r0": 0}


class Counted(RuleBasedStateMachine):
    """Jobs come and go, and storage with them and without, in any order."""

    @initialize()
    def begin(self) -> None:
        self.taken = StorageAccounts()
        self.known: dict[str, ExistingStorage] = {}
        self.holding: set[JobId] = set()
        self.told: dict[str, int] = {}

    @rule(
        name=st.sampled_from("abc"),
        sizes=st.dictionaries(st.sampled_from(["r0", "r1"]), st.integers(1, 4)),
        job=st.sampled_from([None, JobId(1), JobId(2)]),
        there=st.booleans(),
    )
    def news(self, name: str, sizes: dict[str, int], job: JobId | None, there: bool) -> None:
        self.known.pop(name, None)
        storage = None
        if there:
            storage = ExistingStorage(
                bytes_by_rabbit={r: each * GIB for r, each in sizes.items()}, job=job
            )
            self.known[name] = storage
        holding = storage is not None and storage.job in self.holding
        self.told |= self.taken.set(name, storage, allocated=holding)

    @rule(job=st.sampled_from([JobId(1), JobId(2)]), holding=st.booleans())
    def job(self, job: JobId, holding: bool) -> None:
        (self.holding.add if holding else self.holding.discard)(job)
        self.told |= self.taken.set_allocated(job, allocated=holding)

    @invariant()
    def what_is_told_is_what_no_job_holds(self) -> None:
        expected: dict[str, int] = {}
        for each in self.known.values():
            if each.job not in self.holding:
                for rabbit, size in each.bytes_by_rabbit.items():
                    expected[rabbit] = expected.get(rabbit, 0) + size // GIB
        assert {r: gib for r, gib in self.told.items() if gib} == expected


TestCounted = Counted.TestCase


@pytest.mark.parametrize("quantum", [None, 2])
def test_jobs_get_no_flash_that_is_taken(quantum: int | None) -> None:
    graph = Graph(system((2, 8), quantum=quantum))
    graph.set_external_gib("r0", 3)
    graph.set_external_gib("elsewhere", 3)
    refusal = graph.match(want(1, ssd=6))
    assert refusal == Refusal(
        "waits for 6 GiB of flash beside 1 node; storage of no running job has 3 GiB of 1 rabbit"
    )
    matched(graph, want(1, ssd=4))

    graph.set_external_gib("r0", 0)
    matched(graph, want(1, ssd=8))


def test_a_job_that_persistent_storage_stands_in_the_way_of_holds_up_no_other() -> None:
    graph = Graph(system((2, 8), quantum=None))
    graph.set_external_gib("r0", 3)
    wanted = want(1, ssd=6)
    assert graph.infeasibility(wanted) is None  # it may be destroyed
    assert graph.cannot_fit_when_idle(wanted)  # and no job's end will do that
    assert not graph.cannot_fit_when_idle(want(1, ssd=5))


def test_a_rabbit_that_says_it_has_less_gives_less() -> None:
    graph = Graph(system((2, 8), quantum=None))
    graph.set_rabbit("r0", up=True, capacity_gib=5)
    wanted = want(1, ssd=6)
    assert graph.match(wanted) == Refusal(
        "waits for 6 GiB of flash beside 1 node; r0 has 5 GiB of 8 GiB"
    )
    assert graph.infeasibility(wanted) is None  # it may say another thing after its next start
    assert graph.cannot_fit_when_idle(wanted)
    matched(graph, want(1, ssd=5))

    graph.set_external_gib("r0", 2)
    assert isinstance(graph.match(want(1, ssd=4)), Refusal)
    matched(graph, want(1, ssd=3))

    graph.set_rabbit("r0", up=True, capacity_gib=20)  # the graph says 8
    matched(graph, want(1, ssd=6))
    assert isinstance(graph.match(want(1, ssd=7)), Refusal)


def test_a_quantum_that_a_rabbit_does_not_have_whole_is_not_given_out() -> None:
    graph = Graph(system((2, 8), quantum=2))
    graph.set_rabbit("r0", up=True, capacity_gib=7)
    matched(graph, want(1, ssd=6))
    assert isinstance(graph.match(want(1, ssd=7)), Refusal)


def test_flash_that_is_not_ready_is_not_given_out_though_none_is_taken() -> None:
    graph = Graph(system((2, 8), quantum=None))
    graph.set_external_gib("r0", 1)
    graph.set_rabbit("r0", up=False, capacity_gib=20)
    assert isinstance(graph.match(want(1, ssd=1)), Refusal)


@given(
    quantum=st.sampled_from([None, 2]),
    external=st.integers(0, 10),
    capacity=st.none() | st.integers(0, 10),
    wishes=st.lists(st.integers(1, 6), max_size=5),
)
def test_jobs_and_storage_together_have_no_more_than_there_is(
    quantum: int | None, external: int, capacity: int | None, wishes: list[int]
) -> None:
    graph = Graph(system((8, 8), quantum=quantum))
    graph.set_rabbit("r0", up=True, capacity_gib=capacity)
    graph.set_external_gib("r0", external)
    unit = quantum or 1
    room = min(8, 8 if capacity is None else capacity // unit * unit) - -(-external // unit) * unit
    for wish in wishes:
        need = -(-wish // unit) * unit
        found = graph.match(want(1, ssd=wish))
        assert isinstance(found, Allocation) == (need <= room)
        if isinstance(found, Allocation):
            graph.take(found)
            room -= need
