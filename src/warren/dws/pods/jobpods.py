"""The pods of a batch Job: one after the other, until one succeeds.

As Kubernetes has it, for Jobs of one pod at a time, which are those of containers beside jobs. A
pod's name comes from its Job's uid and its number, so that it is made once, wherever its maker
ends. There is no scheduler: a pod goes to the node that its Job selects by name.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from warren.base.objects import Change, Create, Object, Write
from warren.base.times import parse_rfc3339, rfc3339
from warren.dws import kinds
from warren.dws.pods.batchjobs import BatchJob
from warren.dws.pods.pod import FAILED, SUCCEEDED, Pod

FIRST_PAUSE: Final = 10.0
LONGEST_PAUSE: Final = 360.0
"""Bounds of the pause before another try, in seconds, which doubles: those of Kubernetes."""

_HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
_SUFFIX_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes makes names of: no words come of them."""


class BatchJobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A Job and its pods, as they were seen."""

    job: BatchJob
    template: Object
    """What the Job says of its pods (`spec.template`)."""
    pods: Sequence[Pod]
    now: float
    """In seconds since the epoch."""

    @property
    def failed_count(self) -> int:
        """How many pods have failed; one that was removed since is remembered."""
        failed_pods = sum(each.status.phase == FAILED for each in self.pods)
        return max(failed_pods, self.job.status.failed or 0)

    @property
    def succeeded_count(self) -> int:
        return sum(each.status.phase == SUCCEEDED for each in self.pods)

    @property
    def active_pods(self) -> list[Pod]:
        return [each for each in self.pods if not each.has_ended]


def job_of(obj: Object) -> Sequence[str]:
    """Index pods by the uid of the Job that they are of."""
    owners = obj["metadata"].get("ownerReferences") or ()
    return [each["uid"] for each in owners if each.get("controller") and each["kind"] == "Job"]


def decide(snapshot: BatchJobSnapshot) -> tuple[list[Write], float | None]:
    """Return what is to be written, and in how many seconds to look again, if no event tells."""
    job = snapshot.job
    if job.metadata.deleting or job.has_ended:
        return [], None  # pods go with their Job, or are kept with it
    if job.spec.suspend or job.spec.parallelism != 1 or job.spec.completions not in (None, 1):
        message = "Jobs of more than one pod, and suspended ones, are not run by this cluster"
        return _fail(snapshot, "NotSupported", message), None
    if snapshot.succeeded_count:
        return _report(snapshot, {"type": "Complete"}), None
    seconds_left = _time_left(snapshot)
    if seconds_left is not None and seconds_left <= 0:
        message = "Job was active longer than specified deadline"
        return _fail(snapshot, "DeadlineExceeded", message), None
    if snapshot.failed_count > job.spec.backoff_limit:
        message = "Job has reached the specified backoff limit"
        return _fail(snapshot, "BackoffLimitExceeded", message), None
    if snapshot.active_pods:
        return _report(snapshot), seconds_left
    pause = _remaining_pause(snapshot)
    if pause > 0:
        return _report(snapshot), pause if seconds_left is None else min(pause, seconds_left)
    return [_new_pod(snapshot), *_report(snapshot)], seconds_left


def _time_left(snapshot: BatchJobSnapshot) -> float | None:
    limit, started = snapshot.job.spec.active_deadline_seconds, snapshot.job.status.start_time
    if limit is None or started is None:
        return None
    return parse_rfc3339(started) + limit - snapshot.now


def _remaining_pause(snapshot: BatchJobSnapshot) -> float:
    """Return for how many seconds another try is put off."""
    end_times = [each.ended_at for each in snapshot.pods if each.status.phase == FAILED]
    if not end_times:
        return 0.0
    # A large limit must not make a number that no float holds.
    doubled = FIRST_PAUSE * float(1 << min(snapshot.failed_count - 1, 16))
    pause = min(doubled, LONGEST_PAUSE)
    seconds_since_end = snapshot.now - max(end_times)
    # A node's clock may be a little ahead of this one. Of an end that is further away than that,
    # one of the two was set since, and what is left of the pause is not known.
    return 0.0 if seconds_since_end < -pause else pause - max(0.0, seconds_since_end)


def _fail(snapshot: BatchJobSnapshot, reason: str, message: str) -> list[Write]:
    """Have the Job fail. What runs of it is ended, and stays there to be looked at."""
    stops: list[Write] = [
        Change(kind=kinds.POD, key=pod.metadata.key, patch={"spec": {"activeDeadlineSeconds": 1}})
        for pod in snapshot.active_pods
        if pod.spec.active_deadline_seconds != 1
    ]
    condition = {"type": "Failed", "reason": reason, "message": message}
    return [*stops, *_report(snapshot, condition)]


def _report(snapshot: BatchJobSnapshot, condition: Object | None = None) -> list[Write]:
    """Bring the Job's status to what is the case, if it says something else."""
    job, moment = snapshot.job, rfc3339(snapshot.now)
    status = job.status
    has_ended = condition is not None
    # The end of a pod may take long to be reported, and does not change the Job any more.
    active = 0 if has_ended else len(snapshot.active_pods)
    ready = 0 if has_ended else sum(each.is_ready for each in snapshot.active_pods)
    reported = (status.active, status.ready, status.succeeded, status.failed)
    counts = (active, ready, snapshot.succeeded_count, snapshot.failed_count)
    if not has_ended and reported == counts and status.start_time is not None:
        return []
    names = ("active", "ready", "succeeded", "failed")
    patch: dict[str, object] = dict(zip(names, counts, strict=True))
    if status.start_time is None:
        patch["startTime"] = moment
    if condition is not None:
        patch["conditions"] = [{**condition, "status": "True", "lastTransitionTime": moment}]
        if condition["type"] == "Complete":
            patch["completionTime"] = moment
    change = Change(
        kind=kinds.BATCH_JOB,
        key=job.metadata.key,
        patch={"status": patch},
        resource_version=job.metadata.resource_version,
        status=True,
    )
    return [change]


def _new_pod(snapshot: BatchJobSnapshot) -> Create:
    """Make the Job's next pod."""
    job, template = snapshot.job, snapshot.template
    meta, spec = job.metadata, template["spec"]
    template_metadata = template.get("metadata") or {}
    job_labels = {
        "job-name": meta.name,
        "batch.kubernetes.io/job-name": meta.name,
        "batch.kubernetes.io/controller-uid": meta.uid,
    }
    node = (spec.get("nodeSelector") or {}).get(_HOSTNAME_LABEL)
    owner = {
        "apiVersion": kinds.BATCH_JOB.api_version,
        "kind": kinds.BATCH_JOB.name,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    pod = {
        "metadata": {
            "name": f"{meta.name}-{_suffix(meta.uid, snapshot.failed_count)}",
            "namespace": meta.namespace,
            "labels": {**(template_metadata.get("labels") or {}), **job_labels},
            "annotations": dict(template_metadata.get("annotations") or {}),
            "ownerReferences": [owner],
        },
        "spec": {**spec, "nodeName": node} if node else spec,
    }
    return Create(kind=kinds.POD, object=pod)


def _suffix(uid: str, failed_count: int) -> str:
    digest = hashlib.sha256(f"{uid}/{failed_count}".encode()).digest()
    return "".join(_SUFFIX_CHARACTERS[each % len(_SUFFIX_CHARACTERS)] for each in digest[:5])
