"""Which jobs a queue does not take (RFC 33)."""

from typing import Any

import pytest

from warren.lifecycle.limits import refusal, sizes, user_refusal
from warren.lifecycle.policy import QueueLimits
from warren.rfc import jobspec

RABBIT = {
    "version": 1,
    "resources": [
        {
            "type": "slot",
            "count": 2,
            "label": "rabbit",
            "with": [
                {
                    "type": "node",
                    "count": 1,
                    "with": [
                        {
                            "type": "slot",
                            "count": 2,
                            "label": "task",
                            "with": [{"type": "core", "count": 3}, {"type": "gpu", "count": 1}],
                        }
                    ],
                },
                {"type": "ssd", "count": 4},
            ],
        }
    ],
}


def spec(duration: float = 0, **options: Any) -> dict[str, Any]:
    return jobspec.make(["app"], duration=duration, **options)


def queue(**limits: Any) -> QueueLimits:
    return QueueLimits(name="batch", **limits)


def test_sizes_are_counted_through_the_whole_tree() -> None:
    assert sizes(RABBIT) == {"nnodes": 2, "ncores": 12, "ngpus": 4}
    assert sizes(spec(nodes=2, tasks=6, cores=2)) == {"nnodes": 2, "ncores": 12, "ngpus": 0}


def test_who_asks_for_cores_has_no_number_of_nodes() -> None:
    assert sizes(spec(tasks=3, cores=2)) == {"ncores": 6, "ngpus": 0}


@pytest.mark.parametrize(
    ("job", "limits", "words"),
    [
        (
            spec(nodes=3),
            {"max_sizes": {"nnodes": 2}},
            "asks for 3 nnodes, and queue batch allows 2.",
        ),
        (
            spec(tasks=9),
            {"max_sizes": {"ncores": 8}},
            "asks for 9 ncores, and queue batch allows 8.",
        ),
        (spec(nodes=1), {"min_sizes": {"nnodes": 2}}, "1 nnodes, and queue batch takes 2 or more."),
        (spec(tasks=1), {"min_sizes": {"ngpus": 1}}, "0 ngpus, and queue batch takes 1 or more."),
        (spec(90), {"max_duration": 60.0}, "has a time limit of 1.5m, and queue batch allows 1m."),
        (spec(), {"max_duration": 60.0}, "has no time limit, and queue batch allows 1m."),
    ],
)
def test_what_is_beyond_a_limit_is_refused_with_both_numbers(
    job: dict[str, Any], limits: dict[str, Any], words: str
) -> None:
    said = refusal(job, queue(**limits))

    assert said is not None
    assert said.startswith("The job ")
    assert said.endswith(words)


@pytest.mark.parametrize(
    ("job", "limits"),
    [
        (spec(nodes=2), {"max_sizes": {"nnodes": 2}, "min_sizes": {"nnodes": 2}}),
        (spec(tasks=100), {"max_sizes": {"nnodes": 2}, "min_sizes": {"nnodes": 2}}),
        (spec(nodes=1), {"min_sizes": {"ncores": 4}}),
        (spec(60), {"max_duration": 60.0}),
        (spec(1e9), {}),
        (spec(), {}),
    ],
)
def test_what_is_within_the_limits_is_not(job: dict[str, Any], limits: dict[str, Any]) -> None:
    assert refusal(job, queue(**limits)) is None


def test_a_job_that_shares_its_nodes_is_asked_for_cores() -> None:
    assert refusal(spec(nodes=1, tasks=1), queue(min_sizes={"ncores": 4})) is not None


def test_the_instance_is_named_where_queues_have_no_names() -> None:
    assert refusal(spec(nodes=3), QueueLimits(max_sizes={"nnodes": 2})) == (
        "The job asks for 3 nnodes, and the instance allows 2."
    )


RESTRICTED = queue(users=frozenset({"alice"}), groups=frozenset({"staff"}))


@pytest.mark.parametrize(
    ("queue_limits", "user", "groups"),
    [
        (queue(), "bob", []),
        (queue(), None, []),
        (RESTRICTED, "alice", []),
        (RESTRICTED, "bob", ["users", "staff"]),
    ],
)
def test_who_is_allowed_by_name_or_by_a_group_may_submit(
    queue_limits: QueueLimits, user: str | None, groups: list[str]
) -> None:
    assert user_refusal(queue_limits, user, groups) is None


def test_others_may_not() -> None:
    assert user_refusal(RESTRICTED, "bob", ["users"]) == "Queue batch is not open to bob."
    assert user_refusal(RESTRICTED, None, []) == "Queue batch is not open to a user without a name."


@pytest.mark.parametrize(
    ("count", "limits", "refused"),
    [
        ("2-4", {"max_sizes": {"ncores": 4}, "min_sizes": {"ncores": 2}}, False),
        ("2-4", {"max_sizes": {"ncores": 3}}, True),
        ("2-4", {"min_sizes": {"ncores": 3}}, True),
        ({"min": 2}, {"max_sizes": {"ncores": 100}}, True),
    ],
)
def test_both_ends_of_a_choice_have_to_be_within_the_limits(
    count: Any, limits: dict[str, Any], refused: bool
) -> None:
    job = spec(tasks=2)
    job["resources"][0]["count"] = count
    assert (refusal(job, queue(**limits)) is not None) is refused
