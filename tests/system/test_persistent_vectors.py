"""Persistent storage, held against what DWS and NNF have written for it, state by state."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.workloads import Workloads
from tests.harness.world import opened
from tests.rfc.vectors import vector
from warren.base.objects import Key
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.dws.objects.workflows import State

NODES = ("compute-00", "compute-01")
CASES = {
    "06-xfs-1-create": "#DW create_persistent type=xfs capacity=1GiB name=per-xfs",
    "06-xfs-2-use": "#DW persistentdw name=per-xfs",
    "06-xfs-3-destroy": "#DW destroy_persistent name=per-xfs",
}


def expanded(path: Path) -> Mapping[str, list[Any]]:
    """Read a dump with its short forms filled in (README.md there: `same-as`, `except`, `gone`)."""
    found: dict[str, list[Any]] = {}
    for kind, objects in json.loads(path.read_text()).items():
        if kind in ("PersistentStorageInstance", "Workflow"):
            found[kind] = [_full(path, kind, each) for each in objects]
    return found


def _full(path: Path, kind: str, obj: Any) -> Any:
    if "same-as" not in obj:
        return obj
    earlier = expanded((path.parent / obj["same-as"]).resolve())[kind]
    name = obj["metadata"]["name"] if "metadata" in obj else obj["name"]
    full = json.loads(
        json.dumps(next(each for each in earlier if each["metadata"]["name"] == name))
    )
    for pointer, value in obj.get("except", {}).items():
        _put(full, pointer, value)
    for pointer in obj.get("gone", []):
        _put(full, pointer, None, gone=True)
    return full


def _put(doc: Any, pointer: str, value: Any, gone: bool = False) -> None:
    *path, last = [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]
    for each in path:
        doc = doc[int(each) if isinstance(doc, list) else each]
    place: Any = int(last) if isinstance(doc, list) else last
    if gone:
        del doc[place]
    else:
        doc[place] = value


def instance(obj: Any) -> dict[str, Any]:
    """Return what is compared of an instance: all of it, but what the dumps leave out."""
    meta = obj["metadata"]
    return {
        "spec": {name: value for name, value in obj["spec"].items() if value != []},
        "status": obj["status"],
        "finalizers": meta["finalizers"],
        "labels": {
            name: value
            for name, value in (meta.get("labels") or {}).items()
            if not name.endswith(".uid")
        },
        "owners": [
            {name: value for name, value in each.items() if name != "uid"}
            for each in meta.get("ownerReferences") or ()
        ],
    }


def workflow(obj: Any, uid: str = "<uid>") -> dict[str, Any]:
    """Return what is compared of a Workflow: what its user and its workload manager read."""
    status = obj["status"]
    # HPE's controllers name a variable after the type that a persistentdw does not have.
    env = {
        name: each for name, each in (status.get("env") or {}).items() if name != "DW_PERSISTENT_"
    }
    return {
        "status": (status["state"], status["ready"], status["status"], status.get("message", "")),
        "env": {name: value.replace(uid, "<uid>") for name, value in env.items()},
        "drivers": [
            {
                name: each.get(name)
                for name in ("dwdIndex", "watchState", "completed", "status", "message")
            }
            for each in status["drivers"]
        ],
    }


def test_instances_and_workflows_are_those_of_the_real_controllers() -> None:
    dumps = vector("nnf-objects")
    compared = []

    def compare(control: Control, case: str, number: int, state: State) -> None:
        theirs = expanded(dumps / case / f"{number:02}-{state}.json")
        ours = control.api.store.get(kinds.WORKFLOW, Key("default", case))
        uid = ours["metadata"]["uid"]
        (their_workflow,) = theirs["Workflow"]
        assert workflow(ours, uid) == workflow(their_workflow), (case, state)
        found = {
            obj["metadata"]["name"]: obj
            for obj in control.api.store.objects_of(kinds.PERSISTENT_INSTANCE)
        }
        wanted = {
            obj["metadata"]["name"]: obj for obj in theirs.get("PersistentStorageInstance", ())
        }
        assert {name: instance(obj) for name, obj in found.items()} == {
            name: instance(obj) for name, obj in wanted.items()
        }, (case, state)
        compared.append((case, state))

    async def main() -> None:
        async with opened(ClusterShape(rabbits=2, computes_per_rabbit=2)) as world:
            workloads = Workloads(world)

            async def life(control: Control) -> None:
                async with asyncio.timeout(3600):
                    for case, directive in CASES.items():
                        await workloads.make(control, case, directive, userid=1050)
                        for number, state in enumerate(State, start=1):
                            await workloads.reach(control, case, state, NODES)
                            await asyncio.sleep(1)
                            compare(control, case, number, state)
                        await workloads.delete(control, case)

            await world.live(life)

    virtual.run(main())
    assert len(compared) == 3 * len(State)


@pytest.mark.parametrize(
    ("case", "directive", "userid"),
    [
        ("12-persistentdw-missing", "#DW persistentdw name=nothere", 1050),
        ("12-persistent-use-by-other-user", "#DW persistentdw name=per-gfs2", 1060),
        ("12-persistent-destroy-by-other-user", "#DW destroy_persistent name=per-gfs2", 1060),
    ],
)
def test_refusals_are_in_the_words_of_the_real_controllers(
    case: str, directive: str, userid: int
) -> None:
    dump = sorted(vector(f"nnf-objects/{case}").iterdir())[-1]
    (theirs,) = (each for each in expanded(dump)["Workflow"] if each["metadata"]["name"] == case)

    async def main() -> None:
        async with opened(ClusterShape(rabbits=2, computes_per_rabbit=2)) as world:
            workloads = Workloads(world)

            async def life(control: Control) -> None:
                async with asyncio.timeout(3600):
                    create = "#DW create_persistent type=xfs capacity=1GiB name=per-gfs2"
                    await workloads.make(control, "maker", create, userid=1050)
                    await workloads.finish(control, "maker", NODES)
                    await workloads.make(control, case, directive, userid=userid)
                    state = State(dump.stem.partition("-")[2])
                    await workloads.reach(control, case, state, NODES)
                    ours = control.api.store.get(kinds.WORKFLOW, Key("default", case))
                    assert workflow(ours) == workflow(theirs)

            await world.live(life)

    virtual.run(main())
