"""Queues as they stand, and what follows (RFC 33)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from warren.base.errors import UserMistake
from warren.lifecycle import queues
from warren.lifecycle.policy import Queue, QueueLimits
from warren.lifecycle.queues import QueueState, QueueStates
from warren.rfc.errors import BadFormat

TERMS: Mapping[str | None, QueueLimits] = {
    "batch": QueueLimits(name="batch"),
    "debug": QueueLimits(name="debug"),
    "short": QueueLimits(name="short", parent="batch"),
}
ALONE: Mapping[str | None, QueueLimits] = {None: QueueLimits()}


def first(queue_limits: Mapping[str | None, QueueLimits] = TERMS) -> QueueStates:
    return {name: queues.initial_state(name) for name in queue_limits}


def open_() -> QueueStates:
    return queues.change_states(first(), list(TERMS), queues.start_change(True))


def test_named_queues_take_jobs_at_first_and_serve_none() -> None:
    assert all(state.enable and not state.start for state in first().values())
    assert not any(queues.is_eligible(first(), TERMS, name) for name in TERMS)


def test_the_anonymous_queue_serves_its_jobs_at_first() -> None:
    assert first(ALONE) == {None: QueueState()}
    assert queues.is_eligible(first(ALONE), ALONE, None)


def test_a_virtual_queue_waits_for_its_parent() -> None:
    stopped = queues.change_states(open_(), ["batch"], queues.start_change(False, "repair"))

    assert not queues.is_eligible(stopped, TERMS, "short")
    assert queues.status(stopped, TERMS, "short") == {
        "enable": True,
        "start": False,
        "blocked": "parent",
        "parent": "batch",
        "stop_reason": "repair",
    }
    assert queues.is_eligible(stopped, TERMS, "debug")


def test_jobs_of_a_queue_that_is_no_more_are_not_served() -> None:
    assert not queues.is_eligible(open_(), TERMS, "gone")
    assert not queues.is_eligible(open_(), TERMS, None)
    assert not queues.is_eligible(first(ALONE), ALONE, "gone")


def test_a_closed_queue_says_why() -> None:
    closed = queues.change_states(first(), ["debug"], queues.enable_change(False, "we move"))

    assert queues.refusal(closed, "debug") == "job submission to debug is disabled: we move"
    assert queues.refusal(closed, "batch") is None
    assert queues.status(closed, TERMS, "debug")["disable_reason"] == "we move"
    alone = queues.change_states(first(ALONE), [None], queues.enable_change(False))
    assert queues.refusal(alone, None) == "job submission is disabled: no reason was given"


@pytest.mark.parametrize("change", [queues.enable_change, queues.start_change])
def test_a_reason_goes_with_what_it_was_for(change: Any) -> None:
    changed = queues.change_states(open_(), ["batch"], change(False, "because"))

    assert queues.change_states(changed, ["batch"], change(True)) == open_()


def test_a_change_is_of_one_queue_or_expressly_of_all() -> None:
    assert queues.choose(first(), "debug", all_=False) == ["debug"]
    assert queues.choose(first(), None, all_=True) == list(TERMS)
    assert queues.choose(first(ALONE), None, all_=False) == [None]
    with pytest.raises(UserMistake, match="name one of batch, debug, short, or say all"):
        queues.choose(first(), None, all_=False)
    with pytest.raises(UserMistake, match="There is no queue 'x'"):
        queues.choose(first(), "x", all_=True)
    with pytest.raises(UserMistake, match="There is no queue 'x': there are none"):
        queues.choose(first(ALONE), "x", all_=False)


# Restarts


def test_the_checkpoint_is_written_as_flux_writes_it() -> None:
    closed = queues.change_states(open_(), ["debug"], queues.enable_change(False, "we move"))

    assert queues.encode(closed) == {
        "version": 1,
        "queue": [
            {"name": "batch", "enable": True, "start": True},
            {"name": "debug", "enable": False, "start": True, "disable_reason": "we move"},
            {"name": "short", "enable": True, "start": True},
        ],
    }
    assert queues.encode(first(ALONE))["queue"] == [{"enable": True, "start": True}]


def test_queues_that_come_are_new_and_those_that_go_are_forgotten() -> None:
    restored = queues.decode(queues.encode(open_()), ["batch", "other"])

    assert restored == {"batch": QueueState(), "other": queues.initial_state("other")}
    assert queues.decode(queues.encode(open_()), [None]) == {None: QueueState()}


@pytest.mark.parametrize(
    "checkpoint",
    [
        None,
        [],
        {},
        {"version": 2, "queue": []},
        {"version": 1},
        {"version": 1, "queue": [5]},
        {"version": 1, "queue": [{"enable": True}]},
        {"version": 1, "queue": [{"enable": True, "start": 1}]},
        {"version": 1, "queue": [{"enable": True, "start": True, "name": 5}]},
        {"version": 1, "queue": [{"enable": True, "start": True, "stop_reason": None}]},
    ],
)
def test_a_checkpoint_that_is_none_is_refused(checkpoint: Any) -> None:
    with pytest.raises(BadFormat, match="checkpoint of the queues"):
        queues.decode(checkpoint, ["batch"])


class Restarts(RuleBasedStateMachine):
    """Queues are opened and closed, started and stopped, for ever or for this life."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.kept = first()
        self.closed: dict[str, bool] = dict.fromkeys(["batch", "debug", "short"], False)
        self.stopped: dict[str, bool] = dict.fromkeys(self.closed, True)
        self.lasting = dict(self.stopped)

    names = st.sampled_from(["batch", "debug", "short", None])

    @rule(name=names, enable=st.booleans())
    def enable(self, name: str | None, enable: bool) -> None:
        chosen = queues.choose(self.now, name, all_=name is None)
        change = queues.enable_change(enable, "why")
        self.now, self.kept = (
            queues.change_states(each, chosen, change) for each in (self.now, self.kept)
        )
        self.closed |= dict.fromkeys([name] if name else self.closed, not enable)

    @rule(name=names, start=st.booleans(), keep=st.booleans())
    def start(self, name: str | None, start: bool, keep: bool) -> None:
        chosen = queues.choose(self.now, name, all_=name is None)
        change = queues.start_change(start, "why")
        self.now = queues.change_states(self.now, chosen, change)
        self.stopped |= dict.fromkeys([name] if name else self.stopped, not start)
        if keep:
            self.kept = queues.change_states(self.kept, chosen, change)
            self.lasting |= dict.fromkeys([name] if name else self.stopped, not start)

    @rule()
    def restart(self) -> None:
        self.now = self.kept = queues.decode(
            json.loads(json.dumps(queues.encode(self.kept))), TERMS
        )
        self.stopped = dict(self.lasting)

    @invariant()
    def jobs_come_in_where_nobody_has_closed(self) -> None:
        for name, closed in self.closed.items():
            assert (queues.refusal(self.now, name) is not None) is closed

    @invariant()
    def jobs_are_served_where_nobody_has_stopped(self) -> None:
        for name, stopped in self.stopped.items():
            waits = stopped or (name == "short" and self.stopped["batch"])
            assert queues.is_eligible(self.now, TERMS, name) is not waits
            assert queues.status(self.now, TERMS, name)["start"] is not waits


TestRestarts = Restarts.TestCase
TestRestarts.settings = settings(max_examples=50, deadline=None)


# Nodes

HOSTS = ["n0", "n1", "n2"]


def test_the_nodes_of_a_queue_have_its_property() -> None:
    configured = {
        "batch": Queue(hosts="n[0-1]"),
        "debug": Queue(requires=("x",)),
        "short": Queue(parent="batch"),
    }

    assert queues.hosts_by_property(configured, {"fast": "n2,n0"}, HOSTS) == {
        "fast": {"n0", "n2"},
        "+batch": {"n0", "n1"},
    }


@pytest.mark.parametrize(
    ("configured", "given", "words"),
    [
        ({"a": Queue(hosts="n[2-3]")}, {}, "queues.a.hosts names 'n3', which is no node"),
        ({}, {"fast": "m1"}, "resource.properties.fast names 'm1', which is no node"),
    ],
)
def test_nodes_that_are_not_there_are_refused_with_the_path(
    configured: dict[str, Queue], given: dict[str, str], words: str
) -> None:
    with pytest.raises(UserMistake, match=words):
        queues.hosts_by_property(configured, given, HOSTS)
