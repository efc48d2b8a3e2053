"""What the log says of drained nodes, and what is written into it next."""

from collections.abc import Mapping
from typing import Any

import pytest

from warren.base.errors import UserMistake
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.scheduling import drains
from warren.scheduling.drains import Drain, Drains, NodeState

HOSTS = {0: "n0", 1: "n1", 2: "n2", 3: "n3"}


def after(*events: tuple[str, Mapping[str, Any]], hosts: Mapping[int, str] = HOSTS) -> Drains:
    """Replay events, each a second after the one before."""
    found: Drains = {}
    for second, (name, context) in enumerate(events, start=1):
        found = drains.update_drains(found, Event(float(second), name, context), hosts)
    return found


def drained(nodes: str, reason: str = "", overwrite: int = 0) -> tuple[str, Mapping[str, Any]]:
    return "drain", {"nodelist": nodes, "reason": reason, "overwrite": overwrite}


def undrained(nodes: str) -> tuple[str, Mapping[str, Any]]:
    return "undrain", {"nodelist": nodes}


# Targets


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("2", (2,)),
        ("0,2-3", (0, 2, 3)),
        ("[0-1]", (0, 1)),
        ("n2", (2,)),
        ("n[3,0]", (0, 3)),
        ("n1,n1", (1,)),
    ],
)
def test_nodes_are_named_by_rank_or_by_name(text: str, ranks: tuple[int, ...]) -> None:
    assert drains.parse_targets(text, HOSTS) == ranks


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("4", "There is no node 4 here"),
        ("n[3-5]", r"There is no node n\[4-5\] here"),
        ("n1,other", "There is no node other here"),
        ("", "'' names no node"),
        (",", "',' names no node"),
    ],
)
def test_who_names_what_is_not_here_is_told_what_is(text: str, what: str) -> None:
    with pytest.raises(
        UserMistake, match=rf"{what}: name some of n\[0-3\], or of the ranks 0-3\.$"
    ):
        drains.parse_targets(text, HOSTS)


def test_what_is_neither_ranks_nor_names_is_refused() -> None:
    with pytest.raises(BadFormat, match="hostlist"):
        drains.parse_targets("n[0", HOSTS)


# What is written


def test_a_drain_names_its_nodes_in_both_ways_and_its_reason() -> None:
    context = drains.drain_context({}, HOSTS, (1, 2), "bad disk", None)
    assert context == {
        "idset": "1-2",
        "nodelist": "n[1-2]",
        "reason": "bad disk",
        "overwrite": 0,
    }
    assert "reason" not in drains.drain_context({}, HOSTS, (1,), "", None)


def test_a_node_that_is_drained_already_is_not_drained_again_without_a_mode() -> None:
    known = after(drained("n[1-2]"))
    with pytest.raises(UserMistake, match=r"^n\[1-2\] are drained already: "):
        drains.drain_context(known, HOSTS, (0, 1, 2), "again", None)
    with pytest.raises(UserMistake, match=r"^n2 is drained already: "):
        drains.drain_context(known, HOSTS, (2, 3), "again", None)


@pytest.mark.parametrize(
    ("mode", "left"),
    [
        ("update", Drain(1.0, "old")),
        ("overwrite", Drain(1.0, "new")),
        ("force-overwrite", Drain(2.0, "new")),
    ],
)
def test_a_mode_says_what_becomes_of_a_node_that_is_drained_already(mode: str, left: Drain) -> None:
    known = after(drained("n1", "old"))
    context = drains.drain_context(known, HOSTS, (1, 2), "new", mode)

    found = drains.update_drains(known, Event(2.0, "drain", context), HOSTS)

    assert found == {1: left, 2: Drain(2.0, "new")}


def test_an_update_adds_a_reason_where_there_was_none_and_keeps_the_moment() -> None:
    assert after(drained("n1"), drained("n1", "found it")) == {1: Drain(1.0, "found it")}


def test_a_reason_can_be_replaced_by_none() -> None:
    assert after(drained("n1", "old"), drained("n1", overwrite=1)) == {1: Drain(1.0)}


