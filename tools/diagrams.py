"""Write `docs/states.md` from the tables, so that the two cannot disagree: `make docs`."""

from collections.abc import Iterator
from pathlib import Path

from tools.decisions import decision_table

from warren.dws.objects.workflows import State as WorkflowState
from warren.dws.workflow.driver import HANDLERS
from warren.dws.workflow.states import ADVANCE
from warren.lifecycle.states import ALLOWED, ON_FATAL_EXCEPTION, TRANSITIONS, State

TARGET = Path(__file__).parents[1] / "docs" / "states.md"


def document() -> str:
    """Return the whole document."""
    return "\n".join(
        [
            "# States",
            "",
            "Made by `make docs` from the tables in `dws/workflow/states.py`,",
            "`dws/workflow/driver.py` and `lifecycle/states.py`.",
            "",
            "## Workflow",
            "",
            "A state that is ready may be followed by the next one; Teardown may be asked for",
            "at any time.",
            "",
            *diagram(workflow_edges()),
            "",
            "What a directive means in each state:",
            "",
            *work_table(),
            "",
            "## What the conductor does",
            "",
            "For each Workflow, by where its job is (`dws/jobs/conduct.py`). What is only kept",
            "with the job's record is left out, and so are limits of states and lost nodes.",
            "",
            *decision_table(),
            "",
            "## Job",
            "",
            *diagram(job_edges()),
            "",
            "Where events may come; those that are not listed may come while the job is active.",
            "",
            *allowed_table(),
            "",
        ]
    )


def diagram(edges: Iterator[str]) -> Iterator[str]:
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield from (f"    {edge}" for edge in edges)
    yield "```"


def workflow_edges() -> Iterator[str]:
    yield f"[*] --> {WorkflowState.PROPOSAL}"
    for state, following in ADVANCE.items():
        yield f"{state} --> {following}"
    for state in WorkflowState:
        if state is not WorkflowState.TEARDOWN and ADVANCE[state] is not WorkflowState.TEARDOWN:
            yield f"{state} --> {WorkflowState.TEARDOWN}: at any time"
    yield f"{WorkflowState.TEARDOWN} --> [*]"


def work_table() -> Iterator[str]:
    commands = sorted({command for _, command in HANDLERS})
    yield f"| state | {' | '.join(commands)} |"
    yield f"|---|{'---|' * len(commands)}"
    for state in WorkflowState:
        cells = [
            HANDLERS[state, command].__name__.strip("_").replace("_", " ")
            if (state, command) in HANDLERS
            else ""
            for command in commands
        ]
        yield f"| {state} | {' | '.join(cells)} |"


def job_edges() -> Iterator[str]:
    yield f"[*] --> {State.NEW}: submit"
    for (state, event), following in TRANSITIONS.items():
        yield f"{state} --> {following}: {event}"
    for state, following in ON_FATAL_EXCEPTION.items():
        yield f"{state} --> {following}: exception 0"
    yield f"{State.INACTIVE} --> [*]"


def allowed_table() -> Iterator[str]:
    yield f"| event | {' | '.join(State)} |"
    yield f"|---|{'---|' * len(State)}"
    for event, states in ALLOWED.items():
        yield f"| {event} | {' | '.join('x' if state in states else '' for state in State)} |"


if __name__ == "__main__":
    TARGET.write_text(document())
