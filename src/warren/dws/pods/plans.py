"""What is to be run for a pod, with everything that it names looked up.

A plan is a JSON value: whatever runs it need not know of Kubernetes. What a pod asks for and is
not done here is refused by name, and not left out in silence.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.errors import WarrenError
from warren.base.objects import Object
from warren.directives.diagnostics import alternatives

GRACE_SECONDS: Final = 30
"""Seconds that containers have to end when they are asked to, unless their pod says otherwise."""

_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_VARIABLE_PATTERN: Final = re.compile(r"\$(?:\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
"""A variable in a command, `$(NAME)`, or the escape of its dollar."""

_SUBSCRIPT_PATTERN: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")

_QUANTITY_PATTERN: Final = re.compile(
    r"(\d{1,19}(?:\.\d{0,9})?|\.\d{1,9})(?:([KMGTPE]i|[kMGTPEm]|)|[eE]([-+]?\d{1,2}))"
)
_UNIT_BYTES: Final = {
    "": 1,
    "m": 0.001,
    **{unit: 1000**power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGTPE", 1)},
}

_MOST_BYTES: Final = 2**63 - 1
"""The largest size: a quantity of Kubernetes that is larger counts as this one."""

_UNSUPPORTED_POD_FIELDS: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
_UNSUPPORTED_CONTAINER_FIELDS: Final = (
    "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "volumeDevices", "stdin", "tty",
)  # fmt: skip
_FORBIDDEN_PRIVILEGES: Final = ("privileged", "allowPrivilegeEscalation")


class UnsupportedPod(WarrenError):
    """A pod that cannot be run, in words for its Job's user."""


class MissingReference(WarrenError):
    """An object that a pod names, and which is not there yet."""


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that has been unpacked, with what it says of its containers (OCI image spec)."""

    root: str
    """The directory of its files."""
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    working_directory: str = ""


class References(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a pod refers to, as they are now."""

    images: Mapping[str, Image]
    config_maps: Mapping[str, Object] = msgspec.field(default_factory=dict)
    secrets: Mapping[str, Object] = msgspec.field(default_factory=dict)
    address: str
    """Of the pod."""
    host_address: str
    """Of its node."""


def plan(pod: Object, references: References) -> Object:
    """Return what is to be run. Raises UnsupportedPod, or MissingReference for what may come."""
    spec = pod["spec"]
    _check_unset("the pod", spec, _UNSUPPORTED_POD_FIELDS)
    if spec.get("restartPolicy", "Always") != "Never":
        raise UnsupportedPod("restartPolicy: only Never is done here: a Job makes another pod")
    return {
        "hostname": spec.get("hostname") or pod["metadata"]["name"],
        "address": references.address,
        "grace": spec.get("terminationGracePeriodSeconds", GRACE_SECONDS),
        "ports": [*_ports(spec, references)],
        "volumes": {
            each["name"]: _volume(each, pod, references) for each in spec.get("volumes") or ()
        },
        "init": [
            _init_container(each, pod, references) for each in spec.get("initContainers") or ()
        ],
        "containers": [_container(each, pod, references) for each in spec["containers"]],
    }


def config_maps_of(pod: Object) -> set[str]:
    """Return the names of the ConfigMaps that a pod needs."""
    return {*_referenced_names(pod, "configMap", "name", "configMapKeyRef", "configMapRef")}


def secrets_of(pod: Object) -> set[str]:
    """Return the names of the Secrets that a pod needs."""
    return {*_referenced_names(pod, "secret", "secretName", "secretKeyRef", "secretRef")}


def images_of(pod: Object) -> list[str]:
    """Return the references of a pod's images, each once."""
    return [*dict.fromkeys(each["image"] for each in _all_containers(pod["spec"]))]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable; `$$(NAME)` is `$(NAME)`, and what is unknown stays."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _VARIABLE_PATTERN.sub(value, text)


# What a pod names


def _all_containers(spec: Object) -> Iterator[Object]:
    yield from spec.get("initContainers") or ()
    yield from spec["containers"]


def _referenced_names(
    pod: Object, volume_field: str, name_field: str, variable_field: str, env_from_field: str
) -> Iterator[str]:
    spec = pod["spec"]
    for each in spec.get("volumes") or ():
        sources = [each, *(each.get("projected") or {}).get("sources", ())]
        # In a projected volume a Secret, too, is called by its `name`.
        references = [source[volume_field] for source in sources if volume_field in source]
        yield from (reference.get(name_field) or reference["name"] for reference in references)
    for container in _all_containers(spec):
        env_from = container.get("envFrom") or ()
        yield from (each[env_from_field]["name"] for each in env_from if env_from_field in each)
        for each in container.get("env") or ():
            reference = (each.get("valueFrom") or {}).get(variable_field)
            if reference is not None:
                yield reference["name"]


