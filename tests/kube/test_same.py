"""What goes on behind the API, told to each client: collecting, and namespaces that go."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.kube.clusters import Cluster, change, each_cluster, key, remove, settled, space
from warren.base.objects import Key, Kind, Object, Remove
from warren.dws.kinds import WORKFLOW
from warren.kube.client import Client, Conflict, NotFound, Refused
from warren.kube.server.builtin import CRD, NAMESPACE

MAP = Kind("", "v1", "ConfigMap", "configmaps")
TOY = Kind("toys.example", "v1", "Toy", "toys")
TOYS = Key("", "toys.toys.example")


def named(name: str, *owners: Object, **metadata: Any) -> Object:
    """Return an object, which is owned."""
    references = [
        {
            "apiVersion": each["apiVersion"],
            "kind": each["kind"],
            "name": each["metadata"]["name"],
            "uid": each["metadata"]["uid"],
        }
        for each in owners
    ]
    about = {"name": name, "namespace": "default", **metadata}
    return {"metadata": {**about, "ownerReferences": references} if references else about}


async def gone(client: Client, kind: Kind, asked: Key) -> bool:
    try:
        await client.get(kind, asked)
    except NotFound:
        return True
    return False


# Owners


@each_cluster
async def test_dependents_go_after_their_owner_and_theirs_after_them(cluster: Cluster) -> None:
    async with cluster.life() as client:
        grandmother = await client.create(MAP, named("grandmother"))
        mother = await client.create(MAP, named("mother", grandmother))
        await client.create(MAP, named("daughter", mother))
        await client.create(MAP, named("stranger"))

        await client.delete(remove(MAP, grandmother))

        await settled(cluster, lambda: gone(client, MAP, key("daughter")))
        assert await gone(client, MAP, key("mother"))
        assert not await gone(client, MAP, key("stranger"))


@each_cluster
async def test_who_has_another_owner_lives_on_and_forgets_the_one_that_is_gone(
    cluster: Cluster,
) -> None:
    async with cluster.life() as client:
        one = await client.create(MAP, named("one"))
        other = await client.create(MAP, named("other"))
        await client.create(MAP, named("child", one, other))

        await client.delete(remove(MAP, one))

        async def owners() -> list[str]:
            child = await client.get(MAP, key("child"))
            return [each["uid"] for each in child["metadata"]["ownerReferences"]]

        async def forgotten() -> bool:
            return await owners() == [other["metadata"]["uid"]]

        await settled(cluster, forgotten)


@each_cluster
async def test_who_names_an_owner_that_never_was_is_collected(cluster: Cluster) -> None:
    async with cluster.life() as client:
        ghost: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "ghost", "uid": "no-such-uid"},
        }
        await client.create(MAP, named("orphan", ghost))

        await settled(cluster, lambda: gone(client, MAP, key("orphan")))


@each_cluster
async def test_a_new_object_of_the_owners_name_is_not_the_owner(cluster: Cluster) -> None:
    async with cluster.life() as client:
        first = await client.create(MAP, named("owner"))
        await client.create(MAP, named("child", first, finalizers=["x.example/y"]))
        await client.delete(remove(MAP, first))
        await client.create(MAP, named("owner"))

        async def judged() -> bool:
            child = await client.get(MAP, key("child"))
            return "deletionTimestamp" in child["metadata"]

        await settled(cluster, judged)
        assert not await gone(client, MAP, key("owner"))


@each_cluster
async def test_nothing_is_owned_across_namespaces(cluster: Cluster) -> None:
    async with cluster.life() as client:
        await space(client, "far")
        owner = await client.create(MAP, named("owner", namespace="far"))
        await client.create(MAP, named("child", owner))

        await settled(cluster, lambda: gone(client, MAP, key("child")))
        assert not await gone(client, MAP, key("owner", "far"))


# Namespaces


@each_cluster
async def test_a_namespace_goes_with_all_that_is_in_it(cluster: Cluster) -> None:
    async with cluster.life() as client:
        await space(client, "blue")
        await client.create(MAP, named("a", namespace="blue"))
        await client.create(WORKFLOW, {**named("w", namespace="blue"), "spec": {}})

        await client.delete(Remove(kind=NAMESPACE, key=Key("", "blue")))

        await settled(cluster, lambda: gone(client, NAMESPACE, Key("", "blue")))
        assert await gone(client, MAP, key("a", "blue"))
        assert await gone(client, WORKFLOW, key("w", "blue"))


@each_cluster
async def test_a_namespace_waits_for_the_last_of_its_objects_and_takes_nothing_new(
    cluster: Cluster,
) -> None:
    async with cluster.life() as client:
        await space(client, "blue")
        held = await client.create(MAP, named("a", namespace="blue", finalizers=["x.example/y"]))
        await client.delete(Remove(kind=NAMESPACE, key=Key("", "blue")))

        async def emptied() -> bool:
            metadata = (await client.get(MAP, key("a", "blue")))["metadata"]
            return "deletionTimestamp" in metadata

        await settled(cluster, emptied)
        waiting = await client.get(NAMESPACE, Key("", "blue"))
        assert waiting["status"]["phase"] == "Terminating"
        assert waiting["metadata"]["deletionTimestamp"]
        with pytest.raises(Refused, match="because it is being terminated"):
            await client.create(MAP, named("b", namespace="blue"))

        await client.patch(change(MAP, held, {"metadata": {"finalizers": None}}))
        await settled(cluster, lambda: gone(client, NAMESPACE, Key("", "blue")))


@each_cluster
async def test_there_is_nothing_in_a_namespace_that_is_not_there(cluster: Cluster) -> None:
    async with cluster.life() as client:
        with pytest.raises(NotFound, match=r'namespaces ".*nowhere" not found'):
            await client.create(MAP, named("a", namespace="nowhere"))


@each_cluster
async def test_the_namespaces_that_every_cluster_has_stay(cluster: Cluster) -> None:
    async with cluster.life() as client:
        with pytest.raises(Refused, match='"kube-system" is forbidden: this namespace may not'):
            await client.delete(Remove(kind=NAMESPACE, key=Key("", "kube-system")))


@each_cluster
async def test_a_namespace_carries_its_name_as_a_label(cluster: Cluster) -> None:
    async with cluster.life() as client:
        await space(client, "blue")
        made = await client.get(NAMESPACE, Key("", "blue"))
        label = "kubernetes.io/metadata.name"
        assert made["metadata"]["labels"][label].endswith("blue")

        await client.patch(change(NAMESPACE, made, {"metadata": {"labels": {label: None}}}))
        assert (await client.get(NAMESPACE, Key("", "blue")))["metadata"] == made["metadata"]


# Definitions


def toys(**version: Any) -> Object:
    """Define the kind Toy."""
    schema: Mapping[str, Any] = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["color"],
                "properties": {
                    "color": {"type": "string", "enum": ["red", "blue"]},
                    "count": {"type": "integer", "default": 1, "minimum": 0, "maximum": 9},
                    "names": {
                        "type": "array",
                        "items": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4},
                        "maxItems": 2,
                        "x-kubernetes-list-type": "set",
                    },
                },
            }
        },
    }
    served = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": TOYS.name},
        "spec": {
            "group": TOY.group,
            "names": {"kind": "Toy", "plural": "toys"},
            "scope": "Namespaced",
            "versions": [{**served, **version}],
        },
    }


def toy(name: str = "t", **spec: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def defined(cluster: Cluster, client: Client) -> None:
    """Define the kind Toy, and wait until it is served."""
    await client.create(CRD, toys())

    async def served() -> bool:
        try:
            await client.create(TOY, toy("first", color="red"))
        except NotFound:
            return False
        return True

    await settled(cluster, served)


@each_cluster
async def test_a_definition_goes_with_its_objects_and_can_come_back_empty(
    cluster: Cluster,
) -> None:
    async with cluster.life() as client:
        await defined(cluster, client)
        await client.delete(Remove(kind=CRD, key=TOYS))
        await settled(cluster, lambda: gone(client, CRD, TOYS))
        with pytest.raises(NotFound):
            await client.list(TOY)

        await defined(cluster, client)
        assert [each["metadata"]["name"] for each in (await client.list(TOY)).items] == ["first"]
        await client.delete(Remove(kind=CRD, key=TOYS))
        await settled(cluster, lambda: gone(client, CRD, TOYS))


@each_cluster
async def test_what_does_not_fit_its_definition_is_refused_with_all_that_is_wrong(
    cluster: Cluster,
) -> None:
    async with cluster.life() as client:
        await defined(cluster, client)
        for spec, *causes in (
            ({}, "spec.color: Required value"),
            ({"color": "green"}, 'spec.color: Unsupported value: "green": supported values: "red"'),
            ({"color": 1}, 'spec.color: Invalid value: "integer": spec.color in body must be of'),
            (
                {"color": "red", "count": 10},
                "spec.count: Invalid value: 10: spec.count in body should be less than or equal",
            ),
            (
                {"color": "red", "count": -1},
                "spec.count: Invalid value: -1: spec.count in body should be greater than or equal",
            ),
            (
                {"names": ["a", "b", "c"]},
                "spec.names: Too many: 3: must have at most 2 items",
                "spec.color: Required value",
            ),
            (
                {"color": "red", "names": ["abcde", "B"]},
                "spec.names[0]: Too long: may not be more than 4 bytes",
                'spec.names[1]: Invalid value: "B": spec.names[1] in body should match',
            ),
            ({"color": "red", "names": ["a", "a"]}, 'spec.names[1]: Duplicate value: "a"'),
        ):
            with pytest.raises(Refused) as refused:
                await client.create(TOY, toy(**spec))
            for cause in causes:
                assert cause in str(refused.value)

        made = await client.create(TOY, toy(color="red", size=3))
        assert made["spec"] == {"color": "red", "count": 1}
        with pytest.raises(Refused, match="Unsupported value"):
            await client.patch(change(TOY, made, {"spec": {"color": "green"}}))
        with pytest.raises(Conflict, match="the object has been modified; please apply"):
            await client.patch(change(TOY, made, {"spec": {"color": "blue"}}, resource_version="1"))


@each_cluster
async def test_a_definition_that_makes_no_sense_is_refused(cluster: Cluster) -> None:
    async with cluster.life() as client:
        other = toys()
        with pytest.raises(Refused, match=r"must be spec.names.plural\+"):
            await client.create(CRD, {**other, "metadata": {"name": "toy.toys.example"}})
        for schema in (
            {"type": "string"},
            {"type": "object", "properties": {"spec": {"type": "nonsense"}}},
            {"type": "object", "properties": {"spec": {}}},
            {"type": "object", "properties": {"spec": {"type": "array"}}},
        ):
            with pytest.raises(Refused, match="openAPIV3Schema"):
                await client.create(CRD, toys(schema={"openAPIV3Schema": schema}))
