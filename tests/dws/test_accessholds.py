"""An NnfAccess holds its storage against others that want the same part."""

from typing import Any

from msgspec.structs import replace
from msgspec.structs import replace as replaced

from tests.dws.accesses import by, copying, lasting, mounted, seen, status, storage_held, waits
from tests.dws.builders import (
    changes,
    computes,
    configuration,
    made,
    nnf_access,
    nnf_storage,
    share,
)
from warren.dws import kinds, labels
from warren.dws.access.nnfaccess import decide
from warren.dws.access.storagelock import holding, other_accesses
from warren.dws.objects.accesses import ClientMount, NnfAccess
from warren.dws.objects.decoding import read
from warren.dws.storage.locks import Holding


def test_storage_is_held_before_it_is_mounted_and_let_go_of_when_no_node_has_it() -> None:
    first = decide(seen(nnf_access()))
    assert first[0].kind == kinds.NNF_STORAGE
    assert len(made(first, kinds.CLIENT_MOUNT)) == 3
    going = nnf_access(desired="unmounted", state="mounted", ready=True)
    late = mounted("n0", desired="unmounted")
    assert changes(decide(seen(going, *late, storage=storage_held())), kinds.NNF_STORAGE) == []
    done = mounted("n0", state="unmounted", desired="unmounted")
    writes = decide(seen(going, *done, storage=storage_held()))
    # Told to be unmounted after the lock is off: who dies in between looks at it once more.
    assert [each.kind for each in writes] == [kinds.NNF_STORAGE, kinds.NNF_ACCESS]
    (patch,) = changes(writes, kinds.NNF_STORAGE)
    assert patch["metadata"]["annotations"] is None


def test_storage_that_another_access_has_locked_is_mounted_nowhere() -> None:
    other = nnf_storage(
        ("r0", 2), ("r1", 1), metadata={"annotations": {labels.LOCK: "a-0-computes/default"}}
    )
    writes = decide(seen(nnf_access(), storage=other))
    assert made(writes, kinds.CLIENT_MOUNT) == []
    assert changes(writes, kinds.NNF_STORAGE) == []
    assert "one at a time" in status(writes)["error"]["userMessage"]
    # And what it never held, it does not let go of.
    assert changes(decide(seen(nnf_access(deleting=True), storage=other)), kinds.NNF_STORAGE) == []


def test_nodes_with_parts_of_their_own_mount_persistent_storage_beside_others() -> None:
    """Of one node, several jobs may."""
    for held in ([], [by("n0", "n1", "n2")], [by()], [by("n7", on_rabbits=True)]):
        writes = decide(seen(nnf_access(), storage=lasting(), other_holdings=held))
        assert len(made(writes, kinds.CLIENT_MOUNT)) == 3
        (patch,) = changes(writes, kinds.NNF_STORAGE)
        assert "annotations" not in patch["metadata"]


def test_what_a_copy_has_mounted_on_a_rabbit_its_node_does_not_mount_meanwhile() -> None:
    for held in (by("n1", on_rabbits=True), by(on_rabbits=True)):
        assert waits(decide(seen(nnf_access(), storage=lasting(), other_holdings=[by("n1"), held])))


def test_a_copy_waits_for_its_own_nodes_and_for_no_others() -> None:
    own = computes("n1")
    for held in (by("n0", "n1"), by("n1", on_rabbits=True), by()):
        assert waits(
            decide(seen(copying(), storage=lasting(), computes=own, other_holdings=[held]))
        )
    apart = [by("n0", "n2"), by("n0", on_rabbits=True)]
    writes = decide(seen(copying(), storage=lasting(), computes=own, other_holdings=apart))
    assert len(made(writes, kinds.CLIENT_MOUNT)) == 1
    (patch,) = changes(writes, kinds.NNF_STORAGE)
    assert "annotations" not in patch["metadata"]


def test_rabbits_that_mount_all_of_persistent_storage_lock_it() -> None:
    """Such as those of an NnfAccess that was made by hand."""
    assert waits(decide(seen(nnf_access("servers"), storage=lasting(), other_holdings=[by("n7")])))
    (patch,) = changes(decide(seen(nnf_access("servers"), storage=lasting())), kinds.NNF_STORAGE)
    assert patch["metadata"]["annotations"] == {labels.LOCK: "wf-0-servers/default"}


def test_an_access_whose_name_no_finalizer_can_have_locks_persistent_storage() -> None:
    """One that is not known to hold it would be mounted beside a copy."""
    found = nnf_access()
    found = replace(found, metadata=replace(found.metadata, name="x" * 64))
    (patch,) = changes(decide(seen(found, storage=lasting())), kinds.NNF_STORAGE)
    assert patch["metadata"]["annotations"] == {labels.LOCK: f"{'x' * 64}/default"}


def three(*finalizers: str) -> Any:
    """Return persistent storage with three parts on a rabbit, as accesses hold it."""
    found = lasting(finalizers=[labels.STORAGE_FINALIZER, *finalizers])
    return replace(found, spec=nnf_storage(("r0", 3)).spec)


def after_one_has_left(access: NnfAccess, node: str, *mounts: Any, **more: Any) -> Any:
    """Decide for a node after n0 has left the system: what was n1's is n2's since."""
    left = configuration({"r0": ("n1", "n2")})
    own = computes(node)
    shares = [share("r0", 3)]
    more = {"storage": three(), **more}
    return decide(
        seen(access, *mounts, node_storages=shares, computes=own, configuration=left, **more)
    )


