"""The kinds of objects that the storage side is made of, and their namespaces."""

from collections.abc import Mapping
from typing import Final

from warren.base.objects import Key, Kind

_DWS: Final = ("dataworkflowservices.github.io", "v1alpha7")
_NNF: Final = ("nnf.cray.hpe.com", "v1alpha11")
_LUS: Final = ("lus.cray.hpe.com", "v1beta1")

WORKFLOW: Final = Kind(*_DWS, "Workflow", "workflows")
COMPUTES: Final = Kind(*_DWS, "Computes", "computes")
DIRECTIVE_RULE: Final = Kind(*_DWS, "DWDirectiveRule", "dwdirectiverules")
BREAKDOWN: Final = Kind(*_DWS, "DirectiveBreakdown", "directivebreakdowns", status=True)
SERVERS: Final = Kind(*_DWS, "Servers", "servers", status=True)
PERSISTENT_INSTANCE: Final = Kind(
    *_DWS, "PersistentStorageInstance", "persistentstorageinstances", status=True
)
STORAGE: Final = Kind(*_DWS, "Storage", "storages", status=True)
CLIENT_MOUNT: Final = Kind(*_DWS, "ClientMount", "clientmounts", status=True)
SYSTEM_CONFIGURATION: Final = Kind(
    *_DWS, "SystemConfiguration", "systemconfigurations", status=True
)

NNF_NODE: Final = Kind(*_NNF, "NnfNode", "nnfnodes", status=True)
NNF_STORAGE: Final = Kind(*_NNF, "NnfStorage", "nnfstorages", status=True)
NNF_NODE_STORAGE: Final = Kind(*_NNF, "NnfNodeStorage", "nnfnodestorages", status=True)
NNF_NODE_BLOCK_STORAGE: Final = Kind(
    *_NNF, "NnfNodeBlockStorage", "nnfnodeblockstorages", status=True
)
NNF_ACCESS: Final = Kind(*_NNF, "NnfAccess", "nnfaccesses", status=True)
NNF_DATA_MOVEMENT: Final = Kind(*_NNF, "NnfDataMovement", "nnfdatamovements", status=True)
LUSTRE_MGT: Final = Kind(*_NNF, "NnfLustreMGT", "nnflustremgts", status=True)
NNF_STORAGE_PROFILE: Final = Kind(*_NNF, "NnfStorageProfile", "nnfstorageprofiles")
COPY_PROFILE: Final = Kind(*_NNF, "NnfDataMovementProfile", "nnfdatamovementprofiles")
CONTAINER_PROFILE: Final = Kind(*_NNF, "NnfContainerProfile", "nnfcontainerprofiles")
CONTAINER_DATA: Final = Kind(*_NNF, "NnfContainerData", "nnfcontainerdata")
PORT_MANAGER: Final = Kind(*_NNF, "NnfPortManager", "nnfportmanagers", status=True)
SYSTEM_STORAGE: Final = Kind(*_NNF, "NnfSystemStorage", "nnfsystemstorages", status=True)

LUSTRE_FILE_SYSTEM: Final = Kind(*_LUS, "LustreFileSystem", "lustrefilesystems", status=True)

SYSTEM_STATUS: Final = Kind(*_DWS, "SystemStatus", "systemstatuses")
"""The workload manager's word of its nodes. It is of no Workflow, and none of the kinds here."""

NAMESPACE: Final = Kind("", "v1", "Namespace", "namespaces", namespaced=False, status=True)
"""What each node has of its own. It is Kubernetes', and none of the kinds here."""

EVENT: Final = Kind("", "v1", "Event", "events")
"""What is told of an object. It is Kubernetes', and none of the kinds here."""

BATCH_JOB: Final = Kind("batch", "v1", "Job", "jobs", status=True)
SERVICE: Final = Kind("", "v1", "Service", "services", status=True)
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap", "configmaps")
SECRET: Final = Kind("", "v1", "Secret", "secrets")
POD: Final = Kind("", "v1", "Pod", "pods", status=True)
NODE: Final = Kind("", "v1", "Node", "nodes", namespaced=False, status=True)
"""What containers are made of, and run on. They are Kubernetes', and none of the kinds here."""

ALL: Final = (
    WORKFLOW,
    COMPUTES,
    DIRECTIVE_RULE,
    BREAKDOWN,
    SERVERS,
    PERSISTENT_INSTANCE,
    STORAGE,
    CLIENT_MOUNT,
    SYSTEM_CONFIGURATION,
    NNF_NODE,
    NNF_STORAGE,
    NNF_NODE_STORAGE,
    NNF_NODE_BLOCK_STORAGE,
    NNF_ACCESS,
    NNF_DATA_MOVEMENT,
    NNF_STORAGE_PROFILE,
    COPY_PROFILE,
    CONTAINER_PROFILE,
    CONTAINER_DATA,
    PORT_MANAGER,
    SYSTEM_STORAGE,
    LUSTRE_MGT,
    LUSTRE_FILE_SYSTEM,
)

FOR_WORKLOAD_MANAGERS: Final = (BREAKDOWN, SERVERS, COMPUTES)
"""What of a Workflow its workload manager reads and fills in."""

DELETED_WITH_WORKFLOW: Final = (
    *FOR_WORKLOAD_MANAGERS,
    NNF_STORAGE_PROFILE,
    COPY_PROFILE,
    CONTAINER_PROFILE,
)
"""What is a Workflow's alone, and goes with it."""

VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    _DWS[0]: (_DWS[1], "v1alpha6"),
    _NNF[0]: (_NNF[1], "v1alpha10", "v1alpha9", "v1alpha8"),
    _LUS[0]: (_LUS[1],),
}
"""The versions of each group that we speak, that of the kinds here first."""


def versions(dws: str | None = None, nnf: str | None = None) -> Mapping[str, tuple[str, ...]]:
    """Return the versions of each group that we speak, one that a site prefers first.

    One that we do not speak is passed over.
    """
    preferred = {_DWS[0]: dws, _NNF[0]: nnf}
    return {
        group: tuple(sorted(spoken, key=lambda each: each != preferred.get(group)))
        for group, spoken in VERSIONS.items()
    }


DEFAULT_NAMESPACE: Final = "default"
CONFIGURATION_KEY: Final = Key(DEFAULT_NAMESPACE, "default")
"""The one SystemConfiguration that there is (dws-spec section 6)."""
RULES_NAMESPACE: Final = "dws-system"
PROFILES_NAMESPACE: Final = "nnf-system"
