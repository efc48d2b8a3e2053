"""Servers and what becomes of them, held against what NNF has made of the same.

Of file systems that are not made here, gfs2 and Lustre, that is all that there is to compare
beside their breakdowns, `tests/controllers/test_breakdown_vectors.py` (dws-spec section 5).
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.dws import nnf_objects
from tests.dws.builders import made
from warren.base.objects import Object
from warren.dws import children, kinds
from warren.dws.breakdown import servers
from warren.dws.faults import Fault
from warren.dws.objects.assignments import Servers
from warren.dws.objects.breakdowns import AllocationNeed, DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import Workflow
from warren.dws.storage import nnfstorage

WIRED: Final = {
    "compute-00": "rabbit-0",
    "compute-01": "rabbit-0",
    "compute-02": "rabbit-1",
    "compute-03": "rabbit-1",
}

REFUSED: Final[Mapping[str, str]] = {
    # The profile asks for rabbits with labels that these do not have. NNF leaves it to the
    # workload manager to look.
    "11a-xfs-padding": "rabbit-0 lacks fast, pool-a, which set xfs asks for",
    "11b-gfs2-padding": "rabbit-0 lacks fast, which set gfs2 asks for",
    "11c-raw-padding": "rabbit-0 lacks fast, which set raw asks for",
    # NNF waits in PreRun for what never comes.
    "12-servers-fewer-than-computes": "rabbit-0 has 1 allocation of set xfs for 2 compute nodes",
    "12-servers-other-rabbit": "rabbit-0 has 0 allocations of set xfs for 1 compute node",
}
"""What is refused in Setup here alone, and how."""

TAKEN: Final = ("12-capacity-huge",)
"""What NNF refuses when it makes the storage, as rabbits do here."""


@dataclass(frozen=True, kw_only=True)
class Filled:
    """What a workload manager has filled in, and whether NNF came to be ready by it."""

    case: str
    ready: bool
    needs: Sequence[AllocationNeed]
    servers: Servers
    placed: Mapping[str, int]


def filled() -> Iterator[Filled]:
    drive = nnf_objects.PLACE / "drive.json"
    steps = json.loads(drive.read_text()) if drive.exists() else {}
    for case in nnf_objects.cases():
        done = {step["step"]: step for step in reversed(steps.get(case, ()))}
        fill, setup = done.get("fill"), done.get("Setup")
        if fill is None or setup is None:
            continue
        needs = _needs(nnf_objects.PLACE / case)
        for each in fill["filled"]:
            # Some dumps leave breakdowns out.
            if each["servers"] in needs:
                spec = {"allocationSets": each["allocationSets"]}
                found = {"metadata": {"name": each["servers"]}, "spec": spec}
                yield Filled(
                    case=case,
                    ready=setup["ready"],
                    needs=needs[each["servers"]],
                    servers=read(found, Servers),
                    placed=Counter(WIRED[name] for name in fill["computes"] if name in WIRED),
                )


def _needs(place: Path) -> dict[str, Sequence[AllocationNeed]]:
    """Return what NNF's breakdowns ask for, by the names of the Servers."""
    found: dict[str, Sequence[AllocationNeed]] = {}
    for path in sorted(place.glob("0[12]-*.json")):
        for obj in nnf_objects.dump(path).get("DirectiveBreakdown", ()):
            asked = read(obj, DirectiveBreakdown).status.storage
            if asked is not None:
                found[asked.reference.name] = asked.allocation_sets
    return found


FILLED: Final[list[Any]] = list(filled()) or [
    pytest.param(None, marks=pytest.mark.skip("the vectors of nnf-objects are missing"))
]


def rabbits() -> Mapping[str, Storage]:
    there = nnf_objects.dump(nnf_objects.PLACE / "system.json")["Storage"]
    return {obj["metadata"]["name"]: read(obj, Storage) for obj in there}


@pytest.mark.parametrize("each", FILLED, ids=lambda each: each.case if each else "")
def test_servers_that_nnf_takes_are_taken_and_those_it_refuses_are_refused(each: Filled) -> None:
    fault = refusal(each)
    if fault is None:
        assert each.ready or each.case in TAKEN
        assert each.case not in REFUSED
        return
    assert not each.ready or REFUSED[each.case] in str(fault)
    assert (fault.type, fault.severity) == ("WLM", "Fatal")


