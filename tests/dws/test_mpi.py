"""MPI applications beside a job: a launcher, its workers, and how they reach each other."""

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.dws import nnf_objects
from tests.dws.builders import changes, made, meta, workflow
from tests.dws.test_containers import application, condition, environment, job, pinned, view
from tests.dws.test_driver import driver, told
from tests.rfc.vectors import vector
from warren.base.objects import Object, Write
from warren.dws import kinds
from warren.dws.containers import containerprofiles, mpi
from warren.dws.containers.mpi import SshKey
from warren.dws.pods.batchjobs import BatchJob
from warren.dws.workflow.driver import decide

BESIDE = "#DW container name=beside profile=ring"
RING: dict[str, Any] = {
    "kind": "NnfContainerProfile",
    "metadata": meta("ring", "nnf-system"),
    "data": {
        "mpiSpec": {
            "slotsPerWorker": 2,
            "launcher": {
                "containers": [
                    {
                        "name": "main",
                        "image": "launcher:1",
                        "command": ["mpirun", "ring"],
                        "ports": [{"containerPort": 80}],
                    }
                ]
            },
            "worker": {"containers": [{"name": "worker", "image": "worker:1"}]},
        },
    },
}
KEY = SshKey(private="private", public="ssh-ed25519 AAAA")


def pods(profile: Object = RING) -> dict[str, Any]:
    found = mpi.jobs(application(profile, storages=[]))
    return {job["metadata"]["name"]: job["spec"]["template"]["spec"] for job in found}


def test_the_launcher_is_on_the_first_rabbit_and_a_worker_is_on_each() -> None:
    """Statement 001.17: the profile chooses the way. Statement 001.18: launcher and workers."""
    where = {name: each["nodeSelector"]["kubernetes.io/hostname"] for name, each in pods().items()}
    assert where == {"wf-launcher": "r0", "wf-worker-0": "r0", "wf-worker-1": "r1"}
    assert [each["hostname"] for each in pods().values()] == [*where]
    (main,) = pods()["wf-launcher"]["containers"]
    assert main["command"] == ["mpirun", "ring"]


def test_all_of_them_are_the_jobs_user_without_powers() -> None:
    for each in pods().values():
        for container in (*each["initContainers"], *each["containers"]):
            assert container["securityContext"]["runAsUser"] == 1001
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_worker_waits_for_ssh_unless_its_profile_says_what_it_does() -> None:
    (worker,) = pods()["wf-worker-1"]["containers"]
    assert worker["command"][0] == "/usr/sbin/sshd"
    own = {"containers": [{"name": "worker", "image": "w", "command": ["/own"]}]}
    spec = {**RING["data"]["mpiSpec"], "worker": own}
    (worker,) = pods({**RING, "data": {"mpiSpec": spec}})["wf-worker-1"]["containers"]
    assert worker["command"] == ["/own"]


def test_the_launcher_begins_when_its_workers_answer() -> None:
    waiting = pods()["wf-launcher"]["initContainers"][-1]
    assert waiting["name"] == "mpi-wait-for-2-workers"
    hosts = ["wf-worker-0.wf", "wf-worker-1.wf"]
    assert waiting["command"][3:] == ["sh", "wf-launcher", *hosts]
    names = [each["name"] for each in pods()["wf-worker-0"]["initContainers"]]
    assert names == ["user-init-passwd", "mpi-init-ssh"]


SSH = """\
#!/bin/sh
case $1 in
wf-worker-*)
    echo "$1" >>asked
    shift
    exec sh -c "$*" ;;
esac
answer=$(head -n 1 answers)
sed -i 1d answers
echo "$answer" >&2
exit 255
"""
"""Reaches workers, whose ssh says of the launcher what is next in `answers`."""

