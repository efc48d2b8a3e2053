"""Journeys with the real kubectl: what people type, and what their scripts look for.

Told to our server and, where `WARREN_TEST_KUBECONFIG` names one, to a real cluster; with the
kubectl of the machine, which may be years old, and with the newest one, which is pinned.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.clusters import NAMED, beside
from warren.daemons.clusterobjects import definitions
from warren.dws.kinds import WORKFLOW

_PATHS = (None, str(Path(sys.executable).parent))
KUBECTLS = sorted({str(found) for each in _PATHS if (found := shutil.which("kubectl", path=each))})
pytestmark = pytest.mark.skipif(not KUBECTLS, reason="kubectl is not installed")

RUN = f"w{uuid.uuid4().hex[:7]}"
DWS = f"{RUN}.dataworkflowservices.github.io"
TOYS = f"{RUN}.toys.example"


class Kubectl:
    """Runs kubectl in a home and a namespace of its own."""

    def __init__(self, program: str, config: Path, home: Path) -> None:
        self.program = program
        self.home = home
        document = yaml.safe_load(config.read_text())
        for context in document["contexts"]:
            context["context"]["namespace"] = RUN
        (home / "kubeconfig").touch(mode=0o600)
        (home / "kubeconfig").write_text(yaml.safe_dump(document))

    def start(self, *arguments: str, **environ: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [self.program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                "HOME": str(self.home),
                "KUBECONFIG": str(self.home / "kubeconfig"),
                "PATH": os.environ["PATH"],
                **environ,
            },
        )

    def __call__(self, *arguments: str, fails: bool = False, **environ: str) -> str:
        """Run it to its end, and return what it says."""
        process = self.start(*arguments, **environ)
        said, _ = process.communicate(timeout=120)
        assert (process.returncode != 0) == fails, said
        return said

    def fails(self, *arguments: str) -> str:
        """Return what it says when it must fail."""
        return self(*arguments, fails=True)

    def at_once(self, *commands: str) -> list[str]:
        """Run commands that do not depend on each other."""
        started = [self.start(*command.split()) for command in commands]
        ended = [(process, process.communicate(timeout=120)[0]) for process in started]
        failed = [(process.args, said) for process, said in ended if process.returncode]
        assert failed == []
        return [said for _, said in ended]

    def read(self, *what: str) -> Any:
        """Return an object as JSON."""
        return json.loads(self("get", *what, "-o", "json"))

    def write(self, name: str, document: Any) -> str:
        """Write a manifest down, and return its path."""
        path = self.home / name
        path.write_text(yaml.safe_dump(document))
        return str(path)


def visited(program: str, config: Path, home: Path) -> Iterator[Kubectl]:
    """Go to a cluster, and leave nothing there."""
    run = Kubectl(program, config, home)
    run("create", "namespace", RUN)
    run("create", "-f", run.write("definitions.yaml", listed(DEFINED)))
    names = [f"crd/{each['metadata']['name']}" for each in DEFINED]
    try:
        run("wait", "--for=condition=Established", "--timeout=60s", *names)
        yield run
    finally:
        run("delete", *names, f"namespace/{RUN}", "--timeout=120s")
        assert "not found" in run.fails("get", *names)
        assert "not found" in run.fails("get", f"namespace/{RUN}")


@pytest.fixture(scope="module", params=KUBECTLS)
def program(request: pytest.FixtureRequest) -> str:
    """Return each kubectl that there is."""
    return str(request.param)


@pytest.fixture(scope="module")
def ours(program: str, pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    directory = tmp_path_factory.mktemp("ours")
    (directory / "home").mkdir()
    with beside(pki, directory, quiet=0.02) as config:
        yield from visited(program, config, directory / "home")


@pytest.fixture(scope="module")
def named(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    yield from visited(program, Path(NAMED), tmp_path_factory.mktemp("named"))


@pytest.fixture(params=["ours", *(["named"] if NAMED else [])])
def run(request: pytest.FixtureRequest, program: str) -> Kubectl:
    """Return each kubectl for each cluster."""
    kubectl: Kubectl = request.getfixturevalue(request.param)
    return kubectl


# What the journeys are about


def listed(objects: list[Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": objects}


def _workflows() -> dict[str, Any]:
    """Return the definition of Workflows, in a group of this run."""
    [found] = [each for each in definitions() if each["spec"]["names"]["kind"] == "Workflow"]
    return {
        **found,
        "metadata": {"name": f"workflows.{DWS}"},
        "spec": {**found["spec"], "group": DWS},
    }


def _toys() -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["color"],
        "properties": {
            "color": {
                "type": "string",
                "enum": ["red", "blue"],
                "description": "What it looks like.",
            },
            "count": {"type": "integer", "default": 1},
        },
    }
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
            {"name": "Count", "type": "integer", "jsonPath": ".spec.count", "priority": 1},
        ],
    }
    names = {"kind": "Toy", "plural": "toys", "singular": "toy", "shortNames": ["ty"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"toys.{TOYS}"},
        "spec": {
            "group": TOYS,
            "scope": "Namespaced",
            "names": {**names, "categories": [f"{RUN}-playthings"]},
            "versions": [version],
        },
    }


DEFINED = [_workflows(), _toys()]


def workflow(name: str, **metadata: Any) -> dict[str, Any]:
    spec = {"desiredState": "Proposal", "wlmID": "x", "jobID": "1", "userID": 1, "groupID": 1}
    return {
        "apiVersion": f"{DWS}/v1alpha7",
        "kind": "Workflow",
        "metadata": {"name": name, **metadata},
        "spec": {**spec, "dwDirectives": []},
    }


def toy(name: str, color: str = "red", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{TOYS}/v1",
        "kind": "Toy",
        "metadata": {"name": name, **metadata},
        "spec": {"color": color},
    }


def configmap(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"set": name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def columns(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


# Looking


def test_a_user_looks_at_workflows(run: Kubectl) -> None:
    kind = f"workflows.{DWS}"
    assert f"No resources found in {RUN} namespace." in run("get", kind)
    made = workflow("looked-at", labels={"color": "red"})
    run("create", "-f", run.write("workflow.yaml", made))
    patch = '{"status": {"state": "Setup", "ready": true}}'
    run("patch", kind, "looked-at", "--type=merge", "-p", patch)

    plain, wide, names, labels, chosen, none, described = run.at_once(
        f"get {kind}",
        f"get {kind} -o wide",
        f"get {kind} -o name",
        f"get {kind} -L color --no-headers",
        f"get {kind} -l color=red -o name",
        f"get {kind} -l color!=red -o name",
        f"describe {kind} looked-at",
    )
    header, row = columns(plain)
    assert header == ["NAME", "STATE", "READY", "STATUS", "JOBID", "AGE"]
    assert row[:4] == ["looked-at", "Setup", "true", "1"]
    assert row[4].endswith("s")
    assert columns(wide)[0][6:] == [
        "DESIREDSTATE",
        "DESIREDSTATECHANGE",
        "ELAPSEDTIMELASTSTATE",
        "UID",
        "GID",
    ]
    assert names == chosen == f"workflow.{DWS}/looked-at\n"
    assert none == ""
    assert labels.split()[-1] == "red"
    assert "Desired State:" in described
    shown = yaml.safe_load(run("get", kind, "looked-at", "-o", "yaml"))
    assert shown == run.read(kind, "looked-at")
    assert shown["spec"] == {**made["spec"], "forceReady": False, "hurry": False}


def test_a_user_reads_why_something_is_not_done(run: Kubectl) -> None:
    path = run.write("twice.yaml", toy("twice"))
    run("create", "-f", path)
    assert f'(AlreadyExists): error when creating "{path}": toys.{TOYS} "twice" already exists' in (
        run.fails("create", "-f", path)
    )
    for command in ("get", "describe", "delete"):
        told = run.fails(command, "toy", "nobody")
        assert told == f'Error from server (NotFound): toys.{TOYS} "nobody" not found\n'
    assert run("delete", "toy", "nobody", "--ignore-not-found") == ""
    assert 'the server doesn\'t have a resource type "nonsense"' in run.fails("get", "nonsense")

    stale = run.write("stale.yaml", toy("twice", resourceVersion="1"))
    assert (
        f'(Conflict): error when replacing "{stale}": Operation cannot be fulfilled on toys.{TOYS} '
        '"twice": the object has been modified; please apply your changes to the latest version '
        "and try again" in run.fails("replace", "-f", stale)
    )
    odd = toy("odd", "green")
    odd["spec"]["count"] = "many"
    told = run.fails("create", "-f", run.write("odd.yaml", odd))
    assert 'The Toy "odd" is invalid:' in told
    assert 'spec.color: Unsupported value: "green": supported values: "red", "blue"' in told
    assert 'spec.count: Invalid value: "string": spec.count in body must be of type integer' in told
    unknown = toy("odd")
    unknown["spec"]["colour"] = "red"
    path = run.write("unknown.yaml", unknown)
    assert 'strict decoding error: unknown field "spec.colour"' in run.fails("create", "-f", path)
    named = run.write("named.yaml", toy("A_b"))
    assert 'metadata.name: Invalid value: "A_b": a lowercase RFC 1123 subdomain must' in (
        run.fails("create", "-f", named)
    )
    assert 'namespaces "nowhere" not found' in run.fails(
        "create", "configmap", "c", "-n", "nowhere"
    )
    assert 'namespaces "kube-system" is forbidden: this namespace may not be deleted' in run.fails(
        "delete", "namespace", "kube-system"
    )


def test_a_user_watches(run: Kubectl) -> None:
    run("create", "-f", run.write("watched.yaml", toy("watched")))
    watching = run.start("get", "toys", "-w", "--field-selector=metadata.name=watched")
    assert watching.stdout is not None
    try:
        assert watching.stdout.readline().split() == ["NAME", "COLOR"]
        assert watching.stdout.readline().split() == ["watched", "red"]
        time.sleep(0.1)  # bookmarks come, and are not shown
        run("patch", "toy", "watched", "--type=merge", "-p", '{"spec": {"color": "blue"}}')
        assert watching.stdout.readline().split() == ["watched", "blue"]
    finally:
        watching.kill()
        watching.communicate()


def test_a_long_list_comes_in_chunks(run: Kubectl) -> None:
    items = [configmap(f"chunk-{number}") for number in range(5)]
    for item in items:
        item["metadata"]["labels"] = {"chunks": "yes"}
    run("create", "-f", run.write("chunks.yaml", listed(items)))

    names = run("get", "cm", "--chunk-size=2", "-l", "chunks", "-o", "name").split()
    assert names == [f"configmap/chunk-{number}" for number in range(5)]
    assert len(columns(run("get", "cm", "--chunk-size=2", "-l", "chunks"))) == 6


def test_kinds_that_every_cluster_has_are_shown_as_everywhere(run: Kubectl) -> None:
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "shown.1"},
        "involvedObject": {"kind": "Toy", "name": "shown", "namespace": RUN},
        "reason": "Made",
        "message": "It is made.",
        "type": "Normal",
        "count": 3,
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "me"},
    }
    run("create", "-f", run.write("event.yaml", event))
    run.at_once(
        "create configmap shown --from-literal=a=1 --from-literal=b=2",
        "create secret generic shown --from-literal=a=1",
        "create role shown --verb=get,list --resource=configmaps",
        "create rolebinding shown --role=shown --user=ann --group=some",
        "create serviceaccount shown",
    )
    maps, secrets, roles, bindings, wide, events, wide_events, crds, spaces = run.at_once(
        "get cm shown",
        "get secret shown",
        "get role shown",
        "get rolebinding shown",
        "get rolebinding shown -o wide",
        "get events --field-selector=involvedObject.name=shown",
        "get events --field-selector=involvedObject.name=shown -o wide",
        f"get crd toys.{TOYS}",
        f"get ns {RUN}",
    )
    assert [row[:2] for row in columns(maps)] == [["NAME", "DATA"], ["shown", "2"]]
    assert [row[:3] for row in columns(secrets)] == [
        ["NAME", "TYPE", "DATA"],
        ["shown", "Opaque", "1"],
    ]
    for table in (roles, crds):
        header, row = columns(table)
        assert header == ["NAME", "CREATED", "AT"]
        assert row[1].endswith("Z")
    assert [row[:2] for row in columns(bindings)] == [["NAME", "ROLE"], ["shown", "Role/shown"]]
    assert columns(wide)[0] == ["NAME", "ROLE", "AGE", "USERS", "GROUPS", "SERVICEACCOUNTS"]
    assert columns(wide)[1][3:] == ["ann", "some"]
    header, row = columns(events)
    assert header == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert row[1:] == ["Normal", "Made", "toy/shown", "It", "is", "made."]
    assert columns(wide_events)[0][-4:] == ["FIRST", "SEEN", "COUNT", "NAME"]
    assert columns(wide_events)[1][-2:] == ["3", "shown.1"]
    assert columns(spaces)[1][:2] == [RUN, "Active"]


# Writing


def test_a_user_makes_things_without_files(run: Kubectl) -> None:
    """The bodies of these are protobuf."""
    for kind, *rest in (
        ("configmap", "made", "--from-literal=a=1"),
        ("secret", "generic", "made", "--from-literal=a=1"),
        ("role", "made", "--verb=get", f"--resource=toys.{TOYS}"),
        ("rolebinding", "made", "--role=made", "--user=ann"),
        ("serviceaccount", "made"),
    ):
        assert "created" in run("create", kind, *rest)
        assert 'made" already exists' in run.fails("create", kind, *rest)
    assert run.read("configmap", "made")["data"] == {"a": "1"}
    assert run.read("secret", "made")["data"] == {"a": "MQ=="}
    assert run.read("role", "made")["rules"] == [
        {"apiGroups": [TOYS], "resources": ["toys"], "verbs": ["get"]}
    ]
    assert f'namespaces "{RUN}" already exists' in run.fails("create", "namespace", RUN)


@pytest.mark.parametrize("kind", ["toy", "configmap"])
def test_a_user_applies_a_file_again_and_again(run: Kubectl, kind: str) -> None:
    """Kinds of Kubernetes' own are changed by strategic merge patches, others by merge patches."""

    def manifest(value: str, *finalizers: str) -> str:
        made = toy("applied", value) if kind == "toy" else configmap("applied", color=value)
        made["metadata"].update(labels={"color": value}, finalizers=list(finalizers))
        return run.write(f"{kind}.yaml", made)

    red = manifest("red", "x.example/one")
    assert "created (server dry run)" in run("apply", "-f", red, "--dry-run=server")
    assert "not found" in run.fails("get", kind, "applied")
    assert "created" in run("apply", "-f", red)
    assert "unchanged" in run("apply", "-f", red)

    blue = manifest("blue", "x.example/two")
    difference = run.fails("diff", "-f", blue)
    assert "-    color: red" in difference
    assert "+    color: blue" in difference
    assert "configured" in run("apply", "-f", blue)
    after = run.read(kind, "applied")["metadata"]
    assert (after["labels"], after["finalizers"]) == ({"color": "blue"}, ["x.example/two"])
    assert run("diff", "-f", blue) == ""
    assert "replaced" in run("replace", "-f", manifest("red"))
    assert run.read(kind, "applied")["metadata"]["labels"] == {"color": "red"}
    assert "edited" in run("edit", kind, "applied", EDITOR="sed -i 's/color: red/color: blue/'")
    after = run.read(kind, "applied")
    assert "blue" in (after.get("spec") or after["data"])["color"]
    assert "Edit cancelled" in run("edit", kind, "applied", EDITOR="true")


