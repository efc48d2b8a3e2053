"""Agents as services: a rabbit and a compute node on two machines, and the cluster on a third."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.journeys import hosts
from tests.journeys.conftest import Cluster, running, wait_for
from tests.journeys.hosts import Host
from warren.base.objects import Change, Key, Remove
from warren.controllers import heartbeats
from warren.daemons import agentconfig
from warren.daemons.agentservice import AgentStateDir
from warren.daemons.users import node_user
from warren.dws import kinds
from warren.dws.node import Volume
from warren.dws.rabbits import links
from warren.dws.rabbits.rabbitstorages import NNF_NODE_NAME
from warren.kube import http, kubeconfig
from warren.kube.client import Refused
from warren.kube.leader import LEASE
from warren.node import loops

pytestmark = pytest.mark.skipif(hosts.why_none() is not None, reason=str(hosts.why_none()))


@dataclass(frozen=True)
class Machines:
    """A cluster without agents, and a machine for each of its nodes."""

    cluster: Cluster
    rabbit: Host
    compute: Host


@pytest.fixture(params=["host", "own"], scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Machines]:
    if request.param == "host" and os.geteuid() != 0:
        pytest.skip("to mount in the machine's own namespace takes root")
    place = tmp_path_factory.mktemp("agents")
    cluster = Cluster(
        place, "--separate", "--no-agents", "--rabbits", "1", "--computes-per-rabbit", "1"
    )
    # The path of a socket has to be short.
    sockets = Path(tempfile.mkdtemp(prefix="warren-", dir="/tmp"))
    for _ in running(cluster):
        port = int(cluster.status()["server"].rpartition(":")[2])
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, sockets)
            stack.enter_context(hosts.outlet(sockets / "api", port))

            def host(node: str, role: str) -> Host:
                own = request.param == "own"
                made = Host(cluster, node, role, place, sockets / "api", own=own)
                stack.callback(made.close)
                return made

            found = Machines(cluster, host("rabbit-0", "rabbit"), host("compute-00", "compute"))
            yield found
            assert (found.rabbit.mounts(), found.compute.mounts()) == (set(), set())
    assert loops.find_attached(place / "flash" / "rabbit-0" / "disk.img") == []
    assert list((place / "flash" / "rabbit-0").glob("volumes/*")) == []


@pytest.fixture
def machines(site: Machines) -> Iterator[Machines]:
    """The machines, without agents that run."""
    yield site
    for host in (site.rabbit, site.compute):
        host.stop()


def submit(cluster: Cluster, file_system: str) -> str:
    """Submit a job that goes on when there is a file `go`, and brings out what it was given."""
    source = cluster.shared / "in"
    source.mkdir(exist_ok=True)
    (source / "input").write_text("what is copied in\n")
    script = cluster.script(
        "job.sh",
        f'until [ -e {cluster.shared}/go ]; do sleep 0.1; done\nmkdir "$DW_JOB_fast/out"\n'
        '{ cat "$DW_JOB_fast/in/input"; hostname; } > "$DW_JOB_fast/out/result"',
        f"#DW jobdw type={file_system} capacity=512MiB name=fast",
        f"#DW copy_in source={source} destination=$DW_JOB_fast/",
        f"#DW copy_out source=$DW_JOB_fast/out destination={cluster.shared}/out",
    )
    return cluster.submit("-N1", script)


def state_of(cluster: Cluster) -> str:
    found = cluster.workflows()
    return str(found[0]["status"].get("state", "")) if found else ""


@pytest.mark.parametrize("file_system", ["xfs", "ext4"])
def test_a_job_goes_its_whole_way_over_two_machines_whose_agents_are_killed_and_stopped(
    machines: Machines, file_system: str
) -> None:
    """Statement 000.26: a compute node's agent that is stopped between jobs is missed by none."""
    cluster, rabbit, compute = machines.cluster, machines.rabbit, machines.compute
    go = cluster.shared / "go"
    go.unlink(missing_ok=True)
    shutil.rmtree(cluster.shared / "out", ignore_errors=True)
    rabbit.start()
    compute.start()
    wait_for(lambda: "Ready" in cluster("rabbits").stdout)
    job = submit(cluster, file_system)

    wait_for(lambda: cluster.objects(kinds.NNF_NODE_STORAGE))
    rabbit.kill()
    rabbit.start()
    wait_for(lambda: state_of(cluster) in ("DataIn", "PreRun"))
    compute.kill()
    compute.start()
    cluster.wait_event(job, "start")

    assert compute.stop() == 0
    rabbit.kill()
    (mounted,) = compute.mounts()
    go.touch()
    wait_for(lambda: state_of(cluster) == "PostRun")
    assert compute.mounts() == {mounted}, "it is not to be unmounted without an agent"
    rabbit.start()
    compute.start()
    wait_for(lambda: state_of(cluster) != "PostRun")
    rabbit.kill()
    compute.kill()
    rabbit.start()
    compute.start()
    cluster.wait_event(job, "clean")
    cluster.wait_clean()
    result = cluster.shared / "out" / "rabbit-0-0" / "out" / "result"
    assert result.read_text() == "what is copied in\ncompute-00\n"
    for host in (rabbit, compute):
        assert "forbidden" not in host.log.read_text()


