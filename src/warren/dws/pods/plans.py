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

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([-._a-zA-Z][-._a-zA-Z0-9]*)\))")
"""A variable in a command, `$(NAME)`, or the escape of its dollar."""

_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")

_QUANTITY: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([KMGT]i|[kMGT]|)")
_UNITS: Final = {
    "": 1,
    **{unit: 1000**power for power, unit in enumerate("kMGT", 1)},
    **{f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)},
}

_NOT_IN_PODS: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace")
_NOT_IN_CONTAINERS: Final = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
                             "volumeDevices", "stdin", "tty")  # fmt: skip
_NOT_ALLOWED: Final = ("privileged", "allowPrivilegeEscalation")


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
    directory: str = ""


class References(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a pod refers to, as they are now."""

    images: Mapping[str, Image]
    config_maps: Mapping[str, Object] = msgspec.field(default_factory=dict)
    secrets: Mapping[str, Object] = msgspec.field(default_factory=dict)
    address: str
    """Of the pod."""
    host_address: str
    """Of its node."""


def plan(pod: Object, found: References) -> Object:
    """Return what is to be run. Raises UnsupportedPod, or MissingReference for what may come."""
    spec = pod["spec"]
    _refuse("the pod", spec, _NOT_IN_PODS)
    if spec.get("restartPolicy", "Always") != "Never":
        raise UnsupportedPod("restartPolicy: only Never is done here: a Job makes another pod")
    return {
        "hostname": spec.get("hostname") or pod["metadata"]["name"],
        "address": found.address,
        "grace": spec.get("terminationGracePeriodSeconds", GRACE_SECONDS),
        "ports": [*_ports(spec, found)],
        "volumes": {each["name"]: _volume(each, pod, found) for each in spec.get("volumes") or ()},
        "init": [_container(each, pod, found) for each in spec.get("initContainers") or ()],
        "containers": [_container(each, pod, found) for each in spec["containers"]],
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

    return _REFERENCE.sub(value, text)


# What a pod names


def _all_containers(spec: Object) -> Iterator[Object]:
    yield from spec.get("initContainers") or ()
    yield from spec["containers"]


def _referenced_names(
    pod: Object, volume: str, name: str, variable: str, source: str
) -> Iterator[str]:
    spec = pod["spec"]
    for each in spec.get("volumes") or ():
        sources = [each, *(each.get("projected") or {}).get("sources", ())]
        # In a projected volume a Secret, too, is called by its `name`.
        said = [one[volume] for one in sources if volume in one]
        yield from (one.get(name) or one["name"] for one in said)
    for container in _all_containers(spec):
        whole = container.get("envFrom") or ()
        yield from (each[source]["name"] for each in whole if source in each)
        for each in container.get("env") or ():
            reference = (each.get("valueFrom") or {}).get(variable)
            if reference is not None:
                yield reference["name"]


def _refuse(what: str, spec: Object, names: Sequence[str]) -> None:
    asked = [name for name in names if spec.get(name)]
    if asked:
        raise UnsupportedPod(f"{what} asks for {alternatives(asked)}, which is not done here")


# Ports


def _ports(spec: Object, found: References) -> Iterator[Object]:
    for container in spec["containers"]:
        for port in container.get("ports") or ():
            if port.get("protocol", "TCP") != "TCP":
                raise UnsupportedPod(f"container {container['name']}: only TCP ports are done here")
            if port.get("hostPort"):
                yield {
                    "host": port.get("hostIP") or found.host_address,
                    "port": port["hostPort"],
                    "to": port["containerPort"],
                }


# Volumes


def _volume(volume: Object, pod: Object, found: References) -> Object:
    if "hostPath" in volume:
        return {"path": volume["hostPath"]["path"]}
    if "emptyDir" in volume:
        limit = (volume["emptyDir"] or {}).get("sizeLimit")
        return {"size": None if limit is None else _bytes(limit)}
    files = {}
    sources = (volume.get("projected") or {}).get("sources", [volume])
    for source in sources:
        files.update(_files(source, volume["name"], pod, found))
    return {"files": files}


def _bytes(quantity: str | int) -> int:
    """Read a size as Kubernetes writes it: `500M`, `1Gi`."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise UnsupportedPod(f"{quantity!r} is no size: write it such as 500M or 1Gi")
    return int(float(match[1]) * _UNITS[match[2]])


def _files(source: Object, volume: str, pod: Object, found: References) -> dict[str, str]:
    """Return the files that a volume has, as base64: what a Secret holds need not be text."""
    if "configMap" in source:
        said = source["configMap"]
        data = _data(said["name"], found.config_maps, "ConfigMap", optional=said.get("optional"))
    elif "secret" in source:
        said = source["secret"]
        name = said.get("secretName") or said["name"]
        data = _data(name, found.secrets, "Secret", optional=said.get("optional"))
    elif "downwardAPI" in source:
        items = source["downwardAPI"].get("items") or ()
        return {
            each["path"]: _encode(_field(each.get("fieldRef") or {}, pod, found)) for each in items
        }
    else:
        raise UnsupportedPod(
            f"volume {volume}: emptyDir, hostPath, configMap, secret, downwardAPI and projected "
            "are done here"
        )
    items = said.get("items")
    if items is None:
        return data
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
    text = obj.get("stringData" if kind == "Secret" else "data") or {}
    encoded = obj.get("data" if kind == "Secret" else "binaryData") or {}
    return {**encoded, **{key: _encode(value) for key, value in text.items()}}


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# Containers


def _container(container: Object, pod: Object, found: References) -> Object:
    name = container["name"]
    _refuse(f"container {name}", container, _NOT_IN_CONTAINERS)
    context = {**(pod["spec"].get("securityContext") or {}),
               **(container.get("securityContext") or {})}  # fmt: skip
    _refuse(f"container {name}", context, _NOT_ALLOWED)
    if (context.get("capabilities") or {}).get("add"):
        raise UnsupportedPod(f"container {name} asks for capabilities, which no container has here")
    if not context.get("runAsUser") or not context.get("runAsGroup"):
        raise UnsupportedPod(
            f"container {name}: none runs as root, so runAsUser and runAsGroup are needed"
        )
    image = found.images[container["image"]]
    own = _own_variables(container, pod, found)
    argv = [*(container.get("command") or image.entrypoint)]
    if "args" in container:
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
        "argv": [expand(each, own) for each in argv],
        "environment": {
            "PATH": _PATH,
            "HOSTNAME": pod["spec"].get("hostname") or pod["metadata"]["name"],
            **image.environment,
            **own,
        },
        "directory": container.get("workingDir") or image.directory or "/",
        "userid": context["runAsUser"],
        "groupid": context["runAsGroup"],
        "readOnly": bool(context.get("readOnlyRootFilesystem")),
        "mounts": [_mount(each, name) for each in container.get("volumeMounts") or ()],
    }


