"""The objects of a Workflow, state by state, as the NNF controllers write them.

The real controllers' objects are ../shared/vectors/nnf-objects. Each difference is a row of
docs/nnf-objects.md: what is not there fails here, and so does a row that explains nothing.
"""

import asyncio
import copy
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.harness import virtual
from tests.harness.world import opened
from tests.rfc.vectors import vector
from warren.base.objects import Change, Key, Object
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds, labels
from warren.kube.client import Client
from warren.kube.server.local import LocalClient

TABLE: Final = Path(__file__).parents[2] / "docs" / "nnf-objects.md"
GLOBAL: Final = "/lus/global0"
CAPACITY: Final = 39582418599936
"""Of each rabbit of the vectors."""

COMPARED: Final = tuple(
    kind for kind in kinds.ALL if kind not in (kinds.DIRECTIVE_RULE, kinds.SYSTEM_CONFIGURATION)
)
"""The others are the administrator's, not a Workflow's."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a workload manager does, as drive.json has it."""

    vector: str
    directives: Sequence[str]
    computes: Sequence[str]
    filled: Sequence[Mapping[str, Any]]
    """The allocation sets of each Servers."""
    states: Sequence[str]


def case(name: str) -> Case:
    """Read one case of the vectors."""
    steps = json.loads(vector("nnf-objects/drive.json").read_text())[name]
    if name == TWO:
        steps = json.loads(json.dumps(steps).replace("gfs2", "xfs"))
    (fill,) = [step for step in steps if step["step"] == "fill"]
    return Case(
        vector=name,
        directives=steps[0]["directives"],
        computes=fill["computes"],
        filled=fill["filled"],
        states=[step["step"] for step in steps if step.get("ready") and step["step"] != "Proposal"],
    )


TWO: Final = "10-two-jobdw"
"""Its second jobdw is a gfs2, which Warren has not: xfs is made in its place, and only the objects
of the first are compared."""

CASES: Final = (
    "00-no-directives",
    "01-xfs-1c",
    "02-xfs-3c",
    "04-raw-2c",
    "07a-copy-xfs",
    TWO,
    "11f-more-than-asked",
)


# The vectors, with their short forms filled in (README of the vectors)


@cache
def expanded(path: Path) -> dict[str, list[Any]]:
    """Read a dump whose objects may be written as differences to earlier ones."""
    found: dict[str, list[Any]] = {}
    for kind, objects in json.loads(path.read_text()).items():
        found[kind] = []
        for obj in objects:
            earlier = expanded((path.parent / obj["same-as"]).resolve()) if "same-as" in obj else {}
            if "all" in obj:
                found[kind] += earlier[kind]
            elif earlier:
                found[kind].append(_changed(earlier[kind], obj))
            else:
                found[kind].append(obj)
    return found


def _changed(earlier: Sequence[Any], short: Mapping[str, Any]) -> Any:
    place = (short.get("namespace", ""), short["name"])
    whole = copy.deepcopy(next(each for each in earlier if _place(each) == place))
    for pointer, value in short.get("except", {}).items():
        _put(whole, pointer, value)
    for pointer in short.get("gone", ()):
        _put(whole, pointer, _GONE)
    return whole


_GONE: Final = object()


def _place(obj: Any) -> tuple[str, str]:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _put(document: Any, pointer: str, value: Any) -> None:
    *path, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    if value is _GONE:
        del document[last]
    elif isinstance(document, list):
        document[int(last)] = value
    else:
        document[last] = value


# Warren's objects, with what varies left out as the vectors leave it out

_VARIES: Final = ("managedFields", "uid", "resourceVersion", "creationTimestamp", "generation")


