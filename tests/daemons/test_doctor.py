"""The doctor of a cluster that runs: jobs come and go while it looks."""

from pathlib import Path
from typing import Any

from tests.controllers.alone import Api, alone
from tests.dws.builders import meta
from warren.base.objects import Key, Kind
from warren.daemons import doctor
from warren.daemons.clustershape import ClusterShape
from warren.daemons.doctor import Doctor
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir
from warren.dws import audit, kinds, labels
from warren.dws.audit import NodeInventory
from warren.kube.client import Listing

PARTS = (kinds.COMPUTES, kinds.BREAKDOWN, kinds.SERVERS)


async def add_parts(api: Api, uid: str) -> None:
    carried = {labels.WORKFLOW_UID: uid, labels.WORKFLOW_NAME: "wf"}
    for kind in PARTS:
        await api.add(kind, {"metadata": meta("wf", labels=carried), "spec": {}})


class _Submitting:
    """A client beside which, after each list of a kind, a job is submitted once."""

    def __init__(self, api: Api, after: Kind) -> None:
        self._api = api
        self._after: Kind | None = after

    async def list(self, kind: Kind, namespace: str = "", labels: Any = None) -> Listing:
        found = await self._api.list(kind, namespace, labels)
        if kind == self._after:
            self._after = None
            made = await self._api.add(kinds.WORKFLOW, {"metadata": meta("wf"), "spec": {}})
            await add_parts(self._api, made["metadata"]["uid"])
        return found


def test_what_a_job_has_that_is_submitted_meanwhile_is_no_orphan() -> None:
    for after in (*audit.OWNERS, *audit.DEPENDENTS):

        async def story(api: Api, after: Kind = after) -> None:
            objects = await doctor.list_examined_objects(_Submitting(api, after))  # type: ignore[arg-type]

            assert audit.orphans(NodeInventory(processes={}), objects, ()) == []
            assert api.keys(kinds.COMPUTES) == ["default/wf"]

        alone(story)


class _Ending:
    """A client beside which a Workflow goes when its Computes have been listed."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def list(self, kind: Kind, namespace: str = "", labels: Any = None) -> Listing:
        found = await self._api.list(kind, namespace, labels)
        if kind == kinds.COMPUTES:
            await self._api.remove(kinds.WORKFLOW, Key("default", "wf"))
        return found


def test_what_a_job_has_that_ends_meanwhile_is_no_orphan() -> None:
    async def story(api: Api) -> None:
        made = await api.add(kinds.WORKFLOW, {"metadata": meta("wf"), "spec": {}})
        await add_parts(api, made["metadata"]["uid"])
        objects = await doctor.list_examined_objects(_Ending(api))  # type: ignore[arg-type]

        assert audit.orphans(NodeInventory(processes={}), objects, ()) == []

    alone(story)


def test_what_has_taken_the_name_of_an_orphan_meanwhile_is_not_removed(tmp_path: Path) -> None:
    async def story(api: Api) -> None:
        state = StateDir(tmp_path)
        examiner = Doctor(state, api, Nodes(state, ClusterShape(), isolated=False))
        await add_parts(api, "gone")
        found = audit.orphans(
            NodeInventory(processes={}), await doctor.list_examined_objects(api), ()
        )
        assert len(found) == len(PARTS)
        await api.remove(kinds.COMPUTES, Key("default", "wf"))
        await api.add(kinds.COMPUTES, {"metadata": meta("wf")})
        for finding in found:
            await examiner.remove(finding)

        assert api.keys(kinds.COMPUTES) == ["default/wf"]
        assert api.keys(kinds.SERVERS) == []

    alone(story)
