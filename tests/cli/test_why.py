"""`warren job why` and what a dry run tells, on an instance of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.living import Cluster, cluster
from warren.rfc import fluid
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as made:
        yield made


def scheduling(made: Cluster, kind: str, reason: str) -> list[dict[str, Any]]:
    """Have a scheduler say why each job waits; return what it is asked."""
    asked = []

    async def why(request: Request) -> Payload:
        asked.append(dict(request.payload))
        return {"kind": kind, "kinds": [kind], "reason": reason, "before": 2}

    made.life.bus.register("sched", {"why": Method(why, guest=True)})
    return asked


def test_why_a_job_waits_is_asked_of_the_scheduler_and_printed(owned: Cluster) -> None:
    job = owned.submit(1)
    asked = scheduling(owned, "nodes", "waits for 1 more of 2 nodes")

    assert owned("job", "why", job).lines == [
        f"{job} waits for 1 more of 2 nodes.",
        "  before it      2 jobs",
    ]
    told = json.loads(owned("job", "why", "--json", job).out)
    assert told == {
        "id": job, "state": "SCHED", "kind": "nodes", "kinds": ["nodes"],
        "reason": "waits for 1 more of 2 nodes", "before": 2,
    }  # fmt: skip
    assert asked == [{"id": fluid.parse(job)}] * 2
    over = owned.give(job)
    assert owned("job", "why", over).lines == [f"{job} does not wait: it is over (COMPLETED)."]
    assert owned("job", "why", "ƒ9999").refusal == "ƒ9999: unknown job id"


@pytest.mark.parametrize("command", [["submit"], ["run"], ["batch", "--wrap"]])
def test_a_dry_run_prints_the_jobspec_and_says_what_the_job_would_wait_for(
    owned: Cluster, command: list[str]
) -> None:
    asked = scheduling(owned, "nodes", "waits for 1 more of 2 nodes")
    done = owned(*command, "--dry-run", "--urgency=20", "-N2", "app")

    assert done.code == 0
    assert done.refusal == "warren: the job would wait for 1 more of 2 nodes.\n"
    (request,) = asked
    assert request["priority"] == 20
    assert request["jobspec"]["resources"] == json.loads(done.out)["resources"]
    refused = owned(*command, "--dry-run", "-N2", "--queue=nope", "app")
    assert refused.refusal.startswith("the job is refused: There is no queue 'nope'")
    assert owned("jobs", "-n").out == ""


def test_where_the_scheduler_does_not_tell_a_dry_run_says_nothing(owned: Cluster) -> None:
    done = owned("submit", "--dry-run", "-N2", "app")
    assert (done.code, done.refusal) == (0, "")
    assert json.loads(done.out)["version"] == 1
