"""Persistent storage: instances that outlive the Workflows which make and use them.

An instance, its Servers, its NnfStorage and its pinned profile have one name (dws-spec
section 7). Names are users' choice: what has the name of an instance and is not its own is
told as a mistake, and never taken for its own.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren.base.objects import Change, Create, Key, Kind, Object, Remove, Write
from warren.base.times import parse_rfc3339
from warren.directives.diagnostics import Mistake
from warren.directives.parse import Directive, parse
from warren.dws import children, kinds, labels, reports
from warren.dws.faults import Fault
from warren.dws.objects.assignments import Servers
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.meta import Error, Meta, Reference
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.workflows import Workflow
from warren.dws.persistent import expiry, sharing

COMMANDS: Final = ("create_persistent", "persistentdw", "destroy_persistent")
"""The directives that name an instance."""

USABLE_STATES: Final = ("Active", "Degraded")
"""The states in which all of an instance's storage is there."""


class InstanceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A PersistentStorageInstance, and what has its name."""

    object: PersistentStorageInstance
    servers: Servers | None = None
    storage: NnfStorage | None = None
    profile: Meta | None = None
    """The pinned profile."""

    @property
    def key(self) -> Key:
        return self.object.metadata.key

    @property
    def is_deleting(self) -> bool:
        return self.object.metadata.deleting or self.object.spec.state == "Destroying"

    def owns(self, meta: Meta) -> bool:
        """Return whether an object is part of this instance, and of no other that had its name."""
        return labels.is_owner(kinds.PERSISTENT_INSTANCE, self.object.metadata, meta.labels)

    @property
    def dependents(self) -> Mapping[Kind, Meta]:
        """What is its own, in the order in which it goes: flash first, the record of it later."""
        metas = {
            kinds.NNF_STORAGE: self.storage.metadata if self.storage else None,
            kinds.SERVERS: self.servers.metadata if self.servers else None,
            kinds.NNF_STORAGE_PROFILE: self.profile,
        }
        return {kind: meta for kind, meta in metas.items() if meta is not None and self.owns(meta)}


def instance_names(directives: Iterable[str], commands: Collection[str] = COMMANDS) -> list[str]:
    """Return the names of the instances that directives name, by some commands, each once."""
    names: dict[str, None] = {}
    for text in directives:
        words = text.split()
        if len(words) > 1 and words[1] in commands:
            names.update(
                (word.partition("=")[2], None) for word in words[2:] if word.startswith("name=")
            )
    return list(names)


def only_destroys(directives: Iterable[str]) -> bool:
    """Return whether directives do nothing but destroy instances."""
    return all(text.split()[1:2] == ["destroy_persistent"] for text in directives)


def asks_for_same(text: str, directive: Directive) -> bool:
    """Return whether the directive that has made an instance asks for what another one does."""
    try:
        return parse(text).values == directive.values
    except Mistake:
        return False


def instances_of(obj: Object) -> list[str]:
    """Index Workflows by the instances that they name: `namespace/name`."""
    spec = obj.get("spec")
    texts = spec.get("dwDirectives") if isinstance(spec, Mapping) else None
    return [
        f"{obj['metadata'].get('namespace', '')}/{name}" for name in instance_names(texts or ())
    ]


def consumers_of(obj: Object) -> list[str]:
    """Index instances by what uses them: `Kind namespace/name`."""
    spec = obj.get("spec")
    references = spec.get("consumerReferences") if isinstance(spec, Mapping) else None
    consumers = (
        consumer_of(
            Reference(
                kind=each.get("kind", ""), name=each["name"], namespace=each.get("namespace", "")
            )
        )
        for each in references or ()
    )
    return [consumer_index_key(*each) for each in consumers if each is not None]


def consumer_index_key(kind: Kind, key: Key) -> str:
    """Return what `consumers_of` files the instances under that an object uses."""
    return f"{kind.name} {key}"


def consumer(workflow: Workflow, index: int) -> Reference:
    """Return what stands in an instance for the persistentdw at `index` that uses it."""
    meta = workflow.metadata
    return Reference(
        kind=kinds.WORKFLOW.name, name=f"{meta.name}-{index}", namespace=meta.namespace
    )


def workflow_key_of(reference: Reference) -> Key | None:
    """Return the key of the Workflow that a consumer is of, if it is of one."""
    if reference.kind != kinds.WORKFLOW.name:
        return None
    return Key(reference.namespace, reference.name.rpartition("-")[0])


def consumer_of(reference: Reference) -> tuple[Kind, Key] | None:
    """Return what a consumer is, if it is known: a Workflow, or storage that needs an MGT."""
    if reference.kind == kinds.NNF_STORAGE.name:
        return kinds.NNF_STORAGE, reference.key
    workflow_key = workflow_key_of(reference)
    return None if workflow_key is None else (kinds.WORKFLOW, workflow_key)


# An instance's own life


def decide(snapshot: InstanceSnapshot) -> Sequence[Write]:
    """Make the Servers, and say how far the storage is; in deletion, give all of it back."""
    instance = snapshot.object
    if instance.metadata.deleting:
        return _finalize(snapshot)
    if labels.PERSISTENT_FINALIZER not in instance.metadata.finalizers:
        # First of all: without it the instance may be gone before its storage is.
        finalizers = [*instance.metadata.finalizers, labels.PERSISTENT_FINALIZER]
        return [_change(instance, {"metadata": {"finalizers": finalizers}})]
    if instance.spec.state == "Destroying" and not instance.spec.consumer_references:
        # Asked for by its owner; no Workflow becomes its user any more.
        return [Remove(kind=kinds.PERSISTENT_INSTANCE, key=instance.metadata.key)]
    writes: list[Write] = []
    if snapshot.servers is None:
        writes.append(Create(kind=kinds.SERVERS, object=_new_servers(instance)))
    return [*writes, *_report(snapshot)]


def decide_expiry(
    instance: PersistentStorageInstance, now: float, max_seconds: float | None = None
) -> tuple[Sequence[Change], float | None]:
    """Write when an instance expires, or have one destroyed that has; or say when to look again.

    `max_seconds` is for how many seconds an instance is kept at most. One that jobs use expires
    when the last of them has let it go, whose event wakes us.
    """
    meta = instance.metadata
    if meta.deleting or instance.spec.state == "Destroying" or labels.owner_uid(meta):
        return (), None  # the Workflow that makes it is not done yet
    moment = expiry.expiry_time(meta, max_seconds)
    if moment is None:
        return (), None
    if (text := expiry.expiry_text(moment)) != meta.annotations.get(labels.EXPIRES):
        return [_change(instance, {"metadata": {"annotations": {labels.EXPIRES: text}}})], None
    if now < moment:
        return (), moment - now
    if instance.spec.consumer_references:
        return (), None
    return [_change(instance, {"spec": {"state": "Destroying"}})], None


def is_about_to_go(snapshot: InstanceSnapshot) -> bool:
    """Return whether `decide` is about to say that nothing is left of the instance.

    What was seen of others may be older than the instance, so that must be read from the API.
    """
    instance = snapshot.object
    return instance.metadata.deleting and not (
        instance.spec.consumer_references or snapshot.dependents
    )


def change_to_remove_consumers(
    instance: PersistentStorageInstance, references: Sequence[Reference]
) -> Change:
    """Return the write that takes consumers off."""
    remaining = [each for each in instance.spec.consumer_references if each not in references]
    return _with_consumers(instance, remaining)


def _finalize(snapshot: InstanceSnapshot) -> Sequence[Write]:
    instance = snapshot.object
    if labels.PERSISTENT_FINALIZER not in instance.metadata.finalizers:
        return []
    if instance.spec.consumer_references:
        return _report(snapshot)  # its users have it mounted
    # One kind after the other: while there is storage, its Servers say where.
    for kind, meta in snapshot.dependents.items():
        removal = [] if meta.deleting else [Remove(kind=kind, key=meta.key)]
        return [*removal, *_report(snapshot)]
    return [
        reports.remove_finalizer(
            kinds.PERSISTENT_INSTANCE, instance.metadata, labels.PERSISTENT_FINALIZER
        )
    ]


def _new_servers(instance: PersistentStorageInstance) -> Object:
    meta = instance.metadata
    return {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {**_labels(instance), **labels.of_owner(kinds.PERSISTENT_INSTANCE, meta)},
            "ownerReferences": labels.owner_references(kinds.PERSISTENT_INSTANCE, meta),
            "finalizers": [labels.SERVERS_FINALIZER],
        },
        "spec": {},
    }


def storage_owner(instance: PersistentStorageInstance, maker: children.Owner) -> children.Owner:
    """Return the owner of an instance's storage, which the directive `maker` makes."""
    return replace(
        maker,
        kind=kinds.PERSISTENT_INSTANCE,
        meta=instance.metadata,
        labels=_labels(instance),
        annotations={labels.MADE_BY: str(maker.meta.key)},
    )


