"""A journey with the official Python client: what scripts of users and operators are made of.

Told to our server and, where `WARREN_TEST_KUBECONFIG` names one, to a real cluster.
"""

import gc
import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import ConflictError
from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer
from kubernetes.leaderelection.electionconfig import Config
from kubernetes.leaderelection.leaderelection import LeaderElection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock
from kubernetes.watch import Watch

from tests.kube.clusters import NAMED, beside

RUN = f"w{uuid.uuid4().hex[:7]}"
GROUP = f"{RUN}.toys.example"
TOYS = (GROUP, "v1", RUN, "toys")
"""Group, version, namespace and plural, as the client wants them for each request."""


@dataclass(frozen=True)
class Site:
    """A way into one cluster, and a place there that is ours."""

    api: client.ApiClient
    patience: float
    ours: bool

    # Any: by the client's annotations, whatever a server fills in may be None, and custom objects
    # are `object`. What there is is what the tests assert.
    @property
    def core(self) -> Any:
        return client.CoreV1Api(self.api)

    @property
    def toys(self) -> Any:
        return client.CustomObjectsApi(self.api)

    def eventually(self, condition: Callable[[], Any]) -> None:
        """Wait until something is so that goes on behind the API."""
        ends = time.monotonic() + self.patience
        while not condition():
            assert time.monotonic() < ends
            time.sleep(0.01)


