"""What `kubectl get` shows of Kubernetes' own kinds, where no path of a definition could say it."""

from collections.abc import Mapping
from typing import Any

from warren.base.objects import Object
from warren.kube.server.resources import Column

AGE_COLUMN = Column("Age", "date", ".metadata.creationTimestamp")


def _creation_time(obj: Object) -> Any:
    return obj["metadata"].get("creationTimestamp", "")


CREATED_COLUMN = Column("Created At", "string", "", cell=_creation_time)


def _count_column(*names: str) -> Column:
    def cell(obj: Object) -> int:
        return sum(len(obj.get(name) or ()) for name in names)

    return Column(names[0].title(), "string", "", cell=cell)


DATA_COLUMN = _count_column("data", "binaryData")
WEBHOOKS_COLUMN = _count_column("webhooks")


def _role(binding: Object) -> str:
    role = binding.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects_column(kind: str, title: str) -> Column:
    def cell(binding: Object) -> str:
        names = [
            f"{each['namespace']}/{each['name']}" if each.get("namespace") else each.get("name", "")
            for each in binding.get("subjects") or ()
            if each.get("kind") == kind
        ]
        return ", ".join(names)

    return Column(title, "string", "", priority=1, cell=cell)


BINDING_COLUMNS = (
    Column("Role", "string", "", cell=_role),
    AGE_COLUMN,
    _subjects_column("User", "Users"),
    _subjects_column("Group", "Groups"),
    _subjects_column("ServiceAccount", "ServiceAccounts"),
)


# Nodes


def _node_status(node: Object) -> str:
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((each.get("status") for each in conditions if each.get("type") == "Ready"), None)
    status = {"True": "Ready", "False": "NotReady"}.get(str(ready), "Unknown")
    unschedulable = (node.get("spec") or {}).get("unschedulable")
    return f"{status},SchedulingDisabled" if unschedulable else status


def _node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    roles = sorted(each.removeprefix(prefix) for each in labels if each.startswith(prefix))
    return ",".join(roles) or "<none>"


NODE_COLUMNS = (
    Column("Status", "string", "", cell=_node_status),
    Column("Roles", "string", "", cell=_node_roles),
    AGE_COLUMN,
    Column("Version", "string", ".status.nodeInfo.kubeletVersion"),
)


# Events


def _involved(event: Object) -> str:
    involved: Mapping[str, Any] = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _source(event: Object) -> str:
    source: Mapping[str, Any] = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent") or ""
    host = source.get("host") or event.get("reportingInstance") or ""
    return f"{component}, {host}" if host else str(component)


def _message(event: Object) -> str:
    return str(event.get("message") or "").strip()


def _event_count(event: Object) -> int:
    return int((event.get("series") or {}).get("count") or event.get("count") or 1)


def _last_seen(event: Object) -> Any:
    series = event.get("series") or {}
    return series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")


def _first_seen(event: Object) -> Any:
    return event.get("firstTimestamp") or event.get("eventTime")


EVENT_COLUMNS = (
    Column("Last Seen", "date", "", cell=_last_seen),
    Column("Type", "string", ".type"),
    Column("Reason", "string", ".reason"),
    Column("Object", "string", "", cell=_involved),
    Column("Subobject", "string", ".involvedObject.fieldPath", priority=1),
    Column("Source", "string", "", priority=1, cell=_source),
    Column("Message", "string", "", cell=_message),
    Column("First Seen", "date", "", priority=1, cell=_first_seen),
    Column("Count", "integer", "", priority=1, cell=_event_count),
    Column("Name", "string", ".metadata.name", priority=1),
)


# Jobs


def _job_status(job: Object) -> str:
    conditions = (job.get("status") or {}).get("conditions") or ()
    true_conditions = [each.get("type") for each in conditions if each.get("status") == "True"]
    if "Complete" in true_conditions or "Failed" in true_conditions:
        return "Complete" if "Complete" in true_conditions else "Failed"
    return "Suspended" if "Suspended" in true_conditions else "Running"


def _completions(job: Object) -> str:
    completions = (job.get("spec") or {}).get("completions") or 1
    return f"{(job.get('status') or {}).get('succeeded') or 0}/{completions}"


JOB_COLUMNS = (
    Column("Status", "string", "", cell=_job_status),
    Column("Completions", "string", "", cell=_completions),
    AGE_COLUMN,
)