def _labels(instance: PersistentStorageInstance) -> dict[str, str]:
    # No Workflow is named, other than by HPE's controllers: what is labelled as a Workflow's
    # goes with it here.
    return {
        labels.PERSISTENT_NAME: instance.metadata.name,
        labels.PERSISTENT_NAMESPACE: instance.metadata.namespace,
    }


def _report(snapshot: InstanceSnapshot) -> Sequence[Change]:
    instance, meta = snapshot.object, snapshot.object.metadata
    fault = _name_fault(snapshot)
    error = fault.as_error() if fault else _encode_error(_storage_error(snapshot))
    reference = {"kind": "Servers", "name": meta.name, "namespace": meta.namespace}
    state = _state(snapshot)
    current = instance.status
    if current.state == state and current.servers and reports.same_error(current.error, error):
        return ()
    status = {"servers": reference, "state": state, "error": error}
    return [reports.status(kinds.PERSISTENT_INSTANCE, meta, status)]


def _state(snapshot: InstanceSnapshot) -> str:
    if snapshot.is_deleting:
        return "Destroying"
    storage = snapshot.storage
    ready = storage is not None and snapshot.owns(storage.metadata) and storage.status.ready
    if not ready:
        # What was there once has failed since, and is not being made.
        return "Degraded" if snapshot.object.status.state in USABLE_STATES else "Creating"
    assert storage is not None
    return "Active" if storage.status.health in ("", "Healthy") else "Degraded"


