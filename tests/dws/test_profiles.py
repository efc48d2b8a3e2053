"""Profiles: what none may say, and which copies are made of them (dws-spec section 10)."""

from typing import Any

import pytest
import yaml

from tests.dws import nnf_objects
from tests.dws.builders import meta, raw_profile
from tests.rfc.vectors import vector
from warren.base.objects import Object, merge_patch
from warren.dws import kinds, labels
from warren.dws.objects.meta import Meta
from warren.dws.storage.storageprofiles import index_choices, mistakes, pinned_copy

LUSTRE = "data.lustreStorage"


def said(data: Any, namespace: str = kinds.PROFILES_NAMESPACE) -> Object:
    return {"kind": "NnfStorageProfile", "metadata": meta("p", namespace), "data": data}


def lustre(**options: Any) -> Object:
    return said({"lustreStorage": options})


def changing(name: str, line: str | list[str]) -> Object:
    commands = {"rabbitCommands": {"lvChange": {name: line}}}
    return said({"xfsStorage": {"blockDeviceCommands": commands}})


@pytest.mark.parametrize(
    ("profile", "found"),
    [
        (
            said({"default": True, "pinned": True}, "default"),
            ["data.default: a pinned profile cannot be the default"],
        ),
        (
            said({}, "default"),
            ["metadata.namespace: profiles that are not pinned are in nnf-system"],
        ),
        (
            lustre(
                combinedMgtMdt=True,
                mgtOptions={"externalMgs": "a", "standaloneMgtPoolName": "b"},
            ),
            [
                f"{LUSTRE}.mgtOptions.externalMgs: cannot be beside {LUSTRE}.combinedMgtMdt: a "
                "file system has one MGT",
                f"{LUSTRE}.mgtOptions.standaloneMgtPoolName: cannot be beside "
                f"{LUSTRE}.combinedMgtMdt: a file system has one MGT",
            ],
        ),
        (
            lustre(mgtOptions={"externalMgs": "pool:a", "standaloneMgtPoolName": "b"}),
            [
                f"{LUSTRE}.mgtOptions.standaloneMgtPoolName: cannot be beside "
                f"{LUSTRE}.mgtOptions.externalMgs: a file system has one MGT",
            ],
        ),
        *(
            (
                lustre(**{target: {"count": 1, "scale": 5}}),
                [
                    f"{LUSTRE}.{target}.scale: cannot be beside {LUSTRE}.{target}.count: leave one "
                    "out"
                ],
            )
            for target in ("mgtOptions", "mdtOptions", "mgtMdtOptions", "ostOptions")
        ),
        (
            lustre(mdtOptions={"capacity": "0GiB"}, mgtOptions={"capacity": "some"}),
            [
                f"{LUSTRE}.mgtOptions.capacity: 'some' is not a capacity: write a number and a "
                "unit, such as 100GiB",
                f"{LUSTRE}.mdtOptions.capacity: '0GiB' is no room for a target: write more, such "
                "as 5GiB",
            ],
        ),
        *(
            (
                changing(name, line),
                [
                    f"data.xfsStorage.blockDeviceCommands.rabbitCommands.lvChange.{name}: the "
                    "group has volumes of others: name the one by $VG_NAME/$LV_NAME, alone"
                ],
            )
            for name in ("activate", "deactivate")
            for line in (
                ["-ay $VG_NAME"],
                "-ay $LV_NAME",
                "-ay $VG_NAME $VG_NAME/$LV_NAME",
                "-ay /dev/$VG_NAME",
            )
        ),
        *(
            (
                lustre(mgtOptions={"preMountCommands": [f"lctl {name} $FS_NAME"], **more}),
                [
                    f"{LUSTRE}.mgtOptions.preMountCommands: {name} has no value here: an MGS is "
                    "told of a file system, and of no target"
                ],
            )
            for name in ("$MOUNT_PATH", "$POOL_NAME", "$ZVOL_NAME", "$BACKFS")
            for more in ({}, {"variableOverride": {"$JOBID": "1"}})
        ),
        (
            lustre(ostOptions={"capacityScalingFactor": "0"}),
            [
                f"{LUSTRE}.ostOptions.capacityScalingFactor: '0' is not a factor: write a number "
                "above 0, such as 1.5"
            ],
        ),
        (
            said(
                {
                    "gfs2Storage": {"variableOverride": {"$LOCKSPACE": "a", "VG_NAME": "b"}},
                    "xfsStorage": {"allocationPadding": "10 %"},
                }
            ),
            [
                "data.xfsStorage.allocationPadding: '10 %' is not a capacity: write a number and a "
                "unit, such as 100GiB",
                "data.gfs2Storage.variableOverride: there is no variable '$LOCKSPACE'. Did you "
                "mean '$LOCK_SPACE'?",
                "data.gfs2Storage.variableOverride: 'VG_NAME' does not start with $: the name of a "
                "variable does",
            ],
        ),
        *(
            (
                lustre(**{where: {"variableOverride": {"$": "a"}}}),
                [f"{LUSTRE}.{where}.variableOverride: there is no variable '$'"],
            )
            for where in ("clientOptions", "ostOptions", "mgtOptions")
        ),
        (said({"default": "maybe"}), ["data: NnfStorageProfile p: Expected `bool`, got `str` - at "
                                      "`$.data.default`"]),
    ],
)  # fmt: skip
def test_all_that_is_wrong_with_a_profile_is_told_with_its_place(
    profile: Object, found: list[str]
) -> None:
    assert [str(each) for each in mistakes(profile)] == found