def doctor(host: Host, *more: str) -> subprocess.CompletedProcess[str]:
    return host.warren("agent", "doctor", host.role, *host.options, *more)


def test_what_no_object_asks_for_is_found_and_given_back_beside_a_job(machines: Machines) -> None:
    cluster, rabbit, compute = machines.cluster, machines.rabbit, machines.compute
    (cluster.shared / "go").unlink(missing_ok=True)
    for host in (rabbit, compute):
        host.start()
    wait_for(lambda: "Ready" in cluster("rabbits").stdout)
    job = submit(cluster, "xfs")
    cluster.wait_event(job, "start")
    rabbit.kill()
    for host in (rabbit, compute):
        clean = doctor(host)
        assert (clean.returncode, clean.stdout) == (0, "no orphaned resources found\n"), (
            clean.stderr
        )

    place = cluster.state.mounts / "stray"
    asyncio.run(_make_stray(rabbit, str(place)))
    name, value = AgentStateDir(rabbit.statedir).process_mark
    # It ends by itself should the test fail before it is found.
    with subprocess.Popen(rabbit.command("env", f"{name}={value}", "sleep", "60")) as left:
        found = doctor(rabbit)
        assert found.returncode == 1
        assert found.stdout == (
            f"rabbit-0: process {left.pid}: its agent has ended\n"
            f"rabbit-0: mount {place}: no ClientMount asks for it\n"
            "rabbit-0: volume stray-0: no NnfNodeStorage asks for it\n"
            "3 orphaned resources found: 'warren agent doctor rabbit --repair' removes them\n"
        )
        repaired = doctor(rabbit, "--repair", "--json")
        assert repaired.returncode == 0, repaired.stderr
        assert json.loads(repaired.stdout)["repaired"]
        assert left.wait(60) == -signal.SIGKILL
    assert doctor(rabbit).returncode == 0
    assert doctor(rabbit, "--node", "rabbit-1").stderr == (
        f"warren: {rabbit.statedir} is not the state directory of an agent of rabbit-1: name it "
        "with --statedir, or the node, rabbit-0, with --node.\n"
    )

    assert "finish" not in cluster.events(job), "the job that ran was disturbed"
    rabbit.start()
    (cluster.shared / "go").touch()
    cluster.wait_event(job, "clean")
    cluster.wait_clean()


async def _make_stray(rabbit: Host, path: str) -> None:
    """Make a volume and mount it, as an agent would."""
    volume = Volume(
        rabbit="rabbit-0",
        name="stray-0",
        size=2**29,
        file_system="xfs",
        userid=os.geteuid(),
        groupid=os.getegid(),
    )
    config = agentconfig.load(rabbit.config)
    # The test is on no emulated machine, but where its mount namespace can be entered.
    place = str(rabbit.namespace)
    machine = agentconfig.build_node(
        msgspec.structs.replace(config, namespace=place), rabbit.statedir, is_rabbit=True
    )
    await machine.local_node.make(volume)
    await machine.local_node.mount("rabbit-0", "stray-0", "xfs", path)


def test_an_agent_is_refused_all_that_is_another_nodes(machines: Machines) -> None:
    """Each may touch what is in its own namespace, and its own Lease; nothing of that elsewhere."""
    cluster = machines.cluster
    asyncio.run(_refused_to_the_rabbit(cluster))
    asyncio.run(_refused_to_the_compute_node(cluster))


async def _refused_to_the_rabbit(cluster: Cluster) -> None:
    user = node_user("rabbit-0")
    async with http.connect(kubeconfig.load(cluster.state.user_kubeconfig(user))) as client:
        for kind in (kinds.CLIENT_MOUNT, kinds.NNF_NODE_STORAGE, kinds.NNF_DATA_MOVEMENT):
            assert await client.list(kind, "rabbit-0") is not None
            await _refused(user, client.list(kind, "compute-00"))
            await _refused(user, client.list(kind))
            for name in ("rabbit-0", "compute-00"):
                await _refused(user, client.create(kind, _named(name)))
                await _refused(user, client.delete(Remove(kind=kind, key=Key(name, "x"))))
        await _refused(user, client.list(kinds.STORAGE))
        storage = Change(kind=kinds.STORAGE, key=Key("default", "rabbit-0"), patch={})
        await _refused(user, client.patch(storage))
        other = Change(kind=LEASE, key=heartbeats.lease_key("rabbit-1"), patch={})
        await _refused(user, client.patch(other))
        await _refused(user, client.list(kinds.NODE))
        await _refused(user, client.get(kinds.SECRET, Key("default", "x")))


