"""Jobs of every kind, stopped after one of their writes: `make crash` takes each of them."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults import crashes
from tests.faults.crashes import STORIES, crashed, lived, points
from tests.harness.extent import extent
from warren.dws import conduct, containerlife
from warren.dws.binding import Phase
from warren.dws.jobactions import Finish, Start
from warren.dws.jobsnapshot import is_complete
from warren.dws.node import Copy, Progress
from warren.dws.objects.workflows import State
from warren.dws.workflowsnapshot import DONE
from warren.node.simulated import SimulatedMachine

EVERY = extent("WARREN_CRASH_EVERY", usual=40, everything=1)
"""After one write of how many."""


@pytest.mark.parametrize("name", STORIES)
def test_a_stop_after_any_write_changes_nothing_in_the_end(name: str) -> None:
    found = {point: crashed(point).wrong for point in points([name], EVERY)}

    assert found
    assert {point: wrong for point, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("name", STORIES)
def test_nor_does_a_stop_of_the_process_that_takes_it_up(name: str) -> None:
    found = {each: crashed(each).wrong for each in points([name], 2 * EVERY, twice=True)}

    assert found
    assert {point: wrong for point, wrong in found.items() if wrong} == {}


@settings(max_examples=extent("WARREN_CRASH_EXAMPLES", usual=15, everything=500), deadline=None)
@given(
    name=st.sampled_from(sorted(STORIES)),
    stops=st.lists(st.integers(min_value=1, max_value=80), max_size=4),
)
def test_whenever_and_however_often_it_is_stopped_all_promises_hold(
    name: str, stops: list[int]
) -> None:
    found = lived(STORIES[name], *stops)
    assert found.wrong == [], found.after


def test_all_of_them_are_more_than_five_hundred() -> None:
    assert sum(lived(story).writes for story in STORIES.values()) > 500


# Each of these breaks one promise, which is found


def early(snapshot: Any, workflow: Any) -> Any:
    """Start tasks when their storage is made, and not mounted: their shells refuse to."""
    actions = list(conduct._starting(snapshot, workflow))
    ready = is_complete(workflow, State.SETUP)
    return [*actions, Start({"DW_JOB_scratch": "/mnt/nnf/none"})] if ready else actions


def hasty(snapshot: Any, workflow: Any) -> Any:
    """Let jobs go with what they have written."""
    return [Finish()]


@pytest.mark.parametrize(
    ("phase", "broken", "words"),
    [(Phase.STARTING, early, "ended as FAILED"), (Phase.ENDING, hasty, "4 of 8 copies")],
)
def test_a_conductor_that_is_too_fast_is_found(
    monkeypatch: pytest.MonkeyPatch, phase: Any, broken: Callable[..., Any], words: str
) -> None:
    monkeypatch.setitem(conduct._PHASES, phase, broken)

    assert any(words in each for each in lived(STORIES["copies"]).wrong)


def test_a_job_that_does_not_wait_for_its_containers_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(containerlife, "start", lambda snapshot, index, directive: DONE)

    wrong = lived(STORIES["container"]).wrong
    assert any("a task started before the containers" in each for each in wrong)


def test_storage_that_is_given_back_or_copied_while_it_is_mounted_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(self: Any, path: str, *others: Any) -> None:
        """Say that it is unmounted."""

    monkeypatch.setattr(SimulatedMachine, "unmount", nothing)
    monkeypatch.setattr(crashes, "LONGEST", 60.0)
    wrong = lived(STORIES["copies"]).wrong

    assert any("is given back while" in each for each in wrong)
    assert any("is copied while" in each for each in wrong)
    assert any("never ends" in each for each in wrong)


def test_a_copy_that_is_not_made_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def copy(self: Any, copy: Copy) -> AsyncIterator[Progress]:
        """Copy nothing."""
        return
        yield

    monkeypatch.setattr(SimulatedMachine, "copy", copy)

    assert lived(STORIES["copies"]).wrong == ["0 of 8 copies were made"]


def test_what_is_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, group: str, name: str, *others: Any) -> None:
        """Say that it is given back."""

    monkeypatch.setattr(SimulatedMachine, "release", nothing)

    assert lived(STORIES["copies"]).wrong != []
