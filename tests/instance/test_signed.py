"""What of a job is as its author has signed it, whatever the instance has in its store."""

from typing import Any

import pytest

from warren.instance.shell.options import CannotRun
from warren.instance.shell.shellinfo import with_signed_parts


def spec(*commands: str, **system: Any) -> dict[str, Any]:
    tasks = [{"command": [command], "slot": "task", "count": {"total": 1}} for command in commands]
    resources = [{"type": "slot", "count": 1, "label": "task", "with": []}]
    return {"version": 1, "resources": resources, "tasks": tasks, "attributes": {"system": system}}


def test_command_directory_environment_and_options_are_the_authors() -> None:
    signed = spec("mine", cwd="/home/me", environment={"A": "1"}, shell={"verbose": 1}, duration=1)
    stored = spec("forged", cwd="/root", shell={"options": {"output": "/etc/x"}}, duration=2)
    stored["resources"] = [{"type": "node", "count": 1}]

    assert with_signed_parts(stored, signed) == {
        **spec("mine", cwd="/home/me", environment={"A": "1"}, shell={"verbose": 1}, duration=2),
        "resources": [{"type": "node", "count": 1}],
    }


def test_what_the_author_has_not_said_is_left_out() -> None:
    stored = spec("mine", cwd="/root", shell={"verbose": 1}, queue="batch")

    assert with_signed_parts(stored, spec("mine")) == spec("mine", queue="batch")


def test_tasks_that_were_not_signed_are_not_run() -> None:
    for stored in (spec("mine", "more"), spec()):
        with pytest.raises(CannotRun, match="not those that its user has signed"):
            with_signed_parts(stored, spec("mine"))
