"""The conductor as a service of its own, beside an instance without one."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, running, wait_for
from warren.base.objects import Key, Object, Remove
from warren.dws import kinds, labels
from warren.kube.http import connect
from warren.kube.kubeconfig import load as kubeconfig_of
from warren.wlm import identity
from warren.wlm.codec import BINDING

JOB = ("submit", "-N2", "-S", "dw=#DW jobdw type=xfs capacity=64MiB name=fast")


@pytest.fixture(scope="module")
def lone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that has no conductor."""
    place = tmp_path_factory.mktemp("lone")
    yield from running(Cluster(place, "--separate", "--no-conductor"))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Conductor:
    """A conductor that a service manager has started."""

    def __init__(self, cluster: Cluster, *options: str) -> None:
        self.port = free_port()
        self.notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        # The path of a socket has to be short.
        self.place = Path(tempfile.mkdtemp(prefix="warren-", dir="/tmp"))
        self.notified.bind(str(self.place / "notify"))
        self.notified.settimeout(60)
        told = {"NOTIFY_SOCKET": str(self.place / "notify"), "WATCHDOG_USEC": "200000"}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "warren", "conductor", "--metrics-port", str(self.port)),
                *(options or ("--kubeconfig", str(kubeconfig(cluster)))),
            ],
            env=cluster.environment(told),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> "Conductor":
        while self.notified.recv(100) != b"READY=1":
            pass
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
        self.notified.close()
        shutil.rmtree(self.place)

    def counts(self, state: str) -> bool:
        """Return whether it has seen a Workflow in a state."""
        return f'warren_workflow_state_seconds_count{{state="{state}"}} 1.0' in self.get("metrics")

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}", timeout=60) as answer:
            return str(answer.read().decode())


def kubeconfig(cluster: Cluster) -> Path:
    return cluster.state.user_kubeconfig("system:warren:conductor")


def test_jobs_wait_for_a_conductor_and_go_on_with_the_next_one(lone: Cluster) -> None:
    """Statement 000.5: the conductor is a process beside the broker, and a service of systemd."""
    job = lone(*JOB, "true").stdout.strip()
    wait_for(lambda: "whose conductor does not answer" in lone("jobs").stdout)

    with Conductor(lone) as conductor:
        assert lone("job", "attach", job).returncode == 0
        assert conductor.notified.recv(100) == b"WATCHDOG=1"
        assert conductor.get("readyz") == "ok"
        metrics = conductor.get("metrics")
        for state in ("proposal", "setup", "datain", "prerun", "postrun", "dataout", "teardown"):
            wait_for(partial(conductor.counts, state))
        assert 'controller_runtime_reconcile_total{controller="conductor"' in metrics
        later = lone(*JOB, "sleep", "1").stdout.strip()
        lone.wait_event(later, "start")
        conductor.process.send_signal(signal.SIGKILL)
        conductor.process.wait()

    with Conductor(lone) as conductor:
        assert lone("job", "attach", later).returncode == 0
        lone.wait_clean()
        conductor.process.send_signal(signal.SIGTERM)
        assert conductor.process.wait(60) == 0


def test_there_is_one_conductor_at_a_time(lone: Cluster) -> None:
    with Conductor(lone):
        second = lone("conductor", "--kubeconfig", str(kubeconfig(lone)))
        assert second.returncode == 1
        assert "has a conductor: stop that one" in second.stderr


def test_it_waits_for_an_instance(lone: Cluster) -> None:
    """An instance that is away, or was not there yet, is no reason to end."""
    with Conductor(lone) as conductor:
        lone.down()
        wait_for(lambda: not_ready(conductor))
        lone.up()
        wait_for(lambda: conductor.process.poll() is None and not not_ready(conductor))
        job = lone(*JOB, "true").stdout.strip()
        assert lone("job", "attach", job).returncode == 0
        lone.wait_clean()


def not_ready(conductor: Conductor) -> bool:
    try:
        return conductor.get("readyz") != "ok"
    except urllib.error.HTTPError as error:
        return error.code == 503


def test_the_instance_names_its_cluster(lone: Cluster, tmp_path: Path) -> None:
    """Keys of table `rabbit`: kubeconfig, and versions, of which unknown ones are passed over."""
    named = kubeconfig(lone)
    table = f'[rabbit]\nkubeconfig = "{named}"\ndws_api_version = "v1alpha1"\n'
    given = tmp_path / "instance.toml"
    given.write_text(table)
    assert lone("config", "reload", str(given)).returncode == 0

    with Conductor(lone, "--context", "warren"):
        job = lone(*JOB, "true").stdout.strip()
        assert lone("job", "attach", job).returncode == 0
        lone.wait_clean()

    given.write_text(table.replace(str(named), "/nowhere/kubeconfig"))
    assert lone("config", "reload", str(given)).returncode == 0
    refused = lone("conductor")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "/nowhere/kubeconfig" in refused.stderr


