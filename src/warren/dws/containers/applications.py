"""What an application beside a job is made of: a Service, a ConfigMap, and a batch Job per rabbit.

The profile's pod, with the storage, variables, ports and identity that it has for one Workflow
(dws-spec section 12.3; the ConfigMap is the container RFC's). What an MPI application has besides
is in `dws.containers.mpi`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from warren.base.objects import Object
from warren.dws import children, containerauth, labels
from warren.dws.containers import indexmounts
from warren.dws.containers.containerprofiles import (
    CONFIG_VOLUME,
    HOST_PASSWD_VOLUME,
    PASSWD_VOLUME,
    SHADOW_VOLUME,
    ContainerProfile,
    StorageNeed,
    port_count_of,
    volume_name,
)
from warren.dws.containers.indexmounts import IndexMount
from warren.dws.objects.workflows import Workflow

FOREGROUND_FINALIZER: Final = "foregroundDeletion"
"""Keeps a Job, however it is deleted, until its pods have gone: what they use is unmounted then."""

_INIT_CONTAINER: Final = "user-init-passwd"

_INIT_SCRIPT: Final = """\
name=user
while IFS=: read -r entry _ uid gid _; do
    if [ "$uid:$gid" = "{userid}:{groupid}" ]; then name=$entry; break; fi
done < /host/passwd
{{
    while IFS=: read -r entry word uid rest; do
        [ "$uid" = "{userid}" ] || [ "$entry" = "$name" ] || echo "$entry:$word:$uid:$rest"
    done < /etc/passwd
    echo "$name:x:{userid}:{groupid}::{home}:/bin/sh"
}} > /config/passwd
echo "$name:*:::::::" > /config-shadow/shadow
"""
"""Gives the job's user a name in the container: the one that the rabbit knows, or `user`."""


PASSWD_MOUNTS: Final = (
    {"name": PASSWD_VOLUME, "mountPath": "/etc/passwd", "subPath": "passwd"},
    {"name": SHADOW_VOLUME, "mountPath": "/etc/shadow", "subPath": "shadow"},
)
"""The mounts by which the user has a name in a container."""


