"""Plans of pods: what is to be run, with all that the pod names looked up."""

import base64
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import meta
from warren.base.objects import Object, merge_patch
from warren.dws.pods import plans
from warren.dws.pods.plans import Image, MissingReference, References, UnsupportedPod

IDENTITY = {"runAsUser": 1000, "runAsGroup": 100, "capabilities": {"drop": ["ALL"]}}
IMAGE = Image(
    root="/images/index",
    entrypoint=("/bin/index",),
    command=("--all",),
    environment={"LANG": "C", "PATH": "/bin"},
    working_directory="/srv",
)


def pod(container: Mapping[str, Any] | None = None, **spec: Any) -> Object:
    app = {"name": "app", "image": "index:1", "securityContext": IDENTITY, **(container or {})}
    return {
        "metadata": meta("wf-r0-abcde", labels={"app.kubernetes.io/name": "index"}),
        "spec": {
            "hostname": "r0",
            "nodeName": "r0",
            "restartPolicy": "Never",
            "containers": [app],
            **spec,
        },
    }


def found(**more: Any) -> References:
    return References(images={"index:1": IMAGE, "bare": Image(root="/images/bare")},
                 address="10.0.1.2", host_address="127.0.1.1", **more)  # fmt: skip


def planned(obj: Object, **more: Any) -> Any:
    return plans.plan(obj, found(**more))


def app(container: Mapping[str, Any], **more: Any) -> Any:
    return planned(pod(container), **more)["containers"][0]


def named(name: str, **data: str) -> dict[str, Object]:
    return {name: {"metadata": meta(name), "data": data}}


def test_a_plan_has_what_its_containers_need() -> None:
    assert planned(pod()) == {
        "hostname": "r0",
        "address": "10.0.1.2",
        "grace": 30,
        "ports": [],
        "volumes": {},
        "init": [],
        "containers": [
            {
                "name": "app",
                "root": "/images/index",
                "argv": ["/bin/index", "--all"],
                "environment": {"PATH": "/bin", "HOSTNAME": "r0", "LANG": "C"},
                "directory": "/srv",
                "userid": 1000,
                "groupid": 100,
                "readOnly": False,
                "memory": None,
                "mounts": [],
            }
        ],
    }


@pytest.mark.parametrize(
    ("said", "argv"),
    [
        ({}, ["/bin/index", "--all"]),
        ({"args": ["--one"]}, ["/bin/index", "--one"]),
        ({"command": [], "args": []}, ["/bin/index", "--all"]),
        ({"command": ["/bin/sh"]}, ["/bin/sh"]),
        ({"command": ["/bin/sh"], "args": ["-c", "true"]}, ["/bin/sh", "-c", "true"]),
    ],
)
def test_command_and_args_take_the_place_of_the_images_own(said: Object, argv: list[str]) -> None:
    assert app(said)["argv"] == argv


def test_variables_in_commands_are_expanded() -> None:
    """Statement 001.21: $(VARIABLE) in command and args is expanded."""
    said = {
        "command": ["/bin/index", "--data=$(DW_JOB_fast)/x", "$$(DW_JOB_fast)", "$(UNKNOWN) $5"],
        "env": [{"name": "DW_JOB_fast", "value": "/mnt"}],
    }
    assert app(said)["argv"] == ["/bin/index", "--data=/mnt/x", "$(DW_JOB_fast)", "$(UNKNOWN) $5"]


def test_a_variable_may_name_those_before_it() -> None:
    env = [
        {"name": "B", "value": "$(A)"},
        {"name": "A", "value": "1"},
        {"name": "C", "value": "$(A)$(B)"},
    ]
    own = app({"env": env})["environment"]
    assert (own["A"], own["B"], own["C"]) == ("1", "$(A)", "1$(A)")


@given(st.text(alphabet="$()AB c", max_size=30), st.text(alphabet="$()A", max_size=5))
def test_text_without_a_reference_stays_and_what_is_put_in_is_not_expanded_again(
    text: str, value: str
) -> None:
    if "$$" not in text and "$(" not in text:
        assert plans.expand(text, {"A": value}) == text
    assert plans.expand("$(A)", {"A": value}) == value
    assert plans.expand("$$(A)", {"A": value}) == "$(A)"