@pytest.fixture(scope="module", params=["ours", *(["named"] if NAMED else [])])
def site(
    request: pytest.FixtureRequest, pki: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    if request.param == "named":
        yield from visited(Path(NAMED), 120, ours=False)
    else:
        with beside(pki, tmp_path_factory.mktemp("ours"), quiet=0.05) as path:
            yield from visited(path, 60, ours=True)


def visited(path: Path, patience: float, *, ours: bool) -> Iterator[Site]:
    """Go to a cluster, and leave nothing there."""
    with config.new_client_from_config(str(path)) as api:
        site = Site(api, patience, ours)
        site.core.create_namespace({"metadata": {"name": RUN}})
        definitions: Any = client.ApiextensionsV1Api(api)
        definitions.create_custom_resource_definition(definition())
        try:
            site.eventually(lambda: established(definitions))
            site.eventually(lambda: found(lambda: site.toys.list_namespaced_custom_object(*TOYS)))
            yield site
        finally:
            name = f"toys.{GROUP}"
            site.core.delete_namespace(RUN)
            definitions.delete_custom_resource_definition(name)
            site.eventually(lambda: not found(lambda: site.core.read_namespace(RUN)))
            site.eventually(
                lambda: not found(lambda: definitions.read_custom_resource_definition(name))
            )
            # Its connections end here, also those of answers that failures still refer to.
            api.rest_client.pool_manager.clear()
            gc.collect()


def found(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except ApiException as error:
        if error.status != 404:
            raise
        return False
    return True


def established(definitions: Any) -> bool:
    conditions = definitions.read_custom_resource_definition(f"toys.{GROUP}").status.conditions
    return any(each.type == "Established" and each.status == "True" for each in conditions or ())


def definition() -> dict[str, Any]:
    spec = {
        "type": "object",
        "required": ["color"],
        "properties": {
            "color": {"type": "string", "enum": ["red", "blue"]},
            "count": {"type": "integer", "default": 1},
        },
    }
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    schema = {"type": "object", "properties": {"spec": spec, "status": status}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"toys.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": "Toy", "plural": "toys"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def toy(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Toy",
        "metadata": {"name": name, "labels": {"toy": name}},
        "spec": {"color": "red", **spec},
    }


def configmap(name: str, **metadata: Any) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, **metadata), data={"a": "1"})


def failure(ask: Callable[[], Any]) -> dict[str, Any]:
    """Return the body of what must fail: a whole Status."""
    with pytest.raises(ApiException) as raised:
        ask()
    status: dict[str, Any] = json.loads(raised.value.body or "")
    assert (status["kind"], status["apiVersion"]) == ("Status", "v1")
    assert (status["status"], status["code"]) == ("Failure", raised.value.status)
    return status


# Objects of defined kinds


def test_custom_objects_are_made_read_changed_and_deleted(site: Site) -> None:
    toys = site.toys
    made = toys.create_namespaced_custom_object(*TOYS, toy("life"))
    assert made["spec"] == {"color": "red", "count": 1}
    assert toys.get_namespaced_custom_object(*TOYS, "life") == made
    listed = toys.list_namespaced_custom_object(*TOYS, label_selector="toy=life")
    assert listed["items"] == [made]
    assert listed["kind"] == "ToyList"

    patched = toys.patch_namespaced_custom_object(*TOYS, "life", {"spec": {"count": 2}})
    assert (patched["spec"]["count"], patched["metadata"]["generation"]) == (2, 2)
    replaced = toys.replace_namespaced_custom_object(
        *TOYS, "life", {**patched, "spec": {"color": "blue"}}
    )
    assert replaced["spec"] == {"color": "blue", "count": 1}
    told = toys.patch_namespaced_custom_object_status(*TOYS, "life", {"status": {"phase": "New"}})
    assert told["status"] == {"phase": "New"}
    assert told["metadata"]["generation"] == replaced["metadata"]["generation"]

    operations = [{"op": "replace", "path": "/spec/color", "value": "red"}]
    patched = toys.patch_namespaced_custom_object(
        *TOYS, "life", operations, _content_type="application/json-patch+json"
    )
    assert patched["spec"] == {"color": "red", "count": 1}

    gone = toys.delete_namespaced_custom_object(*TOYS, "life")
    assert gone["status"] == "Success"
    assert gone["details"] == {
        "name": "life",
        "group": GROUP,
        "kind": "toys",
        "uid": made["metadata"]["uid"],
    }


def test_what_fails_says_why_in_a_status(site: Site) -> None:
    toys = site.toys
    missing = failure(lambda: toys.get_namespaced_custom_object(*TOYS, "nobody"))
    assert missing["reason"] == "NotFound"
    assert missing["message"] == f'toys.{GROUP} "nobody" not found'
    assert missing["details"] == {"name": "nobody", "group": GROUP, "kind": "toys"}

    made = toys.create_namespaced_custom_object(*TOYS, toy("twice"))
    again = failure(lambda: toys.create_namespaced_custom_object(*TOYS, toy("twice")))
    assert (again["code"], again["reason"]) == (409, "AlreadyExists")
    assert again["message"] == f'toys.{GROUP} "twice" already exists'
    assert again["details"] == {"name": "twice", "group": GROUP, "kind": "toys"}

    toys.patch_namespaced_custom_object(*TOYS, "twice", {"spec": {"count": 2}})
    stale = failure(lambda: toys.replace_namespaced_custom_object(*TOYS, "twice", made))
    assert (stale["code"], stale["reason"]) == (409, "Conflict")
    assert stale["message"] == (
        f'Operation cannot be fulfilled on toys.{GROUP} "twice": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert stale["details"] == {"name": "twice", "group": GROUP, "kind": "toys"}

    invalid = failure(
        lambda: toys.create_namespaced_custom_object(*TOYS, toy("odd", color="green", count="x"))
    )
    assert (invalid["code"], invalid["reason"]) == (422, "Invalid")
    assert invalid["message"].startswith(f'Toy.{GROUP} "odd" is invalid: [')
    assert {(each["field"], each["reason"]) for each in invalid["details"]["causes"]} == {
        ("spec.color", "FieldValueNotSupported"),
        ("spec.count", "FieldValueTypeInvalid"),
    }
    assert (invalid["details"]["name"], invalid["details"]["kind"]) == ("odd", "Toy")

    places: tuple[Callable[[], Any], ...] = (
        lambda: toys.get_namespaced_custom_object("nowhere.example", "v1", RUN, "toys", "x"),
        lambda: toys.get_namespaced_custom_object(GROUP, "v9", RUN, "toys", "x"),
    )
    for asked in places:
        with pytest.raises(ApiException) as raised:
            asked()
        assert raised.value.status == 404


def test_a_watch_goes_on_from_a_version_and_bookmarks_never_lead_back(
    site: Site,
) -> None:
    toys, before = site.toys, site.toys.list_namespaced_custom_object(*TOYS)
    toys.create_namespaced_custom_object(*TOYS, toy("seen"))
    toys.patch_namespaced_custom_object(*TOYS, "seen", {"spec": {"count": 5}})
    toys.delete_namespaced_custom_object(*TOYS, "seen")

    events = []
    watch = Watch()
    for event in watch.stream(
        toys.list_namespaced_custom_object,
        *TOYS,
        label_selector="toy=seen",
        resource_version=before["metadata"]["resourceVersion"],
        allow_watch_bookmarks=True,
        timeout_seconds=2,
    ):
        events.append(event)
        if event["type"] == "BOOKMARK":
            watch.stop()
    sorts = [each["type"] for each in events]
    # No API says when it sends bookmarks, or that it does; ours has by now.
    assert [each for each in sorts if each != "BOOKMARK"] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(each["object"]["metadata"]["resourceVersion"]) for each in events]
    assert versions == sorted(versions)


def test_operations_on_custom_objects_need_no_name_of_their_type(site: Site) -> None:
    """The client says of itself that they are a merge patch, which clusters of others refuse."""
    if not site.ours:
        pytest.skip("a cluster of others refuses them")
    site.toys.create_namespaced_custom_object(*TOYS, toy("listed"))
    operations = [
        {"op": "test", "path": "/spec/color", "value": "red"},
        {"op": "replace", "path": "/spec/color", "value": "blue"},
    ]
    patched = site.toys.patch_namespaced_custom_object(*TOYS, "listed", operations)
    assert patched["spec"]["color"] == "blue"
    with pytest.raises(ApiException) as refusal:
        site.toys.patch_namespaced_custom_object(*TOYS, "listed", operations)
    assert refusal.value.status == 422


# Kubernetes' own kinds


def test_configmaps_and_secrets_are_made_changed_and_deleted(site: Site) -> None:
    core = site.core
    made = core.create_namespaced_config_map(RUN, configmap("c", labels={"set": "x"}))
    made.data["b"] = "2"
    assert core.replace_namespaced_config_map("c", RUN, made).data == {"a": "1", "b": "2"}
    patched = core.patch_namespaced_config_map(
        "c", RUN, {"metadata": {"finalizers": ["x.example/y"]}, "data": {"a": None}}
    )
    assert patched.data == {"b": "2"}
    core.patch_namespaced_config_map("c", RUN, {"metadata": {"finalizers": ["x.example/z"]}})
    merged = core.read_namespaced_config_map("c", RUN).metadata.finalizers
    assert sorted(merged) == ["x.example/y", "x.example/z"], "a strategic patch merges this list"
    core.patch_namespaced_config_map("c", RUN, [{"op": "remove", "path": "/metadata/finalizers"}])
    core.create_namespaced_config_map(RUN, configmap("d", labels={"set": "x"}))
    core.delete_collection_namespaced_config_map(RUN, label_selector="set=x")
    assert core.list_namespaced_config_map(RUN, label_selector="set=x").items == []

    secret = client.V1Secret(
        metadata=client.V1ObjectMeta(name="s"), string_data={"password": "secret"}
    )
    stored = core.create_namespaced_secret(RUN, secret)
    assert (stored.type, stored.data) == ("Opaque", {"password": "c2VjcmV0"})
    gone = core.delete_namespaced_secret("s", RUN)
    assert gone["status"] == "Success"
    assert (gone["details"]["kind"], gone["details"]["name"]) == ("secrets", "s")


def test_a_list_comes_in_pages(site: Site) -> None:
    core = site.core
    for number in range(5):
        core.create_namespaced_config_map(RUN, configmap(f"p{number}", labels={"page": "x"}))
    names: list[str] = []
    more = None
    while more != "":
        page = core.list_namespaced_config_map(
            RUN, label_selector="page=x", limit=2, _continue=more
        )
        assert len(page.items) <= 2
        names += [each.metadata.name for each in page.items]
        more = page.metadata._continue or ""
    assert names == [f"p{number}" for number in range(5)]


def test_events_tell_of_an_object(site: Site) -> None:
    about = client.V1ObjectReference(kind="Toy", name="t", namespace=RUN)
    event = client.CoreV1Event(
        metadata=client.V1ObjectMeta(name="t.1"),
        involved_object=about,
        reason="Made",
        message="It is made.",
        type="Normal",
    )
    site.core.create_namespaced_event(RUN, event)
    for selector, count in (("involvedObject.name=t", 1), ("involvedObject.name=x", 0)):
        listed = site.core.list_namespaced_event(RUN, field_selector=selector)
        assert len(listed.items) == count


def test_a_namespace_knows_its_name(site: Site) -> None:
    label = "kubernetes.io/metadata.name"
    [own] = site.core.list_namespace(label_selector=f"{label}={RUN}").items
    assert (own.metadata.name, own.status.phase) == (RUN, "Active")
    nowhere = failure(lambda: site.core.create_namespaced_config_map("nowhere", configmap("c")))
    assert nowhere["message"] == 'namespaces "nowhere" not found'
    kept = failure(lambda: site.core.delete_namespace("kube-system"))
    assert (kept["code"], kept["reason"]) == (403, "Forbidden")


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_dependents_go_as_is_asked(site: Site, policy: str) -> None:
    core, name = site.core, policy.lower()
    owner = core.create_namespaced_config_map(RUN, configmap(f"{name}-owner"))
    reference = client.V1OwnerReference(
        api_version="v1",
        kind="ConfigMap",
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        block_owner_deletion=True,
    )
    child = configmap(f"{name}-child", owner_references=[reference])
    core.create_namespaced_config_map(RUN, child)

    core.delete_namespaced_config_map(owner.metadata.name, RUN, propagation_policy=policy)

    def is_gone(name: str) -> bool:
        return not found(lambda: core.read_namespaced_config_map(name, RUN))

    site.eventually(lambda: is_gone(f"{name}-owner"))
    if policy == "Orphan":
        left = core.read_namespaced_config_map(f"{name}-child", RUN)
        assert left.metadata.owner_references is None
    else:
        site.eventually(lambda: is_gone(f"{name}-child"))


# What is built on watches and leases


def test_an_informer_keeps_up_with_what_happens(site: Site) -> None:
    core = site.core
    core.create_namespaced_config_map(RUN, configmap("first", labels={"informed": "x"}))
    told: list[tuple[str, str]] = []
    informer = SharedInformer(
        core.list_namespaced_config_map, namespace=RUN, label_selector="informed=x"
    )
    for sort in (ADDED, MODIFIED, DELETED):
        informer.add_event_handler(
            sort, lambda obj, sort=sort: told.append((sort, obj.metadata.name))
        )
    informer.start()
    try:
        site.eventually(lambda: (ADDED, "first") in told)
        core.create_namespaced_config_map(RUN, configmap("second", labels={"informed": "x"}))
        core.patch_namespaced_config_map("first", RUN, {"data": {"a": "2"}})
        core.delete_namespaced_config_map("second", RUN)
        site.eventually(lambda: (DELETED, "second") in told)
        assert told[1:] == [(ADDED, "second"), (MODIFIED, "first"), (DELETED, "second")]
        [cached] = informer.cache.list()
        assert (cached.metadata.name, cached.data) == ("first", {"a": "2"})
    finally:
        informer.stop()


def test_one_of_two_candidates_leads_until_its_lease_is_another_ones(site: Site) -> None:
    leases: Any = client.CoordinationV1Api(site.api)

    def candidate(name: str) -> LeaderElection:
        lock = LeaseLock("leader", RUN, name)
        lock.api_instance = leases
        return LeaderElection(Config(lock, 15, 10, 2, lambda: None, lambda: None))

    one, other = candidate("one"), candidate("other")
    assert one.try_acquire_or_renew()
    assert not other.try_acquire_or_renew()
    assert one.try_acquire_or_renew()
    lease = leases.read_namespaced_lease("leader", RUN)
    assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("one", 15)

    lease.spec.holder_identity = "other"
    leases.replace_namespaced_lease("leader", RUN, lease)
    assert not one.try_acquire_or_renew()
    assert other.try_acquire_or_renew()


# Rights


def test_rights_are_given_and_asked_for(site: Site) -> None:
    rbac: Any = client.RbacAuthorizationV1Api(site.api)
    rule = client.V1PolicyRule(api_groups=[GROUP], resources=["toys"], verbs=["get", "list"])
    rbac.create_namespaced_role(
        RUN, client.V1Role(metadata=client.V1ObjectMeta(name="seer"), rules=[rule])
    )
    role = client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name="seer")
    user = client.RbacV1Subject(kind="User", name="ann")
    binding = client.V1RoleBinding(
        metadata=client.V1ObjectMeta(name="seer"), role_ref=role, subjects=[user]
    )
    bound = rbac.create_namespaced_role_binding(RUN, binding)
    assert bound.subjects[0].api_group == "rbac.authorization.k8s.io"

    access: Any = client.AuthorizationV1Api(site.api)

    def allowed(verb: str, namespace: str) -> bool:
        asked = client.V1ResourceAttributes(
            verb=verb, group=GROUP, resource="toys", namespace=namespace
        )
        spec = client.V1SubjectAccessReviewSpec(user="ann", resource_attributes=asked)
        review = client.V1SubjectAccessReview(spec=spec)
        return bool(access.create_subject_access_review(review).status.allowed)

    site.eventually(lambda: allowed("get", RUN))
    assert not allowed("delete", RUN)
    assert not allowed("get", "default")

    own = client.V1SelfSubjectAccessReviewSpec(
        resource_attributes=client.V1ResourceAttributes(verb="delete", resource="secrets")
    )
    answer = access.create_self_subject_access_review(client.V1SelfSubjectAccessReview(spec=own))
    assert answer.status.allowed
    authentication: Any = client.AuthenticationV1Api(site.api)
    oneself = authentication.create_self_subject_review(client.V1SelfSubjectReview())
    assert "system:authenticated" in oneself.status.user_info.groups


