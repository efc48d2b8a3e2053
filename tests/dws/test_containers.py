"""Containers beside a job: what they are made of, and what is done for them in each state."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.dws import nnf_objects
from tests.dws.builders import (
    changes,
    computes,
    made,
    meta,
    nnf_access,
    nnf_storage,
    removed,
    workflow,
)
from tests.dws.test_driver import driver, seen, told
from tests.dws.test_ports import answered as with_ports
from tests.dws.test_ports import configuration, request
from tests.dws.test_ports import raw as raw_manager
from tests.rfc.vectors import vector
from warren.base.objects import Object, Write
from warren.dws import kinds, labels
from warren.dws.containers import containerprofiles, indexmounts
from warren.dws.containers.applications import Application, ApplicationStorage
from warren.dws.containers.ports import NnfPortManager
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.workflows import Workflow
from warren.dws.pods.batchjobs import BatchJob
from warren.dws.workflow import containersteps
from warren.dws.workflow.driver import decide
from warren.dws.workflow.workflowsnapshot import WorkflowSnapshot

FAST = "#DW jobdw type=gfs2 capacity=1GiB name=fast"
BESIDE = "#DW container name=beside profile=foo DW_JOB_foo-fast=fast"
BARE = "#DW container name=beside profile=bare"
WIRING = {"n0": "r0", "n1": "r0", "n2": "r1"}
FOO: dict[str, Any] = {
    "kind": "NnfContainerProfile",
    "metadata": meta("foo", "nnf-system"),
    "data": {
        "retryLimit": 2,
        "postRunTimeoutSeconds": 60,
        "storages": [
            {"name": "DW_JOB_foo-fast", "mountPathPrefix": "/foo/fast"},
            {"name": "DW_PERSISTENT_kept", "optional": True},
        ],
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "foo:latest",
                    "command": ["/foo", "$(DW_JOB_foo_fast)"],
                    "ports": [{"name": "web", "containerPort": 80}],
                    "volumeMounts": [
                        {"name": "nnf-config", "mountPath": "/nnf/config"},
                        {"name": "kept", "mountPath": "/kept"},
                    ],
                }
            ]
        },
    },
}
BARE_PROFILE: dict[str, Any] = {
    "kind": "NnfContainerProfile",
    "metadata": meta("bare", "nnf-system"),
    "data": {"spec": {"containers": [{"name": "main", "image": "foo:latest"}]}},
}


def application(profile: Object = FOO, **more: Any) -> Application:
    storages = [
        ApplicationStorage(
            need=need,
            path=f"/mnt/nnf/uid-wf-{index}",
            allocation_numbers={"n0": 0, "n1": 1, "n2": 0},
        )
        for index, need in enumerate(containerprofiles.decode(profile).storage_by_argument.values())
        if not need.optional
    ]
    about = {
        "workflow": workflow(FAST, BESIDE),
        "index": 1,
        "name": "beside",
        "profile": containerprofiles.decode(profile),
        "storages": storages,
        "nodes_by_rabbit": {"r0": ["n0", "n1"], "r1": ["n2"]},
        "ports": [5000],
        **more,
    }
    return Application(**about)


def pod(found: Application, rabbit: int = 0) -> Any:
    return [*found.jobs()][rabbit]["spec"]["template"]["spec"]


def environment(container: Object) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in container["env"]}


# What they are made of


def test_there_is_a_job_for_each_rabbit_of_the_compute_nodes() -> None:
    """Statement 001.16: the job's compute nodes decide the rabbits.

    Statement 001.19: the same application runs on each.
    """
    first, second = application().jobs()
    assert [each["metadata"]["name"] for each in (first, second)] == ["wf-r0", "wf-r1"]
    assert first["spec"]["backoffLimit"] == 2
    assert first["metadata"]["finalizers"] == ["foregroundDeletion"]
    pods = [each["spec"]["template"]["spec"] for each in (first, second)]
    assert [each["nodeSelector"] for each in pods] == [
        {"kubernetes.io/hostname": "r0"},
        {"kubernetes.io/hostname": "r1"},
    ]
    applications = [[{**each, "volumeMounts": ()} for each in pod["containers"]] for pod in pods]
    assert applications[0] == applications[1]


def test_they_are_the_users_and_can_become_nothing_else() -> None:
    """Statement 001.23: the Workflow's user and group.

    Statement 001.41: by a securityContext.
    """
    found = pod(application())
    assert found["securityContext"] == {"fsGroup": 1002}
    assert found["automountServiceAccountToken"] is False
    for each in (*found["containers"], *found["initContainers"]):
        assert each["securityContext"] == {
            "runAsUser": 1001,
            "runAsGroup": 1002,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }


def test_the_user_has_a_name_in_the_container() -> None:
    """Statement 001.24: an init container writes the passwd."""
    found = pod(application())
    (init,) = found["initContainers"]
    assert init["image"] == "foo:latest"
    assert "1001:1002" in init["command"][2]
    (main,) = found["containers"]
    places = {each["mountPath"]: each.get("subPath") for each in main["volumeMounts"]}
    assert (places["/etc/passwd"], places["/etc/shadow"]) == ("passwd", "shadow")


def test_storage_is_where_the_profile_says_and_what_is_absent_is_nowhere() -> None:
    """Statement 001.3: a mount path.

    Statement 001.37: an optional storage that is absent.
    Statement 001.40: volumes are paths of the rabbit.
    """
    found = pod(application())
    (main,) = found["containers"]
    assert environment(main)["DW_JOB_foo_fast"] == "/foo/fast"
    places = [each["mountPath"] for each in main["volumeMounts"] if each["name"] == "foo-fast"]
    assert places == ["/foo/fast/r0-0", "/foo/fast/r0-1"]
    assert "/kept" not in {each["mountPath"] for each in main["volumeMounts"]}
    volumes = {each["name"]: each for each in found["volumes"]}
    host = {"path": "/mnt/nnf/uid-wf-0", "type": "Directory"}
    assert volumes["foo-fast"] == {"name": "foo-fast", "hostPath": host}
    assert "DW_PERSISTENT_kept" not in environment(main)


def test_what_a_profile_prepares_with_mounts_no_storage_that_is_absent() -> None:
    """Statement 001.37: a pod with a mount of a volume that it has not is never started."""
    mounts = [{"name": "foo-fast", "mountPath": "/own"}, {"name": "kept", "mountPath": "/kept"}]
    init = {"name": "first", "image": "foo:latest", "volumeMounts": mounts}
    data = {**FOO["data"], "spec": {**FOO["data"]["spec"], "initContainers": [init]}}
    first, _ = pod(application({**FOO, "data": data}))["initContainers"]
    assert first["volumeMounts"] == [{"name": "foo-fast", "mountPath": "/own"}]


def test_a_port_of_the_rabbit_leads_to_the_one_that_the_application_knows() -> None:
    """Statement 001.32: it sees its own containerPort."""
    (main,) = pod(application())["containers"]
    assert main["ports"] == [
        {"name": "web", "containerPort": 80, "hostPort": 5000, "protocol": "TCP"}
    ]
    assert environment(main)["NNF_CONTAINER_PORTS_main"] == "5000"


def test_containers_find_each_other_by_name() -> None:
    """Statement 001.25: HOSTNAME.SUBDOMAIN.

    Statement 001.26: within the cluster's domain.
    Statement 001.27: in variables.
    """
    found = application()
    assert (pod(found)["hostname"], pod(found)["subdomain"]) == ("r0", "wf")
    service = found.service()
    assert service["spec"]["clusterIP"] == "None"
    (first, _) = found.jobs()
    own = first["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= own.items()
    variables = environment(pod(found)["containers"][0])
    assert variables["NNF_CONTAINER_NODES"] == "r0 r1"
    assert variables["NNF_CONTAINER_HOSTNAMES"] == "r0,r1"
    assert variables["NNF_CONTAINER_SUBDOMAIN"] == "wf"
    assert variables["NNF_CONTAINER_DOMAIN"] == "default.svc.cluster.local"


def test_a_profile_that_mounts_it_has_a_config_map() -> None:
    """Statement 001.10: nnf-config.

    Statement 001.28: what variables say.
    Statement 001.44: the mount types.
    """
    config = application().config()
    assert config is not None
    assert config["metadata"]["name"] == "wf-container-beside"
    assert config["data"]["nnfContainerSubdomain"] == "wf"
    assert config["data"]["nnfContainerDomain"] == "default.svc.cluster.local"
    assert json.loads(config["data"]["nnfContainerNodes"]) == ["r0", "r1"]
    assert json.loads(config["data"]["storages"]) == [
        {"name": "DW_JOB_foo-fast", "mountPath": "/foo/fast", "mountType": "indexed-mount"}
    ]
    assert json.loads(config["data"]["computes"]) == {"r0": ["n0", "n1"], "r1": ["n2"]}
    volumes = {each["name"]: each for each in pod(application())["volumes"]}
    assert volumes["nnf-config"]["configMap"] == {"name": "wf-container-beside"}
    assert application(BARE_PROFILE).config() is None


def _without_mock(found: Sequence[Object]) -> list[Object]:
    return [each for each in found if not each["name"].startswith("kind-device")]


def _whole(mounts: Sequence[Object]) -> Iterator[Object]:
    """Return mounts as NNF's pods have them, which mount a storage whole, without links."""
    places = {each["mountPath"] for each in mounts if each["name"] == indexmounts.VOLUME}
    for each in mounts:
        if each["name"] == indexmounts.VOLUME:
            yield {"name": each["subPath"], "mountPath": each["mountPath"]}
        elif each["mountPath"].rpartition("/")[0] not in places:
            yield each


