"""Rabbits that fail, and that admins take out of service, with real processes."""

import asyncio
import json
import os
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tests.journeys.conftest import SECONDS, Cluster, wait_for
from tests.journeys.test_drain import XFS, reason
from warren.dws import kinds
from warren.kube import http, kubeconfig

OF_R0 = ("--requires=host:compute-[00-03]", "-N4")


def status(cluster: Cluster, rabbit: str) -> dict[str, Any]:
    done = cluster("rabbits", "status", "--json", rabbit)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["rabbits"]
    return dict(found)


def running(cluster: Cluster) -> tuple[str, Path]:
    """Start a job with storage of rabbit-0, which ends when the file is made."""
    end = cluster.shared / "end"
    body = f'while ! [ -e {end} ]; do sleep 0.05; done; echo done > "$DW_JOB_scratch/done"'
    job = cluster.submit(*OF_R0, cluster.script("wait.sh", body, XFS))
    cluster.wait_event(job, "start")
    return job, end


def test_a_rabbit_whose_agent_is_killed_is_offline_until_it_is_back(own_cluster: Cluster) -> None:
    job, end = running(own_cluster)

    async def seen() -> list[str]:
        access = kubeconfig.load(own_cluster.state.kubeconfig)
        found: list[str] = []
        async with asyncio.timeout(SECONDS), http.connect(access) as client:
            listing = await client.list(kinds.STORAGE)
            os.kill(own_cluster.agents()["rabbit-0"], signal.SIGKILL)
            events = client.watch(kinds.STORAGE, listing.resource_version)
            async with aclosing(events):  # type: ignore[type-var]
                async for event in events:
                    if event.object["metadata"]["name"] == "rabbit-0":
                        found.append(event.object["status"]["status"])
                    if found[-1:] == ["Ready"]:
                        break
        return found

    assert asyncio.run(seen()) == ["Offline", "Ready"]
    end.touch()
    assert own_cluster("job", "attach", job).returncode == 0
    own_cluster.wait_clean()


def test_a_drained_rabbit_lets_its_job_end_and_gets_no_other_until_it_is_undrained(
    own_cluster: Cluster,
) -> None:
    job, end = running(own_cluster)
    assert own_cluster("rabbits", "drain", "rabbit-0", "bad", "disk").returncode == 0
    wait_for(lambda: status(own_cluster, "rabbit-0")["status"] == "Drained")
    told = status(own_cluster, "rabbit-0")
    assert (told["reason"], told["drained"]) == ("bad disk", True)
    assert (bool(told["by"]), bool(told["since"])) == (True, True)
    assert "bad disk" in own_cluster("rabbits").stdout

    next_job = own_cluster.submit(*OF_R0, own_cluster.script("next.sh", "true", XFS))
    end.touch()
    assert own_cluster("job", "attach", job).returncode == 0
    wait_for(lambda: "rabbit-0 (Drained)" in reason(own_cluster, next_job))

    assert own_cluster("rabbits", "undrain", "rabbit-0").returncode == 0
    assert own_cluster("job", "attach", next_job).returncode == 0
    assert status(own_cluster, "rabbit-0")["reason"] == ""
    own_cluster.wait_clean()


def test_what_cannot_be_done_to_rabbits_is_said_in_a_sentence_and_changes_nothing(
    cluster: Cluster,
) -> None:
    for arguments, said in (
        (("drain", "rabbit-[0,7]"), "There is no rabbit rabbit-7: name some of rabbit-[0-1].\n"),
        (
            ("undrain", "rabbit-0"),
            "rabbit-0 is not drained: `warren rabbits status` shows what it is.\n",
        ),
        (("enable", "rabbit-[0-1]"), "rabbit-0 is not disabled: "),
        (("status", "nowhere"), "There is no rabbit nowhere: name some of rabbit-[0-1].\n"),
    ):
        done = cluster("rabbits", *arguments)
        assert (done.returncode, done.stderr[: len(said) + 8]) == (1, f"warren: {said}")
    listed = json.loads(cluster("rabbits", "--json").stdout)["rabbits"]
    assert [each["status"] for each in listed] == ["Ready", "Ready"]

    assert cluster("rabbits", "disable", "rabbit-1", "gone").returncode == 0
    again = cluster("rabbits", "disable", "rabbit-1", "other")
    assert (again.returncode, "rabbit-1 is disabled already by" in again.stderr) == (1, True)
    assert cluster("rabbits", "disable", "--force", "rabbit-1", "other").returncode == 0
    assert status(cluster, "rabbit-1")["reason"] == "other"
    assert cluster("rabbits", "enable", "rabbit-1").returncode == 0
    wait_for(lambda: status(cluster, "rabbit-1")["status"] == "Ready")


def test_the_wiring_of_a_cluster_is_written_down_as_flux_reads_it(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    """Statement 000.47: the mapping is written from the live state."""
    kubeconfig = str(own_cluster.state.kubeconfig)
    done = own_cluster("rabbitmapping", "-k", kubeconfig, "--indent", "1")
    assert done.returncode == 0, done.stderr
    mapping = json.loads(done.stdout)
    chassis = own_cluster.shape().chassis()

    assert mapping["computes"] == {host: each.rabbit for each in chassis for host in each.hosts}
    assert {name: each["capacity"] for name, each in mapping["rabbits"].items()} == {
        each.rabbit: each.capacity_bytes for each in chassis
    }
    named = own_cluster("rabbitmapping", KUBECONFIG=kubeconfig)
    assert named.stdout == json.dumps(mapping, sort_keys=True)
    nowhere = own_cluster("rabbitmapping", "-k", str(tmp_path / "none"))
    assert (nowhere.returncode, nowhere.stdout) == (1, "")
    assert "none: No such file" in nowhere.stderr
