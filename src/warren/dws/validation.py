"""What directives mean together: whether each names storage that this job has.

Asked twice: before a job is accepted, so that its author hears at once, with
the place of the mistake; and in Proposal, where a real cluster would ask.
"""

from collections.abc import Sequence

from warren.directives.diagnostics import did_you_mean
from warren.directives.parse import Argument, Directive, Token
from warren.dws import staging
from warren.dws.node import RawVolumes
from warren.dws.objects import LustreFileSystem


def check(
    directives: Sequence[Directive],
    file_systems: Sequence[LustreFileSystem],
    *,
    raw: RawVolumes,
    userid: int,
) -> None:
    """Raise the first Mistake that the directives make among each other.

    `raw` says who may have raw volumes (`system.raw_volumes`), `userid` whose directives these are.
    """
    for directive in directives:
        _check_raw(directive, raw, userid)
        if directive.command.text in staging.COMMANDS:
            _check_copy(directive, directives, file_systems)


def _check_raw(directive: Directive, raw: RawVolumes, userid: int) -> None:
    argument = directive.argument("type")
    if argument is None or argument.value is None or argument.value.text != "raw":
        return
    if raw is RawVolumes.NONE:
        raise directive.mistake(
            argument.value,
            "Volumes of type raw cannot be made here: a raw volume is a block device, "
            "and the rabbits' volumes are directories.",
            "Try type=xfs, or ask an admin for rabbits with block devices.",
        )
    if raw is RawVolumes.FOR_ROOT and userid != 0:
        raise directive.mistake(
            argument.value,
            "Volumes of type raw are for root alone here: the rabbits make them as loop devices, "
            "and who holds one reaches the storage of others.",
            "Try type=xfs, or ask an admin for rabbits with volume groups.",
        )


def _check_copy(
    directive: Directive,
    directives: Sequence[Directive],
    file_systems: Sequence[LustreFileSystem],
) -> None:
    own = {"copy_in": "destination", "copy_out": "source"}[directive.command.text]
    for key in ("source", "destination"):
        argument = directive.argument(key)
        if argument is None or argument.value is None:
            continue
        path = staging.parse(argument.value.text)
        if path.storage is not None:
            _check_storage(directive, argument, path, directives)
            if key != own:
                raise directive.mistake(
                    argument.value,
                    f"The {key} of {directive.command.text} is a path in a global file system: "
                    "within its own storage a job copies by itself.",
                )
        elif key == own:
            raise directive.mistake(
                argument.value,
                f"The {own} of {directive.command.text} is storage of the job: "
                f"write $DW_JOB_ and the name of a jobdw.",
                _first_storage(directives),
            )
        else:
            _check_global(directive, argument.value, path.path, file_systems)


def _check_storage(
    directive: Directive,
    argument: Argument,
    path: staging.StagingPath,
    directives: Sequence[Directive],
) -> None:
    assert argument.value is not None
    place = Token(argument.value.text.partition("/")[0], argument.value.start)
    names = staging.job_storage(directives)
    if path.lifetime != "job":
        raise directive.mistake(
            place, "Persistent storage cannot be copied to or from: this cluster has none."
        )
    if path.storage not in names:
        known = [f"$DW_JOB_{name.replace('-', '_')}" for name in names]
        raise directive.mistake(
            place,
            f"This job has no jobdw named {path.storage!r}.",
            did_you_mean(place.text, known) or _first_storage(directives),
        )
    if directives[names[path.storage]].values.get("type") == "raw":
        raise directive.mistake(
            place, f"Data movement cannot be used with {path.storage!r}, which is raw."
        )


def _check_global(
    directive: Directive,
    value: Token,
    path: str,
    file_systems: Sequence[LustreFileSystem],
) -> None:
    if staging.file_system_of(path, file_systems) is None:
        roots = ", ".join(each.spec.mount_root for each in file_systems)
        known = f"Its global file systems are {roots}." if roots else "It has no global one."
        raise directive.mistake(
            value, f"No global file system of this cluster contains {path!r}.", known
        )


def _first_storage(directives: Sequence[Directive]) -> str | None:
    for name in staging.job_storage(directives):
        return f"Try $DW_JOB_{name.replace('-', '_')}/."
    return None
