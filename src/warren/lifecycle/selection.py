"""Which jobs a listing is about: constraints on jobs as JSON objects (RFC 43, RFC 31).

A constraint is read once, into a `Selection` that is asked about each job. It also says
which states the jobs can be in that it selects, so that nothing looks through those that
are over for one that runs.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from reprlib import repr as brief
from typing import Any, Final

import msgspec

from warren.lifecycle import attributes
from warren.lifecycle.attributes import ListedJob
from warren.lifecycle.states import PENDING, RUNNING, Result, State
from warren.rfc import hostlist, idset
from warren.rfc.errors import BadFormat

ALL_STATES: Final = sum(state.bit for state in State)
"""The bits of all states."""

MAX_COMPARISONS: Final = 1_000_000
"""Checks of single values that one listing may take."""

_MAX_NODES: Final = 4096
"""Of all `hostlist` and `ranks` of a constraint together."""

_MAX_DEPTH: Final = 100

_WITH_RESOURCES: Final = State.RUN.bit | State.CLEANUP.bit | State.INACTIVE.bit

_STATE_GROUPS: Final[Mapping[str, int]] = {
    "pending": sum(state.bit for state in PENDING),
    "running": sum(state.bit for state in RUNNING),
    "active": sum(state.bit for state in PENDING | RUNNING),
}
"""States that go by one name."""

_Test = Callable[[ListedJob], bool]


class TooManyComparisons(BadFormat):
    """A listing that looked at more jobs than one may."""


class _Part(msgspec.Struct, frozen=True):
    """A part of a constraint: its test, and in which states jobs can pass it, or all do."""

    test: _Test
    possible_states: int = ALL_STATES
    """In no other states are jobs that pass."""
    certain_states: int = 0
    """In these states, all jobs pass."""


class Selection:
    """A constraint, and how many comparisons are left to it."""

    def __init__(self, constraint: Any, max_comparisons: int) -> None:
        """Read a constraint; None selects all jobs. Raises BadFormat with the mistake's path."""
        self._comparisons_left = max_comparisons
        self._max_comparisons = max_comparisons
        self._nodes_left = _MAX_NODES
        part = self._read({} if constraint is None else constraint, "constraint", 0)
        self._test = part.test
        self.states = part.possible_states
        """The states that selected jobs can be in, as bits."""

    def selects(self, listed: ListedJob) -> bool:
        """Return whether a job is selected. Raises TooManyComparisons when none is left."""
        return self._test(listed)

    def _read(self, constraint: Any, path: str, depth: int) -> _Part:
        _require(isinstance(constraint, Mapping), path, "is not an object")
        _require(depth < _MAX_DEPTH, path[:60], f"is nested more than {_MAX_DEPTH} deep")
        if not constraint:
            return _Part(lambda each: True, certain_states=ALL_STATES)
        _require(len(constraint) == 1, path, "holds several operators: join them with and")
        ((operator, values),) = constraint.items()
        path = f"{path}.{operator}"
        operators = (*_CONNECTIVES, *_LEAVES, *_NODE_OPERATORS)
        _require(
            operator in operators, path, f"is not an operator: they are {', '.join(operators)}"
        )
        _require(isinstance(values, list), path, "is not a list")
        if operator in _CONNECTIVES:
            parts = [
                self._read(value, f"{path}[{index}]", depth + 1)
                for index, value in enumerate(values)
            ]
            return _CONNECTIVES[operator](parts)
        if operator in _NODE_OPERATORS:
            return self._counted(self._read_nodes(operator, values, path))
        return self._counted(_LEAVES[operator](operator, values, path))

    def _read_nodes(self, operator: str, values: list[Any], path: str) -> _Part:
        decode, of_job = _NODE_OPERATORS[operator]
        all_nodes: set[Any] = set()
        for index, value in enumerate(values):
            _require(isinstance(value, str), f"{path}[{index}]", "is not a string")
            try:
                nodes = decode(value, limit=self._nodes_left)
            except BadFormat as error:
                raise BadFormat(f"{path}[{index}]: {error}") from None
            self._nodes_left -= len(nodes)
            all_nodes.update(nodes)
        return _Part(
            lambda each: not all_nodes.isdisjoint(of_job(each)), possible_states=_WITH_RESOURCES
        )

    @property
    def comparisons_left(self) -> int:
        """How many comparisons are left."""
        return self._comparisons_left

    def _counted(self, part: _Part) -> _Part:
        def test(each: ListedJob) -> bool:
            if self._comparisons_left <= 0:
                raise TooManyComparisons(
                    f"the search takes more than {self._max_comparisons} comparisons: limit it to "
                    "states, or to jobs that ended since a moment"
                )
            self._comparisons_left -= 1
            return attributes.passes(each, part.test)

        return _Part(test, part.possible_states, part.certain_states)


# Connectives


def _and(parts: list[_Part]) -> _Part:
    possible_states = certain_states = ALL_STATES
    for part in parts:
        possible_states &= part.possible_states
        certain_states &= part.certain_states
    return _Part(
        lambda each: all(part.test(each) for part in parts), possible_states, certain_states
    )


def _or(parts: list[_Part]) -> _Part:
    if not parts:
        return _and(parts)
    possible_states = certain_states = 0
    for part in parts:
        possible_states |= part.possible_states
        certain_states |= part.certain_states
    return _Part(
        lambda each: any(part.test(each) for part in parts), possible_states, certain_states
    )


def _not(parts: list[_Part]) -> _Part:
    whole = _and(parts)
    return _Part(
        lambda each: not whole.test(each),
        ALL_STATES & ~whole.certain_states,
        ALL_STATES & ~whole.possible_states,
    )


