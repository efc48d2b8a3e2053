"""NnfStorages of Lustre: the MGS first, then what is found by it, and all of that before it goes.

The MGS is on a rabbit of the storage, or is that of others (dws-spec section 10). It gives the
file system its name, by an NnfLustreMGT in its rabbit's namespace, or one of an admin's for others.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

from warren.base.errors import UserMistake
from warren.base.objects import Change, Create, Key, Object, Remove, Write
from warren.dws import kinds, labels, reports
from warren.dws.faults import Fault
from warren.dws.objects.lustrefilesystems import NnfLustreMGT, Requester
from warren.dws.objects.meta import Reference
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage, NnfStorage
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.persistent import instances
from warren.dws.storage import locks, lustre, mgscommands, nnfstorage
from warren.dws.storage.lustre import reference_of, reference_to
from warren.dws.storage.nnfstorage import LustreAddress

POOL_PREFIX = "pool:"
"""Before the name of a pool of MGTs, in a profile's `externalMgs`."""


POOLED: Final = "yes"
"""Under which instances are filed whose MGT is one of a pool."""


def index_pooled(obj: Object) -> tuple[str, ...]:
    """Index instances whose MGT is one of a pool by POOLED."""
    return (POOLED,) if (obj["metadata"].get("labels") or {}).get(labels.STANDALONE_MGT) else ()


def addresses_and_claimants_of(obj: Object) -> list[str]:
    """Index NnfLustreMGTs by their addresses, and by the storages that claim a name of them.

    These are `namespace/name`.
    """
    spec = obj.get("spec")
    if not isinstance(spec, Mapping):
        return []
    claims = [f"{each.get('namespace', '')}/{each['name']}" for each in spec.get("claimList") or ()]
    return [*(spec.get("addresses") or ()), *claims]


def own_mgt_key(storage: NnfStorage) -> Key:
    """Return the key of the NnfLustreMGT that a storage has made, if it has an MGS of its own."""
    return Key(mgs_rabbit(storage) or "", storage.metadata.name)


def external_mgs(profile: NnfStorageProfile | None) -> str:
    """Return the MGS, or the pool of MGTs, that a profile names; nothing where it names none."""
    return profile.data.lustre_storage.mgt_options.external_mgs if profile else ""


def mgs_rabbit(storage: NnfStorage) -> str | None:
    """Return the rabbit with the storage's own MGS, if it has one."""
    for each in storage.spec.allocation_sets:
        if each.name in lustre.LABELS_WITH_MGS and each.nodes:
            return each.nodes[0].name
    return None


class LustreSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An NnfStorage of Lustre, and what it is decided by, as it was seen."""

    storage: NnfStorage
    shares: Sequence[NnfNodeStorage]
    block_storages: Sequence[NnfNodeBlockStorage]
    profile: NnfStorageProfile | None
    mgts: Sequence[NnfLustreMGT]
    """The storage's own, those that it claims, and those at an MGS by which it may be found."""
    mgs_address_by_rabbit: Mapping[str, str]
    """Where the MGS of a rabbit is found, for those rabbits that say it."""
    pools: Mapping[str, Sequence[tuple[PersistentStorageInstance, NnfStorage]]]
    """The MGTs of each pool."""

    @property
    def mgs_rabbit(self) -> str | None:
        """The rabbit with its own MGS, if it has one."""
        return mgs_rabbit(self.storage)

    @property
    def is_only_mgt(self) -> bool:
        return {each.name for each in self.storage.spec.allocation_sets} == {"mgt"}

    @property
    def reference(self) -> dict[str, str]:
        return reference_of(mgscommands.requester(self.storage))


def decide(snapshot: LustreSnapshot) -> Sequence[Write]:
    """Make what is to be next, and report; in deletion, take it back in the other order."""
    if snapshot.storage.metadata.deleting:
        return () if locks.is_held(snapshot.storage) else _give_back(snapshot)
    try:
        return _make(snapshot)
    except UserMistake as mistake:  # the pinned profile was edited since
        return _report_failure(snapshot, Fault(str(mistake).removesuffix(".")))
    except Fault as fault:
        return _report_failure(snapshot, fault)