def test_its_exit_code_says_whether_to_start_it_again(lone: Cluster, tmp_path: Path) -> None:
    nowhere = lone("conductor", "--kubeconfig", str(tmp_path / "nowhere"))
    assert (nowhere.returncode, nowhere.stdout) == (3, "")
    assert nowhere.stderr.startswith("warren: ")
    assert lone("conductor", "--nonsense").returncode == 2


def test_what_a_job_took_out_of_service_is_found_and_put_back(lone: Cluster) -> None:
    assert lone("conductor", "audit").stdout == "jobs, Workflows, nodes and rabbits agree\n"
    for node, reason in (("compute-00", "failed to unmount rabbit"), ("compute-01", "dimm")):
        assert lone("resource", "drain", node, reason).returncode == 0

    found = lone("conductor", "audit")
    assert found.returncode == 1
    assert found.stdout.splitlines() == [
        "node compute-00 is drained (failed to unmount rabbit), and nothing of that is left",
        "`warren conductor audit --repair` repairs what can be repaired",
    ]
    repaired = lone("conductor", "audit", "--repair", "--json")
    assert repaired.returncode == 0
    (one,) = json.loads(repaired.stdout)["found"]
    assert (one["about"], one["can_be_repaired"]) == ("node compute-00", True)
    assert lone("conductor", "audit").returncode == 0
    assert "dimm" in lone("resource", "drain").stdout
    assert lone("resource", "undrain", "compute-01").returncode == 0


def test_the_workflows_of_another_instance_are_neither_found_nor_torn_down(lone: Cluster) -> None:
    with Conductor(lone):
        wait_for(lambda: lone("kvs", "get", identity.KEY).returncode == 0)
    own = json.loads(lone("kvs", "get", identity.KEY).stdout)
    marks = {BINDING.workflow_key(1): "there", BINDING.workflow_key(2): own}
    asyncio.run(make_workflows(lone, marks))

    found = lone("conductor", "audit", "--repair")
    name = BINDING.workflow_key(2).name
    told = f"Workflow {name} its job ƒ3 is over, and it is not torn down (repaired)\n"
    assert (found.returncode, found.stdout) == (0, told)
    desired = [each["spec"]["desiredState"] for each in asyncio.run(taken_away(lone, marks))]
    assert desired == ["Proposal", "Teardown"]


async def make_workflows(cluster: Cluster, marks: Mapping[Key, str]) -> None:
    """Make Workflows of jobs that there are not, with marks of instances."""
    async with connect(kubeconfig_of(cluster.state.kubeconfig)) as client:
        for key, mark in marks.items():
            metadata = {
                "name": key.name,
                "namespace": key.namespace,
                "labels": {labels.WLM_INSTANCE: mark},
            }
            spec = {
                "desiredState": "Proposal",
                "dwDirectives": [],
                "jobID": key.name,
                "userID": os.geteuid(),
                "groupID": os.getegid(),
                "wlmID": BINDING.wlm_id,
            }
            await client.create(kinds.WORKFLOW, {"metadata": metadata, "spec": spec})


async def taken_away(cluster: Cluster, keys: Iterable[Key]) -> list[Object]:
    """Delete Workflows; return them as they were."""
    async with connect(kubeconfig_of(cluster.state.kubeconfig)) as client:
        found = [await client.get(kinds.WORKFLOW, key) for key in keys]
        for key in keys:
            await client.delete(Remove(kind=kinds.WORKFLOW, key=key))
    return found


def test_a_cluster_in_one_process_tells_its_metrics_too(tmp_path: Path) -> None:
    port = free_port()

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60) as answer:
            return str(answer.read().decode())

    for cluster in running(Cluster(tmp_path, "--metrics-port", str(port))):
        assert get("readyz") == "ok"
        job = cluster(*JOB, "true").stdout.strip()
        assert cluster("job", "attach", job).returncode == 0
        cluster.wait_clean()
        metrics = get("metrics")
        assert 'warren_workflow_state_seconds_count{state="teardown"} 1.0' in metrics
        for name in ("conductor", "workflow", "events"):
            assert f'controller_runtime_reconcile_total{{controller="{name}"' in metrics
        assert 'rest_client_requests_total{code="201",method="POST"}' in metrics


def test_a_cluster_of_several_processes_has_no_port_for_metrics(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    refused = cluster("up", "--separate", "--metrics-port", str(free_port()))

    assert refused.returncode == 1
    assert refused.stderr.startswith("warren: --metrics-port: the parts of this cluster are")
