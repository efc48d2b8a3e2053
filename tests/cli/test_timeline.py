"""A job's life as the demo tells it."""

from warren.cli.cluster.timeline import Timeline
from warren.rfc.eventlog import Event


def workflow(state: str, began: str, ended: str | None = None) -> dict[str, object]:
    status: dict[str, object] = {"state": state, "desiredStateChange": began, "ready": False}
    if ended is not None:
        status.update(ready=True, readyChange=ended)
    return {"metadata": {"name": "w"}, "status": status}


def test_a_state_is_told_when_it_is_ready() -> None:
    timeline = Timeline()
    timeline.add_workflow(workflow("Setup", "2026-01-01T00:00:00.000000Z"))
    assert list(timeline.completed_steps()) == []
    current = timeline.current_step()
    assert current is not None
    assert current.name == "Setup"

    timeline.add_workflow(
        workflow("Setup", "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:01.500000Z")
    )
    (step,) = timeline.completed_steps()
    assert step.seconds == 1.5


def test_tasks_run_from_start_to_finish() -> None:
    timeline = Timeline()
    timeline.add_event(Event(10.0, "start"))
    timeline.add_event(Event(12.0, "finish", {"status": 512}))

    (step,) = timeline.completed_steps()
    assert (step.name, step.seconds) == ("tasks", 2.0)
    assert timeline.outcome("tasks") == "exit status 2"


def test_copies_are_added_up() -> None:
    timeline = Timeline()
    for number in range(2):
        timeline.add_movement(
            {
                "metadata": {
                    "name": f"w-1-{number}",
                    "namespace": "rabbit-0",
                    "labels": {"dm.cray.hpe.com/initiator": "copy_in"},
                },
                "status": {
                    "commandStatus": {
                        "lastMessage": "copied 1.50 MiB of 3.00 MiB in 1 of 2 files; 2s left",
                        "rate": "10.0 MiB/s",
                    }
                },
            }
        )
    moved = timeline.copy_progress("DataIn")

    assert moved is not None
    assert (moved.bytes, moved.total) == (3 * 2**20, 6 * 2**20)
    assert str(moved) == "3.00 MiB in 2 files, 2 copies, 20.0 MiB/s"
    assert timeline.copy_progress("DataOut") is None
