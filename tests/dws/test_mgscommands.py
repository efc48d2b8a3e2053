"""Commands for the MGS of a file system: what is asked for, what is due and what is answered."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.dws.builders import error, meta
from warren.base.errors import UserMistake
from warren.base.objects import Key, Object
from warren.dws.faults import Fault
from warren.dws.node import NodeTrouble
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import NnfLustreMGT, Requester
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.storage import mgscommands

VARIABLES = [{"name": "$JOBID", "value": "f7"}, {"name": "$USERID", "value": "1050"}]
LINES = ["lctl set_param -P osc.$FS_NAME-*.checksums=1", "lctl conf_param $FS_NAME.x=$JOBID"]
STORAGE = read(
    {
        "metadata": meta("wf-0"),
        "spec": {
            "fileSystemType": "lustre",
            "allocationSets": [
                {"name": "mdt", "capacity": 1, "commandVariables": VARIABLES,
                 "nodes": [{"name": "r0", "count": 2}]},
                {"name": "ost", "capacity": 1, "nodes": [{"name": "r1", "count": 3}]},
            ],
        },
    },
    NnfStorage,
)  # fmt: skip
OWN = {"kind": "NnfStorage", "name": "wf-0", "namespace": "default", "uid": "uid-wf-0"}
OTHER = {**OWN, "name": "other", "uid": "uid-other"}
EARLIER = {**OWN, "uid": "uid-of-before"}
REQUESTER = Requester(kind="NnfStorage", name="wf-0", namespace="default", uid="uid-wf-0")


def profile(lines: Sequence[str] = LINES, **options: Any) -> NnfStorageProfile:
    found = {"lustreStorage": {"mgtOptions": {"preMountCommands": list(lines), **options}}}
    return read({"metadata": meta("p"), "data": found}, NnfStorageProfile)


def mgt(
    asked: Sequence[tuple[Object, Sequence[str]]] = (),
    answers: Sequence[Object] = (),
    namespace: str = "r9",
) -> NnfLustreMGT:
    every = [{"reference": reference, "commands": list(lines)} for reference, lines in asked]
    obj = {
        "metadata": meta("mgs", namespace),
        "spec": {"addresses": ["10.0.0.9@tcp"], "commandList": every},
        "status": {"commandList": list(answers)},
    }
    return read(obj, NnfLustreMGT)


def of_storage(found: NnfStorageProfile | None, name: str = "aaaaaaab", **more: Any) -> list[str]:
    return [*mgscommands.lines_for_storage(STORAGE, found, mgt(**more), "10.0.0.9@tcp", name)]


# What is asked for


def test_commands_are_those_of_the_profile_with_the_name_of_the_file_system() -> None:
    """As NNF has them in its objects (nnf-objects/05j)."""
    assert of_storage(profile()) == [
        "lctl set_param -P osc.aaaaaaab-*.checksums=1",
        "lctl conf_param aaaaaaab.x=f7",
    ]
    counted = profile(["lctl x $NUM_MDTS $NUM_OSTS $NUM_NNFNODES $MGS_NID $USERID", " "])
    assert of_storage(counted) == ["lctl x 2 3 2 10.0.0.9@tcp 1050"]


def test_values_of_the_profile_hold_and_are_words_still() -> None:
    override = {"$JOBID": "it's two", "$FS_NAME": "zzzzzzzz"}
    asked = of_storage(profile(["lctl $JOBID $FS_NAME"], variableOverride=override))
    assert asked == ["lctl 'it'\"'\"'s two' aaaaaaab"]
    wanted = mgt([(OWN, asked)]).spec.command_list[0]
    assert mgscommands.vectors(wanted) == [["lctl", "it's two", "aaaaaaab"]]


@pytest.mark.parametrize(
    ("found", "more"),
    [
        (None, {}),
        (profile([]), {}),
        (profile(), {"name": ""}),  # an MGT alone
        (profile(), {"namespace": "nnf-system"}),  # an admin's, of an MGS that is on no rabbit
    ],
)
def test_where_there_is_nothing_to_run_or_no_agent_nothing_is_asked_for(
    found: NnfStorageProfile | None, more: dict[str, Any]
) -> None:
    assert of_storage(found, **more) == []


def test_a_line_of_a_profile_that_was_edited_since_is_told_with_its_place() -> None:
    with pytest.raises(UserMistake, match=r"mgtOptions.preMountCommands: .* for a shell"):
        of_storage(profile(["lctl x | tee y"]))


def test_a_storage_asks_once_beside_others_and_in_place_of_one_of_its_name() -> None:
    change = mgscommands.request_change(mgt([(OTHER, ["a"]), (EARLIER, ["b"])]), STORAGE, ["c"])
    assert change is not None
    assert (change.key, change.resource_version) == (Key("r9", "mgs"), "7")
    assert change.patch["spec"]["commandList"] == [
        {"reference": OTHER, "commands": ["a"]},
        {"reference": OWN, "commands": ["c"]},
    ]
    assert mgscommands.request_change(mgt([(OWN, ["c"])]), STORAGE, ["d"]) is None


def test_a_storage_that_goes_asks_for_nothing_any_more() -> None:
    left = mgscommands.spec_without(mgt([(OTHER, ["a"]), (OWN, ["c"])]), STORAGE)
    assert left == {"commandList": [{"reference": OTHER, "commands": ["a"]}]}
    assert mgscommands.spec_without(mgt([(OTHER, ["a"])]), STORAGE) == {}


@pytest.mark.parametrize(
    ("answers", "run"),
    [
        ([], False),
        ([{"reference": OTHER, "ready": True}], False),
        ([{"reference": EARLIER, "ready": True}], False),
        ([{"reference": OTHER, "ready": False}, {"reference": OWN, "ready": True}], True),
    ],
)
def test_what_was_run_for_a_storage_is_its_own_alone(answers: list[Object], run: bool) -> None:
    assert mgscommands.are_run(mgt(answers=answers), STORAGE) is run


def test_what_keeps_commands_from_being_run_is_told_with_the_rabbit() -> None:
    failed = {"reference": OWN, "ready": False, "error": error("no lctl", "Major")}
    with pytest.raises(Fault, match="r9: no lctl") as caught:
        mgscommands.are_run(mgt(answers=[failed]), STORAGE)
    assert caught.value.severity == "Major"


# What is due, and answered


def due(*answers: Object) -> list[tuple[str, ...]]:
    found = mgt([(OTHER, ["a"]), (OWN, ["b"])], answers)
    return [each.commands for each in mgscommands.unanswered_commands(found)]


def test_what_was_not_run_to_its_end_is_due_but_not_what_never_will_be() -> None:
    assert due() == [("a",), ("b",)]
    assert due({"reference": OTHER, "ready": True}) == [("b",)]
    stuck = {"reference": OTHER, "ready": False, "error": error("busy", "Major")}
    assert due(stuck, {"reference": EARLIER, "ready": True}) == [("a",), ("b",)]
    assert due({**stuck, "error": error("no such variable", "Fatal")}) == [("b",)]


@pytest.mark.parametrize("line", ["lctl 'x", "lctl x; reboot", "lctl $FS_NAME"])
def test_a_line_that_makes_no_sense_is_not_run(line: str) -> None:
    wanted = mgt([(OWN, [line])]).spec.command_list[0]
    with pytest.raises(NodeTrouble, match=r"spec\.commandList") as caught:
        mgscommands.vectors(wanted)
    assert caught.value.fatal


def told(
    found: NnfLustreMGT, ran: Mapping[Requester, NodeTrouble | None] = {}
) -> Sequence[Object] | None:
    change = mgscommands.answer_change(found, ran)
    if change is None:
        return None
    assert change.status
    assert (change.key, change.resource_version) == (Key("r9", "mgs"), "7")
    entries: Sequence[Object] = change.patch["status"]["commandList"]
    return entries


def test_an_answer_is_told_once_and_forgotten_with_its_question() -> None:
    ready = {"reference": OWN, "ready": True}
    kept = {"reference": OTHER, "ready": False, "error": error("no", "Major")}
    both = [(OTHER, ["a"]), (OWN, ["b"])]
    assert told(mgt(both, [kept]), {REQUESTER: None}) == [kept, ready]
    assert told(mgt(both, [kept, ready])) is None
    assert told(mgt(both, [kept, ready]), {REQUESTER: None}) is None
    assert told(mgt(both[:1], [kept, ready])) == [kept]
    assert told(mgt(both[1:])) is None


def test_a_failure_is_told_with_its_words_until_it_is_over() -> None:
    trouble = NodeTrouble("lctl cannot be run: it is not there")
    first = told(mgt([(OWN, ["b"])]), {REQUESTER: trouble})
    assert first == [
        {"reference": OWN, "ready": False, "error": {
            "debugMessage": "lctl cannot be run: it is not there", "type": "Internal",
            "severity": "Major"}}
    ]  # fmt: skip
    assert told(mgt([(OWN, ["b"])], first), {REQUESTER: trouble}) is None
    assert told(mgt([(OWN, ["b"])], first), {REQUESTER: None}) == [
        {"reference": OWN, "ready": True}
    ]
