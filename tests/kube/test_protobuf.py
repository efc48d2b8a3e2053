"""What Go's clients send in protobuf is read as the JSON that it stands for."""

import base64
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.kube.server.rest import protobuf
from warren.kube.server.rest.messages import MESSAGE_BY_KIND, MESSAGES
from warren.kube.server.rest.protobuf import Malformed, UnknownKind, decode

# An encoder


def varint(value: int) -> bytes:
    value %= 2**64  # a negative number is the complement of two, and has ten bytes
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def field(number: int, value: int | str | bytes) -> bytes:
    """Write one field: a number as a varint, all else with its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def enveloped(api_version: str, kind: str, raw: bytes) -> bytes:
    meta = field(1, api_version) + field(2, kind)
    return b"k8s\0" + field(1, meta) + field(2, raw) + field(3, "") + field(4, "")


def read(raw: bytes, kind: str = "ConfigMap", api_version: str = "v1") -> dict[str, Any]:
    """Decode an object, and return it without its kind."""
    obj = decode(enveloped(api_version, kind, raw))
    assert (obj.pop("apiVersion"), obj.pop("kind")) == (api_version, kind)
    return obj


def metadata(raw: bytes) -> Any:
    return read(field(1, raw))["metadata"]


# What kubectl 1.32 has sent

CAPTURED: dict[str, tuple[str, dict[str, Any]]] = {
    "create namespace blue": (
        "azhzAAoPCgJ2MRIJTmFtZXNwYWNlEhwKFAoEYmx1ZRIAGgAiACoAMgA4AEIAEgAaAgoAGgAiAA==",
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "blue"},
            "spec": {},
            "status": {},
        },
    ),
    "create configmap c --from-literal=a=1 --from-literal=b=two": (
        "azhzAAoPCgJ2MRIJQ29uZmlnTWFwEiUKEQoBYxIAGgAiACoAMgA4AEIAEgYKAWESATESCAoBYhIDdHdvGgAiAA==",
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "c"},
            "data": {"a": "1", "b": "two"},
        },
    ),
    "create secret generic s --from-literal=p=w": (
        "azhzAAoMCgJ2MRIGU2VjcmV0Eh0KEQoBcxIAGgAiACoAMgA4AEIAEgYKAXASAXcaABoAIgA=",
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"p": "dw=="}},
    ),
    "create serviceaccount sa": (
        "azhzAAoUCgJ2MRIOU2VydmljZUFjY291bnQSFAoSCgJzYRIAGgAiACoAMgA4AEIAGgAiAA==",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa"}},
    ),
    "create role r --verb=get,list --resource=pods,configmaps --resource-name=x": (
        "azhzAAokChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgRSb2xlEjcKEQoBchIAGgAiACoAMgA4AEIAEiIK"
        "A2dldAoEbGlzdBIAGgRwb2RzGgpjb25maWdtYXBzIgF4GgAiAA==",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "r"},
            "rules": [
                {
                    "verbs": ["get", "list"],
                    "apiGroups": [""],
                    "resources": ["pods", "configmaps"],
                    "resourceNames": ["x"],
                }
            ],
        },
    ),
    "create rolebinding rb --role=r --user=ann --group=g --serviceaccount=default:sa": (
        "azhzAAorChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgtSb2xlQmluZGluZxKuAQoSCgJyYhIAGgAiACoA"
        "MgA4AEIAEigKBFVzZXISGXJiYWMuYXV0aG9yaXphdGlvbi5rOHMuaW8aA2FubiIAEicKBUdyb3VwEhlyYmFjLmF1"
        "dGhvcml6YXRpb24uazhzLmlvGgFnIgASHwoOU2VydmljZUFjY291bnQSABoCc2EiB2RlZmF1bHQaJAoZcmJhYy5h"
        "dXRob3JpemF0aW9uLms4cy5pbxIEUm9sZRoBchoAIgA=",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "rb"},
            "subjects": [
                {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "ann"},
                {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "g"},
                {"kind": "ServiceAccount", "name": "sa", "namespace": "default"},
            ],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        },
    ),
    "create clusterrole agg --aggregation-rule=a=b,c=d": (
        "azhzAAorChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgtDbHVzdGVyUm9sZRIpChMKA2FnZxIAGgAiACoA"
        "MgA4AEIAGhIKEAoGCgFhEgFiCgYKAWMSAWQaACIA",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "agg"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b", "c": "d"}}]},
        },
    ),
    "create job k --from=cronjob/x": (
        "azhzAAoPCghiYXRjaC92MRIDSm9iEu8BClsKAWsSABoAIgAqADIAOABCAGIrCiFjcm9uam9iLmt1YmVybmV0ZXMu"
        "aW8vaW5zdGFudGlhdGUSBm1hbnVhbGobCgdDcm9uSm9iGgF4IgF1KghiYXRjaC92MTABEoUBMoIBChAKABIAGgAi"
        "ACoAMgA4AEIAEm4SSwoBYxIBaSoAMgoKABAAGFAiACoAOgYKAUESAWJCHQoKCgNjcHUSAwoBMQoPCgZtZW1vcnkS"
        "BQoDMUdpagByAIABAIgBAJABAKIBABoFTmV2ZXIyAEIASgBSAFgAYABoAIIBAIoBAJoBAMIBABoIIAAoADAAOgAa"
        "ACIA",
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "k",
                "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
                "ownerReferences": [
                    {
                        "kind": "CronJob",
                        "name": "x",
                        "uid": "u",
                        "apiVersion": "batch/v1",
                        "controller": True,
                    }
                ],
            },
            "spec": {
                "template": {
                    "metadata": {},
                    "spec": {
                        "containers": [
                            {
                                "name": "c",
                                "image": "i",
                                "ports": [{"containerPort": 80}],
                                "env": [{"name": "A", "value": "b"}],
                                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                            }
                        ],
                        "restartPolicy": "Never",
                    },
                }
            },
            "status": {},
        },
    ),
    "create service clusterip svc --tcp=80:8080": (
        "azhzAAoNCgJ2MRIHU2VydmljZRJpCh8KA3N2YxIAGgAiACoAMgA4AEIAWgoKA2FwcBIDc3ZjEkIKGwoHODAtODA4"
        "MBIDVENQGFAiBwgAEJA/GgAoABIKCgNhcHASA3N2YxoAIglDbHVzdGVySVA6AEIAUgBaAGAAaAAaAgoAGgAiAA==",
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "svc", "labels": {"app": "svc"}},
            "spec": {
                "ports": [{"name": "80-8080", "protocol": "TCP", "port": 80, "targetPort": 8080}],
                "selector": {"app": "svc"},
                "type": "ClusterIP",
            },
            "status": {"loadBalancer": {}},
        },
    ),
    "auth can-i get pods/log -n kube-system": (
        "azhzAAoyChdhdXRob3JpemF0aW9uLms4cy5pby92MRIXU2VsZlN1YmplY3RBY2Nlc3NSZXZpZXcSQwoQCgASABoA"
        "IgAqADIAOABCABIlCiMKC2t1YmUtc3lzdGVtEgNnZXQaACIAKgRwb2RzMgA6A2xvZxoICAASABoAIAAaACIA",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "metadata": {},
            "spec": {
                "resourceAttributes": {
                    "namespace": "kube-system",
                    "verb": "get",
                    "resource": "pods",
                    "name": "log",
                }
            },
            "status": {"allowed": False},
        },
    ),
    "auth can-i --list": (
        "azhzAAoxChdhdXRob3JpemF0aW9uLms4cy5pby92MRIWU2VsZlN1YmplY3RSdWxlc1JldmlldxIjChAKABIAGgAi"
        "ACoAMgA4AEIAEgkKB2RlZmF1bHQaBBgAIgAaACIA",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "metadata": {},
            "spec": {"namespace": "default"},
            "status": {"incomplete": False},
        },
    ),
    "auth whoami": (
        "azhzAAotChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESEVNlbGZTdWJqZWN0UmV2aWV3EhoKEAoAEgAaACIAKgAy"
        "ADgAQgASBgoECgASABoAIgA=",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "SelfSubjectReview",
            "metadata": {},
            "status": {"userInfo": {}},
        },
    ),
    "create token sa --duration=10m --audience=a": (
        "azhzAAooChhhdXRoZW50aWNhdGlvbi5rOHMuaW8vdjESDFRva2VuUmVxdWVzdBIgChAKABIAGgAiACoAMgA4AEIA"
        "EgYKAWEg2AQaBAoAEgAaACIA",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {},
            "spec": {"audiences": ["a"], "expirationSeconds": 600},
            "status": {"token": ""},
        },
    ),
    "drain n --disable-eviction --grace-period=0": (
        "azhzAAoTCgJ2MRINRGVsZXRlT3B0aW9ucxICCAAaACIA",
        {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0},
    ),
    "auth reconcile -f role.yaml": (
        "azhzAAorChxyYmFjLmF1dGhvcml6YXRpb24uazhzLmlvL3YxEgtDbHVzdGVyUm9sZRIkChMKAXgSABoAIgAqAXUy"
        "ATE4AEIAEg0KA2dldBIAGgRwb2RzGgAiAA==",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "x", "uid": "u", "resourceVersion": "1"},
            "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}],
        },
    ),
}


@pytest.mark.parametrize("command", CAPTURED)
def test_what_kubectl_sends_is_read(command: str) -> None:
    body, expected = CAPTURED[command]
    assert decode(base64.b64decode(body)) == expected


# Single fields


def test_what_is_empty_is_left_out_where_json_leaves_it_out() -> None:
    assert metadata(field(1, "") + field(7, 0) + field(8, b"")) == {}


def test_a_zero_that_was_set_is_kept() -> None:
    assert metadata(field(10, 0)) == {"deletionGracePeriodSeconds": 0}
    assert read(field(4, 0)) == {"immutable": False}
    assert read(field(4, 1)) == {"immutable": True}


def test_an_empty_message_is_an_empty_object() -> None:
    assert read(field(1, b"")) == {"metadata": {}}


def test_elements_of_lists_and_values_of_maps_are_kept_when_they_are_empty() -> None:
    assert metadata(field(14, "") + field(14, "f")) == {"finalizers": ["", "f"]}
    assert read(field(2, field(1, "a")) + field(2, field(2, "b"))) == {"data": {"a": "", "": "b"}}


def test_bytes_are_base64() -> None:
    assert read(field(3, field(1, "a") + field(2, b"\xff\x00"))) == {"binaryData": {"a": "/wA="}}


def test_a_number_has_a_sign() -> None:
    for number in (-1, -(2**63), 2**63 - 1):
        assert metadata(field(7, number)) == {"generation": number}


def test_of_a_number_64_bits_count() -> None:
    assert metadata(field(7, 0)[:-1] + b"\xff" * 9 + b"\x7f") == {"generation": -1}


def test_a_time_is_written_to_the_second_and_a_microtime_to_the_microsecond() -> None:
    moment = field(1, 1_700_000_000) + field(2, 123_456_789)
    assert metadata(field(9, moment)) == {"deletionTimestamp": "2023-11-14T22:13:20Z"}
    lease = read(field(2, field(4, moment)), "Lease", "coordination.k8s.io/v1")
    assert lease == {"spec": {"renewTime": "2023-11-14T22:13:20.123456Z"}}


def test_the_epoch_is_a_time() -> None:
    assert metadata(field(8, field(1, 0) + field(2, 0))) == {
        "creationTimestamp": "1970-01-01T00:00:00Z"
    }


@pytest.mark.parametrize(
    ("port", "expected"),
    [
        (field(1, 0) + field(2, 8080) + field(3, ""), 8080),
        (field(1, 0) + field(2, 0) + field(3, ""), 0),
        (field(1, 1) + field(2, 0) + field(3, "http"), "http"),
        (field(1, 1) + field(2, 7) + field(3, ""), ""),
    ],
)
def test_a_port_is_a_number_or_a_name(port: bytes, expected: int | str) -> None:
    service = read(field(2, field(1, field(3, 80) + field(4, port))), "Service")
    assert service == {"spec": {"ports": [{"port": 80, "targetPort": expected}]}}


def test_a_quantity_is_a_string() -> None:
    some, none = field(1, field(1, "cpu") + field(2, field(1, "2"))), field(1, field(1, "memory"))
    assert read(field(3, some + none), "Node") == {
        "status": {"capacity": {"cpu": "2", "memory": "0"}}
    }


def test_the_fields_that_a_manager_owns_are_json() -> None:
    entry = field(1, "kubectl") + field(7, field(1, '{"f:data":{}}'))
    assert metadata(field(17, entry)) == {
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:data": {}}}]
    }
    assert metadata(field(17, field(7, b""))) == {"managedFields": [{"fieldsV1": {}}]}


def test_what_else_is_known_of_a_user_is_lists() -> None:
    extra = field(5, field(1, "a") + field(2, field(1, "b") + field(1, "c")))
    review = read(
        field(2, extra + field(5, field(1, "d"))), "SubjectAccessReview", "authorization.k8s.io/v1"
    )
    assert review == {"spec": {"extra": {"a": ["b", "c"], "d": []}}}


def test_a_volume_has_its_source_among_its_own_fields() -> None:
    volume = field(1, "v") + field(2, field(2, b""))
    assert read(field(2, field(1, volume)), "Pod") == {
        "spec": {"volumes": [{"name": "v", "emptyDir": {}}]}
    }


def test_two_kinds_of_event_are_told_apart() -> None:
    assert read(field(4, "x"), "Event") == {"message": "x"}
    assert read(field(4, "x"), "Event", "events.k8s.io/v1") == {"reportingController": "x"}


def test_how_to_delete_is_said_in_the_words_of_any_group() -> None:
    for group in ("v1", "batch/v1", "toys.example/v1"):
        assert read(field(1, 0), "DeleteOptions", group) == {"gracePeriodSeconds": 0}


def test_what_is_written_twice_is_merged_or_the_last_counts() -> None:
    one, other = field(1, "a") + field(2, "g") + field(3, "n"), field(1, "b") + field(2, "")
    both = read(field(1, one) + field(1, other))
    assert both == {"metadata": {"name": "b", "namespace": "n"}}


def test_unknown_fields_are_skipped() -> None:
    fixed = varint(90 << 3 | 1) + bytes(8) + varint(91 << 3 | 5) + bytes(4)
    assert read(fixed + field(92, 1) + field(93, "x") + field(4, 1)) == {"immutable": True}


# What is refused

DATA = field(2, field(1, "a") + field(2, "b"))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "does not begin"),
        (b'{"kind": "ConfigMap"}', "does not begin"),
        (enveloped("v1", "ConfigMap", b"") + field(3, "gzip"), "not written in protobuf"),
        (enveloped("v1", "ConfigMap", b"{}") + field(4, "application/json"), "not written in"),
        (enveloped("v1", "ConfigMap", DATA)[:-5], "ends within field 2"),
        (enveloped("v1", "ConfigMap", DATA[:-1]), "ends within field 2"),
        (enveloped("v1", "ConfigMap", field(90, 1)[:-1]), "ends within a number"),
        (enveloped("v1", "ConfigMap", varint(90 << 3 | 5) + bytes(3)), "ends within field 90"),
        (enveloped("v1", "ConfigMap", b"\xff" * 11), "a number does not end"),
        (enveloped("v1", "ConfigMap", field(0, 1)), "the number 0"),
        (enveloped("v1", "ConfigMap", varint(90 << 3 | 3)), "wire type that is not used: 3"),
        (enveloped("v1", "ConfigMap", field(1, 1)), "a number where something else"),
        (enveloped("v1", "ConfigMap", field(4, "x")), "something else where a number"),
        (enveloped("v1", "ConfigMap", varint(4 << 3 | 5) + bytes(4)), "something else where a"),
        (enveloped("v1", "ConfigMap", field(1, field(1, b"\xff"))), "not UTF-8"),
        (enveloped("v1", "ConfigMap", field(1, field(8, field(1, 2**40)))), "the years 1 to 9999"),
        (enveloped("v1", "ConfigMap", field(1, field(8, field(1, -(2**63))))), "the years 1 to"),
        (enveloped("v1", "ConfigMap", field(1, field(17, field(7, field(1, "{"))))), "not JSON"),
    ],
)
def test_what_no_client_writes_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=why) as caught:
        decode(body)
    assert not isinstance(caught.value, UnknownKind)


@pytest.mark.parametrize(
    "body", [enveloped("v1", "Toy", b""), enveloped("v2", "Pod", b""), b"k8s\0"]
)
def test_a_kind_that_is_not_known_is_refused_in_words_of_its_own(body: bytes) -> None:
    with pytest.raises(UnknownKind, match="is read from JSON or YAML, not protobuf"):
        decode(body)


KINDS = [*MESSAGE_BY_KIND.items(), (("v1", "DeleteOptions"), "DeleteOptions")]
BODIES = [base64.b64decode(body) for body, _ in CAPTURED.values()]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A body that kubectl has sent, with some bytes replaced by others."""
    body = draw(st.sampled_from(BODIES))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(4, len(body)))
        end = draw(st.integers(start, min(len(body), start + 4)))
        body = body[:start] + draw(st.binary(max_size=4)) + body[end:]
    return body


