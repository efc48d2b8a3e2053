"""The API server as kubectl sees it."""

import shutil
import subprocess

import pytest

from tests.journeys.conftest import SECONDS, Cluster

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def kubectl(cluster: Cluster, *arguments: str) -> str:
    done = subprocess.run(
        ["kubectl", "--kubeconfig", str(cluster.state.kubeconfig), *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kubectl_gets_the_workflows_of_a_cluster(cluster: Cluster) -> None:
    script = cluster.script("w.sh", "sleep 60", "#DW jobdw type=xfs capacity=1MiB name=scratch")
    job = cluster.submit("-N1", script)
    cluster.wait_event(job, "start")
    header, line = kubectl(cluster, "get", "workflows").splitlines()

    assert header.split() == ["NAME", "STATE", "READY", "STATUS", "JOBID", "AGE"]
    assert line.split()[1:5] == ["PreRun", "true", "Completed", job.replace("ƒ", "f")]

    cluster("cancel", job)
    cluster.wait_clean()


def test_kubectl_describes_what_is_served(cluster: Cluster) -> None:
    resources = kubectl(cluster, "api-resources")

    assert "workflows" in resources
    assert "nnfdatamovements" in resources


def test_kubectl_gets_one_object_as_yaml(cluster: Cluster) -> None:
    text = kubectl(cluster, "get", "storage", "rabbit-0", "-o", "yaml")

    assert "status: Ready" in text


def test_kubectl_disables_a_rabbit_and_enables_it_again(cluster: Cluster) -> None:
    def patch(state: str) -> None:
        spec = f'{{"spec": {{"state": "{state}"}}}}'
        kubectl(cluster, "patch", "storage", "rabbit-1", "--type", "merge", "-p", spec)

    patch("Disabled")
    try:
        kubectl(
            cluster, "wait", "storage/rabbit-1", "--timeout=100s",
            "--for=jsonpath={.status.status}=Disabled",
        )  # fmt: skip
    finally:
        patch("Enabled")
