"""Profiles of containers: both forms in which they are written, and what none may say."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from tests.dws import nnf_objects
from tests.dws.builders import meta
from tests.rfc.vectors import vector
from warren.base.objects import Object, merge_patch
from warren.dws.containers.containerprofiles import by_name, decode, mistakes

RFC = """
kind: NnfContainerProfile
apiVersion: nnf.cray.hpe.com/v1alpha1
metadata:
  name: foo
  namespace: nnf-system
spec:
  postRunTimeout: 300
  maxRetries: 0
  storages:
    - name: DW_JOB_foo-local-storage
      optional: false
      mountPathPrefix: /foo/local
      minimumCapacity: 1TiB
    - name: DW_PERSISTENT_foo-persistent-storage
      optional: true
  spec:
    containers:
      - name: foo
        image: foo:latest
        command: [/foo]
        ports:
          - {name: compute, containerPort: 80}
        volumeMounts:
          - {name: nnf-config, mountPath: /nnf/config}
"""


def profile(changes: Object | None = None) -> Object:
    made = {
        "metadata": meta("foo", "nnf-system"),
        "data": {
            "storages": [{"name": "DW_JOB_foo_fast"}, {"name": "DW_GLOBAL_lus", "optional": True}],
            "spec": {"containers": [{"name": "main", "image": "example/image:1"}]},
        },
    }
    found: Object = merge_patch(made, changes or {})
    return found


def container(**more: Any) -> Object:
    containers = [{"name": "main", "image": "example/image:1", **more}]
    return {"data": {"spec": {"containers": containers}}}


def test_the_profile_of_the_container_rfc_is_read() -> None:
    """Statement 001.35: its words.

    Statement 001.36: names with dashes.
    Statement 001.12: retries may be none.
    Statement 001.3: where the application expects a storage.
    Statement 001.4: how large it has to be.
    """
    found = decode(yaml.safe_load(RFC))
    assert found.data.post_run_timeout_seconds == 300
    assert found.data.retry_limit == 0
    fast, kept = found.storage_by_argument.values()
    assert [*found.storage_by_argument] == [
        "DW_JOB_foo_local_storage",
        "DW_PERSISTENT_foo_persistent_storage",
    ]
    assert (fast.container_path, fast.minimum_capacity, fast.optional) == (
        "/foo/local",
        "1TiB",
        False,
    )
    assert (kept.container_path, kept.optional) == ("", True)
    assert found.port_count == 1
    assert mistakes(yaml.safe_load(RFC)) == []


def test_its_mpi_form_is_read_as_well() -> None:
    """Statement 001.20: mpiReplicaSpecs, with a Launcher and a Worker.

    Statement 001.5: a profile has a pod or an MPI job.
    """
    text = """
    metadata: {name: foo, namespace: nnf-system}
    data:
      numPorts: 2
      mpiSpec:
        slotsPerWorker: 1
        mpiReplicaSpecs:
          Launcher: {template: {spec: {containers: [{name: example-mpi, image: mfu}]}}}
          Worker: {template: {spec: {containers: [{name: worker, image: mfu}]}}}
    """
    found = decode(yaml.safe_load(text))
    assert found.data.mpi_spec is not None
    assert found.data.mpi_spec.slots_per_worker == 1
    assert [each["name"] for each in found.containers] == ["example-mpi"]
    assert found.port_count == 2
    assert mistakes(yaml.safe_load(text)) == []


def test_the_profiles_of_the_real_system_are_right() -> None:
    vector("nnf-objects/profiles.json")
    found = nnf_objects.profiles("NnfContainerProfile").values()
    assert len(found) > 6
    for each in found:
        assert mistakes(each) == [], each["metadata"]["name"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": {"retryLimit": -1}}, "data.retryLimit: cannot be negative: -1"),
        ({"data": {"retryLimit": "two"}}, "data: NnfContainerProfile foo: Expected `int`"),
        (
            {"data": {"spec": None}},
            "data: one of spec and mpiSpec has to be there, and not both",
        ),
        (
            {"data": {"mpiSpec": {}}},
            "data: one of spec and mpiSpec has to be there, and not both",
        ),
        (
            {"data": {"storages": [{"name": "foo"}]}},
            "data.storages[0].name: 'foo' does not begin with DW_JOB_, DW_PERSISTENT_ or",
        ),
        (
            {"data": {"storages": [{"name": "DW_JOB_a-b"}, {"name": "DW_JOB_a_b"}]}},
            "data.storages[1].name: 'DW_JOB_a_b' is there twice",
        ),
        (
            {"data": {"storages": [{"name": "DW_JOB_passwd"}]}},
            "data.storages[0].name: 'DW_JOB_passwd' has the name of another volume",
        ),
        (
            {"data": {"storages": [{"name": "DW_JOB_a", "pvcMode": "ReadWriteMany"}]}},
            "data.storages[0].pvcMode: is for DW_GLOBAL_ storages alone",
        ),
        (
            {"data": {"storages": [{"name": "DW_JOB_a", "mountPath": "/a/../etc"}]}},
            "data.storages[0].mountPath: '/a/../etc' is no directory of its own in a container",
        ),
        (
            {"data": {"storages": [{"name": "DW_JOB_a", "mountPath": "/etc/"}]}},
            "data.storages[0].mountPath: '/etc/' is no directory of its own in a container",
        ),
        (
            {
                "data": {
                    "storages": [{"name": "DW_JOB_a", "mountPath": "/a", "mountPathPrefix": "/b"}]
                }
            },
            "data.storages[0].mountPathPrefix: cannot be beside mountPath",
        ),
        (
            {"data": {"storages": [{"name": "DW_JOB_a", "minimumCapacity": "much"}]}},
            "data.storages[0].minimumCapacity: ",
        ),
        ({"data": {"spec": {"containers": []}}}, "data.spec.containers: has to have one"),
        (
            {"data": {"spec": {"hostNetwork": True}}},
            "data.spec.hostNetwork: is set by Warren, or is not for users' containers",
        ),
        (
            {"data": {"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}}},
            "data.spec.volumes[0].hostPath: is not granted by the profile's storages",
        ),
        (
            {"data": {"spec": {"volumes": [{"name": "foo-fast", "emptyDir": {}}]}}},
            "data.spec.volumes[0].name: 'foo-fast' is made by Warren",
        ),
        (container(name="Main"), "data.spec.containers[0].name: 'Main' is no name"),
        (container(image=""), "data.spec.containers[0].image: has to be there"),
        (
            container(securityContext={"privileged": True}),
            "data.spec.containers[0].securityContext: is set by Warren",
        ),
        (
            container(ports=[{"containerPort": 80, "hostPort": 22}]),
            "data.spec.containers[0].ports[0].hostPort: is given out by Warren",
        ),
        (
            container(ports=[{"containerPort": 65536}]),
            "data.spec.containers[0].ports[0].containerPort: is a number from 1 to 65535",
        ),
        (
            container(volumeMounts=[{"name": "other", "mountPath": "/a"}]),
            "data.spec.containers[0].volumeMounts[0].name: there is no volume 'other'",
        ),
        (
            container(name="nnf-copy-offload"),
            "data.spec.containers[0].name: 'nnf-copy-offload' needs mpiSpec.copyOffload",
        ),
        (
            {
                "data": {
                    "spec": None,
                    "mpiSpec": {
                        "copyOffload": True,
                        "launcher": {"containers": [{"name": "a", "image": "b"}]},
                        "worker": {"containers": [{"name": "a", "image": "b"}]},
                    },
                }
            },
            "data.mpiSpec.copyOffload: needs a container named copy-offload",
        ),
        (
            {"metadata": {"namespace": "default"}},
            "metadata.namespace: profiles that are not pinned are in nnf-system",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_path(changes: Object, said: str) -> None:
    """Statement 001.2: each storage has a name of its own."""
    found = mistakes(profile(changes))
    assert len(found) == 1, found
    assert str(found[0]).startswith(said)


def placed(*storages: Object, mounts: Sequence[Object] = (), **more: Any) -> Object:
    spec = {"containers": [{"name": "main", "image": "a:1", "volumeMounts": [*mounts]}], **more}
    return profile({"data": {"storages": [*storages], "spec": spec}})


DATA = {"name": "DW_JOB_data", "mountPath": "/data"}
TMP = {"name": "tmp", "emptyDir": {}}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            placed(DATA, {"name": "DW_JOB_more", "mountPath": "/data/more"}),
            "data.storages[1].mountPath: '/data/more' is below the storage at '/data', which",
        ),
        (
            placed(DATA, mounts=[{"name": "tmp", "mountPath": "/data/tmp"}], volumes=[TMP]),
            "data.spec.containers[0].volumeMounts[0].mountPath: '/data/tmp' is below",
        ),
        (
            placed(
                {"name": "DW_PERSISTENT_a", "mountPathPrefix": "/a"},
                mounts=[
                    {"name": "a", "mountPath": "/own/"},
                    {"name": "tmp", "mountPath": "/own/tmp"},
                ],
                volumes=[TMP],
            ),
            "data.spec.containers[0].volumeMounts[1].mountPath: '/own/tmp' is below",
        ),
    ],
)
def test_nothing_is_mounted_where_storage_may_have_a_directory_for_each_node(
    wrong: Object, said: str
) -> None:
    (found,) = mistakes(wrong)
    assert str(found).startswith(said)


@pytest.mark.parametrize(
    "right",
    [
        placed(DATA, {"name": "DW_JOB_more", "mountPath": "/database"}),
        placed(DATA, mounts=[{"name": "tmp", "mountPath": "/"}], volumes=[TMP]),
        placed({"name": "DW_GLOBAL_lus", "mountPath": "/lus"}, {**DATA, "mountPath": "/lus/data"}),
        placed(
            DATA,
            mounts=[
                {"name": "data", "mountPath": "/a", "subPath": "a"},
                {"name": "tmp", "mountPath": "/a/tmp"},
            ],
            volumes=[TMP],
        ),
    ],
)
def test_what_is_beside_storage_or_above_it_is_right(right: Object) -> None:
    assert mistakes(right) == []


def test_a_profile_that_cannot_be_read_leaves_the_others() -> None:
    wrong = profile({"metadata": {"name": "wrong"}, "data": {"retryLimit": "two"}})
    assert [*by_name([wrong, profile()])] == ["foo"]


def test_a_pinned_profile_is_never_changed() -> None:
    pinned = profile({"data": {"pinned": True}, "metadata": {"namespace": "default"}})
    assert mistakes(pinned) == []
    assert mistakes(pinned, pinned) == []
    (found,) = mistakes(merge_patch(pinned, {"data": {"retryLimit": 0}}), pinned)
    assert str(found) == "data: cannot be changed in a pinned profile"
    (found,) = mistakes(profile({"data": {"pinned": True}}), profile())
    assert str(found) == "data.pinned: cannot be changed: make another profile"
    assert mistakes(profile({"data": {"retryLimit": 0}}), profile()) == []
