"""What becomes of what a job has written when it is cancelled, in virtual time."""

import asyncio
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, GLOBAL, World, opened
from warren.daemons.compose import Control
from warren.instance.config import Config
from warren.instance.rabbittable import RabbitTable
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result
from warren.rpc.message import RpcError

DW = {"dw": "\n".join(DIRECTIVES)}


def saved(
    attributes: dict[str, Any], rabbit: RabbitTable, type: str = "cancel"
) -> tuple[Result, bool]:
    """Return how a job ends that an exception ends while it runs, and whether it was copied out."""

    async def main() -> Any:
        async with opened(play=lambda command, environment: TaskBehavior(seconds=600.0)) as world:
            world.config = Config(rabbit=rabbit)
            return await world.live(lambda control: life(world, control))

    async def life(world: World, control: Control) -> tuple[Result | None, bool]:
        job = await world.submit(control, attributes={**DW, **attributes})
        await world.until(lambda: len(world.seen) == 4)
        await asyncio.sleep(5)
        raised = {"id": job, "type": type, "severity": 0, "note": ""}
        await control.instance.bus.handle().rpc("job-manager.raise", raised)
        result = (await world.ended(control, job)).job.result
        copied = any(copy.destination.startswith(GLOBAL) for copy in world.copies())
        await world.assert_nothing_left(control)
        return result, copied

    return virtual.run(main())  # type: ignore[no-any-return]


DROP = {"dw_unsaved_results": "drop"}
FLUSH = {"dw_unsaved_results": "flush"}


@pytest.mark.parametrize(
    ("attributes", "offered", "copied"),
    [
        ({}, ("flush", "drop"), True),
        (FLUSH, ("drop", "flush"), True),
        ({}, ("drop", "flush"), False),
        ({}, ("drop",), False),
        (DROP, ("flush", "drop"), False),
    ],
)
def test_a_cancel_gives_up_what_a_job_has_written_if_it_says_so_or_the_site(
    attributes: dict[str, Any], offered: Any, copied: bool
) -> None:
    found = saved(attributes, RabbitTable(unsaved_results=offered))

    assert found == (Result.CANCELED, copied)


@pytest.mark.parametrize("type", ["timeout", "exec"])
def test_what_fails_or_runs_out_of_time_is_copied_out_in_any_case(type: str) -> None:
    result, copied = saved(DROP, RabbitTable(), type)

    assert copied
    assert result is not Result.CANCELED


def test_a_site_says_what_jobs_may_choose() -> None:
    with pytest.raises(ExceptionGroup) as refused:
        saved(DROP, RabbitTable(unsaved_results=("flush",)))
    (error,) = leaves(refused.value)
    assert isinstance(error, RpcError)
    assert 'dw_unsaved_results="drop" is not offered: it is flush.' in str(error)


def leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    return [
        leaf
        for each in group.exceptions
        for leaf in (leaves(each) if isinstance(each, BaseExceptionGroup) else [each])
    ]
