"""Jobs of every kind, stopped after one of their writes: `make crash` takes each of them."""

import ast
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults import crashes, rest, test_rest
from tests.faults.crashes import STORIES, crashed, lived, points, whole
from tests.harness.extent import extent
from warren.controllers.offload import Offload
from warren.controllers.ports import PortController
from warren.dws.binding import Phase
from warren.dws.jobs import conduct
from warren.dws.jobs.jobactions import Drain, Finish, Start
from warren.dws.jobs.jobsnapshot import is_complete
from warren.dws.node import Copy, Progress
from warren.dws.objects.workflows import State
from warren.dws.offload.requests import UNAVAILABLE, Refusal
from warren.dws.workflow import containersteps, driver, offloadsteps
from warren.dws.workflow.workflowsnapshot import DONE
from warren.instance.simulated import SimulatedLauncher
from warren.kube.server.garbage import GarbageCollector
from warren.node.simulated import SimulatedNode
from warren.wlm.embedded.environment import DwsEnvironment

EVERY = extent("WARREN_CRASH_EVERY", usual=60, everything=1)
"""After one write of how many; each story begins at another."""


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


@settings(max_examples=extent("WARREN_CRASH_EXAMPLES", usual=8, everything=500), deadline=None)
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
    assert sum(whole(name).writes for name in STORIES) > 500


# Each of these breaks one promise, which is found


def early(snapshot: Any, workflow: Any) -> Any:
    """Start tasks when their storage is made, and not mounted: their shells refuse to."""
    actions = list(conduct._decide_starting(snapshot, workflow))
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
    monkeypatch.setitem(conduct._DECIDE_BY_PHASE, phase, broken)

    assert any(words in each for each in lived(STORIES["copies"]).wrong)


def test_a_job_that_does_not_wait_for_its_containers_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(containersteps, "start", lambda snapshot, index, directive: DONE)

    wrong = lived(STORIES["container"]).wrong
    assert any("a task started before the containers" in each for each in wrong)


def test_storage_that_is_given_back_or_copied_while_it_is_mounted_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(self: Any, path: str, *others: Any) -> None:
        """Say that it is unmounted."""

    monkeypatch.setattr(SimulatedNode, "unmount", nothing)
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

    monkeypatch.setattr(SimulatedNode, "copy", copy)

    assert lived(STORIES["copies"]).wrong == ["0 of 8 copies were made"]


def test_a_copy_that_was_promised_and_is_not_waited_for_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offloadsteps, "finish", lambda snapshot: DONE)

    wrong = lived(STORIES["copies on request"]).wrong
    assert wrong == ["/global/kept-1 was promised, and is not copied"]


def test_a_service_that_makes_no_copies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def create(self: Any, workflow: Any, body: bytes) -> str:
        raise Refusal(UNAVAILABLE, "not now")

    monkeypatch.setattr(Offload, "create", create)

    assert lived(STORIES["copies on request"]).wrong == ["no copy was promised"]


def test_a_node_that_stays_drained_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def drain(snapshot: Any, workflow: Any) -> Any:
        """Keep others from the job's nodes for good."""
        return [Drain(("compute-01",), "why not"), *conduct._decide_ending(snapshot, workflow)]

    monkeypatch.setitem(conduct._DECIDE_BY_PHASE, Phase.ENDING, drain)

    words = "nodes are drained in the end: {'compute-01': 'why not'}"
    assert words in lived(STORIES["copies"]).wrong


def test_a_task_that_starts_without_its_storage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, paths: Any) -> None:
        """Wait for no storage."""

    monkeypatch.setitem(conduct._DECIDE_BY_PHASE, Phase.STARTING, early)
    monkeypatch.setattr(DwsEnvironment, "_wait_mounted", nothing)

    assert "compute-00 started without storage" in lived(STORIES["copies"]).wrong


def test_a_task_that_runs_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(self: Any, job: Any, rank: int, host: str, userid: int) -> None:
        """Start a shell, and another one in its place."""
        for _ in range(2):
            shell = self._make_shell(job, rank, host)
            self._shells[job, rank] = (shell, self._group.create_task(shell.run()))

    monkeypatch.setattr(SimulatedLauncher, "start", start)
    monkeypatch.setattr(crashes, "LONGEST", 60.0)

    assert any("ran twice" in each for each in lived(STORIES["plain"]).wrong)


