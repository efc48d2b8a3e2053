"""Kubernetes' batch Jobs, as far as containers beside jobs need them."""

from collections.abc import Mapping
from typing import Final

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Meta

_NO_FAILURE_TYPES: Final = ("Complete", "SuccessCriteriaMet", "Suspended")
_FINAL_TYPES: Final = ("Complete", "Failed")
_HOSTNAME_LABEL: Final = "kubernetes.io/hostname"


class Condition(Struct, frozen=True):
    type: str
    status: str = "True"
    reason: str = ""
    message: str = ""


class PodSpec(Struct, frozen=True):
    node_selector: Mapping[str, str] | None = None


class PodTemplate(Struct, frozen=True):
    spec: PodSpec = PodSpec()


class JobSpec(Struct, frozen=True):
    active_deadline_seconds: int | None = None
    """For how long it may run, from its start."""
    backoff_limit: int = 6
    """How often it is tried again."""
    completions: int | None = 1
    parallelism: int = 1
    suspend: bool = False
    template: PodTemplate = PodTemplate()


class JobStatus(Struct, frozen=True):
    ready: int | None = None
    """How many pods are ready."""
    active: int | None = None
    """How many pods have not ended."""
    succeeded: int | None = None
    failed: int | None = None
    start_time: str | None = None
    conditions: tuple[Condition, ...] | None = None


class BatchJob(Struct, frozen=True):
    """One pod after the other on one rabbit, until one of them succeeds."""

    metadata: Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that are true."""
        return tuple(each for each in self.status.conditions or () if each.status == "True")

    @property
    def node(self) -> str | None:
        """The node that its pods select by name, if they select one."""
        return (self.spec.template.spec.node_selector or {}).get(_HOSTNAME_LABEL)

    @property
    def has_started(self) -> bool:
        """Whether a pod is ready, or the Job has come to its end: not while it is tried again."""
        has_come_to_its_end = any(each.type != "Suspended" for each in self.conditions)
        return bool(self.status.ready) or has_come_to_its_end

    @property
    def failure(self) -> Condition | None:
        """Why it has failed, if it has."""
        return next((each for each in self.conditions if each.type not in _NO_FAILURE_TYPES), None)

    @property
    def has_ended(self) -> bool:
        """Whether no other pod of it will be made."""
        return any(each.type in _FINAL_TYPES for each in self.conditions)

    @property
    def is_complete(self) -> bool:
        """Whether a pod has succeeded."""
        return any(each.type == "Complete" for each in self.conditions)
