"""The fields of jobs, from what job-list tells of them."""

from typing import Any

import pytest

from warren.cli.job import fields as jobfields
from warren.cli.outputformat import Format
from warren.lifecycle.attributes import ATTRIBUTES
from warren.lifecycle.states import Result, State

NOW = 1000.0


def value(name: str, **attributes: Any) -> Any:
    """A field of a job, made of no more than the attributes it says it needs."""
    told = {"id": 5, **attributes}
    known = {key: told[key] for key in ("id", *jobfields.needed_attributes([name])) if key in told}
    return jobfields.row(known, NOW, lambda userid: f"user{userid}")(name)


def ended(result: Result, status: int | None = None, **more: Any) -> dict[str, Any]:
    """The attributes of a job that is over."""
    waited = {} if status is None else {"waitstatus": status}
    return {"state": State.INACTIVE.bit, "result": result.bit, **waited, **more}


FAILED_LATE = ended(Result.FAILED, 0, exception_severity=0, exception_type="dws", nodelist="n[0-1]")
"""A job whose tasks had succeeded."""


@pytest.mark.parametrize(
    ("name", "attributes", "expected"),
    [
        ("id", {}, "ƒ6"),
        ("id.f58", {}, "ƒ6"),
        ("id.dec", {}, "5"),
        ("id.kvs", {}, "job.0000.0000.0000.0005"),
        ("username", {"userid": 7}, "user7"),
        ("urgency", {}, ""),
        ("priority", {"priority": 0}, 0),
        ("state", {"state": 16}, "RUN"),
        ("state_single", {"state": 8}, "S"),
        ("status", {"state": 8}, "SCHED"),
        ("status_abbrev", {"state": 32}, "C"),
        ("status", ended(Result.TIMEOUT), "TIMEOUT"),
        ("status_abbrev", ended(Result.COMPLETED), "CD"),
        ("result", {"state": 16}, ""),
        ("result", ended(Result.FAILED), "FAILED"),
        ("result_abbrev", ended(Result.CANCELED), "CA"),
        ("success", {"success": False}, False),
        ("exception.type", {"exception_type": "cancel"}, "cancel"),
        ("exception.note", {}, ""),
        ("runtime", {}, 0.0),
        ("runtime", {"t_run": 900.0}, 100.0),
        ("runtime", {"t_run": 900.0, "t_cleanup": 960.0}, 60.0),
        ("runtime", {"t_run": 1100.0}, 0.0),
        ("t_remaining", {"state": 16, "expiration": 1060.0}, 60.0),
        ("t_remaining", {"state": 16, "expiration": 900.0}, 0.0),
        ("t_remaining", {"state": 8}, 0.0),
        ("t_remaining", {"state": 64, "expiration": 1060.0}, 0.0),
        ("contextual_time", {"state": 8, "duration": 60.0}, 60.0),
        ("contextual_time", {"state": 16, "duration": 60.0, "t_run": 990.0}, 10.0),
        ("contextual_info", {"state": 2, "dependencies": ["a", "b"]}, "depends:a,b"),
        ("contextual_info", {"state": 4}, "priority-wait"),
        ("contextual_info", {"state": 8, "priority": 0, "urgency": 0}, "held"),
        ("contextual_info", {"state": 8, "priority": 0, "urgency": 16}, "priority-hold"),
        ("contextual_info", {"state": 8, "priority": 16, "urgency": 16}, ""),
        ("contextual_info", {"state": 16, "nodelist": "n[0-1]"}, "n[0-1]"),
        ("contextual_info", {"state": 64}, ""),
        ("contextual_info", {**FAILED_LATE, "exception_note": "no room\nhere"}, "no room"),
        ("contextual_info", FAILED_LATE, "dws"),
        ("contextual_info", {**ended(Result.FAILED, 1 << 8), "nodelist": "n0"}, "n0"),
        ("contextual_info", {**ended(Result.CANCELED, 0), "nodelist": "n0"}, "n0"),
        ("returncode", FAILED_LATE, 1),
        ("returncode", {"state": 16}, ""),
        ("returncode", ended(Result.FAILED, 3 << 8), 3),
        ("returncode", ended(Result.FAILED, 9), -9),
        ("returncode", ended(Result.CANCELED), -128),
        ("dependencies", {"dependencies": ["a", "b"]}, "a,b"),
        ("dependencies", {}, ""),
    ],
)
def test_a_field_is_made_of_attributes(name: str, attributes: Any, expected: Any) -> None:
    assert value(name, **attributes) == expected


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"state": 16}, ""),
        (ended(Result.COMPLETED, 0), "Exit 0"),
        (ended(Result.FAILED, 3 << 8), "Exit 3"),
        (ended(Result.FAILED, 9), "Killed"),
        (ended(Result.FAILED, 137 << 8), "Killed"),
        (ended(Result.FAILED, 255 << 8), "Exit 255"),
        (ended(Result.TIMEOUT, 142 << 8), "Timeout"),
        (ended(Result.CANCELED), "Canceled"),
        (ended(Result.CANCELED, exception_note="enough\nof it"), "Canceled: enough"),
        (
            ended(Result.FAILED, exception_type="alloc", exception_note="no"),
            "Exception: type=alloc note=no",
        ),
    ],
)
def test_the_reason_of_an_end_is_told_in_a_few_words(attributes: Any, reason: str) -> None:
    assert value("inactive_reason", **attributes) == reason


