"""How much the largest rabbit has, as Storages come, change and go."""

from typing import Any

from tests.controllers.alone import Api, alone, caught_up, informed
from warren.base.bytesize import GIB
from warren.base.objects import Key
from warren.conductor.capacities import Capacities
from warren.dws import kinds


def storage(name: str, capacity: int, namespace: str = "default") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"state": "Enabled"},
        "status": {"status": "Ready", "capacity": capacity},
    }


def test_the_largest_rabbit_is_known_by_what_each_says_now() -> None:
    async def story(api: Api) -> None:
        capacities = Capacities(api.informers.of(kinds.STORAGE))
        async with informed(api):
            assert capacities.largest_gib() is None
            await api.add(kinds.STORAGE, storage("r0", 3 * GIB))
            await api.add(kinds.STORAGE, storage("r1", 5 * GIB + 1))
            await api.add(kinds.STORAGE, storage("r2", 9 * GIB, namespace="elsewhere"))
            await caught_up()
            assert capacities.largest_gib() == 5

            change = {"status": {"capacity": 2 * GIB}}
            await api.change(kinds.STORAGE, Key("default", "r1"), change, status=True)
            await caught_up()
            assert capacities.largest_gib() == 3

            await api.remove(kinds.STORAGE, Key("default", "r0"))
            await caught_up()
            assert capacities.largest_gib() == 2

            change = {"status": {"capacity": 0}}
            await api.change(kinds.STORAGE, Key("default", "r1"), change, status=True)
            await caught_up()
            assert capacities.largest_gib() is None

    alone(story)