def _without_defaults(volume: Object) -> Object:
    """Leave out what the server fills in, and that we do without the certificate."""
    secret = volume.get("secret")
    return {**volume, "secret": secret["secretName"]} if secret else volume


@pytest.mark.parametrize(
    "case", ["08a-container-gfs2", "08b-container-ports", "09b-requires-auth-container"]
)
def test_they_say_what_the_real_ones_say(case: str) -> None:
    """Statement 001.9: the pod of the profile, with volumes.

    Statement 001.22: it is what they begin with.
    """
    vector("nnf-objects/profiles.json")
    found = nnf_objects.dump(nnf_objects.PLACE / case / "04-PreRun-waiting.json")
    (obj,), theirs = found["Workflow"], found["Job"]
    wf = read({**obj, "metadata": {**obj["metadata"], "uid": "uid"}}, Workflow)
    source = nnf_objects.profiles("NnfContainerProfile")
    named = "con-plain" if "08a" in case else "con-ports"
    profile = containerprofiles.decode(source[named])
    rabbits = [each["metadata"]["name"].removeprefix(f"w{case}-") for each in theirs]
    ours = application(
        source[named],
        workflow=wf,
        name="con",
        storages=[
            ApplicationStorage(
                need=profile.data.storages[0], path="/mnt/nnf/uid-0", allocation_numbers={"n": 0}
            )
        ],
        nodes_by_rabbit={rabbit: ["n"] for rabbit in rabbits},
        ports=range(5000, 5000 + profile.port_count),
    )
    for real, own in zip(theirs, ours.jobs(), strict=True):
        assert own["metadata"]["name"] == real["metadata"]["name"]
        assert real["metadata"]["labels"].items() <= own["metadata"]["labels"].items()
        for name in ("backoffLimit", "completions", "parallelism"):
            assert own["spec"][name] == real["spec"][name]
        one, other = own["spec"]["template"]["spec"], real["spec"]["template"]["spec"]
        for name in ("hostname", "subdomain", "nodeSelector", "tolerations", "restartPolicy"):
            assert one[name] == other[name]
        assert one["securityContext"] == other["securityContext"]
        volumes = [each for each in one["volumes"] if each["name"] != indexmounts.VOLUME]
        assert [*map(_without_defaults, volumes)] == [
            _without_defaults(each) for each in _without_mock(other["volumes"])
        ]
        inits = [[each["name"] for each in pod["initContainers"]] for pod in (one, other)]
        assert inits[0] == inits[1]
        for mine, its in zip(one["containers"], other["containers"], strict=True):
            known = {"ENVIRONMENT", "NNF_CONTAINER_HOSTNAMES"}
            expected = {k: v for k, v in environment(its).items() if k not in known}
            assert expected.items() <= environment(mine).items()
            assert set(environment(its)["NNF_CONTAINER_HOSTNAMES"].split(",")) == set(rabbits)
            assert its["securityContext"].items() <= mine["securityContext"].items()
            assert list(_whole(mine["volumeMounts"])) == _without_mock(its["volumeMounts"])
            assert mine.get("ports") == its.get("ports")
            assert (mine["command"], mine["image"]) == (its["command"], its["image"])


