"""Simulated nodes take their time and fail, by a seed."""

import asyncio
import statistics
from typing import Any

import pytest

from tests.harness import virtual
from warren.base.errors import UserMistake
from warren.dws.node import NodeTrouble, Volume
from warren.node.behaviour import ActionBehaviour, Behaviour, parse
from warren.node.simulated import SimulatedFlash, SimulatedNode


def volume(name: str) -> Volume:
    return Volume(rabbit="r0", name=name, size=1, file_system="xfs", userid=5, groupid=5)


async def tried(behaviour: Behaviour, count: int, node: str = "r0") -> list[str]:
    """Return how so many makes and releases went: the second of each pair is the release."""
    machine = SimulatedNode(node, SimulatedFlash(1), behaviour=behaviour)
    found = []
    for _ in range(count):
        for act in (machine.make(volume("a")), machine.release("r0", "a")):
            began = asyncio.get_running_loop().time()
            try:
                await act
                how = "done"
            except NodeTrouble as trouble:
                how = "fatal" if trouble.fatal else "failed"
            found.append(f"{how} {asyncio.get_running_loop().time() - began:.6f}")
    return found


def test_the_same_seed_gives_the_same_times_and_faults_and_another_node_others() -> None:
    slow = ActionBehaviour(seconds=0.1, sigma=0.7, fails=0.3, fatal=0.5)
    one = Behaviour(seed=7, actions={"make": slow, "release": slow})

    first, again, other = (virtual.run(tried(one, 40, node)) for node in ("r0", "r0", "r1"))
    assert first == again
    assert first != other
    assert {line.split()[0] for line in first} == {"done", "failed", "fatal"}


def test_times_are_spread_around_their_median_and_faults_are_as_many_as_asked_for() -> None:
    injector = Behaviour(
        seed=1, actions={"make": ActionBehaviour(seconds=0.2, sigma=0.5, fails=0.1)}
    ).fault_injector("r")
    times = [injector.draw_seconds("make") for _ in range(4000)]
    faults = [injector.draw_fault("make") for _ in range(4000)]

    assert 0.19 < statistics.median(times) < 0.21
    assert max(times) > 0.6
    assert 320 < sum(fault is not None for fault in faults) < 480
    assert not any(faults)


def test_by_itself_a_node_takes_no_time_and_never_fails() -> None:
    assert set(virtual.run(tried(Behaviour(), 20))) == {"done 0.000000"}


def test_a_request_that_fails_changes_nothing() -> None:
    flash = SimulatedFlash(10)
    machine = SimulatedNode(
        "r0", flash, behaviour=Behaviour(actions={"make": ActionBehaviour(fails=1)})
    )
    with pytest.raises(NodeTrouble, match=r"^make has failed, as simulated"):
        asyncio.run(machine.make(volume("a")))
    assert flash.volumes == {}


def test_a_behaviour_is_read_from_a_table() -> None:
    table = {"seed": 3, "mount": {"seconds": 0.1, "fails": 1}}
    assert parse(table) == Behaviour(
        seed=3, actions={"mount": ActionBehaviour(seconds=0.1, fails=1)}
    )


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"mnt": {}}, "mnt is no action of a node: take make, release, mount, unmount, copy."),
        ({"mount": 5}, "mount is no action"),
        ({"mount": {"second": 1}}, "mount.second is not known here."),
        ({"mount": {"seconds": -1}}, "mount.seconds: -1 is not a number that is 0 at least."),
        ({"mount": {"fails": 1.5}}, "mount.fails: 1.5 is not a number that is 0 at least and 1"),
        ({"mount": {"sigma": float("nan")}}, "mount.sigma: nan is not a number"),
        ({"mount": {"fails": "1"}}, "mount: numbers are needed."),
        ({"seed": 1.5}, "seed: 1.5 is not a whole number."),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(table: dict[str, Any], why: str) -> None:
    with pytest.raises(UserMistake) as mistake:
        parse(table)
    assert str(mistake.value).startswith(why)