def _check_unset(subject: str, spec: Object, fields: Sequence[str]) -> None:
    present = [name for name in fields if spec.get(name)]
    if present:
        raise UnsupportedPod(f"{subject} asks for {alternatives(present)}, which is not done here")


# Ports


def _ports(spec: Object, references: References) -> Iterator[Object]:
    for container in spec["containers"]:
        for port in container.get("ports") or ():
            if port.get("protocol", "TCP") != "TCP":
                raise UnsupportedPod(f"container {container['name']}: only TCP ports are done here")
            if port.get("hostPort"):
                yield {
                    "host": port.get("hostIP") or references.host_address,
                    "port": port["hostPort"],
                    "to": port["containerPort"],
                }


# Volumes


def _volume(volume: Object, pod: Object, references: References) -> Object:
    if "hostPath" in volume:
        return {"path": volume["hostPath"]["path"]}
    if "emptyDir" in volume:
        limit = (volume["emptyDir"] or {}).get("sizeLimit")
        return {"size": None if limit is None else _parse_size(limit)}
    files = {}
    sources = (volume.get("projected") or {}).get("sources", [volume])
    for source in sources:
        files.update(_files(source, volume["name"], pod, references))
    return {"files": files}


def _parse_size(quantity: str | int) -> int:
    """Read a size as Kubernetes writes it: `500M`, `1Gi`."""
    match = _QUANTITY_PATTERN.fullmatch(str(quantity))
    if match is None:
        raise UnsupportedPod(f"{quantity!r} is no size: write it such as 500M or 1Gi")
    number, unit, exponent = match.groups()
    size = float(number) * (10.0 ** int(exponent) if unit is None else _UNIT_BYTES[unit])
    return min(int(size), _MOST_BYTES)


def _files(source: Object, volume_name: str, pod: Object, references: References) -> dict[str, str]:
    """Return the files that a volume has, as base64: what a Secret holds need not be text."""
    if "configMap" in source:
        reference = source["configMap"]
        data = _data(
            reference["name"],
            references.config_maps,
            "ConfigMap",
            optional=reference.get("optional"),
        )
    elif "secret" in source:
        reference = source["secret"]
        name = reference.get("secretName") or reference["name"]
        data = _data(name, references.secrets, "Secret", optional=reference.get("optional"))
    elif "downwardAPI" in source:
        items = source["downwardAPI"].get("items") or ()
        return {
            each["path"]: _encode(_field(each.get("fieldRef") or {}, pod, references))
            for each in items
        }
    else:
        raise UnsupportedPod(
            f"volume {volume_name}: emptyDir, hostPath, configMap, secret, downwardAPI and "
            "projected are done here"
        )
    items = reference.get("items")
    if items is None:
        return data
    missing = [each["key"] for each in items if each["key"] not in data]
    if missing and not reference.get("optional"):
        raise MissingReference(f"volume {volume_name}: nothing holds the key {missing[0]!r} yet")
    return {each["path"]: data[each["key"]] for each in items if each["key"] in data}


def _data(
    name: str, objects: Mapping[str, Object], kind: str, *, optional: bool | None
) -> dict[str, str]:
    """Return what a ConfigMap or a Secret holds, by key, as base64. Raises MissingReference."""
    obj = objects.get(name)
    if obj is None:
        if optional:
            return {}
        raise MissingReference(f"there is no {kind} {name}")
    plain_values = obj.get("stringData" if kind == "Secret" else "data") or {}
    encoded_values = obj.get("data" if kind == "Secret" else "binaryData") or {}
    return {**encoded_values, **{key: _encode(value) for key, value in plain_values.items()}}


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Containers


def _init_container(container: Object, pod: Object, references: References) -> Object:
    if container.get("restartPolicy"):
        raise UnsupportedPod(
            f"init container {container['name']} has a restartPolicy, which would have it run on "
            "beside the others: that is not done here"
        )
    return _container(container, pod, references)


