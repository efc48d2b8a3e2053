"""Ports for containers: who gets which, for how long, and what is said where there are none."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import NOW, meta, workflow
from warren.base.objects import Change, Object, merge_patch
from warren.dws import kinds
from warren.dws.containers import ports
from warren.dws.containers.ports import NnfPortManager, PortSnapshot
from warren.dws.faults import Fault
from warren.dws.objects.decoding import read
from warren.dws.objects.systemconfiguration import SystemConfiguration

MINUTE = 60


def request(name: str, count: int = 1) -> Object:
    requester = {"kind": "Workflow", "name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"requester": requester, "count": count}


def raw(*requests: Object) -> Object:
    return {
        "kind": "NnfPortManager",
        "metadata": meta("nnf-port-manager", "nnf-system"),
        "spec": {"allocations": list(requests)},
    }


def configuration(*said: int | str, **more: Any) -> SystemConfiguration:
    spec = {"ports": list(said), "portsCooldownInSeconds": MINUTE, **more}
    return read({"metadata": meta("default"), "spec": spec}, SystemConfiguration)


def answered(
    obj: Object,
    system: SystemConfiguration | None,
    now: float = NOW,
    gone: Sequence[str] = (),
) -> tuple[Object, float | None]:
    """Return the manager when nothing is left to write, and after how long to look again.

    Requests are their own user's, or that of the letter before a dash.
    """
    delay = None
    for _ in range(9):
        manager = read(obj, NnfPortManager)
        names = {each.requester.name for each in manager.spec.allocations} - {*gone}
        users = {f"uid-{name}": ord(name[0]) for name in names}
        snapshot = PortSnapshot(
            manager=manager, configuration=system, userid_by_workflow_uid=users, now=now
        )
        writes, delay = ports.decide(snapshot)
        if not writes:
            return obj, delay
        (write,) = writes
        assert isinstance(write, Change)
        assert write.kind == kinds.PORT_MANAGER
        obj = merge_patch(obj, write.patch)
    raise AssertionError("it does not come to rest")


def given_out(obj: Object) -> dict[str | None, Any]:
    """Return the answer to each, by name; ports in Cooldown stand under None."""
    return {
        (each.get("requester") or {}).get("name"): list(each.get("ports", ())) or each["status"]
        for each in obj["status"]["allocations"]
    }


def test_ports_are_given_out_in_order_and_no_two_have_the_same() -> None:
    system = configuration(5000, "5010-5012", 5000)
    found, delay = answered(raw(request("a", 2), request("b"), request("c")), system)
    assert given_out(found) == {"a": [5000, 5010], "b": [5011], "c": [5012]}
    assert found["status"]["status"] == "Ready"
    assert delay is None


def test_the_range_of_the_container_rfc_is_one_of_ports() -> None:
    """Statement 001.33: containerHostPortRangeMin and Max."""
    system = configuration(containerHostPortRangeMin=30000, containerHostPortRangeMax=40000)
    found, _ = answered(raw(request("a", 2)), system)
    assert given_out(found) == {"a": [30000, 30001]}


def test_ports_that_were_given_back_are_kept_from_others_for_a_time() -> None:
    system = configuration("5000-5001")
    found, _ = answered(raw(request("a", 2)), system)
    found, delay = answered(merge_patch(found, {"spec": {"allocations": [request("b")]}}), system)
    # It waits: there will be enough.
    assert given_out(found) == {None: [5000, 5001]}
    assert delay == MINUTE
    later, _ = answered(found, system, now=NOW + MINUTE - 1)
    assert given_out(later) == {None: [5000, 5001]}
    later, delay = answered(found, system, now=NOW + MINUTE)
    assert given_out(later) == {"b": [5000]}
    assert delay is None
    at_once = configuration("5000-5001", portsCooldownInSeconds=0)
    found, _ = answered(raw(request("a", 2)), at_once)
    found, _ = answered(merge_patch(found, {"spec": {"allocations": [request("b")]}}), at_once)
    assert given_out(found) == {"b": [5000]}


def test_a_clock_that_was_set_back_makes_no_pause_longer() -> None:
    system, back = configuration("5000-5001"), NOW - 3600
    found, _ = answered(raw(request("a", 2)), system)
    found, _ = answered(merge_patch(found, {"spec": {"allocations": [request("b")]}}), system)
    found, delay = answered(found, system, now=back)
    assert (given_out(found), delay) == ({None: [5000, 5001]}, MINUTE)
    found, delay = answered(found, system, now=back + MINUTE - 1)
    assert (given_out(found), delay) == ({None: [5000, 5001]}, 1)
    found, _ = answered(found, system, now=back + MINUTE)
    assert given_out(found) == {"b": [5000]}


def test_what_a_workflow_has_that_is_gone_is_given_back() -> None:
    system = configuration("5000-5001", portsCooldownInSeconds=0)
    found, _ = answered(raw(request("a", 2)), system)
    found, _ = answered(found, system, gone=["a"])
    assert found["spec"]["allocations"] == []
    assert found["status"]["allocations"] == []


def test_those_who_cannot_have_what_they_ask_for_are_told() -> None:
    few = configuration("5000-5001")
    found, _ = answered(raw(request("a", 3), request("b", 2)), few)
    assert given_out(found) == {"a": "InsufficientResources", "b": [5000, 5001]}
    for said in ([], ["http"], ["9-5"], [0], ["65000-70000"]):
        found, _ = answered(raw(request("a")), configuration(*said))
        assert given_out(found) == {"a": "InvalidConfiguration"}, said
    found, _ = answered(raw(request("a")), None)
    assert found["status"] == {"status": "SystemConfigurationNotFound", "allocations": []}


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 4)), unique_by=lambda e: e[0]),
        max_size=8,
    ),
    st.integers(0, 2),
)
def test_no_port_is_ever_of_two_and_none_is_taken_away(
    rounds: list[list[tuple[str, int]]], cooldown: int
) -> None:
    system = configuration("5000-5007", portsCooldownInSeconds=cooldown)
    found = raw()
    for turn, names in enumerate(rounds):
        known = {each["requester"]["name"]: each for each in found["spec"]["allocations"]}
        wanted = [known.get(name) or request(name, count) for name, count in names]
        before = given_out(found) if turn else {}
        found, _ = answered(
            merge_patch(found, {"spec": {"allocations": wanted}}), system, now=NOW + turn
        )
        dealt = [port for each in found["status"]["allocations"] for port in each.get("ports", ())]
        assert len(dealt) == len(set(dealt))
        assert set(dealt) <= set(range(5000, 5008))
        for name, has in given_out(found).items():
            if name in before and isinstance(before[name], list) and name is not None:
                assert has == before[name]  # nothing is taken away


# A Workflow's side


def test_a_workflow_asks_once_and_gives_back_once() -> None:
    wf = workflow()
    manager = read(raw(request("other")), NnfPortManager)
    change = ports.request_ports(manager, wf, 2)
    assert change is not None
    assert change.resource_version == manager.metadata.resource_version
    asked = read(merge_patch(raw(), change.patch), NnfPortManager)
    assert [each.requester.name for each in asked.spec.allocations] == ["other", "wf"]
    assert ports.request_ports(asked, wf, 2) is None
    assert ports.assigned_ports(asked, wf, 2) == ()
    obj, _ = answered(msgspec.to_builtins(asked), configuration("5000-5005"))
    has = read(obj, NnfPortManager)
    assert list(ports.assigned_ports(has, wf, 2)) == [5001, 5002]
    assert not ports.are_released(has, "uid-wf")
    freed = ports.release_ports(has, "uid-wf")
    assert freed is not None
    obj, _ = answered(merge_patch(obj, freed.patch), configuration("5000-5005"))
    manager = read(obj, NnfPortManager)
    assert ports.are_released(manager, "uid-wf")
    assert ports.release_ports(manager, "uid-wf") is None
    assert ports.release_ports(None, "uid-wf") is None


@pytest.mark.parametrize(
    ("manager", "words"),
    [
        (None, "there is no NnfPortManager nnf-system/nnf-port-manager"),
        (
            answered(raw(request("wf", 9)), configuration(5000))[0],
            "the SystemConfiguration has fewer ports than the 9 that are needed",
        ),
        (
            answered(raw(request("wf", 9)), configuration())[0],
            "the SystemConfiguration has no ports for containers, and 9 are needed",
        ),
        (answered(raw(request("wf", 9)), None)[0], "the NnfPortManager finds no System"),
    ],
)
def test_a_workflow_that_cannot_have_its_ports_says_why(manager: Object | None, words: str) -> None:
    found = read(manager, NnfPortManager) if manager is not None else None
    with pytest.raises(Fault) as raised:
        ports.assigned_ports(found, workflow(), 9)
    assert str(raised.value).startswith(words)


def test_all_ports_that_there_can_be_are_numbers_of_ports() -> None:
    assert ports.available_ports(configuration("1-65535")) == tuple(range(1, 65536))
    for said in ("0-5", "65535-65536"):
        assert ports.available_ports(configuration(said)) is None
    assert ports.available_ports(configuration(7, containerHostPortRangeMin=9)) == (7,)
    assert ports.available_ports(configuration(7, containerHostPortRangeMax=9)) == (7,)


def test_it_is_looked_at_again_when_the_first_of_several_is_free() -> None:
    system = configuration("5000-5003")
    found, _ = answered(raw(request("a"), request("b")), system)
    found, _ = answered(merge_patch(found, {"spec": {"allocations": [request("b")]}}), system)
    found, delay = answered(merge_patch(found, {"spec": {"allocations": []}}), system, now=NOW + 10)
    assert [list(each["ports"]) for each in found["status"]["allocations"]] == [[5000], [5001]]
    assert delay == MINUTE - 10


def test_a_request_waits_only_for_ports_that_will_do() -> None:
    system = configuration("5000-5002")
    found, _ = answered(raw(request("a", 2)), system)
    exactly, _ = answered(merge_patch(found, {"spec": {"allocations": [request("b", 3)]}}), system)
    assert "b" not in given_out(exactly)
    more, _ = answered(merge_patch(found, {"spec": {"allocations": [request("b", 4)]}}), system)
    assert given_out(more)["b"] == "InsufficientResources"


def test_a_request_waits_for_ports_that_another_has() -> None:
    """One user's two containers would fail those of all others, as long as they run."""
    system = configuration("5000-5001", portsCooldownInSeconds=0)
    found, _ = answered(raw(request("a", 2), request("b"), request("c")), system)
    assert given_out(found) == {"a": [5000, 5001]}
    found, _ = answered(found, system, gone=["a"])
    assert given_out(found) == {"b": [5000], "c": [5001]}


