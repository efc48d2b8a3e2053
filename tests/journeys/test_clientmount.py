"""The scripts that stop the service which mounts storage while tasks run (`deploy/scripts`)."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, running

SCRIPTS = Path(__file__).parents[2] / "deploy" / "scripts"
DW = "dw=#DW jobdw type=xfs capacity=64MiB name=scratch"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with both scripts, and a service manager that notes what it is asked."""
    root = tmp_path_factory.mktemp("clientmount")
    programs = root / "bin"
    programs.mkdir()
    for name, body in (
        ("systemctl", f'echo "$WARREN_NODE $*" >> {root}/asked'),
        ("warren", f'exec {sys.executable} -m warren "$@"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    (root / "mapping").write_text('{"computes": {"compute-00": "rabbit-0"}, "rabbits": {}}')
    command = f'"env", "PATH={path}"'
    around = "\n".join(
        f'[job-manager.{when}]\nper-rank = true\ncommand = [{command}, "{SCRIPTS / name}"]'
        for when, name in (("prolog", "zstop_clientmount.sh"), ("epilog", "start_clientmount.sh"))
    )
    settings = root / "site.toml"
    settings.write_text(f'{around}\n[rabbit]\nmapping = "{root}/mapping"\n')
    yield from running(Cluster(root, "--config", str(settings)))


def asked(cluster: Cluster) -> list[str]:
    """Return what the service manager was asked on one node since it was last looked at."""
    place = cluster.shared.parent / "asked"
    lines = place.read_text().splitlines() if place.exists() else []
    place.unlink(missing_ok=True)
    return [line.removeprefix("compute-00 ") for line in lines if line.startswith("compute-00 ")]


def ended(cluster: Cluster, *options: str) -> tuple[int, str]:
    """Return how a job ended, and what its log has of prologs and storage."""
    job = cluster("submit", "-N1", "--requires=hosts:compute-00", *options, "true").stdout.strip()
    code = cluster("job", "attach", job).returncode
    cluster.wait_clean()
    return code, cluster("job", "eventlog", job).stdout


def test_the_service_runs_until_storage_is_mounted_and_again_to_unmount_it(site: Cluster) -> None:
    """Statements 000.26, 000.29: a prolog starts it, waits for dws_environment and stops it."""
    code, log = ended(site, "-S", DW)

    assert code == 0
    mounted, stopped = log.index(" dws_environment "), log.index('"job-manager.prolog" status=0')
    assert mounted < stopped < log.index(" start")
    service = "nnf-clientmount"
    assert asked(site) == [f"start {service}", f"stop {service}", f"start {service}"]


def test_jobs_without_storage_have_it_stopped(site: Cluster) -> None:
    assert ended(site)[0] == 0
    assert asked(site) == ["stop nnf-clientmount", "start nnf-clientmount"]


@pytest.mark.parametrize(("limit", "given"), [('"45m"', "45m"), ("", "1800")])
def test_a_job_whose_storage_does_not_come_is_let_go_and_the_service_goes_on(
    tmp_path: Path, limit: str, given: str
) -> None:
    """With commands that say what a job would, whose storage never comes."""
    answers = f"""
case "$1 $2" in
    "getrabbit ") echo rabbit-0 ;;
    "jobs --no-header") echo fluxjob-7 ;;
    "config get") echo '{limit}' ;;
    "job wait-event") exit 1 ;;
esac"""
    for name, body in (("systemctl", ""), ("warren", answers)):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {tmp_path}/asked\n{body}\n')
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FLUX_JOB_ID": "f7"}
    script = [str(SCRIPTS / "zstop_clientmount.sh")]

    assert subprocess.run(script, env=environment, stdout=subprocess.DEVNULL).returncode == 0
    assert (tmp_path / "asked").read_text().splitlines()[2:] == [
        "systemctl start nnf-clientmount",
        "warren config get rabbit.prolog_timeout",
        f"warren job wait-event --quiet --timeout {given} f7 dws_environment",
        "warren job raise --type prolog-timeout f7 dws_environment timeout",
    ]


def test_without_rabbits_nothing_is_started_or_stopped(tmp_path: Path) -> None:
    (tmp_path / "warren").symlink_to("/bin/false")
    (tmp_path / "systemctl").write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\n")
    (tmp_path / "systemctl").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FLUX_JOB_ID": "f7"}
    for name in ("zstop_clientmount.sh", "start_clientmount.sh"):
        assert subprocess.run([str(SCRIPTS / name)], env=environment).returncode == 0
    assert not (tmp_path / "asked").exists()
