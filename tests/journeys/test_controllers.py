"""`warren apiserver` and `warren controllers`, as a storage site runs them."""

import asyncio
import base64
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import SECONDS, wait_for
from warren.base.objects import Create, Key, Kind, Object, Remove
from warren.daemons import clusterobjects, users
from warren.daemons.clusterobjects import manifests
from warren.daemons.controllers import LEASE as LEASE_KEY
from warren.daemons.statedir import StateDir
from warren.dws import kinds
from warren.kube import http, kubeconfig
from warren.kube.client import Client, NotFound, Refused
from warren.kube.leader import LEASE
from warren.kube.perform import perform
from warren.kube.server.access import tls
from warren.kube.server.builtin import BUILT_IN


class Site:
    """An API server, and controllers that come and go."""

    def __init__(self, root: Path) -> None:
        self.state = StateDir(root / "state")
        self._root = root
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "warren", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._processes.append(process)
        return process

    def api(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start the API server, and wait until it says where it is."""
        statedir = ("--statedir", str(self.state.path))
        process = self.start("apiserver", *statedir, "--user", users.CONTROLLERS, *arguments)
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith("serving the Kubernetes API at https://127.0.0.1:"), said
        return process

    def controllers(self, identity: str, *arguments: str) -> "subprocess.Popen[str]":
        config = ("--kubeconfig", str(self.state.user_kubeconfig(users.CONTROLLERS)))
        return self.start("controllers", *config, "--identity", identity, *arguments)

    def do(self, action: Callable[[Client], Any]) -> Any:
        """Do something as the admin."""

        async def work() -> Any:
            async with http.connect(kubeconfig.load(self.state.kubeconfig)) as client:
                return await action(client)

        return asyncio.run(work())

    def find(self, kind: Kind, key: Key) -> Object | None:
        with suppress(NotFound):
            found: Object = self.do(lambda client: client.get(kind, key))
            return found
        return None

    def leader(self) -> str:
        lease = self.find(LEASE, LEASE_KEY) or {}
        return str((lease.get("spec") or {}).get("holderIdentity", ""))

    def end(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            if process.stdout is not None and not process.stdout.closed:
                process.communicate(timeout=SECONDS)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.end()


async def _install(client: Client) -> None:
    """Install what `kubectl apply -f deploy/rbac -f deploy/rules.yaml` would."""
    by_name = {each.kind_name: each.kind(each.versions[0]) for each in BUILT_IN}
    by_name |= {kind.name: kind for kind in kinds.ALL}
    spaces = (kinds.RULES_NAMESPACE, kinds.PROFILES_NAMESPACE)
    for name in spaces:
        await clusterobjects.apply(client, by_name["Namespace"], {"metadata": {"name": name}})
    for obj in (*manifests("rbac"), *manifests("rules.yaml")):
        await clusterobjects.apply(client, by_name[obj["kind"]], obj)


def workflow(name: str, directive: str) -> Object:
    spec: dict[str, Any] = {
        "desiredState": "Proposal",
        "dwDirectives": [directive],
        "wlmID": "test",
    }
    spec |= {"jobID": "1", "userID": 1001, "groupID": 1001}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def _create(obj: Object) -> Callable[[Client], Any]:
    return lambda client: client.create(kinds.WORKFLOW, obj)


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_two_replicas_take_turns_and_workflows_are_led_to_ready(site: Site) -> None:
    site.api()
    site.do(_install)
    port = _port()
    first = site.controllers("first", "--metrics-port", str(port))
    wait_for(lambda: site.leader() == "first")
    site.controllers("second")

    site.do(_create(workflow("w", "#DW jobdw type=xfs capacity=1GiB name=scratch")))
    wait_for(lambda: _ready(site, "w"))
    assert site.find(kinds.COMPUTES, Key("default", "w"))
    metrics = _get(f"http://127.0.0.1:{port}/metrics")
    assert 'leader_election_master_status{name="warren-system/warren-controllers"} 1.0' in metrics
    assert _get(f"http://127.0.0.1:{port}/readyz") == "ok"

    first.send_signal(signal.SIGTERM)
    assert first.wait(SECONDS) == 0
    wait_for(lambda: site.leader() == "second")
    site.do(_create(workflow("v", "#DW jobdw type=xfs capacity=1GiB name=scratch")))
    wait_for(lambda: _ready(site, "v"))


def _ready(site: Site, name: str) -> bool:
    found = site.find(kinds.WORKFLOW, Key("default", name)) or {}
    return bool((found.get("status") or {}).get("ready"))


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SECONDS) as response:
        return str(response.read().decode())


def test_the_webhook_of_the_controllers_judges_workflows(site: Site, tmp_path: Path) -> None:
    site.api("--plain")
    site.do(_install)
    tls.server_context(tmp_path / "webhook")
    port = _port()
    site.controllers(
        "one", "--webhook-port", str(port),
        "--webhook-cert", str(tmp_path / "webhook" / "server.crt"),
        "--webhook-key", str(tmp_path / "webhook" / "server.key"),
    )  # fmt: skip
    wait_for(lambda: _listens(port))
    authority = base64.b64encode(tls.authority(tmp_path / "webhook")).decode()
    site.do(lambda client: perform(client, _configurations(port, authority)))

    with pytest.raises(Refused, match=r'webhook "vworkflow.kb.io" denied .*Unknown command'):
        site.do(_create(workflow("bad", "#DW nosuch name=x")))
    made = site.do(_create(workflow("good", "#DW jobdw type=xfs capacity=1GiB name=scratch")))
    assert made["status"]["drivers"][0]["driverID"] == "nnf"
    wait_for(lambda: _ready(site, "good"))
    site.do(lambda client: client.delete(Remove(kind=kinds.WORKFLOW, key=Key("default", "good"))))


def _configurations(port: int, authority: str) -> Iterator[Create]:
    by_name = {each.kind_name: each.kind(each.versions[0]) for each in BUILT_IN}
    for obj in manifests("webhooks"):
        webhooks = [_at(each, port, authority) for each in obj["webhooks"]]
        yield Create(kind=by_name[obj["kind"]], object={**obj, "webhooks": webhooks})


def _at(hook: Mapping[str, Any], port: int, authority: str) -> Object:
    path = hook["clientConfig"]["service"]["path"]
    there = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
    return {**hook, "clientConfig": there}


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_controllers_wait_for_their_roles(site: Site) -> None:
    """A server that has just started knows of none, for a moment."""
    site.api()
    one = site.controllers("one")
    assert one.stdout is not None
    said = one.stdout.readline()
    assert "the API refuses, and is asked again" in said
    assert "is forbidden: User " in said
    site.do(_install)
    wait_for(lambda: site.leader() == "one")
    site.do(_create(workflow("w", "#DW jobdw type=xfs capacity=1GiB name=scratch")))
    wait_for(lambda: _ready(site, "w"))
    one.send_signal(signal.SIGTERM)
    said, _ = one.communicate(timeout=SECONDS)
    assert one.returncode == 0
    assert "Traceback" not in said


def test_controllers_of_a_cluster_without_our_kinds_say_so(site: Site) -> None:
    site.api("--bare")
    said, _ = site.controllers("one").communicate(timeout=SECONDS)

    assert "serves no version that Warren speaks of dataworkflowservices.github.io" in said
    assert "Traceback" not in said


def test_acknowledged_writes_outlive_a_killed_api_server(site: Site) -> None:
    server = site.api()
    kind = Kind("", "v1", "ConfigMap", "configmaps")
    acknowledged = asyncio.run(_until_killed(site, server, kind))
    site.api()
    found = site.do(lambda client: client.list(kind, "default")).items

    names = {obj["metadata"]["name"] for obj in found}
    assert acknowledged
    assert acknowledged <= names
    assert all(obj["data"] == {"of": obj["metadata"]["name"]} for obj in found)
    assert len(names - acknowledged) <= 8, "nothing was invented but what was under way"


async def _until_killed(site: Site, server: "subprocess.Popen[str]", kind: Kind) -> set[str]:
    """Write with eight hands, kill the server in the middle; return what it has acknowledged."""
    acknowledged: set[str] = set()

    async def write(client: Client, hand: int) -> None:
        for number in range(10_000):
            name = f"m-{hand}-{number}"
            obj = {"metadata": {"name": name, "namespace": "default"}, "data": {"of": name}}
            await client.create(kind, obj)
            acknowledged.add(name)
            if len(acknowledged) == 500:
                server.kill()
                return

    access = kubeconfig.load(site.state.kubeconfig)
    async with http.connect(access) as client:
        hands = [asyncio.ensure_future(write(client, hand)) for hand in range(8)]
        await asyncio.wait(hands, return_when=asyncio.FIRST_COMPLETED)
        for hand in hands:
            hand.cancel()
        await asyncio.gather(*hands, return_exceptions=True)
    assert len(acknowledged) >= 500
    return acknowledged
