"""Which nodes are wired to which rabbit, as `rabbit.mapping` says it."""

from typing import Any

import pytest

from tests.dws.builders import DEEP, configuration, rabbit
from tests.rfc.vectors import vector
from warren.base.errors import UserMistake
from warren.dws import labels
from warren.dws.objects.assignments import Servers
from warren.dws.objects.decoding import read
from warren.dws.rabbits import rabbitmapping
from warren.dws.rabbits.rabbitmapping import Rabbit, RabbitMapping

FILE = b"""{"computes": {"n1": "r1", "n2": "r1", "n10": "r2"},
 "rabbits": {"r1": {"capacity": 5, "hostlist": "n[1-2]"}, "r2": {"hostlist": "n10"}}}"""


def test_nodes_are_found_by_rabbit_and_rabbits_by_node() -> None:
    mapping = rabbitmapping.parse(FILE, "it")

    assert mapping.computes_of(["r1"]) == ["n1", "n2"]
    assert mapping.rabbits_of(["n2", "n10", "n1"]) == ["r1", "r2"]
    with pytest.raises(UserMistake, match=r"^Could not find rabbit r3: the mapping has r\[1-2\]"):
        mapping.computes_of(["r3"])
    with pytest.raises(UserMistake, match=r"^Could not find compute r1: the mapping has n"):
        mapping.rabbits_of(["r1"])


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"computes": {}}', b'{"computes": 1}', b"\xff", DEEP.encode()]
)
def test_what_is_no_mapping_is_refused_with_its_name(text: bytes) -> None:
    with pytest.raises(UserMistake, match=r"^it is no rabbit mapping: .*: write it anew\.$"):
        rabbitmapping.parse(text, "it")


WIRED = {"r1": ["n1", "n2"], "r2": ["n10"], "r3": []}


def live(*servers: Any, **capacities: int) -> RabbitMapping:
    """Draw up the mapping of a system whose rabbits say these capacities."""
    storages = [rabbit(name, capacity=each) for name, each in capacities.items()]
    return rabbitmapping.mapping_of(configuration(WIRED), storages, servers)


def taken(name: str, **more: Any) -> Servers:
    """Make Servers that have ten allocations of r1, and one of r2."""
    shares = [{"name": "r1", "allocationCount": 10}, {"name": "r2"}]
    sets = [{"label": "xfs", "allocationSize": 3, "storage": shares}] * 2
    metadata = {"name": name, **more}
    return read({"metadata": metadata, "spec": {"allocationSets": sets}}, Servers)


def test_the_mapping_of_a_live_system_is_its_wiring_and_its_capacities() -> None:
    """Statement 000.47: the mapping is written from the live state."""
    mapping = live(r1=500, r2=400)

    assert mapping.computes == {"n1": "r1", "n2": "r1", "n10": "r2"}
    assert mapping.rabbits["r1"] == Rabbit(hostlist="n[1-2]", capacity=500)
    assert mapping.rabbits["r2"] == Rabbit(hostlist="n10", capacity=400)
    assert mapping.computes_by_rabbit() == WIRED


@pytest.mark.parametrize(
    ("said", "capacities"),
    [
        ({"r1": 500, "r2": 0}, [500, 500, 500]),
        ({"r1": 500}, [500, 500, 500]),
        ({"r1": 500, "r2": 400, "r3": 7}, [500, 400, 500]),
        ({"r1": 500, "r2": 400, "other": 900}, [500, 400, 500]),
        ({}, [0, 0, 0]),
    ],
)
def test_a_rabbit_that_says_no_capacity_is_like_the_largest(
    said: dict[str, int], capacities: list[int]
) -> None:
    assert [each.capacity for each in live(**said).rabbits.values()] == capacities


def test_flash_that_others_than_jobs_of_flux_have_is_not_the_schedulers() -> None:
    found = live(taken("other-0"), taken("fluxjob-7-0"), taken("more"), r1=500, r2=10)

    assert [each.capacity for each in found.rabbits.values()] == [380, 0, 500]


def test_persistent_storage_is_not_the_schedulers_whatever_it_is_called() -> None:
    storage = taken("fluxjob-pers", labels={labels.PERSISTENT_NAME: "fluxjob-pers"})

    assert live(storage, r1=500).rabbits["r1"].capacity == 440


@pytest.mark.parametrize(("node", "wired"), [("n10", "r2"), ("n99", "no rabbit")])
def test_nodes_that_a_rabbit_has_against_the_configuration_are_told(node: str, wired: str) -> None:
    storage = rabbit("r1", access={"computes": [{"name": node, "status": "Ready"}]})
    with pytest.raises(UserMistake, match=rf"^Mismatch: Storage r1 has .* {node}, .* to {wired}:"):
        rabbitmapping.mapping_of(configuration(WIRED), [storage], [])


@pytest.mark.parametrize(
    ("computes", "hosts", "words"),
    [
        ({"n1": "r2"}, "n1", "n1 is in the hostlist of r1, and computes says r2"),
        ({}, "n1", "n1 is in the hostlist of r1, and computes says no rabbit"),
        ({"n1": "r1", "n2": "r1"}, "n1", "n2 is in computes, and in no hostlist"),
        ({"n1": "r1"}, "n[1,1]", "a hostlist names a node twice"),
        ({"n1": "r1"}, "n[1", r"rabbits\.r1: hostlist"),
    ],
)
def test_a_mapping_that_contradicts_itself_is_refused(
    computes: dict[str, str], hosts: str, words: str
) -> None:
    mapping = RabbitMapping(computes=computes, rabbits={"r1": Rabbit(hostlist=hosts)})
    with pytest.raises(UserMistake, match=rf"^The rabbit mapping.*: {words}.*: write it anew\.$"):
        mapping.computes_by_rabbit()


def test_mappings_of_real_systems_are_read() -> None:
    """Statement 000.47: by the mappings that come with flux-coral2."""
    for path in vector("coral2/rabbitmapping").iterdir():
        mapping = rabbitmapping.parse(path.read_bytes(), str(path))
        assert sorted(
            host for hosts in mapping.computes_by_rabbit().values() for host in hosts
        ) == sorted(mapping.computes)
