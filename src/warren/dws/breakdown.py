"""From a directive to what it needs: DirectiveBreakdowns (dws-spec section 3).

A `jobdw` needs storage and nodes that reach it; `create_persistent` needs storage, which
will be an instance's; `persistentdw` needs nodes that reach the storage of an instance.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from warren.base.errors import UserMistake
from warren.base.objects import Create, Object, Write
from warren.directives import capacity
from warren.directives.diagnostics import Mistake
from warren.directives.parse import Directive, parse
from warren.dws import children, kinds, labels, persistent, profiles, rabbits, reports
from warren.dws.faults import Fault
from warren.dws.objects.assignments import Servers
from warren.dws.objects.breakdowns import (
    AllocationNeed,
    Colocation,
    Constraints,
    DirectiveBreakdown,
)
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.storageprofiles import FileSystemProfile, LustreTarget, NnfStorageProfile
from warren.dws.objects.workflows import Workflow

T = TypeVar("T")

PER_COMPUTE: Final = "AllocatePerCompute"
ACROSS_SERVERS: Final = "AllocateAcrossServers"
SINGLE_SERVER: Final = "AllocateSingleServer"
PER_SERVER: Final = "AllocatePerServer"
"""One allocation on each server: DWS defines it, and no directive needs it. It is never written
here, and refused where storage is placed."""

MGT_KEY: Final = "lustre-mgt"
"""What keeps two MGTs off one rabbit."""

PERSISTENT: Final = "persistent"
"""The lifetime of storage that becomes an instance."""

RABBIT: Final = f"{labels.STORAGE_TYPE}=Rabbit"
"""The label that every set asks for, and every rabbit carries."""

_NETWORK: Final = {"type": "network", "priority": "mandatory"}
_PHYSICAL: Final = {"type": "physical", "priority": "mandatory"}
_NEAR: Final = {"type": "physical", "priority": "bestEffort"}

ACCESS: Final[Mapping[str, Sequence[Mapping[str, str]]]] = {
    "raw": (_PHYSICAL,),
    "xfs": (_PHYSICAL,),
    "ext4": (_PHYSICAL,),
    "gfs2": (_NETWORK, _PHYSICAL),
}
"""In which ways nodes must reach a file system of each type (dws-spec section 3.2)."""


@dataclass(frozen=True, kw_only=True)
class BreakdownSnapshot:
    """A DirectiveBreakdown, and what it is decided by, as it was seen."""

    breakdown: DirectiveBreakdown
    profiles: Sequence[Object]
    """Those that directives choose from."""
    copy: Object | None = None
    """The profile that has the name of the directive's pinned copy."""
    instance: PersistentStorageInstance | None = None
    """The persistent storage that the directive names."""
    servers: Servers | None = None
    """The Servers that have the instance's name."""
    is_made_by_some: Callable[[str], bool] = lambda kind: False
    """Tells whether some rabbits make a type of file systems and others do not."""

    @property
    def instance_servers(self) -> Servers | None:
        """The Servers of the instance: any other object may have its name."""
        if self.instance is None or self.servers is None:
            return None
        carried = self.servers.metadata.labels
        mine = labels.is_owner(kinds.PERSISTENT, self.instance.metadata, carried)
        return self.servers if mine else None

    def choices(self) -> Sequence[NnfStorageProfile]:
        return [read(obj, NnfStorageProfile) for obj in self.profiles]


def child(workflow: Workflow, index: int) -> Object:
    """Make the DirectiveBreakdown of one directive of a Workflow."""
    return {
        "metadata": {
            **children.metadata(workflow, children.name(workflow, index), index),
            **_expiring(workflow.metadata),
        },
        "spec": {
            "directive": workflow.spec.dw_directives[index],
            "userID": workflow.spec.user_id,
        },
    }


def _expiring(maker: Meta) -> Object:
    """Return the metadata by which what makes an instance says when that expires."""
    found = {key: value for key, value in maker.annotations.items() if key == labels.EXPIRES}
    return {"annotations": found} if found else {}


def instance_of(obj: Object) -> tuple[str, ...]:
    """Index DirectiveBreakdowns by the persistent storage that they name: `namespace/name`."""
    spec = obj.get("spec")
    text = spec.get("directive") if isinstance(spec, Mapping) else None
    if not isinstance(text, str) or "persistent" not in text:
        return ()
    try:
        directive = parse(text)
    except Mistake:
        return ()
    name = directive.values.get("name")
    if directive.command.text not in ("create_persistent", "persistentdw") or name is None:
        return ()
    return (f"{obj['metadata']['namespace']}/{name}",)


