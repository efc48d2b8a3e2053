"""Which versions of its kinds a cluster is spoken to in."""

from pathlib import Path
from typing import Any

import pytest

from tests.journal.running import really, virtually
from tests.kube.clusters import HttpsCluster, change, key, remove, taken, told, workflow
from warren.base.errors import UserMistake
from warren.base.objects import Kind
from warren.dws import kinds
from warren.dws.kinds import BREAKDOWN, WORKFLOW
from warren.kube import versions
from warren.kube.client import NotFound, Refused
from warren.kube.http import HttpClient

DWS, NNF = WORKFLOW.group, kinds.NNF_NODE.group
OLDER = {DWS: "v1alpha6"}
OLD_WORKFLOW = Kind(DWS, "v1alpha6", "Workflow", "workflows")


class Served:
    """An API that serves some versions of some groups."""

    def __init__(self, groups: dict[str, list[str]]) -> None:
        self._groups = groups

    async def read(self, path: str) -> Any:
        group = path.removeprefix("/apis/")
        if group not in self._groups:
            raise NotFound("the server could not find the requested resource")
        return {"kind": "APIGroup", "versions": [{"version": each} for each in self._groups[group]]}


@virtually
async def test_of_what_is_served_we_speak_what_we_like_best() -> None:
    api = Served({"a": ["v1", "v2", "v3"], "b": ["v1"], "c": ["v9"]})
    chosen = await versions.choose(api, {"a": ("v4", "v2", "v1"), "b": ("v2", "v1")})
    assert chosen == {"a": "v2", "b": "v1"}


@virtually
async def test_what_we_cannot_speak_is_told_in_one_sentence() -> None:
    api = Served({"a": ["v1"], "b": ["v1", "v0"]})
    with pytest.raises(UserMistake) as mistake:
        await versions.choose(api, {"a": ("v1",), "b": ("v3", "v2"), "c": ("v1",)})
    assert str(mistake.value) == (
        "The cluster serves no version that Warren speaks of b (served: v1, v0; spoken: v3, v2) "
        "and of c (served: nothing; spoken: v1): install CRDs of a release that has one, then "
        "start again."
    )


@virtually
async def test_what_may_not_be_asked_is_told() -> None:
    class Forbidding(Served):
        async def read(self, path: str) -> Any:
            raise Refused("you may not")

    with pytest.raises(Refused, match="you may not"):
        await versions.choose(Forbidding({}), {"a": ("v1",)})


def test_the_version_of_the_kinds_is_what_we_like_best() -> None:
    assert {kind.group for kind in kinds.ALL} == set(kinds.VERSIONS)
    for kind in kinds.ALL:
        assert kinds.VERSIONS[kind.group][0] == kind.version


@really
async def test_the_embedded_server_is_spoken_to_in_the_newest_versions(pki: Path) -> None:
    async with HttpsCluster(pki).life() as client:
        assert isinstance(client, HttpClient)
        chosen = await versions.choose(client, kinds.VERSIONS)
        assert chosen == {group: spoken[0] for group, spoken in kinds.VERSIONS.items()}
        with pytest.raises(versions.UnsupportedVersions, match="v1alpha7"):
            await versions.choose(client, {DWS: ("v2",)})


@really
async def test_an_older_server_is_spoken_to_as_it_speaks_without_a_notice(pki: Path) -> None:
    async with HttpsCluster(pki).life() as client:
        assert isinstance(client, HttpClient)
        older = client.with_versions(OLDER)
        since = (await older.list(WORKFLOW)).resource_version

        made = await older.create(WORKFLOW, {**workflow(), "apiVersion": WORKFLOW.api_version})
        patch = {"apiVersion": WORKFLOW.api_version, "spec": {"jobID": 1}}
        patched = await older.patch(change(WORKFLOW, made, patch))
        got = await older.get(WORKFLOW, key("w"))
        listed = (await older.list(WORKFLOW)).items
        events = await taken(older.watch(WORKFLOW, since), 2)
        await older.delete(remove(WORKFLOW, made))

        assert [*told(events)] == [("ADDED", "w"), ("MODIFIED", "w")]
        assert listed == [got]
        for obj in (made, patched, got, *(event.object for event in events)):
            assert obj["apiVersion"] == WORKFLOW.api_version
        with pytest.raises(NotFound):
            await client.get(OLD_WORKFLOW, key("w"))


@really
async def test_a_kind_of_another_group_is_spoken_of_as_it_is(pki: Path) -> None:
    async with HttpsCluster(pki).life() as client:
        assert isinstance(client, HttpClient)
        node = {"metadata": {"name": "n"}}
        made = await client.with_versions(OLDER).create(kinds.NNF_NODE, node)
        assert made == await client.get(kinds.NNF_NODE, key("n"))


@really
async def test_owners_are_named_in_the_version_that_the_server_knows(pki: Path) -> None:
    """Its garbage collector looks for them there, and takes those it cannot find for gone."""
    async with HttpsCluster(pki).life() as client:
        assert isinstance(client, HttpClient)
        older = client.with_versions(OLDER)
        owner = await older.create(WORKFLOW, workflow())
        references = [
            {
                "apiVersion": version,
                "kind": "Workflow",
                "name": "w",
                "uid": owner["metadata"]["uid"],
            }
            for version in (WORKFLOW.api_version, "v1")
        ]
        child = {"metadata": {"name": "b", "namespace": "default", "ownerReferences": references}}
        made = await older.create(BREAKDOWN, child)
        spelled = [f"{DWS}/v1alpha6", "v1"]
        found = made["metadata"]["ownerReferences"]
        assert [each["apiVersion"] for each in found] == spelled
        changed = await older.patch(
            change(BREAKDOWN, made, {"metadata": {"ownerReferences": references}})
        )
        found = changed["metadata"]["ownerReferences"]
        assert [each["apiVersion"] for each in found] == spelled