def wired() -> st.SearchStrategy[bytes]:
    """Fields within fields, without regard to any message."""
    numbers = st.integers(1, 12)
    leaves = st.binary(max_size=6) | st.lists(
        st.builds(field, numbers, st.integers(0, 2**64 - 1) | st.text(max_size=3)), max_size=3
    ).map(b"".join)
    return st.recursive(
        leaves,
        lambda inner: st.lists(st.builds(field, numbers, inner), max_size=3).map(b"".join),
        max_leaves=8,
    )


def anything() -> st.SearchStrategy[bytes]:
    of_a_kind = st.builds(
        lambda kind, raw: enveloped(kind[0][0], kind[0][1], raw), st.sampled_from(KINDS), wired()
    )
    return st.binary() | st.binary().map(b"k8s\0".__add__) | damaged() | of_a_kind


@given(anything())
def test_any_bytes_are_an_object_or_refused(body: bytes) -> None:
    with suppress(Malformed):
        obj = decode(body)
        assert orjson.loads(orjson.dumps(obj)) == obj


# The table, both ways


def within(message: str) -> Iterator[str]:
    """Return the messages that the fields of one are of."""
    for each in MESSAGES[message].values():
        if each.type not in ("string", "bytes", "int", "bool"):
            yield each.type


def names(message: str) -> Iterator[str]:
    """Return the names that an object has in JSON."""
    for each in MESSAGES[message].values():
        if each.name or each.type in protobuf._JSON_WRITERS:
            yield each.name
        else:
            yield from names(each.type)