def profile_of(obj: Object) -> tuple[str, ...]:
    """Index DirectiveBreakdowns that are not ready by the profile that they name.

    That is the empty name where they take the default. No others have use for news of a profile.
    """
    spec, status = obj.get("spec"), obj.get("status")
    text = spec.get("directive") if isinstance(spec, Mapping) else None
    ready = isinstance(status, Mapping) and status.get("ready")
    if not isinstance(text, str) or ready:
        return ()
    try:
        directive = parse(text)
    except Mistake:
        return ()
    if directive.command.text not in ("jobdw", "create_persistent"):
        return ()
    return (directive.values.get("profile", ""),)


def decide(snapshot: BreakdownSnapshot) -> Sequence[Write]:
    """Break the directive down: make what is to be filled in, then report the need.

    What is made is waited for: the pinned profile is what the need is read from.
    """
    breakdown = snapshot.breakdown
    if breakdown.status.ready or breakdown.metadata.deleting:
        return ()
    try:
        directive = parse(breakdown.spec.directive)
        handler = COMMANDS.get(directive.command.text)
        if handler is None:
            raise Fault(f"{directive.command.text} needs no storage and no nodes", type="User")
        return handler(snapshot, directive)
    except Mistake as mistake:
        return _failed(breakdown, Fault(str(mistake), type="User"))
    except Fault as fault:
        return _failed(breakdown, fault)


def unsaid(breakdown: DirectiveBreakdown, why: str) -> Sequence[Write]:
    """Report that the definitions of this cluster have no words for what the directive needs."""
    kind = parse(breakdown.spec.directive).values.get("type", "")
    words = f"the definitions of this cluster do not allow for type {kind}"
    return _failed(breakdown, Fault(words, type="User", debug=f"{words}: {why}"))


def _failed(breakdown: DirectiveBreakdown, fault: Fault) -> Sequence[Write]:
    known = breakdown.status.error
    if known is not None and known.debug_message == fault.debug:
        return ()
    return [
        reports.status(
            kinds.BREAKDOWN, breakdown.metadata, {"ready": False, "error": fault.as_status()}
        )
    ]


# The commands


def _job(snapshot: BreakdownSnapshot, directive: Directive) -> Sequence[Write]:
    """Storage for a job: Servers and a pinned profile of the breakdown's own."""
    meta = snapshot.breakdown.metadata
    carried = labels.inherited(meta)
    if snapshot.copy is None:
        copy = profiles.pinned(_source(snapshot, directive), kinds.BREAKDOWN, meta, carried)
        return [Create(kind=kinds.NNF_STORAGE_PROFILE, object=copy)]
    profiles.demand_copy(snapshot.copy, kinds.BREAKDOWN, meta)
    profile = read(snapshot.copy, NnfStorageProfile)
    needs = _needs(snapshot, directive, profile)
    servers = {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {**carried, **labels.of_owner(kinds.BREAKDOWN, meta)},
            "ownerReferences": labels.controller(kinds.BREAKDOWN, meta),
            "finalizers": [labels.SERVERS_FINALIZER],
        },
        "spec": {},
    }
    status = {
        **_requires(directive),
        "storage": _storage(snapshot, needs, "job", meta.name),
        "compute": _compute(
            snapshot, meta.name, directive.values["type"], [need.label for need in needs], profile
        ),
    }
    return [Create(kind=kinds.SERVERS, object=servers), _ready(snapshot, status)]


def _create(snapshot: BreakdownSnapshot, directive: Directive) -> Sequence[Write]:
    """Storage that outlives its job: an instance, which has the Servers and the profile.

    One that is there already is taken if the same user has made it by the same directive, and
    is left as it is.
    """
    instance = snapshot.instance
    if instance is None:
        return [Create(kind=kinds.PERSISTENT, object=_instance(snapshot, directive))]
    _demand_same(instance, snapshot.breakdown, directive)
    meta = instance.metadata
    if snapshot.copy is None:
        copy = profiles.pinned(_source(snapshot, directive), kinds.PERSISTENT, meta, {})
        return [Create(kind=kinds.NNF_STORAGE_PROFILE, object=copy)]
    profiles.demand_copy(snapshot.copy, kinds.PERSISTENT, meta)
    needs = _needs(snapshot, directive, read(snapshot.copy, NnfStorageProfile))
    if snapshot.instance_servers is None:
        return ()  # the instance's controller makes them
    return [_ready(snapshot, {"storage": _storage(snapshot, needs, PERSISTENT, meta.name)})]