def _name_fault(snapshot: InstanceSnapshot) -> Fault | None:
    """Say that something else has the name of an instance, or of what it consists of."""
    servers, storage = snapshot.servers, snapshot.storage
    metas = {
        kinds.SERVERS: servers.metadata if servers else None,
        kinds.NNF_STORAGE: storage.metadata if storage else None,
    }
    for kind, meta in metas.items():
        if meta is not None and not snapshot.owns(meta):
            return Fault(
                f"the name {meta.name} is taken: there is a {kind.name} of that name which is not "
                "this storage's; choose another name",
                type="User",
            )
    return None


def _storage_error(snapshot: InstanceSnapshot) -> Error | None:
    return snapshot.storage.status.error if snapshot.storage else None


def _encode_error(error: Error | None) -> dict[str, Any] | None:
    if error is None:
        return None
    return {
        "userMessage": error.user_message,
        "debugMessage": error.debug_message,
        "type": error.type,
        "severity": error.severity,
    }


# What Workflows do with instances


def is_shared_with_groups(instances: Iterable[InstanceSnapshot | None]) -> bool:
    """Return whether it matters which groups a user is in."""
    return any(
        each and sharing.from_annotations(each.object.metadata.annotations).groups
        for each in instances
    )


def check_may_use(
    instance: PersistentStorageInstance, workflow: Workflow, groups: Collection[int]
) -> None:
    """Raise the Fault of a Workflow whose user, of some groups, may not use an instance."""
    shared = sharing.from_annotations(instance.metadata.annotations)
    if not sharing.may_use(instance.spec.user_id, shared, workflow.spec.user_id, groups):
        raise _other_user_fault(
            "User ID does not match existing persistent storage", instance, workflow
        )


def usable_instance(
    snapshot: InstanceSnapshot | None,
    name: str,
    workflow: Workflow,
    groups: Collection[int],
    now: float,
    breakdown: DirectiveBreakdown | None,
) -> InstanceSnapshot:
    """Return the instance that a directive names. Raises Fault where it cannot be used.

    `groups` are those of the Workflow's user, and `breakdown` is the directive's, if it has one:
    it says which instance it was made for.
    """
    if snapshot is None:
        raise Fault(f"PersistentStorageInstance '{name}' not found", type="User")
    _check_is_same(snapshot.object, breakdown)
    _check_is_older(snapshot.object, workflow)
    check_may_use(snapshot.object, workflow, groups)
    if snapshot.is_deleting:
        raise Fault(f"PersistentStorageInstance '{name}' is being deleted", type="User")
    is_consumer = workflow.metadata.key in map(
        workflow_key_of, snapshot.object.spec.consumer_references
    )
    if expiry.has_expired(snapshot.object.metadata.annotations, now) and not is_consumer:
        raise Fault(f"persistent storage {name!r} has expired", type="User")
    return snapshot