# What is done in each state


def pinned(source: Object = FOO, index: int = 1) -> dict[str, Object]:
    copy = {**source, "metadata": meta(f"wf-{index}")}
    return {f"wf-{index}": {**copy, "data": {**source["data"], "pinned": True}}}


def manager(count: int = 1) -> NnfPortManager:
    found, _ = with_ports(raw_manager(request("wf", count)), configuration("5000-5003"))
    return read(found, NnfPortManager)


def view(wf: Workflow, **more: Any) -> WorkflowSnapshot:
    """Make a view of a Workflow whose jobs run on r0 and r1, or on what is said."""
    known = {
        "container_profiles": {"foo": FOO, "bare": BARE_PROFILE},
        "pinned_container_profiles": pinned(),
        "port_manager": manager(),
        "pod_nodes": {"r0": {}, "r1": {}},
        "wiring": WIRING,
        "positions": {"n0": 0, "n1": 1, "n2": 0},
        **more,
    }
    nodes = known.pop("nodes", ["n0", "n1", "n2"])
    return replace(seen(wf, **known), computes=computes(*nodes))


def mounted(**more: Any) -> NnfAccess:
    found = nnf_access("servers", ready=True, state="mounted")
    carried = {**found.metadata.labels, labels.TEARDOWN_STATE: "Teardown", **more}
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, labels=carried)
    )


