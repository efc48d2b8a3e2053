"""What the `Client` protocol promises, told to each adapter, and to a cluster if one is named."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.kube.clusters import (
    OurCluster,
    change,
    each_client,
    key,
    our_clients,
    our_clusters,
    remove,
    space,
    storage,
    stored,
    taken,
    told,
    version,
    workflow,
)
from warren.base.objects import Key, Kind, Object, key_of
from warren.dws import kinds
from warren.dws.kinds import COMPUTES, STORAGE, WORKFLOW
from warren.kube.client import AlreadyExists, Client, Conflict, Expired, NotFound, Refused
from warren.kube.server.builtin import NAMESPACE

OLDER = Kind(WORKFLOW.group, "v1alpha6", WORKFLOW.name, WORKFLOW.plural)


# Creating and getting


@each_client
async def test_a_created_object_is_read_back(client: Client) -> None:
    made = await client.create(WORKFLOW, workflow())

    assert made == await client.get(WORKFLOW, key("w"))
    assert made["apiVersion"] == WORKFLOW.api_version
    assert made["kind"] == "Workflow"
    assert made["spec"] == {"desiredState": "Proposal"}


@each_client
async def test_a_new_object_is_given_its_metadata(client: Client) -> None:
    past = "2026-01-01T00:00:00Z"
    mine = {"uid": "mine", "generation": 7, "creationTimestamp": past, "deletionTimestamp": past}
    one = await client.create(WORKFLOW, workflow("one", metadata=mine))
    two = await client.create(WORKFLOW, workflow("two"))

    assert one["metadata"]["uid"] not in ("mine", two["metadata"]["uid"])
    assert one["metadata"]["generation"] == 1
    assert "deletionTimestamp" not in one["metadata"]
    assert one["metadata"]["creationTimestamp"] > past
    assert 1 < version(one) < version(two)


@each_client
async def test_an_object_without_a_namespace_goes_to_default(client: Client) -> None:
    made = await client.create(WORKFLOW, {"metadata": {"name": "w"}, "spec": {}})

    assert key_of(made) == key("w")


@each_client
async def test_a_cluster_wide_object_has_no_namespace(client: Client) -> None:
    made = await client.create(NAMESPACE, {"metadata": {"name": "rabbit-0", "namespace": "x"}})

    assert key_of(made) == Key("", "rabbit-0")
    assert await client.get(NAMESPACE, Key("", "rabbit-0")) == made


@each_client
async def test_a_name_may_be_left_to_the_server(client: Client) -> None:
    obj = {"metadata": {"generateName": "w-", "namespace": "default"}, "spec": {}}
    one, two = await client.create(WORKFLOW, obj), await client.create(WORKFLOW, obj)

    assert one["metadata"]["name"].startswith("w-")
    assert one["metadata"]["name"] != two["metadata"]["name"]


@each_client
async def test_a_name_is_taken_once(client: Client) -> None:
    first = await client.create(WORKFLOW, workflow())

    with pytest.raises(AlreadyExists, match="w"):
        await client.create(WORKFLOW, workflow(spec={"desiredState": "Setup"}))
    assert await client.get(WORKFLOW, key("w")) == first


@each_client
async def test_what_is_not_there_is_not_found(client: Client) -> None:
    await client.create(WORKFLOW, workflow())

    for asked in (key("x"), key("w", "other")):
        with pytest.raises(NotFound):
            await client.get(WORKFLOW, asked)
    with pytest.raises(NotFound):
        await client.patch(change(WORKFLOW, workflow("x"), {"spec": {}}))
    with pytest.raises(NotFound):
        await client.delete(remove(WORKFLOW, workflow("x")))


@each_client
async def test_a_kind_that_is_not_served_is_not_found(client: Client) -> None:
    for kind in (
        Kind(WORKFLOW.group, "v1alpha5", "Workflow", "workflows"),
        Kind("nowhere.example", "v1", "Thing", "things"),
    ):
        with pytest.raises(NotFound):
            await client.get(kind, key("w"))
        with pytest.raises(NotFound):
            await client.list(kind)
        with pytest.raises(NotFound):
            await client.create(kind, workflow())
        with pytest.raises(NotFound):
            await client.patch(change(kind, workflow(), {}))
        with pytest.raises(NotFound):
            await client.delete(remove(kind, workflow()))
        with pytest.raises(NotFound):
            await taken(client.watch(kind, "1"), 1)


# Listing


@each_client
async def test_a_list_holds_a_namespace_or_all(client: Client) -> None:
    await space(client, "aside")
    for name, namespace in (("b", "default"), ("a", "default"), ("a", "aside")):
        await client.create(WORKFLOW, workflow(name, namespace))

    everywhere = await client.list(WORKFLOW)
    aside = await client.list(WORKFLOW, "aside")

    assert [*map(key_of, everywhere.items)] == [key("a", "aside"), key("a"), key("b")]
    assert [*map(key_of, aside.items)] == [key("a", "aside")]
    assert (await client.list(WORKFLOW, "nowhere")).items == []
    assert everywhere.items[1] == await client.get(WORKFLOW, key("a"))


@each_client
async def test_a_list_is_of_those_that_carry_all_the_labels(client: Client) -> None:
    for name, labels in (
        ("both", {"x.example/job": "1", "color": "red"}),
        ("one", {"x.example/job": "1", "color": "blue"}),
        ("none", {}),
    ):
        await client.create(WORKFLOW, workflow(name, metadata={"labels": labels}))

    async def names(labels: dict[str, str]) -> list[str]:
        found = (await client.list(WORKFLOW, labels=labels)).items
        return [obj["metadata"]["name"] for obj in found]

    assert await names({"x.example/job": "1", "color": "red"}) == ["both"]
    assert await names({"x.example/job": "1"}) == ["both", "one"]
    assert await names({"color": "green"}) == []
    assert await names({}) == ["both", "none", "one"]


# Patching


@each_client
async def test_a_patch_is_merged(client: Client) -> None:
    spec = {"keep": 1, "drop": 2, "list": [1, 2], "deep": {"keep": True, "drop": True}}
    made = await client.create(WORKFLOW, workflow(spec=spec))

    patch: dict[str, Any] = {"spec": {"drop": None, "list": [3], "deep": {"drop": None, "new": {}}}}
    patched = await client.patch(change(WORKFLOW, made, patch))

    assert patched["spec"] == {"keep": 1, "list": [3], "deep": {"keep": True, "new": {}}}
    assert version(patched) > version(made)
    assert await client.get(WORKFLOW, key("w")) == patched


@each_client
async def test_a_patch_of_what_has_changed_since_is_a_conflict(client: Client) -> None:
    first = await client.create(WORKFLOW, workflow())
    seen = first["metadata"]["resourceVersion"]
    second = await client.patch(
        change(WORKFLOW, first, {"spec": {"jobID": 1}}, resource_version=seen)
    )

    for stale in (seen, "999999"):
        with pytest.raises(Conflict):
            await client.patch(
                change(WORKFLOW, first, {"spec": {"jobID": 2}}, resource_version=stale)
            )
    assert await client.get(WORKFLOW, key("w")) == second


@each_client
async def test_a_status_patch_of_what_has_changed_since_is_a_conflict(client: Client) -> None:
    first = await client.create(STORAGE, storage())
    seen = first["metadata"]["resourceVersion"]
    await client.patch(change(STORAGE, first, {"spec": {"state": "Disabled"}}))

    stale = change(
        STORAGE, first, {"status": {"status": "Ready"}}, resource_version=seen, status=True
    )
    with pytest.raises(Conflict):
        await client.patch(stale)


@each_client
async def test_what_no_writer_may_change_stays_as_it_was(client: Client) -> None:
    made = await client.create(WORKFLOW, workflow(metadata={"labels": {"a": "1"}}))

    past = "2026-01-01T00:00:00Z"
    for passed_over in (
        {"creationTimestamp": None},
        {"creationTimestamp": past},
        {"generation": 99},
        {"uid": None},
    ):
        assert await client.patch(change(WORKFLOW, made, {"metadata": passed_over})) == made
    for refused in (
        {"name": "other"},
        {"namespace": "other"},
        {"uid": "other"},
        {"deletionTimestamp": past},
        {"deletionGracePeriodSeconds": 5},
    ):
        with pytest.raises(Refused, match=r"match|immutable"):
            await client.patch(change(WORKFLOW, made, {"metadata": refused}))
    assert await client.get(WORKFLOW, key("w")) == made


@pytest.mark.parametrize("name", ["W", "a b", "a/b", "..", "-a", "a_b", "x" * 254], ids=str)
@each_client
async def test_a_name_that_is_no_domain_name_is_refused(client: Client, name: str) -> None:
    with pytest.raises(Refused):
        await client.create(WORKFLOW, workflow(name))


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a b": "c"}},
        {"labels": {"a": "b c"}},
        {"labels": {"a": "x" * 64}},
        {"labels": {"a/b/c": "d"}},
        {"annotations": {"a b": "c"}},
    ],
    ids=str,
)
@each_client
async def test_a_label_or_annotation_of_no_proper_name_is_refused(
    client: Client, metadata: Any
) -> None:
    with pytest.raises(Refused, match="metadata"):
        await client.create(WORKFLOW, workflow(metadata=metadata))
    made = await client.create(WORKFLOW, workflow())
    with pytest.raises(Refused, match="metadata"):
        await client.patch(change(WORKFLOW, made, {"metadata": metadata}))
    assert await client.get(WORKFLOW, key("w")) == made


@each_client
async def test_labels_annotations_and_finalizers_are_the_writers(client: Client) -> None:
    made = await client.create(WORKFLOW, workflow(metadata={"labels": {"a": "1"}}))
    metadata = {"labels": {"a": None, "b": "2"}, "annotations": {"c": "3"}, "finalizers": ["x/y"]}
    patched = await client.patch(change(WORKFLOW, made, {"metadata": metadata}))

    assert patched["metadata"]["labels"] == {"b": "2"}
    assert patched["metadata"]["annotations"] == {"c": "3"}
    assert patched["metadata"]["finalizers"] == ["x/y"]


@each_client
async def test_a_patch_that_changes_nothing_writes_nothing(client: Client) -> None:
    made = await client.create(WORKFLOW, workflow(spec={"a": {"b": [1]}}))
    patch: Object
    for patch in ({}, {"spec": {"a": {"b": [1]}}}, {"spec": {"none": None}}, {"metadata": {}}):
        assert await client.patch(change(WORKFLOW, made, patch)) == made
    await client.create(WORKFLOW, workflow("next"))

    events = await taken(client.watch(WORKFLOW, made["metadata"]["resourceVersion"]), 1)
    assert [*told(events)] == [("ADDED", "next")]


@each_client
async def test_the_generation_counts_what_is_wanted_not_what_is(client: Client) -> None:
    made = await client.create(STORAGE, storage())

    async def generation(patch: dict[str, Any], *, status: bool = False) -> int:
        patched = await client.patch(change(STORAGE, made, patch, status=status))
        return int(patched["metadata"]["generation"])

    assert await generation({"spec": {"state": "Disabled"}}) == 2
    assert await generation({"status": {"status": "Ready"}}, status=True) == 2
    assert await generation({"metadata": {"labels": {"a": "1"}}}) == 2
    assert await generation({"spec": {"state": "Disabled"}}) == 2
    assert await generation({"spec": {"state": "Enabled"}}) == 3


# Status


@each_client
async def test_status_is_written_through_status_and_there_alone(client: Client) -> None:
    made = await client.create(STORAGE, storage(status={"status": "Mine"}))
    assert "status" not in made

    both = {"spec": {"state": "Disabled"}, "status": {"status": "Ready"}}
    by_main = await client.patch(change(STORAGE, made, both))
    assert by_main["spec"] == {"state": "Disabled"}
    assert "status" not in by_main

    other = {"spec": {"state": "X"}, "metadata": {"labels": {"a": "1"}}, "status": {"n": 1}}
    by_status = await client.patch(change(STORAGE, made, other, status=True))
    assert by_status["status"] == {"n": 1}
    assert by_status["spec"] == {"state": "Disabled"}
    assert "labels" not in by_status["metadata"]


@each_client
async def test_a_status_patch_that_says_nothing_of_status_changes_nothing(client: Client) -> None:
    made = await client.create(STORAGE, storage())
    ready = await client.patch(change(STORAGE, made, {"status": {"status": "Ready"}}, status=True))

    for patch in ({}, {"spec": {"state": "X"}}, {"metadata": {"labels": {"a": "1"}}}):
        assert await client.patch(change(STORAGE, made, patch, status=True)) == ready


@each_client
async def test_a_workflow_has_no_status_of_its_own_kind(client: Client) -> None:
    """Its status is part of the object (dws-spec section 0): for the generation too."""
    made = await client.create(WORKFLOW, workflow(status={"state": "Proposal"}))
    assert made["status"] == {"state": "Proposal"}

    both = {"spec": {"jobID": 1}, "status": {"ready": True}}
    for written_as_status in (False, True):
        patched = await client.patch(change(WORKFLOW, made, both, status=written_as_status))
        assert patched["status"] == {"state": "Proposal", "ready": True}
        assert patched["spec"]["jobID"] == 1
    assert patched["metadata"]["generation"] == 2
    patched = await client.patch(change(WORKFLOW, made, {"status": {"ready": False}}))
    assert patched["metadata"]["generation"] == 3


@each_client
async def test_the_definitions_agree_on_who_has_a_status(client: Client) -> None:
    without = {"Workflow", "Computes", "DWDirectiveRule"}
    without |= {"NnfStorageProfile", "NnfContainerData", "NnfContainerProfile"}
    without.add("NnfDataMovementProfile")
    for kind in kinds.ALL:
        made = await client.create(kind, workflow("x", status={"a": 1}))

        assert ("status" in made) == (kind.name in without), kind
        assert kind.status == (kind.name not in without), kind


# Deleting


@each_client
async def test_a_deleted_object_is_gone_and_its_name_free(client: Client) -> None:
    made = await client.create(WORKFLOW, workflow())
    await client.delete(remove(WORKFLOW, made))

    with pytest.raises(NotFound):
        await client.get(WORKFLOW, key("w"))
    assert (await client.list(WORKFLOW)).items == []
    again = await client.create(WORKFLOW, workflow())
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


@each_client
async def test_another_object_than_the_one_that_is_meant_is_not_deleted(client: Client) -> None:
    first = await client.create(WORKFLOW, workflow())
    meant = replace(remove(WORKFLOW, first), uid=first["metadata"]["uid"])
    await client.delete(meant)
    again = await client.create(WORKFLOW, workflow())

    with pytest.raises(Conflict):
        await client.delete(meant)
    assert await client.get(WORKFLOW, key("w")) == again


@each_client
async def test_a_deletion_is_told_with_a_version_of_its_own(client: Client) -> None:
    made = await client.create(WORKFLOW, workflow())
    await client.delete(remove(WORKFLOW, made))

    [event] = await taken(client.watch(WORKFLOW, made["metadata"]["resourceVersion"]), 1)
    assert event.type == "DELETED"
    assert event.object["spec"] == made["spec"]
    assert event.object["metadata"]["uid"] == made["metadata"]["uid"]
    assert version(event.object) > version(made)


@each_client
async def test_an_object_with_finalizers_stays_until_the_last_is_gone(client: Client) -> None:
    made = await client.create(WORKFLOW, workflow(metadata={"finalizers": ["a/1", "b/2"]}))
    await client.delete(remove(WORKFLOW, made))

    deleting = await client.get(WORKFLOW, key("w"))
    assert deleting["metadata"]["deletionTimestamp"].endswith("Z")
    with pytest.raises(AlreadyExists):
        await client.create(WORKFLOW, workflow())

    one_left = {"metadata": {"finalizers": ["b/2"]}}
    left = await client.patch(change(WORKFLOW, made, one_left))
    assert left["metadata"]["deletionTimestamp"] == deleting["metadata"]["deletionTimestamp"]
    await client.patch(change(WORKFLOW, made, {"metadata": {"finalizers": []}}))
    with pytest.raises(NotFound):
        await client.get(WORKFLOW, key("w"))

    events = await taken(client.watch(WORKFLOW, made["metadata"]["resourceVersion"]), 3)
    assert [event.type for event in events] == ["MODIFIED", "MODIFIED", "DELETED"]


@each_client
async def test_an_object_that_is_going_away_may_be_deleted_again(client: Client) -> None:
    made = await client.create(WORKFLOW, workflow(metadata={"finalizers": ["a/1"]}))
    await client.delete(remove(WORKFLOW, made))
    deleting = await client.get(WORKFLOW, key("w"))

    await client.delete(remove(WORKFLOW, made))
    assert await client.get(WORKFLOW, key("w")) == deleting


@each_client
async def test_an_object_that_is_going_away_may_still_change(client: Client) -> None:
    made = await client.create(STORAGE, storage(metadata={"finalizers": ["a/1"]}))
    await client.delete(remove(STORAGE, made))

    patch = {"status": {"status": "Draining"}}
    patched = await client.patch(change(STORAGE, made, patch, status=True))
    assert patched["status"] == {"status": "Draining"}
    assert "deletionTimestamp" in patched["metadata"]


# Watching


@each_client
async def test_a_watch_from_an_old_version_tells_what_has_happened_since(client: Client) -> None:
    first = await client.create(WORKFLOW, workflow("first"))
    second = await client.create(WORKFLOW, workflow("second"))
    changed = await client.patch(change(WORKFLOW, first, {"spec": {"jobID": 1}}))
    await client.delete(remove(WORKFLOW, second))

    events = await taken(client.watch(WORKFLOW, first["metadata"]["resourceVersion"]), 3)
    assert [*told(events)] == [("ADDED", "second"), ("MODIFIED", "first"), ("DELETED", "second")]
    assert events[1].object == changed
    versions = [version(event.object) for event in events]
    assert versions == sorted(set(versions))


@each_client
async def test_a_watch_tells_what_happens_while_it_is_open(client: Client) -> None:
    listing = await client.list(WORKFLOW)
    watching = asyncio.ensure_future(taken(client.watch(WORKFLOW, listing.resource_version), 2))
    await asyncio.sleep(0.05)
    made = await client.create(WORKFLOW, workflow())
    await client.delete(remove(WORKFLOW, made))

    assert [*told(await watching)] == [("ADDED", "w"), ("DELETED", "w")]


@each_client
async def test_a_watch_tells_of_its_own_kind_and_namespace_only(client: Client) -> None:
    await space(client, "aside")
    listing = await client.list(WORKFLOW)
    await client.create(COMPUTES, workflow("kind", "aside"))
    await client.create(WORKFLOW, workflow("namespace"))
    await client.create(WORKFLOW, workflow("this", "aside"))

    events = await taken(client.watch(WORKFLOW, listing.resource_version, "aside"), 1)
    assert [*told(events)] == [("ADDED", "this")]


@each_client
async def test_many_watches_are_told_the_same(client: Client) -> None:
    since = (await client.list(WORKFLOW)).resource_version
    watching = [asyncio.ensure_future(taken(client.watch(WORKFLOW, since), 20)) for _ in range(5)]
    await asyncio.gather(*(client.create(WORKFLOW, workflow(f"w-{n}")) for n in range(20)))

    first, *others = await asyncio.gather(*watching)
    assert all(each == first for each in others)
    assert sorted(name for _, name in told(first)) == sorted(f"w-{n}" for n in range(20))


@pytest.mark.usefixtures("short_history")
@our_clients
async def test_a_watch_that_begins_before_the_history_has_expired(client: Client) -> None:
    made = [await client.create(WORKFLOW, workflow(f"w-{number}")) for number in range(6)]
    since = [obj["metadata"]["resourceVersion"] for obj in made]

    with pytest.raises(Expired):
        await taken(client.watch(WORKFLOW, since[0]), 1)
    events = await taken(client.watch(WORKFLOW, since[1]), 4)
    assert [name for _, name in told(events)] == ["w-2", "w-3", "w-4", "w-5"]


@our_clusters
async def test_a_watch_goes_on_after_a_restart_where_it_was(cluster: OurCluster) -> None:
    async with cluster.life() as client:
        before = await client.create(WORKFLOW, workflow("before"))
        other = await client.create(WORKFLOW, workflow("other"))
        changed = await client.patch(change(WORKFLOW, other, {"metadata": {"labels": {"a": "1"}}}))
        await client.delete(remove(WORKFLOW, other))
    async with cluster.life() as client:
        await client.create(WORKFLOW, workflow("new"))
        events = await taken(client.watch(WORKFLOW, before["metadata"]["resourceVersion"]), 4)

        assert [*told(events)] == [
            ("ADDED", "other"),
            ("MODIFIED", "other"),
            ("DELETED", "other"),
            ("ADDED", "new"),
        ]
        assert events[1].object == changed
        assert version(events[1].object) < version(events[2].object) < version(events[3].object)


@our_clusters
async def test_a_watch_from_before_what_the_journal_still_tells_has_expired(
    cluster: OurCluster,
) -> None:
    async with cluster.life() as client:
        before = await client.create(WORKFLOW, workflow("before"))
        await client.create(WORKFLOW, workflow("last"))
    await _compacted(cluster)
    async with cluster.life() as client:
        with pytest.raises(Expired):
            await taken(client.watch(WORKFLOW, before["metadata"]["resourceVersion"]), 1)

        listing = await client.list(WORKFLOW)
        await client.create(WORKFLOW, workflow("new"))
        events = await taken(client.watch(WORKFLOW, listing.resource_version), 1)
        assert [*told(events)] == [("ADDED", "new")]


async def _compacted(cluster: OurCluster) -> None:
    """Have the journal rewritten, as it is when it has grown large."""
    async with stored(cluster.journal) as store:
        await cluster.journal.rewrite([*store._snapshot()])


@our_clusters
async def test_objects_outlive_a_restart_as_they_were(cluster: OurCluster) -> None:
    async with cluster.life() as client:
        await client.create(WORKFLOW, workflow("gone"))
        made = await client.create(STORAGE, storage())
        kept = await client.patch(change(STORAGE, made, {"status": {"a": 1}}, status=True))
        await client.delete(remove(WORKFLOW, workflow("gone")))
        listing = await client.list(WORKFLOW)
    async with cluster.life() as client:
        assert await client.get(STORAGE, key("rabbit-0")) == kept
        assert await client.list(WORKFLOW) == listing
        new = await client.create(WORKFLOW, workflow("new"))
        assert version(new) > int(listing.resource_version)


# Versions of a kind


@each_client
async def test_both_served_versions_show_the_same_object(client: Client) -> None:
    made = await client.create(WORKFLOW, workflow())
    old = await client.get(OLDER, key("w"))
    assert old == {**made, "apiVersion": OLDER.api_version}
    assert (await client.list(OLDER)).items == [old]

    patched = await client.patch(change(OLDER, made, {"spec": {"jobID": 1}}))
    assert patched["apiVersion"] == OLDER.api_version
    new = await client.get(WORKFLOW, key("w"))
    assert new == {**patched, "apiVersion": WORKFLOW.api_version}

    since = made["metadata"]["resourceVersion"]
    assert [event.object for event in await taken(client.watch(OLDER, since), 1)] == [patched]
    assert [event.object for event in await taken(client.watch(WORKFLOW, since), 1)] == [new]


@each_client
async def test_an_object_made_in_the_older_version_is_there_in_the_newer(client: Client) -> None:
    made = await client.create(OLDER, workflow())
    assert made["apiVersion"] == OLDER.api_version

    new = await client.get(WORKFLOW, key("w"))
    assert new == {**made, "apiVersion": WORKFLOW.api_version}
    with pytest.raises(AlreadyExists):
        await client.create(WORKFLOW, workflow())
    await client.delete(remove(WORKFLOW, made))
    with pytest.raises(NotFound):
        await client.get(OLDER, key("w"))


# What is refused


@our_clients
async def test_what_admission_denies_is_refused_with_its_words(client: Client) -> None:
    with pytest.raises(Refused, match="evil is not let in"):
        await client.create(WORKFLOW, workflow(spec={"evil": True}))
    with pytest.raises(NotFound):
        await client.get(WORKFLOW, key("w"))

    made = await client.create(WORKFLOW, workflow())
    with pytest.raises(Refused, match="evil is not let in"):
        await client.patch(change(WORKFLOW, made, {"spec": {"evil": True}}))
    assert await client.get(WORKFLOW, key("w")) == made


@our_clients
async def test_what_admission_adds_is_stored(client: Client) -> None:
    made = await client.create(kinds.DIRECTIVE_RULE, {"metadata": {"name": "nnf"}, "spec": []})

    assert made["signed"] is True
    assert (await client.get(kinds.DIRECTIVE_RULE, key("nnf")))["signed"] is True


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"name": ""},
        {"name": 7},
        {"name": "a/b"},
        {"name": ".."},
        {"name": "w", "labels": "red"},
        {"name": "w", "labels": {"color": 1}},
        {"name": "w", "annotations": ["a"]},
        {"name": "w", "finalizers": "x/y"},
        {"name": "w", "finalizers": [1]},
        {"generateName": 1},
    ],
    ids=str,
)
@each_client
async def test_metadata_that_is_none_is_refused(client: Client, metadata: Any) -> None:
    """Or one object would break every list, index and watch that meets it."""
    with pytest.raises(Refused, match=r"(?i)metadata|ObjectMeta"):
        await client.create(WORKFLOW, workflow(metadata={"name": None, **metadata}))

    made = await client.create(WORKFLOW, workflow())
    if set(metadata) - {"name", "generateName"}:
        with pytest.raises(Refused, match=r"(?i)metadata|ObjectMeta"):
            await client.patch(change(WORKFLOW, made, {"metadata": metadata}))
    assert (await client.list(WORKFLOW, labels={"a": "b"})).items == []
    assert (await client.list(WORKFLOW)).items == [made]