def test_who_acts_as_another_may_do_no_more_than_that_one(site: Site) -> None:
    other = client.ApiClient(site.api.configuration, "Impersonate-User", "nobody")
    with other:
        refused = failure(lambda: client.CoreV1Api(other).list_namespaced_secret(RUN))
        other.rest_client.pool_manager.clear()
    assert (refused["code"], refused["reason"]) == (403, "Forbidden")
    assert refused["message"] == (
        'secrets is forbidden: User "nobody" cannot list resource "secrets" in API group "" '
        f'in the namespace "{RUN}"'
    )


# The dynamic client


def test_the_dynamic_client_finds_kinds_and_applies_on_the_server(
    site: Site, tmp_path: Path
) -> None:
    dynamic = DynamicClient(site.api, cache_file=str(tmp_path / "discovery.json"))
    toys = dynamic.resources.get(api_version=f"{GROUP}/v1", kind="Toy")
    assert toys.namespaced
    body = toy("applied", color="red")
    made = toys.server_side_apply(body=body, name="applied", namespace=RUN, field_manager="me")
    assert made.spec.color == "red"
    same = toys.server_side_apply(body=body, name="applied", namespace=RUN, field_manager="me")
    assert same.metadata.resourceVersion == made.metadata.resourceVersion

    other = {"body": toy("applied", color="blue"), "name": "applied", "namespace": RUN}
    with pytest.raises(ConflictError) as conflict:
        toys.server_side_apply(**other, field_manager="you")
    [cause] = json.loads(conflict.value.body or "")["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".spec.color")
    assert cause["message"].startswith('conflict with "me"')
    after = toys.server_side_apply(**other, field_manager="you", force_conflicts=True)
    assert after.spec.color == "blue"

    patched = toys.patch(
        body={"spec": {"count": 3}},
        name="applied",
        namespace=RUN,
        content_type="application/merge-patch+json",
    )
    assert patched.spec.count == 3
    assert [each.metadata.name for each in toys.get(namespace=RUN).items if each.spec.count == 3]
    toys.delete(name="applied", namespace=RUN)
    assert not found(lambda: toys.get(name="applied", namespace=RUN))


def test_what_there_is_can_be_found_out(site: Site) -> None:
    assert client.VersionApi(site.api).get_code().major == "1"
    assert client.CoreApi(site.api).get_api_versions().versions == ["v1"]
    groups = {each.name for each in client.ApisApi(site.api).get_api_versions().groups}
    assert {GROUP, "apiextensions.k8s.io", "coordination.k8s.io"} <= groups
    resources = site.toys.get_api_resources(GROUP, "v1").resources
    assert {each.name for each in resources} == {"toys", "toys/status"}
