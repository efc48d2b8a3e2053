"""Emulated nodes are nodes of their own to what runs on them: by their names, and to MPI."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.conftest import Cluster, wait_for

COMPILERS = {"MPICH": "mpicc.mpich", "Open MPI": "mpicc.openmpi"}
LIBPMI = Path(sys.prefix) / "lib/warren/libpmi.so"

HOSTS = ("compute-02", "compute-03")
ON_THEM = ("-N2", "--requires=hosts:compute-[02-03]")

WARREN = f"{sys.executable} -m warren"
XFS = "#DW jobdw type=xfs capacity=64MiB name=scratch"


@pytest.fixture(autouse=True)
def isolated(cluster: Cluster) -> None:
    """Demand that nodes have namespaces; elsewhere they have the machine's name, and its tasks."""
    if not cluster.status()["isolated"]:
        pytest.skip("nodes have no namespaces: the kernel forbids them to this user")


def why_not(mpi: str) -> str | None:
    """Say what it lacks to run programs of an MPI here; None if nothing."""
    if shutil.which(COMPILERS[mpi]) is None:
        return f"{mpi} is not installed: there is no {COMPILERS[mpi]}"
    if mpi == "Open MPI" and not LIBPMI.is_file():
        return f"{LIBPMI} was not built: tools/pmi builds it"
    return None


def program(cluster: Cluster, mpi: str) -> str:
    """Return the path of the program, compiled for an MPI."""
    why = why_not(mpi)
    if why is not None:
        pytest.skip(why)
    made = cluster.shared / COMPILERS[mpi]
    if not made.exists():
        source = Path(__file__).with_name("exchange.c")
        subprocess.run([COMPILERS[mpi], "-o", made, source], check=True)
    return str(made)


def expected() -> list[str]:
    """Return what four tasks print, two on each node."""
    return [f"{rank} of 4 on {HOSTS[rank // 2]} with 2: sum 6, all right" for rank in range(4)]


def batch(cluster: Cluster, body: str, *directives: str) -> list[str]:
    """Return the lines that a batch job on both nodes prints, sorted."""
    script = cluster.script("batch.sh", body, *directives)
    out = cluster.shared / "out"
    done = cluster("batch", f"--output={out}", *ON_THEM, script)
    assert done.returncode == 0, done.stderr
    cluster.wait_event(done.stdout.strip(), "clean")
    return sorted(out.read_text().splitlines())


def test_each_node_has_a_host_name_of_its_own(cluster: Cluster) -> None:
    done = cluster("run", *ON_THEM, "hostname")

    assert sorted(done.stdout.split()) == list(HOSTS), done.stderr


def test_a_batch_script_and_what_it_runs_have_the_names_of_their_nodes(cluster: Cluster) -> None:
    said = batch(cluster, f"echo script: $(hostname)\n{WARREN} run -N2 hostname")

    assert said == [*HOSTS, f"script: {HOSTS[0]}"]


def test_ucx_is_told_of_a_transport_only_where_nodes_are_in_user_namespaces(
    cluster: Cluster,
) -> None:
    done = cluster("run", "--env=-UCX_TLS", "sh", "-c", "echo ${UCX_TLS-nothing}")

    assert done.stdout.strip() == ("nothing" if os.geteuid() == 0 else "sysv,self"), done.stderr


@pytest.mark.parametrize("mpi", COMPILERS)
def test_an_mpi_program_runs_over_two_nodes_without_settings(cluster: Cluster, mpi: str) -> None:
    done = cluster("run", *ON_THEM, "-n4", program(cluster, mpi))

    assert sorted(done.stdout.splitlines()) == expected(), done.stderr
    assert (done.returncode, done.stderr) == (0, "")


def test_mpi_programs_run_where_storage_is_mounted(cluster: Cluster) -> None:
    programs = [program(cluster, mpi) for mpi in COMPILERS if why_not(mpi) is None]
    if not programs:
        pytest.skip("; ".join(str(why_not(mpi)) for mpi in COMPILERS))
    steps = [f"{WARREN} run -N2 -n4 {each}" for each in programs]
    body = "\n".join(["test -d $DW_JOB_scratch && echo mounted", *steps])

    said = batch(cluster, body, XFS)

    assert said == sorted([*expected() * len(programs), "mounted"])
    wait_for(lambda: cluster.workflows() == [])
