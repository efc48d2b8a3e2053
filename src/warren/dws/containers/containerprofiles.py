"""NnfContainerProfiles: what an admin lets users run beside their data, and what none may say.

Read in the form of today (dws-spec section 12.1) and in that of the container RFC, which has
`spec` for `data`, `postRunTimeout`, `maxRetries`, `mpiReplicaSpecs`, and names with dashes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.base.objects import Object
from warren.directives import capacity
from warren.directives.diagnostics import alternatives
from warren.dws import containerauth, kinds
from warren.dws.containers import indexmounts
from warren.dws.objects.decoding import Malformed, Struct, read
from warren.dws.objects.meta import Meta
from warren.dws.profilemistakes import ProfileMistake

JOB_PREFIX: Final = "DW_JOB_"
PERSISTENT_PREFIX: Final = "DW_PERSISTENT_"
GLOBAL_PREFIX: Final = "DW_GLOBAL_"
_PREFIXES: Final = (JOB_PREFIX, PERSISTENT_PREFIX, GLOBAL_PREFIX)

CONFIG_VOLUME: Final = "nnf-config"
"""The volume by which a profile asks for the ConfigMap of the container RFC."""

PASSWD_VOLUME: Final = "passwd"
SHADOW_VOLUME: Final = "shadow"
HOST_PASSWD_VOLUME: Final = "host-passwd"
SSH_VOLUME: Final = "ssh-auth"
MPI_VOLUME: Final = "mpi-config"
_RESERVED_VOLUMES: Final = (
    *(PASSWD_VOLUME, SHADOW_VOLUME, HOST_PASSWD_VOLUME, SSH_VOLUME, MPI_VOLUME, indexmounts.VOLUME),
    *containerauth.VOLUMES,
)


def argument_name(name: str) -> str:
    """Return the name of a storage as variables have it: with underscores."""
    return name.replace("-", "_")


def volume_name(name: str) -> str:
    """Return what the volume of a storage is called: without the prefix, with dashes."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name.replace("_", "-").lower()


class StorageNeed(Struct, frozen=True):
    """A storage that the application is given."""

    name: str
    optional: bool = False
    pvc_mode: str = ""
    """How a global file system is claimed, such as ReadWriteMany."""
    mount_path: str = ""
    """Where it is in the container; where that is empty, the same place as on the rabbit."""
    mount_path_prefix: str = ""
    """The same, of storage that has a directory for each compute node."""
    minimum_capacity: str = ""

    @property
    def argument(self) -> str:
        """The argument of the directive, and the variable of the container."""
        return argument_name(self.name)

    @property
    def container_path(self) -> str:
        """Where the application expects it; empty where it does not care."""
        return self.mount_path or self.mount_path_prefix


class Mpi(Struct, frozen=True):
    """A launcher, and a worker on each rabbit."""

    launcher: Mapping[str, Any] = {}
    worker: Mapping[str, Any] = {}
    copy_offload: bool = False
    slots_per_worker: int | None = None


class ContainerProfileData(Struct, frozen=True):
    """What a profile says. Timeouts are in seconds."""

    pinned: bool = False
    create_container: bool = True
    storages: tuple[StorageNeed, ...] = ()
    pre_run_timeout_seconds: int = 300
    """For how long containers may take to start; 0 is without end."""
    post_run_timeout_seconds: int = 300
    """For how long they may go on after the job; 0 is not to be waited for."""
    retry_limit: int = 6
    user_id: int | None = msgspec.field(name="userID", default=None)
    group_id: int | None = msgspec.field(name="groupID", default=None)
    num_ports: int = 0
    """Of each container."""
    spec: Mapping[str, Any] | None = None
    mpi_spec: Mpi | None = None


class ContainerProfile(Struct, frozen=True, dict=True):
    """A profile, whichever form it is written in."""

    metadata: Meta
    data: ContainerProfileData = ContainerProfileData()

    @cached_property
    def storage_by_argument(self) -> Mapping[str, StorageNeed]:
        """The storages by argument."""
        return {each.argument: each for each in self.data.storages}

    @property
    def containers(self) -> Sequence[Mapping[str, Any]]:
        """The containers that have ports: all of a pod, the launcher's of MPI."""
        return tuple(self.pods[0].get("containers") or ())

    @property
    def pods(self) -> Sequence[Mapping[str, Any]]:
        """What it says of its pods: of the one of each rabbit, or of launcher and worker."""
        mpi, spec = self.data.mpi_spec, self.data.spec
        return (mpi.launcher, mpi.worker) if mpi is not None else (spec or {},)

    @property
    def port_count(self) -> int:
        """How many ports a Workflow needs for it."""
        return sum(port_count_of(each, self.data.num_ports) for each in self.containers)

    def restriction(self, userid: int | None, groupid: int | None) -> str | None:
        """Return whose profile it is, in words, if it is not that of these."""
        data = self.data
        if data.user_id is not None and userid is not None and data.user_id != userid:
            return f"user {data.user_id}"
        if data.group_id is not None and groupid is not None and data.group_id != groupid:
            return f"group {data.group_id}"
        return None