def _use(snapshot: BreakdownSnapshot, directive: Directive) -> Sequence[Write]:
    """Nodes that reach the storage of an instance, as its Servers say where it is.

    By the type of the instance: NNF takes all for node-local (dws-spec section 3.2).
    """
    name, instance = directive.values["name"], snapshot.instance
    if instance is None or instance.metadata.deleting:
        raise Fault(f"PersistentStorageInstance {name!r} not found", type="User", argument="name")
    servers = snapshot.instance_servers
    sets = servers.spec.allocation_sets if servers is not None else ()
    if not sets:
        raise Fault(
            f"persistent storage {name!r} is not there yet: the job that creates it has not come "
            "to Setup",
            type="User",
            severity="Minor",
        )
    copy = None
    if snapshot.copy is not None:
        profiles.demand_copy(snapshot.copy, kinds.PERSISTENT, instance.metadata)
        copy = read(snapshot.copy, NnfStorageProfile)
    found = [each.label for each in sets]
    compute = _compute(snapshot, name, instance.spec.fs_type, found, copy)
    return [_ready(snapshot, {**_requires(directive), "compute": compute})]


COMMANDS: Final[Mapping[str, Callable[[BreakdownSnapshot, Directive], Sequence[Write]]]] = {
    "jobdw": _job,
    "create_persistent": _create,
    "persistentdw": _use,
}


def _source(snapshot: BreakdownSnapshot, directive: Directive) -> Object:
    """Choose the profile that is to be copied, if the directive can be made by it. Raises Fault."""
    profile = profiles.chosen(directive.values.get("profile"), snapshot.choices())
    needs_of(directive, profile)
    name = profile.metadata.name
    source = next(each for each in snapshot.profiles if each["metadata"]["name"] == name)
    # Made before there were rules for it, or past them: its copy would be refused.
    for mistake in profiles.mistakes(source):
        raise Fault(f"NnfStorageProfile {name} is wrong: {mistake}")
    return source


def _instance(snapshot: BreakdownSnapshot, directive: Directive) -> Object:
    meta, spec = snapshot.breakdown.metadata, snapshot.breakdown.spec
    profile = read(_source(snapshot, directive), NnfStorageProfile)
    values = directive.values
    pool = profile.data.lustre_storage.mgt_options.standalone_mgt_pool_name
    alone = values["type"] == "lustre" and _is_standalone(profile)
    of_pool = {labels.STANDALONE_MGT: pool} if alone else {}
    return {
        "metadata": {
            "name": values["name"],
            "namespace": meta.namespace,
            "labels": labels.of_owner(kinds.BREAKDOWN, meta) | of_pool,
            "ownerReferences": labels.controller(kinds.BREAKDOWN, meta),
            "finalizers": [labels.PERSISTENT_FINALIZER],
            **_expiring(meta),
        },
        "spec": {
            "name": values["name"],
            "fsType": values["type"],
            "dwDirective": spec.directive,
            "userID": spec.user_id,
            "state": "Active",
        },
    }


def _demand_same(
    instance: PersistentStorageInstance, breakdown: DirectiveBreakdown, directive: Directive
) -> None:
    """Raise the Fault of a create_persistent whose name is taken."""
    name, spec = instance.metadata.name, instance.spec
    if spec.user_id != breakdown.spec.user_id:
        raise Fault(
            f"User ID does not match existing persistent storage: take another name than {name!r}",
            type="User",
            debug=f"existing persistent storage user ID {spec.user_id} does not match user ID "
            f"{breakdown.spec.user_id}",
            argument="name",
        )
    if instance.metadata.deleting or spec.state == "Destroying":
        raise Fault(
            f"persistent storage {name!r} is about to be destroyed", type="User", severity="Major"
        )
    if not persistent.is_same(spec.dw_directive, directive):
        raise Fault(
            f"persistent storage {name!r} is there already, made by {spec.dw_directive!r}: take "
            "another name, or destroy it first",
            type="User",
            argument="name",
        )


# What is reported


def _ready(snapshot: BreakdownSnapshot, fields: Mapping[str, Any]) -> Write:
    status = {"ready": True, "error": None, **fields}
    return reports.status(kinds.BREAKDOWN, snapshot.breakdown.metadata, status)


def _requires(directive: Directive) -> dict[str, Any]:
    asked = directive.values.get("requires")
    return {} if asked is None else {"requires": asked.split(",")}


def _storage(
    snapshot: BreakdownSnapshot, needs: Sequence[AllocationNeed], lifetime: str, servers: str
) -> dict[str, Any]:
    return {
        "lifetime": lifetime,
        "reference": _reference(snapshot, servers),
        "allocationSets": [_need(need) for need in needs],
    }


