"""Attributes of jobs, as listings tell them (RFC 43)."""

from collections.abc import Mapping
from typing import Any, NoReturn

import pytest

from warren.lifecycle import attributes
from warren.lifecycle.attributes import ATTRIBUTES, CachedJob
from warren.lifecycle.job import Job
from warren.lifecycle.states import Result, State
from warren.rfc import jobspec, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId

RFC_43 = {
    *("userid", "urgency", "priority", "state", "name", "cwd", "queue", "project", "bank"),
    *("t_submit", "t_depend", "t_run", "t_cleanup", "t_inactive", "duration", "expiration"),
    *("ntasks", "ncores", "nnodes", "ranks", "nodelist", "success", "result", "waitstatus"),
    *("exception_occurred", "exception_type", "exception_severity", "exception_note"),
    *("annotations", "dependencies"),
}


class Waiting:
    """A job that nothing but its id and its state has been read of."""

    job = Job(
        id=JobId(5),
        userid=7,
        urgency=16,
        state=State.DEPEND,
        dependencies=frozenset({"b", "a"}),
        memo={"rabbits": "r0"},
        annotations={"sched": {"reason_pending": "busy"}},
        times={State.NEW: 1.0, State.DEPEND: 2.0},
    )

    @property
    def jobspec(self) -> NoReturn:
        raise AssertionError("it is not to be read")

    @property
    def r(self) -> NoReturn:
        raise AssertionError("it is not to be read")


class Placed:
    """A job with everything."""

    job = Waiting.job

    def __init__(self, r: Mapping[str, Any] | None = None, **options: Any) -> None:
        self.jobspec = jobspec.make(["/bin/app"], **options)
        self.r = r


def test_an_attribute_that_is_named_again_and_again_is_told_once() -> None:
    """Each costs time for each job, and a request has room for 30,000 names."""
    assert attributes.attribute_names(["all"] * 30_000) == list(ATTRIBUTES)
    assert attributes.attribute_names(["name", "state"] * 15_000) == ["name", "state"]
    with pytest.raises(BadFormat):
        attributes.attribute_names([["name"]])


def test_all_attributes_of_rfc_43_are_there() -> None:
    assert set(ATTRIBUTES) >= RFC_43
    assert attributes.attribute_names(["all"]) == list(ATTRIBUTES)
    with pytest.raises(BadFormat, match="jobs have no attribute 'colour'"):
        attributes.attribute_names(["name", "colour"])


def test_what_needs_no_jobspec_reads_none() -> None:
    names = ["userid", "priority", "t_submit", "t_depend", "t_run", "state", "result"]
    asked = [*names, "waitstatus", "exception_occurred", "annotations", "dependencies"]

    assert attributes.job_attributes(Waiting(), asked) == {
        "id": 5,
        "userid": 7,
        "t_submit": 1.0,
        "t_depend": 2.0,
        "state": 2,
        "exception_occurred": False,
        "annotations": {"sched": {"reason_pending": "busy"}, "user": {"rabbits": "r0"}},
        "dependencies": ["a", "b"],
    }


def test_what_the_author_has_named_is_told() -> None:
    given = {"queue": "batch", "project": "p", "bank": "b"}
    found = attributes.job_attributes(
        Placed(cwd="/home", attributes=given), ["cwd", "name", *given]
    )

    assert found == {"id": 5, "cwd": "/home", "name": "app", **given}


@pytest.mark.parametrize(
    ("options", "counted"),
    [
        ({"tasks": 4, "cores": 2}, {"ntasks": 4, "ncores": 8}),
        ({"nodes": 2, "tasks": 4, "cores": 3}, {"ntasks": 4, "ncores": 12, "nnodes": 2}),
        ({"nodes": 2}, {"ntasks": 2, "nnodes": 2}),
    ],
)
def test_what_a_job_asks_for_is_counted_as_far_as_it_is_known(
    options: dict[str, Any], counted: dict[str, int]
) -> None:
    found = attributes.job_attributes(Placed(**options), ["ntasks", "ncores", "nnodes"])

    assert found == {"id": 5, **counted}


def test_what_a_job_has_goes_before_what_it_asked_for() -> None:
    ranks = [
        resource_set.NodeResources(3, "n3", (0, 1)),
        resource_set.NodeResources(4, "n4", (0, 1)),
    ]
    r = resource_set.encode_nodes(ranks, expiration=90.0)
    names = ["ncores", "nnodes", "ranks", "nodelist", "expiration"]
    found = attributes.job_attributes(Placed(r, tasks=1), names)

    assert found == {
        "id": 5,
        "ncores": 4,
        "nnodes": 2,
        "ranks": "3-4",
        "nodelist": "n[3-4]",
        "expiration": 90.0,
    }


def test_tasks_for_each_resource_or_slot_are_counted_by_what_the_job_has() -> None:
    ranks = [resource_set.NodeResources(3, "n3", (0, 1)), resource_set.NodeResources(4, "n4", (0,))]
    r = resource_set.encode_nodes(ranks)
    r["execution"]["nslots"] = 3
    for type_, tasks in (("node", 4), ("core", 6)):
        each = {"options": {"per-resource": {"type": type_, "count": 2}}}
        placed = Placed(r, nodes=2, attributes={"shell": each})
        assert attributes.job_attributes(placed, ["ntasks"])["ntasks"] == tasks
    chosen = Placed(r, tasks=1)
    chosen.jobspec["resources"][0]["count"] = "1-9"
    assert attributes.job_attributes(chosen, ["ntasks"])["ntasks"] == 3


@pytest.mark.parametrize(
    ("result", "status", "code"),
    [
        (Result.COMPLETED, 0, 0),
        (Result.FAILED, 3 << 8, 3),
        (Result.FAILED, 9, -9),
        (Result.FAILED, 0x80 | 11, -11),
        (Result.TIMEOUT, 143 << 8, 143),
        (Result.CANCELED, 15, -15),
        (Result.CANCELED, None, -128),
        (Result.CANCELED, 0, -128),
        (Result.FAILED, 0, 1),
        (Result.FAILED, None, 1),
        (Result.TIMEOUT, None, 1),
    ],
)
def test_the_return_code_is_that_of_flux(result: Result, status: int | None, code: int) -> None:
    assert attributes.returncode(result, status) == code


def test_nothing_of_a_job_is_read_twice() -> None:
    reads: list[str] = []

    class Stored:
        @property
        def job(self) -> Job:
            reads.append("job")
            return Waiting.job

        @property
        def jobspec(self) -> Mapping[str, Any]:
            reads.append("jobspec")
            return jobspec.make(["/bin/app"])

        @property
        def r(self) -> None:
            reads.append("r")

    assert attributes.job_attributes(CachedJob(Stored()), ["userid"])["userid"] == 7
    assert reads == ["job"]
    reads.clear()
    attributes.job_attributes(CachedJob(Stored()), ATTRIBUTES)
    assert sorted(reads) == ["job", "jobspec", "r"]
