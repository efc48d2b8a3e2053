"""Which containers are asked to end, and how."""

from typing import Any

import pytest

from tests.dws.builders import meta, workflow
from tests.dws.test_containers import BARE, BARE_PROFILE, condition, job
from warren.base.objects import Object
from warren.dws import containerprofiles, shutdowns
from warren.dws.shutdowns import AskShutdown

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


def asked(jobs: Any, profile: Object = TWO, **more: Any) -> list[AskShutdown]:
    wf = workflow(BARE, **{"state": "PostRun", **more})
    found = containerprofiles.of(profile)
    return shutdowns.decide(wf, found, [*jobs.values()], PORTS[: found.ports], node)


def test_each_container_is_asked_at_its_first_port_on_each_rabbit() -> None:
    found = asked({**job("wf-r0", ready=1), **job("wf-r1", ready=1)})
    assert [(each.rabbit, each.address, each.port) for each in found] == [
        ("r0", "127.0.0.9", 5000),
        ("r0", "127.0.0.9", 5002),
        ("r1", "127.0.0.9", 5000),
        ("r1", "127.0.0.9", 5002),
    ]


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


def test_a_token_is_sent_along_where_there_is_one() -> None:
    """dws-spec section 12.4."""
    assert shutdowns.headers("a.b.c") == {
        "Authorization": "Bearer a.b.c",
        "X-Auth-Type": "XOAUTH2",
    }
    assert shutdowns.headers(None) == {}
    assert shutdowns.BODY == {"message": "shutdown"}