def test_fields_of_the_pod_are_told() -> None:
    fields = {
        "metadata.name": "wf-r0-abcde",
        "metadata.namespace": "default",
        "metadata.uid": "uid-wf-r0-abcde",
        "spec.nodeName": "r0",
        "status.podIP": "10.0.1.2",
        "status.hostIP": "127.0.1.1",
        "metadata.labels['app.kubernetes.io/name']": "index",
        "metadata.annotations['none']": "",
    }
    env = [
        {"name": f"V{number}", "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for number, path in enumerate(fields)
    ]
    own = app({"env": env})["environment"]
    assert [own[f"V{number}"] for number in range(len(fields))] == [*fields.values()]


def test_variables_come_from_config_maps_and_secrets() -> None:
    secret = {"token": {"data": {"key": base64.b64encode(b"hidden").decode()}}}
    maps = named("site", WORDS="here")
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "site", "key": "WORDS"}}},
        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "token", "key": "key"}}},
        {"name": "C", "valueFrom": {"secretKeyRef": {"name": "no", "key": "k", "optional": True}}},
    ]
    said = {"env": env, "envFrom": [{"prefix": "X_", "configMapRef": {"name": "site"}}]}
    own = app(said, config_maps=maps, secrets=secret)["environment"]
    assert (own["A"], own["B"], own["X_WORDS"]) == ("here", "hidden", "here")
    assert "C" not in own
    assert plans.config_maps_of(pod(said)) == {"site"}
    assert plans.secrets_of(pod(said)) == {"token", "no"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"configMapKeyRef": {"name": "site", "key": "b"}}, "the ConfigMap site has no b"),
        ({"configMapKeyRef": {"name": "none", "key": "b"}}, "there is no ConfigMap none"),
        ({"secretKeyRef": {"name": "none", "key": "b"}}, "there is no Secret none"),
    ],
)
def test_what_is_missing_may_come_yet(said: Object, words: str) -> None:
    with pytest.raises(MissingReference, match=words):
        app({"env": [{"name": "A", "valueFrom": said}]}, config_maps=named("site", a="1"))


def test_volumes_are_paths_of_the_rabbit_directories_and_files() -> None:
    """Statement 001.40: hostPath volumes."""
    volumes = [
        {"name": "fast", "hostPath": {"path": "/mnt/nnf/1", "type": "Directory"}},
        {"name": "own", "emptyDir": {}},
        {"name": "small", "emptyDir": {"sizeLimit": "1Mi"}},
        {"name": "config", "configMap": {"name": "site"}},
        {"name": "some", "configMap": {"name": "site",
                                       "items": [{"key": "a", "path": "dir/it"}]}},
        {"name": "token", "secret": {"secretName": "token"}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "site"}},
            {"secret": {"name": "token"}},
            {"downwardAPI": {"items": [
                {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ]}},
    ]  # fmt: skip
    secrets = {"token": {"data": {"key": "AAA="}}}
    obj = pod(volumes=volumes)
    one, name = base64.b64encode(b"1").decode(), base64.b64encode(b"wf-r0-abcde").decode()
    assert planned(obj, config_maps=named("site", a="1"), secrets=secrets)["volumes"] == {
        "fast": {"path": "/mnt/nnf/1"},
        "own": {"size": None},
        "small": {"size": 2**20},
        "config": {"files": {"a": one}},
        "some": {"files": {"dir/it": one}},
        "token": {"files": {"key": "AAA="}},
        "all": {"files": {"a": one, "key": "AAA=", "name": name}},
    }
    assert plans.config_maps_of(obj) == {"site"}
    assert plans.secrets_of(obj) == {"token"}


def test_a_key_of_a_volume_that_nothing_holds_may_come_yet() -> None:
    """Left out in silence, a container would run without its configuration."""
    source = {"name": "site", "items": [{"key": "b", "path": "b"}]}
    with pytest.raises(MissingReference, match="volume some: nothing holds the key 'b' yet"):
        planned(pod(volumes=[{"name": "some", "configMap": source}]), config_maps=named("site"))
    optional = pod(volumes=[{"name": "some", "configMap": {**source, "optional": True}}])
    assert planned(optional, config_maps=named("site"))["volumes"] == {"some": {"files": {}}}


def test_a_container_that_would_run_on_beside_the_others_is_refused() -> None:
    """As one that prepares it would be waited for, for ever."""
    first = {"name": "first", "image": "bare", "command": ["/x"], "securityContext": IDENTITY}
    with pytest.raises(UnsupportedPod, match="init container first has a restartPolicy"):
        planned(pod(initContainers=[{**first, "restartPolicy": "Always"}]))


