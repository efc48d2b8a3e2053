"""Index mounts: what an application finds in the place of its storage on each rabbit."""

import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.dws.builders import made, nnf_storage, workflow
from tests.dws.test_containers import BESIDE, FAST, FOO, application, mounted, pinned, pod, view
from warren.base.objects import Object
from warren.dws import kinds, labels
from warren.dws.containers import indexmounts
from warren.dws.containers.indexmounts import IndexMount
from warren.dws.workflow.driver import decide

COMPUTES = {"n0": 0, "n1": 1, "n2": 2}


def index(*nodes: str, numbers: dict[str, int] | None = None, is_raw: bool = False) -> IndexMount:
    return indexmounts.index_mount_for("fast", "r0", nodes, numbers or COMPUTES, is_raw=is_raw)


def positions(found: Object) -> list[tuple[str, str]]:
    """Return where containers have parts of volumes, and which."""
    (main,) = found["containers"]
    return [
        (each["mountPath"], each["subPath"])
        for each in main["volumeMounts"]
        if each["name"] in (indexmounts.VOLUME, "foo-fast")
    ]


# On one rabbit


def test_a_nodes_directory_is_found_by_its_position_and_by_its_name() -> None:
    """Statement 001.45: a link for each name.

    Statement 001.46: node-N are relative positions.
    """
    found = index("n0", "n2")
    assert found.allocations == ["r0-0", "r0-2"]
    assert found.links == {"node-0": "r0-0", "node-1": "r0-2", "n0": "node-0", "n2": "node-1"}


def test_where_a_node_has_the_name_of_a_position_the_position_counts() -> None:
    found = index("node-1", "node-2", numbers={"node-1": 0, "node-2": 1})
    assert found.links == {"node-0": "r0-0", "node-1": "r0-1", "node-2": "node-1"}


def test_a_link_is_never_where_an_allocation_is() -> None:
    found = index("r0-0", "n1", numbers={"r0-0": 0, "n1": 1})
    assert "r0-0" not in found.links


def test_a_mount_becomes_those_of_its_parts_below_links_that_nobody_changes() -> None:
    """Statement 001.43: one directory for each compute node."""
    whole = {"name": "fast", "mountPath": "/data/", "readOnly": True}
    assert list(index("n0", "n1").mounts(whole)) == [
        {"name": "nnf-index", "mountPath": "/data", "subPath": "fast", "readOnly": True},
        {"name": "fast", "mountPath": "/data/r0-0", "subPath": "r0-0", "readOnly": True},
        {"name": "fast", "mountPath": "/data/r0-1", "subPath": "r0-1", "readOnly": True},
    ]


def run(script: str, place: Path) -> None:
    """Run what an init container runs, with its volume elsewhere."""
    script = script.replace("/nnf-index", str(place / "nnf-index"))
    subprocess.run(["/bin/sh", "-c", script], check=True, cwd=place)


@pytest.mark.parametrize("is_raw", [False, True])
def test_the_script_makes_the_links_and_what_is_mounted_at_and_may_be_repeated(
    tmp_path: Path, is_raw: bool
) -> None:
    script = index("n0", "n2", is_raw=is_raw).script()
    run(script, tmp_path)
    run(script, tmp_path)
    own = tmp_path / "nnf-index" / "fast"
    assert sorted(os.listdir(own)) == ["n0", "n2", "node-0", "node-1", "r0-0", "r0-2"]
    assert (own / "n2").resolve() == own / "r0-2"
    assert (own / "r0-2").is_file() is is_raw
    assert os.readlink(own / "n2") == "node-1"


def test_no_name_is_read_as_a_command(tmp_path: Path) -> None:
    name = "$(touch out); touch out"
    run(index(name, numbers={name: 0}).script(), tmp_path)
    assert not list(tmp_path.rglob("out"))


def test_a_link_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "nnf-index").write_text("")
    with pytest.raises(subprocess.CalledProcessError):
        run(index("n0").script(), tmp_path)


# In pods


