"""The states of a Workflow, what admission lets pass, when a state is done (dws-spec section 1)."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.directives.rulebook import RULES
from tests.dws.builders import COPY_IN, COPY_OUT, JOBDW, NOW, STAMP, raw_workflow, workflow
from warren.base.objects import merge_patch
from warren.dws.objects.decoding import Malformed, read
from warren.dws.objects.workflows import State, Workflow
from warren.dws.workflow.states import (
    ADVANCE,
    IMMUTABLE_FIELDS,
    conclude,
    create_refusal,
    drivers_of,
    enter,
    refusal,
    update_refusal,
    with_initial_status,
)

ORDER = ["Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown"]
PAIRS = [(one, other, ready) for one in State for other in State for ready in (True, False)]


# Which state may follow which


def test_the_states_are_those_of_dws_in_its_order() -> None:
    assert [str(state) for state in State] == ORDER
    assert list(ADVANCE.items()) == list(pairwise(State))


@pytest.mark.parametrize(("current", "desired", "ready"), PAIRS)
def test_a_state_may_be_asked_for_as_the_table_says(
    current: State, desired: State, ready: bool
) -> None:
    steps = ORDER.index(desired) - ORDER.index(current)
    if steps == 0 or desired is State.TEARDOWN:
        expected = None
    elif steps < 0:
        expected = f"desiredState cannot go back from {current} to {desired}."
    elif steps > 1:
        expected = f"{desired} does not follow {current}: states cannot be skipped."
    else:
        expected = None if ready else f"{current} is not ready yet."
    assert refusal(current, desired, ready=ready) == expected


# Admission


@pytest.mark.parametrize(
    ("spec", "status", "refused"),
    [
        ({}, {}, None),
        ({"desiredState": "Setup"}, {}, "spec.desiredState: a Workflow starts in Proposal."),
        ({"hurry": True}, {}, "spec.hurry: the hurry flag may be set only in Teardown."),
        ({}, {"state": "Proposal"}, "status.state: a Workflow is created without a state."),
    ],
)
def test_a_workflow_is_created_in_proposal_without_hurry_or_state(
    spec: dict[str, Any], status: dict[str, Any], refused: str | None
) -> None:
    assert create_refusal(raw_workflow(state=None, spec=spec, status=status)) == refused


def test_a_workflow_without_a_status_may_be_created() -> None:
    assert create_refusal({"spec": {"desiredState": "Proposal"}}) is None


def updated(old: dict[str, Any], spec: dict[str, Any] | None = None, **status: Any) -> str | None:
    return update_refusal(old, merge_patch(old, {"spec": spec or {}, "status": status}))


@pytest.mark.parametrize("state", ORDER)
def test_hurry_is_for_teardown_alone(state: str) -> None:
    refused = updated(raw_workflow(state=state), {"hurry": True})
    assert refused == (
        None if state == "Teardown" else "spec.hurry: the hurry flag may be set only in Teardown."
    )


def test_hurry_may_come_with_the_request_for_teardown() -> None:
    assert updated(raw_workflow(), {"hurry": True, "desiredState": "Teardown"}) is None


@pytest.mark.parametrize("field", IMMUTABLE_FIELDS)
def test_what_a_workflow_was_created_with_stays(field: str) -> None:
    old = raw_workflow(JOBDW)
    assert updated(old, {field: "other"}) == f"spec.{field}: the field is immutable."
    assert updated(old, {field: old["spec"][field]}) is None


@pytest.mark.parametrize("desired", ORDER)
def test_before_its_first_state_a_workflow_can_only_be_prepared_or_torn_down(desired: str) -> None:
    refused = updated(raw_workflow(state=None), {"desiredState": desired})
    allowed = desired in ("Proposal", "Teardown")
    assert refused == (None if allowed else "Proposal is not ready yet.")


@pytest.mark.parametrize(("current", "desired", "ready"), PAIRS)
def test_an_update_is_judged_by_the_state_that_is_and_not_by_the_one_that_was_asked(
    current: State, desired: State, ready: bool
) -> None:
    old = raw_workflow(state=current, ready=ready, spec={"desiredState": "Teardown"})
    assert updated(old, {"desiredState": desired}) == refusal(current, desired, ready=ready)


def test_an_unknown_state_is_refused_with_the_known_ones() -> None:
    assert updated(raw_workflow(), {"desiredState": "Bogus"}) == (
        "spec.desiredState: 'Bogus' is not a state; it is one of Proposal, Setup, DataIn, PreRun, "
        "PostRun, DataOut, Teardown."
    )


def entries(old: dict[str, Any], index: int, **changes: Any) -> list[dict[str, Any]]:
    """Return the drivers' entries with one of them changed."""
    found = [dict(each) for each in old["status"]["drivers"]]
    found[index] |= changes
    return found