def test_persistent_storage_that_nothing_destroys_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    key = (State.TEARDOWN, "destroy_persistent")
    monkeypatch.setitem(driver.HANDLERS, key, lambda *arguments: DONE)

    assert any("persistent storage is left" in each for each in lived(STORIES["persistent"]).wrong)


def test_ports_that_are_not_given_back_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containersteps, "free_ports", lambda snapshot: DONE)
    monkeypatch.setattr(PortController, "_workflow_changed", lambda self, obj: None)

    assert any("ports are left" in each for each in lived(STORIES["container"]).wrong)


def test_what_is_left_of_containers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = GarbageCollector._delete

    async def delete(self: Any, item: Any, obj: Any, **options: Any) -> None:
        """Collect no Services."""
        if obj["kind"] != "Service":
            await right(self, item, obj, **options)

    monkeypatch.setattr(GarbageCollector, "_delete", delete)

    assert lived(STORIES["container"]).wrong == ["Service default/fluxjob-16777216 is left"]


def test_a_bug_that_is_logged_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = conduct._decide_ending
    raised: list[Exception] = []

    def wrong(snapshot: Any, workflow: Any) -> Any:
        """Fail once."""
        if not raised:
            raised.append(KeyError("a bug"))
            raise raised[0]
        return right(snapshot, workflow)

    monkeypatch.setitem(conduct._DECIDE_BY_PHASE, Phase.ENDING, wrong)

    assert lived(STORIES["copies"]).wrong == ["logged: reconcile failed"]


def test_what_is_left_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, rabbit: str, name: str, *others: Any) -> None:
        """Say that it is given back."""

    monkeypatch.setattr(SimulatedNode, "release", nothing)

    assert lived(STORIES["copies"]).wrong != []


FOUND = {
    "is given back while": test_storage_that_is_given_back_or_copied_while_it_is_mounted_is_found,
    "is copied while": test_storage_that_is_given_back_or_copied_while_it_is_mounted_is_found,
    "it never ends": test_storage_that_is_given_back_or_copied_while_it_is_mounted_is_found,
    "ended as": test_a_conductor_that_is_too_fast_is_found,
    "copies were made": test_a_copy_that_is_not_made_is_found,
    "was promised": test_a_copy_that_was_promised_and_is_not_waited_for_is_found,
    "before the containers": test_a_job_that_does_not_wait_for_its_containers_is_found,
    "without storage": test_a_task_that_starts_without_its_storage_is_found,
    "ran twice": test_a_task_that_runs_twice_is_found,
    "nodes are drained": test_a_node_that_stays_drained_is_found,
    "persistent storage is left": test_persistent_storage_that_nothing_destroys_is_found,
    " is left": test_what_is_left_of_containers_is_found,
    "ports are left": test_ports_that_are_not_given_back_are_found,
    "logged: ": test_a_bug_that_is_logged_is_found,
    "at rest, ": test_rest.test_news_that_wakes_no_controller_is_found,
}
"""What the checker complains of, each with a break of the code that it complains of."""


def complaints(source: str) -> Iterator[str]:
    """Return what a checker can say: the constant words of each formatted string of it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="wrong" | "_wrong"))):
                pass
            case ast.AugAssign(target=ast.Attribute(attr="wrong")):
                pass
            case ast.Call(func=ast.Name("AssertionError")) | ast.AsyncFunctionDef(name="left"):
                pass
            case _:
                continue
        for text in ast.walk(node):
            if isinstance(text, ast.JoinedStr):
                parts = (each.value for each in text.values if isinstance(each, ast.Constant))
                yield "".join(map(str, parts))


def test_whatever_is_complained_of_has_a_break_that_it_is_complained_of() -> None:
    said = {*complaints(Path(crashes.__file__).read_text())}
    said |= {*complaints(Path(rest.__file__).read_text())}

    assert {words for words in FOUND if not any(words in each for each in said)} == set()
    assert {each for each in said if not any(words in each for words in FOUND)} == set()
