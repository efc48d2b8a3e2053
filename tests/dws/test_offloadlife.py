"""What is done in each state of a Workflow for copies that its running job asks for."""

from typing import Any, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from tests.dws.builders import (
    after,
    changes,
    computes,
    made,
    movement,
    nnf_access,
    nnf_storage,
    workflow,
)
from tests.dws.test_containerauth import KEY, key_secret
from tests.dws.test_driver import seen, told
from tests.dws.test_offload import FAST, ON, SERVICE
from warren.base.objects import Change, Write
from warren.dws import kinds, labels
from warren.dws.containerauth import TokenSecrets
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.offload import movements
from warren.dws.workflow.driver import decide, needs_live_read
from warren.dws.workflow.workflowsnapshot import WorkflowSnapshot

T = TypeVar("T", NnfAccess, NnfDataMovement)

COPY_OUT = "#DW copy_out source=$DW_JOB_fast/out destination=/lus/results"
PLAIN = "#DW jobdw type=xfs capacity=1GiB name=plain"
USE = "#DW persistentdw name=kept"


def view(*directives: str, state: str, **more: Any) -> WorkflowSnapshot:
    options = {name: more.pop(name) for name in ("desired", "ready", "status") if name in more}
    wf = workflow(*directives, state=state, **{"status": ON, **options})
    storages = [nnf_storage(("r0", 1), index=index, ready=True) for index in range(len(directives))]
    known = {"storages": storages, "offload_service": SERVICE, **more}
    return replace(seen(wf, **known), computes=computes("n0"))


def labelled(obj: T, **carried: str) -> T:
    """Return an object that carries labels besides."""
    return after(obj, [Change(kind=kinds.NNF_ACCESS, key=obj.metadata.key,
                              patch={"metadata": {"labels": carried}})])  # fmt: skip


def mounted(clients: str, index: int = 0, until: str = "Teardown") -> NnfAccess:
    found = nnf_access(clients, index=index, state="mounted", ready=True)
    return labelled(found, **{labels.TEARDOWN_STATE: until})


def asked(number: int = 0, **status: Any) -> NnfDataMovement:
    found = movement(0, number=number, **status)
    name = f"{movements.name_prefix(seen(workflow()).workflow)}{number}"
    return msgspec.structs.replace(
        found, metadata=msgspec.structs.replace(found.metadata, name=name)
    )


def driver(writes: list[Write], index: int, state: str) -> Any:
    """Return what is written of the work of a directive in a state."""
    (patch,) = changes(writes, kinds.WORKFLOW)
    (found,) = (
        each
        for each in patch["status"]["drivers"]
        if (each["watchState"], each["dwdIndex"]) == (state, index)
    )
    return found


def environment(writes: list[Write]) -> Any:
    (patch,) = changes(writes, kinds.WORKFLOW)
    return patch["status"].get("env", {})


def test_setup_makes_the_token_although_there_is_no_container() -> None:
    begun = decide(view(FAST, state="Setup", token_secrets=TokenSecrets(new_key=KEY)))
    (first,) = made(begun, kinds.SECRET)
    assert first["metadata"]["name"] == "wf-token-server"
    assert told(begun) == ("DriverWait", "DW Directive 0: waits for the key of its token")
    (second,) = made(
        decide(view(FAST, state="Setup", token_secrets=TokenSecrets(key=key_secret()))),
        kinds.SECRET,
    )
    assert second["metadata"]["name"] == "wf-token"
    there = decide(
        view(FAST, state="Setup", token_secrets=TokenSecrets(key=key_secret(), token=key_secret()))
    )
    (patch,) = changes(there, kinds.WORKFLOW)
    assert patch["status"]["workflowToken"]["secretName"] == "wf-token"
    assert driver(there, 0, "Setup")["completed"]


def test_persistent_storage_is_used_with_a_token_that_was_made() -> None:
    directive = f"{USE} requires=copy-offload"
    begun = decide(view(directive, state="Setup", token_secrets=TokenSecrets(new_key=KEY)))
    assert [each["metadata"]["name"] for each in made(begun, kinds.SECRET)] == ["wf-token-server"]


def test_a_job_that_asks_for_no_copies_has_no_token_for_them() -> None:
    plain = decide(view(FAST.partition(" requires")[0], state="Setup", status={}))
    assert driver(plain, 0, "Setup")["completed"]
    assert made(plain, kinds.SECRET) == []


