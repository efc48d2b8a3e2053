"""Keys of table `rabbit`, by what they do to a job."""

from typing import Any

import orjson
import pytest

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, World, opened
from warren.daemons.compose import Control
from warren.instance import keys
from warren.instance.config import Config
from warren.instance.rabbittable import RabbitTable
from warren.lifecycle.states import Result

DW = {"dw": "\n".join(DIRECTIVES)}


def record(rabbit: RabbitTable, key: str) -> Any:
    """Return what the record of a job has at a key, once it is over; None if it has nothing."""

    async def main() -> Any:
        async with opened() as world:
            world.config = Config(rabbit=rabbit)
            return await world.live(lambda control: life(world, control))

    async def life(world: World, control: Control) -> Any:
        job = await world.submit(control, attributes=DW)
        assert (await world.ended(control, job)).job.result is Result.COMPLETED
        found = control.instance.kvs.get(keys.job_key(job, key))
        return None if found is None else orjson.loads(found)

    return virtual.run(main())


@pytest.mark.parametrize("most", [1, 3])
def test_save_datamovements_keeps_copies_with_the_record(most: int) -> None:
    found = record(RabbitTable(save_datamovements=most), "rabbit_datamovements")

    # Of copy_in and copy_out, for four nodes each.
    assert len(found) == most
    assert {each["kind"] for each in found} == {"NnfDataMovement"}


def test_without_save_datamovements_none_are_kept() -> None:
    assert record(RabbitTable(), "rabbit_datamovements") is None
