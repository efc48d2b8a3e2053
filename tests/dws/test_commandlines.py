"""Command lines of profiles: words and variables, and no shell (dws-spec section 10)."""

import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import DEEP, meta
from tests.rfc.vectors import vector as vector_file
from warren.base.errors import UserMistake
from warren.dws import commandlines, kinds
from warren.dws.commandlines import ProfileCommands, vector
from warren.dws.objects.decoding import read
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.storage import storageprofiles

PATH = "data.xfsStorage.fileSystemCommands.rabbitCommands.mkfs"
TEXTS = st.text(st.characters(categories=("L", "N", "P", "S", "Z")))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("$DEVICE", ["/dev/x y"]),
        ("-o bind $DEVICE $MOUNT_PATH", ["-o", "bind", "/dev/x y", "/m"]),
        ('--mkfsoptions="nnf:jobid=$JOBID" $DEVICE', ["--mkfsoptions=nnf:jobid=7", "/dev/x y"]),
        ("chown $USERID:$GROUPID $MOUNT_PATH", ["chown", "5:6", "/m"]),
        ("lctl set_param -P osc.$JOBID-*.checksums=1",
         ["lctl", "set_param", "-P", "osc.7-*.checksums=1"]),
        ("-i $DEVICE_NUM-1 -I $DEVICE_NUM-2 $DEVICE_NUM-x $DEVICE_NUM-10",
         ["-i", "17", "-I", "16", "18-x", "18-10"]),
        ("create pool $DEVICE_LIST", ["create", "pool", "/dev/a", "/dev/b c"]),
        ("a#b '#c' \"$JOBID d\"", ["a#b", "#c", "7 d"]),
        ("", []),
    ],
)  # fmt: skip
def test_a_line_is_split_as_a_shell_does_and_its_variables_are_replaced(
    line: str, words: list[str]
) -> None:
    values = {
        "$DEVICE": "/dev/x y",
        "$MOUNT_PATH": "/m",
        "$JOBID": "7",
        "$USERID": "5",
        "$GROUPID": "6",
        "$DEVICE_LIST": ["/dev/a", "/dev/b c"],
        "$DEVICE_NUM": "18",
        "$DEVICE_NUM-1": "17",
        "$DEVICE_NUM-2": "16",
    }
    assert vector(PATH, line, values) == words


@given(TEXTS, TEXTS)
def test_no_value_becomes_more_than_a_part_of_its_word(device: str, job: str) -> None:
    """Whatever is in it: quotes, spaces, operators, names of other variables."""
    found = vector(PATH, "-L $JOBID-$DEVICE $DEVICE", {"$DEVICE": device, "$JOBID": job})
    assert found == ["-L", f"{job}-{device}", device]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("$DEVICE $DEVCE", "there is no variable '$DEVCE'. Did you mean '$DEVICE'?"),
        ("-L $FOO", "there is no variable '$FOO'"),
        ("mkfs 'a", "cannot be split into words: No closing quotation"),
        ("$DEVICE; reboot", "; is for a shell"),
        ("a $(reboot)", "( is for a shell"),
        ("a `reboot`", "` is for a shell"),
        ("a && b", "&& is for a shell"),
        ("a > /etc/passwd", "> is for a shell"),
        ("a|b", "| is for a shell"),
    ],
)
def test_what_no_vector_can_be_is_refused_with_its_place(line: str, why: str) -> None:
    with pytest.raises(UserMistake) as mistake:
        vector(PATH, line, {"$DEVICE": "/dev/x"})
    assert str(mistake.value).startswith(f"{PATH}: ")
    assert why in str(mistake.value)


def test_a_variable_that_has_no_value_here_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(UserMistake, match=r"mkfs: \$MGS_NID has no value here.* \$DEVICE, \$JOBID"):
        vector(PATH, "$MGS_NID", {"$DEVICE": "/dev/x", "$JOBID": "7"})