def test_a_request_that_waits_is_passed_by_a_smaller_one() -> None:
    system = configuration("5000-5002", portsCooldownInSeconds=0)
    found, _ = answered(raw(request("a", 2), request("b", 2), request("c")), system)
    assert given_out(found) == {"a": [5000, 5001], "c": [5002]}
    found, _ = answered(found, system, gone=["a"])
    assert given_out(found)["b"] == [5000, 5001]


def test_the_user_with_the_fewest_ports_comes_first() -> None:
    """One user's many containers would keep those of all others, though each asks for little."""
    system = configuration("5000-5003", portsCooldownInSeconds=0)
    many = [request(f"a-{number}") for number in range(6)]
    found, _ = answered(raw(*many[:4]), system)
    asked = {"spec": {"allocations": [*many, request("b"), request("c")]}}
    found, _ = answered(merge_patch(found, asked), system, gone=["a-0", "a-1"])
    assert given_out(found) == {"a-2": [5002], "a-3": [5003], "b": [5000], "c": [5001]}
    found, _ = answered(found, system, gone=["a-2", "b", "c"])
    assert given_out(found) == {"a-3": [5003], "a-4": [5000], "a-5": [5001]}


def test_a_request_that_waits_is_not_passed_by_many_of_one_user() -> None:
    system = configuration("5000-5003", portsCooldownInSeconds=0)
    found, _ = answered(raw(*(request(f"a-{number}") for number in range(4))), system)
    asked = [*found["spec"]["allocations"], request("b", 4), request("a-4"), request("c")]
    found = merge_patch(found, {"spec": {"allocations": asked}})
    # Another one's small request may pass; one more of the user for whom it waits may not.
    found, _ = answered(found, system, gone=["a-0", "a-1"])
    assert given_out(found) == {"a-2": [5002], "a-3": [5003], "c": [5000]}
    found, _ = answered(found, system, gone=["a-2", "a-3", "c"])
    assert given_out(found) == {"b": [5000, 5001, 5002, 5003]}


