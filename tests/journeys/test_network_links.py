"""A compute node that loses its network to its rabbit, on two machines with a cable in between."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys import hosts
from tests.journeys.conftest import SECONDS, Cluster, running, wait_for
from tests.journeys.hosts import Host
from warren.dws import kinds, labels
from warren.dws.rabbits import links
from warren.dws.rabbits.nodedrains import DRAIN_REASON
from warren.node import loops

ADDRESS = "10.77.0.1"
"""That of the rabbit, on the cable."""


def why_not() -> str | None:
    if os.geteuid() != 0:
        return "flash that is offered on a network is on block devices, which takes root"
    return hosts.why_none() or loops.why_unavailable()


pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@dataclass(frozen=True)
class Cable:
    """A rabbit and a compute node, and the cable between them."""

    rabbit: Host
    compute: Host

    def lay(self) -> None:
        end = str(self.rabbit.pid)
        _ip(self.compute, "link", "add", "cable", "type", "veth", "peer", "cable", "netns", end)
        for host, address in ((self.rabbit, ADDRESS), (self.compute, "10.77.0.2")):
            _ip(host, "address", "add", f"{address}/24", "dev", "cable")
            _ip(host, "link", "set", "cable", "up")

    def pull(self) -> None:
        _ip(self.rabbit, "link", "set", "cable", "down")

    def plug(self) -> None:
        _ip(self.rabbit, "link", "set", "cable", "up")


def _ip(host: Host, *words: str) -> None:
    subprocess.run(host.command("ip", *words), check=True)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Cluster, Cable]]:
    cluster = Cluster(tmp_path, "--no-agents", "--rabbits", "1", "--computes-per-rabbit", "1")
    # The path of a socket has to be short.
    sockets = Path(tempfile.mkdtemp(prefix="warren-", dir="/tmp"))
    for _ in running(cluster):
        port = int(cluster.status()["server"].rpartition(":")[2])
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, sockets)
            stack.enter_context(hosts.outlet(sockets / "api", port))

            def host(node: str, role: str, *network: str) -> Host:
                made = Host(cluster, node, role, tmp_path, sockets / "api", own=True)
                stack.callback(made.close)
                with made.config.open("a") as config:
                    config.write("\n".join(["[network]", *network, ""]))
                return made

            cable = Cable(
                host("rabbit-0", "rabbit", f'listen = "{ADDRESS}"'),
                host(
                    "compute-00",
                    "compute",
                    f'rabbits.rabbit-0 = "{ADDRESS}"',
                    # As often as the Lease of a rabbit allows.
                    "probe = 11",
                    "probe-failures = 6",
                    "probe-timeout = 1",
                ),
            )
            cable.lay()
            yield cluster, cable


def drained(cluster: Cluster) -> str:
    """Return why the compute node is drained; nothing where it is not."""
    done = cluster("resource", "drain", "--no-header", "-o", "{nodelist} {reason}")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def lost(cluster: Cluster) -> list[dict[str, str]]:
    done = cluster("rabbits", "links", "--json")
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout)["links"])


def test_a_node_whose_cable_is_pulled_is_drained_and_back_when_it_is_plugged_in(
    site: tuple[Cluster, Cable],
) -> None:
    cluster, cable = site

    def asked() -> list[str]:
        found = [
            each["metadata"]["annotations"].get(labels.RABBIT)
            for each in cluster.objects(kinds.NNF_NODE)
            if each["metadata"]["name"] == links.NNF_NODE_NAME
        ]
        return found

    cable.rabbit.start()
    cable.compute.start()
    wait_for(lambda: asked() == ["rabbit-0"])
    assert (lost(cluster), drained(cluster)) == ([], "")

    cable.pull()
    # So many failures take a minute.
    wait_for(lambda: drained(cluster) == f"compute-00 {DRAIN_REASON}", seconds=60.0 + SECONDS)
    (link,) = lost(cluster)
    assert (link["rabbit"], link["node"], link["status"]) == ("rabbit-0", "compute-00", "Offline")
    assert link["why"].startswith(f"{ADDRESS} port 4420: ")
    shown = cluster("rabbits", "links").stdout.splitlines()
    assert [each.split()[:4] for each in shown[1:]] == [
        ["rabbit-0", "compute-00", "Offline", link["since"]]
    ]
    assert shown[1].endswith(link["why"])

    # An agent that is stopped leaves its word, and one that starts takes it up.
    assert cable.compute.stop() == 0
    cable.compute.start()
    assert lost(cluster) == [link]
    cable.plug()
    wait_for(lambda: drained(cluster) == "")
    assert lost(cluster) == []
    for host in (cable.rabbit, cable.compute):
        assert "forbidden" not in host.log.read_text()
