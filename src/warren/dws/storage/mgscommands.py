"""Commands for the MGS of a file system: a profile's `preMountCommands` (dws-spec section 10).

They name the file system, which its MGS knows once its targets have met it: they are run when all
of those are there, before any client mounts it. A storage asks for them by the NnfLustreMGT, which
is in the namespace of the rabbit with the MGS; that rabbit's agent runs them, and says so. An MGS
that is on no rabbit has no agent, and runs nothing (ADR 099).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.base.objects import Change, Object
from warren.dws import commandlines, kinds, reports
from warren.dws.faults import raise_for
from warren.dws.node import NodeTrouble
from warren.dws.objects.lustrefilesystems import (
    MgsAnswer,
    MgsCommands,
    NnfLustreMGT,
    Requester,
)
from warren.dws.objects.meta import Error
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.storage import lustre

PROFILE_PATH: Final = "data.lustreStorage.mgtOptions.preMountCommands"
"""Where a profile has them, whatever MGS its file systems are on."""

_VARIABLES_WITH_VALUE: Final = frozenset(
    {"$JOBID", "$DIRECTIVE_INDEX", "$WORKFLOW_UID", "$USERID", "$GROUPID", "$MGS_NID", "$FS_NAME",
     *lustre.variables(())}
)  # fmt: skip
"""The variables that have a value here, where there is neither a target nor a mount."""

_FATAL: Final = "Fatal"


# A storage asks


def lines_for_storage(
    storage: NnfStorage,
    profile: NnfStorageProfile | None,
    mgt: NnfLustreMGT,
    address: str,
    file_system_name: str,
) -> tuple[str, ...]:
    """Return what the MGS of a storage is to run for it. Raises UserMistake.

    Nothing for an MGT alone, which has no file system.
    """
    if profile is None or not file_system_name or not is_on_rabbit(mgt):
        return ()
    options = profile.data.lustre_storage.mgt_options
    sets = storage.spec.allocation_sets
    own_variables = [
        each for first_set in sets[:1] for each in first_set.command_variables if "value" in each
    ]
    values = {
        **{each["name"]: str(each["value"]) for each in own_variables},
        **lustre.variables(sets),
        "$MGS_NID": address,
        "$FS_NAME": file_system_name,
        **_allowed_overrides(options.variable_override),
    }
    return tuple(
        commandlines.join(commandlines.vector(PROFILE_PATH, each, values))
        for each in options.pre_mount_commands
        if each.strip()
    )


def variables_without_value(line: str, override: Mapping[str, str]) -> list[str]:
    """Return the variables of a line that have no value here for any storage."""
    known_variables = _VARIABLES_WITH_VALUE | _allowed_overrides(override).keys()
    return [
        name
        for name in commandlines.variables_in(line)
        if name not in known_variables and commandlines.is_variable(name)
    ]


def _allowed_overrides(override: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in override.items() if not commandlines.is_fixed(name)}


def is_on_rabbit(mgt: NnfLustreMGT) -> bool:
    """Return whether the MGS is on a rabbit: admins tell of others in the namespace of profiles."""
    return mgt.metadata.namespace != kinds.PROFILES_NAMESPACE


def request_change(mgt: NnfLustreMGT, storage: NnfStorage, lines: Sequence[str]) -> Change | None:
    """Return the change that asks for commands; None where they are asked for already.

    A storage asks once.
    """
    own_reference = requester(storage)
    if any(each.reference == own_reference for each in mgt.spec.command_list):
        return None
    others = [each for each in mgt.spec.command_list if each.reference.key != own_reference.key]
    all_commands = [*others, MgsCommands(reference=own_reference, commands=tuple(lines))]
    return Change(
        kind=kinds.LUSTRE_MGT,
        key=mgt.metadata.key,
        patch={"spec": {"commandList": _encode_commands(all_commands)}},
        resource_version=mgt.metadata.resource_version,
    )


def spec_without(mgt: NnfLustreMGT, storage: NnfStorage) -> dict[str, Any]:
    """Return what of an NnfLustreMGT's spec has to change to ask for no commands of a storage."""
    key = storage.metadata.key
    other_commands = [each for each in mgt.spec.command_list if each.reference.key != key]
    return (
        {}
        if len(other_commands) == len(mgt.spec.command_list)
        else {"commandList": _encode_commands(other_commands)}
    )


def _encode_commands(command_list: Sequence[MgsCommands]) -> list[dict[str, Any]]:
    return [
        {"reference": lustre.reference_of(each.reference), "commands": [*each.commands]}
        for each in command_list
    ]


def are_run(mgt: NnfLustreMGT, storage: NnfStorage) -> bool:
    """Return whether the commands for a storage were run. Raises Fault where they failed."""
    own_reference = requester(storage)
    for each in mgt.status.command_list:
        if each.reference == own_reference:
            if not each.ready:
                raise_for(each.error, mgt.metadata.namespace)
            return each.ready
    return False


# A rabbit's agent answers


def unanswered_commands(mgt: NnfLustreMGT) -> list[MgsCommands]:
    """Return what is to be run: what was not, or not to its end. What cannot be, is not again."""
    answered = {
        each.reference
        for each in mgt.status.command_list
        if each.ready or (each.error is not None and each.error.severity == _FATAL)
    }
    return [each for each in mgt.spec.command_list if each.reference not in answered]


def vectors(commands: MgsCommands) -> list[list[str]]:
    """Return the argument vectors of commands. Raises NodeTrouble where they make no sense."""
    try:
        return [commandlines.vector("spec.commandList", each, {}) for each in commands.commands]
    except UserMistake as mistake:
        raise NodeTrouble(str(mistake).removesuffix("."), fatal=True) from mistake


def answer_change(
    mgt: NnfLustreMGT, outcomes: Mapping[Requester, NodeTrouble | None]
) -> Change | None:
    """Return the change that says what was run of all that is asked for, and why the rest was not.

    None if the status says so already.
    """
    known_answers = {each.reference: each for each in mgt.status.command_list}
    answers: list[MgsAnswer] = []
    for wanted in mgt.spec.command_list:
        reference = wanted.reference
        if reference in outcomes:
            answers.append(_answer(reference, outcomes[reference]))
        elif reference in known_answers:
            answers.append(known_answers[reference])
    if answers == list(mgt.status.command_list):
        return None
    entries = [_encode_answer(each) for each in answers]
    return reports.status(kinds.LUSTRE_MGT, mgt.metadata, {"commandList": entries})


def _answer(reference: Requester, trouble: NodeTrouble | None) -> MgsAnswer:
    if trouble is None:
        return MgsAnswer(reference=reference, ready=True)
    status = trouble.as_error()
    error = Error(
        debug_message=status["debugMessage"], type=status["type"], severity=status["severity"]
    )
    return MgsAnswer(reference=reference, error=error)


def _encode_answer(answer: MgsAnswer) -> Object:
    reference = lustre.reference_of(answer.reference)
    encoded: dict[str, Any] = {"reference": reference, "ready": answer.ready}
    error = answer.error
    if error is not None:
        user_message = {"userMessage": error.user_message} if error.user_message else {}
        encoded["error"] = {
            "debugMessage": error.debug_message,
            **user_message,
            "type": error.type,
            "severity": error.severity,
        }
    return encoded


def requester(storage: NnfStorage) -> Requester:
    """Return by what a storage asks."""
    meta = storage.metadata
    kind = kinds.NNF_STORAGE.name
    return Requester(kind=kind, name=meta.name, namespace=meta.namespace, uid=meta.uid)