class ApplicationStorage(msgspec.Struct, frozen=True, kw_only=True):
    """A storage as one application has it."""

    need: StorageNeed
    path: str
    """Where rabbits have it mounted."""
    claim_name: str | None = None
    """The name of the volume claim of a global file system."""
    allocation_numbers: Mapping[str, int] | None = None
    """Which allocation of its rabbit is each compute node's; None for storage without such."""
    is_raw: bool = False
    """Whether these are devices, and no directories."""

    @property
    def name(self) -> str:
        """The name of its volume in pods."""
        return volume_name(self.need.name)

    @property
    def container_path(self) -> str:
        """Where it is in containers."""
        return self.need.container_path or self.path

    def index_mount(self, rabbit: str, nodes: Sequence[str]) -> IndexMount | None:
        """Return what these nodes of a rabbit have of it; None for storage that is whole."""
        if self.allocation_numbers is None:
            return None
        return indexmounts.index_mount_for(
            self.name, rabbit, nodes, self.allocation_numbers, is_raw=self.is_raw
        )

    def pod_volume(self) -> Object:
        """Write it as a volume of a pod."""
        if self.claim_name is not None:
            return {"name": self.name, "persistentVolumeClaim": {"claimName": self.claim_name}}
        return {"name": self.name, "hostPath": {"path": self.path, "type": "Directory"}}


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """What one directive runs."""

    workflow: Workflow
    index: int
    """Of the directive."""
    name: str
    """Which the directive gives it."""
    profile: ContainerProfile
    storages: Sequence[ApplicationStorage] = ()
    """What the directive gives it."""
    nodes_by_rabbit: Mapping[str, Sequence[str]]
    """The compute nodes of the Workflow, by rabbit."""
    ports: Sequence[int] = ()

    @property
    def rabbits(self) -> list[str]:
        return sorted(self.nodes_by_rabbit)

    @property
    def is_mpi(self) -> bool:
        """Whether it is a launcher and workers, and not the same on each rabbit."""
        return self.profile.data.mpi_spec is not None

    @property
    def launcher_name(self) -> str:
        """Return the name of the launcher of an MPI application, and of its Job."""
        return f"{self.workflow.metadata.name}-launcher"

    @property
    def worker_names(self) -> list[str]:
        """Return the names of the workers of an MPI application, in the order of the rabbits."""
        return [f"{self.workflow.metadata.name}-worker-{n}" for n, _ in enumerate(self.rabbits)]

    @property
    def hostnames(self) -> list[str]:
        """Return the names of its pods in the subdomain."""
        return [self.launcher_name, *self.worker_names] if self.is_mpi else self.rabbits

    def job_name(self, rabbit: str) -> str:
        """Return the name of the Job on a rabbit."""
        return f"{self.workflow.metadata.name}-{rabbit}"

    def variables(self) -> dict[str, str]:
        """Return what containers and the job's tasks are told of the application."""
        return {
            **port_variables(self.profile, self.ports),
            "NNF_CONTAINER_SUBDOMAIN": self.workflow.metadata.name,
            "NNF_CONTAINER_DOMAIN": self._domain,
            "NNF_CONTAINER_HOSTNAMES": ",".join(self.hostnames),
            # As the container RFC calls it.
            "NNF_CONTAINER_NODES": " ".join(self.rabbits),
        }

    @property
    def _domain(self) -> str:
        return f"{self.workflow.metadata.namespace}.svc.cluster.local"

    def service(self) -> Object:
        """Make the headless Service by which containers find each other."""
        name = self.workflow.metadata.name
        return {
            "metadata": children.metadata(self.workflow, name),
            "spec": {
                "clusterIP": "None",
                "selector": {labels.CONTAINER: name},
                # Names resolve from the start, so that those who start first may wait for others.
                "publishNotReadyAddresses": True,
            },
        }

    @property
    def config_name(self) -> str:
        return f"{self.workflow.metadata.name}-container-{self.name}"

    def config(self) -> Object | None:
        """Make the ConfigMap of the container RFC, if the profile mounts it."""
        mounted_names = {
            mount.get("name")
            for pod in self.profile.pods
            for container in pod.get("containers") or ()
            for mount in container.get("volumeMounts") or ()
        }
        if CONFIG_VOLUME not in mounted_names:
            return None
        storages = [
            {
                "name": each.need.name,
                "mountPath": each.container_path,
                "mountType": "mount" if each.allocation_numbers is None else "indexed-mount",
            }
            for each in self.storages
        ]
        data = {
            "nnfContainerNodes": json.dumps(self.rabbits),
            "nnfContainerSubdomain": self.workflow.metadata.name,
            "nnfContainerDomain": self._domain,
            "storages": json.dumps(storages),
            "computes": json.dumps(
                {each: list(self.nodes_by_rabbit[each]) for each in self.rabbits}
            ),
        }
        meta = children.metadata(self.workflow, self.config_name, self.index)
        return {"metadata": meta, "data": data}

    def jobs(self) -> Iterator[Object]:
        """Make the Job of each rabbit."""
        for rabbit in self.rabbits:
            pod = self.pod(self.profile.data.spec or {}, rabbit, rabbit, self.ports)
            yield self.job(self.job_name(rabbit), pod)

    def job(self, name: str, pod: Object, more_labels: Mapping[str, str] = {}) -> Object:
        """Make a Job of one pod, with `more_labels` beside those that all have."""
        meta = children.metadata(self.workflow, name, self.index, FOREGROUND_FINALIZER)
        meta["labels"] |= {**self._labels, **more_labels}
        return {
            "metadata": meta,
            "spec": {
                "backoffLimit": self.profile.data.retry_limit,
                "completions": 1,
                "parallelism": 1,
                "template": {"metadata": {"labels": meta["labels"]}, "spec": pod},
            },
        }

    @property
    def _labels(self) -> dict[str, str]:
        meta = self.workflow.metadata
        return {
            labels.CONTAINER: meta.name,
            labels.PINNED_CONTAINER_PROFILE_NAME: children.name(self.workflow, self.index),
            labels.PINNED_CONTAINER_PROFILE_NAMESPACE: meta.namespace,
        }

    def pod(
        self,
        pod_spec: Mapping[str, Any],
        rabbit: str,
        hostname: str,
        ports: Sequence[int] = (),
        home: str = "/home/user",
    ) -> Any:
        """Make a pod of what a profile says of it, with the ports that its containers have."""
        init_containers = [
            {
                **each,
                "securityContext": self.security_context,
                # Whole: as with NNF these run before what makes the links.
                "volumeMounts": list(self._own_mounts(each)),
            }
            for each in pod_spec.get("initContainers", ())
        ]
        image = pod_spec["containers"][0]["image"]
        return {
            "automountServiceAccountToken": False,
            **pod_spec,
            "initContainers": [*init_containers, self._init_container(rabbit, image, home)],
            "containers": list(self._containers(pod_spec["containers"], rabbit, ports)),
            "volumes": [*pod_spec.get("volumes", ()), *self._pod_volumes()],
            "hostname": hostname,
            "subdomain": self.workflow.metadata.name,
            "restartPolicy": "Never",
            "nodeSelector": {"kubernetes.io/hostname": rabbit},
            "tolerations": [
                {
                    "key": "cray.nnf.node",
                    "operator": "Equal",
                    "value": "true",
                    "effect": "NoSchedule",
                }
            ],
            "securityContext": {"fsGroup": self.workflow.spec.group_id},
        }

    def _pod_volumes(self) -> Iterator[Object]:
        yield {"name": PASSWD_VOLUME, "emptyDir": {}}
        yield {"name": SHADOW_VOLUME, "emptyDir": {}}
        yield {"name": HOST_PASSWD_VOLUME, "hostPath": {"path": "/etc/passwd", "type": "File"}}
        for each in self.storages:
            yield each.pod_volume()
        if any(each.allocation_numbers is not None for each in self.storages):
            yield indexmounts.pod_volume()
        if self.config() is not None:
            yield {"name": CONFIG_VOLUME, "configMap": {"name": self.config_name}}
        yield from containerauth.volumes(self.workflow)

    @property
    def security_context(self) -> Object:
        """Return the security context of all containers: the job's user, without powers."""
        spec = self.workflow.spec
        return {
            "runAsUser": spec.user_id,
            "runAsGroup": spec.group_id,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }

    def _index_mounts(self, rabbit: str) -> dict[str, IndexMount]:
        """Return what is in the place of each indexed storage on a rabbit, by its volume."""
        nodes = self.nodes_by_rabbit[rabbit]
        index_mounts = [each.index_mount(rabbit, nodes) for each in self.storages]
        return {each.volume: each for each in index_mounts if each is not None}

    def _init_container(self, rabbit: str, image: str, home: str) -> Object:
        """Make the init container that gives the user a name, and storage its links."""
        spec = self.workflow.spec
        script = _INIT_SCRIPT.format(userid=spec.user_id, groupid=spec.group_id, home=home)
        index_mounts = self._index_mounts(rabbit).values()
        return {
            "name": _INIT_CONTAINER,
            "image": image,
            "command": [
                "/bin/sh",
                "-c",
                "".join([script, *(each.script() for each in index_mounts)]),
            ],
            "securityContext": self.security_context,
            "volumeMounts": [
                {"name": PASSWD_VOLUME, "mountPath": "/config"},
                {"name": SHADOW_VOLUME, "mountPath": "/config-shadow"},
                {"name": HOST_PASSWD_VOLUME, "mountPath": "/host/passwd", "readOnly": True},
                *([indexmounts.init_mount()] if index_mounts else []),
            ],
        }

    def _containers(
        self, containers: Sequence[Mapping[str, Any]], rabbit: str, ports: Sequence[int]
    ) -> Iterator[Object]:
        remaining_ports = iter(ports)
        for container in containers:
            count = port_count_of(container, self.profile.data.num_ports)
            container_ports = list(islice(remaining_ports, count))
            prepared = {
                **container,
                "env": [*container.get("env", ()), *self._environment(container)],
                "securityContext": self.security_context,
                "volumeMounts": list(self._mounts(container, rabbit)),
            }
            port_mappings = list(_port_mappings(container, container_ports))
            yield {**prepared, "ports": port_mappings} if port_mappings else prepared

    def _environment(self, container: Mapping[str, Any]) -> Iterator[Object]:
        meta = self.workflow.metadata
        values = {
            **{each.need.argument: _container_path(container, each) for each in self.storages},
            **self.variables(),
            **containerauth.variables(self.workflow),
            "DW_WORKFLOW_NAME": meta.name,
            "DW_WORKFLOW_NAMESPACE": meta.namespace,
        }
        for name, value in values.items():
            yield {"name": name, "value": value}
        field_reference = {"fieldRef": {"fieldPath": "spec.nodeName"}}
        yield {"name": "NNF_NODE_NAME", "valueFrom": field_reference}

    def _mounts(self, container: Mapping[str, Any], rabbit: str) -> Iterator[Object]:
        index_mounts = self._index_mounts(rabbit)
        for each in self._whole_mounts(container):
            index_mount = index_mounts.get(each["name"])
            # A mount that names a part of a storage is of what rabbits have there.
            if index_mount is None or each.get("subPath") or each.get("subPathExpr"):
                yield each
            else:
                yield from index_mount.mounts(each)

    def _own_mounts(self, container: Mapping[str, Any]) -> Iterator[Object]:
        """Return what a container's profile mounts there, without storage that is not given."""
        volume_names = {each.name for each in self.storages}
        ungiven_names = {
            volume_name(each.name) for each in self.profile.data.storages
        } - volume_names
        profile_mounts = container.get("volumeMounts", ())
        yield from (each for each in profile_mounts if each["name"] not in ungiven_names)

    def _whole_mounts(self, container: Mapping[str, Any]) -> Iterator[Object]:
        """Return what a container mounts, before storage is divided among compute nodes."""
        mounted_names = {each["name"] for each in container.get("volumeMounts", ())}
        yield from self._own_mounts(container)
        yield from PASSWD_MOUNTS
        for each in self.storages:
            if each.name not in mounted_names:
                yield {"name": each.name, "mountPath": each.container_path}
        yield from containerauth.mounts(self.workflow)


def _container_path(container: Mapping[str, Any], storage: ApplicationStorage) -> str:
    """Return where a container has a storage: it may say so itself."""
    for mount in container.get("volumeMounts", ()):
        if mount["name"] == storage.name:
            return str(mount["mountPath"])
    return storage.container_path


def _port_mappings(container: Mapping[str, Any], ports: Sequence[int]) -> Iterator[Object]:
    """Map the rabbit's ports to those that the container declares, and others to themselves."""
    declared = list(container.get("ports", ()))
    for number, port in enumerate(ports):
        port_mapping = declared[number] if number < len(declared) else {"containerPort": port}
        yield {"protocol": "TCP", **port_mapping, "hostPort": port}


def port_variables(profile: ContainerProfile, ports: Sequence[int]) -> dict[str, str]:
    """Return what names the ports of each container; nothing where there are none."""
    if not ports:
        return {}
    variables = {"NNF_CONTAINER_PORTS": ",".join(map(str, ports))}
    first = 0
    for container in profile.containers:
        count = port_count_of(container, profile.data.num_ports)
        name = container["name"].replace("-", "_")
        variables[f"NNF_CONTAINER_PORTS_{name}"] = ",".join(map(str, ports[first : first + count]))
        first += count
    return variables