def test_mounts_say_what_of_a_volume_is_where() -> None:
    mounts = [
        {"name": "fast", "mountPath": "/data"},
        {"name": "passwd", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": True},
    ]
    assert app({"volumeMounts": mounts})["mounts"] == [
        {"volume": "fast", "path": "/data", "below": "", "readOnly": False},
        {"volume": "passwd", "path": "/etc/passwd", "below": "passwd", "readOnly": True},
    ]


def test_a_part_of_a_volume_may_be_named_by_variables() -> None:
    """An admin's profile confines a job to its own part so: it must not have the whole instead."""
    container = {
        "env": [{"name": "JOB", "value": "j1"}],
        "volumeMounts": [{"name": "all", "mountPath": "/data", "subPathExpr": "of/$(JOB)/$$(JOB)"}],
    }
    (mount,) = app(container)["mounts"]
    assert mount["below"] == "of/j1/$(JOB)"


@pytest.mark.parametrize(
    ("limit", "size"),
    [
        ("64Mi", 64 * 2**20),
        ("1.5Gi", 3 * 2**29),
        ("129M", 129_000_000),
        ("129e6", 129_000_000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("1Pi", 2**50),
        ("128974848000m", 128974848),
        ("9223372036854775807", 2**63 - 1),
        ("16Ei", 2**63 - 1),
        (4096, 4096),
        ("0", None),
    ],
)
def test_a_container_has_the_memory_that_its_limit_says(limit: str | int, size: int | None) -> None:
    """Kubernetes, "Resource units": quantities may have many forms, and 0 is no limit."""
    assert app({"resources": {"limits": {"memory": limit, "cpu": "2"}}})["memory"] == size


@pytest.mark.parametrize("resources", [None, {}, {"limits": None}, {"requests": {"memory": "1Gi"}}])
def test_a_container_that_says_no_limit_has_none_of_its_own(resources: Object | None) -> None:
    assert app({"resources": resources})["memory"] is None


def test_ports_of_the_node_lead_to_those_of_the_container() -> None:
    """Statement 001.32: the application sees its own containerPort."""
    ports = [{"containerPort": 80, "hostPort": 5000, "protocol": "TCP"}, {"containerPort": 81}]
    assert planned(pod({"ports": ports}))["ports"] == [
        {"host": "127.0.1.1", "port": 5000, "to": 80}
    ]


def test_the_image_of_a_container_that_prepares_is_found_too() -> None:
    first = {"name": "first", "image": "bare", "command": ["/x"], "securityContext": IDENTITY}
    obj = pod(initContainers=[first])
    assert plans.images_of(obj) == ["bare", "index:1"]
    assert [each["root"] for each in planned(obj)["init"]] == ["/images/bare"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"hostNetwork": True}, "the pod asks for hostNetwork, which is not done here"),
        ({"hostPID": True, "hostIPC": True}, "the pod asks for hostPID or hostIPC"),
        ({"restartPolicy": "Always"}, "restartPolicy: only Never"),
        ({"volumes": [{"name": "a", "nfs": {}}]}, "volume a: emptyDir, hostPath"),
        ({"volumes": [{"name": "a", "emptyDir": {"sizeLimit": "much"}}]}, "'much' is no size"),
    ],
)
def test_what_is_not_done_for_pods_is_refused_by_name(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(UnsupportedPod, match=words):
        planned(pod(**spec))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"securityContext": {}}, "container app: none runs as root"),
        ({"securityContext": {**IDENTITY, "runAsUser": 0}}, "container app: none runs as root"),
        ({"securityContext": {**IDENTITY, "runAsGroup": 0}}, "container app: none runs as root"),
        ({"securityContext": {**IDENTITY, "privileged": True}}, "asks for privileged"),
        ({"securityContext": {**IDENTITY, "capabilities": {"add": ["NET_ADMIN"]}}},
         "asks for capabilities"),
        ({"readinessProbe": {"exec": {}}}, "asks for readinessProbe"),
        ({"lifecycle": {"preStop": {}}, "tty": True}, "asks for lifecycle or tty"),
        ({"resources": {"limits": {"memory": "much"}}}, "'much' is no size"),
        ({"image": "bare"}, "its image bare has no command, nor has it"),
        ({"volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "../b"}]}, "leaves its vol"),
        ({"volumeMounts": [{"name": "a", "mountPath": "/a", "subPath": "/b"}]}, "leaves its vol"),
        ({"volumeMounts": [{"name": "a", "mountPath": "/a", "subPathExpr": "x/$(NO)"}]},
         "names a variable that it does not have"),
        ({"env": [{"name": "UP", "value": ".."}],
          "volumeMounts": [{"name": "a", "mountPath": "/a", "subPathExpr": "$(UP)/b"}]},
         "leaves its vol"),
        ({"ports": [{"containerPort": 1, "hostPort": 2, "protocol": "UDP"}]}, "only TCP"),
        ({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {}}}]}, "resourceFieldRef is"),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}, "'spec.x'"),
    ],
)  # fmt: skip
def test_what_is_not_done_for_containers_is_refused_by_name(said: Object, words: str) -> None:
    with pytest.raises(UnsupportedPod, match=words):
        planned(pod(said))


def test_the_pods_own_security_context_holds_for_its_containers() -> None:
    obj = pod({"securityContext": {}}, securityContext=IDENTITY)
    assert planned(obj)["containers"][0]["userid"] == 1000
    assert planned(merge_patch(obj, {"spec": {"terminationGracePeriodSeconds": 3}}))["grace"] == 3
