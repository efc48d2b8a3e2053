"""Copies that a job's program asks for while it runs: made, cancelled, waited for, and refused."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import asking
from tests.journeys.conftest import Cluster, running, wait_for
from warren.base.objects import Create, Object
from warren.dws import kinds, labels
from warren.kube import http, kubeconfig
from warren.kube.perform import perform
from warren.lifecycle.states import Result

FAST = "#DW jobdw type=gfs2 capacity=64MiB name=fast requires=copy-offload"
PRELUDE = f"""
set -e
ask() {{ {sys.executable} {asking.__file__} "$@"; }}
copy() {{
    ask POST /trial '{{"computeName": "'$(hostname)'", "sourcePath": "'"$1"'", "destinationPath": "'"$2"'", "dmProfile": "'"$3"'"}}'
}}
"""  # noqa: E501 - one word of a shell
SLOW = "slow"
"""The profile by which a copy takes longer than a test."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    for each in running(Cluster(tmp_path_factory.mktemp("offload"), "--computes", "2")):
        profile(each)
        yield each


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[Cluster]:
    for each in running(Cluster(tmp_path, "--rabbits", "1", "--computes", "1")):
        profile(each)
        yield each


@pytest.fixture
def separate(tmp_path: Path) -> Iterator[Cluster]:
    yield from running(Cluster(tmp_path, "--rabbits", "1", "--computes", "1", "--separate"))


def profile(cluster: Cluster) -> None:
    made = {
        "metadata": {"name": SLOW, "namespace": kinds.PROFILES_NAMESPACE},
        "data": {"command": "warren-copy --rate=1KiB $SRC $DEST"},
    }

    async def writing() -> None:
        async with http.connect(kubeconfig.load(cluster.state.kubeconfig)) as client:
            await perform(client, [Create(kind=kinds.COPY_PROFILE, object=made)])

    asyncio.run(writing())


def submitted(cluster: Cluster, name: str, tasks: str, *directives: str, nodes: int = 1) -> str:
    script = cluster.script(f"{name}.sh", PRELUDE + tasks, *(directives or (FAST,)))
    return cluster.submit(f"-N{nodes}", f"--output={cluster.shared}/{name}.out", script)


def output(cluster: Cluster, name: str) -> list[str]:
    return (cluster.shared / f"{name}.out").read_text().splitlines()


def result(cluster: Cluster, job: str) -> object:
    cluster.wait_clean()
    return cluster.job(job)["result"]


def asked_for(cluster: Cluster) -> list[Object]:
    """Return the movements that jobs have asked for."""
    return [
        each
        for each in cluster.objects(kinds.NNF_DATA_MOVEMENT)
        if each["metadata"]["labels"].get(labels.TEARDOWN_STATE) == "PostRun"
    ]


def held(cluster: Cluster, name: str, tasks: str = "") -> tuple[str, dict[str, str], Path]:
    """Submit a job that waits for a file; return it, its variables, and the file."""
    gate, told = cluster.shared / f"{name}.gate", cluster.shared / f"{name}.env"
    waits = f"until [ -e {gate} ]; do sleep 0.1; done"
    lines = f"{tasks}\nenv -0 > {told}.new; mv {told}.new {told}; {waits}"
    job = submitted(cluster, name, lines)
    wait_for(told.exists)
    words = told.read_bytes().decode().split("\0")
    return job, dict(word.split("=", 1) for word in words if "=" in word), gate


def request(known: dict[str, str], source: str, destination: str, **more: Any) -> str:
    body = {"computeName": known["NODE"], "sourcePath": source, "destinationPath": destination}
    return json.dumps(body | more)


NAMED = "export NODE=$(hostname)"


def test_a_task_has_a_copy_made_waits_for_it_and_goes_on(cluster: Cluster) -> None:
    """Statement 002.30: `copy-offload` says that the application will ask for copies.

    Each node copies what is its own, in and out.
    """
    (cluster.shared / "given").write_text("input")
    tasks = f"""
        own={cluster.shared}/there/$(hostname)
        name=$(copy {cluster.shared}/given "$DW_JOB_fast/given" "")
        ask GET "/status/$name?maxWaitSecs=-1"
        mkdir "$DW_JOB_fast/out"
        cat "$DW_JOB_fast/given" > "$DW_JOB_fast/out/a"; hostname >> "$DW_JOB_fast/out/a"
        name=$(copy "$DW_JOB_fast/out/" "$own/" "")
        ask GET "/status/$name?maxWaitSecs=-1"
        cat "$own/a"
    """
    job = submitted(cluster, "both", tasks, nodes=2)
    assert result(cluster, job) == Result.COMPLETED.bit
    for node in ("compute-00", "compute-01"):
        assert (cluster.shared / "there" / node / "a").read_text() == f"input{node}\n"
    lines = output(cluster, "both")
    told = [json.loads(line.removeprefix("200 ")) for line in lines if "{" in line]
    assert [(each["state"], each["status"]) for each in told] == [("completed", "success")] * 4
    assert sorted(line for line in lines if "{" not in line) == [
        "inputcompute-00",
        "inputcompute-01",
    ]


