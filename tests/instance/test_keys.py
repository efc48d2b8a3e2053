"""Where a job's data is in the KVS (flux-rfc-spec section 10)."""

import pytest

from warren.instance import keys
from warren.rfc.eventlog import Event

JOB = 0x0017_E9FB_8DF1_6C2E


def test_a_jobs_data_is_in_a_directory_of_its_own() -> None:
    """Statement 003.13: each job has a directory under job.<jobid>."""
    assert keys.job_key(JOB, "eventlog") == "job.0017.e9fb.8df1.6c2e.eventlog"


def test_a_guest_namespace_is_named_after_its_job_and_the_other_way_round() -> None:
    assert keys.guest_namespace(JOB) == f"job-{JOB}"
    assert keys.job_of(keys.guest_namespace(JOB)) == JOB


@pytest.mark.parametrize("name", ["primary", "job-", "job-x", "job-1-2", "jobs-1", "5"])
def test_other_namespaces_are_no_jobs(name: str) -> None:
    assert keys.job_of(name) is None


def test_an_event_is_appended_as_one_line() -> None:
    """Statement 003.22: events are added to eventlog by KVS append."""
    operation = keys.append_event(JOB, Event(1.5, "memo", {"note": "two\nlines"}))

    assert (operation.action, operation.key) == ("append", keys.job_key(JOB, "eventlog"))
    assert operation.value.count(b"\n") == 1
    assert operation.value.endswith(b"}}\n")