def port_count_of(container: Mapping[str, Any], num_ports: int) -> int:
    """Return how many ports a container needs: those that it declares, and `num_ports` more."""
    return num_ports + len(container.get("ports") or ())


def decode(obj: Object) -> ContainerProfile:
    """Read a profile. Raises Malformed."""
    return read(
        {**{"kind": "NnfContainerProfile"}, **obj, "data": current_form(obj)}, ContainerProfile
    )


def by_name(objects: Iterable[Object]) -> dict[str, ContainerProfile]:
    """Read profiles, without those that are wrong: written before there were rules."""
    profiles = {}
    for obj in objects:
        with suppress(Malformed):
            profiles[obj["metadata"]["name"]] = decode(obj)
    return profiles


_RENAMED_FIELDS: Final = {"postRunTimeout": "postRunTimeoutSeconds", "maxRetries": "retryLimit"}


def current_form(obj: Object) -> dict[str, Any]:
    """Return what a profile says, in the words of today."""
    body = obj.get("data")
    form = dict(_mapping(obj.get("spec") if body is None else body))
    for old, new in _RENAMED_FIELDS.items():
        if old in form:
            form.setdefault(new, form.pop(old))
    mpi = _mapping(form.get("mpiSpec"))
    replicas = _mapping(mpi.get("mpiReplicaSpecs"))
    if replicas:
        pods = {
            role.lower(): _mapping(_mapping(_mapping(pod).get("template")).get("spec"))
            for role, pod in replicas.items()
        }
        other_fields = {name: value for name, value in mpi.items() if name != "mpiReplicaSpecs"}
        form["mpiSpec"] = {**other_fields, **pods}
    return form


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# What none may say

_POD_FIELDS: Final = frozenset({
    "containers", "initContainers", "volumes", "terminationGracePeriodSeconds",
    "shareProcessNamespace", "imagePullSecrets", "automountServiceAccountToken",
})  # fmt: skip

_CONTAINER_FIELDS: Final = frozenset({
    "name", "image", "command", "args", "env", "envFrom", "volumeMounts", "workingDir",
    "restartPolicy", "livenessProbe", "readinessProbe", "startupProbe", "terminationMessagePath",
    "terminationMessagePolicy", "imagePullPolicy", "ports",
})  # fmt: skip

_PORT_FIELDS: Final = frozenset({"name", "containerPort", "protocol"})
"""Ports of the host are given out by Warren."""

_VOLUME_FIELDS: Final = frozenset(
    {"name", "emptyDir", "configMap", "secret", "downwardAPI", "projected"}
)
"""Storage is granted by the profile's storages alone, not by paths of the host or claims."""

_NAME_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MAX_NAME_LENGTH: Final = 253
_OFFLOAD_PATTERN: Final = re.compile(r"(?i)\bcopy[- ]?offload\b")
_SYSTEM_PATHS: Final = (
    "/",
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/sbin",
    "/sys",
    "/usr",
)


def mistakes(new: Object, old: Object | None = None) -> list[ProfileMistake]:
    """Return all that is wrong with a profile as it is to be, or with what is changed in it."""
    try:
        profile = decode(new)
    except Malformed as error:
        return [ProfileMistake("data", str(error))]
    return [
        *_pinning_mistakes(profile, new, old),
        *_number_mistakes(profile.data),
        *_storage_mistakes(profile),
        *_spec_mistakes(profile),
    ]


def _pinning_mistakes(
    profile: ContainerProfile, new: Object, old: Object | None
) -> Iterator[ProfileMistake]:
    namespace = profile.metadata.namespace
    old_form = current_form(old) if old is not None else None
    if old_form is not None and old_form.get("pinned") and old_form != current_form(new):
        yield ProfileMistake("data", "cannot be changed in a pinned profile")
    elif old_form is not None and bool(old_form.get("pinned")) is not profile.data.pinned:
        yield ProfileMistake("data.pinned", "cannot be changed: make another profile")
    elif not profile.data.pinned and namespace != kinds.PROFILES_NAMESPACE:
        where = kinds.PROFILES_NAMESPACE
        yield ProfileMistake("metadata.namespace", f"profiles that are not pinned are in {where}")


