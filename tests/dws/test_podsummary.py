"""What is told of containers beside a job, and which logs are kept of them."""

from typing import Any

import pytest

from tests.dws.builders import JOBDW, workflow
from tests.dws.test_conduct import at, job, notes, seen
from warren.base.objects import Key, Object
from warren.dws.binding import Phase
from warren.dws.jobs.conduct import decide, depends_on_pods
from warren.dws.jobs.jobactions import SUMMARY_KEY, KeepLogs, KeepValues
from warren.dws.objects.workflows import Workflow
from warren.dws.pods import podsummary
from warren.dws.pods.podsummary import MAX_CHARACTERS, LogRef

CONTAINER = "#DW container name=beside profile=index"
RUNNING = {"running": {"startedAt": "2026-11-24T12:00:00Z"}}


def ended(code: int, message: str = "") -> Object:
    return {"terminated": {"exitCode": code, "message": message}}


def pod(
    name: str = "p", phase: str = "Running", rabbit: str = "r0", made: str = "1", **status: Any
) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-name": f"wf-{rabbit}"}
    metadata = {"name": name, "namespace": "default", "labels": labels}
    return {
        "metadata": {**metadata, "creationTimestamp": f"2026-11-24T12:00:0{made}Z"},
        "spec": {"nodeName": rabbit},
        "status": {"phase": phase, **status},
    }


def states(**containers: Object) -> list[Object]:
    return [{"name": name, "state": state} for name, state in containers.items()]


def test_each_rabbit_has_its_last_pod_with_how_many_there_were() -> None:
    pods = [
        pod("b", "Succeeded", made="2", containerStatuses=states(app=ended(0))),
        pod("a", "Failed", made="1", containerStatuses=states(app=ended(3, "no data\n"))),
        pod("c", "Failed", "r1", containerStatuses=states(app=ended(3, "no\ndata\n"))),
    ]
    assert podsummary.last_pods(pods) == [
        {
            "rabbit": "r1", "pod": "c", "phase": "Failed", "tries": 1, "exit": 3,
            "words": "no\ndata",
        },
        {"rabbit": "r0", "pod": "b", "phase": "Succeeded", "tries": 2, "exit": 0, "words": ""},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ({}, None, ""),
        ({"containerStatuses": states(app=RUNNING)}, None, ""),
        ({"containerStatuses": states(app=RUNNING, other=ended(0))}, None, ""),
        ({"containerStatuses": states(app=RUNNING, other=ended(2, "bad"))}, 2, "bad"),
        ({"containerStatuses": states(app={"waiting": {"reason": "PodInitializing"}}),
          "initContainerStatuses": states(first=ended(4))}, 4, ""),
        ({"containerStatuses": states(app={"waiting": {"reason": "E", "message": "no image"}})},
         None, "no image"),
        ({"containerStatuses": [], "reason": "Unfit", "message": "it cannot be"}, None,
         "it cannot be"),
        ({"containerStatuses": states(app=ended(137)), "reason": "DeadlineExceeded"}, 137,
         "DeadlineExceeded"),
    ],
)  # fmt: skip
def test_its_words_are_those_of_what_failed_or_of_what_it_waits_for(
    status: Object, code: int | None, words: str
) -> None:
    (found,) = podsummary.last_pods([pod(**status)])
    assert (found["exit"], found["words"]) == (code, words)


def test_a_summary_is_bounded_and_names_what_failed_first() -> None:
    long = ended(1, "x" * 2000)
    pods = [pod(f"p{each}", "Running", f"r{each:03}") for each in range(200)]
    pods.append(pod("bad", "Failed", "r999", containerStatuses=states(app=long)))
    found = podsummary.last_pods(pods)
    assert (len(found), found[0]["pod"], len(found[0]["words"])) == (100, "bad", 500)


def test_the_logs_of_what_has_run_are_kept_those_that_failed_first() -> None:
    pods = [
        pod("a", containerStatuses=states(app=ended(0), other=RUNNING),
            initContainerStatuses=states(first=ended(0))),
        pod("b", containerStatuses=states(app={"waiting": {"reason": "PodInitializing"}}),
            initContainerStatuses=states(first=ended(1))),
    ]  # fmt: skip
    assert podsummary.logs_to_keep(pods) == [
        LogRef(Key("default", "b"), "first"),
        LogRef(Key("default", "a"), "app"),
        LogRef(Key("default", "a"), "other"),
    ]


def test_one_log_is_kept_as_it_is_and_several_below_their_names() -> None:
    one, two = LogRef(Key("default", "a"), "app"), LogRef(Key("default", "b"), "app")
    assert podsummary.join_logs({one: "words\n"}) == "words\n"
    assert podsummary.join_logs({one: "x" * (MAX_CHARACTERS + 1)}) == "x" * MAX_CHARACTERS
    assert podsummary.join_logs({one: "words\n", two: "more\n"}) == (
        "==> a app <==\nwords\n\n==> b app <==\nmore\n"
    )
    assert (
        len(podsummary.join_logs({one: "x" * MAX_CHARACTERS, two: "y" * MAX_CHARACTERS}))
        <= MAX_CHARACTERS
    )


# With the record


def ending(*directives: str, desired: str = "PostRun") -> Workflow:
    return workflow(*directives, state=desired, ready=False)


def test_pods_matter_while_a_job_with_containers_ends() -> None:
    assert depends_on_pods(seen(job(Phase.ENDING), ending(JOBDW, CONTAINER)))
    assert not depends_on_pods(seen(job(Phase.ENDING), ending(JOBDW)))
    assert not depends_on_pods(seen(job(Phase.RUNNING), ending(JOBDW, CONTAINER)))
    assert not depends_on_pods(
        seen(job(Phase.ENDING), ending(JOBDW, CONTAINER, desired="Teardown"))
    )
    assert not depends_on_pods(seen(job(Phase.ENDING)))


def test_containers_are_in_the_record_and_their_logs_before_teardown_is_asked_for() -> None:
    pods = [pod("a", "Failed", containerStatuses=states(app=ended(3, "no data")))]
    actions = decide(seen(job(Phase.ENDING, ran=True), at("DataOut"), pods=pods))
    kept = [each.values for each in actions if isinstance(each, KeepValues)]
    (told,) = [each[SUMMARY_KEY] for each in kept if SUMMARY_KEY in each]
    assert [each["words"] for each in told["containers"]] == ["no data"]
    assert KeepLogs((LogRef(Key("default", "a"), "app"),)) in actions[:-1]
    assert "rabbit_container_log" not in notes(actions)


def test_a_job_without_pods_keeps_no_log() -> None:
    actions = decide(seen(job(Phase.ENDING, ran=True), at("DataOut")))
    assert [each for each in actions if isinstance(each, KeepLogs)] == []
