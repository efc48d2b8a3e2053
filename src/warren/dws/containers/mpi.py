"""An MPI application beside a job: a launcher on the first rabbit, and a worker on each.

The launcher's `mpirun` reaches the workers by ssh, all of them as the job's user: workers run an
sshd that needs no privileges, with keys that are made for one Workflow. Names, variables and
places are those of the mpi-operator (dws-spec section 12.3), which is not needed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from warren.base.objects import Object
from warren.dws import children
from warren.dws.containers.applications import PASSWD_MOUNTS, Application
from warren.dws.containers.containerprofiles import MPI_VOLUME, SSH_VOLUME, Mpi
from warren.dws.objects.meta import Meta

_HOME: Final = "/home/mpiuser"
_SSH_DIRECTORY: Final = f"{_HOME}/.ssh"
_CONFIG_DIRECTORY: Final = "/etc/mpi"
_SSH_PORT: Final = 2222
"""Where workers listen: one that users may have everywhere."""

_ROLE_LABEL: Final = "training.kubeflow.org/job-role"
_WORKER_ROLE: Final = "worker"

_SSHD_COMMAND: Final = ["/usr/sbin/sshd", "-D", "-e", "-f", f"{_SSH_DIRECTORY}/sshd_config"]

_HOST_KEY_ALIAS: Final = "worker"
"""The name under which all workers have the same host key."""

_SSH_CONFIG: Final = f"""\
Host *
    Port {_SSH_PORT}
    BatchMode yes
    ConnectTimeout 10
    LogLevel ERROR
    HostKeyAlias {_HOST_KEY_ALIAS}
    StrictHostKeyChecking yes
    UserKnownHostsFile {_SSH_DIRECTORY}/known_hosts
    IdentityFile {_SSH_DIRECTORY}/id_rsa
"""

_SSHD_CONFIG: Final = f"""\
Port {_SSH_PORT}
HostKey {_SSH_DIRECTORY}/id_rsa
AuthorizedKeysFile {_SSH_DIRECTORY}/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PidFile none
StrictModes no
UsePAM no
"""

_SSH_FILES: Final = [
    "id_rsa",
    "id_rsa.pub",
    "authorized_keys",
    "known_hosts",
    "config",
    "sshd_config",
]
"""What is in a user's directory of ssh. Programs look for a key of any type in id_rsa."""

_HOST_FILES: Final = ["hostfile", "hydra_hostfile"]

_COPY_SCRIPT: Final = "umask 077 && cp /ssh-keys/* /ssh/"
"""ssh refuses keys that others may read, which those of a volume may be."""

_WAIT_SCRIPT: Final = """\
name=$1; shift
for host; do
    until
        said=$(ssh $host "ssh -v -o ConnectTimeout=1 $name true 2>&1; true") &&
        case $said in
        *"[$POD_IP]"*) ;;
        *"Connecting to"* | *"not resolve"*) false ;;
        esac
    do sleep 0.2; done
done
"""
"""Wait until hosts answer, and know the first argument as the name of this pod.

What Hydra starts on them connects to the launcher by the name that it gives itself, and Hydra waits
for ever for one that could not. Workers learn that name after the launcher has begun, and the new
one's address after they knew that of a launcher that failed. Nothing listens on the launcher yet:
what counts is where they look for it. Of all programs that tell it, images have ssh alone for
certain; where a worker has none, nothing is waited for. It ends with the time that the profile
gives pods to start.
"""


class SshKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key pair, as OpenSSH writes it."""

    private: str = ""
    public: str = ""


def _mpi_spec(application: Application) -> Mpi:
    return application.profile.data.mpi_spec or Mpi()


def _pods_domain(application: Application) -> str:
    meta = application.workflow.metadata
    return f"{meta.name}.{meta.namespace}.svc.cluster.local"


def _secret_name(application: Application) -> str:
    return f"{application.workflow.metadata.name}-mpi"


def ssh_secret(application: Application, key: SshKey) -> Object:
    """Make the Secret by which the launcher and its workers know each other."""
    slots = _mpi_spec(application).slots_per_worker or 1
    hosts = [f"{worker}.{_pods_domain(application)}" for worker in application.worker_names]
    name = _secret_name(application)
    return {
        "metadata": children.metadata(application.workflow, name, application.index),
        "type": "Opaque",
        "immutable": True,
        "stringData": {
            "id_rsa": key.private,
            "id_rsa.pub": key.public,
            "authorized_keys": f"{key.public}\n",
            "known_hosts": f"{_HOST_KEY_ALIAS} {key.public}\n",
            "config": _SSH_CONFIG,
            "sshd_config": _SSHD_CONFIG,
            # As Open MPI reads it, and as MPICH does.
            "hostfile": "".join(f"{host} slots={slots}\n" for host in hosts),
            "hydra_hostfile": "".join(f"{host}:{slots}\n" for host in hosts),
        },
    }


def jobs(application: Application) -> Iterator[Object]:
    """Make the Jobs of the launcher, and of the worker of each rabbit."""
    mpi = _mpi_spec(application)
    first_rabbit = application.rabbits[0]
    launcher_name = application.launcher_name
    pod = application.pod(mpi.launcher, first_rabbit, launcher_name, application.ports, _HOME)
    launcher = _as_launcher(_with_ssh(application, pod), application)
    yield application.job(launcher_name, launcher, {_ROLE_LABEL: "launcher"})
    for rabbit, name in zip(application.rabbits, application.worker_names, strict=True):
        pod = _with_ssh(application, application.pod(mpi.worker, rabbit, name, home=_HOME))
        pod["containers"][0] = _as_worker(pod["containers"][0])
        yield application.job(name, pod, {_ROLE_LABEL: _WORKER_ROLE})


def _with_ssh(application: Application, pod: Any) -> Any:
    """Return a pod whose containers reach the others by ssh."""
    secret = _secret_name(application)
    copy_container = {
        "name": "mpi-init-ssh",
        "image": pod["containers"][0]["image"],
        "command": ["/bin/sh", "-c", _COPY_SCRIPT],
        "securityContext": application.security_context,
        "volumeMounts": [
            {"name": f"{SSH_VOLUME}-keys", "mountPath": "/ssh-keys", "readOnly": True},
            {"name": SSH_VOLUME, "mountPath": "/ssh"},
        ],
    }
    return {
        **pod,
        # Process managers name hosts as these name themselves, without the subdomain.
        "dnsConfig": {"searches": [_pods_domain(application)]},
        "initContainers": [*pod["initContainers"], copy_container],
        "containers": [
            {**each, "volumeMounts": [*each["volumeMounts"], *_mounts()]}
            for each in pod["containers"]
        ],
        "volumes": [
            *pod["volumes"],
            {"name": SSH_VOLUME, "emptyDir": {}},
            {"name": f"{SSH_VOLUME}-keys", "secret": _secret_volume(secret, _SSH_FILES)},
            {"name": MPI_VOLUME, "secret": _secret_volume(secret, _HOST_FILES)},
        ],
    }


def _secret_volume(secret: str, names: list[str]) -> Object:
    return {"secretName": secret, "items": [{"key": name, "path": name} for name in names]}


def _mounts() -> Iterator[Object]:
    yield {"name": SSH_VOLUME, "mountPath": _SSH_DIRECTORY}
    yield {"name": MPI_VOLUME, "mountPath": _CONFIG_DIRECTORY, "readOnly": True}


def _as_launcher(pod: Any, application: Application) -> Any:
    """Return a pod that begins when all workers answer and know it, with their host files."""
    meta = application.workflow.metadata
    hosts = [f"{worker}.{meta.name}" for worker in application.worker_names]
    wait_container = {
        "name": f"mpi-wait-for-{len(hosts)}-workers",
        "image": pod["containers"][0]["image"],
        "command": ["/bin/sh", "-c", _WAIT_SCRIPT, "sh", application.launcher_name, *hosts],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "securityContext": application.security_context,
        "volumeMounts": [*PASSWD_MOUNTS, *_mounts()],
    }
    default_variables = {
        "OMPI_MCA_orte_default_hostfile": f"{_CONFIG_DIRECTORY}/hostfile",
        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
        "HYDRA_HOST_FILE": f"{_CONFIG_DIRECTORY}/hydra_hostfile",
    }
    variables = [{"name": name, "value": value} for name, value in default_variables.items()]
    return {
        **pod,
        "initContainers": [*pod["initContainers"], wait_container],
        "containers": [
            # A variable of the profile takes precedence.
            {**each, "env": [*variables, *each["env"]]}
            for each in pod["containers"]
        ],
    }


def _as_worker(container: Mapping[str, Any]) -> Object:
    """Return a worker's container: it runs sshd, unless its profile has a command."""
    if container.get("command") or container.get("args"):
        return container
    return {**container, "command": [*_SSHD_COMMAND]}


def is_worker(job_meta: Meta) -> bool:
    """Return whether a Job is a worker's: it ends when it is removed."""
    return job_meta.labels.get(_ROLE_LABEL) == _WORKER_ROLE