def _mount(mount: Object, container: str) -> Object:
    below = mount.get("subPath", "")
    if below.startswith("/") or ".." in below.split("/"):
        raise UnsupportedPod(f"container {container}: the subPath {below!r} leaves its volume")
    return {
        "volume": mount["name"],
        "path": mount["mountPath"],
        "below": below,
        "readOnly": bool(mount.get("readOnly")),
    }


def _own_variables(container: Object, pod: Object, found: References) -> dict[str, str]:
    """Return the variables that a container is given; one may name those before it."""
    own: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        prefix = source.get("prefix", "")
        for field_name, objects, kind in (
            ("configMapRef", found.config_maps, "ConfigMap"),
            ("secretRef", found.secrets, "Secret"),
        ):
            if field_name in source:
                said = source[field_name]
                data = _data(said["name"], objects, kind, optional=said.get("optional"))
                own |= {f"{prefix}{key}": _decode(value) for key, value in data.items()}
    for each in container.get("env") or ():
        value = _value(each, pod, found)
        if value is not None:
            own[each["name"]] = expand(value, own) if "value" in each else value
    return own


def _decode(text: str) -> str:
    return base64.b64decode(text).decode(errors="replace")


def _value(variable: Object, pod: Object, found: References) -> str | None:
    """Return the value of a variable; None for one that is left out.

    Raises MissingReference.
    """
    source = variable.get("valueFrom")
    if source is None:
        return str(variable.get("value", ""))
    if "fieldRef" in source:
        return _field(source["fieldRef"], pod, found)
    for name, objects, kind in (
        ("configMapKeyRef", found.config_maps, "ConfigMap"),
        ("secretKeyRef", found.secrets, "Secret"),
    ):
        if name in source:
            said = source[name]
            data = _data(said["name"], objects, kind, optional=said.get("optional"))
            if said["key"] in data:
                return _decode(data[said["key"]])
            if said.get("optional"):
                return None
            raise MissingReference(f"the {kind} {said['name']} has no {said['key']}")
    raise UnsupportedPod(
        f"variable {variable['name']}: {alternatives(sorted(source))} is not done here"
    )


def _field(reference: Mapping[str, Any], pod: Object, found: References) -> str:
    """Return a field of a pod (Kubernetes, "Downward API")."""
    path = reference.get("fieldPath", "")
    meta, spec = pod["metadata"], pod["spec"]
    known = {
        "metadata.name": meta["name"],
        "metadata.namespace": meta.get("namespace", ""),
        "metadata.uid": meta.get("uid", ""),
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", ""),
        "status.hostIP": found.host_address,
        "status.podIP": found.address,
        "status.podIPs": found.address,
    }
    if path in known:
        return str(known[path])
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript is not None:
        return str((meta.get(subscript[1]) or {}).get(subscript[2], ""))
    raise UnsupportedPod(f"the field {path!r} of a pod is not told to containers here")