UNKNOWN = "ssh: Could not resolve hostname wf-launcher: Name or service not known"
ELSEWHERE = "debug1: Connecting to wf-launcher [10.0.1.2] port 2222."
KNOWN = "debug1: Connecting to wf-launcher [10.0.1.3] port 2222."
NO_SSH = "sh: ssh: not found"


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([KNOWN, KNOWN], "01"),
        ([UNKNOWN, UNKNOWN, KNOWN, KNOWN], "0001"),
        ([KNOWN, UNKNOWN, KNOWN], "011"),
        ([ELSEWHERE, KNOWN, KNOWN], "001"),
        ([NO_SSH, KNOWN], "01"),
    ],
)
def test_the_launcher_begins_when_its_workers_know_it_too(
    tmp_path: Path, answers: list[str], asked: str
) -> None:
    """They know it by the address that it has now, which one before it had not."""
    waiting = pods()["wf-launcher"]["initContainers"][-1]
    (variable,) = waiting["env"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "answers").write_text("".join(f"{each}\n" for each in answers))
    known = {"PATH": f"{tmp_path}:{os.environ['PATH']}", variable["name"]: "10.0.1.3"}
    subprocess.run(waiting["command"], cwd=tmp_path, env=known, check=True)
    assert (tmp_path / "answers").read_text() == ""
    hosts = (tmp_path / "asked").read_text().split()
    assert hosts == [f"wf-worker-{number}.wf" for number in asked]


def test_a_worker_that_does_not_answer_is_asked_again(tmp_path: Path) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\n[ -e once ] || { touch once; exit 255; }\n")
    (tmp_path / "ssh").chmod(0o755)
    known = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "POD_IP": "10.0.1.3"}
    command = pods()["wf-launcher"]["initContainers"][-1]["command"]
    subprocess.run(command, cwd=tmp_path, env=known, check=True)
    assert (tmp_path / "once").exists()


def test_an_mpi_application_has_the_variables_of_others() -> None:
    """Statement 001.29: the same names; those of the hosts are launcher and workers."""
    (main,) = pods()["wf-launcher"]["containers"]
    variables = environment(main)
    assert variables["NNF_CONTAINER_HOSTNAMES"] == "wf-launcher,wf-worker-0,wf-worker-1"
    assert variables["NNF_CONTAINER_NODES"] == "r0 r1"
    assert variables["NNF_CONTAINER_SUBDOMAIN"] == "wf"
    assert variables["NNF_CONTAINER_PORTS"] == "5000"
    assert [each["hostPort"] for each in main["ports"]] == [5000]
    for each in ("OMPI_MCA_orte_default_hostfile", "HYDRA_HOST_FILE"):
        assert variables[each].startswith("/etc/mpi/")


def test_the_ports_are_the_launchers() -> None:
    (worker,) = pods()["wf-worker-0"]["containers"]
    assert "ports" not in worker


def test_hosts_are_listed_with_their_slots_as_each_mpi_reads_it() -> None:
    data = mpi.ssh_secret(application(RING, storages=[]), KEY)["stringData"]
    domain = "wf.default.svc.cluster.local"
    assert data["hostfile"].splitlines() == [
        f"wf-worker-0.{domain} slots=2",
        f"wf-worker-1.{domain} slots=2",
    ]
    assert data["hydra_hostfile"].splitlines()[0] == f"wf-worker-0.{domain}:2"


def test_only_those_who_have_the_key_of_the_workflow_are_let_in_and_believed() -> None:
    secret = mpi.ssh_secret(application(RING, storages=[]), KEY)
    assert secret["immutable"]
    assert secret["stringData"]["id_rsa"] == "private"
    assert secret["stringData"]["authorized_keys"] == "ssh-ed25519 AAAA\n"
    assert secret["stringData"]["known_hosts"].endswith("ssh-ed25519 AAAA\n")
    assert "PasswordAuthentication no" in secret["stringData"]["sshd_config"]
    assert "StrictHostKeyChecking yes" in secret["stringData"]["config"]
    for each in pods().values():
        named = {volume["name"]: volume["secret"] for volume in each["volumes"]
                 if "secret" in volume}  # fmt: skip
        assert {volume["secretName"] for volume in named.values()} == {"wf-mpi"}
        # Applications do not see the keys' volume, whose files others might read.
        mounted = [mount["name"] for one in each["containers"] for mount in one["volumeMounts"]]
        assert "ssh-auth-keys" not in mounted


