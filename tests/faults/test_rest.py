"""At rest nothing is left to decide: no news is taken for none that something waits for."""

from typing import Any, Final

import pytest

from tests.faults import crashes
from tests.faults.crashes import STORIES, lived
from tests.harness.extent import extent
from warren.dws import changes, kinds
from warren.dws.workflow import driver
from warren.node.behaviour import ActionBehaviour, Behaviour

SEEDS = extent("WARREN_REST_SEEDS", usual=1, everything=20)

NOTHING_WAITED_FOR: Final = ("plain", "cancelled in Proposal")
"""In these nothing is ever at rest with a Workflow there."""


def slow(seed: int) -> Behaviour:
    """Nodes that take their time, each another, so that all that waits for them is seen to."""
    action = ActionBehaviour(seconds=0.3, sigma=0.5)
    names = ("make", "release", "mount", "unmount")
    return Behaviour(seed=seed, actions=dict.fromkeys(names, action))


@pytest.mark.parametrize("name", STORIES)
def test_at_rest_nothing_is_left_to_decide(name: str) -> None:
    for seed in range(SEEDS):
        found = lived(STORIES[name], behaviour=slow(seed))

        assert found.wrong == [], seed
        assert bool(found.looks) is (name not in NOTHING_WAITED_FOR)


def test_news_that_wakes_no_controller_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    told = changes.is_relevant_to_workflow

    def deaf(kind: Any, *others: Any) -> bool:
        return kind != kinds.NNF_STORAGE and told(kind, *others)

    monkeypatch.setattr(changes, "is_relevant_to_workflow", deaf)
    wrong = lived(STORIES["copies"], behaviour=slow(0)).wrong

    assert any("at rest, workflow had to patch Workflow" in each for each in wrong)


def test_a_write_of_ones_own_that_more_follows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Workflow is prepared by one write, and broken down when that is seen."""
    monkeypatch.setattr(driver, "is_final", lambda snapshot: True)
    monkeypatch.setattr(changes, "is_relevant_to_workflow", lambda *arguments: False)
    monkeypatch.setattr(crashes, "LONGEST", 60.0)
    wrong = lived(STORIES["copies"], behaviour=slow(0)).wrong

    assert any("at rest, workflow had to create DirectiveBreakdown" in each for each in wrong)
