"""Constraints on jobs: which jobs a listing is about (RFC 43)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.lifecycle.job import Job, JobException
from warren.lifecycle.selection import Selection, TooManyComparisons, result_bits, state_bits
from warren.lifecycle.states import Result, State
from warren.rfc import jobspec, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId


@dataclass(frozen=True)
class Sample:
    job: Job
    jobspec: Mapping[str, Any]
    r: Mapping[str, Any] | None = None


def sample(
    state: State = State.SCHED,
    *,
    userid: int = 1,
    name: str = "app",
    queue: str | None = None,
    result: Result = Result.COMPLETED,
    ranks: tuple[int, ...] = (),
) -> Sample:
    """A job that has been in every state up to `state`: the one at 10, the next at 20, ..."""
    canceled = JobException(type="cancel", severity=0, note="")
    attributes = {} if queue is None else {"queue": queue}
    reached = list(State)[: list(State).index(state) + 1]
    has = [resource_set.NodeResources(rank, f"n{rank}", (0,)) for rank in ranks]
    return Sample(
        Job(
            id=JobId(1),
            userid=userid,
            urgency=16,
            state=state,
            started=result is not Result.CANCELED,
            wait_status=None if result is Result.CANCELED else int(result is Result.FAILED) << 8,
            exceptions=(canceled,) if result is Result.CANCELED else (),
            times={each: 10.0 * (number + 1) for number, each in enumerate(reached)},
        ),
        jobspec.make(["app"], name=name, attributes=attributes),
        resource_set.encode_nodes(has) if has else None,
    )


def selects(constraint: Any, each: Sample) -> bool:
    return Selection(constraint, 1000).selects(each)


RUNS = sample(State.RUN, userid=7, name="solver", queue="batch", ranks=(2, 3))


@pytest.mark.parametrize(
    ("constraint", "selected"),
    [
        (None, True),
        ({}, True),
        ({"userid": [7]}, True),
        ({"userid": [5, 6]}, False),
        ({"userid": [-1]}, True),
        ({"userid": [4294967295]}, True),
        ({"name": ["a", "solver"]}, True),
        ({"name": ["solv"]}, False),
        ({"queue": ["batch"]}, True),
        ({"queue": []}, False),
        ({"states": ["run"]}, True),
        ({"states": ["RUN"]}, True),
        ({"states": ["r"]}, True),
        ({"states": ["running"]}, True),
        ({"states": ["active"]}, True),
        ({"states": ["pending", "inactive"]}, False),
        ({"states": [16]}, True),
        ({"states": [8, 64]}, False),
        ({"states": [8 | 16]}, True),
        ({"results": ["completed"]}, False),
        ({"hostlist": ["n[0-2]"]}, True),
        ({"hostlist": ["n0", "n3"]}, True),
        ({"hostlist": ["n4"]}, False),
        ({"ranks": ["0,3"]}, True),
        ({"ranks": ["4-9"]}, False),
        ({"t_submit": [">=10"]}, True),
        ({"t_submit": [">10"]}, False),
        ({"t_run": ["<= 50.0"]}, True),
        ({"t_run": ["<50.0"]}, False),
        ({"t_cleanup": [">0"]}, False),
        ({"t_inactive": ["<1e9"]}, False),
        ({"and": []}, True),
        ({"or": []}, True),
        ({"not": []}, False),
        ({"not": [{"userid": [7]}, {"name": ["x"]}]}, True),
        ({"and": [{"userid": [7]}, {"or": [{"name": ["x"]}, {"queue": ["batch"]}]}]}, True),
    ],
)
def test_a_job_is_told_from_others(constraint: Any, selected: bool) -> None:
    assert selects(constraint, RUNS) is selected


@pytest.mark.parametrize("result", [Result.COMPLETED, Result.FAILED, Result.CANCELED])
def test_jobs_that_are_over_are_told_apart_by_their_results(result: Result) -> None:
    over = sample(State.INACTIVE, result=result)

    for name in (result.value, result.lower(), result.abbreviation, result.bit):
        assert selects({"results": [name]}, over)
        assert not selects({"not": [{"results": [name]}]}, over)
    assert selects({"results": [15]}, over)
    assert not selects({"results": [15 & ~result.bit]}, over)


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ([], "constraint is not an object"),
        ({"userid": [1], "name": ["a"]}, "constraint holds several operators"),
        ({"colour": []}, "constraint.colour is not an operator: they are and, or, not, userid"),
        ({"and": {}}, "constraint.and is not a list"),
        ({"and": [{"not": [{"x": []}]}]}, "constraint.and[0].not[0].x is not an operator"),
        ({"userid": ["me"]}, "constraint.userid[0] is not a user's number"),
        ({"userid": [True]}, "constraint.userid[0] is not a user's number"),
        ({"name": ["a", 5]}, "constraint.name[1] is not a string"),
        ({"queue": [None]}, "constraint.queue[0] is not a string"),
        ({"states": ["runs"]}, "constraint.states[0]: 'runs' is no state of a job: they are new"),
        ({"states": [1.5]}, "constraint.states[0] is neither a name nor bits"),
        ({"results": ["bad"]}, "constraint.results[0]: 'bad' is no result of a job"),
        ({"hostlist": ["n[0"]}, "constraint.hostlist[0]: "),
        ({"hostlist": ["n[0-9999]"]}, "constraint.hostlist[0]: "),
        ({"hostlist": [5]}, "constraint.hostlist[0] is not a string"),
        ({"ranks": ["a"]}, "constraint.ranks[0]: "),
        ({"t_run": []}, "constraint.t_run is not a list of one string"),
        ({"t_run": [">1", "<2"]}, "constraint.t_run is not a list of one string"),
        ({"t_run": ["5"]}, "constraint.t_run[0] '5' begins with none of >=, <=, >, <"),
        ({"t_run": [">soon"]}, "constraint.t_run[0] '>soon' names no moment"),
        ({"t_run": [">-5"]}, "constraint.t_run[0] '>-5' names no moment"),
        ({"t_run": [">nan"]}, "constraint.t_run[0] '>nan' names no moment"),
    ],
)
def test_a_mistake_is_told_with_its_path(bad: Any, told: str) -> None:
    with pytest.raises(BadFormat) as caught:
        Selection(bad, 1000)

    assert str(caught.value).startswith(told)


def test_nests_without_end_are_refused() -> None:
    nest: dict[str, Any] = {}
    for _ in range(200):
        nest = {"not": [nest]}

    with pytest.raises(BadFormat, match="is nested more than 100 deep"):
        Selection(nest, 1000)


def test_all_the_nodes_that_a_constraint_names_are_counted_together() -> None:
    many = {"hostlist": ["n[0-999]"]}
    Selection({"or": [many] * 4}, 1)

    with pytest.raises(
        BadFormat, match=r"constraint\.or\[4\]\.hostlist\[0\]: .*more than 96 hosts"
    ):
        Selection({"or": [many] * 5}, 1)


def test_each_look_at_a_value_is_a_comparison_and_the_order_decides_how_many_there_are() -> None:
    batch, nobody = {"queue": ["batch"]}, {"userid": [5]}
    for constraint, taken in (({"and": [batch, nobody]}, 2), ({"and": [nobody, batch]}, 1)):
        selection = Selection(constraint, 2 * taken)
        assert not selection.selects(RUNS)
        assert not selection.selects(RUNS)
        with pytest.raises(TooManyComparisons, match=f"more than {2 * taken} comparisons"):
            selection.selects(RUNS)


def test_names_of_states_and_results_are_those_of_flux() -> None:
    assert [state_bits(name) for name in ("pending", "running", "active")] == [14, 48, 62]
    assert [state_bits(state) for state in State] == [1, 2, 4, 8, 16, 32, 64]
    assert [result_bits(name) for name in ("CD", "f", "ca", "TO")] == [1, 2, 4, 8]


# Against an oracle

JOBS = [
    sample(state, userid=userid, name=name, queue=queue, result=result, ranks=ranks)
    for state, userid, name, queue, result, ranks in (
        (State.NEW, 1, "a", None, Result.COMPLETED, ()),
        (State.DEPEND, 2, "a", "q", Result.COMPLETED, ()),
        (State.PRIORITY, 1, "b", "q", Result.COMPLETED, ()),
        (State.SCHED, 1, "b", None, Result.COMPLETED, ()),
        (State.RUN, 1, "a", "p", Result.COMPLETED, (0, 1)),
        (State.CLEANUP, 2, "a", "p", Result.COMPLETED, (1,)),
        (State.INACTIVE, 1, "c", "q", Result.COMPLETED, (2,)),
        (State.INACTIVE, 2, "c", None, Result.FAILED, (0,)),
        (State.INACTIVE, 2, "a", "q", Result.CANCELED, ()),
    )
]

BITS = {state: 1 << number for number, state in enumerate(State)}
REACHED = {"t_submit": 0, "t_depend": 1, "t_run": 4, "t_cleanup": 5, "t_inactive": 6}


def oracle(constraint: Mapping[str, Any], each: Sample) -> bool:
    """What RFC 43 and RFC 31 say, as plainly as can be."""
    if not constraint:
        return True
    ((operator, values),) = constraint.items()
    match operator:
        case "and":
            return all([oracle(value, each) for value in values])
        case "or":
            return not values or any([oracle(value, each) for value in values])
        case "not":
            return not all([oracle(value, each) for value in values])
        case "userid":
            return each.job.userid in values
        case "name":
            return each.jobspec["attributes"]["system"]["job"]["name"] in values
        case "queue":
            return each.jobspec["attributes"]["system"].get("queue") in values
        case "states":
            return any(BITS[each.job.state] & value for value in values)
        case "results":
            return each.job.result is not None and each.job.result.value in values
        case "ranks":
            has = (
                [] if each.r is None else [rank.rank for rank in resource_set.decode_nodes(each.r)]
            )
            return any(str(rank) in values for rank in has)
        case _:
            moment = each.job.times.get(list(State)[REACHED[operator]])
            if moment is None:
                return False
            limit = float(values[0].lstrip("<>="))
            equal = "=" in values[0] and moment == limit
            return equal or (moment > limit if ">" in values[0] else moment < limit)


LEAVES = st.one_of(
    st.builds(lambda values: {"userid": values}, st.lists(st.sampled_from([1, 2, 3]))),
    st.builds(lambda values: {"name": values}, st.lists(st.sampled_from("abcd"))),
    st.builds(lambda values: {"queue": values}, st.lists(st.sampled_from("pqr"))),
    st.builds(lambda values: {"states": values}, st.lists(st.integers(0, 127))),
    st.builds(lambda values: {"results": values}, st.lists(st.sampled_from(list(Result)).map(str))),
    st.builds(lambda values: {"ranks": values}, st.lists(st.sampled_from("0123"))),
    st.builds(
        lambda name, sign, moment: {name: [f"{sign}{moment}"]},
        st.sampled_from(sorted(REACHED)),
        st.sampled_from(["<", "<=", ">", ">="]),
        st.sampled_from([10, 15, 20, 50, 60, 70]),
    ),
    st.just({}),
)
CONSTRAINTS = st.recursive(
    LEAVES,
    lambda parts: st.builds(
        lambda joint, values: {joint: values},
        st.sampled_from(["and", "or", "not"]),
        st.lists(parts, max_size=4),
    ),
    max_leaves=12,
)


@given(CONSTRAINTS)
def test_a_selection_is_what_the_oracle_selects_and_knows_in_which_states(
    constraint: dict[str, Any],
) -> None:
    selection = Selection(constraint, 10_000)
    for each in JOBS:
        expected = oracle(constraint, each)
        assert selection.selects(each) is expected
        if expected:
            assert BITS[each.job.state] & selection.states


@pytest.mark.parametrize(
    ("constraint", "bits"),
    [
        ({}, 127),
        ({"states": ["pending"]}, 14),
        ({"and": [{"userid": [1]}, {"states": ["active"]}]}, 62),
        ({"or": [{"states": ["run"]}, {"results": ["failed"]}]}, 16 | 64),
        ({"not": [{"states": ["inactive"]}]}, 63),
        ({"not": [{"userid": [1]}, {"states": ["inactive"]}]}, 127),
        ({"hostlist": ["n1"]}, 16 | 32 | 64),
        ({"t_cleanup": [">0"]}, 32 | 64),
        ({"not": [{"t_cleanup": [">0"]}]}, 127),
        ({"and": [{"states": ["run"]}, {"t_inactive": [">0"]}]}, 0),
    ],
)
def test_states_in_which_nothing_can_be_selected_are_known_beforehand(
    constraint: Any, bits: int
) -> None:
    assert Selection(constraint, 1000).states == bits
