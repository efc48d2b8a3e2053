"""Which containers are asked to end, and how."""

from typing import Any

import pytest

from tests.dws.builders import meta, workflow
from tests.dws.test_containers import BARE, BARE_PROFILE, condition
from warren.base.objects import Object
from warren.dws.containers import containerprofiles, shutdowns
from warren.dws.containers.shutdowns import ShutdownRequest
from warren.dws.objects.decoding import read
from warren.dws.pods.batchjobs import BatchJob

TWO: dict[str, Any] = {
    **BARE_PROFILE,
    "data": {
        "numPorts": 2,
        "spec": {"containers": [{"name": each, "image": "foo:1"} for each in ("one", "two")]},
    },
}
PORTS = [5000, 5001, 5002, 5003]


def node(name: str) -> Object | None:
    """Return a rabbit's Node; r9 has none."""
    found = [{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": "127.0.0.9"}]
    return {"metadata": meta(name), "status": {"addresses": found}} if name != "r9" else None


def job(name: str, rabbit: str = "", labels: Any = None, **status: Any) -> dict[str, BatchJob]:
    """Return a Job by its name, on the rabbit that it is named after, or on another one."""
    chosen = {"kubernetes.io/hostname": rabbit or name.removeprefix("wf-")}
    raw = {
        "metadata": meta(name, labels=labels or {}),
        "spec": {"template": {"spec": {"nodeSelector": chosen}}},
        "status": status,
    }
    return {name: read(raw, BatchJob)}


def asked(jobs: Any, profile: Object = TWO, **more: Any) -> list[ShutdownRequest]:
    wf = workflow(BARE, **{"state": "PostRun", **more})
    found = containerprofiles.decode(profile)
    return shutdowns.decide(wf, found, [*jobs.values()], PORTS[: found.port_count], node)


def test_each_container_is_asked_at_its_first_port_on_each_rabbit() -> None:
    found = asked({**job("wf-r0", ready=1), **job("wf-r1", ready=1)})
    assert [(each.rabbit, each.address, each.port) for each in found] == [
        ("r0", "127.0.0.9", 5000),
        ("r0", "127.0.0.9", 5002),
        ("r1", "127.0.0.9", 5000),
        ("r1", "127.0.0.9", 5002),
    ]


def test_of_an_mpi_application_the_launcher_is_asked_where_it_runs() -> None:
    """dws-spec section 12.4: a Job's name is that of no rabbit."""
    worker = {"training.kubeflow.org/job-role": "worker"}
    jobs = {
        **job("wf-launcher", "r1", ready=1),
        **job("wf-worker-0", "r0", labels=worker, ready=1),
        **job("wf-worker-1", "r1", labels=worker, ready=1),
    }
    assert [(each.rabbit, each.port) for each in asked(jobs)] == [("r1", 5000), ("r1", 5002)]


@pytest.mark.parametrize("type_", ["Complete", "Failed"])
def test_those_that_have_ended_are_not_asked(type_: str) -> None:
    assert asked(job("wf-r0", conditions=condition(type_))) == []


@pytest.mark.parametrize(
    "more",
    [
        {"state": "PreRun"},
        {"ready": True},
        {"desired": "Teardown"},
        {"metadata": {"deletionTimestamp": "2026-01-31T12:00:00Z"}},
    ],
)
def test_none_is_asked_where_postrun_does_not_wait(more: dict[str, Any]) -> None:
    assert asked(job("wf-r0", ready=1), **more) == []


def test_a_profile_that_does_not_wait_asks_none_and_one_without_ports_cannot() -> None:
    quick = {**TWO, "data": {**TWO["data"], "postRunTimeoutSeconds": 0}}
    assert asked(job("wf-r0", ready=1), quick) == []
    assert asked(job("wf-r0", ready=1), BARE_PROFILE) == []


def test_a_rabbit_whose_address_is_not_known_is_left_out() -> None:
    assert asked(job("wf-r9", ready=1)) == []


def test_of_many_containers_all_have_their_turn() -> None:
    asks = [ShutdownRequest(rabbit=f"r{each}", address="::1", port=5000) for each in range(150)]
    begin, seen = 0, list[ShutdownRequest]()
    for _ in range(3):
        having, begin = shutdowns.next_batch(asks, begin)
        assert len(having) == shutdowns.BATCH_SIZE
        seen += having
    assert seen == [*asks, *asks[:42]]
    few, begin = shutdowns.next_batch(asks[:50], begin)  # others have ended meanwhile
    assert sorted(few, key=asks.index) == asks[:50]
    assert begin == 0


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.9", "https://127.0.0.9:5000/shutdown"),
        ("fd00::1", "https://[fd00::1]:5000/shutdown"),
    ],
)
def test_a_container_is_asked_at_the_address_of_its_rabbit(address: str, url: str) -> None:
    assert shutdowns.url(ShutdownRequest(rabbit="r0", address=address, port=5000)) == url


def test_a_token_is_sent_along_where_there_is_one() -> None:
    """dws-spec section 12.4."""
    assert shutdowns.headers("a.b.c") == {
        "Authorization": "Bearer a.b.c",
        "X-Auth-Type": "XOAUTH2",
    }
    assert shutdowns.headers(None) == {}
    assert shutdowns.BODY == {"message": "shutdown"}