class CountedUsers(dict[str, int]):
    """The users of Workflows, which counts how often one is looked up."""

    count = 0

    def get(self, uid: str, default: Any = None) -> Any:
        self.count += 1
        return super().get(uid, default)


def answered_once(
    system: SystemConfiguration, requests: Sequence[Object], users: dict[str, int]
) -> list[str]:
    """Return who has ports, in the order in which they were given out."""
    manager = read(raw(*requests), NnfPortManager)
    snapshot = PortSnapshot(
        manager=manager, configuration=system, userid_by_workflow_uid=users, now=NOW
    )
    ((write,), _) = ports.decide(snapshot)
    assert isinstance(write, Change)
    answers = write.patch["status"]["allocations"]
    return [each["requester"]["name"] for each in answers if each["status"] == "InUse"]


def test_however_many_requests_wait_each_is_looked_at_once() -> None:
    """One user's queued jobs would keep those of all others waiting for the controller."""
    names = [f"{user}-{number}" for number in range(100) for user in "abc"]
    users = CountedUsers({f"uid-{name}": ord(name[0]) for name in names})
    served = answered_once(configuration("5000-5005"), list(map(request, names)), users)
    assert served == ["a-0", "b-0", "c-0", "a-1", "b-1", "c-1"]
    assert users.count == len(names)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=9))