@given(st.lists(TEXTS.filter(lambda text: not {*text} & {*"$();<>|&`"})))
def test_what_was_quoted_for_a_shell_is_split_again(words: list[str]) -> None:
    assert vector(PATH, shlex.join(words), {}) == words


def test_commands_are_taken_by_their_group_or_without_it_and_by_their_names() -> None:
    lines = {"data.a.computeCommands.mount": ("x",), "data.a.userCommands.postSetup": ("y",)}
    whole = commandlines.collect("xfs", [(each, line) for each, (line,) in lines.items()], {})
    assert [*whole.outside("computeCommands").lines] == ["data.a.userCommands.postSetup"]
    assert whole.outside("computeCommands").file_system == "xfs"
    assert [*whole.only(["mount"]).lines] == ["data.a.computeCommands.mount"]


# In profiles


def profile(**data: Any) -> dict[str, Any]:
    return {"metadata": meta("site", kinds.PROFILES_NAMESPACE), "data": data}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            {"xfsStorage": {"fileSystemCommands": {"rabbitCommands": {"mkfs": "-L $FOO $DEVICE"}}}},
            ["data.xfsStorage.fileSystemCommands.rabbitCommands.mkfs: there is no variable '$FOO'"],
        ),
        (
            {"gfs2Storage": {"userCommands": {"postSetup": ["true", "a; b"]}}},
            ["data.gfs2Storage.userCommands.postSetup: ; is for a shell, and none reads 'a; b': "
             "name a script instead"],
        ),
        (
            {"rawStorage": {"blockDeviceCommands": {"sharedVg": True, "rabbitCommands": {"x": 5}}}},
            ["data.rawStorage.blockDeviceCommands.rabbitCommands.x: a command is a text, or a list "
             "of texts"],
        ),
        (
            {"lustreStorage": {"ostOptions": {"commandlines": {"mkfs": "--ost $ZVOL"}}}},
            ["data.lustreStorage.ostOptions.commandlines.mkfs: there is no variable '$ZVOL'. Did "
             "you mean '$ZVOL_NAME'?"],
        ),
        (
            {"lustreStorage": {"mgtOptions": {"preMountCommands": ["lctl `x`"]}}},
            ["data.lustreStorage.mgtOptions.preMountCommands: ` is for a shell, and none reads "
             "'lctl `x`': name a script instead"],
        ),
        (
            {"lustreStorage": {"clientOptions": {"commandlines": {"mountCompute": "$FOO"}}}},
            ["data.lustreStorage.clientOptions.commandlines.mountCompute: there is no variable "
             "'$FOO'"],
        ),
    ],
)  # fmt: skip
def test_a_profile_is_refused_for_a_command_with_its_place(
    data: dict[str, Any], told: list[str]
) -> None:
    assert [str(each) for each in storageprofiles.mistakes(profile(**data))] == told


def example() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(vector_file("nnf-objects/profiles.json").read_text())
    return next(
        each
        for each in found["NnfStorageProfile"]
        if each.get("metadata", {}).get("name") == "default"
    )