def test_two_managers_apply_on_the_server(run: Kubectl) -> None:
    apply = ("apply", "--server-side", "-f")
    red = run.write("managed.yaml", toy("managed", labels={"color": "red"}))
    assert "serverside-applied" in run(*apply, red)
    before = run.read("toy", "managed")["metadata"]["resourceVersion"]
    assert "serverside-applied" in run(*apply, red)
    assert run.read("toy", "managed")["metadata"]["resourceVersion"] == before

    other = run.write("other.yaml", toy("managed", labels={"color": "blue"}))
    conflict = run.fails(*apply, other, "--field-manager=other")
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .metadata.labels.color' in (
        conflict
    )
    run(*apply, other, "--field-manager=other", "--force-conflicts")
    assert run.read("toy", "managed")["metadata"]["labels"] == {"color": "blue"}
    managed = run("get", "toy", "managed", "-o", "yaml", "--show-managed-fields")
    assert "manager: other" in managed


def test_a_user_goes_over_to_applying_on_the_server(run: Kubectl) -> None:
    red = run.write("over.yaml", toy("over", labels={"color": "red", "size": "large"}))
    assert "created" in run("apply", "-f", red)
    blue = run.write("over.yaml", toy("over", labels={"color": "blue"}))
    assert "serverside-applied" in run("apply", "--server-side", "-f", blue)
    assert run.read("toy", "over")["metadata"]["labels"] == {"color": "blue"}, "size was kubectl's"
    none = run.write("over.yaml", toy("over"))
    assert "serverside-applied" in run("apply", "--server-side", "-f", none)
    assert "labels" not in run.read("toy", "over")["metadata"]


