"""The demo's job under schedules that dice have written: it always ends well, and nothing is left.

`WARREN_FAULT_SCHEDULES` says how many there are, `WARREN_FAULT_SEED` that it is to be one alone.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random

import pytest

from tests.faults.schedules import Dice, climate
from tests.faults.stories import Story, assert_right, live, rabbit_of, same_luck
from tests.harness.extent import extent
from warren.instance.simulated import TaskBehavior
from warren.lifecycle.states import Result

SCHEDULES = extent("WARREN_FAULT_SCHEDULES", usual=28, everything=1000)
ONLY = os.environ.get("WARREN_FAULT_SEED")

WRITES = 350
"""About as many as there are in a life."""


def seeds(share: int = 1) -> Sequence[int]:
    """Return the seeds of a test that has one in `share` of all schedules."""
    return [int(ONLY)] if ONLY else range(SCHEDULES // share)


@contextmanager
def told(seed: int, story: Story) -> Iterator[Random]:
    """Return the dice of a seed, and say with a failure how it comes again."""
    with same_luck(seed) as dice:
        try:
            yield dice
        except BaseException as error:
            error.add_note(
                f"again by WARREN_FAULT_SEED={seed} pytest tests/faults/test_schedules.py"
            )
            error.add_note("\n".join(story.met))
            raise


def stops(dice: Random) -> list[int]:
    """Return after how many writes the process dies: in most lives never, in some twice."""
    return [dice.randint(1, WRITES) for _ in range(dice.choice((0, 0, 0, 1, 2)))]


@pytest.mark.parametrize("seed", seeds())
def test_the_job_completes(seed: int) -> None:
    story = Story()
    with told(seed, story) as dice:
        live(story, Dice(climate(dice), dice), stops(dice))
        assert_right(story)


def test_a_seed_always_tells_the_same_story() -> None:
    def met() -> Sequence[str]:
        story = Story()
        with told(5, story) as dice:
            live(story, Dice(climate(dice), dice), stops(dice))
        return story.met

    first = met()
    assert first
    assert met() == first


@pytest.mark.parametrize("seed", seeds(4))
def test_a_job_that_fails_has_its_results_copied_out_and_leaves_nothing(seed: int) -> None:
    story = Story(play=TaskBehavior(status=3 << 8))
    with told(seed, story) as dice:
        live(story, Dice(climate(dice), dice), stops(dice))
        assert story.job.result is Result.FAILED
        assert story.job.wait_status == 3 << 8
        rabbit_of(story.copied)


@pytest.mark.parametrize("seed", seeds(4))
def test_a_job_that_is_cancelled_at_any_time_leaves_nothing(seed: int) -> None:
    story = Story(play=TaskBehavior(seconds=5))
    with told(seed, story) as dice:
        story.cancelled = 10 ** dice.uniform(-1.5, 2)
        live(story, Dice(climate(dice), dice), stops(dice))
        if story.job.fatal_exception is None:
            assert_right(story)
        else:
            assert story.job.fatal_exception.type == "cancel"
        if "start" not in story.events:
            assert not story.copied
        elif "exception" not in story.events[story.events.index("epilog-start") :]:
            # A job that is cancelled once more while it ends has its copies given up.
            rabbit_of(story.copied)
