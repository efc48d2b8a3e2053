"""Lines of an NnfStorageProfile that have no effect, each with the reason (ADR 099).

They are admitted, since NNF has them, and their author is warned. A line that says no more than
what is done anyway, such as `unmount: $MOUNT_PATH`, is no such line.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.base.objects import Object
from warren.directives.diagnostics import did_you_mean
from warren.dws import commandlines
from warren.dws.objects.decoding import Malformed, read
from warren.dws.objects.storageprofiles import LustreTargetOptions, NnfStorageProfile, ProfileData
from warren.dws.storage import lustre, lustrestorage, mgscommands, storageprofiles

_WHY_SITES: Final = "the volume group is the site's"
_WHY_ATTACHED: Final = "compute nodes mount what their rabbit offers, and activate nothing"
_WHY_REPEATED: Final = "agents take back what they have made in a way that they can repeat"
_WHY_RAW: Final = "a bare device has no file system"

_RABBIT_COMMANDS: Final = "blockDeviceCommands.rabbitCommands"
_COMPUTE_COMMANDS: Final = "blockDeviceCommands.computeCommands"
_ACTIVATION_HOOKS: Final = ("preActivate", "postActivate", "preDeactivate", "postDeactivate")
_ACTIVATION_LINES: Final = (
    "lvChange.activate", "lvChange.deactivate", "vgChange.lockStart", "vgChange.lockStop",
)  # fmt: skip


def _in_group(group: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{group}.{name}" for name in names)


_MOUNT_LINES: Final = (
    "mount", *_in_group("userCommands", "preMount", "postMount", "preUnmount", "postUnmount"),
)  # fmt: skip

_LINES_RUN: Final = frozenset(
    (
        *_in_group(_RABBIT_COMMANDS, "lvCreate", *_ACTIVATION_LINES[:2],
                   *_in_group("userCommands", *_ACTIVATION_HOOKS)),
        *_in_group("fileSystemCommands.rabbitCommands", "mkfs", *_MOUNT_LINES),
        *_in_group("fileSystemCommands.computeCommands", *_MOUNT_LINES),
        *_in_group("userCommands", "postActivate", "preDeactivate", "postSetup", "preTeardown",
                "postTeardown"),
    )
)  # fmt: skip
"""What is run for file systems on one volume, by its place in what is said of their type."""

_DEFAULT_LINES: Final[Mapping[str, str]] = {
    f"{_RABBIT_COMMANDS}.lvRemove": "$VG_NAME/$LV_NAME",
    "fileSystemCommands.rabbitCommands.unmount": "$MOUNT_PATH",
    "fileSystemCommands.computeCommands.unmount": "$MOUNT_PATH",
}
"""What is done in any case, by the place of the line: one that says just this is not idle."""

_IDLE_REASONS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        _in_group(_RABBIT_COMMANDS, "pvCreate", "pvRemove", "vgCreate", "vgRemove",
                  *_ACTIVATION_LINES[2:],
                  *_in_group("lvmRebuild", "vgExtend", "vgReduce", "lvRepair")),
        _WHY_SITES,
    ),
    **dict.fromkeys(
        _in_group(_COMPUTE_COMMANDS, *_ACTIVATION_LINES,
                  *_in_group("userCommands", *_ACTIVATION_HOOKS)),
        _WHY_ATTACHED,
    ),
}  # fmt: skip

_TARGET_LINES_RUN: Final = frozenset(
    _in_group("commandlines", "zpoolCreate", "mkfs", "mountTarget", "postActivate", "preDeactivate")
)
_TARGET_DEFAULT_LINES: Final[Mapping[str, str]] = {
    "commandlines.unmountTarget": "$MOUNT_PATH",
    "commandlines.zpoolDestroy": "$POOL_NAME",
}
_TARGET_IDLE_REASONS: Final[Mapping[str, str]] = {
    "commandlines.zpoolReplace": "flash that fails is the site's to replace",
}

_CLIENT_LINES_RUN: Final = frozenset(
    _in_group(
        "commandlines",
        "rabbitPostTeardown",
        *(name for names in lustre.CLIENT_COMMAND_NAMES.values() for name in names),
    )
)
_CLIENT_DEFAULT_LINES: Final[Mapping[str, str]] = dict.fromkeys(
    _in_group("commandlines", "unmountRabbit", "unmountCompute"), "$MOUNT_PATH"
)
_CLIENT_IDLE_REASONS: Final[Mapping[str, str]] = {
    "commandlines.rabbitPreTeardown": "no client mounts a file system to take it down",
}


def warnings(obj: Object) -> list[str]:
    """Return what its author should know of an NnfStorageProfile that is no mistake."""
    try:
        data = read(obj, NnfStorageProfile).data
        idle_lines = [*_file_system_lines(data), *_lustre_lines(data)]
    except (Malformed, UserMistake):
        return []  # it is a mistake, which is told
    # Those of one group in one sentence: kubectl prints a line for each.
    names_by_group: dict[tuple[str, str], list[str]] = {}
    for line_path, why in idle_lines:
        group, _, name = line_path.rpartition(".")
        if name not in (names := names_by_group.setdefault((group, why), [])):
            names.append(name)
    return [
        f"{group}: {', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect: {why}"
        for (group, why), names in names_by_group.items()
    ]


_IdleLines = Iterator[tuple[str, str]]
"""Places of lines, and why they have no effect."""


def _file_system_lines(data: ProfileData) -> _IdleLines:
    for fs_type, options in data.file_system_profiles.items():
        lines_run, idle_reasons = _LINES_RUN, _IDLE_REASONS
        if fs_type == "raw":
            mkfs = "fileSystemCommands.rabbitCommands.mkfs"
            lines_run, idle_reasons = lines_run - {mkfs}, {**idle_reasons, mkfs: _WHY_RAW}
        yield from _idle_lines(
            f"data.{fs_type}Storage", options.commands, lines_run, _DEFAULT_LINES, idle_reasons
        )


def _lustre_lines(data: ProfileData) -> _IdleLines:
    path, lustre_profile = "data.lustreStorage", data.lustre_storage
    for label, options in lustre_profile.target_options.items():
        options_path = f"{path}.{storageprofiles.OPTIONS_FIELD_BY_LABEL[label]}"
        groups = {"commandlines": options.commandlines}
        yield from _idle_lines(
            options_path, groups, _TARGET_LINES_RUN, _TARGET_DEFAULT_LINES, _TARGET_IDLE_REASONS
        )
        if options.pre_mount_commands and (why := _why_not_run(label, options)):
            yield f"{options_path}.preMountCommands", why
    client_groups = {"commandlines": lustre_profile.client_options.commandlines}
    yield from _idle_lines(
        f"{path}.clientOptions",
        client_groups,
        _CLIENT_LINES_RUN,
        _CLIENT_DEFAULT_LINES,
        _CLIENT_IDLE_REASONS,
    )


def _why_not_run(label: str, options: LustreTargetOptions) -> str | None:
    if label != "mgt":
        return f"those of {mgscommands.PROFILE_PATH} are run, whatever the MGT is"
    if options.standalone_mgt_pool_name:
        return "those in the profiles of the file systems are run, which are on the MGT"
    if options.external_mgs and not options.external_mgs.startswith(lustrestorage.POOL_PREFIX):
        return "nothing is run on an MGS that is on no rabbit"
    return None


def _idle_lines(
    path: str,
    groups: Mapping[str, Any],
    lines_run: frozenset[str],
    default_lines: Mapping[str, str],
    idle_reasons: Mapping[str, str],
) -> _IdleLines:
    """Find the lines of some groups that have no effect."""
    for line_path, line in commandlines.lines_of(groups, path):
        name = line_path.removeprefix(f"{path}.")
        if (
            name in lines_run
            or not line.strip()
            or default_lines.get(name, "").split() == line.split()
        ):
            continue
        why = idle_reasons.get(name) or (
            _WHY_REPEATED
            if name in default_lines
            else _unknown_line_message(name, lines_run | idle_reasons.keys())
        )
        yield line_path, why


def _unknown_line_message(name: str, known: frozenset[str]) -> str:
    group, _, command = name.rpartition(".")
    siblings = sorted(each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == group)
    remedy = did_you_mean(command, siblings)
    why = "there is no such command"
    return f"{why}. {remedy}" if remedy else why