def job(name: str, **status: Any) -> dict[str, BatchJob]:
    said = {key: value for key, value in status.items() if key != "deadline"}
    spec = {"activeDeadlineSeconds": status["deadline"]} if "deadline" in status else {}
    return {name: read({"metadata": meta(name), "spec": spec, "status": said}, BatchJob)}


def condition(type: str, **more: str) -> list[dict[str, str]]:
    return [{"type": type, "status": "True", **more}]


def bare(state: str, **more: Any) -> list[Write]:
    """Decide on a Workflow in a state, with a container that has no storage, on r0."""
    known = {"pinned_container_profiles": pinned(BARE_PROFILE, 0), "nodes": ["n0"], **more}
    status = known.pop("status", {})
    return decide(view(workflow(BARE, state=state, status=status), **known))


def test_proposal_makes_a_copy_of_the_profile_that_does_not_change() -> None:
    """Statement 001.8: in Proposal."""
    wf = workflow(BARE)
    writes = decide(view(wf, pinned_container_profiles={}))
    (copy,) = made(writes, kinds.CONTAINER_PROFILE)
    assert copy["metadata"]["name"] == "wf-0"
    assert copy["data"] == {**BARE_PROFILE["data"], "pinned": True}
    assert containerprofiles.mistakes(copy) == []
    assert driver(bare("Proposal"), 0)["completed"]


def test_where_no_rabbit_is_a_node_proposal_says_that_containers_cannot_run() -> None:
    status, message = told(decide(view(workflow(BARE), pod_nodes={})))
    assert status == "Error"
    assert "Containers cannot run here" in message