def lines(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from lines(value)


def test_the_example_profile_of_nnf_is_right() -> None:
    assert storageprofiles.mistakes(example()) == []


def test_commands_of_a_profile_come_with_their_places_and_variables() -> None:
    found = storageprofiles.commands_of(
        read(example(), NnfStorageProfile), "xfs", {"$JOBID": "7", "$USERID": "5"}
    )

    values = {"$DEVICE": "/dev/x", "$MOUNT_PATH": "/m", "$GROUPID": "6"}
    mount = "fileSystemCommands.computeCommands.mount"
    assert found.vector(mount, values) == ["/dev/x", "/m"]
    assert found.vectors("userCommands.postSetup", values) == [["chown", "5:6", "/m"]]
    assert found.vector("rabbitCommands.lvmRebuild", values) is None
    own = found.within("fileSystemCommands.computeCommands")
    assert own.has("computeCommands.mount")
    assert not own.has("rabbitCommands.mount")
    assert commandlines.decode(commandlines.encode(found)) == found


def test_a_profile_without_commands_says_nothing() -> None:
    data = {"xfsStorage": {"allocationPadding": "1MiB", "userCommands": {"postSetup": []}}}
    empty = read(profile(**data), NnfStorageProfile)
    assert not storageprofiles.commands_of(empty, "xfs", {"$JOBID": "7"})
    assert not storageprofiles.commands_of(None, "xfs", {})


def test_what_overrides_a_variable_holds() -> None:
    data = {
        "xfsStorage": {
            "userCommands": {"postSetup": ["chown $USERID $MOUNT_PATH"]},
            "variableOverride": {"$USERID": "99"},
        }
    }
    found = storageprofiles.commands_of(
        read(profile(**data), NnfStorageProfile), "xfs", {"$USERID": "5"}
    )
    assert found.vectors("userCommands.postSetup", {"$MOUNT_PATH": "/m"}) == [["chown", "99", "/m"]]


def test_what_overrides_a_variable_holds_whatever_a_node_says() -> None:
    create = "blockDeviceCommands.rabbitCommands.lvCreate"
    data = {
        "xfsStorage": {
            "blockDeviceCommands": {"rabbitCommands": {"lvCreate": "-L $LV_SIZE -n $LV_NAME"}},
            "variableOverride": {"$LV_SIZE": "5g", "$LV_NAME": "of-an-older-copy"},
        }
    }
    found = storageprofiles.commands_of(read(profile(**data), NnfStorageProfile), "xfs", {})
    found = commandlines.decode(commandlines.encode(found))
    values = {"$LV_SIZE": "512b", "$LV_NAME": "own"}
    assert found.vector(create, values) == ["-L", "5g", "-n", "own"]


def test_variables_of_lustre_are_overridden_for_the_lines_beside_them() -> None:
    data = {
        "lustreStorage": {
            "ostOptions": {"variableOverride": {"$MGS_NID": "far", "$HOST_COUNT": "9"}},
            "clientOptions": {
                "commandlines": {"mountRabbit": "-o n=$HOST_COUNT $MGS_NID:/$FS_NAME $MOUNT_PATH"},
                "variableOverride": {"$MGS_NID": "near", "$HOST_COUNT": "4"},
            },
        }
    }
    given = read(profile(**data), NnfStorageProfile)
    variables = {"$JOBID": "7", "$HOST_COUNT": "2"}
    said = {
        kind: storageprofiles.lustre_commands(given, kind, variables) for kind in ("ost", "mdt")
    }
    target = {
        "$MGS_NID": "nid", "$FS_NAME": "a", "$INDEX": "0", "$BACKFS": "zfs", "$ZVOL_NAME": "z"
    }  # fmt: skip
    assert "--mgsnode=far" in (said["ost"].vector("ostOptions.commandlines.mkfs", target) or [])
    assert "--mgsnode=nid" in (said["mdt"].vector("mdtOptions.commandlines.mkfs", target) or [])

    client = {"$MGS_NID": "nid", "$FS_NAME": "a", "$MOUNT_PATH": "/m"}
    own = [
        each.within("clientOptions.commandlines").without_variables(
            commandlines.PER_RABBIT_VARIABLES
        )
        for each in said.values()
    ]
    assert own[0] == own[1]
    assert own[0].vector("commandlines.mountCompute", client) == ["near:/a", "/m"]
    assert own[0].vector("commandlines.mountRabbit", client) == ["-o", "n=4", "near:/a", "/m"]


@pytest.mark.parametrize("text", ["", "{", '{"lines": 5}', DEEP])
def test_an_annotation_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UserMistake):
        commandlines.decode(text)


def test_commands_hold_what_is_said_of_several_lines() -> None:
    found = commandlines.collect("xfs", [("a.x", "one"), ("a.x", "two"), ("a.y", " ")], {})
    assert found == ProfileCommands(lines={"a.x": ("one", "two")}, file_system="xfs")