COMPLETED = "a completed entry has status Completed."
DRIVERS = [
    (1, {"status": "Running", "message": "busy"}, None),
    (1, {"status": "Completed", "completed": True}, None),
    (1, {"completed": True}, f"status.drivers[1]: {COMPLETED}"),
    (
        1,
        {"status": "Completed", "completed": True, "error": "x"},
        f"status.drivers[1]: {COMPLETED}",
    ),
    (0, {"message": "late"}, "status.drivers[0]: only entries of Setup may change."),
    (0, {"completed": False}, "status.drivers[0]: only entries of Setup may change."),
    (2, {"status": "Running"}, "status.drivers[2]: only entries of Setup may change."),
]


@pytest.mark.parametrize(("index", "changed", "refused"), DRIVERS)
def test_drivers_report_on_the_present_state_alone(
    index: int, changed: dict[str, Any], refused: str | None
) -> None:
    old = raw_workflow(JOBDW, state="Setup")
    assert updated(old, drivers=entries(old, index, **changed)) == refused


@pytest.mark.parametrize(
    ("index", "state", "refused"),
    [
        (4, "Teardown", None),
        (3, "Teardown", None),
        (1, "Teardown", "status.drivers[1]: only entries of PostRun may change."),
        (4, "PostRun", "status.drivers[4]: only entries of PostRun may change."),
        (4, "DataOut", "status.drivers[4]: only entries of PostRun may change."),
    ],
)
def test_what_takes_up_the_desired_state_may_tell_of_its_work(
    index: int, state: str, refused: str | None
) -> None:
    old = raw_workflow(JOBDW, state="PostRun", desired="Teardown", ready=True)
    changed = entries(old, index, message="at work")
    assert updated(old, {"desiredState": "Teardown"}, state=state, drivers=changed) == refused


def test_what_is_completed_stays_completed() -> None:
    old = raw_workflow(JOBDW, state="Setup", ready=True)
    assert updated(old, drivers=entries(old, 1, completed=False, status="Running")) == (
        "status.drivers[1]: a completed entry stays completed."
    )


@pytest.mark.parametrize(
    ("entry", "refused"),
    [
        ({"watchState": "Setup", "completed": True, "status": "Completed"}, None),
        ({"watchState": "Setup", "completed": False}, None),
        ({"watchState": "PreRun"}, "status.drivers[5]: only entries of Setup may change."),
    ],
)
def test_an_entry_that_is_appended_is_of_the_present_state(
    entry: dict[str, Any], refused: str | None
) -> None:
    old = raw_workflow(JOBDW, state="Setup")
    assert updated(old, drivers=[*old["status"]["drivers"], entry]) == refused


@pytest.mark.parametrize(
    ("spec", "status", "refused"),
    [
        ({"hurry": True, "userID": 5}, {}, "spec.hurry"),
        ({"userID": 5, "desiredState": "PreRun"}, {"drivers": [{}]}, "spec.userID"),
        ({"desiredState": "PreRun"}, {"drivers": [{}]}, "status.drivers[0]"),
        ({"desiredState": "Bogus"}, {"drivers": [{}]}, "status.drivers[0]"),
    ],
)
def test_of_several_mistakes_the_first_in_the_order_of_dws_is_told(
    spec: dict[str, Any], status: dict[str, Any], refused: str
) -> None:
    found = updated(raw_workflow(JOBDW), spec, **status)
    assert found is not None
    assert found.startswith(refused + ":")