def test_setup_waits_for_ports_and_tells_which_they_are() -> None:
    """Statement 001.30: in the Workflow's variables after Setup."""
    wf = workflow(FAST, BESIDE, state="Setup")
    nobody = read(raw_manager(), NnfPortManager)
    writes = decide(view(wf, port_manager=nobody))
    (asked,) = changes(writes, kinds.PORT_MANAGER)
    assert [each["count"] for each in asked["spec"]["allocations"]] == [1]
    assert driver(writes, 6)["status"] == "Running"
    writes = decide(view(wf))
    assert driver(writes, 6)["completed"]
    (patch,) = changes(writes, kinds.WORKFLOW)
    assert patch["status"]["env"] == {
        "NNF_CONTAINER_PORTS": "5000",
        "NNF_CONTAINER_PORTS_main": "5000",
    }


def test_a_range_that_is_exhausted_fails_the_workflow() -> None:
    """Statement 001.34: it waits for no port that there will not be."""
    found, _ = with_ports(raw_manager(request("wf", 9)), configuration(5000))
    wf = workflow(FAST, BESIDE, state="Setup")
    status, message = told(decide(view(wf, port_manager=read(found, NnfPortManager))))
    assert status == "Error"
    assert "has fewer ports than the" in message


def test_rabbits_mount_what_containers_use_until_teardown_before_they_start() -> None:
    wf = workflow(FAST, BESIDE, state="PreRun")
    about: Mapping[str, Any] = {"storages": [nnf_storage()]}
    writes = decide(view(wf, **about))
    accesses = {each["metadata"]["name"]: each for each in made(writes, kinds.NNF_ACCESS)}
    served = accesses["wf-0-servers"]
    assert served["spec"]["teardownState"] == "Teardown"
    assert served["metadata"]["labels"][labels.DIRECTIVE_INDEX] == "0"
    assert not made(writes, kinds.BATCH_JOB)
    # What a copy_in had them mount is kept mounted.
    copied = mounted(**{labels.TEARDOWN_STATE: "PreRun"})
    writes = decide(view(wf, accesses=[copied], **about))
    (kept,) = changes(writes, kinds.NNF_ACCESS)
    assert kept["spec"] == {"desiredState": "mounted", "teardownState": "Teardown"}
    assert not made(writes, kinds.BATCH_JOB)
    writes = decide(view(wf, accesses=[mounted()], **about))
    assert [each["metadata"]["name"] for each in made(writes, kinds.BATCH_JOB)] == [
        "wf-r0",
        "wf-r1",
    ]
    assert len(made(writes, kinds.SERVICE)) == len(made(writes, kinds.CONFIG_MAP)) == 1
    assert driver(writes, 7)["message"] == "pending container start for job 'wf-r0'"


def test_prerun_waits_until_each_has_started_and_tells_the_job_of_them() -> None:
    """Statement 001.31: what the job's tasks are told."""
    not_started: tuple[dict[str, Any], ...] = ({}, {"conditions": condition("Suspended")})
    for status in not_started:
        waiting = bare("PreRun", container_jobs=job("wf-r0", **status))
        assert not driver(waiting, 2).get("completed")
    started: tuple[dict[str, Any], ...] = ({"ready": 1}, {"conditions": condition("Complete")})
    for status in started:
        writes = bare("PreRun", container_jobs=job("wf-r0", **status))
        assert driver(writes, 2)["completed"]
        (patch,) = changes(writes, kinds.WORKFLOW)
        assert patch["status"]["env"]["NNF_CONTAINER_HOSTNAMES"] == "r0"


def test_containers_that_do_not_start_in_time_fail_the_workflow() -> None:
    late = {"desiredStateChange": "2026-01-31T11:54:59.000000Z"}
    status, message = told(bare("PreRun", container_jobs=job("wf-r0"), status=late))
    assert status == "Error"
    assert "user container(s) failed to start after 300 seconds" in message