async def _refused_to_the_compute_node(cluster: Cluster) -> None:
    user = node_user("compute-00")
    async with http.connect(kubeconfig.load(cluster.state.user_kubeconfig(user))) as client:
        assert (await client.list(kinds.CLIENT_MOUNT, "compute-00")).items == []
        await _refused(user, client.list(kinds.CLIENT_MOUNT, "rabbit-0"))
        await _refused(user, client.list(kinds.CLIENT_MOUNT))
        await _refused(user, client.create(kinds.CLIENT_MOUNT, _named("compute-00")))
        for kind in (kinds.NNF_NODE_STORAGE, kinds.NNF_DATA_MOVEMENT):
            await _refused(user, client.list(kind, "compute-00"))
        # Its NnfNode says how its link is: that one, and none that it makes.
        assert (await client.list(kinds.NNF_NODE, "compute-00")).items == []
        await _refused(user, client.list(kinds.NNF_NODE, "rabbit-0"))
        await _refused(user, client.create(kinds.NNF_NODE, _named("compute-00")))
        for name in (NNF_NODE_NAME, "other"):
            own = Change(kind=kinds.NNF_NODE, key=Key("compute-00", name), patch={})
            await _refused(user, client.patch(own))
        for place in ("rabbit-0", "compute-01"):
            foreign = Change(kind=kinds.NNF_NODE, key=Key(place, links.NNF_NODE_NAME), patch={})
            await _refused(user, client.patch(foreign))
        of_rabbit = Change(kind=kinds.NNF_NODE, key=Key("rabbit-0", NNF_NODE_NAME), patch={})
        await _refused(user, client.patch(of_rabbit))
        await _refused(user, client.list(kinds.WORKFLOW))
        lease = Change(kind=LEASE, key=heartbeats.lease_key("rabbit-0"), patch={})
        await _refused(user, client.patch(lease))


async def _refused(user: str, action: object) -> None:
    with pytest.raises(Refused, match=f'User "{user}" cannot'):
        await action  # type: ignore[misc]


def _named(namespace: str) -> dict[str, object]:
    return {"metadata": {"name": "x", "namespace": namespace}, "spec": {}}


def test_its_exit_code_says_whether_to_start_it_again(machines: Machines, tmp_path: Path) -> None:
    cluster = machines.cluster
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('[flash]\nkind = "directory"\ncapacity = "much"\n')
    refused = cluster("agent", "rabbit", "--config", str(wrong))
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"warren: {wrong}: flash: capacity: 'much' is not a capacity")
    assert cluster("agent", "compute", "--nonsense").returncode == 2

    config = str(machines.rabbit.config)
    nowhere = cluster("agent", "rabbit", "--config", config, "--kubeconfig", "/nowhere")
    assert nowhere.returncode == 3
    machines.rabbit.start()
    second = cluster("agent", "rabbit", *machines.rabbit.options)
    assert second.returncode == 1
    assert "is in use by process" in second.stderr


def test_a_service_manager_is_told_that_it_is_ready_and_lives_and_metrics_are_served(
    machines: Machines,
) -> None:
    place = Path(tempfile.mkdtemp(prefix="warren-", dir="/tmp"))  # short, as a socket's has to be
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(place / "notify"))
        notified.settimeout(60)
        # Nothing else has a port there.
        machines.rabbit.start(
            "--metrics-port", "9100", NOTIFY_SOCKET=str(place / "notify"), WATCHDOG_USEC="200000"
        )
        heard: set[bytes] = set()
        while not heard >= {b"READY=1", b"WATCHDOG=1"}:  # it lives before it is ready, or after
            heard.add(notified.recv(100))
        assert len(heard) == 2
        fetch = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())"
        for path, told in (
            ("readyz", "ok"),
            ("metrics", 'controller_runtime_reconcile_total{controller="rabbit node"'),
        ):
            words = [sys.executable, "-c", fetch, f"http://127.0.0.1:9100/{path}"]
            answer = subprocess.run(
                machines.rabbit.command(*words), capture_output=True, text=True, check=True
            )
            assert told in answer.stdout
    shutil.rmtree(place)


def test_it_says_what_can_be_made(machines: Machines) -> None:
    done = machines.cluster("agent", "rabbit", "--check", "--json", *machines.rabbit.options)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["node"] == "rabbit-0"
    assert told["fileSystems"]["xfs"] == {"supported": True, "whyNot": None}
    raw = told["fileSystems"]["raw"]
    assert raw["supported"] is (os.geteuid() == 0)
    assert raw["supported"] or "volumes are directories" in raw["whyNot"]
