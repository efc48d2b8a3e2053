"""Containers beside jobs, with real ones: what they read, write, serve and leave behind."""

import asyncio
import base64
import hmac
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.journeys.conftest import Cluster, running, wait_for
from warren.base.objects import Change, Create, Key, Kind, Object, Remove
from warren.dws import containerauth, kinds
from warren.kube import http, kubeconfig
from warren.kube.perform import perform
from warren.kube.server.access import tls

EXAMPLES = Path(__file__).parents[2] / "examples" / "containers"

WAITS = "until ls /data/node-*/stop >/dev/null 2>&1; do sleep 0.05; done"
"""An application that ends when some task says so."""

STOP = 'echo > "$DW_JOB_fast/stop"'
"""A task that does."""


def together(folder: Path, tasks: int) -> str:
    """Return the lines by which a task waits until so many have come to them."""
    folder.mkdir(parents=True)
    return (
        f"echo > {folder}/$FLUX_TASK_RANK; "
        f"until [ $(ls {folder} | wc -l) = {tasks} ]; do sleep 0.1; done"
    )


def held(gate: Path) -> str:
    """Return the line by which a task waits until the test has made a file."""
    return f"until [ -e {gate} ]; do sleep 0.1; done"


def why_not() -> str | None:
    if os.geteuid() == 0:
        return "containers never run as root, whose jobs these would be"
    missing = [each for each in ("bwrap", "umoci", "busybox", "ip") if shutil.which(each) is None]
    return f"{missing[0]} is not installed" if missing else None


