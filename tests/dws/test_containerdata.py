"""Applications that others start: where their storage is, and what is not done for them."""

from typing import Any

from tests.dws import nnf_objects
from tests.dws.builders import made, meta, nnf_storage, workflow
from tests.dws.test_containers import FAST, lus, mounted, pinned, view
from tests.dws.test_driver import driver, told
from tests.rfc.vectors import vector
from warren.directives.parse import parse
from warren.dws import kinds
from warren.dws.containers import containerdata, containerprofiles
from warren.dws.containers.applications import Application, ApplicationStorage
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import Workflow
from warren.dws.workflow.driver import decide

ELSEWHERE: dict[str, Any] = {
    "kind": "NnfContainerProfile",
    "metadata": meta("elsewhere", "nnf-system"),
    "data": {
        "createContainer": False,
        "storages": [
            {"name": "DW_JOB_foo_fast"},
            {"name": "DW_PERSISTENT_kept", "optional": True},
            {"name": "DW_GLOBAL_lus", "optional": True},
        ],
        "spec": {"containers": [{"name": "main", "image": "foo:latest"}]},
    },
}
LEFT = "#DW container name=beside profile=elsewhere DW_JOB_foo_fast=fast"


def seen(state: str, *directives: str, **more: Any) -> Any:
    wf = workflow(*(directives or (FAST, LEFT)), state=state)
    known = {
        "container_profiles": {"elsewhere": ELSEWHERE},
        "pinned_container_profiles": pinned(ELSEWHERE, len(directives) - 1 if directives else 1),
        "accesses": [mounted()],
        "storages": [nnf_storage()],
        "pod_nodes": {},
        **more,
    }
    return decide(view(wf, **known))


def test_others_are_told_where_the_storage_is_and_nothing_is_waited_for() -> None:
    writes = seen("PreRun")
    (data,) = made(writes, kinds.CONTAINER_DATA)
    assert data["metadata"]["name"] == "wf-1"
    assert data["metadata"]["ownerReferences"][0]["uid"] == "uid-wf"
    assert data["data"]["volumes"] == [
        {
            "name": "foo-fast",
            "command": "jobdw",
            "directiveIndex": 0,
            "mountPath": "/mnt/nnf/uid-wf-0",
        }
    ]
    assert len(made(writes, kinds.SERVICE)) == 1
    assert not made(writes, kinds.BATCH_JOB)
    assert driver(writes, 7)["completed"]
    # Before the Workflow says that it is done: a process may die between two writes.
    assert writes[-1].kind == kinds.WORKFLOW
    assert driver(seen("PostRun"), 8)["completed"]


def test_what_they_use_is_mounted_first() -> None:
    writes = seen("PreRun", accesses=[])
    assert made(writes, kinds.NNF_ACCESS)
    assert not made(writes, kinds.CONTAINER_DATA)


def test_no_rabbit_has_to_be_a_node_of_the_cluster_for_them() -> None:
    """In Proposal, where others are refused, too."""
    (copy,) = made(seen("Proposal", pinned_container_profiles={}), kinds.CONTAINER_PROFILE)
    assert copy["data"]["createContainer"] is False


def test_a_workflow_without_compute_nodes_on_rabbits_is_told() -> None:
    status, message = told(seen("PreRun", wiring={}))
    assert status == "Error"
    assert "compute nodes have no rabbit" in message


def test_a_global_file_system_is_not_among_the_data() -> None:
    directive = f"{LEFT} DW_GLOBAL_lus=/lus/a"
    writes = seen("PreRun", FAST, directive, file_systems=[lus("default")])
    (data,) = made(writes, kinds.CONTAINER_DATA)
    assert [each["name"] for each in data["data"]["volumes"]] == ["foo-fast"]


def test_they_are_told_what_the_real_ones_tell() -> None:
    vector("nnf-objects/profiles.json")
    place = nnf_objects.PLACE / "08d-container-nocreate" / "04-PreRun.json"
    found = nnf_objects.dump(place)
    (obj,), (data,), (service,) = (
        found[kind] for kind in ("Workflow", "NnfContainerData", "Service")
    )
    wf = read({**obj, "metadata": {**obj["metadata"], "uid": "uid"}}, Workflow)
    profile = containerprofiles.decode(nnf_objects.profiles("NnfContainerProfile")["con-nocreate"])
    (need,) = [each for each in profile.data.storages if each.name == "DW_JOB_foo_local_storage"]
    application = Application(
        workflow=wf,
        index=1,
        name="con",
        profile=profile,
        storages=[ApplicationStorage(need=need, path="/mnt/nnf/uid-0", allocation_numbers={})],
        nodes_by_rabbit={"rabbit-0": []},
    )
    directives = [parse(text) for text in wf.spec.dw_directives]
    ours = containerdata.make(application, {need.argument: 0}, directives)
    assert ours == {name: data[name] for name in ("metadata", "data")}
    assert application.service()["spec"]["selector"] == service["spec"]["selector"]
    told = {k: v for k, v in wf.status.env.items() if k.startswith("NNF_CONTAINER")}
    assert told.items() <= application.variables().items()