def test_users_with_the_fewest_ports_come_first_and_of_theirs_the_oldest_request(
    said: list[tuple[str, int]],
) -> None:
    waiting = [request(f"{user}-{number}", count) for number, (user, count) in enumerate(said)]
    users = {each["requester"]["uid"]: ord(each["requester"]["name"][0]) for each in waiting}
    served = answered_once(configuration("5000-5005"), waiting, users)

    held = dict.fromkeys("abc", 0)
    is_passed, free, expected = False, 6, []
    while waiting:
        first = min(waiting, key=lambda each: held[each["requester"]["name"][0]])
        waiting.remove(first)
        name, count = first["requester"]["name"], first["count"]
        if count > free:
            is_passed = True
        elif count and not (is_passed and held[name[0]]):
            expected.append(name)
            held[name[0]] += count
            free -= count
    assert served == expected


def test_others_keep_theirs_when_one_gives_back() -> None:
    found = read(raw(request("other"), request("wf")), NnfPortManager)
    freed = ports.release_ports(found, "uid-wf")
    assert freed is not None
    left = freed.patch["spec"]["allocations"]
    assert [each["requester"]["uid"] for each in left] == ["uid-other"]
    assert ports.are_released(None, "uid-wf")


def test_ports_are_a_workflows_when_they_are_as_many_as_it_needs() -> None:
    found, _ = answered(raw(request("wf", 2)), configuration("5000-5005"))
    manager = read(found, NnfPortManager)
    assert list(ports.assigned_ports(manager, workflow(), 2)) == [5000, 5001]
    assert ports.assigned_ports(manager, workflow(), 3) == ()
    free = merge_patch(
        found,
        {"status": {"allocations": [{**found["status"]["allocations"][0], "status": "Free"}]}},
    )
    assert ports.assigned_ports(read(free, NnfPortManager), workflow(), 2) == ()


def test_only_workflows_are_looked_for() -> None:
    other = {"requester": {"kind": "Pod", "name": "p", "namespace": "n"}, "count": 1}
    nameless = {"requester": {"kind": "Workflow"}, "count": 1}
    found = raw(request("wf"), other, nameless)
    assert [str(each) for each in ports.workflows_of(found)] == ["default/wf"]
