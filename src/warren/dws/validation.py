"""What directives mean together, and on their cluster: whether each can be carried out.

Asked before a job is accepted, so that its author hears at once, with the place of each mistake;
in Proposal, where a real cluster asks; and by `warren check` (dws-spec section 2.2).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.directives import capacity
from warren.directives.diagnostics import Finding, Mistake, did_you_mean, listed
from warren.directives.parse import Argument, Directive, Token
from warren.dws import breakdown, containerprofiles, expiry, offload, profiles, sharing, staging
from warren.dws.containerprofiles import ContainerProfile
from warren.dws.faults import Fault
from warren.dws.node import TYPES, RawVolumes
from warren.dws.objects import LustreFileSystem, NnfStorageProfile
from warren.dws.persistent import USABLE, is_same
from warren.dws.pods import NOTHING
from warren.dws.sharing import PRIVATE, Sharing, may_use


@dataclass(frozen=True, kw_only=True)
class Persistent:
    """A PersistentStorageInstance, as far as directives may name it."""

    name: str
    file_system: str
    userid: int
    sharing: Sharing = PRIVATE
    """Who else than its user may use it, though not destroy it."""
    made: bool = True
    """Whether its file systems are there."""
    deleting: bool = False
    expires: float | None = None
    """In seconds since the epoch; None is never."""
    in_use: bool = False
    directive: str | None = None
    """What has made it."""


def persistent_of(obj: Mapping[str, Any]) -> Persistent:
    """Read a PersistentStorageInstance (dws-spec section 7)."""
    metadata, spec = obj["metadata"], obj["spec"]
    return Persistent(
        name=metadata["name"],
        file_system=spec.get("fsType", ""),
        userid=spec.get("userID", 0),
        sharing=sharing.of(metadata.get("annotations") or {}),
        made=(obj.get("status") or {}).get("state") in USABLE,
        expires=expiry.of(metadata.get("annotations") or {}),
        deleting="deletionTimestamp" in metadata or spec.get("state") == "Destroying",
        in_use=bool(spec.get("consumerReferences")),
        directive=spec.get("dwDirective"),
    )


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of the cluster that is to carry directives out.

    What is None is not known, and what depends on it is not checked.
    """

    userid: int | None
    """Whose directives these are."""
    creates: bool = True
    """Whether that user may create persistent storage."""
    groups: Collection[int] = ()
    """The groups that this user is in, where persistent storage is shared with some."""
    file_systems: Sequence[LustreFileSystem] | None
    raw: RawVolumes | None
    """Who may have raw volumes (`rabbits.raw_volumes`)."""
    persistent: Mapping[str, Persistent] | None = None
    """The instances of the Workflow's namespace by name."""
    profiles: Sequence[NnfStorageProfile] | None = None
    makes: Sequence[str] | None = TYPES
    """The types of file systems that there are."""
    why_not_made: Callable[[str], str | None] = lambda kind: None
    """Tells why no rabbit makes a type of file systems; None where one does."""
    containers: bool | None = False
    """Whether it runs containers."""
    no_containers: str = NOTHING
    """Why it does not."""
    container_profiles: Mapping[str, ContainerProfile] | None = None
    """The profiles of containers that directives choose from, by name."""
    groupid: int | None = None
    """The group of the job."""
    now: float | None = None
    """In seconds since the epoch."""
    duration: float = 0.0
    """For how many seconds the job may run; 0 is without end."""
    waits: bool = False
    """Whether the job begins after others: what is in use now may not be then."""
    coming: frozenset[str] = frozenset()
    """The persistent storage that the jobs create after which it begins."""
    copy_profiles: frozenset[str] | None = frozenset()
    """The names of its NnfDataMovementProfiles, which copies may name."""
    offload: bool = False
    """Whether running jobs may ask it for copies, with `requires=copy-offload`."""


UNKNOWN: Final = Facts(
    userid=None,
    file_systems=None,
    raw=None,
    makes=None,
    containers=None,
    copy_profiles=None,
)
"""What is known where there is no cluster to ask."""