def test_a_node_that_is_not_drained_is_not_undrained_but_by_force() -> None:
    known = after(drained("n1"))
    with pytest.raises(UserMistake, match=r"^n\[2-3\] are not drained: "):
        drains.undrain_context(known, HOSTS, (1, 2, 3), "", None)

    assert drains.undrain_context(known, HOSTS, (1, 2), "mended", "force") == {
        "idset": "1-2",
        "nodelist": "n[1-2]",
        "reason": "mended",
    }


def test_a_mode_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UserMistake, match="name one of update, overwrite, force-overwrite"):
        drains.drain_context({}, HOSTS, (1,), "", "force")
    with pytest.raises(UserMistake, match="name one of force"):
        drains.undrain_context({}, HOSTS, (1,), "", "update")


# What is read


def test_a_node_is_drained_from_its_drain_to_its_undrain() -> None:
    assert after(drained("n[0-2]", "all"), undrained("n[0,2-3]")) == {1: Drain(1.0, "all")}


def test_a_node_that_is_drained_anew_is_drained_from_then_on() -> None:
    assert after(drained("n1", "a"), undrained("n1"), drained("n1", "b")) == {1: Drain(3.0, "b")}


def test_a_drain_stays_with_the_node_when_its_rank_changes() -> None:
    told = ("drain", {"idset": "0-1", "nodelist": "n[0-1]", "overwrite": 0})
    assert after(told, hosts={0: "n1", 1: "n2"}) == {0: Drain(1.0)}


def test_events_of_other_things_change_nothing() -> None:
    assert after(drained("n1"), ("restart", {"ranks": "0-3"}), ("resource-define", {})) == {
        1: Drain(1.0)
    }


def test_a_drain_that_names_no_node_is_refused() -> None:
    with pytest.raises(BadFormat, match=r"the event 'drain' at 1\.0 has no nodelist"):
        after(("drain", {"idset": "1"}))


# States


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ("", NodeState.FREE),
        ("used", NodeState.ALLOCATED),
        ("drained used", NodeState.DRAINING),
        ("drained", NodeState.DRAINED),
        ("offline", NodeState.OFFLINE),
        ("offline used", NodeState.OFFLINE),
        ("drained offline", NodeState.DRAINED),
        ("excluded drained offline used", NodeState.EXCLUDED),
    ],
)
def test_of_a_node_that_is_several_things_the_most_lasting_is_told(
    facts: str, state: NodeState
) -> None:
    names = ("excluded", "drained", "offline", "used")
    assert drains.node_state(**{name: name in facts.split() for name in names}) is state


def test_nodes_that_are_excluded_are_not_drained() -> None:
    with pytest.raises(UserMistake, match=r"^n1 is excluded by the configuration, and cannot be"):
        drains.drain_context({}, HOSTS, [0, 1], "", None, excluded=[1])


# Nodes that are gone


def test_nodes_go_and_come_back_and_a_restart_tells_of_all_of_them_anew() -> None:
    gone: frozenset[int] = frozenset()
    for name, context, after in (
        ("offline", {"idset": "0-1"}, {0, 1}),
        ("offline", {"idset": "1-2,9"}, {0, 1, 2}),
        ("drain", {"idset": "3", "nodelist": "n3"}, {0, 1, 2}),
        ("online", {"idset": "1"}, {0, 2}),
        ("restart", {"ranks": "0-3,9", "online": "0-2", "nodelist": "n[0-3,9]"}, {3}),
        ("restart", {"ranks": "0-3", "online": "0-3", "nodelist": "n[0-3]"}, set()),
    ):
        gone = drains.update_offline(gone, Event(1.0, name, context), HOSTS)
        assert gone == after


@pytest.mark.parametrize("context", [{}, {"idset": 1}, {"idset": "x"}])
def test_an_event_that_does_not_say_who_is_gone_is_malformed(context: dict[str, Any]) -> None:
    with pytest.raises(BadFormat):
        drains.update_offline(frozenset(), Event(1.0, "offline", context), HOSTS)