def test_in_prerun_rabbits_mount_beside_the_compute_nodes_and_tasks_find_the_service() -> None:
    first = decide(view(FAST, state="PreRun"))
    (computing,) = made(first, kinds.NNF_ACCESS)
    assert computing["metadata"]["name"] == "wf-0-computes"
    second = decide(view(FAST, state="PreRun", accesses=[mounted("computes")]))
    (serving,) = made(second, kinds.NNF_ACCESS)
    assert serving["metadata"]["name"] == "wf-0-servers"
    assert serving["metadata"]["labels"][labels.TEARDOWN_STATE] == "Teardown"
    assert not driver(second, 0, "PreRun")["completed"]
    last = decide(view(FAST, state="PreRun", accesses=[mounted("computes"), mounted("servers")]))
    assert driver(last, 0, "PreRun")["completed"]
    assert environment(last) == {
        "DW_JOB_fast": "/mnt/nnf/uid-wf-0",
        "DW_JOB_GFS2": "/mnt/nnf/uid-wf-0",
        "DW_JOBS": "fast:/mnt/nnf/uid-wf-0",
        "NNF_CONTAINER_LAUNCHER": "rabbit-0",
        "NNF_CONTAINER_PORTS": "4000",
        "TLS_CERT_PATH": "/etc/cert.pem",
    }


def test_what_rabbits_have_mounted_for_a_copy_in_stays_mounted() -> None:
    held = [mounted("computes"), mounted("servers", until="PreRun")]
    (kept,) = changes(decide(view(FAST, state="PreRun", accesses=held)), kinds.NNF_ACCESS)
    assert kept["spec"] == {"desiredState": "mounted", "teardownState": "Teardown"}


def test_an_xfs_of_the_job_is_its_compute_nodes_alone() -> None:
    accesses = [mounted("computes"), mounted("servers"), mounted("computes", 1)]
    writes = decide(view(FAST, PLAIN, state="PreRun", accesses=accesses))
    assert made(writes, kinds.NNF_ACCESS) == []
    assert driver(writes, 1, "PreRun")["completed"]


def test_where_there_is_no_service_nothing_is_mounted_for_it() -> None:
    writes = decide(
        view(FAST, state="PreRun", accesses=[mounted("computes")], offload_service=None)
    )
    assert driver(writes, 0, "PreRun")["completed"]
    assert made(writes, kinds.NNF_ACCESS) == []
    assert "NNF_CONTAINER_PORTS" not in environment(writes)


GONE = nnf_access("computes", "unmounted", state="unmounted", ready=True)
DONE = {"state": "Finished", "status": "Success"}
CANCELLED = {"state": "Finished", "status": "Cancelled"}
FAILED: dict[str, Any] = {"state": "Finished", "status": "Failed", "message": "/a: no such file"}


def ending(*movements: NnfDataMovement, **more: Any) -> list[Write]:
    known = {"accesses": [GONE, mounted("servers")], **more}
    return decide(view(FAST, state="PostRun", movements=movements, **known))


def test_postrun_waits_for_the_copies_that_go_on_when_nodes_have_unmounted() -> None:
    going_on = asked(1, state="Running")
    busy = ending(going_on, accesses=[mounted("computes")])
    (change,) = changes(busy, kinds.NNF_ACCESS)
    assert change["spec"] == {"desiredState": "unmounted"}
    assert driver(busy, 0, "PostRun")["message"] == "pending unmount"
    writes = ending(asked(0, **DONE), going_on, asked(2, **FAILED))
    assert driver(writes, 0, "PostRun")["message"] == "1 data movements to finish"
    assert not driver(writes, 0, "PostRun")["completed"]


def test_copies_that_have_ended_well_or_were_cancelled_end_postrun() -> None:
    assert driver(ending(asked(0, **DONE), asked(1, **CANCELLED)), 0, "PostRun")["completed"]
    assert driver(ending(), 0, "PostRun")["completed"]


@pytest.mark.parametrize("status", ["Failed", "Invalid"])
def test_a_copy_that_has_failed_fails_the_job_in_postrun(status: str) -> None:
    writes = ending(asked(0, **DONE), asked(1, **{**FAILED, "status": status}))
    words = "DW Directive 0: User error: data movement failed: /a: no such file"
    assert told(writes) == ("Error", words)
    full = {**FAILED, "status": status, "message": "/b: No space left on device"}
    assert told(ending(asked(0, **full)))[1].endswith("failed: /a: /b: No space left on device")


def test_a_copy_of_a_directive_that_has_failed_is_not_postruns_matter() -> None:
    assert driver(ending(movement(1, **FAILED)), 0, "PostRun")["completed"]


def test_the_api_is_asked_before_postrun_says_that_no_copy_is_left() -> None:
    """What an informer tells may be older than the last request of a job's task."""
    ended = view(FAST, state="PostRun", accesses=[GONE])
    assert needs_live_read(ended)
    assert needs_live_read(view(FAST, state="PreRun", desired="PostRun", ready=True))
    going_on = view(FAST, state="PostRun", accesses=[GONE], movements=[asked(state="Running")])
    assert not needs_live_read(going_on)
    assert not needs_live_read(view(FAST, state="PostRun", ready=True))
    assert not needs_live_read(view(FAST, state="PreRun"))
    assert not needs_live_read(view(PLAIN, state="PostRun", status={}))


def test_dataout_finds_the_storage_mounted_still() -> None:
    writes = decide(view(FAST, COPY_OUT, state="DataOut", accesses=[GONE, mounted("servers")]))
    assert changes(writes, kinds.NNF_ACCESS) == []
    assert made(writes, kinds.NNF_DATA_MOVEMENT)