def test_a_user_changes_single_fields(run: Kubectl) -> None:
    run("create", "-f", run.write("single.yaml", toy("single")))
    patch = ("patch", "toy", "single")
    assert "patched" in run(*patch, "--type=merge", "-p", '{"spec": {"count": 2}}')
    assert "patched (no change)" in run(*patch, "--type=merge", "-p", '{"spec": {"count": 2}}')
    assert "labeled" in run("label", "toy", "single", "color=red", "size=large")
    assert "already has a value (red), and --overwrite is false" in run.fails(
        "label", "toy", "single", "color=blue"
    )
    assert "annotated" in run("annotate", "toy", "single", "note=one")
    assert "unlabeled" in run("label", "toy", "single", "size-")
    added = '[{"op": "add", "path": "/metadata/labels/x", "value": "y"}]'
    assert "patched" in run(*patch, "--type=json", "-p", added)
    status = '{"status": {"phase": "Ready"}}'
    assert "patched" in run(*patch, "--subresource=status", "--type=merge", "-p", status)

    after = run.read("toy", "single")
    assert after["metadata"]["labels"] == {"color": "red", "x": "y"}
    assert after["metadata"]["annotations"] == {"note": "one"}
    assert (after["spec"]["count"], after["status"]["phase"]) == (2, "Ready")
    assert "single" in run("get", "ty", "-l", "color in (red,blue),!size", "-o", "name")
    for wrong in (
        '[{"op": "test", "path": "/spec/count", "value": 9}]',
        '[{"op": "remove", "path": "/spec/nowhere"}]',
    ):
        assert "The request is invalid" in run.fails(*patch, "--type=json", "-p", wrong)
    assert "application/strategic-merge-patch+json is not supported" in run.fails(*patch, "-p{}")
    assert 'metadata.labels: Invalid value: "a b"' in run.fails(
        *patch, "--type=merge", "-p", '{"metadata": {"labels": {"a": "a b"}}}'
    )
    assert run.read("toy", "single") == after


