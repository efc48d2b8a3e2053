"""The summary of the containers beside a job: how they are, and what they have printed.

A Job's pods come one after the other, so that the last one is how it is; each is one try.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from warren.base.objects import Key, Object
from warren.dws.objects.decoding import read
from warren.dws.pods.pod import FAILED, ContainerStatus, Pod

_MAX_PODS: Final = 100
"""Pods that a summary names: those that failed first."""

_MAX_MESSAGE: Final = 500
"""Characters of the message of each."""

_JOB_LABEL: Final = "batch.kubernetes.io/job-name"

MAX_CHARACTERS: Final = 50_000
"""Characters of what they have printed that are kept with a job's record."""

_MAX_LOGS: Final = 50
"""Containers that these are of."""


def last_pods(pods: Iterable[Object]) -> list[dict[str, Any]]:
    """Return of each rabbit and Job the last pod, as JSON, and how many there have been."""
    pods_by_rabbit_and_job: dict[tuple[str, str], list[Pod]] = {}
    for raw in pods:
        pod = read(raw, Pod)
        job_name = pod.metadata.labels.get(_JOB_LABEL, pod.metadata.name)
        pods_by_rabbit_and_job.setdefault((pod.spec.node_name, job_name), []).append(pod)
    rabbits_and_tries = [
        (rabbit, _in_order(pods_by_rabbit_and_job[rabbit, job]))
        for rabbit, job in sorted(pods_by_rabbit_and_job)
    ]
    rabbits_and_tries.sort(key=lambda each: each[1][-1].status.phase != FAILED)
    return [_pod_summary(rabbit, each) for rabbit, each in rabbits_and_tries[:_MAX_PODS]]


def _in_order(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods of a Job in their order: one that has not ended is the last."""
    return sorted(
        pods, key=lambda each: (not each.has_ended, each.metadata.creation_timestamp or "")
    )


def _pod_summary(rabbit: str, tries: Sequence[Pod]) -> dict[str, Any]:
    pod = tries[-1]
    code, message = _exit_code_and_message(pod)
    return {
        "rabbit": rabbit,
        "pod": pod.metadata.name,
        "phase": pod.status.phase,
        "tries": len(tries),
        "exit": code,
        "words": message[-_MAX_MESSAGE:],
    }


def _exit_code_and_message(pod: Pod) -> tuple[int | None, str]:
    """Return a pod's exit code and last words: those of the container that has failed, if any.

    Where nothing of it runs yet, the words are what it waits for.
    """
    states = [each.state for each in _statuses(pod)]
    ended = [each.terminated for each in states if each.terminated is not None]
    why = pod.status.message or pod.status.reason or ""
    for each in ended:
        if each.exit_code:
            return each.exit_code, (each.message or why).strip()
    for state in states:
        if state.waiting is not None:
            return None, why or state.waiting.message or state.waiting.reason or ""
    return (0 if states and len(ended) == len(states) else None), why


def _statuses(pod: Pod) -> tuple[ContainerStatus, ...]:
    status = pod.status
    return (*(status.init_container_statuses or ()), *(status.container_statuses or ()))


class LogRef(NamedTuple):
    """A container of a pod that may have printed something."""

    pod: Key
    container: str


def logs_to_keep(pods: Iterable[Object]) -> list[LogRef]:
    """Return the containers whose logs are kept with the record: those that failed first.

    Of those that prepare a pod, only where they failed.
    """
    sortable_logs: list[tuple[bool, LogRef]] = []
    for raw in pods:
        pod = read(raw, Pod)
        for each in _statuses(pod):
            failed = each.state.terminated is not None and each.state.terminated.exit_code != 0
            is_init_container = each in (pod.status.init_container_statuses or ())
            if each.state.waiting is None and (failed or not is_init_container):
                sortable_logs.append((not failed, LogRef(pod.metadata.key, each.name)))
    return [each for _, each in sorted(sortable_logs)[:_MAX_LOGS]]


def max_characters_of_each(logs: Sequence[LogRef]) -> int:
    """Return how many characters each of some logs may have."""
    return MAX_CHARACTERS // max(1, len(logs))


def join_logs(logs: Mapping[LogRef, str]) -> str:
    """Return what is kept: the end of a log as it is, or those of several below their names."""
    max_characters = max_characters_of_each([*logs])
    if len(logs) == 1:
        return next(iter(logs.values()))[-max_characters:]
    return "\n".join(_with_heads(logs, max_characters))


def _with_heads(logs: Mapping[LogRef, str], max_characters: int) -> Iterator[str]:
    for each, printed in logs.items():
        head = f"==> {each.pod.name} {each.container} <==\n"
        room = max(0, max_characters - len(head) - 1)
        yield head + (printed[-room:] if room else "")