def depth(message: str, above: tuple[str, ...] = ()) -> int:
    """Return how many messages are within each other."""
    assert message not in above, "a message within itself"
    return 1 + max((depth(each, (*above, message)) for each in within(message)), default=0)


def test_messages_are_bounded_and_each_is_of_use() -> None:
    found = {message for _, message in KINDS} | {"TypeMeta"}
    while new := {each for message in found for each in within(message)} - found:
        found |= new
    assert found == set(MESSAGES)
    assert max(depth(message) for _, message in KINDS) < 20


def test_no_two_fields_of_an_object_have_one_name() -> None:
    for message in MESSAGES:
        found = [*names(message)]
        assert len(found) == len(set(found)), message


Pair = tuple[bytes, Any]
"""What is written, and the JSON that it is read as."""


@st.composite
def values(draw: st.DrawFn, kind: str) -> Pair:
    """One value as it stands within its field."""
    match kind:
        case "string":
            text = draw(st.text(max_size=4))
            return text.encode(), text
        case "bytes":
            data = draw(st.binary(max_size=4))
            return data, base64.b64encode(data).decode()
        case "Time" | "MicroTime":
            seconds = draw(st.integers(-30_000_000_000, 250_000_000_000))
            micros = draw(st.integers(0, 999_999))
            text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            text += f".{micros:06}Z" if kind == "MicroTime" else "Z"
            return field(1, seconds) + field(2, micros * 1000), text
        case "IntOrString":
            number, text = draw(st.integers(-9, 9)), draw(st.text(max_size=2))
            named = draw(st.booleans())
            written = field(1, int(named)) + field(2, number) + field(3, text)
            return written, text if named else number
        case "Quantity":
            text = draw(st.sampled_from(["0", "1", "2Gi"]))
            return field(1, text), text
        case "ExtraValue":
            texts = draw(st.lists(st.text(max_size=2), max_size=2))
            return b"".join(field(1, text) for text in texts), texts
        case "FieldsV1":
            owned: dict[str, Any] = draw(
                st.dictionaries(st.text(max_size=2), st.just({}), max_size=2)
            )
            return field(1, orjson.dumps(owned)), owned
    return draw(messages(kind))