def _report_failure(snapshot: LustreSnapshot, fault: Fault) -> Sequence[Write]:
    error = fault.as_error()
    if reports.same_error(snapshot.storage.status.error, error):
        return ()
    status = {"ready": False, "error": error}
    return [reports.status(kinds.NNF_STORAGE, snapshot.storage.metadata, status)]


def _make(snapshot: LustreSnapshot) -> Sequence[Write]:
    address = _mgs_address(snapshot)
    mgt = _mgt(snapshot, address)
    if mgt is None:
        return [_create_own_mgt(snapshot, address)]
    name = ""
    if snapshot.mgs_rabbit is None and (hold := _hold_pool_mgt(snapshot, address)):
        return hold
    if not snapshot.is_only_mgt:
        own_claims = (
            each for each in mgt.status.claim_list if _is_own_claim(each.reference, snapshot)
        )
        name = next((each.fsname for each in own_claims), "")
        if not name:
            return _claim_name(snapshot, mgt)
    wanted = nnfstorage.wanted_shares(
        snapshot.storage, snapshot.profile, LustreAddress(address, name)
    )
    present = {each.metadata.key: each for each in snapshot.shares}
    block_keys = {each.metadata.key for each in snapshot.block_storages}
    to_make = wanted
    if snapshot.mgs_rabbit is not None:
        mgs_key = _mgs_share_key(wanted)
        mgs_share = present.get(mgs_key)
        if mgs_share is None or not mgs_share.status.ready:
            to_make = {mgs_key: wanted[mgs_key]}  # the others find the file system by it
    missing = [
        *(
            Create(
                kind=kinds.NNF_NODE_BLOCK_STORAGE, object=nnfstorage.new_block_storage(obj, size)
            )
            for key, (obj, size) in to_make.items()
            if key not in block_keys
        ),
        *(
            Create(kind=kinds.NNF_NODE_STORAGE, object=obj)
            for key, (obj, _) in to_make.items()
            if key not in present
        ),
    ]
    extra_status: dict[str, Any] = {
        "mgsAddress": address,
        "lustreMgtReference": reference_to(kinds.LUSTRE_MGT.name, mgt.metadata.key),
        "lustreComponents": lustre.components(snapshot.storage.spec.allocation_sets),
        **({"fileSystemName": name} if name else {}),
    }
    status = snapshot.storage.status
    has_extra_status = (status.mgs_address, status.file_system_name) == (address, name)
    shares = {key: present.get(key) for key in wanted}
    is_incomplete, fault = False, None
    if nnfstorage.are_ready(shares.values()) and not status.ready:
        lines = mgscommands.lines_for_storage(
            snapshot.storage, snapshot.profile, mgt, address, name
        )
        if lines and (request := mgscommands.request_change(mgt, snapshot.storage, lines)):
            return [request]
        try:
            is_incomplete = bool(lines) and not mgscommands.are_run(mgt, snapshot.storage)
        except Fault as trouble:
            fault = trouble
    report = nnfstorage.status_changes(
        snapshot.storage,
        shares,
        extra_status,
        has_extra_status=has_extra_status,
        is_incomplete=is_incomplete,
        fault=fault,
    )
    return [*missing, *report]


def _mgs_share_key(wanted: Mapping[Key, tuple[Object, int]]) -> Key:
    """Return the key of the share that has the MGS."""
    return next(
        key
        for key, (obj, _) in wanted.items()
        if obj["spec"]["lustreStorage"]["targetType"] in lustre.LABELS_WITH_MGS
    )