def refusal(each: Filled) -> Fault | None:
    try:
        servers.check(each.needs, each.servers, rabbits(), each.placed)
    except Fault as fault:
        return fault
    return None


def test_each_kind_of_file_system_is_among_what_is_filled_in() -> None:
    if not nnf_objects.cases():
        pytest.skip("the vectors of nnf-objects are missing")
    labels = {need.label for each in FILLED for need in each.needs}
    assert labels == {"xfs", "gfs2", "raw", "ost", "mdt", "mgt", "mgtmdt"}
    assert {*REFUSED, *TAKEN} <= {each.case for each in FILLED}


# What becomes of them

LOCAL: Final = ("01-xfs-1c", "02-xfs-3c", "03a-gfs2-2c", "03b-gfs2-3c", "04-raw-2c")


def found(case: str, kind: str) -> list[Any]:
    place = nnf_objects.PLACE / case / "02-Setup.json"
    if not place.exists():
        pytest.skip("the vectors of nnf-objects are missing")
    # NNF's lists keep the order of rabbits, dumps that of namespaces.
    return list(nnf_objects.dump(place)[kind])


def without(spec: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in names}


def specs(objects: Sequence[Any]) -> dict[tuple[str, str], Any]:
    return {(obj["metadata"]["namespace"], obj["metadata"]["name"]): obj["spec"] for obj in objects}


def stored(case: str) -> Object:
    """Return the NnfStorage that is made here of the Servers of a case."""
    (workflow,) = found(case, "Workflow")
    (filled_in,) = found(case, "Servers")
    # The vectors leave UIDs out, and have this word where they are named.
    metadata = {**workflow["metadata"], "uid": "uid"}
    owner = children.owner_for_directive(read({**workflow, "metadata": metadata}, Workflow), 0)
    name = filled_in["metadata"]["name"]
    kind = filled_in["spec"]["allocationSets"][0]["label"]
    return nnfstorage.new(owner, name, kind, read(filled_in, Servers))


@pytest.mark.parametrize("case", LOCAL)
def test_storage_that_is_made_of_servers_is_as_nnfs(case: str) -> None:
    (theirs,) = found(case, "NnfStorage")
    ours = stored(case)
    assert ours["metadata"]["labels"] == theirs["metadata"]["labels"]
    assert ours["metadata"]["finalizers"] == theirs["metadata"]["finalizers"]
    (own,) = ours["spec"]["allocationSets"]
    (real,) = theirs["spec"]["allocationSets"]
    assert own == without(real, "persistentMgsReference")
    sets = "allocationSets"
    assert without(ours["spec"], sets) == without(theirs["spec"], sets)


@pytest.mark.parametrize("case", LOCAL)
def test_the_shares_of_rabbits_are_as_nnfs(case: str) -> None:
    """But for what docs/nnf-objects.md says of raw storage's capacity, and empty values."""
    profiles = [
        read({**each, "data": _data(each)}, NnfStorageProfile)
        for each in found(case, "NnfStorageProfile")
    ]
    writes = nnfstorage.decide(read(stored(case), NnfStorage), [], [], profiles[0])
    shares = specs(made(writes, kinds.NNF_NODE_STORAGE))
    theirs = specs(found(case, "NnfNodeStorage"))
    assert shares.keys() == theirs.keys()
    left_out = ("lustreStorage", "capacity") if "raw" in case else ("lustreStorage",)
    for key, spec in theirs.items():
        assert without(shares[key], *left_out) == without(spec, *left_out)
    assert specs(made(writes, kinds.NNF_NODE_BLOCK_STORAGE)) == specs(
        found(case, "NnfNodeBlockStorage")
    )


def _data(pinned: Mapping[str, Any]) -> dict[str, Any]:
    source = pinned["data"]["same-as"].rpartition(" ")[2]
    return {**nnf_objects.profiles()[source]["data"], **without(pinned["data"], "same-as")}
