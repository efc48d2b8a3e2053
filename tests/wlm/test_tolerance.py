"""What is refused of a job's storage attributes before the job is accepted."""

from typing import Any

import pytest

from warren.base.errors import UserMistake
from warren.rfc import jobspec
from warren.wlm.embedded.validator import StorageValidator


def judge(attributes: dict[str, Any]) -> None:
    """Judge a job's attributes by what an API without rules and storage holds."""
    validator = StorageValidator(
        rules=list,
        file_systems=list,
        profiles=list,
        rabbits=list,
        find_refusal=lambda request: None,
        min_allocation=1,
        persistent={},
        nodes=lambda name: None,
        now=lambda: 1000.0,
        max_lifetime=500.0,
    )
    validator(jobspec.make(["true"], nodes=1, attributes=attributes), 1000)


@pytest.mark.parametrize("tolerance", [-1, "2", 1.5, True, None, [1]])
def test_a_failure_tolerance_that_is_no_number_of_nodes_is_refused(tolerance: Any) -> None:
    with pytest.raises(UserMistake, match=r"^dw_failure_tolerance=.* from 0 on\.$"):
        judge({"dw_failure_tolerance": tolerance})


@pytest.mark.parametrize(
    "attributes", [{}, {"dw_failure_tolerance": 0}, {"dw_failure_tolerance": 3}]
)
def test_a_failure_tolerance_may_be_any_number_of_nodes(attributes: dict[str, Any]) -> None:
    judge(attributes)


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        ("tomorrow", 'dw_expires="tomorrow" is not a time'),
        (True, "dw_expires=true is not a time"),
        (-1, "is not a time"),
        (1e300, "is not a time"),
        (1000, "would expire before it is created"),
        (1501, r"kept until 1970-01-01T00:25:00Z at most \(storage.persistent-max\)"),
    ],
)
def test_storage_that_a_job_creates_expires_at_a_moment_that_is_to_come(
    moment: Any, words: str
) -> None:
    """ADR 057."""
    with pytest.raises(UserMistake, match=words):
        judge({"dw_expires": moment})
    judge({"dw_expires": 1500})


@pytest.mark.parametrize("given", ["keep", "", 3, None, ["drop"], {"drop": 1}])
def test_what_becomes_of_results_is_one_of_what_is_offered(given: Any) -> None:
    if given is None:
        judge({"dw_unsaved_results": given})  # as if it were not there
        return
    with pytest.raises(UserMistake, match=r"^dw_unsaved_results=.* it is flush or drop\.$"):
        judge({"dw_unsaved_results": given})


@pytest.mark.parametrize("given", ["flush", "drop"])
def test_results_may_be_copied_out_or_given_up(given: str) -> None:
    judge({"dw_unsaved_results": given})