def _mgs_address(snapshot: LustreSnapshot) -> str:
    """Return where the MGS is found. Raises Fault."""
    rabbit = snapshot.mgs_rabbit
    if rabbit is not None:
        address = snapshot.mgs_address_by_rabbit.get(rabbit)
        if not address:
            why = f"{rabbit}, which is to have the MGS, does not say its LNet address"
            raise Fault(why, severity="Minor")
        return address
    if snapshot.storage.status.mgs_address:
        return snapshot.storage.status.mgs_address  # once it was chosen, it stays
    named_mgs = external_mgs(snapshot.profile)
    if not named_mgs:
        raise Fault("the file system has no MGT, and its profile names no external one")
    if not named_mgs.startswith(POOL_PREFIX):
        return named_mgs
    pool = named_mgs.removeprefix(POOL_PREFIX)
    ready = [
        each
        for instance, each in snapshot.pools.get(pool, ())
        if each.status.ready and instance.status.state in instances.USABLE_STATES
    ]
    healthy = [each for each in ready if each.status.health == nnfstorage.HEALTH[0]] or ready
    if not healthy:
        why = f"no MGT of pool {pool!r} is ready: create one with a profile that has "
        raise Fault(f"{why}standaloneMgtPoolName: {pool}", severity="Major")
    # One that was seen by chance, and the same one if what is decided here is decided again.
    chosen = min(
        healthy, key=lambda each: _rendezvous_hash(snapshot.storage.metadata.uid, each.metadata.uid)
    )
    return chosen.status.mgs_address


def _consumer(snapshot: LustreSnapshot) -> Reference:
    key = snapshot.storage.metadata.key
    return Reference(kind=kinds.NNF_STORAGE.name, name=key.name, namespace=key.namespace)


def _hold_pool_mgt(snapshot: LustreSnapshot, address: str) -> Sequence[Write]:
    """Keep the MGT of a pool from being destroyed while the file system is found by it."""
    consumer = _consumer(snapshot)
    for members in snapshot.pools.values():
        for instance, mgt_storage in members:
            if (
                mgt_storage.status.mgs_address == address
                and instance.status.state in instances.USABLE_STATES
            ):
                change = instances.change_to_add_consumer(
                    instance, consumer, instances.USABLE_STATES
                )
                return [] if change is None else [change]
    return []


def _rendezvous_hash(one: str, other: str) -> bytes:
    return sha256(f"{one} {other}".encode()).digest()


def _mgt(snapshot: LustreSnapshot, address: str) -> NnfLustreMGT | None:
    """Return what gives out names at an MGS; None if that is the storage's own, and not there."""
    if snapshot.mgs_rabbit is not None:
        key = _own_mgt_key(snapshot)
        return next((each for each in snapshot.mgts if each.metadata.key == key), None)
    for each in snapshot.mgts:
        if address in each.spec.addresses and not each.metadata.deleting:
            return each
    why = f"no NnfLustreMGT resource found for MGS address: {address}"
    raise Fault(why, severity="Major", debug=f"could not get available fsname: {why}")


def _own_mgt_key(snapshot: LustreSnapshot) -> Key:
    return own_mgt_key(snapshot.storage)


def _create_own_mgt(snapshot: LustreSnapshot, address: str) -> Create:
    meta = snapshot.storage.metadata
    key = _own_mgt_key(snapshot)
    claims = [] if snapshot.is_only_mgt else [snapshot.reference]
    mgt = {
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {**labels.inherited_labels(meta), **labels.of_owner(kinds.NNF_STORAGE, meta)},
            "finalizers": [labels.LUSTRE_MGT_FINALIZER],
        },
        "spec": {"addresses": [address], "fsNameStart": "aaaaaaaa", "claimList": claims},
    }
    return Create(kind=kinds.LUSTRE_MGT, object=mgt)


def _claim_name(snapshot: LustreSnapshot, mgt: NnfLustreMGT) -> Sequence[Write]:
    key = snapshot.storage.metadata.key
    if any(_is_own_claim(each, snapshot) for each in mgt.spec.claim_list):
        return ()  # its name comes
    # The name of an earlier storage of its name is not its own: that MGS knows its targets.
    claims = [reference_of(each) for each in mgt.spec.claim_list if each.key != key]
    return [_change_claims(mgt, [*claims, snapshot.reference])]