def _container(container: Object, pod: Object, references: References) -> Object:
    name = container["name"]
    _check_unset(f"container {name}", container, _UNSUPPORTED_CONTAINER_FIELDS)
    security = {**(pod["spec"].get("securityContext") or {}),
               **(container.get("securityContext") or {})}  # fmt: skip
    _check_unset(f"container {name}", security, _FORBIDDEN_PRIVILEGES)
    if (security.get("capabilities") or {}).get("add"):
        raise UnsupportedPod(f"container {name} asks for capabilities, which no container has here")
    if not security.get("runAsUser") or not security.get("runAsGroup"):
        raise UnsupportedPod(
            f"container {name}: none runs as root, so runAsUser and runAsGroup are needed"
        )
    image = references.images[container["image"]]
    variables = _own_variables(container, pod, references)
    argv = [*(container.get("command") or image.entrypoint)]
    if container.get("args"):
        argv += container["args"]
    elif not container.get("command"):
        argv += image.command
    if not argv:
        raise UnsupportedPod(
            f"container {name}: its image {container['image']} has no command, nor has it"
        )
    return {
        "name": name,
        "root": image.root,
        "argv": [expand(each, variables) for each in argv],
        "environment": {
            "PATH": _DEFAULT_PATH,
            "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
            **image.environment,
            **variables,
        },
        "directory": container.get("workingDir") or image.working_directory or "/",
        "userid": security["runAsUser"],
        "groupid": security["runAsGroup"],
        "readOnly": bool(security.get("readOnlyRootFilesystem")),
        "memory": _memory_limit(container),
        "mounts": [_mount(each, name, variables) for each in container.get("volumeMounts") or ()],
    }


def _memory_limit(container: Object) -> int | None:
    """Return how many bytes of memory a container may have; None where it does not say."""
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else _parse_size(limit) or None


def _mount(mount: Object, container_name: str, variables: Mapping[str, str]) -> Object:
    subpath = mount.get("subPath", "")
    if expression := mount.get("subPathExpr"):
        names = {match[1] for match in _VARIABLE_PATTERN.finditer(expression)} - {None}
        if not names <= variables.keys():
            raise UnsupportedPod(
                f"container {container_name}: the subPathExpr {expression!r} names a variable that "
                "it does not have"
            )
        subpath = expand(expression, variables)
    if subpath.startswith("/") or ".." in subpath.split("/"):
        raise UnsupportedPod(
            f"container {container_name}: the subPath {subpath!r} leaves its volume"
        )
    return {
        "volume": mount["name"],
        "path": mount["mountPath"],
        "below": subpath,
        "readOnly": bool(mount.get("readOnly")),
    }


def _own_variables(container: Object, pod: Object, references: References) -> dict[str, str]:
    """Return the variables that a container is given; one may name those before it."""
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        for field_name, objects, kind in (
            ("configMapRef", references.config_maps, "ConfigMap"),
            ("secretRef", references.secrets, "Secret"),
        ):
            if field_name in source:
                reference = source[field_name]
                data = _data(reference["name"], objects, kind, optional=reference.get("optional"))
                variables |= {f"{prefix}{key}": _decode(value) for key, value in data.items()}
    for each in container.get("env") or ():
        value = _value(each, pod, references)
        if value is not None:
            variables[each["name"]] = expand(value, variables) if "value" in each else value
    return variables


def _decode(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


def _value(variable: Object, pod: Object, references: References) -> str | None:
    """Return the value of a variable; None for one that is left out.

    Raises MissingReference.
    """
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    if "fieldRef" in source:
        return _field(source["fieldRef"], pod, references)
    for name, objects, kind in (
        ("configMapKeyRef", references.config_maps, "ConfigMap"),
        ("secretKeyRef", references.secrets, "Secret"),
    ):
        if name in source:
            reference = source[name]
            data = _data(reference["name"], objects, kind, optional=reference.get("optional"))
            if reference["key"] in data:
                return _decode(data[reference["key"]])
            if reference.get("optional"):
                return None
            raise MissingReference(f"the {kind} {reference['name']} has no {reference['key']}")
    raise UnsupportedPod(
        f"variable {variable['name']}: {alternatives(sorted(source))} is not done here"
    )


def _field(reference: Mapping[str, Any], pod: Object, references: References) -> str:
    """Return a field of a pod (Kubernetes, "Downward API")."""
    path = reference.get("fieldPath", "")
    meta, spec = pod["metadata"], pod["spec"]
    fields = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta.get("namespace", ""),
        "metadata.uid": meta.get("uid", ""),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": references.host_address,
        "status.podIP": references.address,
        "status.podIPs": references.address,
    }
    if path in fields:
        return str(fields[path])
    subscript = _SUBSCRIPT_PATTERN.fullmatch(path)
    if subscript is not None:
        return str((meta.get(subscript[1]) or {}).get(subscript[2], ""))
    raise UnsupportedPod(f"the field {path!r} of a pod is not told to containers here")