def test_a_workflow_is_looked_at_when_its_containers_are_late() -> None:
    about = {"pinned_container_profiles": pinned(BARE_PROFILE, 0), "nodes": ["n0"]}
    assert containersteps.requeue_delay(view(workflow(BARE, state="PreRun"), **about)) == 300
    assert containersteps.requeue_delay(view(workflow(BARE, state="Setup"), **about)) is None
    assert (
        containersteps.requeue_delay(view(workflow(state="PreRun"), pinned_container_profiles={}))
        is None
    )
    never = {**BARE_PROFILE, "data": {**BARE_PROFILE["data"], "preRunTimeoutSeconds": 0}}
    about["pinned_container_profiles"] = pinned(never, 0)
    assert containersteps.requeue_delay(view(workflow(BARE, state="PreRun"), **about)) is None


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"wiring": {}}, "compute nodes have no rabbit that could run its containers"),
        ({"pinned_container_profiles": {}}, "the NnfContainerProfile wf-0 is gone"),
    ],
)
def test_what_cannot_be_started_is_said(more: dict[str, Any], words: str) -> None:
    status, message = told(bare("PreRun", **more))
    assert status == "Error"
    assert words in message


UNABLE = {"status": {"conditions": [{"type": "Ready", "status": "False", "message": "no bwrap"}]}}


@pytest.mark.parametrize(
    ("runners", "words"),
    [
        ({"r1": {}}, "no containers run on r0: it is no node of the cluster"),
        ({"r0": UNABLE, "r1": {}}, "no containers run on r0: no bwrap"),
    ],
)
def test_a_rabbit_that_runs_no_containers_is_waited_for_in_its_words(
    runners: dict[str, Object], words: str
) -> None:
    writes = bare("PreRun", pod_nodes=runners)
    assert driver(writes, 2)["message"] == words
    assert not made(writes, kinds.BATCH_JOB)
    late = {"desiredStateChange": "2026-01-31T11:54:59.000000Z"}
    status, message = told(bare("PreRun", pod_nodes=runners, status=late))
    assert status == "Error"
    assert f"failed to start after 300 seconds: {words}" in message


def test_a_workflow_that_waits_for_a_rabbit_looks_again() -> None:
    about = {
        "pinned_container_profiles": pinned(BARE_PROFILE, 0),
        "nodes": ["n0"],
        "pod_nodes": {"r1": {}},
    }
    assert containersteps.requeue_delay(view(workflow(BARE, state="PreRun"), **about)) == 1.0


def test_postrun_is_ready_when_all_have_succeeded() -> None:
    """Statement 001.13: also those that were retried."""
    assert driver(
        bare("PostRun", container_jobs=job("wf-r0", conditions=condition("Complete"))), 3
    )["completed"]


def test_postrun_starts_a_clock_once_for_those_that_still_run() -> None:
    """Statement 001.14: a timer, after which they are ended and the Workflow fails."""
    began = "2026-01-31T11:59:00Z"
    writes = bare("PostRun", container_jobs=job("wf-r0", ready=1, startTime=began))
    (patch,) = changes(writes, kinds.BATCH_JOB)
    assert patch == {"spec": {"activeDeadlineSeconds": 60 + 300}}
    assert driver(writes, 3)["message"] == "pending container finish"
    writes = bare("PostRun", container_jobs=job("wf-r0", ready=1, startTime=began, deadline=360))
    assert not changes(writes, kinds.BATCH_JOB)
    ended = condition("Failed", reason="DeadlineExceeded")
    status, message = told(bare("PostRun", container_jobs=job("wf-r0", conditions=ended)))
    assert status == "Error"
    assert "user container(s) failed to complete after 300 seconds" in message


@pytest.mark.parametrize("state", ["PreRun", "PostRun"])
def test_where_one_has_failed_the_state_is_never_ready(state: str) -> None:
    """Statement 001.42: PostRun is not Ready."""
    why = "Job has reached the specified backoff limit"
    ended = condition("Failed", reason="BackoffLimitExceeded", message=why)
    status, message = told(bare(state, container_jobs=job("wf-r0", conditions=ended)))
    assert status == "Error"
    assert f"the container job wf-r0 has failed: {why}" in message