def _is_own_claim(claimant: Requester, snapshot: LustreSnapshot) -> bool:
    """Return whether a claim is the storage's own: those of earlier versions have no uid."""
    own = mgscommands.requester(snapshot.storage)
    return claimant.key == own.key and claimant.uid in ("", own.uid)


def _change_claims(mgt: NnfLustreMGT, claims: Sequence[Object], **other_fields: Any) -> Change:
    return Change(
        kind=kinds.LUSTRE_MGT,
        key=mgt.metadata.key,
        patch={"spec": {"claimList": list(claims), **other_fields}},
        resource_version=mgt.metadata.resource_version,
    )


def _give_back(snapshot: LustreSnapshot) -> Sequence[Write]:
    """Take back all targets but the MGS, then that, then the claim, and let go."""
    error = snapshot.storage.status.error
    if error is not None and not any(each.status.error for each in snapshot.shares):
        # What kept it from being made keeps nothing any more.
        meta = snapshot.storage.metadata
        return [reports.status(kinds.NNF_STORAGE, meta, {"error": None})]
    own_key = _own_mgt_key(snapshot) if snapshot.mgs_rabbit is not None else None
    with_mgs = [each for each in snapshot.shares if _has_mgs(each)]
    keys = {each.metadata.key for each in with_mgs}
    shares_without_mgs = [each for each in snapshot.shares if each.metadata.key not in keys]
    blocks = [each for each in snapshot.block_storages if each.metadata.key not in keys]
    if shares_without_mgs or blocks:
        return nnfstorage.give_back(snapshot.storage, shares_without_mgs, blocks)
    if snapshot.shares or snapshot.block_storages:
        return nnfstorage.give_back(snapshot.storage, snapshot.shares, snapshot.block_storages)
    key = snapshot.storage.metadata.key
    for mgt in snapshot.mgts:
        if mgt.metadata.key == own_key and (writes_for_mgt := _remove_own_mgt(mgt, snapshot)):
            return writes_for_mgt
    # No news of these would come here: they are written before what depends on them.
    writes: list[Write] = []
    for mgt in snapshot.mgts:
        if any(each.key == key for each in mgt.spec.claim_list) and mgt.metadata.key != own_key:
            other_claims = [each for each in mgt.spec.claim_list if each.key != key]
            claims = [reference_of(each) for each in other_claims]
            writes.append(
                _change_claims(mgt, claims, **mgscommands.spec_without(mgt, snapshot.storage))
            )
    own_consumer = _consumer(snapshot)
    writes += [
        instances.change_to_remove_consumers(instance, [own_consumer])
        for members in snapshot.pools.values()
        for instance, _ in members
        if own_consumer in instance.spec.consumer_references
    ]
    meta = snapshot.storage.metadata
    return [*writes, reports.remove_finalizer(kinds.NNF_STORAGE, meta, labels.STORAGE_FINALIZER)]


def _remove_own_mgt(mgt: NnfLustreMGT, snapshot: LustreSnapshot) -> Sequence[Write]:
    """Remove the storage's own NnfLustreMGT, whose MGS has gone."""
    meta = snapshot.storage.metadata
    if not labels.is_owner(kinds.NNF_STORAGE, meta, mgt.metadata.labels):
        return ()
    if not mgt.metadata.deleting:
        return [Remove(kind=kinds.LUSTRE_MGT, key=mgt.metadata.key)]
    if labels.LUSTRE_MGT_FINALIZER not in mgt.metadata.finalizers:
        return ()
    return [reports.remove_finalizer(kinds.LUSTRE_MGT, mgt.metadata, labels.LUSTRE_MGT_FINALIZER)]


def _has_mgs(share: NnfNodeStorage) -> bool:
    targets = share.spec.lustre_storage
    return targets is not None and targets.target_type in lustre.LABELS_WITH_MGS
