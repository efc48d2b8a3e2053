"""The tables of RFC 21, and that `update` does what they say."""

import re

import pytest
from msgspec.structs import replace

from tests.lifecycle.stories import CONTEXTS, event, job
from tests.rfc.vectors import vector
from warren.lifecycle.job import IllegalEvent, Job, update
from warren.lifecycle.states import (
    ACTIVE,
    ALLOWED,
    ON_FATAL_EXCEPTION,
    PENDING,
    RUNNING,
    TRANSITIONS,
    Result,
    State,
)

PAIRS = [(state, name) for state in State for name in CONTEXTS]


def in_state(state: State) -> Job:
    """Return a job to which every event could come, if its state allowed it."""
    holds = frozenset({"dws-create"})
    return replace(
        job(),
        state=state,
        dependencies=holds if state is State.NEW else frozenset(),
        ever_dependencies=holds,
        prologs=frozenset({"dws-setup"}),
        epilogs=frozenset({"dws-epilog"}),
    )


@pytest.mark.parametrize(("state", "name"), PAIRS)
def test_an_event_leads_where_the_tables_say_or_is_refused(state: State, name: str) -> None:
    before = in_state(state)
    if name == "dependency-remove":
        before = replace(before, dependencies=frozenset({"dws-create"}))
    happens = event(name, now=9.0)

    if state not in ALLOWED.get(name, ACTIVE):
        with pytest.raises(IllegalEvent, match=f"'{name}' does not come in state {state}"):
            update(before, happens)
        return
    table = (
        ON_FATAL_EXCEPTION
        if name == "exception"
        else {state: TRANSITIONS.get((state, name), state)}
    )
    leads_to = table.get(state, state)
    after = update(before, happens)
    assert after.state is leads_to
    assert (after.times.get(leads_to) == 9.0) == (leads_to is not state)


@pytest.mark.parametrize("state", [*State])
def test_an_exception_that_is_not_fatal_leaves_the_state_alone(state: State) -> None:
    warned = event("exception", severity=1)
    if state is not State.INACTIVE:
        assert update(in_state(state), warned).state is state


@pytest.mark.parametrize("name", sorted(CONTEXTS))
def test_nothing_comes_after_the_end(name: str) -> None:
    ended = in_state(State.INACTIVE)
    with pytest.raises(IllegalEvent):
        update(ended, event(name))


def test_the_transitions_are_those_of_the_rfc() -> None:
    graph = vector("rfc/spec_21/states.dot").read_text()

    found = re.findall(r'(\w+) -> (\w+)(?: \[label="([\w-]+)"\])?;?', graph)
    labelled = {(one, label): other for one, other, label in found if label != "exception"}
    named = {(one, label): other for (one, label), other in labelled.items() if label}

    assert {(str(one), name): str(other) for (one, name), other in TRANSITIONS.items()} == named
    assert {str(one): str(other) for one, other in ON_FATAL_EXCEPTION.items()} == {
        one: other for one, other, label in found if label in ("", "exception")
    }


def test_every_state_but_the_last_has_a_way_out_and_the_last_has_none() -> None:
    leaving = {one for one, _ in TRANSITIONS}
    assert leaving == set(State) - {State.INACTIVE}


def test_states_and_results_have_the_bits_and_letters_that_rpcs_and_listings_use() -> None:
    assert [state.bit for state in State] == [1, 2, 4, 8, 16, 32, 64]
    assert "".join(state.letter for state in State) == "NDPSRCI"
    assert [result.bit for result in Result] == [1, 2, 4, 8]
    assert [result.abbreviation for result in Result] == ["CD", "F", "CA", "TO"]
    assert sum(state.bit for state in PENDING) == 14
    assert sum(state.bit for state in RUNNING) == 48
    assert {State.NEW} | PENDING | RUNNING == ACTIVE