def _check_is_same(
    instance: PersistentStorageInstance, breakdown: DirectiveBreakdown | None
) -> None:
    """Raise the Fault of a directive that was broken down for another instance of the name."""
    if breakdown is None:
        return
    # This one may be another user's, and beside other nodes.
    uid = instance.metadata.uid
    used = breakdown.metadata.annotations.get(labels.USED_INSTANCE, uid)  # older ones do not say
    if used != uid:
        raise Fault(
            f"persistent storage {instance.metadata.name!r} is not the one that this job asked "
            "for: that is gone, and another has its name; submit the job again if it is to use "
            "this one",
            type="User",
            debug=f"the job asked for instance {used}, and {uid} of user ID "
            f"{instance.spec.user_id} has its name",
        )


def _check_is_older(instance: PersistentStorageInstance, workflow: Workflow) -> None:
    """Raise the Fault of a Workflow whose job was submitted before another user made the instance.

    A job that waits for others has no Workflow until they are over. What they make is its user's.
    """
    submitted = workflow.metadata.annotations.get(labels.SUBMITTED_AT)
    created = instance.metadata.creation_timestamp
    if (
        submitted is not None
        and created is not None
        and instance.spec.user_id != workflow.spec.user_id
        and parse_rfc3339(created) > parse_rfc3339(submitted)
    ):
        raise Fault(
            f"persistent storage {instance.metadata.name!r} was made by another user after this "
            "job was submitted; submit the job again if it is to use that",
            type="User",
        )


def change_to_add_consumer(
    instance: PersistentStorageInstance, reference: Reference, states: Collection[str] = ("Active",)
) -> Change | None:
    """Return the write that adds a consumer to an instance; None if it has that already.

    Raises Fault for an instance in none of these states that does not have the consumer yet.
    """
    if reference in instance.spec.consumer_references:
        return None
    if instance.status.state not in states:
        state = instance.status.state or "Creating"
        raise Fault(
            f"PersistentStorage is not active: {instance.metadata.name} is {state}", type="User"
        )
    return _with_consumers(instance, [*instance.spec.consumer_references, reference])


def destroy(instance: PersistentStorageInstance, workflow: Workflow) -> Sequence[Write]:
    """Have an instance destroyed; nothing if that is under way. Raises Fault.

    It becomes the Workflow's before it is deleted, so that it goes even if the Workflow does first.
    """
    meta = instance.metadata
    if instance.spec.user_id != workflow.spec.user_id:
        raise _other_user_fault(
            "user ID does not match existing persistent storage", instance, workflow
        )
    if instance.spec.consumer_references:
        count = len(instance.spec.consumer_references)
        raise Fault(
            "persistent storage cannot be deleted while in use",
            type="User",
            debug=f"persistent storage {meta.name} cannot be deleted with {count} consumers",
        )
    if meta.deleting:
        return []
    if instance.spec.state != "Destroying" or not labels.is_owner(
        kinds.WORKFLOW, workflow.metadata, meta.labels
    ):
        ownership = {
            "labels": labels.of_owner(kinds.WORKFLOW, workflow.metadata),
            "ownerReferences": labels.owner_references(kinds.WORKFLOW, workflow.metadata),
        }
        return [_change(instance, {"metadata": ownership, "spec": {"state": "Destroying"}})]
    return [Remove(kind=kinds.PERSISTENT_INSTANCE, key=meta.key)]


def is_made_by(instance: PersistentStorageInstance, breakdown: DirectiveBreakdown | None) -> bool:
    """Return whether an instance still goes with the directive that has made it."""
    return breakdown is not None and labels.is_owner(
        kinds.BREAKDOWN, breakdown.metadata, instance.metadata.labels
    )


def disown(instance: PersistentStorageInstance) -> Change:
    """Return the write that lets an instance stay when what has made it goes."""
    removed_labels = dict.fromkeys(labels.of_owner(kinds.BREAKDOWN, instance.metadata))
    return _change(instance, {"metadata": {"labels": removed_labels, "ownerReferences": None}})


def _with_consumers(instance: PersistentStorageInstance, references: Sequence[Reference]) -> Change:
    encoded = [
        {"kind": each.kind, "name": each.name, "namespace": each.namespace} for each in references
    ]
    return _change(instance, {"spec": {"consumerReferences": encoded}})


def _change(instance: PersistentStorageInstance, patch: Object) -> Change:
    """Change what was seen and nothing else: others add and remove consumers at the same time."""
    return Change(
        kind=kinds.PERSISTENT_INSTANCE,
        key=instance.metadata.key,
        patch=patch,
        resource_version=instance.metadata.resource_version,
    )


def _other_user_fault(
    message: str, instance: PersistentStorageInstance, workflow: Workflow
) -> Fault:
    debug = (
        f"existing persistent storage user ID {instance.spec.user_id} does not match user ID "
        f"{workflow.spec.user_id}"
    )
    return Fault(message, type="User", debug=debug)
