"""The Workflow's state machine: admission of transitions, and completion of a state.

Everything that affects a transition stands in this module. It knows nothing of
drivers' work (`driver`) nor of the conductor (`conduct`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from warren.base.objects import Object
from warren.base.times import go_duration, parse_rfc3339, rfc3339_micro
from warren.directives import rules as directive_rules
from warren.directives.parse import parse
from warren.directives.rules import Rule
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import DriverStatus, State, Workflow

ADVANCE: Final[Mapping[State, State]] = {
    State.PROPOSAL: State.SETUP,
    State.SETUP: State.DATA_IN,
    State.DATA_IN: State.PRE_RUN,
    State.PRE_RUN: State.POST_RUN,
    State.POST_RUN: State.DATA_OUT,
    State.DATA_OUT: State.TEARDOWN,
}

IMMUTABLE_FIELDS: Final = ("wlmID", "jobID", "userID", "groupID", "dwDirectives")


def refusal(current: State, desired: State, *, ready: bool) -> str | None:
    """Explain why `desired` cannot be asked for now; None means that it can."""
    if desired in (current, State.TEARDOWN):
        return None  # repeating a request is harmless, and the exit is never locked
    if list(State).index(desired) < list(State).index(current):
        return f"desiredState cannot go back from {current} to {desired}."
    if ADVANCE[current] is not desired:
        return f"{desired} does not follow {current}: states cannot be skipped."
    return None if ready else f"{current} is not ready yet."


# Admission


def create_refusal(workflow: Object) -> str | None:
    """Explain why a Workflow may not be created as it is; directives are checked elsewhere."""
    spec = workflow.get("spec")
    if not isinstance(spec, Mapping):
        return "spec: a Workflow has one."
    if spec.get("desiredState") != State.PROPOSAL:
        return "spec.desiredState: a Workflow starts in Proposal."
    if spec.get("hurry"):
        return "spec.hurry: the hurry flag may be set only in Teardown."
    if (workflow.get("status") or {}).get("state"):
        return "status.state: a Workflow is created without a state."
    return None


def update_refusal(old: Object, new: Object) -> str | None:
    """Explain why an update of a Workflow is not allowed; None means that it is.

    The rules are those of DWS's webhook, in its order (dws-spec section 1.4), but for one: what
    takes up a state may tell in the same write what has become of that state's work.
    """
    if not isinstance(new.get("spec"), Mapping):
        return "spec: a Workflow has one."
    desired = new["spec"].get("desiredState")
    if new["spec"].get("hurry") and desired != State.TEARDOWN:
        return "spec.hurry: the hurry flag may be set only in Teardown."
    for name in IMMUTABLE_FIELDS:
        if new["spec"].get(name) != old["spec"].get(name):
            return f"spec.{name}: the field is immutable."
    status = old.get("status") or {}
    current = status.get("state")
    if not current:
        if desired == State.PROPOSAL:
            return None
        return None if desired == State.TEARDOWN else "Proposal is not ready yet."
    driver_refusal = _driver_refusal(current, old, new)
    if driver_refusal is not None:
        return driver_refusal
    try:
        desired_state = State(desired)
    except ValueError:
        known = ", ".join(State)
        return f"spec.desiredState: {desired!r} is not a state; it is one of {known}."
    return refusal(State(current), desired_state, ready=bool(status.get("ready")))


def _driver_refusal(current: str, old: Object, new: Object) -> str | None:
    old_entries: Sequence[Any] = (old.get("status") or {}).get("drivers") or ()
    status = new.get("status") or {}
    new_entries: Sequence[Any] = status.get("drivers") or ()
    current_states = {current, new["spec"].get("desiredState")} & {current, status.get("state")}
    for index, entry in enumerate(new_entries):
        old_entry = old_entries[index] if index < len(old_entries) else None
        if entry.get("watchState") not in current_states:
            if entry != old_entry:
                return f"status.drivers[{index}]: only entries of {current} may change."
        elif entry.get("completed"):
            if entry.get("status") != "Completed" or entry.get("error"):
                return f"status.drivers[{index}]: a completed entry has status Completed."
        elif old_entry is not None and old_entry.get("completed"):
            return f"status.drivers[{index}]: a completed entry stays completed."
    return None


def with_initial_status(workflow: Object, rules: Sequence[Rule]) -> dict[str, Any]:
    """Return a new Workflow with the work of its drivers written down, and its first variables."""
    directives = [parse(text) for text in workflow["spec"].get("dwDirectives") or ()]
    drivers = [
        {
            "driverID": driver,
            "taskID": "",
            "dwdIndex": index,
            "watchState": state,
            "lastHB": 0,
            "completed": False,
            "status": "Pending",
        }
        for index, driver, state in directive_rules.watched_states(directives, rules)
    ]
    metadata = workflow["metadata"]
    status = dict(workflow.get("status") or {})
    status["drivers"] = drivers
    status.setdefault("ready", False)
    status["env"] = {
        "DW_WORKFLOW_NAME": metadata["name"],
        "DW_WORKFLOW_NAMESPACE": metadata["namespace"],
    }
    return {**workflow, "status": status}


# The controller's own part


def enter(workflow: Workflow, now: float) -> dict[str, Any] | None:
    """Return the change that takes up a newly desired state; None if none is."""
    if workflow.spec.desired_state is workflow.status.state:
        return None
    return {
        "spec": {"forceReady": False},
        "status": {
            "state": workflow.spec.desired_state,
            "ready": False,
            "status": "DriverWait",
            "message": "",
            "desiredStateChange": rfc3339_micro(now),
        },
    }


def after_entering(workflow: Workflow, entered: Mapping[str, Any]) -> Workflow:
    """Return a Workflow as it is after a change that `enter` returned."""
    status = entered["status"]
    return replace(
        workflow,
        spec=replace(workflow.spec, force_ready=False),
        status=replace(
            workflow.status,
            state=status["state"],
            ready=status["ready"],
            status=status["status"],
            message=status["message"],
            desired_state_change=status["desiredStateChange"],
        ),
    )


_PRIORITY: Final = {"Completed": 1, "DriverWait": 2, "Running": 2, "Queued": 2, "Pending": 2,
                    "TransientCondition": 3, "Error": 4}  # fmt: skip


def conclude(workflow: Workflow, drivers: Sequence[DriverStatus], now: float) -> dict[str, Any]:
    """Return the status that follows from what the drivers have done in the present state."""
    drivers_of_state = [driver for driver in drivers if driver.watch_state is workflow.status.state]
    if workflow.spec.force_ready:
        return _ready_status(workflow, "Forced Ready", now)
    if all(driver.completed for driver in drivers_of_state):
        return _ready_status(workflow, "", now)
    worst = max(drivers_of_state, key=lambda driver: _PRIORITY[driver.status])
    gravest = [
        driver for driver in drivers_of_state if _PRIORITY[driver.status] == _PRIORITY[worst.status]
    ]
    explained = [driver for driver in gravest if driver.message]
    message = (
        f"DW Directive {explained[-1].dwd_index}: {explained[-1].message}" if explained else ""
    )
    is_grave = worst.status in ("TransientCondition", "Error")
    return {
        "ready": False,
        "status": worst.status if is_grave else "DriverWait",
        "message": message,
    }


def _ready_status(workflow: Workflow, message: str, now: float) -> dict[str, Any]:
    entered_at = workflow.status.desired_state_change
    elapsed = now - parse_rfc3339(entered_at) if entered_at else 0.0
    return {
        "ready": True,
        "status": "Completed",
        "message": message,
        "readyChange": rfc3339_micro(now),
        "elapsedTimeLastState": go_duration(max(elapsed, 0.0)),
    }


def drivers_of(workflow: Workflow) -> list[DriverStatus]:
    """Return the drivers' entries."""
    return [read(entry, DriverStatus) for entry in workflow.status.drivers]