def test_a_copy_that_is_cancelled_ends_and_its_job_is_none_the_worse(cluster: Cluster) -> None:
    tasks = f"""
        head -c 9999999 /dev/urandom > "$DW_JOB_fast/large"
        name=$(copy "$DW_JOB_fast/large" {cluster.shared}/cancelled {SLOW})
        until ask GET "/status/$name?maxWaitSecs=0" | grep '"running"'; do sleep 0.1; done
        ask GET /list; ask POST /shutdown
        ask DELETE /cancel/$name
        ask GET "/status/$name?maxWaitSecs=-1"
    """
    job = submitted(cluster, "cancel", tasks)
    assert result(cluster, job) == Result.COMPLETED.bit
    _, listed, refused, ended, told = output(cluster, "cancel")
    assert listed.startswith("200 rabbit-0--nnf-copy-offload-node-")
    assert refused == "409 unable to shutdown server: requests in progress"
    assert ended == "200 "
    assert '"completed"' in told
    assert '"cancelled"' in told


def test_postrun_waits_for_a_copy_that_goes_on_when_the_task_ends(cluster: Cluster) -> None:
    text = "as it was when the task ended\n" * 1000
    (cluster.shared / "text").write_text(text)
    # The copier is held up by the test.
    gate = cluster.shared / "stopped"
    tasks = f"""
        cp {cluster.shared}/text "$DW_JOB_fast/text"
        head -c 9999999 /dev/zero | tr '\\0' x >> "$DW_JOB_fast/text"
        copy "$DW_JOB_fast/text" {cluster.shared}/late ""
        until [ -e {gate} ]; do sleep 0.1; done
    """
    stopped: list[int] = []

    def stop() -> bool:
        for copier in cluster.copiers():
            os.kill(copier, signal.SIGSTOP)
            stopped.append(copier)
        return bool(stopped) or (cluster.shared / "late").exists()

    job = submitted(cluster, "late", tasks)
    wait_for(stop)
    gate.touch()
    wait_for(lambda: [each["status"]["state"] for each in cluster.workflows()] == ["PostRun"])
    if stopped:
        wait_for(
            lambda: "1 data movements to finish" in cluster.workflows()[0]["status"]["message"]
        )
        assert not cluster.workflows()[0]["status"]["ready"]
        os.kill(stopped[0], signal.SIGCONT)
    assert result(cluster, job) == Result.COMPLETED.bit
    assert (cluster.shared / "late").read_text() == text + "x" * 9999999


def test_a_copy_that_fails_fails_its_job_and_says_which(cluster: Cluster) -> None:
    tasks = f"""
        name=$(copy "$DW_JOB_fast/nothing" {cluster.shared}/none "")
        ask GET "/status/$name?maxWaitSecs=-1"
    """
    job = submitted(cluster, "fails", tasks)
    assert result(cluster, job) == Result.FAILED.bit
    (told,) = output(cluster, "fails")
    assert '"failed"' in told
    log = cluster("job", "eventlog", job).stdout
    assert "data movement failed" in log
    assert "nothing" in log