_CONNECTIVES: Final[Mapping[str, Callable[[list[_Part]], _Part]]] = {
    "and": _and,
    "or": _or,
    "not": _not,
}


# Leaves


def _userid(operator: str, values: list[Any], path: str) -> _Part:
    userids = _check_values(values, path, lambda value: type(value) is int, "a user's number")
    if {-1, 2**32 - 1} & userids:  # Flux's name for any user
        return _Part(lambda each: True, certain_states=ALL_STATES)
    return _Part(lambda each: each.job.userid in userids)


def _name(operator: str, values: list[Any], path: str) -> _Part:
    names = _check_values(values, path, lambda value: isinstance(value, str), "a string")
    return _Part(lambda each: attributes.name(each) in names)


def _queue(operator: str, values: list[Any], path: str) -> _Part:
    queues = _check_values(values, path, lambda value: isinstance(value, str), "a string")
    return _Part(lambda each: attributes.queue(each) in queues)


def _states(operator: str, values: list[Any], path: str) -> _Part:
    bits = 0
    for index, value in enumerate(values):
        if type(value) is int:
            bits |= value
        else:
            bits |= _bits_by_name(state_bits, value, f"{path}[{index}]")
    bits &= ALL_STATES
    chosen = frozenset(state for state in State if state.bit & bits)
    return _Part(lambda each: each.job.state in chosen, possible_states=bits, certain_states=bits)


def _results(operator: str, values: list[Any], path: str) -> _Part:
    bits = 0
    for index, value in enumerate(values):
        bits |= (
            value if type(value) is int else _bits_by_name(result_bits, value, f"{path}[{index}]")
        )
    chosen = frozenset(result for result in Result if result.bit & bits)
    return _Part(lambda each: each.job.result in chosen, possible_states=State.INACTIVE.bit)


_NODE_OPERATORS: Final[
    Mapping[str, tuple[Callable[..., Sequence[Any]], Callable[[ListedJob], Iterable[Any]]]]
] = {
    "hostlist": (hostlist.decode, attributes.nodes),
    "ranks": (idset.decode, attributes.ranks),
}
"""How values that name nodes are read, and which nodes of a job they are compared with."""


_COMPARISON_BY_SIGN: Final[Mapping[str, Callable[[float, float], bool]]] = {
    # The longer ones first: they begin like the others.
    ">=": lambda one, other: one >= other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    "<": lambda one, other: one < other,
}

_STATES_WITH_TIMESTAMP: Final[Mapping[str, int]] = {
    "t_submit": ALL_STATES,
    "t_depend": ALL_STATES,
    "t_run": _WITH_RESOURCES,
    "t_cleanup": State.CLEANUP.bit | State.INACTIVE.bit,
    "t_inactive": State.INACTIVE.bit,
}
"""The states of jobs that can have a moment."""


def _timestamp(operator: str, values: list[Any], path: str) -> _Part:
    _require(len(values) == 1 and isinstance(values[0], str), path, "is not a list of one string")
    text = values[0].strip()
    sign = next((sign for sign in _COMPARISON_BY_SIGN if text.startswith(sign)), None)
    _require(sign is not None, f"{path}[0]",
             f"{brief(text)} begins with none of {', '.join(_COMPARISON_BY_SIGN)}")  # fmt: skip
    assert sign is not None
    try:
        limit = float(text[len(sign) :])
    except ValueError:
        limit = math.nan
    _require(limit >= 0, f"{path}[0]", f"{brief(text)} names no moment: seconds since the epoch do")
    compare = _COMPARISON_BY_SIGN[sign]

    def test(each: ListedJob) -> bool:
        moment = attributes.timestamp(each, operator)
        return moment is not None and compare(moment, limit)

    return _Part(test, possible_states=_STATES_WITH_TIMESTAMP[operator])


_LEAVES: Final[Mapping[str, Callable[[str, list[Any], str], _Part]]] = {
    "userid": _userid,
    "name": _name,
    "queue": _queue,
    "states": _states,
    "results": _results,
    **dict.fromkeys(_STATES_WITH_TIMESTAMP, _timestamp),
}


# Names


def state_bits(name: str) -> int:
    """Return the bits that a name of states stands for: `RUN`, `r`, `pending`.

    Raises BadFormat for a name of none.
    """
    if name.lower() in _STATE_GROUPS:
        return _STATE_GROUPS[name.lower()]
    for state in State:
        if name.upper() in (state.value, state.letter):
            return state.bit
    known = ", ".join([*(state.lower() for state in State), *_STATE_GROUPS])
    raise BadFormat(f"{name!r} is no state of a job: they are {known}")


def result_bits(name: str) -> int:
    """Return the bit of a result's name or abbreviation. Raises BadFormat for a name of none."""
    for result in Result:
        if name.upper() in (result.value, result.abbreviation):
            return result.bit
    known = ", ".join(result.lower() for result in Result)
    raise BadFormat(f"{name!r} is no result of a job: they are {known}")


def _bits_by_name(read: Callable[[str], int], value: Any, path: str) -> int:
    _require(isinstance(value, str), path, "is neither a name nor bits")
    try:
        return read(value)
    except BadFormat as error:
        raise BadFormat(f"{path}: {error}") from None


def _check_values(
    values: list[Any], path: str, fits: Callable[[Any], bool], expected: str
) -> set[Any]:
    for index, value in enumerate(values):
        _require(fits(value), f"{path}[{index}]", f"is not {expected}")
    return set(values)


def _require(condition: bool, path: str, problem: str) -> None:
    if not condition:
        raise BadFormat(f"{path} {problem}")