pytestmark = [pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


def prepared(cluster: Cluster) -> Cluster:
    cluster.state.prepare()
    image(cluster, "busybox")
    return cluster


def image(cluster: Cluster, name: str) -> None:
    """Make an example's image."""
    subprocess.run([EXAMPLES / name / "build", cluster.state.images / name], check=True)


def begun(cluster: Cluster) -> Cluster:
    """Give a cluster ports for containers, as an admin does once."""
    ports = {"spec": {"ports": ["5000-5009"], "portsCooldownInSeconds": 0}}
    key = Key(kinds.DEFAULT_NAMESPACE, "default")
    write(cluster, Change(kind=kinds.SYSTEM_CONFIGURATION, key=key, patch=ports))
    wait_for(lambda: len(cluster.objects(kinds.NODE)) == len(cluster.shape().chassis()))
    return cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    one = prepared(Cluster(tmp_path_factory.mktemp("containers"), "--computes", "2"))
    for each in running(one):
        yield begun(each)


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    for each in running(prepared(Cluster(tmp_path, "--computes", "2"))):
        yield begun(each)


def write(cluster: Cluster, *writes: Create | Change | Remove) -> None:
    async def writing() -> None:
        async with http.connect(kubeconfig.load(cluster.state.kubeconfig)) as client:
            await perform(client, writes)

    asyncio.run(writing())


def profile(cluster: Cluster, script: str, container: Object | None = None, **data: Any) -> str:
    """Make a profile whose application is a script, and return its name."""
    name = f"p{time.monotonic_ns()}"
    app = {
        "name": "app",
        "image": "busybox",
        "command": ["/bin/sh", "-c", script],
        **(container or {}),
    }
    made = {
        "metadata": {"name": name, "namespace": "nnf-system"},
        "data": {
            "storages": [{"name": "DW_JOB_data", "optional": True, "mountPath": "/data"}],
            "retryLimit": 0,
            "preRunTimeoutSeconds": 60,
            "postRunTimeoutSeconds": 60,
            "spec": {"containers": [app]},
            **data,
        },
    }
    write(cluster, Create(kind=kinds.CONTAINER_PROFILE, object=made))
    return name


def submitted(
    cluster: Cluster,
    name: str,
    tasks: str,
    *more: str,
    nodes: int = 2,
    storage: str = "DW_JOB_data",
    about: str = "",
) -> str:
    """Submit a job beside which a profile's application runs, and return its id."""
    script = cluster.script(
        f"{name}.sh",
        tasks,
        f"#DW jobdw type=gfs2 capacity=64MiB name=fast {about}".rstrip(),
        f"#DW container name=beside profile={name} {storage}=fast",
        *more,
    )
    found: list[str] = []

    def accepted() -> bool:
        # On a busy machine some tasks wait long for containers that others do not wait for.
        done = cluster("submit", "-oexit-timeout=none", f"-N{nodes}", script)
        # The instance may not have heard of the profile yet.
        assert done.returncode == 0 or "no container profile" in done.stderr, done.stderr
        found.append(done.stdout.strip())
        return done.returncode == 0

    wait_for(accepted)
    return found[-1]


def finished(cluster: Cluster, job: str) -> tuple[int, str]:
    """Return the status of a job and all that it printed, when nothing is left of it."""
    done = cluster("job", "attach", job)
    cluster.wait_event(job, "clean")
    cluster.wait_clean()
    wait_for(lambda: _left(cluster) == [])
    return done.returncode, done.stdout + done.stderr


def _left(cluster: Cluster) -> list[Object]:
    left: tuple[Kind, ...] = (
        kinds.BATCH_JOB,
        kinds.POD,
        kinds.SERVICE,
        kinds.CONFIG_MAP,
        kinds.CONTAINER_DATA,
    )
    return [obj for kind in left for obj in cluster.objects(kind)]


def pods(cluster: Cluster, phase: str | None = None) -> list[Object]:
    """Return the pods that there are, of a phase."""
    found = cluster.objects(kinds.POD)
    return [each for each in found if phase in (None, (each.get("status") or {}).get("phase"))]


# Data


def test_an_application_reads_what_was_copied_in_and_writes_what_is_copied_out(
    cluster: Cluster,
) -> None:
    (cluster.shared / "input").write_text("words\n")
    name = profile(
        cluster, 'for each in /data/node-*; do tr a-z A-Z < "$each/input" > "$each/out"; done'
    )
    job = submitted(
        cluster,
        name,
        "true",
        f"#DW copy_in source={cluster.shared}/input destination=$DW_JOB_fast/",
        f"#DW copy_out source=$DW_JOB_fast/out destination={cluster.shared}/results/",
    )
    assert finished(cluster, job)[0] == 0
    results = sorted(cluster.shared.glob("results/**/out"))
    assert [each.read_text() for each in results] == ["WORDS\n"] * 2


def test_an_optional_storage_that_is_not_given_is_not_there(cluster: Cluster) -> None:
    """Statement 001.37: optional storage that is absent is not mounted."""
    name = profile(cluster, '[ ! -e /data ] && [ -z "$DW_JOB_data" ]')
    script = cluster.script("bare.sh", "true", f"#DW container name=beside profile={name}")
    wait_for(lambda: "no container profile" not in cluster("check", script).stdout)
    assert finished(cluster, cluster.submit("-N2", script))[0] == 0


def test_the_type_of_a_mount_is_read_from_the_config_map(cluster: Cluster) -> None:
    """Statement 001.44: the mount type is readable in the ConfigMap."""
    script = "grep -q indexed-mount /config/storages && ls /config/computes"
    mounts = {"volumeMounts": [{"name": "nnf-config", "mountPath": "/config"}]}
    job = submitted(cluster, profile(cluster, script, mounts), "true")
    assert finished(cluster, job)[0] == 0


def test_each_container_finds_its_rabbits_compute_nodes_by_position_and_by_name(
    cluster: Cluster,
) -> None:
    """Statements 001.43, 001.45, 001.46, 001.47: three nodes, of which one rabbit has two."""
    script = (
        "cd /data; for each in node-*; do until [ -e $each/stop ]; do sleep 0.05; done; done; "
        "for each in compute-*; do "
        'echo "$(cat $each/rank) $each $(ls -d node-* | wc -l)" > $(readlink $each)/found; done; '
        "! touch beside"
    )
    job = submitted(
        cluster,
        profile(cluster, script),
        f'echo $FLUX_TASK_RANK > "$DW_JOB_fast/rank"; {STOP}',
        f"#DW copy_out source=$DW_JOB_fast/found destination={cluster.shared}/found/",
        nodes=3,
    )
    names: list[str] = []

    def known() -> bool:
        names[:] = [each["name"] for obj in cluster.objects(kinds.COMPUTES) for each in obj["data"]]
        return len(names) == 3

    wait_for(known)
    status, output = finished(cluster, job)
    assert status == 0, output
    said = sorted(each.read_text().split() for each in cluster.shared.glob("found/**/found"))
    assert [each[:2] for each in said] == [[str(rank), name] for rank, name in enumerate(names)]
    assert sorted(count for _, _, count in said) == ["1", "2", "2"]


def test_an_application_that_others_start_is_left_to_them(cluster: Cluster) -> None:
    name = profile(cluster, "true", createContainer=False)
    job = submitted(cluster, name, "sleep 2")
    wait_for(lambda: cluster.objects(kinds.CONTAINER_DATA))
    (data,) = cluster.objects(kinds.CONTAINER_DATA)
    (volume,) = data["data"]["volumes"]
    assert (volume["name"], volume["command"], volume["directiveIndex"]) == ("data", "jobdw", 0)
    assert pods(cluster) == []
    assert finished(cluster, job)[0] == 0


# Names and ports


def test_tasks_talk_to_the_application_by_the_port_in_their_environment(cluster: Cluster) -> None:
    """Statements 001.30, 001.31, 001.32: the port is in the tasks' environment, and leads to 80."""
    serve = f"echo page > /tmp/index.html; httpd -p 80 -h /tmp; {WAITS}"
    ports = {"ports": [{"name": "http", "containerPort": 80}]}
    job = submitted(
        cluster,
        profile(cluster, serve, ports),
        "for host in $(echo $NNF_CONTAINER_HOSTNAMES | tr , ' '); do "
        'timeout 60 sh -c "until busybox wget -qO- http://$host:$NNF_CONTAINER_PORTS/; '
        f'do sleep 0.1; done"; done; {together(cluster.shared / "served", 4)}; {STOP}',
        nodes=4,
    )
    status, output = finished(cluster, job)
    assert (status, output.count("page")) == (0, 8)


def test_the_example_serves_what_each_compute_node_writes(cluster: Cluster) -> None:
    made = yaml.safe_load((EXAMPLES / "busybox" / "profile.yaml").read_text())
    write(cluster, Create(kind=kinds.CONTAINER_PROFILE, object=made))
    job = submitted(
        cluster,
        made["metadata"]["name"],
        'echo page > "$DW_JOB_fast/page"; '
        "url=http://$NNF_CONTAINER_HOSTNAMES:$NNF_CONTAINER_PORTS/node-0/page; "
        f'timeout 60 sh -c "until busybox wget -qO- $url; do sleep 0.1; done"; {STOP}',
        storage="DW_JOB_pages",
        nodes=1,
    )
    status, output = finished(cluster, job)
    assert (status, output.count("page")) == (0, 1), output


def test_containers_of_two_rabbits_reach_each_other_by_name(cluster: Cluster) -> None:
    """Statements 001.25, 001.26: short and whole names resolve between rabbits."""
    script = (
        "echo $NNF_NODE_NAME > /tmp/index.html; httpd -p 80 -h /tmp; "
        "for rabbit in $NNF_CONTAINER_NODES; do "
        "for name in $rabbit.$NNF_CONTAINER_SUBDOMAIN "
        "$rabbit.$NNF_CONTAINER_SUBDOMAIN.$NNF_CONTAINER_DOMAIN; do "
        'until [ "$(wget -qO- http://$name/)" = $rabbit ]; do sleep 0.1; done; done; done; '
        f"for each in /data/node-*; do : > $each/answered; done; {WAITS}"
    )
    answered = 'until [ -e "$DW_JOB_fast/answered" ]; do sleep 0.1; done'
    # A rabbit's application must not end while the other's has questions.
    tasks = f"{answered}; {together(cluster.shared / 'answered', 4)}; {STOP}"
    job = submitted(cluster, profile(cluster, script), tasks, nodes=4)
    assert finished(cluster, job)[0] == 0


# MPI


def test_an_mpi_application_runs_over_two_rabbits(cluster: Cluster) -> None:
    """Statement 001.18: the launcher is on the first rabbit, and workers are on each.

    Statement 001.29: its variables are those of other containers.
    """
    image(cluster, "mpi")
    (example,) = yaml.safe_load_all((EXAMPLES / "mpi" / "profile.yaml").read_text())
    command = example["data"]["mpiSpec"]["launcher"]["containers"][0]["command"]
    command[-1] += '; test "$NNF_CONTAINER_SUBDOMAIN" && hostname && echo $NNF_CONTAINER_HOSTNAMES'
    write(cluster, Create(kind=kinds.CONTAINER_PROFILE, object=example))
    # The launcher's rabbit is that of the first compute node.
    tasks = (
        '[ "$FLUX_TASK_RANK" = 0 ] || exit 0; '
        'until [ -e "$DW_JOB_fast/ring" ]; do sleep 0.1; done; cat "$DW_JOB_fast/ring"'
    )
    job = submitted(cluster, "ring", tasks, nodes=4)
    status, output = finished(cluster, job)
    assert status == 0, output
    assert "2 ranks, sum 1" in output
    assert {"rank 0 on", "rank 1 on"} <= {line.rpartition(" ")[0] for line in output.splitlines()}


# Tokens


def test_the_application_has_the_key_of_the_token_that_its_job_has(cluster: Cluster) -> None:
    assert_known(cluster)


def test_so_it_is_where_controllers_and_instance_are_processes_with_roles(tmp_path: Path) -> None:
    for each in running(prepared(Cluster(tmp_path, "--computes", "1", "--separate"))):
        assert_known(begun(each))


def assert_known(cluster: Cluster) -> None:
    """Assert that an application can tell the requests of its job."""
    name = profile(
        cluster, f'for each in /data/node-*; do cat "$TOKEN_KEY_PATH" > "$each/key"; done; {WAITS}'
    )
    job = submitted(
        cluster,
        name,
        f'echo "token=$DW_WORKFLOW_TOKEN"; cat "$DW_JOB_fast/key"; {STOP}',
        about="requires=user-container-auth",
        nodes=1,
    )
    status, output = finished(cluster, job)
    assert status == 0
    (token,) = [line[6:] for line in output.splitlines() if line.startswith("token=")]
    text, _, signature = token.rpartition(".")
    pem = re.findall("-----BEGIN EC PRIVATE KEY-----(.*?)-----END", output, re.DOTALL)[0]
    key = base64.b64decode(pem)
    expected = base64.urlsafe_b64encode(hmac.digest(key, text.encode(), "sha256"))
    assert signature == expected.rstrip(b"=").decode()
    wait_for(lambda: cluster.objects(kinds.SECRET) == [])


def test_an_application_is_asked_to_end_when_the_tasks_have_ended(
    cluster: Cluster, tmp_path: Path
) -> None:
    # It does not know TLS: a connection that is given up after a second is its sign.
    ports = {"ports": [{"name": "https", "containerPort": 443}]}
    name = profile(cluster, "nc -l -p 443 > /dev/null; true", ports)
    tls.server_context(tmp_path / "pki")
    certificate = base64.b64encode(tls.authority(tmp_path / "pki")).decode()
    secret = {
        "metadata": {"name": containerauth.TLS_SECRET, "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": certificate, "tls.key": ""},
    }
    key = Key("default", containerauth.TLS_SECRET)
    write(cluster, Create(kind=kinds.SECRET, object=secret))
    try:
        assert finished(cluster, submitted(cluster, name, "true"))[0] == 0
    finally:
        write(cluster, Remove(kind=kinds.SECRET, key=key))


# Success and failure


def test_an_application_that_fails_is_tried_again(cluster: Cluster) -> None:
    """Statement 001.11: failed pods are retried until one succeeds."""
    script = (
        "ls /data/node-*/tried >/dev/null 2>&1 && exit 0; "
        "for each in /data/node-*; do echo > $each/tried; done; exit 1"
    )
    job = submitted(cluster, profile(cluster, script, retryLimit=1), "true")
    assert finished(cluster, job)[0] == 0


def test_an_application_that_fails_for_ever_fails_the_job(cluster: Cluster) -> None:
    """Statement 001.42: PostRun is not Ready when a pod has failed."""
    job = submitted(cluster, profile(cluster, "echo no data; exit 3"), "true")
    status, output = finished(cluster, job)
    assert status != 0
    assert "Job has reached the specified backoff limit" in output
    shown = cluster("job", "storage", job).stdout.splitlines()
    (line,) = [each.split() for each in shown if each.startswith("rabbit-0") and "Failed" in each]
    assert line[2:] == ["Failed", "1", "3", "no", "data"]
    assert cluster("job", "info", job, "rabbit_container_log").stdout.strip() == '"no data\\n"'


def test_an_application_that_never_ends_is_ended_and_fails_the_job(cluster: Cluster) -> None:
    """Statement 001.14: the PostRun timer ends pods, and the failure shows."""
    name = profile(
        cluster, "trap 'exit 0' TERM; while :; do sleep 0.1; done", postRunTimeoutSeconds=1
    )
    job = submitted(cluster, name, "true")
    status, output = finished(cluster, job)
    assert status != 0
    assert "user container(s) failed to complete after 1 seconds" in output


def test_an_application_that_cannot_start_fails_the_job_in_time(cluster: Cluster) -> None:
    name = profile(cluster, "true", {"image": "localhost:1/nowhere:1"}, preRunTimeoutSeconds=2)
    job = submitted(cluster, name, "true")
    status, output = finished(cluster, job)
    assert status != 0
    assert "user container(s) failed to start after 2 seconds" in output


def test_a_profile_of_another_user_is_refused(cluster: Cluster) -> None:
    name = profile(cluster, "true", userID=os.geteuid() + 1)
    script = cluster.script("theirs.sh", "true", f"#DW container name=beside profile={name}")
    said: list[str] = []

    def refused() -> bool:
        said[:] = [cluster("submit", "-N2", script).stderr]
        return "no container profile" not in said[0]

    wait_for(refused)
    assert "user" in said[0]
    assert "^" in said[0]


# Logs


@pytest.fixture(params=[(), ("--separate",)], ids=["together", "separate"])
def logging_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    for each in running(prepared(Cluster(tmp_path, "--computes", "2", *request.param))):
        yield begun(each)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_what_an_application_prints_is_read_while_it_runs(logging_cluster: Cluster) -> None:
    name = profile(logging_cluster, f"echo begun; {WAITS}; echo done")
    gate = logging_cluster.shared / "go"
    job = submitted(logging_cluster, name, f"{held(gate)}; {STOP}")
    wait_for(lambda: pods(logging_cluster, "Running"))
    (pod,) = pods(logging_cluster, "Running")
    config = str(logging_cluster.state.kubeconfig)
    command = ["kubectl", "--kubeconfig", config, "logs", "-f", pod["metadata"]["name"]]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "begun\n"
        gate.touch()
        assert following.communicate(timeout=120)[0] == "done\n"
    told = logging_cluster("job", "storage", job).stdout
    assert pod["metadata"]["name"] in told
    assert finished(logging_cluster, job)[0] == 0
    kept = logging_cluster("job", "info", job, "rabbit_container_log").stdout.strip()
    assert kept == '"begun\\ndone\\n"'


# Crashes, and others


@pytest.mark.parametrize("phase", [None, "Running", "Succeeded"])
def test_a_job_with_a_container_survives_its_agents(
    own_cluster: Cluster, phase: str | None
) -> None:
    script = "true" if phase == "Succeeded" else WAITS
    gate = own_cluster.shared / "go"
    job = submitted(own_cluster, profile(own_cluster, script), f"{held(gate)}; {STOP}")
    wait_for(lambda: pods(own_cluster, phase))
    for process in own_cluster.agents().values():
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    gate.touch()
    assert finished(own_cluster, job)[0] == 0


def test_a_job_with_a_container_survives_the_control_process(own_cluster: Cluster) -> None:
    gate = own_cluster.shared / "go"
    job = submitted(own_cluster, profile(own_cluster, WAITS), f"{held(gate)}; {STOP}")
    wait_for(lambda: pods(own_cluster, "Running"))
    own_cluster.kill()
    gate.touch()
    own_cluster.up()
    assert finished(own_cluster, job)[0] == 0


def test_pods_of_others_are_left_alone(own_cluster: Cluster) -> None:
    pod = {
        "metadata": {"name": "theirs", "namespace": kinds.DEFAULT_NAMESPACE},
        "spec": {
            "nodeName": "rabbit-0",
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "app",
                    "image": "busybox",
                    "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 1; done"],
                    "securityContext": {"runAsUser": os.geteuid(), "runAsGroup": os.getegid()},
                }
            ],
        },
    }
    write(own_cluster, Create(kind=kinds.POD, object=pod))
    wait_for(lambda: pods(own_cluster, "Running"))
    job = submitted(own_cluster, profile(own_cluster, WAITS), STOP)
    assert own_cluster("job", "attach", job).returncode == 0
    own_cluster.wait_event(job, "clean")
    own_cluster.wait_clean()
    (left,) = pods(own_cluster)
    assert (left["metadata"]["name"], left["status"]["phase"]) == ("theirs", "Running")
    write(own_cluster, Remove(kind=kinds.POD, key=Key(kinds.DEFAULT_NAMESPACE, "theirs")))
    wait_for(lambda: pods(own_cluster) == [])