def test_admission_writes_down_the_drivers_work_and_the_first_variables() -> None:
    made = with_initial_status(
        {"metadata": {"name": "w", "namespace": "n"}, "spec": {"dwDirectives": [COPY_IN]}}, RULES
    )
    assert made["status"]["env"] == {"DW_WORKFLOW_NAME": "w", "DW_WORKFLOW_NAMESPACE": "n"}
    assert made["status"]["drivers"] == [
        {
            "driverID": "nnf",
            "taskID": "",
            "dwdIndex": 0,
            "watchState": state,
            "lastHB": 0,
            "completed": False,
            "status": "Pending",
        }
        for state in ("Proposal", "DataIn", "Teardown")
    ]


def test_a_workflow_without_directives_is_admitted_without_work() -> None:
    made = with_initial_status({"metadata": {"name": "w", "namespace": "n"}, "spec": {}}, RULES)
    assert made["status"]["drivers"] == []


def test_a_malformed_object_is_refused_by_name_and_path() -> None:
    bad = raw_workflow(spec={"userID": "root"})
    with pytest.raises(Malformed, match=r"Workflow wf: Expected `int`.*userID"):
        read(bad, Workflow)


# Entering a state, and concluding it


def test_a_newly_desired_state_is_taken_up_and_clears_what_was_said_of_the_last() -> None:
    assert enter(workflow(state="Proposal", desired="Setup", ready=True), NOW) == {
        "spec": {"forceReady": False},
        "status": {
            "state": "Setup",
            "ready": False,
            "status": "DriverWait",
            "message": "",
            "desiredStateChange": STAMP,
        },
    }


def test_a_state_that_is_there_is_not_taken_up_again() -> None:
    assert enter(workflow(state="Setup"), NOW) is None


def told(*entries: tuple[str, str], **options: Any) -> dict[str, Any]:
    """Conclude Proposal from the status and message of each driver."""
    seen = workflow(*[JOBDW] * len(entries), **options)
    own = {
        driver.dwd_index: read(
            {
                "driverID": "nnf",
                "dwdIndex": driver.dwd_index,
                "watchState": "Proposal",
                "status": entries[driver.dwd_index][0],
                "message": entries[driver.dwd_index][1],
                "completed": entries[driver.dwd_index][0] == "Completed",
            },
            type(driver),
        )
        for driver in drivers_of(seen)
    }
    others = [driver for driver in drivers_of(seen) if driver.watch_state is not State.PROPOSAL]
    return conclude(seen, [*own.values(), *others], NOW + 1.5)


READY = {
    "ready": True,
    "status": "Completed",
    "message": "",
    "readyChange": "2026-01-31T12:00:01.500000Z",
    "elapsedTimeLastState": "1.5s",
}


def test_a_state_without_work_is_ready_at_once() -> None:
    assert told() == READY


def test_a_state_is_ready_when_all_its_work_is_done() -> None:
    assert told(("Completed", ""), ("Completed", "")) == READY


def test_a_state_that_is_forced_is_ready_whatever_its_drivers_say() -> None:
    assert told(("Error", "broke"), spec={"forceReady": True}) == {
        **READY,
        "message": "Forced Ready",
    }


@pytest.mark.parametrize(
    ("entries", "status", "message"),
    [
        ([("Pending", "")], "DriverWait", ""),
        ([("Completed", ""), ("Running", "busy")], "DriverWait", "DW Directive 1: busy"),
        ([("Running", "a"), ("Running", "b")], "DriverWait", "DW Directive 1: b"),
        ([("Running", "a"), ("Running", "")], "DriverWait", "DW Directive 0: a"),
        ([("Running", "a"), ("Pending", "")], "DriverWait", "DW Directive 0: a"),
        (
            [("TransientCondition", "a"), ("Running", "b")],
            "TransientCondition",
            "DW Directive 0: a",
        ),
        ([("Error", "a"), ("TransientCondition", "b")], "Error", "DW Directive 0: a"),
        ([("Error", "a"), ("Error", "b"), ("Completed", "")], "Error", "DW Directive 1: b"),
    ],
)
def test_the_worst_of_the_drivers_speaks_for_the_workflow(
    entries: list[tuple[str, str]], status: str, message: str
) -> None:
    assert told(*entries) == {"ready": False, "status": status, "message": message}