def test_a_profile_may_say_that_the_job_does_not_wait_for_them() -> None:
    quick = {**BARE_PROFILE, "data": {**BARE_PROFILE["data"], "postRunTimeoutSeconds": 0}}
    writes = bare(
        "PostRun", container_jobs=job("wf-r0", ready=1), pinned_container_profiles=pinned(quick, 0)
    )
    assert driver(writes, 3)["completed"]
    assert not changes(writes, kinds.BATCH_JOB)


def test_teardown_removes_them_first_and_then_gives_their_ports_back() -> None:
    """Statement 001.15: until then they are there to be looked at."""
    wf = workflow(FAST, BESIDE, state="Teardown")
    about: dict[str, Any] = {"storages": [nnf_storage()], "accesses": [mounted()]}
    writes = decide(
        view(wf, container_jobs=job("wf-r0", conditions=condition("Complete")), **about)
    )
    assert removed(writes, kinds.BATCH_JOB) == ["default/wf-r0"]
    assert not removed(writes, kinds.NNF_ACCESS)
    assert removed(decide(view(wf, **about)), kinds.NNF_ACCESS)
    writes = decide(view(wf))
    (freed,) = changes(writes, kinds.PORT_MANAGER)
    assert freed == {"spec": {"allocations": []}}
    assert not driver(writes, 9).get("completed")
    assert driver(decide(view(wf, port_manager=read(raw_manager(), NnfPortManager))), 9)[
        "completed"
    ]


def test_a_deleted_workflow_keeps_no_container() -> None:
    gone = workflow(BARE, state="PreRun", metadata={"deletionTimestamp": "2026-01-31T12:00:00Z"})
    writes = decide(view(gone, container_jobs=job("wf-r0", ready=1)))
    assert removed(writes, kinds.BATCH_JOB) == ["default/wf-r0"]


# Storage of all kinds

WIDE: dict[str, Any] = {
    "kind": "NnfContainerProfile",
    "metadata": meta("wide", "nnf-system"),
    "data": {
        "storages": [
            {"name": "DW_JOB_fast"},
            {"name": "DW_PERSISTENT_kept", "optional": True},
            {"name": "DW_GLOBAL_lus", "optional": True},
            {"name": "DW_GLOBAL_ro", "optional": True, "pvcMode": "ReadOnlyMany"},
        ],
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "a",
                    "volumeMounts": [
                        {"name": "nnf-config", "mountPath": "/nnf"},
                        {"name": "fast", "mountPath": "/own"},
                    ],
                }
            ]
        },
    },
}


def lus(*namespaces: str) -> LustreFileSystem:
    spec = {
        "name": "lus",
        "mountRoot": "/lus",
        "namespaces": {each: {"modes": ["ReadWriteMany"]} for each in namespaces},
    }
    return read({"metadata": meta("lus", "lus-system"), "spec": spec}, LustreFileSystem)


def started(kind: str, arguments: str, **more: Any) -> list[Write]:
    """Return what PreRun writes when the jobdw of a type is mounted on the rabbits."""
    container = f"#DW container name=beside profile=wide DW_JOB_fast=fast {arguments}"
    wf = workflow(FAST.replace("gfs2", kind), container, state="PreRun")
    known = {
        "pinned_container_profiles": pinned(WIDE),
        "accesses": [mounted()],
        "storages": [nnf_storage()],
        "nodes": ["n2"],
        **more,
    }
    return decide(view(wf, **known))


@pytest.mark.parametrize(("kind", "words"), [("gfs2", "indexed-mount"), ("lustre", "mount")])
def test_a_container_has_what_its_directive_names_as_rabbits_mount_it(
    kind: str, words: str
) -> None:
    """Statement 001.38: a jobdw.

    Statement 001.43: node-local storage has a directory for each.
    """
    writes = started(kind, "")
    (found,) = made(writes, kinds.BATCH_JOB)
    spec = found["spec"]["template"]["spec"]
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["fast"]["hostPath"]["path"] == "/mnt/nnf/uid-wf-0"
    assert not {"kept", "lus", "ro"} & volumes.keys()
    (config,) = made(writes, kinds.CONFIG_MAP)
    (storage,) = json.loads(config["data"]["storages"])
    assert storage["mountType"] == words