# Waiting, and deleting


def test_a_user_waits_for_what_is_to_come(run: Kubectl) -> None:
    run("create", "-f", run.write("waited.yaml", listed([toy("waited"), toy("leaving")])))
    wait = ("wait", "toy/waited", "--timeout=100s")
    status = {
        "phase": "Ready",
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Made",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    for_condition = run.start(*wait, "--for=condition=Ready")
    for_path = run.start(*wait, "--for=jsonpath={.status.phase}=Ready")
    for_end = run.start("wait", "toy/leaving", "--timeout=100s", "--for=delete")
    patch = json.dumps({"status": status})
    run("patch", "toy", "waited", "--subresource=status", "--type=merge", "-p", patch)
    run("delete", "toy", "leaving")
    for waiting in (for_condition, for_path, for_end):
        said, _ = waiting.communicate(timeout=120)
        assert waiting.returncode == 0, said
    never = run.fails("wait", "toy/waited", "--for=condition=Never", "--timeout=10ms")
    assert "timed out waiting for the condition" in never


def test_a_deletion_waits_for_the_last_finalizer(run: Kubectl) -> None:
    held = toy("held", finalizers=["x.example/one"])
    run("create", "-f", run.write("held.yaml", held))
    run("delete", "toy", "held", "--wait=false")
    deleting = run.start("delete", "toy", "held")
    assert deleting.stdout is not None
    # It says so when it is accepted, and waits then.
    assert deleting.stdout.readline().startswith(f'toy.{TOYS} "held" deleted')
    assert "deletionTimestamp" in run.read("toy", "held")["metadata"]
    assert deleting.poll() is None
    run("patch", "toy", "held", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
    assert deleting.wait(timeout=120) == 0
    deleting.stdout.close()


@pytest.mark.parametrize("cascade", ["background", "foreground", "orphan"])
def test_dependents_go_as_is_asked(run: Kubectl, cascade: str) -> None:
    name = f"{cascade}-owner"
    run("create", "configmap", name)
    owner = run.read("configmap", name)
    child = configmap(f"{cascade}-child")
    child["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": name,
            "uid": owner["metadata"]["uid"],
            "blockOwnerDeletion": True,
        }
    ]
    run("create", "-f", run.write("child.yaml", child))
    assert "deleted" in run("delete", "configmap", name, f"--cascade={cascade}")
    if cascade == "orphan":
        assert "ownerReferences" not in run.read("configmap", f"{cascade}-child")["metadata"]
    else:
        run("wait", "--for=delete", f"configmap/{cascade}-child", "--timeout=60s")


def test_many_are_deleted_at_once(run: Kubectl) -> None:
    items = [configmap(name) for name in ("many-a", "many-b")]
    path = run.write("many.yaml", listed(items))
    run("create", "-f", path)
    assert "(server dry run)" in run("delete", "-f", path, "--dry-run=server")
    assert run("delete", "cm", "-l", "set in (many-a,many-b)").count("deleted") == 2
    assert 'configmaps "many-a" not found' in run.fails("delete", "-f", path)


# Finding out


def test_a_user_finds_out_what_there_is(run: Kubectl) -> None:
    # One after the other: each discovers everything anew, on a connection for each group, and
    # kubectl gives all their handshakes ten seconds together.
    resources, versions, toys, together, version = (
        run("api-resources"),
        run("api-versions"),
        run("api-resources", f"--api-group={TOYS}", "--no-headers"),
        run("get", f"{RUN}-playthings", "-o", "name"),
        run("version"),
    )
    for name in ("workflows", "configmaps", "customresourcedefinitions", "leases"):
        assert name in resources
    assert {f"{DWS}/v1alpha7", f"{TOYS}/v1", "v1", "rbac.authorization.k8s.io/v1"} <= {
        *versions.split()
    }
    assert toys.split() == ["toys", "ty", f"{TOYS}/v1", "true", "Toy"]
    assert all(f"toy.{TOYS}/" in line for line in together.split())
    assert "Server Version: v1." in version
    explained, field, workflows = run.at_once(
        "explain toy",
        "explain toys.spec.color",
        f"explain workflow --recursive --api-version={DWS}/v1alpha7",
    )
    assert "KIND:       Toy" in explained
    assert "What it looks like." in field
    assert "desiredState" in workflows
    assert 'field "nonsense" does not exist' in run.fails("explain", "toys.nonsense")


def test_a_user_asks_what_may_be_done(run: Kubectl) -> None:
    rights = ("create", "role", "seer", "--verb=get,list", f"--resource=toys.{TOYS}")
    run(*rights)
    run("create", "rolebinding", "seer", "--role=seer", "--user=seer")
    run("create", "-f", run.write("seen.yaml", toy("seen")))
    everything, whoami, seen, seers = run.at_once(
        "auth can-i * *",
        "auth whoami",
        "auth can-i list toys --as=seer",
        "auth can-i --list --as=seer",
    )
    assert everything == seen == "yes\n"
    assert "system:authenticated" in whoami
    assert f"toys.{TOYS}" in seers
    assert run.fails("auth", "can-i", "delete", "toys", "--as=seer") == "no\n"
    assert "seen" in run("get", "toys", "--as=seer")
    for refused, verb in (
        (("delete", "toy", "seen", "--as=seer"), "delete"),
        (("create", "-f", run.write("more.yaml", toy("more")), "--as=seer"), "create"),
        (("get", "toys", "--as=nobody"), "list"),
    ):
        who = refused[-1].removeprefix("--as=")
        assert (
            f'User "{who}" cannot {verb} resource "toys" in API group "{TOYS}" '
            f'in the namespace "{RUN}"' in run.fails(*refused)
        )
    assert run.fails("get", "nodes", "--as=seer") == (
        'Error from server (Forbidden): nodes is forbidden: User "seer" cannot list resource '
        '"nodes" in API group "" at the cluster scope\n'
    )
    assert "is forbidden" in run.fails(
        "create", "rolebinding", "all", "--clusterrole=cluster-admin", "--user=seer", "--as=seer"
    )


# What only our server is asked


def test_what_admission_denies_is_told(ours: Kubectl) -> None:
    evil = {**workflow("evil"), "apiVersion": WORKFLOW.api_version, "spec": {"evil": True}}
    refusal = ours.fails("create", "-f", ours.write("evil.yaml", evil))
    assert 'admission webhook "conscience" denied the request: evil is not let in.' in refusal


REAL = sorted(Path(__file__).parents[3].glob("shared/vectors/crds/*.yaml"))


@pytest.mark.skipif(not REAL, reason="../shared/vectors/crds, the real ones, are missing")
def test_the_definitions_of_the_real_thing_are_served(ours: Kubectl) -> None:
    """Their groups are those of the real thing, too: no cluster of others is asked to have them."""
    files = [argument for path in REAL for argument in ("-f", str(path))]
    applied = ours("apply", "--server-side", "--force-conflicts", *files)
    assert applied.count("serverside-applied") == len(REAL)
    real = workflow("real")
    real["apiVersion"] = WORKFLOW.api_version
    ours("create", "-f", ours.write("real.yaml", real))
    assert ours.read(str(WORKFLOW), "real")["spec"]["hurry"] is False, "no default"