def findings(
    directives: Sequence[Directive | None], facts: Facts, known: Sequence[Finding] = ()
) -> list[Finding]:
    """Return the mistakes of directives in order: those that are known, and all of their meaning.

    What follows from a mistake that is known is left out.
    """
    by_directive: dict[int, list[Finding]] = {}
    for found in known:
        by_directive.setdefault(found.directive, []).append(found)
    job = _Job.of(directives, by_directive)
    all_of_them: list[Finding] = []
    for index, directive in enumerate(directives):
        own = by_directive.get(index, [])
        all_of_them += own
        if directive is None:
            continue
        for mistake in _meaning(directive, index, job, facts, faultless=not own):
            found = Finding(index, mistake)
            whole = mistake.start == directive.command.start
            if whole or not any(found.overlaps(other) for other in own):
                all_of_them.append(found)
    return all_of_them


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What the directives of one job have between them. Names are those of `name=`."""

    size: int
    storage: Mapping[str, Directive]
    """Each jobdw."""
    persistent: Mapping[str, int]
    """Each persistentdw, the first one of its name."""
    doubtful: bool
    """Whether there may be storage whose name is not known."""
    container: int | None
    """The first one."""

    @classmethod
    def of(
        cls, directives: Sequence[Directive | None], mistaken: Mapping[int, Sequence[Finding]]
    ) -> "_Job":
        storage: dict[str, Directive] = {}
        persistent: dict[str, int] = {}
        doubtful = False
        container = None
        for index, directive in enumerate(directives):
            if directive is None:
                doubtful = True
                continue
            command, name = directive.command, _value(directive, "name")
            wrong = mistaken.get(index, ())
            unknown = command.text not in _MEANINGS and bool(wrong)
            if unknown or command.text in ("jobdw", "persistentdw"):
                doubtful |= unknown or name is None
                doubtful |= name is not None and any(_within(found, name) for found in wrong)
            if name is not None and command.text == "jobdw":
                storage.setdefault(name.text, directive)
            if name is not None and command.text == "persistentdw":
                persistent.setdefault(name.text, index)
            if command.text == "container" and container is None:
                container = index
        return cls(
            size=len(directives),
            storage=storage,
            persistent=persistent,
            doubtful=doubtful,
            container=container,
        )


def _within(found: Finding, token: Token) -> bool:
    return found.mistake.start <= token.start < found.mistake.end


def _value(directive: Directive, key: str) -> Token | None:
    """Return a value that is there, and not empty."""
    argument = directive.argument(key)
    found = None if argument is None else argument.value
    return found if found is not None and found.text else None


def _meaning(
    directive: Directive, index: int, job: _Job, facts: Facts, *, faultless: bool
) -> Iterator[Mistake]:
    meaning = _MEANINGS.get(directive.command.text)
    if meaning is None:
        return
    wrong = list(meaning(directive, index, job, facts))
    yield from wrong
    if faultless and not wrong and facts.profiles is not None:
        yield from _need(directive, facts.profiles)


# Storage that is made


def _job_storage(directive: Directive, index: int, job: _Job, facts: Facts) -> Iterator[Mistake]:
    yield from _kind(directive, facts)
    yield from _size(directive)
    yield from _asking(directive, job, facts)


def _asking(directive: Directive, job: _Job, facts: Facts) -> Iterator[Mistake]:
    """Find why a job could ask for copies while it runs, as it says, and would get none."""
    words = _value(directive, "requires")
    if words is None or offload.WORD not in words.text.split(",") or not facts.offload:
        return
    if job.container is not None:
        yield directive.mistake(
            words,
            "A job with a container cannot ask for copies while it runs: both are found by the "
            "variable NNF_CONTAINER_PORTS.",
            f"Leave out the container, or {offload.WORD}.",
        )
    types = [each.values.get("type") for each in job.storage.values()]
    for name in job.persistent:
        found = (facts.persistent or {}).get(name)
        types.append(found.file_system if found is not None else None)
    if not job.doubtful and all(each in offload.NOT_FOR_RABBITS for each in types):
        yield directive.mistake(
            words,
            "Copies can be asked for while the job runs of storage that rabbits mount beside its "
            f"compute nodes, and {listed(sorted({*filter(None, types)}))} is for one of them at a "
            "time.",
            "Make it of type gfs2 or lustre.",
        )


def _create(directive: Directive, index: int, job: _Job, facts: Facts) -> Iterator[Mistake]:
    yield from _alone(directive, job)
    if not facts.creates:
        yield directive.mistake(
            directive.command,
            "Only the instance owner can create persistent storage here.",
            "Ask an admin to create it, and to share it with you.",
        )
    yield from _kind(directive, facts)
    if directive.argument("capacity") is None and directive.values.get("type") != "lustre":
        yield directive.mistake(
            directive.command,
            "Creating persistent storage requires a capacity.",
            "Add capacity=100GiB, or what you need.",
        )
    yield from _size(directive)
    name = _value(directive, "name")
    found = None if name is None else (facts.persistent or {}).get(name.text)
    if name is not None and found is not None:
        if found.deleting:
            yield directive.mistake(
                name,
                f"The persistent storage {name.text!r} is being destroyed.",
                "Wait until it is gone, or choose another name.",
            )
        elif not _may_use(found, facts):
            yield directive.mistake(
                name,
                f"The persistent storage {name.text!r} exists, and is another user's.",
                "Choose another name.",
            )
        elif found.directive is not None and not is_same(found.directive, directive):
            yield directive.mistake(
                name,
                f"The persistent storage {name.text!r} exists, and was made by "
                f"{found.directive!r}.",
                "Choose another name, or destroy it first.",
            )


def _destroy(directive: Directive, index: int, job: _Job, facts: Facts) -> Iterator[Mistake]:
    yield from _alone(directive, job)
    name = _value(directive, "name")
    found = None if name is None else (facts.persistent or {}).get(name.text)
    if name is None or found is None or found.deleting:
        return  # what is not there is destroyed
    if not _his(found, facts):
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is another user's, and only that user can "
            "destroy it.",
        )
    elif found.in_use and not facts.waits:
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} cannot be destroyed while jobs use it.",
            "Submit this when they have ended, such as with --dependency=afterany:JOBID.",
        )


def _his(found: Persistent, facts: Facts) -> bool:
    return facts.userid is None or found.userid == facts.userid


def _expired(found: Persistent, facts: Facts) -> tuple[str, str] | None:
    """Return what is wrong with storage that does not last as long as the job, and what helps."""
    if found.expires is None or facts.now is None:
        return None
    when = expiry.written(found.expires)
    if found.expires <= facts.now:
        return f"The persistent storage {found.name!r} has expired at {when}.", "Make another."
    if facts.now + facts.duration <= found.expires:
        return None
    return (
        f"The persistent storage {found.name!r} expires at {when}, before the job's time limit.",
        f"Give the job a shorter one, or ask its user for: warren persistent expire {found.name} "
        "--for=TIME.",
    )


def _may_use(found: Persistent, facts: Facts) -> bool:
    return facts.userid is None or may_use(found.userid, found.sharing, facts.userid, facts.groups)


def _alone(directive: Directive, job: _Job) -> Iterator[Mistake]:
    if job.size > 1:
        yield directive.mistake(
            directive.command,
            f"A {directive.command.text} is the only directive of its job.",
            "Submit a job of its own for it.",
        )


def _kind(directive: Directive, facts: Facts) -> Iterator[Mistake]:
    kind = _value(directive, "type")
    if kind is None:
        return
    if facts.makes is not None and kind.text not in facts.makes:
        yield directive.mistake(
            kind,
            f"File systems of type {kind.text} are not made by this cluster: its rabbits make "
            f"{listed(facts.makes)}.",
            "Try type=xfs, of which each compute node has its own.",
        )
    elif kind.text == "raw" and facts.raw is RawVolumes.NONE:
        yield directive.mistake(
            kind,
            "Volumes of type raw cannot be made here: a raw volume is a block device, "
            "and the rabbits' volumes are directories.",
            "Try type=xfs, or ask an admin for rabbits with block devices.",
        )
    elif (why := facts.why_not_made(kind.text)) is not None:
        yield directive.mistake(
            kind,
            f"No rabbit makes file systems of type {kind.text}: {why}.",
            "Take another type, or ask an admin for this one.",
        )
    elif kind.text == "raw" and facts.raw is RawVolumes.FOR_ROOT and facts.userid:
        yield directive.mistake(
            kind,
            "Volumes of type raw are for root alone here: the rabbits make them as loop devices, "
            "and who holds one reaches the storage of others.",
            "Try type=xfs, or ask an admin for rabbits with volume groups.",
        )


def _size(directive: Directive) -> Iterator[Mistake]:
    size = _value(directive, "capacity")
    if size is None:
        return
    try:
        if capacity.parse(size.text) == 0:
            yield directive.mistake(size, "'capacity' must be a non-zero value.", "Try 100GiB.")
    except UserMistake as mistake:
        yield directive.mistake(size, str(mistake))


def _need(directive: Directive, available: Sequence[NnfStorageProfile]) -> Iterator[Mistake]:
    """Find what the profile says against a directive that makes storage."""
    if directive.command.text not in _MAKING or directive.argument("type") is None:
        return
    try:
        profile = profiles.chosen(directive.values.get("profile"), available)
        breakdown.needs_of(directive, profile)
    except Fault as fault:
        value = _value(directive, fault.argument)
        yield directive.mistake(value or directive.command, _sentence(fault))


def _sentence(fault: Fault) -> str:
    words = f"{str(fault)[:1].upper()}{str(fault)[1:]}"
    return words if words.endswith("?") else f"{words}."


# Storage that is there


def _use(directive: Directive, index: int, job: _Job, facts: Facts) -> Iterator[Mistake]:
    yield from _asking(directive, job, facts)
    name = _value(directive, "name")
    if name is None:
        return
    if job.persistent.get(name.text) != index:
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is named by an earlier persistentdw of this "
            "job.",
            "Once is enough.",
        )
    elif facts.persistent is not None:
        yield from _usable(directive, name, facts.persistent, facts)


def _usable(
    directive: Directive, name: Token, persistent: Mapping[str, Persistent], facts: Facts
) -> Iterator[Mistake]:
    found = persistent.get(name.text)
    if name.text in facts.coming and (found is None or not found.made):
        return
    if found is None:
        own = [each.name for each in persistent.values() if _may_use(each, facts)]
        yield directive.mistake(
            name,
            f"There is no persistent storage named {name.text!r}.",
            did_you_mean(name.text, sorted(own))
            or "Make it first, with create_persistent, or wait for the job that does: "
            "--dependency=afterok:JOBID.",
        )
    elif found.deleting:
        yield directive.mistake(
            name, f"The persistent storage {name.text!r} is being destroyed.", "Make another."
        )
    elif not _may_use(found, facts):
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is another user's.",
            f"Its user may share it: warren persistent share {name.text} --user=YOU.",
        )
    elif (ended := _expired(found, facts)) is not None:
        yield directive.mistake(name, *ended)
    elif not found.made:
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is still being made.",
            "Submit again when its state is Active, or with --dependency=afterok:JOBID.",
        )
    elif found.file_system == "raw" and facts.raw is RawVolumes.FOR_ROOT and facts.userid:
        yield directive.mistake(
            name,
            f"The persistent storage {name.text!r} is raw, and raw volumes are for root alone "
            "here: the rabbits make them as loop devices, and who holds one reaches the storage "
            "of others.",
        )


# Copies


def _copy(directive: Directive, index: int, job: _Job, facts: Facts) -> Iterator[Mistake]:
    own = staging.OWN_END[directive.command.text]
    for key in ("source", "destination"):
        argument = directive.argument(key)
        if argument is None or argument.value is None:
            continue
        path = staging.parse(argument.value.text)
        if path.storage is not None:
            wrong = list(_end(directive, argument.value, path, job, facts))
            yield from wrong
            if key != own and not wrong:
                yield directive.mistake(
                    argument.value,
                    f"The {key} of {directive.command.text} is a path in a global file system: "
                    "within its own storage a job copies by itself.",
                )
        elif key == own:
            yield directive.mistake(
                argument.value,
                f"The {own} of {directive.command.text} is storage of the job: "
                f"write $DW_JOB_ and the name of a jobdw.",
                _first(job),
            )
        else:
            yield from _global(directive, argument, path.path, facts)
    profile = _value(directive, "profile")
    if profile and facts.copy_profiles is not None and profile.text not in facts.copy_profiles:
        known = sorted(facts.copy_profiles)
        yield directive.mistake(
            profile,
            f"There is no profile of copies named {profile.text!r} here.",
            f"Take {listed(known)}." if known else "Leave it out.",
        )


def _end(
    directive: Directive, value: Token, path: staging.StagingPath, job: _Job, facts: Facts
) -> Iterator[Mistake]:
    """Find what is wrong with the storage in which a path lies."""
    place = Token(value.text.partition("/")[0], value.start)
    name = path.storage or ""
    command = {"job": "jobdw", "persistent": "persistentdw"}[path.lifetime]
    names: Mapping[str, object] = job.storage if path.lifetime == "job" else job.persistent
    if name not in names:
        if not job.doubtful:
            variables = (_variable(path.lifetime, each) for each in names)  # the first will do
            yield directive.mistake(
                place,
                f"This job has no {command} named {name!r}.",
                did_you_mean(place.text, variables)
                or (f"Add #DW persistentdw name={name}." if path.lifetime != "job" else None)
                or _first(job),
            )
    elif _type_of(path.lifetime, name, job, facts) == "raw":
        yield directive.mistake(place, f"Data movement cannot be used with {name!r}, which is raw.")


def _type_of(lifetime: str, name: str, job: _Job, facts: Facts) -> str | None:
    """Return the type of a storage that directives of the job name, if it is known."""
    if lifetime == "job":
        return job.storage[name].values.get("type")
    found = (facts.persistent or {}).get(name)
    return found.file_system if found is not None else None


def _global(directive: Directive, argument: Argument, path: str, facts: Facts) -> Iterator[Mistake]:
    value = argument.value
    assert value is not None
    if not path.startswith("/"):
        yield directive.mistake(
            value if value.text else argument.key,
            f"{path!r} is no path of a global file system: it begins with '/'.",
            "$DW_JOB_ begins a path in the job's storage." if path.startswith("$") else None,
        )
    elif facts.file_systems is not None and not staging.file_system_of(path, facts.file_systems):
        roots = ", ".join(each.spec.mount_root for each in facts.file_systems)
        known = f"Its global file systems are {roots}." if roots else "It has no global one."
        yield directive.mistake(
            value, f"No global file system of this cluster contains {path!r}.", known
        )


def _first(job: _Job) -> str | None:
    for name in job.storage:
        return f"Try {_variable('job', name)}/."
    return None


def _variable(lifetime: str, name: str) -> str:
    return f"$DW_{lifetime.upper()}_{name.replace('-', '_')}"


# Containers

_NOT_FOR_CONTAINERS: Final = ("xfs", "ext4")
"""Only one computer at a time may mount these, and the container's is not the job's."""


def _container(directive: Directive, index: int, job: _Job, facts: Facts) -> Iterator[Mistake]:
    if facts.containers is False and not _is_started_by_others(directive, facts):
        yield directive.mistake(
            directive.command,
            f"Containers cannot run here: {facts.no_containers}.",
            "Take the directive out, and start the program in the job.",
        )
        return
    if job.container != index:
        yield directive.mistake(
            directive.command, "Only one container directive is supported for each job."
        )
    if facts.userid == 0:
        yield directive.mistake(
            directive.command,
            "Containers run as the job's user, and never as root.",
            "Submit as another user.",
        )
    named = _value(directive, "profile")
    if named is not None and facts.container_profiles is not None:
        yield from _profiled(directive, named, job, facts)
    for argument in directive.arguments:
        if argument.value is None:
            continue
        key = argument.key.text
        if key.startswith("DW_JOB_"):
            yield from _contained(directive, argument.value, "job", job, facts)
        elif key.startswith("DW_PERSISTENT_"):
            yield from _contained(directive, argument.value, "persistent", job, facts)
        elif key.startswith("DW_GLOBAL_"):
            yield from _global(directive, argument, argument.value.text, facts)


def _is_started_by_others(directive: Directive, facts: Facts) -> bool:
    """Return whether the containers of a directive are none that run by our doing."""
    found = (facts.container_profiles or {}).get(directive.values.get("profile", ""))
    return found is not None and not found.data.create_container


def _profiled(directive: Directive, named: Token, job: _Job, facts: Facts) -> Iterator[Mistake]:
    """Find what a container's profile says against its directive."""
    available = facts.container_profiles or {}
    profile = available.get(named.text)
    if profile is None:
        yield directive.mistake(
            named,
            f"There is no container profile named {named.text!r} here.",
            did_you_mean(named.text, sorted(available))
            or (f"Take {listed(sorted(available))}." if available else "Ask an admin to make it."),
        )
        return
    whose = profile.restriction(facts.userid, facts.groupid)
    if whose is not None:
        yield directive.mistake(
            named, f"The container profile {named.text!r} is for {whose} alone."
        )
    mpi = profile.data.mpi_spec
    if facts.containers and profile.data.create_container and mpi and mpi.copy_offload:
        yield directive.mistake(
            named,
            f"The container profile {named.text!r} is for copy offload, which there is none of "
            "here.",
            "Leave the container out: requires=copy-offload is all that it takes here."
            if facts.offload
            else None,
        )
    given: dict[str, Argument] = {}
    for argument in directive.arguments:
        name = containerprofiles.argument(argument.key.text)
        if not name.startswith("DW_"):
            continue
        if name not in profile.storages:
            yield directive.mistake(
                argument.key,
                f"The container profile {named.text!r} has no storage {argument.key.text}.",
                did_you_mean(name, profile.storages),
            )
        elif name in given:
            yield directive.mistake(argument.key, f"{name} is there twice.", "Once is enough.")
        given.setdefault(name, argument)
    for name, need in profile.storages.items():
        if name in given:
            yield from _enough(directive, given[name].value, need.minimum_capacity, job)
        elif not need.optional:
            yield directive.mistake(
                named,
                f"The container profile {named.text!r} needs the storage {name}.",
                f"Add {name}= and the name of a storage of the job.",
            )


