"""Lines of profiles that have no effect: their authors are told so, with the reason."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.dws.builders import meta
from tests.rfc.vectors import vector
from warren.base.objects import Object
from warren.dws import kinds
from warren.dws.storage import idlelines


def profile(**data: Any) -> Object:
    return {"metadata": meta("site", kinds.PROFILES_NAMESPACE), "data": data}


def lustre(**options: Any) -> Mapping[str, Any]:
    return {"lustreStorage": options}


BLOCK = "data.xfsStorage.blockDeviceCommands"
FILES = "data.xfsStorage.fileSystemCommands"
ATTACHED = "compute nodes mount what their rabbit offers, and activate nothing"
REPEATED = "agents take back what they have made in a way that they can repeat"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            {"blockDeviceCommands": {"sharedVg": True, "rabbitCommands": {
                "pvCreate": "$DEVICE", "vgCreate": "$VG_NAME $DEVICE_LIST",
                "vgRemove": "$VG_NAME"}}},
            [f"{BLOCK}.rabbitCommands: pvCreate, vgCreate, vgRemove have no effect: the volume "
             "group is the site's"],
        ),
        (
            {"blockDeviceCommands": {"rabbitCommands": {
                "vgChange": {"lockStart": "--lock-start $VG_NAME", "lockStop": " "},
                "lvmRebuild": {"lvRepair": "x"}}}},
            [f"{BLOCK}.rabbitCommands.vgChange: lockStart has no effect: the volume group is the "
             "site's",
             f"{BLOCK}.rabbitCommands.lvmRebuild: lvRepair has no effect: the volume group is the "
             "site's"],
        ),
        (
            {"blockDeviceCommands": {"computeCommands": {
                "lvChange": {"activate": "-ay x"}, "userCommands": {"preActivate": ["a", "b"]}}}},
            [f"{BLOCK}.computeCommands.lvChange: activate has no effect: {ATTACHED}",
             f"{BLOCK}.computeCommands.userCommands: preActivate has no effect: {ATTACHED}"],
        ),
        (
            {"blockDeviceCommands": {"rabbitCommands": {"lvRemove": "-f $VG_NAME/$LV_NAME"}},
             "fileSystemCommands": {"computeCommands": {"unmount": "-l $MOUNT_PATH"}}},
            [f"{BLOCK}.rabbitCommands: lvRemove has no effect: {REPEATED}",
             f"{FILES}.computeCommands: unmount has no effect: {REPEATED}"],
        ),
        (
            {"fileSystemCommands": {"rabbitCommands": {"mkfss": "$DEVICE"}},
             "userCommands": {"zzz": ["x"]}},
            [f"{FILES}.rabbitCommands: mkfss has no effect: there is no such command. Did you mean "
             "'mkfs'?",
             "data.xfsStorage.userCommands: zzz has no effect: there is no such command"],
        ),
    ],
)  # fmt: skip
def test_a_line_that_has_no_effect_is_told_with_the_reason(
    options: dict[str, Any], told: list[str]
) -> None:
    assert idlelines.warnings(profile(xfsStorage=options)) == told


def test_a_bare_device_has_no_file_system_made() -> None:
    options = {"fileSystemCommands": {"rabbitCommands": {"mkfs": "$DEVICE", "mount": "x"}}}
    assert idlelines.warnings(profile(rawStorage=options, xfsStorage=options)) == [
        "data.rawStorage.fileSystemCommands.rabbitCommands: mkfs has no effect: a bare device has "
        "no file system"
    ]


MGT = "data.lustreStorage.mgtOptions"
LINES = {"preMountCommands": ["lctl x", "lctl y"]}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mgtOptions": LINES}, []),
        ({"mgtOptions": LINES, "combinedMgtMdt": True}, []),
        ({"mgtOptions": {**LINES, "externalMgs": "pool:lake"}}, []),
        (
            {"mgtOptions": {**LINES, "externalMgs": "10.0.0.1@tcp"}},
            [f"{MGT}: preMountCommands has no effect: nothing is run on an MGS that is on no "
             "rabbit"],
        ),
        (
            {"mgtOptions": {**LINES, "standaloneMgtPoolName": "lake"}},
            [f"{MGT}: preMountCommands has no effect: those in the profiles of the file systems "
             "are run, which are on the MGT"],
        ),
        (
            {"mgtMdtOptions": LINES},
            [f"data.lustreStorage.mgtMdtOptions: preMountCommands has no effect: those of "
             f"{MGT}.preMountCommands are run, whatever the MGT is"],
        ),
        (
            {"ostOptions": {"commandlines": {
                "zpoolDestroy": "-f $POOL_NAME", "zpoolReplace": "x", "unmountTarget":
                "$MOUNT_PATH", "preDeactivate": ["x"]}}},
            [f"data.lustreStorage.ostOptions.commandlines: zpoolDestroy has no effect: {REPEATED}",
             "data.lustreStorage.ostOptions.commandlines: zpoolReplace has no effect: flash that "
             "fails is the site's to replace"],
        ),
        (
            {"clientOptions": {"commandlines": {
                "unmountRabbit": "-l $MOUNT_PATH", "computePreMount": ["x"],
                "rabbitPostTeardown": ["x"], "rabbitPreTeardown": ["x"]}}},
            [f"data.lustreStorage.clientOptions.commandlines: unmountRabbit has no effect: "
             f"{REPEATED}",
             "data.lustreStorage.clientOptions.commandlines: rabbitPreTeardown has no effect: no "
             "client mounts a file system to take it down"],
        ),
    ],
)  # fmt: skip
def test_what_has_no_effect_of_lustre_is_told(options: dict[str, Any], told: list[str]) -> None:
    assert idlelines.warnings(profile(**lustre(**options))) == told


EXAMPLE = {
    "blockDeviceCommands": {
        "rabbitCommands": {
            "lvChange": {
                "activate": "--activate y $VG_NAME/$LV_NAME",
                "deactivate": "--activate n $VG_NAME/$LV_NAME",
            },
            "lvCreate": "--size $LV_SIZE --name $LV_NAME $VG_NAME",
            "lvRemove": "$VG_NAME/$LV_NAME",
            "userCommands": {"preActivate": ["a"], "postDeactivate": ["b"]},
        },
    },
    "fileSystemCommands": {
        "computeCommands": {"mount": "$DEVICE $MOUNT_PATH", "unmount": "$MOUNT_PATH",
                            "userCommands": {"postMount": ["c"]}},
        "rabbitCommands": {"mkfs": "$DEVICE", "mount": "$DEVICE $MOUNT_PATH",
                           "unmount": "$MOUNT_PATH"},
    },
    "userCommands": {"postSetup": ["chown $USERID:$GROUPID $MOUNT_PATH"]},
}  # fmt: skip


def test_of_lines_that_are_run_or_done_so_anyway_nothing_is_told() -> None:
    assert idlelines.warnings(profile(xfsStorage=EXAMPLE)) == []


def test_of_the_example_of_nnf_is_told_what_is_the_sites_or_of_compute_nodes() -> None:
    template = yaml.safe_load(vector("dws/nnf_nnfstorageprofile.yaml").read_text())
    told = [each.split(": ", 1) for each in idlelines.warnings(template)]
    assert {why for _, why in told} == {
        f"activate, deactivate have no effect: {ATTACHED}",
        f"lockStart, lockStop have no effect: {ATTACHED}",
        "lockStart, lockStop have no effect: the volume group is the site's",
        "pvCreate, pvRemove, vgCreate, vgRemove have no effect: the volume group is the site's",
    }


@pytest.mark.parametrize("data", [{"xfsStorage": 5}, {"xfsStorage": {"userCommands": {"x": 5}}}])
def test_of_what_is_refused_nothing_else_is_told(data: dict[str, Any]) -> None:
    assert idlelines.warnings(profile(**data)) == []
