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