def test_no_copy_is_made_for_another_token_or_out_of_what_is_the_jobs(cluster: Cluster) -> None:
    shared = cluster.shared
    mine, own, gate = held(cluster, "mine", f"{NAMED}; echo secret > $DW_JOB_fast/secret")
    other, theirs, wait = held(cluster, "other", NAMED)

    def ask(known: dict[str, str], method: str, path: str, body: str | None = None) -> str:
        return asking.ask(known, method, path, body)

    secret = f"{own['DW_JOB_fast']}/secret"
    # A node of the one, and storage of the other, by all that the other could say.
    for node in (own["NODE"], theirs["NODE"], "rabbit-0"):
        stolen = request({**theirs, "NODE": node}, secret, f"{shared}/stolen")
        assert ask(theirs, "POST", "/trial", stolen)[:3] in ("400", "403")
    name = ask(own, "POST", "/trial", request(own, secret, f"{shared}/kept"))
    name = name.removeprefix("200 name=")
    assert ask(theirs, "GET", f"/status/{name}?maxWaitSecs=0") == "404 request not found"
    assert ask(theirs, "DELETE", f"/cancel/{name}").startswith("404 ")
    assert ask(theirs, "GET", "/list") == "200 "
    assert '"success"' in ask(own, "GET", f"/status/{name}?maxWaitSecs=-1")

    header, claims, seal = own["DW_WORKFLOW_TOKEN"].split(".")
    for token in (
        "",
        "x",
        f"{header}.{claims}.",
        f"{header}.{claims}.{theirs['DW_WORKFLOW_TOKEN'].split('.')[2]}",
    ):
        forged = {**own, "DW_WORKFLOW_TOKEN": token}
        assert (
            ask(forged, "POST", "/trial", request(own, secret, f"{shared}/stolen"))
            == "401 unauthorized"
        )
    assert seal

    for source, destination, status in (
        ("/etc/passwd", f"{own['DW_JOB_fast']}/x", "403"),
        (secret, "/etc/cron.d/x", "403"),
        (secret, f"{shared}/../x", "400"),
        (f"{own['DW_JOB_fast']}/../x", f"{shared}/x", "400"),
        (f"{own['DW_JOB_fast']}x", f"{shared}/x", "403"),
        (str(cluster.state.kubeconfig), f"{own['DW_JOB_fast']}/x", "403"),
        (f"{shared}/kept", f"{shared}/x", "403"),
    ):
        assert ask(own, "POST", "/trial", request(own, source, destination))[:3] == status
    assert not (shared / "stolen").exists()
    assert not (shared / "x").exists()
    assert len(asked_for(cluster)) == 1

    gate.touch()
    wait.touch()
    for job in (mine, other):
        cluster.wait_event(job, "clean")
        assert cluster.job(job)["result"] == Result.COMPLETED.bit
    # The job is over, whether its Workflow is already gone or still goes.
    assert ask(own, "GET", "/list")[:3] == "401"


def test_a_job_that_could_get_no_copies_is_refused_with_the_reason(cluster: Cluster) -> None:
    xfs = FAST.replace("gfs2", "xfs")
    refused = cluster("submit", "-N1", cluster.script("no.sh", "true", xfs))
    assert refused.returncode == 1
    assert "xfs is for one of them at a time. Make it of type gfs2 or lustre." in refused.stderr
    checked = cluster("check", cluster.script("no.sh", "true", xfs))
    assert "xfs is for one of them at a time" in checked.stdout + checked.stderr
    assert cluster("check", cluster.script("yes.sh", "true", FAST)).returncode == 0


def test_a_killed_control_process_costs_no_copy_and_no_job(own_cluster: Cluster) -> None:
    """Neither the port, nor what is known of the copy, is another one then."""
    tasks = f"""
        head -c 9999999 /dev/urandom > "$DW_JOB_fast/large"
        name=$(copy "$DW_JOB_fast/large" {own_cluster.shared}/large {SLOW})
        small=$(copy "$DW_JOB_fast/large" {own_cluster.shared}/other "")
        export PATIENT=1
        touch {own_cluster.shared}/begun
        until [ -e {own_cluster.shared}/again ]; do sleep 0.1; done
        ask DELETE /cancel/$name
        ask GET "/status/$name?maxWaitSecs=-1"
        ask GET "/status/$small?maxWaitSecs=-1"
        cmp "$DW_JOB_fast/large" {own_cluster.shared}/other
    """
    job = submitted(own_cluster, "killed", tasks)
    wait_for((own_cluster.shared / "begun").exists)
    own_cluster.kill()
    (own_cluster.shared / "again").touch()
    own_cluster.up()
    assert result(own_cluster, job) == Result.COMPLETED.bit
    ended, cancelled, other = output(own_cluster, "killed")
    assert ended == "200 "
    assert '"cancelled"' in cancelled
    assert '"success"' in other


def test_the_service_does_with_its_own_role_what_it_does(separate: Cluster) -> None:
    assert "copy-offload" in separate.parts()
    profile(separate)
    tasks = f"""
        echo here > "$DW_JOB_fast/a"
        name=$(copy "$DW_JOB_fast/a" {separate.shared}/a "")
        ask GET "/status/$name?maxWaitSecs=-1"
        head -c 9999999 /dev/urandom > "$DW_JOB_fast/large"
        name=$(copy "$DW_JOB_fast/large" {separate.shared}/large {SLOW})
        ask GET /list; ask DELETE /cancel/$name
        ask GET "/status/$name?maxWaitSecs=-1"
    """
    job = submitted(separate, "role", tasks)
    assert result(separate, job) == Result.COMPLETED.bit
    success, listed, ended, cancelled = output(separate, "role")
    assert '"success"' in success
    assert listed.startswith("200 rabbit-0--")
    assert ended == "200 "
    assert '"cancelled"' in cancelled
    assert (separate.shared / "a").read_text() == "here\n"