def test_a_profile_may_mount_a_storage_itself() -> None:
    (found,) = made(started("gfs2", ""), kinds.BATCH_JOB)
    (main,) = found["spec"]["template"]["spec"]["containers"]
    places = [each["mountPath"] for each in main["volumeMounts"] if "/own" in each["mountPath"]]
    assert places == ["/own", "/own/r1-0"]
    assert environment(main)["DW_JOB_fast"] == "/own"


def test_persistent_storage_is_mounted_as_well() -> None:
    """Statement 001.39: a persistentdw in a container."""
    use = "#DW persistentdw name=pers"
    container = "#DW container name=beside profile=wide DW_JOB_fast=fast DW_PERSISTENT_kept=pers"
    wf = workflow(FAST, use, container, state="PreRun")
    served = msgspec.structs.replace(
        mounted(), metadata=msgspec.structs.replace(mounted().metadata, name="wf-1-servers")
    )
    known: dict[str, Any] = {
        "pinned_container_profiles": pinned(WIDE, 2),
        "accesses": [mounted(), served],
    }
    writes = decide(view(wf, storages=[nnf_storage()], nodes=["n2"], **known))
    (found,) = made(writes, kinds.BATCH_JOB)
    volumes = {each["name"]: each for each in found["spec"]["template"]["spec"]["volumes"]}
    assert volumes["kept"]["hostPath"]["path"] == "/mnt/nnf/uid-wf-1"


def test_global_file_systems_are_claimed_in_the_profiles_mode() -> None:
    arguments = "DW_GLOBAL_lus=/lus/a DW_GLOBAL_ro=/lus/b"
    writes = started("gfs2", arguments, file_systems=[lus("default")])
    (found,) = made(writes, kinds.BATCH_JOB)
    spec = found["spec"]["template"]["spec"]
    claims = {
        each["name"]: each["persistentVolumeClaim"]["claimName"]
        for each in spec["volumes"]
        if "persistentVolumeClaim" in each
    }
    assert claims == {
        "lus": "lus-lus-system-readwritemany-pvc",
        "ro": "lus-lus-system-readonlymany-pvc",
    }
    assert environment(spec["containers"][0])["DW_GLOBAL_lus"] == "/lus"


@pytest.mark.parametrize("known", [lus("other"), lus()])
def test_a_global_file_system_that_is_not_for_the_namespace_is_refused(
    known: LustreFileSystem,
) -> None:
    status, message = told(started("gfs2", "DW_GLOBAL_lus=/lus/a", file_systems=[known]))
    assert status == "Error"
    assert "/lus/a is no global file system for default" in message


# Small things


def test_what_needs_no_ports_asks_for_none() -> None:
    writes = bare("Setup", port_manager=None)
    assert driver(writes, 1)["completed"]
    assert not changes(writes, kinds.PORT_MANAGER)


def test_ports_that_were_asked_for_are_not_asked_for_again() -> None:
    waits = read(raw_manager(request("wf", 1)), NnfPortManager)
    writes = decide(view(workflow(FAST, BESIDE, state="Setup"), port_manager=waits))
    assert not changes(writes, kinds.PORT_MANAGER)
    assert "waits for ports of its containers" in driver(writes, 6)["message"]


def test_teardown_waits_until_its_ports_are_free() -> None:
    held = manager()
    held = msgspec.structs.replace(held, spec=msgspec.structs.replace(held.spec, allocations=()))
    wf = workflow(BARE, state="Teardown")
    writes = decide(view(wf, port_manager=held))
    assert not changes(writes, kinds.PORT_MANAGER)
    assert "waits until its ports are free" in driver(writes, 4)["message"]


def test_a_workflow_without_containers_looks_at_no_profile() -> None:
    assert not containersteps.may_have_containers([FAST])
    assert containersteps.may_have_containers([FAST, BARE])
