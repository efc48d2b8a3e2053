"""What holds in which queue (RFC 33)."""

import math

import pytest

from warren.instance import config
from warren.lifecycle import policy, tables
from warren.lifecycle.policy import QueueLimits
from warren.rfc.errors import BadFormat


def queue_limits(text: str) -> dict[str | None, QueueLimits]:
    found = config.parse(text)
    return policy.queue_limits(found.queues, found.policy)


def default(text: str) -> str | None:
    found = config.parse(text)
    return policy.default_queue(found.queues, found.policy)


SITE = """
    [policy.jobspec.defaults.system]
    queue = "batch"
    duration = "1h"
    [policy.limits]
    duration = "8h"
    job-size.max = { nnodes = 8, ngpus = 4 }
    [policy.access]
    allow-group = ["staff"]

    [queues.batch]
    requires = ["batch"]

    [queues.debug]
    hosts = "n[1-2]"
    [queues.debug.policy]
    jobspec.defaults.system.duration = 600
    limits.duration = "0"
    limits.job-size.max = { nnodes = 2, ngpus = -1 }
    access.allow-user = ["alice"]

    [queues.short]
    parent = "debug"
    policy.limits.duration = "30m"
"""


def test_without_queues_the_policy_holds_in_the_anonymous_one() -> None:
    assert queue_limits("") == {None: QueueLimits()}
    assert queue_limits("policy.limits.duration = '1h'")[None].max_duration == 3600


def test_what_a_queue_does_not_say_holds_as_for_all() -> None:
    batch = queue_limits(SITE)["batch"]

    assert (batch.default_duration, batch.max_duration) == (3600, 8 * 3600)
    assert (batch.min_sizes, batch.max_sizes) == ({}, {"nnodes": 8, "ngpus": 4})
    assert (batch.users, batch.groups) == (frozenset[str](), frozenset({"staff"}))
    assert batch.properties == ("batch",)


def test_what_a_queue_says_goes_before_also_where_it_lifts_a_limit() -> None:
    debug = queue_limits(SITE)["debug"]

    assert (debug.default_duration, debug.max_duration) == (600, math.inf)
    assert debug.max_sizes == {"nnodes": 2}
    assert (debug.users, debug.groups) == (frozenset({"alice"}), frozenset[str]())
    assert debug.properties == ("+debug",)


def test_a_virtual_queue_has_the_nodes_and_the_policy_of_its_parent() -> None:
    short = queue_limits(SITE)["short"]

    assert short.parent == "debug"
    assert short.properties == ("+debug",)
    assert (short.default_duration, short.max_duration) == (600, 1800)
    assert short.max_sizes == {"nnodes": 2}
    assert short.users == {"alice"}


def test_jobs_that_name_no_queue_have_the_default_or_the_only_one() -> None:
    assert default(SITE) == "batch"
    assert default("[queues.only]") == "only"
    assert default("") is None


def test_a_default_that_is_infinite_is_no_limit() -> None:
    assert (
        queue_limits("policy.jobspec.defaults.system.duration = 'inf'")[None].default_duration == 0
    )


@pytest.mark.parametrize(
    ("value", "seconds"), [("1.5h", 5400.0), (90, 90.0), ("infinity", math.inf), (0, 0.0)]
)
def test_lengths_of_time_are_fsd_or_seconds(value: str | float, seconds: float) -> None:
    assert tables.seconds(value) == seconds


@pytest.mark.parametrize("value", ["1x", "", -1, math.nan])
def test_what_is_no_length_of_time_is_refused(value: str | float) -> None:
    with pytest.raises(BadFormat):
        tables.seconds(value)