def _enough(
    directive: Directive, value: Token | None, minimum: str, job: _Job
) -> Iterator[Mistake]:
    """Find a jobdw that is smaller than the application needs."""
    made = job.storage.get(value.text) if value is not None else None
    size = made.values.get("capacity") if made is not None else None
    if value is None or not size or not minimum:
        return
    try:
        little = capacity.parse(size) < capacity.parse(minimum)
    except UserMistake:
        return  # that is told of the jobdw
    if little:
        yield directive.mistake(
            value,
            f"The application needs {minimum}, and {value.text!r} has {size}.",
            f"Write capacity={minimum} there.",
        )


def _contained(
    directive: Directive, value: Token, lifetime: str, job: _Job, facts: Facts
) -> Iterator[Mistake]:
    names: Mapping[str, object] = job.storage if lifetime == "job" else job.persistent
    if value.text not in names:
        command = "jobdw" if lifetime == "job" else "persistentdw"
        if not job.doubtful:
            yield directive.mistake(
                value,
                f"This job has no {command} named {value.text!r}.",
                did_you_mean(value.text, names),
            )
        return
    kind = _type_of(lifetime, value.text, job, facts)
    if kind in _NOT_FOR_CONTAINERS:
        yield directive.mistake(
            value,
            f"Containers cannot use {value.text!r}, which is {kind}.",
            "Make it of type gfs2, lustre or raw.",
        )


_Meaning = Callable[[Directive, int, _Job, Facts], Iterator[Mistake]]

_MAKING: Final = ("jobdw", "create_persistent")


_MEANINGS: Final[Mapping[str, _Meaning]] = {
    "jobdw": _job_storage,
    "create_persistent": _create,
    "destroy_persistent": _destroy,
    "persistentdw": _use,
    "copy_in": _copy,
    "copy_out": _copy,
    "container": _container,
}
"""What each command means. One that is not here is a site's own, and its driver's."""