def _compute(
    snapshot: BreakdownSnapshot,
    servers: str,
    kind: str,
    sets: Sequence[str],
    profile: NnfStorageProfile | None,
) -> dict[str, Any]:
    """Say in which ways nodes must reach each of some allocation sets, given by their labels."""
    location: list[Mapping[str, Any]] = [
        {
            "access": list(access(kind, label, profile)),
            "reference": {
                **_reference(snapshot, servers),
                "fieldPath": f"servers.spec.allocationSets[{number}]",
            },
        }
        for number, label in enumerate(sets)
    ]
    return {"constraints": {"location": location}}


def access(kind: str, label: str, profile: NnfStorageProfile | None) -> Sequence[Mapping[str, str]]:
    """Return in which ways nodes must reach a set of a file system (dws-spec section 3.2)."""
    if kind != "lustre":
        return ACCESS.get(kind, (_PHYSICAL,))
    target = profile.data.lustre_storage.targets.get(label) if profile is not None else None
    near = target is not None and target.colocate_computes
    return (_NETWORK, _NEAR) if near else (_NETWORK,)


def is_node_local(kind: str) -> bool:
    """Return whether one node mounts each allocation of a file system of this type."""
    return kind != "lustre" and ACCESS.get(kind, (_PHYSICAL,)) == (_PHYSICAL,)


def _reference(snapshot: BreakdownSnapshot, servers: str) -> dict[str, Any]:
    namespace = snapshot.breakdown.metadata.namespace
    return {"kind": "Servers", "name": servers, "namespace": namespace}


def _need(need: AllocationNeed) -> dict[str, Any]:
    asked = need.constraints
    constraints: dict[str, Any] = {"labels": list(asked.labels)}
    if asked.count is not None:
        constraints["count"] = asked.count
    if asked.scale is not None:
        constraints["scale"] = asked.scale
    if asked.colocation:
        constraints["colocation"] = [
            {"type": each.type, "key": each.key} for each in asked.colocation
        ]
    return {
        "allocationStrategy": need.allocation_strategy,
        "minimumCapacity": need.minimum_capacity,
        "label": need.label,
        "constraints": constraints,
    }


# What is needed


def _needs(
    snapshot: BreakdownSnapshot, directive: Directive, profile: NnfStorageProfile
) -> list[AllocationNeed]:
    needs = needs_of(directive, profile)
    kind = directive.values["type"]
    return where_made(needs, kind) if snapshot.is_made_by_some(kind) else needs


def where_made(needs: Iterable[AllocationNeed], kind: str) -> list[AllocationNeed]:
    """Return allocation sets that ask for rabbits which make a type of file systems."""
    label = rabbits.label_of(kind)
    return [
        replace(
            need,
            constraints=replace(need.constraints, labels=(label, *need.constraints.labels)),
        )
        for need in needs
    ]


def needs_of(directive: Directive, profile: NnfStorageProfile) -> list[AllocationNeed]:
    """Return the allocation sets that a directive needs, made by a profile (dws-spec section 3.1).

    Sizes are bytes, scaled and then padded. Raises Fault.
    """
    kind = directive.values.get("type", "")
    if kind == "lustre":
        return _lustre(directive, profile)
    options = profile.data.file_systems.get(kind)
    if options is None:
        known = ", ".join([*profile.data.file_systems, "lustre"])
        why = f"there is no file system of type {kind!r}: take one of {known}"
        raise Fault(why, type="User", argument="type")
    path = f"data.{kind}Storage"
    size = _scaled(directive, profile, f"{path}.capacityScalingFactor", options)
    where = f"{path}.allocationPadding"
    size += _read(profile, where, profiles.padding, options.allocation_padding, size)
    constraints = Constraints(labels=(*options.storage_labels, RABBIT))
    return [
        AllocationNeed(
            allocation_strategy=PER_COMPUTE,
            minimum_capacity=_in_64_bits(directive, size),
            label=kind,
            constraints=constraints,
        )
    ]


def _is_standalone(profile: NnfStorageProfile) -> bool:
    lustre = profile.data.lustre_storage
    mgt = lustre.mgt_options
    return bool(
        mgt.standalone_mgt_pool_name and not mgt.external_mgs and not lustre.combined_mgt_mdt
    )


