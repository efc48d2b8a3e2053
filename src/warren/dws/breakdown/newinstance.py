"""The PersistentStorageInstance that a create_persistent makes."""

from warren.base.objects import Object
from warren.directives.parse import Directive
from warren.dws import kinds, labels
from warren.dws.breakdown.allocationneeds import has_standalone_mgt
from warren.dws.breakdown.breakdownsnapshot import BreakdownSnapshot
from warren.dws.breakdown.profile import choose
from warren.dws.faults import Fault
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.persistent import expiry, instances


def make(snapshot: BreakdownSnapshot, directive: Directive) -> Object:
    """Make the instance. Raises Fault where its directive cannot be carried out."""
    meta, spec = snapshot.breakdown.metadata, snapshot.breakdown.spec
    profile = read(choose(snapshot, directive), NnfStorageProfile)
    values = directive.values
    pool = profile.data.lustre_storage.mgt_options.standalone_mgt_pool_name
    is_standalone = values["type"] == "lustre" and has_standalone_mgt(profile)
    pool_labels = {labels.STANDALONE_MGT: pool} if is_standalone else {}
    return {
        "metadata": {
            "name": values["name"],
            "namespace": meta.namespace,
            "labels": labels.of_owner(kinds.BREAKDOWN, meta) | pool_labels,
            "ownerReferences": labels.owner_references(kinds.BREAKDOWN, meta),
            "finalizers": [labels.PERSISTENT_FINALIZER],
            **expiry.inherited_metadata(meta),
        },
        "spec": {
            "name": values["name"],
            "fsType": values["type"],
            "dwDirective": spec.directive,
            "userID": spec.user_id,
            "state": "Active",
        },
    }


def check_same(
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
    if not instances.asks_for_same(spec.dw_directive, directive):
        raise Fault(
            f"persistent storage {name!r} is there already, made by {spec.dw_directive!r}: take "
            "another name, or destroy it first",
            type="User",
            argument="name",
        )
