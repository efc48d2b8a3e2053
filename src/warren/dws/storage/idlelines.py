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
from warren.dws.objects.storageprofiles import LustreTarget, NnfStorageProfile, ProfileData
from warren.dws.storage import lustre, lustrestorage, mgscommands, storageprofiles

_SITES: Final = "the volume group is the site's"
_ATTACHED: Final = "compute nodes mount what their rabbit offers, and activate nothing"
_REPEATED: Final = "agents take back what they have made in a way that they can repeat"
_BARE: Final = "a bare device has no file system"

_RABBIT: Final = "blockDeviceCommands.rabbitCommands"
_COMPUTE: Final = "blockDeviceCommands.computeCommands"
_AROUND: Final = ("preActivate", "postActivate", "preDeactivate", "postDeactivate")
_CHANGES: Final = (
    "lvChange.activate", "lvChange.deactivate", "vgChange.lockStart", "vgChange.lockStop",
)  # fmt: skip


def _below(group: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{group}.{name}" for name in names)


_MOUNTS: Final = (
    "mount", *_below("userCommands", "preMount", "postMount", "preUnmount", "postUnmount"),
)  # fmt: skip

_RUN: Final = frozenset(
    (
        *_below(_RABBIT, "lvCreate", *_CHANGES[:2], *_below("userCommands", *_AROUND)),
        *_below("fileSystemCommands.rabbitCommands", "mkfs", *_MOUNTS),
        *_below("fileSystemCommands.computeCommands", *_MOUNTS),
        *_below("userCommands", "postActivate", "preDeactivate", "postSetup", "preTeardown",
                "postTeardown"),
    )
)  # fmt: skip
"""What is run for file systems on one volume, by its place in what is said of their type."""

_PLAIN: Final[Mapping[str, str]] = {
    f"{_RABBIT}.lvRemove": "$VG_NAME/$LV_NAME",
    "fileSystemCommands.rabbitCommands.unmount": "$MOUNT_PATH",
    "fileSystemCommands.computeCommands.unmount": "$MOUNT_PATH",
}
"""What is done so, and no other way."""

_IDLE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        _below(_RABBIT, "pvCreate", "pvRemove", "vgCreate", "vgRemove", *_CHANGES[2:],
               *_below("lvmRebuild", "vgExtend", "vgReduce", "lvRepair")),
        _SITES,
    ),
    **dict.fromkeys(_below(_COMPUTE, *_CHANGES, *_below("userCommands", *_AROUND)), _ATTACHED),
}  # fmt: skip

_TARGETS_RUN: Final = frozenset(
    _below("commandlines", "zpoolCreate", "mkfs", "mountTarget", "postActivate", "preDeactivate")
)
_TARGETS_PLAIN: Final[Mapping[str, str]] = {
    "commandlines.unmountTarget": "$MOUNT_PATH",
    "commandlines.zpoolDestroy": "$POOL_NAME",
}
_TARGETS_IDLE: Final[Mapping[str, str]] = {
    "commandlines.zpoolReplace": "flash that fails is the site's to replace",
}

_CLIENTS_RUN: Final = frozenset(
    _below(
        "commandlines",
        "rabbitPostTeardown",
        *(name for names in lustre.CLIENT_LINES.values() for name in names),
    )
)
_CLIENTS_PLAIN: Final[Mapping[str, str]] = dict.fromkeys(
    _below("commandlines", "unmountRabbit", "unmountCompute"), "$MOUNT_PATH"
)
_CLIENTS_IDLE: Final[Mapping[str, str]] = {
    "commandlines.rabbitPreTeardown": "no client mounts a file system to take it down",
}


def warnings(obj: Object) -> list[str]:
    """Return what its author should know of an NnfStorageProfile that is no mistake."""
    try:
        data = read(obj, NnfStorageProfile).data
        found = [*_of_file_systems(data), *_of_lustre(data)]
    except (Malformed, UserMistake):
        return []  # it is a mistake, which is told
    # Those of one group in one sentence: kubectl prints a line for each.
    places: dict[tuple[str, str], list[str]] = {}
    for place, why in found:
        group, _, name = place.rpartition(".")
        if name not in (names := places.setdefault((group, why), [])):
            names.append(name)
    return [
        f"{group}: {', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect: {why}"
        for (group, why), names in places.items()
    ]


_Found = Iterator[tuple[str, str]]
"""Places of lines, and why they have no effect."""


def _of_file_systems(data: ProfileData) -> _Found:
    for kind, options in data.file_systems.items():
        run, idle = _RUN, _IDLE
        if kind == "raw":
            mkfs = "fileSystemCommands.rabbitCommands.mkfs"
            run, idle = run - {mkfs}, {**idle, mkfs: _BARE}
        yield from _idle(f"data.{kind}Storage", options.commands, run, _PLAIN, idle)


def _of_lustre(data: ProfileData) -> _Found:
    path, found = "data.lustreStorage", data.lustre_storage
    for label, options in found.targets.items():
        where = f"{path}.{storageprofiles.OPTIONS[label]}"
        own = {"commandlines": options.commandlines}
        yield from _idle(where, own, _TARGETS_RUN, _TARGETS_PLAIN, _TARGETS_IDLE)
        if options.pre_mount_commands and (why := _why_not_configured(label, options)):
            yield f"{where}.preMountCommands", why
    clients = {"commandlines": found.client_options.commandlines}
    yield from _idle(f"{path}.clientOptions", clients, _CLIENTS_RUN, _CLIENTS_PLAIN, _CLIENTS_IDLE)


def _why_not_configured(label: str, options: LustreTarget) -> str | None:
    if label != "mgt":
        return f"those of {mgscommands.PLACE} are run, whatever the MGT is"
    if options.standalone_mgt_pool_name:
        return "those in the profiles of the file systems are run, which are on the MGT"
    if options.external_mgs and not options.external_mgs.startswith(lustrestorage.POOL):
        return "nothing is run on an MGS that is on no rabbit"
    return None


def _idle(
    path: str,
    groups: Mapping[str, Any],
    run: frozenset[str],
    plain: Mapping[str, str],
    idle: Mapping[str, str],
) -> _Found:
    """Find the lines of some groups that have no effect."""
    for place, line in commandlines.lines_of(groups, path):
        name = place.removeprefix(f"{path}.")
        if name in run or not line.strip() or plain.get(name, "").split() == line.split():
            continue
        why = idle.get(name) or (_REPEATED if name in plain else _unknown(name, run | idle.keys()))
        yield place, why


def _unknown(name: str, known: frozenset[str]) -> str:
    group, _, last = name.rpartition(".")
    beside = sorted(each.rpartition(".")[2] for each in known if each.rpartition(".")[0] == group)
    remedy = did_you_mean(last, beside)
    why = "there is no such command"
    return f"{why}. {remedy}" if remedy else why