def mounts_of_a() -> list[ClientMount]:
    """Return what a job has mounted on n1 while n0 was there."""
    before = configuration({"r0": ("n0", "n1", "n2")})
    first = seen(
        nnf_access(),
        storage=three(),
        node_storages=[share("r0", 3)],
        computes=computes("n1"),
        configuration=before,
    )
    return [read(obj, ClientMount) for obj in made(decide(first), kinds.CLIENT_MOUNT)]


def held_by_a(*mounts: ClientMount) -> Holding:
    return replaced(by("n1"), mounted=holding(nnf_access(), computes("n1"), mounts).mounted)


def test_a_part_that_a_node_has_mounted_is_not_mounted_by_the_one_it_is_for_since() -> None:
    """Accesses of several jobs, of which the first began before a node has left the system."""
    writes = after_one_has_left(nnf_access(), "n2", other_holdings=[held_by_a(*mounts_of_a())])
    assert made(writes, kinds.CLIENT_MOUNT) == changes(writes, kinds.NNF_STORAGE) == []
    fault = status(writes)["error"]
    assert (fault["severity"], fault["type"]) == ("Minor", "User")
    assert "for n2 since" in fault["userMessage"]
    assert "n1 is waited for" in fault["userMessage"]
    assert "default/a-0-computes" in fault["debugMessage"]

    writes = after_one_has_left(nnf_access(), "n2", other_holdings=[held_by_a()])
    assert len(made(writes, kinds.CLIENT_MOUNT)) == 1


def test_a_rabbit_does_not_mount_for_a_copy_what_another_node_has_mounted() -> None:
    writes = after_one_has_left(copying(), "n2", other_holdings=[held_by_a(*mounts_of_a())])
    assert made(writes, kinds.CLIENT_MOUNT) == []
    assert "n1 is waited for" in status(writes)["error"]["userMessage"]


def test_what_a_node_has_mounted_it_mounts_for_another_job_too() -> None:
    before = configuration({"r0": ("n0", "n1", "n2")})
    held = [held_by_a(*mounts_of_a())]
    writes = decide(
        seen(
            nnf_access(),
            storage=three(),
            node_storages=[share("r0", 3)],
            computes=computes("n1"),
            configuration=before,
            other_holdings=held,
        )
    )
    assert len(made(writes, kinds.CLIENT_MOUNT)) == 1


def test_an_access_that_holds_the_storage_waits_for_what_it_has_not_mounted_yet() -> None:
    """Its process may have ended between the two, and the system have changed meanwhile."""
    own = three("nnf.cray.hpe.com/wf-0-computes")
    held = [held_by_a(*mounts_of_a())]
    writes = after_one_has_left(nnf_access(), "n2", storage=own, other_holdings=held)
    assert made(writes, kinds.CLIENT_MOUNT) == []
    (there,) = mounts_of_a()
    # What is mounted, or was and is to be again, is by what it says, and by no other number.
    mine = replace(there, spec=replace(there.spec, node="n2"))
    mine = replace(mine, metadata=replace(mine.metadata, namespace="n2"))
    assert not changes(
        after_one_has_left(nnf_access(), "n2", mine, storage=own, other_holdings=held),
        kinds.CLIENT_MOUNT,
    )
    again = replace(mine, spec=replace(mine.spec, desired_state="unmounted"))
    asked = after_one_has_left(nnf_access(), "n2", again, storage=own)
    assert changes(asked, kinds.CLIENT_MOUNT) == [{"spec": {"desiredState": "mounted"}}]
    writes = after_one_has_left(nnf_access(), "n2", again, storage=own, other_holdings=held)
    assert changes(writes, kinds.CLIENT_MOUNT) == []


def test_who_else_holds_it_is_asked_of_persistent_storage() -> None:
    other = f"nnf.cray.hpe.com/{by().access.name}"
    held = {"finalizers": [labels.STORAGE_FINALIZER, other]}
    assert other_accesses(nnf_access(), lasting(**held)) == [by().access]
    assert other_accesses(nnf_access(), lasting(annotations={labels.LOCK: "a-0-computes/default"}))
    assert other_accesses(nnf_access(desired="unmounted"), lasting(**held)) == [by().access]
    assert other_accesses(nnf_access(), nnf_storage(("r0", 1), metadata=held)) == []
    assert other_accesses(nnf_access(), None) == []


def test_an_access_that_holds_it_is_not_kept_out_by_one_that_came_later() -> None:
    has = {"finalizers": [labels.STORAGE_FINALIZER, "nnf.cray.hpe.com/wf-0-computes"]}
    later = by("n0", on_rabbits=True)
    mounts = made(
        decide(seen(nnf_access(), storage=lasting(**has), other_holdings=[later])),
        kinds.CLIENT_MOUNT,
    )
    assert len(mounts) == 3


def test_an_access_holds_the_parts_of_its_nodes_or_all_there_is() -> None:
    own = computes("n0", "n1")
    assert holding(nnf_access(), own).nodes == frozenset({"n0", "n1"})
    assert holding(copying(), own).nodes == frozenset({"n0", "n1"})
    assert holding(nnf_access("servers"), own).nodes is None
    assert holding(nnf_access(), computes()).nodes is None
    assert holding(nnf_access(), None).nodes is None
    shared = nnf_access()
    shared = replace(shared, spec=replace(shared.spec, target="shared"))
    assert holding(shared, own).nodes is None
    told = [holding(each, own).on_rabbits for each in (nnf_access(), copying(), shared)]
    assert told == [False, True, False]
