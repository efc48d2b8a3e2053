"""A journey with the real kubectl."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from tests.journal.running import really
from tests.kube.clusters import change, eventually, key, served, stored, workflow
from warren.base.clock import SystemClock
from warren.dws.kinds import WORKFLOW
from warren.kube import kubeconfig
from warren.kube.client import NotFound
from warren.kube.server import app
from warren.kube.server.store import Store

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


class Kubectl:
    """Runs kubectl in a home of its own."""

    def __init__(self, store: Store, directory: Path) -> None:
        self.store = store
        self.directory = directory

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={
                "HOME": str(self.directory),
                "KUBECONFIG": str(self.directory / "kubeconfig"),
                "PATH": os.environ["PATH"],
            },
        )

    async def __call__(self, *arguments: str, fails: bool = False) -> str:
        process = await self.start(*arguments)
        said, _ = await process.communicate()
        assert (process.returncode != 0) == fails, said.decode()
        return said.decode()


@asynccontextmanager
async def kubectl(pki: Path, directory: Path) -> AsyncIterator[Kubectl]:
    async with stored(clock=SystemClock()) as store, served(store, pki) as access:
        kubeconfig.write(directory / "kubeconfig", access)
        async with asyncio.timeout(30):
            yield Kubectl(store, directory)


@really
async def test_a_user_looks_at_workflows_and_deletes_one(pki: Path, tmp_path: Path) -> None:
    async with kubectl(pki, tmp_path) as run:
        assert "No resources found" in await run("get", "workflows")

        status = {"state": "Setup", "ready": True}
        made = await run.store.create(WORKFLOW, workflow(status=status))
        header, row = (await run("get", "workflows")).splitlines()
        assert header.split() == ["NAME", "STATE", "READY", "STATUS", "JOBID", "AGE"]
        assert row.split()[:3] == ["w", "Setup", "true"]
        assert "DESIREDSTATE" in await run("get", "workflows", "-o", "wide", "-A")

        assert yaml.safe_load(await run("get", "workflow", "w", "-o", "yaml")) == made
        assert await run("get", "workflows", "-l", "a=b", "-o", "name") == ""
        missing = await run("get", "workflow", "x", fails=True)
        assert "NotFound" in missing

        deleted = await run("delete", "workflow", "w")
        assert deleted.startswith("workflow.dataworkflowservices.github.io")
        with pytest.raises(NotFound):
            run.store.get(WORKFLOW, key("w"))


@really
async def test_a_user_watches_a_workflow(
    pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_BOOKMARK_SECONDS", 0.1)
    async with kubectl(pki, tmp_path) as run:
        made = await run.store.create(WORKFLOW, workflow(status={"state": "Proposal"}))
        watching = await run.start("get", "workflows", "--watch", "--request-timeout=60s")
        assert watching.stdout is not None
        try:
            header = await watching.stdout.readline()
            assert header.startswith(b"NAME")
            assert b"Proposal" in await watching.stdout.readline()
            await run.store.patch(change(WORKFLOW, made, {"status": {"state": "Setup"}}))
            assert b"Setup" in await watching.stdout.readline()
            await asyncio.sleep(0.3)  # bookmarks come, and are shown to nobody
            await run.store.patch(change(WORKFLOW, made, {"status": {"ready": True}}))
            line = await watching.stdout.readline()
            assert line.split()[:3] == [b"w", b"Setup", b"true"]
        finally:
            watching.kill()
            await watching.communicate()


@really
async def test_a_deletion_waits_for_the_last_finalizer(pki: Path, tmp_path: Path) -> None:
    async with kubectl(pki, tmp_path) as run:
        made = await run.store.create(WORKFLOW, workflow(metadata={"finalizers": ["a/1"]}))
        deleting = asyncio.ensure_future(run("delete", "workflow", "w"))
        one = key("w")
        await eventually(lambda: "deletionTimestamp" in run.store.get(WORKFLOW, one)["metadata"])
        await asyncio.sleep(0.2)
        assert not deleting.done()
        await run.store.patch(change(WORKFLOW, made, {"metadata": {"finalizers": None}}))
        assert "deleted" in await deleting


@really
async def test_a_user_finds_out_what_there_is(pki: Path, tmp_path: Path) -> None:
    async with kubectl(pki, tmp_path) as run:
        resources = await run("api-resources")
        assert "workflows" in resources
        assert "nnfstorages" in resources
        assert "Server Version: v1." in await run("version")


@really
async def test_a_user_patches_a_workflow(pki: Path, tmp_path: Path) -> None:
    async with kubectl(pki, tmp_path) as run:
        await run.store.create(WORKFLOW, workflow())
        patch = '{"spec": {"desiredState": "Teardown"}}'
        await run("patch", "workflow", "w", "--type=merge", "-p", patch)
        assert run.store.get(WORKFLOW, key("w"))["spec"]["desiredState"] == "Teardown"
        evil = '{"spec": {"evil": true}}'
        refusal = await run("patch", "workflow", "w", "--type=merge", "-p", evil, fails=True)
        assert "evil is not let in." in refusal


MANIFEST = """
apiVersion: dataworkflowservices.github.io/v1alpha7
kind: Workflow
metadata: {{name: w, labels: {{color: {color}}}}}
spec: {{desiredState: Proposal, wlmID: x, jobID: "1", userID: 1, groupID: 1, dwDirectives: []}}
"""


def manifest(directory: Path, color: str) -> str:
    """Write a Workflow down, and give the path."""
    path = directory / "workflow.yaml"
    path.write_text(MANIFEST.format(color=color))
    return str(path)


@really
async def test_a_user_creates_compares_and_applies_a_file(pki: Path, tmp_path: Path) -> None:
    async with kubectl(pki, tmp_path) as run:
        file = manifest(tmp_path, "red")
        assert "created (server dry run)" in await run("create", "-f", file, "--dry-run=server")
        assert run.store.list(WORKFLOW).items == []
        assert "created" in await run("apply", "-f", file)
        assert "unchanged" in await run("apply", "-f", file)

        file = manifest(tmp_path, "blue")
        difference = await run("diff", "-f", file, fails=True)
        assert "-    color: red" in difference
        assert "+    color: blue" in difference
        assert "configured" in await run("apply", "-f", file)
        assert run.store.get(WORKFLOW, key("w"))["metadata"]["labels"] == {"color": "blue"}
        assert "replaced" in await run("replace", "-f", manifest(tmp_path, "red"))
        assert run.store.get(WORKFLOW, key("w"))["metadata"]["labels"] == {"color": "red"}


@really
async def test_two_managers_apply_on_the_server(pki: Path, tmp_path: Path) -> None:
    async with kubectl(pki, tmp_path) as run:
        apply = ("apply", "--server-side", "-f")
        await run(*apply, manifest(tmp_path, "red"))
        version = run.store.version
        assert "serverside-applied" in await run(*apply, manifest(tmp_path, "red"))
        assert run.store.version == version

        other = (*apply, manifest(tmp_path, "blue"), "--field-manager=other")
        conflict = await run(*other, fails=True)
        assert 'conflict with "kubectl": .metadata.labels.color' in conflict
        await run(*other, "--force-conflicts")
        assert run.store.get(WORKFLOW, key("w"))["metadata"]["labels"] == {"color": "blue"}


@really
async def test_a_user_changes_single_fields(pki: Path, tmp_path: Path) -> None:
    async with kubectl(pki, tmp_path) as run:
        await run.store.create(WORKFLOW, workflow())
        await run("label", "workflow", "w", "color=red", "size=large")
        await run("annotate", "workflow", "w", "note=one")
        await run("label", "workflow", "w", "size-")
        patch = '[{"op": "add", "path": "/metadata/labels/x", "value": "y"}]'
        await run("patch", "workflow", "w", "--type=json", "-p", patch)

        metadata = run.store.get(WORKFLOW, key("w"))["metadata"]
        assert metadata["labels"] == {"color": "red", "x": "y"}
        assert metadata["annotations"] == {"note": "one"}
        assert "w" in await run("get", "workflows", "-l", "color in (red,blue),!size", "-o", "name")
        assert "deleted" in await run("delete", "workflows", "-l", "color")


@really
async def test_a_kind_that_a_user_defines_is_served_checked_and_explained(
    pki: Path, tmp_path: Path
) -> None:
    definition = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: toys.toys.example}
spec:
  group: toys.example
  scope: Namespaced
  names: {kind: Toy, plural: toys, singular: toy, shortNames: [ty]}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [color]
              properties:
                color: {type: string, enum: [red, blue], description: What it looks like.}
"""
    (tmp_path / "crd.yaml").write_text(definition)
    toy = tmp_path / "toy.yaml"
    toy.write_text("apiVersion: toys.example/v1\nkind: Toy\nmetadata: {name: t}\nspec: {colour: x}")
    async with kubectl(pki, tmp_path) as run:
        await run("create", "-f", str(tmp_path / "crd.yaml"))
        await run("wait", "--for=condition=Established", "crd/toys.toys.example", "--timeout=10s")
        assert 'unknown field "spec.colour"' in await run("create", "-f", str(toy), fails=True)
        toy.write_text(toy.read_text().replace("colour: x", "color: green"))
        refusal = await run("create", "-f", str(toy), fails=True)
        assert 'Unsupported value: "green": supported values: "red", "blue"' in refusal
        toy.write_text(toy.read_text().replace("green", "red"))
        await run("create", "-f", str(toy))
        assert "toy.toys.example/t" in await run("get", "ty", "-o", "name")
        assert "What it looks like." in await run("explain", "toys.spec.color")


DEFINITIONS = sorted(Path(__file__).parents[3].glob("shared/vectors/crds/*.yaml"))


@pytest.mark.skipif(not DEFINITIONS, reason="../shared/vectors/crds, the real ones, are missing")
@really
async def test_the_definitions_of_the_real_thing_are_served(pki: Path, tmp_path: Path) -> None:
    async with kubectl(pki, tmp_path) as run:
        for path in DEFINITIONS:
            await run("apply", "--server-side", "--force-conflicts", "-f", str(path))
        names = (await run("get", "crds", "-o", "name")).split()
        assert len(names) >= len(DEFINITIONS)
        await run("create", "-f", manifest(tmp_path, "red"))
        assert run.store.get(WORKFLOW, key("w"))["spec"]["hurry"] is False, "no default"