def _number_mistakes(data: ContainerProfileData) -> Iterator[ProfileMistake]:
    for path, number in (
        ("preRunTimeoutSeconds", data.pre_run_timeout_seconds),
        ("postRunTimeoutSeconds", data.post_run_timeout_seconds),
        ("retryLimit", data.retry_limit),
        ("numPorts", data.num_ports),
    ):
        if number < 0:
            yield ProfileMistake(f"data.{path}", f"cannot be negative: {number}")


def _storage_mistakes(profile: ContainerProfile) -> Iterator[ProfileMistake]:
    seen_names: set[str] = set()
    for index, each in enumerate(profile.data.storages):
        path = f"data.storages[{index}]"
        if not each.name.startswith(_PREFIXES) or not volume_name(each.name):
            yield ProfileMistake(
                f"{path}.name", f"{each.name!r} does not begin with {alternatives(_PREFIXES)}"
            )
        elif volume_name(each.name) in seen_names:
            yield ProfileMistake(f"{path}.name", f"{each.name!r} is there twice")
        elif volume_name(each.name) in (*_RESERVED_VOLUMES, CONFIG_VOLUME):
            yield ProfileMistake(f"{path}.name", f"{each.name!r} has the name of another volume")
        seen_names.add(volume_name(each.name))
        if each.pvc_mode and not each.name.startswith(GLOBAL_PREFIX):
            yield ProfileMistake(f"{path}.pvcMode", f"is for {GLOBAL_PREFIX} storages alone")
        if each.mount_path and each.mount_path_prefix:
            yield ProfileMistake(f"{path}.mountPathPrefix", "cannot be beside mountPath")
        if each.container_path and not _is_container_path(each.container_path):
            yield ProfileMistake(
                f"{path}.mountPath",
                f"{each.container_path!r} is no directory of its own in a container",
            )
        if each.minimum_capacity:
            try:
                capacity.parse(each.minimum_capacity)
            except UserMistake as error:
                yield ProfileMistake(f"{path}.minimumCapacity", str(error).removesuffix("."))

    yield from _nested_storages(profile.data.storages)


def _nested_storages(storages: Sequence[StorageNeed]) -> Iterator[ProfileMistake]:
    for index, each in enumerate(storages):
        for other in storages:
            if _may_be_indexed(other) and _is_below(each.container_path, other.container_path):
                path = f"data.storages[{index}].mountPath"
                yield ProfileMistake(
                    path, _below_message(each.container_path, other.container_path)
                )


def _may_be_indexed(storage: StorageNeed) -> bool:
    """Return whether it may have a directory for each compute node: nothing else fits in there."""
    return not storage.name.startswith(GLOBAL_PREFIX)


def _is_below(path: str, storage_path: str) -> bool:
    parts, storage_parts = path.rstrip("/").split("/"), storage_path.rstrip("/").split("/")
    return (
        bool(storage_path)
        and len(parts) > len(storage_parts)
        and parts[: len(storage_parts)] == storage_parts
    )


def _below_message(path: str, storage_path: str) -> str:
    return (
        f"{path!r} is below the storage at {storage_path!r}, which may have a directory for each "
        "compute node and nothing else: choose another place"
    )


def _is_container_path(path: str) -> bool:
    parts = path.rstrip("/").split("/")
    normalized = "/".join(parts)
    return (
        path.startswith("/")
        and ".." not in parts
        and bool(normalized)
        and normalized not in _SYSTEM_PATHS
    )


def _spec_mistakes(profile: ContainerProfile) -> Iterator[ProfileMistake]:
    data = profile.data
    if (data.spec is None) is (data.mpi_spec is None):
        yield ProfileMistake("data", "one of spec and mpiSpec has to be there, and not both")
        return
    may_offload = data.mpi_spec is not None and data.mpi_spec.copy_offload
    if data.mpi_spec is not None:
        yield from _pod_mistakes(
            "data.mpiSpec.launcher", data.mpi_spec.launcher, profile, may_offload=may_offload
        )
        yield from _pod_mistakes(
            "data.mpiSpec.worker", data.mpi_spec.worker, profile, may_offload=may_offload
        )
    elif data.spec is not None:
        yield from _pod_mistakes("data.spec", data.spec, profile, may_offload=False)
    container_names = [each.get("name") or "" for each in profile.containers]
    if may_offload and not any(_OFFLOAD_PATTERN.search(name) for name in container_names):
        yield ProfileMistake("data.mpiSpec.copyOffload", "needs a container named copy-offload")