def _lustre(directive: Directive, profile: NnfStorageProfile) -> list[AllocationNeed]:
    """Return the sets of targets: an MGT comes with them, or there is one, or it is all."""
    lustre = profile.data.lustre_storage
    exclusive = (Colocation(key=""),) if lustre.mdt_options.exclusive else ()
    alone = (Colocation(key=MGT_KEY),)
    if _is_standalone(profile):
        _demand_mgt(directive, profile)
        return [_target(profile, "mgt", SINGLE_SERVER, alone)]
    path = f"data.lustreStorage.{profiles.OPTIONS['ost']}.capacityScalingFactor"
    size = _in_64_bits(directive, _scaled(directive, profile, path, lustre.ost_options))
    ost = _set("ost", ACROSS_SERVERS, size, lustre.ost_options, ())
    if lustre.combined_mgt_mdt:
        # The capacity is that of an MDT, as NNF has it; all else is said of both.
        return [ost, _target(profile, "mgtmdt", ACROSS_SERVERS, exclusive or alone, sized="mdt")]
    mdt = _target(profile, "mdt", ACROSS_SERVERS, exclusive)
    if lustre.mgt_options.external_mgs:
        return [ost, mdt]
    return [ost, mdt, _target(profile, "mgt", SINGLE_SERVER, alone)]


def _demand_mgt(directive: Directive, profile: NnfStorageProfile) -> None:
    """Raise the Fault of a directive that is not for an MGT alone."""
    name = profile.metadata.name
    if directive.command.text != "create_persistent":
        raise Fault(
            "standaloneMgtPoolName option can only be used with 'create_persistent' directive: "
            f"take another profile than {directive.values.get('profile', name)}",
            type="User",
            argument="profile",
        )
    if "capacity" in directive.values:
        raise Fault(
            "creating persistent MGT does not accept 'capacity' argument: its profile says how "
            "large it is",
            type="User",
            argument="capacity",
        )


def _target(
    profile: NnfStorageProfile,
    label: str,
    strategy: str,
    colocation: tuple[Colocation, ...],
    *,
    sized: str = "",
) -> AllocationNeed:
    """Return the set of targets whose size the profile says: that of `sized`, or of their own."""
    targets, sized = profile.data.lustre_storage.targets, sized or label
    path = f"data.lustreStorage.{profiles.OPTIONS[sized]}.capacity"
    size = _read(profile, path, profiles.size_of_target, targets[sized].capacity)
    return _set(label, strategy, size, targets[label], colocation)


def _set(
    label: str,
    strategy: str,
    size: int,
    options: LustreTarget,
    colocation: tuple[Colocation, ...],
) -> AllocationNeed:
    return AllocationNeed(
        allocation_strategy=strategy,
        minimum_capacity=size,
        label=label,
        constraints=Constraints(
            labels=(*options.storage_labels, RABBIT),
            count=options.count,
            scale=options.scale,
            colocation=colocation,
        ),
    )


def _scaled(
    directive: Directive,
    profile: NnfStorageProfile,
    path: str,
    options: FileSystemProfile | LustreTarget,
) -> int:
    """Return the bytes that a directive asks for, scaled."""
    asked = _asked(directive)
    scaled = _read(profile, path, profiles.factor, options.capacity_scaling_factor) * asked
    if scaled >= capacity.LIMIT:
        raise _too_large(directive)
    if scaled < 1:
        raise Fault(
            f"{directive.values['capacity']!r} is too small: scaled by the profile's "
            f"{options.capacity_scaling_factor}, it is less than a byte",
            type="User",
            argument="capacity",
        )
    return int(scaled)


def _asked(directive: Directive) -> int:
    text = directive.values.get("capacity")
    if text is None:
        lasts = directive.command.text == "create_persistent"
        who = "creating persistent storage" if lasts else directive.command.text
        why = f"{who} requires 'capacity' argument, such as capacity=100GiB"
        raise Fault(why, type="User")
    try:
        asked = capacity.parse(text)
    except UserMistake as error:
        raise Fault(str(error).removesuffix("."), type="User", argument="capacity") from error
    if asked == 0:
        raise Fault("'capacity' must be a non-zero value", type="User", argument="capacity")
    return asked


def _read(profile: NnfStorageProfile, path: str, reads: Callable[..., T], *given: Any) -> T:
    """Read a value of a profile. Raises Fault, which is told to those who look after profiles."""
    try:
        return reads(*given)
    except UserMistake as error:
        name = profile.metadata.name
        raise Fault(f"NnfStorageProfile {name} is wrong: {path}: {error}".rstrip(".")) from error


def _in_64_bits(directive: Directive, size: int) -> int:
    if size >= capacity.LIMIT:
        raise _too_large(directive)
    return size


def _too_large(directive: Directive) -> Fault:
    return Fault(
        f"{directive.values['capacity']!r} is too large: with what its file system needs for "
        "itself, a capacity is less than 8 EiB",
        type="User",
        argument="capacity",
    )