def told(control: Control) -> dict[str, list[Any]]:
    """Return every object that is compared, as a dump has it."""
    everything = {
        kind.name: [
            obj
            for obj in control.api.store.objects_of(kind)
            if obj["metadata"].get("namespace") != kinds.PROFILES_NAMESPACE
        ]
        for kind in COMPARED
    }
    uids = {obj["metadata"]["uid"] for objects in everything.values() for obj in objects}
    uids |= {
        owner["uid"]
        for objects in everything.values()
        for obj in objects
        for owner in obj["metadata"].get("ownerReferences", ())
    }
    text = json.dumps(everything)
    for uid in uids:
        text = text.replace(uid, "<uid>")
    text = re.sub(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"', '"<time>"', text)
    text = re.sub(r'("elapsedTimeLastState": )"[^"]*"', r'\1"<duration>"', text)
    found: dict[str, list[Any]] = json.loads(text)
    for objects in found.values():
        for obj in objects:
            for name in _VARIES:
                obj["metadata"].pop(name, None)
    return found


# The comparison


@dataclass(frozen=True)
class Difference:
    kind: str
    field: str
    """With `[]` for each place in a list; in brackets, the name of an object that one lacks."""
    nnf: Any
    warren: Any


_ABSENT: Final = "absent"


def differences(kind: str, nnf: Any, warren: Any, field: str = "") -> Iterator[Difference]:
    if isinstance(nnf, dict) and isinstance(warren, dict):
        for name in sorted(nnf.keys() | warren.keys()):
            inner = f"{field}.{name}" if field else name
            yield from differences(kind, nnf.get(name, _ABSENT), warren.get(name, _ABSENT), inner)
    elif isinstance(nnf, list) and isinstance(warren, list) and len(nnf) == len(warren):
        if field == "metadata.finalizers":
            nnf, warren = sorted(nnf), sorted(warren)
        for one, other in zip(nnf, warren, strict=True):
            yield from differences(kind, one, other, f"{field}[]")
    elif nnf != warren:
        yield Difference(kind, field, nnf, warren)


def compared(
    workflow: str, nnf: Mapping[str, Any], warren: Mapping[str, Any]
) -> Iterator[Difference]:
    for kind in sorted(nnf.keys() | warren.keys()):
        if kind in _LEFT_OUT:
            continue
        theirs = {_place(obj): obj for obj in nnf.get(kind, ())}
        ours = {_place(obj): obj for obj in warren.get(kind, ())}
        for place in sorted(theirs.keys() | ours.keys()):
            one, other = theirs.get(place, _ABSENT), ours.get(place, _ABSENT)
            if _ABSENT in (one, other):
                named = f"({place[1].replace(workflow, 'wf')})"
                yield Difference(
                    kind, named, *("absent" if x is _ABSENT else "there" for x in (one, other))
                )
            else:
                yield from differences(kind, one, other)


_LEFT_OUT: Final = frozenset(
    ("LustreFileSystem", "NnfDataMovementManager", "NnfPortManager", "Secret")
)
"""What the administrator has made, and no Workflow changes."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    kind: str
    field: str

    def explains(self, difference: Difference) -> bool:
        return self.kind == difference.kind and (
            difference.field == self.field
            or difference.field.startswith((f"{self.field}.", f"{self.field}["))
        )


def rows() -> list[Row]:
    """Read the table of the document: kind, field, NNF, Warren, why."""
    found = []
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[0].startswith("`"):
            kind, field, *said = cells
            assert all(said), f"{line}: a cell is empty"
            found += [Row(kind.strip("`"), each.strip("`")) for each in field.split(", ")]
    return found


# What a workload manager does


async def driven(control: Control, case: Case) -> dict[str, dict[str, list[Any]]]:
    """Take a Workflow through its states; return all objects of each."""
    client = LocalClient(control.api.store)
    await client.create(
        kinds.LUSTRE_FILE_SYSTEM,
        {
            "metadata": {"name": "global0", "namespace": "default"},
            "spec": {
                "name": "global0",
                "mgsNids": "10.1.1.1@tcp",
                "mountRoot": GLOBAL,
                "namespaces": {"default": {"modes": ["ReadWriteMany"]}},
            },
        },
    )
    key = Key("default", case.vector)
    await client.create(
        kinds.WORKFLOW,
        {
            "metadata": {"name": key.name, "namespace": key.namespace},
            "spec": {
                "desiredState": "Proposal", "dwDirectives": list(case.directives),
                "wlmID": "kit", "jobID": 1, "userID": 1050, "groupID": 1050,
                "forceReady": False, "hurry": False,
            },
        },
    )  # fmt: skip
    seen = {"Proposal": await _reached(control, client, key, "Proposal")}
    for each in case.filled:
        sets: Object = {"spec": {"allocationSets": each["allocationSets"]}}
        place = Key("default", each["servers"])
        await client.patch(Change(kind=kinds.SERVERS, key=place, patch=sets))
    data: Object = {"data": [{"name": name} for name in case.computes]}
    await client.patch(Change(kind=kinds.COMPUTES, key=key, patch=data))
    for state in case.states:
        patch: Object = {"spec": {"desiredState": state}}
        await client.patch(Change(kind=kinds.WORKFLOW, key=key, patch=patch))
        seen[state] = await _reached(control, client, key, state)
    return seen


async def _reached(control: Control, client: Client, key: Key, state: str) -> dict[str, list[Any]]:
    while True:
        status = (await client.get(kinds.WORKFLOW, key)).get("status", {})
        assert status.get("status") not in ("Error", "TransientCondition"), status
        if status.get("state") == state and status.get("ready"):
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    return told(control)


def objects_of(name: str) -> dict[str, dict[str, list[Any]]]:
    """Return Warren's objects in each state of a case."""
    # Read here: what skips a test within a cluster's life does not say why.
    steps = case(name)

    async def main() -> dict[str, dict[str, list[Any]]]:
        shape = ClusterShape(rabbits=2, computes_per_rabbit=2, capacity=CAPACITY)
        async with opened(shape) as world:

            async def life(control: Control) -> dict[str, dict[str, list[Any]]]:
                return await driven(control, steps)

            found = await world.live(life)
            assert found is not None
            return found

    return virtual.run(main())


def found_in(name: str) -> Iterator[tuple[str, Difference]]:
    """Return how the objects of a case differ, and in which state."""
    ours = objects_of(name)
    for state, objects in ours.items():
        # Not every state of every case was taken down.
        for dump in vector(f"nnf-objects/{name}").glob(f"??-{state}.json"):
            theirs = expanded(dump.resolve())
            if name == TWO:
                theirs, objects = of_first(theirs), of_first(objects)
            for each in compared(name, theirs, objects):
                yield state, each


def of_first(objects: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """Return the objects of the first directive."""

    def index(obj: Any) -> str | None:
        own: str | None = obj["metadata"].get("labels", {}).get(labels.DIRECTIVE_INDEX)
        # NNF's pinned profiles have no such label, but are called as the rest.
        return own or obj["metadata"]["name"].rpartition("-")[2]

    return {kind: [obj for obj in each if index(obj) == "0"] for kind, each in objects.items()}


def test_the_first_of_two_jobdw_is_called_as_nnf_calls_it() -> None:
    """dws-spec section 9: the variables, but for the type that is not made."""
    theirs = expanded(vector(f"nnf-objects/{TWO}/04-PreRun.json").resolve())["Workflow"][0]
    ours = objects_of(TWO)["PreRun"]["Workflow"][0]
    found = dict(ours["status"]["env"])
    wanted = dict(theirs["status"]["env"])
    wanted.pop("DW_JOB_GFS2")
    assert found == wanted


def test_a_global_file_system_is_as_its_operator_leaves_it() -> None:
    """dws-spec section 13, where nothing makes volumes: no Workflow changes it."""
    (theirs,) = expanded(vector("nnf-objects/system.json").resolve())["LustreFileSystem"]
    for objects in objects_of("01-xfs-1c").values():
        ours = [each for each in objects["LustreFileSystem"] if _place(each)[1] == "global0"]
        assert [list(differences("LustreFileSystem", theirs, each)) for each in ours] == [[]]


def test_every_difference_to_nnf_is_in_the_table_and_nothing_else() -> None:
    table = rows()
    used = set()
    unexplained = []
    for name in CASES:
        for state, difference in found_in(name):
            explained = [row for row in table if row.explains(difference)]
            used.update(explained)
            if not explained:
                unexplained.append(f"{name} {state}: {difference}")
    assert unexplained == []
    assert [row for row in table if row not in used] == [], "these rows explain nothing"


def test_a_difference_and_a_row_are_of_one_field() -> None:
    row = Row("Storage", "status.devices")
    assert row.explains(Difference("Storage", "status.devices[].slot", "8", "7"))
    assert not row.explains(Difference("Storage", "status.devicesAll", "8", "7"))
    assert not row.explains(Difference("Storage", "status", {}, "absent"))
    assert not row.explains(Difference("NnfNode", "status.devices", [], "absent"))
    lists = {"a": [1, 2], "b": [1], "metadata": {"finalizers": ["x", "y"]}}
    others = {"a": [1, 3], "b": [], "metadata": {"finalizers": ["y", "x"]}}
    fields = [each.field for each in differences("Storage", lists, others)]
    assert fields == ["a[]", "b"]