def _pod_mistakes(
    path: str, pod: Mapping[str, Any], profile: ContainerProfile, *, may_offload: bool
) -> Iterator[ProfileMistake]:
    yield from _unknown_fields(
        path, pod, _POD_FIELDS, "is set by Warren, or is not for users' containers"
    )
    storage_names = {volume_name(each.name) for each in profile.data.storages}
    volumes: set[str] = set()
    for index, volume in enumerate(_objects(pod.get("volumes"))):
        where = f"{path}.volumes[{index}]"
        name = str(volume.get("name", ""))
        if name in (*_RESERVED_VOLUMES, *storage_names):
            yield ProfileMistake(f"{where}.name", f"{name!r} is made by Warren")
        volumes.add(name)
        why = "is not granted by the profile's storages: add one, or take emptyDir"
        yield from _unknown_fields(where, volume, _VOLUME_FIELDS, why)
    if not _objects(pod.get("containers")):
        yield ProfileMistake(f"{path}.containers", "has to have one")
    for field in ("initContainers", "containers"):
        for index, container in enumerate(_objects(pod.get(field))):
            where = f"{path}.{field}[{index}]"
            known_names = volumes | storage_names | {CONFIG_VOLUME}
            yield from _container_mistakes(
                where, container, known_names, profile.data.storages, may_offload=may_offload
            )


def _container_mistakes(
    path: str,
    container: Mapping[str, Any],
    volumes: set[str],
    storages: Sequence[StorageNeed],
    *,
    may_offload: bool,
) -> Iterator[ProfileMistake]:
    yield from _unknown_fields(path, container, _CONTAINER_FIELDS, "is set by Warren")
    name = str(container.get("name", ""))
    if len(name) > _MAX_NAME_LENGTH or not _NAME_PATTERN.fullmatch(name):
        yield ProfileMistake(f"{path}.name", f"{name!r} is no name: a-z, 0-9, and - within")
    if _OFFLOAD_PATTERN.search(name) and not may_offload:
        yield ProfileMistake(f"{path}.name", f"{name!r} needs mpiSpec.copyOffload")
    if not container.get("image"):
        yield ProfileMistake(f"{path}.image", "has to be there")
    for index, port in enumerate(_objects(container.get("ports"))):
        where = f"{path}.ports[{index}]"
        yield from _unknown_fields(where, port, _PORT_FIELDS, "is given out by Warren")
        if not (isinstance(number := port.get("containerPort"), int) and 0 < number < 2**16):
            yield ProfileMistake(f"{where}.containerPort", "is a number from 1 to 65535")
    for index, mount in enumerate(_objects(container.get("volumeMounts"))):
        if mount.get("name") not in volumes:
            why = f"there is no volume {mount.get('name')!r}: add a storage of that name"
            yield ProfileMistake(f"{path}.volumeMounts[{index}].name", why)
    yield from _nested_mounts(path, _objects(container.get("volumeMounts")), storages)


def _nested_mounts(
    path: str, mounts: Sequence[Mapping[str, Any]], storages: Sequence[StorageNeed]
) -> Iterator[ProfileMistake]:
    storage_by_volume = {volume_name(each.name): each for each in storages if _may_be_indexed(each)}
    mounted_names = {mount.get("name") for mount in mounts}
    storage_paths = [
        each.container_path for name, each in storage_by_volume.items() if name not in mounted_names
    ]
    # A part of a storage is as the rabbit has it, and no directory of ours.
    whole_mounts = [each for each in mounts if not (each.get("subPath") or each.get("subPathExpr"))]
    storage_paths += [
        str(each.get("mountPath", ""))
        for each in whole_mounts
        if each.get("name") in storage_by_volume
    ]
    for index, mount in enumerate(mounts):
        mount_path = str(mount.get("mountPath", ""))
        for storage_path in storage_paths:
            if _is_below(mount_path, storage_path):
                yield ProfileMistake(
                    f"{path}.volumeMounts[{index}].mountPath",
                    _below_message(mount_path, storage_path),
                )


def _unknown_fields(
    path: str, obj: Mapping[str, Any], allowed: frozenset[str], why: str
) -> Iterator[ProfileMistake]:
    for name in sorted(obj.keys() - allowed):
        yield ProfileMistake(f"{path}.{name}", why)


def _objects(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the objects of a list; schemas refuse what else there may be."""
    items = value if isinstance(value, list | tuple) else ()
    return [each for each in items if isinstance(each, Mapping)]