@st.composite
def fields(draw: st.DrawFn, number: int, kind: str) -> Pair:
    """One field that is not a list or a map."""
    if kind == "int":
        value = draw(st.integers(-(2**63), 2**63 - 1))
        return field(number, value), value
    if kind == "bool":
        truth = draw(st.booleans())
        return field(number, int(truth)), truth
    written, expected = draw(values(kind))
    return field(number, written), expected


@st.composite
def messages(draw: st.DrawFn, message: str) -> Pair:
    """Some fields of a message, in any order."""
    table = MESSAGES[message]
    chosen = draw(st.lists(st.sampled_from(sorted(table)), max_size=3, unique=True))
    written = b""
    expected: dict[str, Any] = {}
    for number in chosen:
        each = table[number]
        if each.collection:
            found: Any = [] if each.collection == "[]" else {}
            for place in range(draw(st.integers(0, 2))):
                if each.collection == "[]":
                    data, one = draw(fields(number, each.type))
                    found.append(one)
                else:
                    inner, one = draw(values(each.type))
                    data = field(number, field(1, f"k{place}") + field(2, inner))
                    found[f"k{place}"] = one
                written += data
            if found:
                expected[each.name] = found
            continue
        data, one = draw(fields(number, each.type))
        written += data
        if not each.name:
            expected |= one
        elif one or each.keeps_zero or isinstance(one, dict):
            expected[each.name] = one
    return written, expected


@given(st.data(), st.sampled_from(KINDS))
def test_whatever_is_written_by_the_table_is_read_by_it(
    data: st.DataObject, kind: tuple[tuple[str, str], str]
) -> None:
    (api_version, name), message = kind
    raw, expected = data.draw(messages(message))
    assert read(raw, name, api_version) == expected