@pytest.mark.parametrize(
    ("sched", "info"),
    [
        ({"t_estimate": 1090.0}, "eta:1.5m"),
        ({"t_estimate": 900.0}, "eta:now"),
        ({"reason_pending": "waits for node3"}, "waits for node3"),
    ],
)
def test_what_the_scheduler_says_is_told_of_a_job_that_waits(sched: Any, info: str) -> None:
    told = {"state": 8, "priority": 16, "annotations": {"sched": sched}}

    assert value("contextual_info", **told) == info


def test_annotations_are_fields_however_deep() -> None:
    user = {"a": {"b": [1]}, "n": None}
    told = {"annotations": {"sched": {"resource_summary": "r"}, "user": user}}

    assert value("sched.resource_summary", **told) == "r"
    assert value("annotations.sched.resource_summary", **told) == "r"
    assert value("user.a.b", **told) == "[1]"
    assert value("user.a", **told) == '{"b": [1]}'
    for missing in ("user.a.b.c", "user.n", "user.x.y", "sched.x", "annotations.other"):
        assert value(missing, **told) == ""
    assert value("annotations") == ""


@pytest.mark.parametrize(
    ("name", "heading"),
    [
        ("id.f58", "JOBID"),
        ("contextual_info", "INFO"),
        ("user.rabbits", "USER.RABBITS"),
        ("sched.reason_pending", "REASON"),
        ("annotations.sched.reason_pending", "REASON"),
        ("annotations.user.x", "USER.X"),
        ("colour", None),
        ("user.", None),
        ("id.", None),
        ("name.x", None),
    ],
)
def test_fields_have_the_headings_of_flux(name: str, heading: str | None) -> None:
    assert jobfields.heading(name) == heading


def test_every_format_with_a_name_is_one_and_needs_attributes_that_there_are() -> None:
    states = [{"state": state.bit} for state in State if state is not State.INACTIVE]
    jobs = [*states, *(ended(result) for result in Result)]
    for name, (_, form) in jobfields.FORMATS.items():
        layout = Format(form, jobfields.heading)
        rows = [jobfields.row({"id": 5, "userid": 7, **each}, NOW, str) for each in jobs]
        assert set(jobfields.needed_attributes(layout.fields)) <= set(ATTRIBUTES), name
        assert len(list(layout.lines(rows))) == len(jobs) + 1
