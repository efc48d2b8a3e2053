"""Whatever a client writes is done, or refused with a sentence: never a failure of the server."""

import http.client
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.harness.extent import extent
from tests.kube.clusters import beside, stored
from warren.kube import kubeconfig
from warren.kube.kubeconfig import ClusterAccess

EXAMPLES = extent("WARREN_EXAMPLES", usual=15, everything=40)
"""How many bodies are written to each kind in each way."""

CORE = "/api/v1/namespaces/default"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
HOOKS = "/apis/admissionregistration.k8s.io/v1"

PLACES: dict[str, dict[str, Any]] = {
    f"{CORE}/configmaps": {"data": {"a": "b"}},
    f"{CORE}/pods": {"spec": {"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]}},
    f"{CORE}/services": {"spec": {"ports": [{"port": 1}]}},
    f"{RBAC}/clusterroles": {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["x"]}]},
    "/apis/coordination.k8s.io/v1/namespaces/default/leases": {"spec": {"holderIdentity": "me"}},
    "/api/v1/nodes": {"status": {"conditions": [{"type": "Ready", "status": "True"}]}},
    "/api/v1/namespaces": {},
}
"""Kinds of Kubernetes' own, and what an object of each has."""

METADATA = {
    "name": "it",
    "finalizers": ["example.org/a", "example.org/b"],
    "labels": {"a": "b"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}],
}

NAMES = st.sampled_from(
    ["metadata", "spec", "status", "data", "rules", "apiVersion", "kind", "name", "namespace",
     "uid", "labels", "annotations", "finalizers", "ownerReferences", "managedFields",
     "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "containers",
     "ports", "conditions", "type", "port", "containerPort", "fieldsV1", "manager", "operation",
     "time", "verbs", "subresource", "a"]
)  # fmt: skip
DIRECTIVES = st.sampled_from(["$patch", "$retainKeys"]) | st.builds(
    "{}/{}".format, st.sampled_from(["$setElementOrder", "$deleteFromPrimitiveList"]), NAMES
)
SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.sampled_from([1, 184, 2.5])
    | st.sampled_from(["a", "b", "u", "example.org/a", "delete", "replace", "merge", "", "v1", "X",
                       "Apply", "Update", "2026-01-01T00:00:00Z", ".", "f:a"])
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES | DIRECTIVES, inner, max_size=4)
    ),
    max_leaves=8,
)
AIMED = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.dictionaries(NAMES | DIRECTIVES, VALUES, max_size=3),
        "spec": st.dictionaries(NAMES | DIRECTIVES, VALUES, max_size=3),
        "$retainKeys": VALUES,
        "data": VALUES,
        "rules": VALUES,
    },
)
"""Bodies that look like objects from afar."""
POINTERS = st.lists(NAMES | st.sampled_from(["-", "0", "1", "~", "~1", ""]), max_size=3).map(
    lambda steps: "".join(f"/{step}" for step in steps)
)
OPERATIONS = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]) | VALUES,
        "path": POINTERS | VALUES,
        "from": POINTERS | VALUES,
        "value": VALUES,
    },
)
BODIES = {
    "application/strategic-merge-patch+json": AIMED | VALUES,
    "application/merge-patch+json": AIMED | VALUES,
    "application/json-patch+json": st.lists(OPERATIONS | VALUES, max_size=3) | VALUES,
    "application/apply-patch+yaml": AIMED | VALUES,
    "application/json": AIMED | VALUES,
}


class Writer:
    """Writes to a server and reads from it, over a connection that stays."""

    def __init__(self, access: ClusterAccess) -> None:
        self.place = access.server.removeprefix("https://")
        context: ssl.SSLContext = access.tls()
        self.connection = http.client.HTTPSConnection(self.place, context=context)
        self.headers = {"Authorization": f"Bearer {access.token}"}

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None and method == "GET" else orjson.dumps(body)
        self.connection.request(method, path, data, {**self.headers, **headers})
        answer = self.connection.getresponse()
        return answer.status, orjson.loads(answer.read())

    def there(self, path: str, body: dict[str, Any]) -> Any:
        """Return the object of a place, made if need be as it is to be found."""
        code, obj = self.ask("GET", f"{path}/it")
        if code == 404:
            code, obj = self.ask("POST", path, {"metadata": METADATA, **body})
        assert code in (200, 201), obj
        return obj


@pytest.fixture(scope="module")
def writer(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    """Return a writer to a server of its own."""
    # Without what collects garbage: only the writer changes anything.
    with beside(pki, tmp_path_factory.mktemp("anything"), having=stored) as config:
        writer = Writer(kubeconfig.load(config))
        with closing(writer.connection):
            yield writer


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("content", BODIES)
def test_any_patch_is_done_or_refused_and_changes_nothing(
    writer: Writer, content: str, path: str
) -> None:
    query = "?fieldManager=me&force=true" if "apply" in content else ""

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
    @given(BODIES[content])
    @example({"metadata": True})
    def written(body: Any) -> None:
        before = writer.there(path, PLACES[path])
        method = "PUT" if content == "application/json" else "PATCH"
        code, answer = writer.ask(method, f"{path}/it{query}", body, **{"Content-Type": content})
        if code not in (200, 201):
            assert code in (400, 409, 413, 415, 422), answer
            assert answer["message"]
            assert writer.ask("GET", f"{path}/it") == (200, before)

    written()


@pytest.mark.parametrize("path", PLACES)
def test_any_object_is_created_or_refused(writer: Writer, path: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
    @given(AIMED | VALUES)
    def written(body: Any) -> None:
        code, answer = writer.ask("POST", path, body)
        assert code in (201, 400, 409, 422), answer
        assert code == 201 or answer["message"]

    written()


@pytest.mark.parametrize("owners", [5, [5], [{}, {}], [{"manager": "me"}], {"a": 1}], ids=str)
def test_owners_of_fields_that_make_no_sense_are_forgotten(writer: Writer, owners: Any) -> None:
    path = f"{CORE}/secrets"
    said = {"name": "it", "managedFields": owners}
    assert writer.ask("POST", path, {"metadata": said})[0] == 201
    for method, content in (("PUT", "json"), ("PATCH", "merge-patch+json")):
        body = {"metadata": {"labels": {"a": method}}}
        headers = {"Content-Type": f"application/{content}"}
        code, answer = writer.ask(method, f"{path}/it", body, **headers)
        assert code == 200, answer
    assert writer.ask("DELETE", f"{path}/it", {})[0] == 200
    assert writer.ask("POST", path, {"metadata": said})[0] == 201
    secret = {"apiVersion": "v1", "kind": "Secret", "data": {"a": "eA=="}}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    code, answer = writer.ask("PATCH", f"{path}/it?fieldManager=me", secret, **headers)
    assert code == 200, answer
    managers = [each["manager"] for each in answer["metadata"]["managedFields"]]
    assert managers == ["me", "before-first-apply"]
    assert writer.ask("DELETE", f"{path}/it", {})[0] == 200
