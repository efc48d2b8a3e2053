"""A job's tasks are for the slot that they name."""

from typing import Any

import pytest

from warren.rfc import jobspec
from warren.rfc.errors import BadFormat
from warren.scheduling.request import from_jobspec


def spec(**options: Any) -> dict[str, Any]:
    made = jobspec.make(["app"], **options)
    made["tasks"][0]["slot"] = "other"
    return made


@pytest.mark.parametrize("options", [{"tasks": 2}, {"nodes": 2, "tasks": 2}])
def test_tasks_for_a_slot_that_there_is_not_are_refused(options: dict[str, Any]) -> None:
    assert from_jobspec(jobspec.make(["app"], **options))
    with pytest.raises(BadFormat, match="the job's tasks are for the slot 'other'"):
        from_jobspec(spec(**options))
