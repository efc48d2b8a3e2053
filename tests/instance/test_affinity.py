"""Which CPUs the tasks of a node are bound to, and which gpus they see."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from warren.instance.shell import affinity
from warren.instance.shell.affinity import CpuAffinity, NodeCores
from warren.instance.shell.limits import GpuVisibility
from warren.instance.shell.plugins import TaskStart
from warren.rfc.errors import BadFormat

ORDER, VISIBLE = "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"

FOUR = NodeCores(ids=range(4), emulated=True)


def chosen(rank: int, cores: Sequence[int], cpus: int, node: NodeCores = FOUR) -> tuple[int, ...]:
    return affinity.choose_cpus(rank, cores, node, range(cpus))


@pytest.mark.parametrize("cpus", [32, 48])
def test_nodes_on_one_machine_have_cpus_of_their_own_where_there_are_enough(cpus: int) -> None:
    taken = [cpu for rank in range(8) for cpu in chosen(rank, range(4), cpus)]

    assert taken == list(range(32))


@pytest.mark.parametrize("cpus", [1, 2, 3, 4, 6, 8, 12, 31])
def test_a_job_has_as_many_cpus_as_cores_and_none_twice(cpus: int) -> None:
    for rank in range(8):
        for cores in ([0], [3], [0, 2], [1, 3], [0, 1, 3], [0, 1, 2, 3]):
            found = chosen(rank, cores, cpus)

            assert len(found) == len(set(found)) == min(len(cores), cpus)
            assert set(found) <= set(range(cpus))


@pytest.mark.parametrize("cpus", [1, 2, 3, 4, 6, 8, 12])
def test_jobs_with_the_first_core_of_each_node_are_spread_over_all_cpus(cpus: int) -> None:
    first = [chosen(rank, [0], cpus)[0] for rank in range(12)]

    assert max(map(first.count, first)) == -(-12 // cpus)


@pytest.mark.parametrize("cpus", [2, 3, 4])
def test_jobs_on_one_node_have_different_cpus_while_there_are_any(cpus: int) -> None:
    found = {chosen(5, [core], cpus)[0] for core in range(cpus)}

    assert found == set(range(cpus))


def test_cpus_that_the_shells_may_not_use_are_no_tasks() -> None:
    assert affinity.choose_cpus(1, [0, 1], FOUR, [3, 5, 9]) == (5, 9)


def test_in_a_batch_job_cores_are_the_cpus_that_the_job_was_bound_to() -> None:
    inside = NodeCores(ids=[2, 5, 7], emulated=False)

    # Nodes of a batch job begin with rank 0, wherever they are.
    for rank in range(3):
        found = [affinity.choose_cpus(rank, [core], inside, [10, 11, 14]) for core in inside.ids]
        assert found == [(10,), (11,), (14,)]
    assert affinity.choose_cpus(0, [2, 5, 7], inside, [10]) == (10,)


def test_in_a_batch_job_that_was_not_bound_nothing_is() -> None:
    assert affinity.choose_cpus(0, [2], NodeCores(ids=[2, 3], emulated=False), range(8)) == ()


def test_a_wide_node_on_a_narrow_machine_has_all_of_it() -> None:
    wide = NodeCores(ids=range(1000), emulated=True)

    assert set(chosen(7, range(1000), 2, wide)) == {0, 1}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, CpuAffinity()),
        ("on", CpuAffinity(kind="on")),
        ("off", CpuAffinity(kind="off")),
        ("per-task", CpuAffinity(kind="per-task")),
        ("verbose", CpuAffinity(verbose=True)),
        ("verbose,per-task", CpuAffinity(kind="per-task", verbose=True)),
        ("dry-run,on", CpuAffinity(verbose=True, dry_run=True)),
        ("map:0-2,5", CpuAffinity(kind="map", sets=(frozenset({0, 1, 2, 5}),))),
        ("map:0;1", CpuAffinity(kind="map", sets=(frozenset({0}), frozenset({1})))),
        ("map:0x6", CpuAffinity(kind="map", sets=(frozenset({1, 2}),))),
        ("map:0x100000001", CpuAffinity(kind="map", sets=(frozenset({0, 32}),))),
        ("map:0x1,0x3", CpuAffinity(kind="map", sets=(frozenset({0, 1, 32}),))),
        ("map:0x1,,0x1", None),
        ("map:", None),
        ("map:0x0", None),
        ("map:0-99999999", None),
        ("verbose,verbose", None),
        ("", None),
        (None, None),
        ([1], None),
    ],
)
def test_an_option_is_read_as_flux_spells_it_or_refused(
    given: object, expected: CpuAffinity | None
) -> None:
    if expected is None:
        with pytest.raises(BadFormat, match=r"not one of|map"):
            affinity.read(given)
    else:
        assert affinity.read(given) == expected


# Gpus


@pytest.mark.parametrize(
    ("kind", "gpus", "environment", "second"),
    [
        ("on", (0, 1, 3), {ORDER: "PCI_BUS_ID", VISIBLE: "0,1,3"}, {}),
        ("per-task", (0, 1, 3), {ORDER: "PCI_BUS_ID"}, {VISIBLE: "3"}),
        ("on", (), {}, {}),
        ("per-task", (), {}, {}),
        ("off", (0, 1), {}, {}),
        ("off", (), {}, {}),
    ],
)
def test_tasks_see_the_gpus_that_their_job_has_been_given(
    kind: str, gpus: tuple[int, ...], environment: dict[str, str], second: dict[str, str]
) -> None:
    info = SimpleNamespace(options=SimpleNamespace(gpu_affinity=kind), gpus=gpus, task_ranks=(4, 5))
    shell: Any = SimpleNamespace(info=info, environment={})
    task = TaskStart(rank=5, index=1, command=["app"], environment={})

    async def begin() -> None:
        await GpuVisibility().init(shell)
        await GpuVisibility().task_init(shell, task)

    asyncio.run(begin())
    assert (shell.environment, task.environment) == (environment, second)
