"""Users over HTTPS: by token or certificate, and with what their roles allow."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.kube.clusters import alongside
from warren.base.clock import SystemClock
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.journal import MemoryJournal
from warren.kube import http
from warren.kube.admission import User
from warren.kube.client import NotFound, Refused
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.server.access import tls
from warren.kube.server.access.authentication import Authenticator
from warren.kube.server.access.authorization import CLUSTER_ROLE, MASTERS, ROLE, ROLE_BINDING
from warren.kube.server.builtin import NAMESPACE
from warren.kube.server.embedded import EmbeddedApi
from warren.kube.server.rest.app import ApiServer

MAP = Kind("", "v1", "ConfigMap", "configmaps")
POD = Kind("", "v1", "Pod", "pods", status=True)
SECRET = Kind("", "v1", "Secret", "secrets")
RBAC = "rbac.authorization.k8s.io"


class Cluster:
    """A served API, and clients of it as any user."""

    def __init__(self, embedded: EmbeddedApi, url: str, pki: Path) -> None:
        self.store = embedded.store
        self._url = url
        self._pki = pki

    def admin(self) -> ClusterAccess:
        return ClusterAccess(
            server=self._url, authority=tls.authority(self._pki), token="admins-token"
        )

    def named(self, name: str, *groups: str) -> ClusterAccess:
        """Return a way in with a certificate."""
        certificate, key = tls.issue(self._pki, name, groups)
        return ClusterAccess(
            server=self._url, authority=tls.authority(self._pki), certificate=certificate, key=key
        )

    @asynccontextmanager
    async def session(self, name: str = "") -> AsyncIterator[aiohttp.ClientSession]:
        """Return what sends any request, as the admin or as a user with a certificate."""
        access = self.named(name) if name else self.admin()
        headers = {} if name else {"Authorization": f"Bearer {access.token}"}
        connector = aiohttp.TCPConnector(ssl=access.tls())
        async with aiohttp.ClientSession(
            self._url, headers=headers, connector=connector
        ) as session:
            yield session

    async def allow(
        self, user: str, verbs: list[str], *resources: str, names: tuple[str, ...] = ()
    ) -> None:
        """Let a user do something in the namespace `default`."""
        rule = {"apiGroups": [""], "resources": list(resources), "verbs": verbs}
        if names:
            rule["resourceNames"] = list(names)
        metadata = {"name": f"{user}-{'-'.join(verbs)}", "namespace": "default"}
        await self.store.create(ROLE, {"metadata": metadata, "rules": [rule]})
        await self.bind(user, "Role", metadata["name"])

    async def bind(self, user: str, kind: str, name: str) -> None:
        await self.store.create(ROLE_BINDING, binding(user, kind, name))


def binding(user: str, kind: str, name: str) -> Object:
    return {
        "metadata": {"name": f"{user}-{name}", "namespace": "default"},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }


@asynccontextmanager
async def cluster(pki: Path) -> AsyncIterator[Cluster]:
    embedded = EmbeddedApi(MemoryJournal(), SystemClock())
    listener = socket.create_server(("127.0.0.1", 0))
    users = Authenticator({"admins-token": User("admin", frozenset({MASTERS}))})
    server = ApiServer(embedded.store, SystemClock(), users, embedded.authorizer)
    context = tls.server_context(pki)
    async with alongside(embedded.run()), alongside(server.run(listener, context)):
        await embedded.create_defaults()
        yield Cluster(embedded, f"https://127.0.0.1:{listener.getsockname()[1]}", pki)


def told(story: Callable[[Cluster], Awaitable[None]]) -> Callable[[Path], None]:
    def test(pki: Path) -> None:
        async def life() -> None:
            async with asyncio.timeout(120), cluster(pki) as made:
                await story(made)

        asyncio.run(life())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


async def refused(action: Awaitable[object], words: str) -> None:
    with pytest.raises(Refused, match=words):
        await action


def a_map(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}}


@told
async def test_the_admins_token_opens_everything(made: Cluster) -> None:
    async with http.connect(made.admin()) as client:
        await client.create(MAP, a_map("a"))
        assert (await client.get(CLUSTER_ROLE, Key("", "cluster-admin")))["rules"]


@told
async def test_who_may_see_pods_may_not_read_what_they_print(made: Cluster) -> None:
    pod = {"containers": [{"name": "app"}], "nodeName": "r"}
    metadata = {"name": "p", "namespace": "default"}
    status = {"phase": "Succeeded"}
    await made.store.create(POD, {"metadata": metadata, "spec": pod, "status": status})
    await made.store.patch(
        Change(kind=POD, key=Key("default", "p"), patch={"status": status}, status=True)
    )
    await made.allow("jo", ["get", "list"], "pods")
    await made.allow("al", ["get"], "pods/log")
    for user, code, words in (
        ("jo", 403, 'cannot get resource "pods/log"'),
        ("al", 404, "what pods print is not kept by this cluster"),
    ):
        async with made.session(user) as session:
            path = "/api/v1/namespaces/default/pods/p/log"
            async with session.get(path) as response:
                assert response.status == code
                assert words in (await response.json())["message"]


@told
async def test_a_certificate_names_a_user_who_may_nothing_that_no_role_allows(
    made: Cluster,
) -> None:
    async with http.connect(made.named("jo")) as client:
        words = (
            'User "jo" cannot list resource "configmaps" in API group "" in the namespace "default"'
        )
        await refused(client.list(MAP, "default"), words)


@told
async def test_a_role_allows_its_verbs_in_its_namespace_as_soon_as_it_is_bound(
    made: Cluster,
) -> None:
    await made.store.create(NAMESPACE, {"metadata": {"name": "blue"}})
    async with http.connect(made.named("jo")) as client:
        await refused(client.create(MAP, a_map("a")), "cannot create")
        await made.allow("jo", ["create", "get"], "configmaps")

        await client.create(MAP, a_map("a"))
        await client.get(MAP, Key("default", "a"))
        await refused(client.get(MAP, Key("blue", "a")), 'in the namespace "blue"')
        await refused(client.get(SECRET, Key("default", "a")), '"secrets"')
        await refused(client.delete(Remove(kind=MAP, key=Key("default", "a"))), "cannot delete")
        await refused(client.list(MAP), "at the cluster scope")


@told
async def test_what_was_allowed_is_not_any_more_once_the_binding_is_gone(made: Cluster) -> None:
    await made.allow("jo", ["list"], "configmaps")
    async with http.connect(made.named("jo")) as client:
        await client.list(MAP, "default")
        (bound,) = made.store.list(ROLE_BINDING, "default").items
        key = Key("default", bound["metadata"]["name"])
        await made.store.delete(Remove(kind=ROLE_BINDING, key=key))

        await refused(client.list(MAP, "default"), "cannot list")


@told
async def test_groups_of_a_certificate_count(made: Cluster) -> None:
    async with http.connect(made.named("jo", MASTERS)) as client:
        assert (await client.list(SECRET)).items == []


@told
async def test_names_in_a_role_allow_these_objects_and_no_others(made: Cluster) -> None:
    await made.allow("jo", ["get", "patch"], "configmaps", names=("mine",))
    for name in ("mine", "theirs"):
        await made.store.create(MAP, a_map(name))
    async with http.connect(made.named("jo")) as client:
        await client.patch(Change(kind=MAP, key=Key("default", "mine"), patch={"data": {"a": "b"}}))
        change = Change(kind=MAP, key=Key("default", "theirs"), patch={"data": {"a": "b"}})
        await refused(client.patch(change), "cannot patch")


@told
async def test_no_user_hands_out_rights_that_they_do_not_have(made: Cluster) -> None:
    await made.allow("jo", ["create", "get", "list"], "configmaps")
    rule = {"apiGroups": [RBAC], "resources": ["roles", "rolebindings"], "verbs": ["create"]}
    metadata = {"name": "roles", "namespace": "default"}
    await made.store.create(ROLE, {"metadata": metadata, "rules": [rule]})
    await made.bind("jo", "Role", "roles")
    async with http.connect(made.named("jo")) as client:
        for verb, resource in (("get", "configmaps"), ("get", "secrets")):
            rule = {"apiGroups": [""], "resources": [resource], "verbs": [verb]}
            role = {"metadata": {"name": resource, "namespace": "default"}, "rules": [rule]}
            if resource == "configmaps":
                await client.create(ROLE, role)
            else:
                await refused(client.create(ROLE, role), "secrets")
        await refused(client.create(ROLE_BINDING, binding("jo", "ClusterRole", "admin")), "grant")


@told
async def test_a_user_who_may_acts_as_another(made: Cluster) -> None:
    await made.allow("jo", ["list"], "configmaps")
    path = "/api/v1/namespaces/default"
    as_jo = {"Impersonate-User": "jo"}
    as_master = {"Impersonate-User": "jo", "Impersonate-Group": MASTERS}
    async with made.session() as session:
        for resource, headers, status in (
            ("configmaps", as_jo, 200),
            ("secrets", as_jo, 403),
            ("secrets", as_master, 200),
        ):
            async with session.get(f"{path}/{resource}", headers=headers) as response:
                assert response.status == status
    async with (
        made.session("jo") as session,
        session.get(f"{path}/configmaps", headers=as_master) as response,
    ):
        assert response.status == 403
        assert 'cannot impersonate resource "users"' in (await response.json())["message"]


@told
async def test_who_acts_as_a_service_account_has_its_groups(made: Cluster) -> None:
    account = {"Impersonate-User": "system:serviceaccount:default:robot"}
    review = {"kind": "SelfSubjectReview", "apiVersion": "authentication.k8s.io/v1"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with made.session() as session:
        async with session.post(path, json=review, headers=account) as response:
            info = (await response.json())["status"]["userInfo"]
        assert info["username"] == "system:serviceaccount:default:robot"
        assert "system:serviceaccounts:default" in info["groups"]
        for headers in ({"Impersonate-Group": "x"}, {**account, "Impersonate-Uid": "1"}):
            async with session.post(path, json=review, headers=headers) as response:
                assert response.status == 422


@told
async def test_a_watch_needs_its_own_verb(made: Cluster) -> None:
    await made.allow("jo", ["list"], "configmaps")
    async with http.connect(made.named("jo")) as client:
        listing = await client.list(MAP, "default")
        await refused(anext(client.watch(MAP, listing.resource_version, "default")), "cannot watch")


@told
async def test_a_missing_object_is_not_found_by_who_may_see_it_alone(made: Cluster) -> None:
    await made.allow("jo", ["get"], "configmaps")
    async with http.connect(made.named("jo")) as client:
        with pytest.raises(NotFound):
            await client.get(MAP, Key("default", "none"))
    async with http.connect(made.named("other")) as client:
        await refused(client.get(MAP, Key("default", "none")), "cannot get")