def test_a_state_that_began_in_the_future_took_no_time() -> None:
    later = workflow(status={"desiredStateChange": "2026-01-31T13:00:00Z"})
    assert conclude(later, [], NOW)["elapsedTimeLastState"] == "0s"
    unknown = workflow(status={"desiredStateChange": None})
    assert conclude(unknown, [], NOW)["elapsedTimeLastState"] == "0s"


class Lifecycle(RuleBasedStateMachine):
    """A workload manager asks for anything; drivers finish or fail whenever they like."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = raw_workflow(JOBDW, COPY_IN, COPY_OUT, state=None)
        self.visited: list[str] = []
        self.was_ready = False

    @property
    def workflow(self) -> Workflow:
        return read(self.raw, Workflow)

    def write(self, patch: dict[str, Any]) -> bool:
        """Do what admission lets pass, as the API server does."""
        new = merge_patch(self.raw, patch)
        if update_refusal(self.raw, new) is not None:
            return False
        self.raw = new
        return True

    @rule(desired=st.sampled_from(State), hurry=st.booleans())
    def ask_for_anything(self, desired: State, hurry: bool) -> None:
        self.ask(desired, hurry)

    @rule()
    def take_up(self) -> None:
        patch = enter(self.workflow, NOW)
        if patch is not None:
            assert self.write(patch)
            self.visited.append(self.raw["status"]["state"])
            self.was_ready = False

    @rule(
        index=st.integers(0, 10),
        status=st.sampled_from(["Running", "TransientCondition", "Error", "Completed"]),
        completed=st.booleans(),
    )
    def report(self, index: int, status: str, completed: bool) -> None:
        if self.raw["status"].get("state"):  # before, admission lets everything pass
            drivers = entries(self.raw, index, status=status, completed=completed)
            self.write({"status": {"drivers": drivers}})

    @rule(times=st.integers(1, 9))
    def proceed(self, times: int) -> None:
        """Do what comes next if it is not disturbed, some times over."""
        for _ in range(times):
            status, desired = self.raw["status"], self.raw["spec"]["desiredState"]
            current = status.get("state")
            if desired != current:
                self.take_up()
            elif status["ready"]:
                self.ask(ADVANCE.get(State(current), State.TEARDOWN), hurry=False)
            else:
                self.finish()
                self.conclude()

    def finish(self) -> None:
        """Do all the work of the present state."""
        done = [
            {**each, "status": "Completed", "completed": True, "error": ""}
            if each["watchState"] == self.raw["status"]["state"]
            else each
            for each in self.raw["status"]["drivers"]
        ]
        self.write({"status": {"drivers": done}})

    def ask(self, desired: State, hurry: bool) -> None:
        self.write({"spec": {"desiredState": desired, "hurry": hurry}})

    @rule()
    def conclude(self) -> None:
        if self.workflow.status.state is not None and not self.workflow.status.ready:
            drivers = drivers_of(self.workflow)
            assert self.write({"status": conclude(self.workflow, drivers, NOW)})

    @invariant()
    def never_goes_back_and_skips_only_to_the_end(self) -> None:
        for one, other in pairwise([None, *self.visited]):
            assert other == "Teardown" or other == (ADVANCE[State(one)] if one else State.PROPOSAL)

    @invariant()
    def what_is_ready_stays_ready_in_its_state(self) -> None:
        ready = bool(self.raw["status"].get("ready"))
        assert ready or not self.was_ready
        self.was_ready = ready

    @invariant()
    def a_ready_state_has_no_work_left(self) -> None:
        status = self.raw["status"]
        if status.get("ready"):
            own = [each for each in status["drivers"] if each["watchState"] == status["state"]]
            assert all(each["completed"] for each in own)


Lifecycle.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_no_history_of_requests_and_reports_breaks_the_lifecycle = Lifecycle.TestCase
