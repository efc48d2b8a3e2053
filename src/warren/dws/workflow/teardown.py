"""What was made for a directive is removed: in Teardown, and with its Workflow."""

from collections.abc import Mapping, Sequence

from warren.base.objects import Key, Kind, Remove, Write
from warren.base.words import plural
from warren.directives.parse import Directive
from warren.dws import kinds
from warren.dws.access.accessobjects import COMPUTES, SERVERS
from warren.dws.faults import raise_for
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.workflows import State
from warren.dws.persistent import instances
from warren.dws.persistent.instances import InstanceSnapshot
from warren.dws.workflow import containersteps, states
from warren.dws.workflow.workflowsnapshot import DONE, Outcome, WorkflowSnapshot


def tear_down(snapshot: WorkflowSnapshot, index: int, directive: Directive | None) -> Outcome:
    """Remove what was made for a directive: copies, then mounts, then storage.

    Raises Fault where a node says what is in the way.
    """
    if snapshot.movements:
        # Of every directive: a copy of another one may be at work in this storage.
        return _remove(
            kinds.NNF_DATA_MOVEMENT,
            {each.metadata.key: each.metadata.deleting for each in snapshot.movements},
        )
    if snapshot.container_jobs:
        # Nothing is unmounted under a container; a job goes after its pods.
        deleting_by_job = {
            each.metadata.key: each.metadata.deleting for each in snapshot.container_jobs.values()
        }
        return _remove(kinds.BATCH_JOB, deleting_by_job)
    names = [f"{snapshot.child_name(index)}-{side}" for side in (COMPUTES, SERVERS)]
    accesses = [each for name, each in snapshot.accesses.items() if name in names]
    if accesses:
        return _remove_and_check(kinds.NNF_ACCESS, accesses)
    storage = snapshot.storages.get(snapshot.child_name(index))
    return DONE if storage is None else _remove_and_check(kinds.NNF_STORAGE, [storage])


def release(snapshot: WorkflowSnapshot, index: int, directive: Directive | None) -> Outcome:
    """Unmount, then let go of persistent storage: it may be destroyed from then on."""
    outcome = tear_down(snapshot, index, directive)
    if outcome.waiting is not None:
        return outcome
    own_reference = instances.consumer(snapshot.workflow, index)
    # No event of it would come here: it is written before what depends on it, and not waited for.
    return Outcome(
        writes=[
            instances.change_to_remove_consumers(each.object, [own_reference])
            for each in snapshot.instances.values()
            if own_reference in each.object.spec.consumer_references
        ]
    )


def stop(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Remove containers, and then give their ports back."""
    outcome = tear_down(snapshot, index, directive)
    return outcome if outcome.waiting is not None else containersteps.free_ports(snapshot)


def leave_behind(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Let an instance live on its own, if it has become one; else it goes."""
    instance = snapshot.instances.get(directive.values["name"])
    breakdown = snapshot.breakdowns.get(snapshot.child_name(index))
    if instance is None or not instances.is_made_by(instance.object, breakdown):
        return DONE
    is_complete = all(
        driver.completed
        for driver in states.drivers_of(snapshot.workflow)
        if driver.dwd_index == index and driver.watch_state is not State.TEARDOWN
    )
    if is_complete and not instance.is_deleting:
        return Outcome(writes=[instances.disown(instance.object)])
    return _outcome_until_destroyed(
        instance, [Remove(kind=kinds.PERSISTENT_INSTANCE, key=instance.key)]
    )


def destroy(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Destroy an instance, and wait until it is gone."""
    instance = snapshot.instances.get(directive.values["name"])
    if instance is None:
        return DONE
    return _outcome_until_destroyed(instance, instances.destroy(instance.object, snapshot.workflow))


def _outcome_until_destroyed(instance: InstanceSnapshot, writes: Sequence[Write]) -> Outcome:
    if not instance.object.metadata.deleting:
        return Outcome(writes=writes, waiting="delete")
    raise_for(instance.object.status.error)
    users = len(instance.object.spec.consumer_references)
    return Outcome(waiting=f"delete, once {plural(users, 'user')} let go" if users else "delete")


def _remove_and_check(kind: Kind, objects: Sequence[NnfAccess | NnfStorage]) -> Outcome:
    """Have objects removed that nodes have to let go of. Raises Fault where one cannot."""
    outcome = _remove(kind, {each.metadata.key: each.metadata.deleting for each in objects})
    if not outcome.writes:
        for each in objects:
            raise_for(each.status.error)
    return outcome


def _remove(kind: Kind, deleting_by_key: Mapping[Key, bool]) -> Outcome:
    return Outcome(
        writes=[
            Remove(kind=kind, key=key) for key, deleting in deleting_by_key.items() if not deleting
        ],
        waiting="delete",
    )