def test_names_are_those_of_the_mpi_operator() -> None:
    """Statement 001.20: the form of the seed is read."""
    vector("nnf-objects/profiles.json")
    found = nnf_objects.dump(nnf_objects.PLACE / "08c-container-mpi" / "04-PreRun-waiting.json")
    (theirs,) = found["MPIJob"]
    replicas = theirs["spec"]["mpiReplicaSpecs"]
    profile = {**RING, "data": {"mpiSpec": {"mpiReplicaSpecs": replicas}}}
    read = containerprofiles.decode(profile)
    assert read.data.mpi_spec is not None
    (main,) = replicas["Launcher"]["template"]["spec"]["containers"]
    names = environment(main)["NNF_CONTAINER_HOSTNAMES"].split(",")
    ours = application(RING, storages=[]).hostnames
    workflow_name = theirs["metadata"]["name"]
    assert [each.replace("wf-", f"{workflow_name}-", 1) for each in ours] == names


# Its life


def ring(state: str, **more: Any) -> list[Write]:
    known = {"pinned_container_profiles": pinned(RING, 0), "new_ssh_key": lambda: KEY, **more}
    return decide(view(workflow(BESIDE, state=state), **known))


def workers(**status: Any) -> dict[str, BatchJob]:
    found = {**job("wf-worker-0", **status), **job("wf-worker-1", **status)}
    role = {"training.kubeflow.org/job-role": "worker"}
    return {
        name: msgspec.structs.replace(
            each, metadata=msgspec.structs.replace(each.metadata, labels=role)
        )
        for name, each in found.items()
    }


def test_prerun_makes_the_keys_before_what_uses_them() -> None:
    writes = ring("PreRun")
    made_kinds = [each.kind for each in writes if each.kind in (kinds.SECRET, kinds.BATCH_JOB)]
    assert made_kinds == [kinds.SECRET, *[kinds.BATCH_JOB] * 3]
    (secret,) = made(writes, kinds.SECRET)
    assert secret["metadata"]["name"] == "wf-mpi"


def test_prerun_waits_for_launcher_and_workers() -> None:
    alive = {**workers(ready=1), **job("wf-launcher")}
    assert driver(ring("PreRun", container_jobs=alive), 2)["message"].endswith("'wf-launcher'")
    alive |= job("wf-launcher", ready=1)
    assert driver(ring("PreRun", container_jobs=alive), 2)["completed"]


def test_postrun_waits_for_the_launcher_alone() -> None:
    alive = {**workers(ready=1), **job("wf-launcher", ready=1)}
    writes = ring("PostRun", container_jobs=alive)
    assert len(changes(writes, kinds.BATCH_JOB)) == 1
    assert not driver(writes, 3).get("completed")
    alive |= job("wf-launcher", conditions=condition("Complete"))
    assert driver(ring("PostRun", container_jobs=alive), 3)["completed"]


def test_a_worker_that_fails_fails_the_workflow_until_the_launcher_has_succeeded() -> None:
    ended = condition("Failed", reason="BackoffLimitExceeded", message="no port")
    failed = {**workers(conditions=ended), **job("wf-launcher", ready=1)}
    status, message = told(ring("PostRun", container_jobs=failed))
    assert status == "Error"
    assert "wf-worker-0 has failed: no port" in message
    failed |= job("wf-launcher", conditions=condition("Complete"))
    assert driver(ring("PostRun", container_jobs=failed), 3)["completed"]