def test_a_profile_stays_pinned_and_what_it_says_may_change() -> None:
    copy = said({"pinned": True}, "default")
    free = said({})
    (mistake,) = mistakes(said({"pinned": False}, "default"), copy)
    assert str(mistake) == "data.pinned: cannot be changed: make another profile"
    (mistake,) = mistakes(said({"pinned": True}), free)
    assert mistake.path == "data.pinned"
    padded = {"data": {"xfsStorage": {"allocationPadding": "1GiB"}}}
    assert mistakes(merge_patch(copy, padded), copy) == []


@pytest.mark.parametrize("variable", ["$JOBID", "$LV_SIZE", "$MGS_NID", "$PERCENT_VG"])
def test_variables_of_commands_may_have_other_values(variable: str) -> None:
    assert mistakes(raw_profile(variableOverride={variable: "x"})) == []


def test_an_mgs_is_told_of_the_file_system_of_its_job_and_what_the_profile_adds() -> None:
    line = (
        "lctl $FS_NAME $MGS_NID $JOBID $USERID $GROUPID $WORKFLOW_UID $DIRECTIVE_INDEX "
        "$NUM_MDTS $NUM_MGTS $NUM_MGTMDTS $NUM_OSTS $NUM_NNFNODES $BACKFS"
    )
    options = {"preMountCommands": [line], "variableOverride": {"$BACKFS": "zfs"}}
    assert mistakes(lustre(mgtOptions=options)) == []


@pytest.mark.parametrize(
    "line", ["--activate ys $VG_NAME/$LV_NAME", "-ay /dev/$VG_NAME/$LV_NAME", ""]
)
def test_a_profile_may_say_how_its_volume_is_activated(line: str) -> None:
    assert mistakes(changing("activate", line)) == []


def test_jobs_are_not_all_mounted_at_one_path() -> None:
    """As NNF would: the path has no variables, and is for compute nodes and rabbits (ADR 099)."""
    (mistake,) = mistakes(raw_profile(variableOverride={"$MOUNT_PATH": "/mnt/nnf/x"}))
    assert str(mistake) == (
        "data.xfsStorage.variableOverride: $MOUNT_PATH cannot have another value: all jobs' "
        "storage on a node would be mounted at one path"
    )


@pytest.mark.parametrize("variable", ["$VG_NAME", "$DEVICE1", "$DEVICE12", "$DEVICE_LIST"])
def test_that_by_which_nodes_find_what_they_have_made_has_no_other_value(variable: str) -> None:
    """It would be mounted where nodes do not look, and mounted again (ADR 090)."""
    (mistake,) = mistakes(raw_profile(variableOverride={variable: "x"}))
    assert str(mistake) == (
        f"data.xfsStorage.variableOverride: {variable} cannot have another value: nodes find what "
        "they have made by it"
    )


def test_the_profiles_of_nnf_are_taken_as_they_are() -> None:
    vector("nnf-objects/profiles.json")
    template = yaml.safe_load(vector("dws/nnf_nnfstorageprofile.yaml").read_text())
    for each in [template, *nnf_objects.profiles().values()]:
        assert mistakes(each) == [], each["metadata"]["name"]


def test_a_copy_holds_what_is_not_known_here_and_is_its_owners_alone() -> None:
    source = raw_profile(userCommands={"postSetup": ["chown $USERID $MOUNT_PATH"]}, new=[1])
    owner = Meta(name="wf-0", namespace="jobs", uid="u")
    copy = pinned_copy(source, kinds.BREAKDOWN, owner, {labels.WORKFLOW_NAME: "wf"})

    assert copy["data"] == {**source["data"], "default": False, "pinned": True}
    assert copy["metadata"]["labels"] == {
        labels.WORKFLOW_NAME: "wf",
        **labels.of_owner(kinds.BREAKDOWN, owner),
    }
    assert (copy["metadata"]["name"], copy["metadata"]["namespace"]) == ("wf-0", "jobs")
    assert mistakes(copy) == []


@pytest.mark.parametrize(
    ("profile", "found"),
    [
        (said({}), ("nnf-system",)),
        (said({"pinned": True}), ()),
        (said({}, "default"), ()),
        ({"metadata": meta("computes", "nnf-system"), "data": []}, ()),
        ({"metadata": meta("x", "nnf-system"), "spec": {}}, ()),
    ],
)
def test_directives_choose_from_the_profiles_of_the_system(
    profile: Object, found: tuple[str, ...]
) -> None:
    assert index_choices(profile) == found