def test_another_rabbits_container_sees_another_number_of_nodes() -> None:
    """Statement 001.47: rabbits have different numbers of compute nodes."""
    many = [f"n{number}" for number in range(16)]
    nodes = {"r0": many, "r1": ["n16"]}
    numbers = {**{node: number for number, node in enumerate(many)}, "n16": 0}
    (volume,) = application().storages
    found = application(
        nodes_by_rabbit=nodes,
        storages=[msgspec.structs.replace(volume, allocation_numbers=numbers)],
    )
    assert len(positions(pod(found, 0))) == 17
    assert positions(pod(found, 1)) == [("/foo/fast", "foo-fast"), ("/foo/fast/r1-0", "r1-0")]


def test_the_links_are_made_before_the_application_starts() -> None:
    found = pod(application())
    (init,) = found["initContainers"]
    assert {"name": "nnf-index", "mountPath": "/nnf-index"} in init["volumeMounts"]
    assert "ln -sfn node-1 n1" in init["command"][2]
    assert {"name": "nnf-index", "emptyDir": {}} in found["volumes"]


def test_storage_without_directories_of_nodes_is_mounted_whole() -> None:
    (volume,) = application().storages
    whole = type(volume)(need=volume.need, path=volume.path)
    found = pod(application(storages=[whole]))
    assert {"name": "foo-fast", "mountPath": "/foo/fast"} in found["containers"][0]["volumeMounts"]
    assert "nnf-index" not in str(found)


def test_a_mount_of_a_part_is_left_as_its_profile_has_it() -> None:
    own = {"name": "foo-fast", "mountPath": "/part", "subPathExpr": "$(NNF_NODE_NAME)-0"}
    container = {**FOO["data"]["spec"]["containers"][0], "volumeMounts": [own]}
    data = {**FOO["data"], "spec": {"containers": [container]}}
    assert own in pod(application({**FOO, "data": data}))["containers"][0]["volumeMounts"]


# Which allocation is whose


def started(*directives: str, **more: Any) -> list[Object]:
    """Return the pods that PreRun makes, by rabbit."""
    wf = workflow(*directives, state="PreRun", metadata=more.pop("metadata", {}))
    known = {"accesses": [mounted()], "storages": [nnf_storage()], **more}
    jobs = made(decide(view(wf, **known)), kinds.BATCH_JOB)
    return [job["spec"]["template"]["spec"] for job in jobs]


def test_a_jobs_nodes_have_the_allocations_of_their_rabbit_in_their_order() -> None:
    first, second = started(FAST, BESIDE, nodes=["n2", "n1"], positions={"n1": 1, "n2": 0})
    assert [part for _, part in positions(first)] == ["foo-fast", "r0-0"]
    assert [part for _, part in positions(second)] == ["foo-fast", "r1-0"]


def test_a_node_that_is_lost_has_none() -> None:
    gone = {"annotations": {labels.LOST_NODES: "n0"}}
    first, _ = started(FAST, BESIDE, metadata=gone)
    assert [part for _, part in positions(first)] == ["foo-fast", "r0-1"]
    assert "ln -sfn r0-1 node-0" in first["initContainers"][0]["command"][2]
    assert " n0" not in first["initContainers"][0]["command"][2]


def test_of_persistent_storage_a_node_has_what_is_always_its_own() -> None:
    use = "#DW persistentdw name=fast"
    container = (
        "#DW container name=beside profile=foo DW_JOB_foo-fast=other DW_PERSISTENT_kept=fast"
    )
    job = FAST.replace("fast", "other")
    name = "wf-1-servers"
    (found,) = started(
        job,
        use,
        container,
        nodes=["n1"],
        pinned_container_profiles=pinned(index=2),
        accesses=[mounted(), replace(mounted(), metadata=replace(mounted().metadata, name=name))],
    )
    (main,) = found["containers"]
    kept = [each for each in main["volumeMounts"] if each["mountPath"].startswith("/kept")]
    assert [each["subPath"] for each in kept] == ["kept", "r0-1"]
