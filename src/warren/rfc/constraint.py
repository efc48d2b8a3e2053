"""Which nodes a job will have: constraints as JSON objects (RFC 31).

A constraint is `{operator: [values]}`, or `{}`, which every node meets. It is read
once, into a function that a scheduler may ask about each of its nodes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from reprlib import repr as brief
from typing import Any, Final

import msgspec

from warren.rfc import hostlist, idset
from warren.rfc.errors import BadFormat

Constraint = Mapping[str, Any]

_FORBIDDEN_CHARACTERS: Final = frozenset("!&'\"^`|()")
_DEEPEST: Final = 100

MOST_NODES: Final = 2**16
"""Hosts and ranks that all values of one constraint name together."""


class Node(msgspec.Struct, frozen=True):
    """What a constraint can tell one node from another by."""

    rank: int
    host: str
    properties: frozenset[str] = frozenset()


Matcher = Callable[[Node], bool]


def with_implied_properties(properties: Iterable[str]) -> frozenset[str]:
    """Return a node's properties with those that they bring along: `fast@gpu` brings `fast`."""
    found = set(properties)
    return frozenset(found | {name.partition("@")[0] for name in found if "@" in name})


def matches(constraint: Constraint, node: Node) -> bool:
    """Return whether a node meets a constraint. For many nodes, ask its `matcher`."""
    return matcher(constraint)(node)


def check(constraint: Any, path: str = "constraints") -> Constraint:
    """Return `constraint` back if it is one.

    Raises BadFormat with the path of the mistake, which starts with `path`:
    `constraints.and[1].ranks[0] ...`.
    """
    matcher(constraint, path)
    return constraint  # type: ignore[no-any-return]


def matcher(constraint: Any, path: str = "constraints") -> Matcher:
    """Make the function that tells for a node whether it meets `constraint`.

    Raises BadFormat as `check` does. `and` and `or` of nothing hold, `not` of nothing
    does not: it negates the `and` of its values.
    """
    return _matcher(constraint, path, 0, _NodeBudget())


class _NodeBudget(msgspec.Struct):
    """How many more nodes a constraint may name."""

    left: int = MOST_NODES


def _matcher(constraint: Any, path: str, depth: int, budget: _NodeBudget) -> Matcher:
    _require(isinstance(constraint, Mapping), path, "is not an object")
    _require(depth < _DEEPEST, path[:60], f"is nested more than {_DEEPEST} deep")
    if not constraint:
        return _always
    _require(len(constraint) == 1, path, "holds several operators: join them with and")
    (operator, values), *_ = constraint.items()
    path = f"{path}.{operator}"
    _require(operator in _OPERATORS, path,
             f"is not an operator: they are {', '.join(_OPERATORS)}")  # fmt: skip
    _require(isinstance(values, list), path, "is not a list")
    if operator in ("and", "or", "not"):
        parts = [
            _matcher(value, f"{path}[{index}]", depth + 1, budget)
            for index, value in enumerate(values)
        ]
        return _OPERATORS[operator](parts)
    return _OPERATORS[operator]([_read_value(operator, value, f"{path}[{index}]", budget)
                                 for index, value in enumerate(values)])  # fmt: skip


def problem(operator: str, value: str) -> str | None:
    """Say what is wrong with one value of `properties`, `hostlist` or `ranks`; None if nothing."""
    try:
        _read_value(operator, value, "this", _NodeBudget())
    except BadFormat as error:
        return str(error)
    return None


def _read_value(operator: str, value: Any, path: str, budget: _NodeBudget) -> Any:
    _require(isinstance(value, str), path, "is not a string")
    if operator == "properties":
        name = value.removeprefix("^")
        _require(bool(name), path, "is empty, and so no property")
        if not _FORBIDDEN_CHARACTERS.isdisjoint(name):
            bad = next(letter for letter in name if letter in _FORBIDDEN_CHARACTERS)
            raise BadFormat(f"{path} is no property {brief(value)}: it holds {bad!r}")
        return value
    decode: Callable[..., Sequence[Any]] = (
        hostlist.decode if operator == "hostlist" else idset.decode
    )
    try:
        nodes = decode(value, limit=MOST_NODES)
    except BadFormat as error:
        raise BadFormat(f"{path} is no {error}") from None
    budget.left -= len(nodes)
    _require(budget.left >= 0, path, f"is one too many: all together name over {MOST_NODES} nodes")
    return nodes


def _always(node: Node) -> bool:
    return True


def _properties(values: list[str]) -> Matcher:
    required = frozenset(value for value in values if not value.startswith("^"))
    forbidden = frozenset(value[1:] for value in values if value.startswith("^"))
    if not forbidden:
        return lambda node: required <= node.properties
    return lambda node: required <= node.properties and forbidden.isdisjoint(node.properties)


def _hostlist(values: list[list[str]]) -> Matcher:
    hosts = frozenset().union(*values)
    return lambda node: node.host in hosts


def _ranks(values: list[tuple[int, ...]]) -> Matcher:
    ranks = frozenset().union(*values)
    return lambda node: node.rank in ranks


def _and(parts: list[Matcher]) -> Matcher:
    def matches_all(node: Node) -> bool:
        for part in parts:  # noqa: SIM110 - a scheduler asks this of every node, and all() is slower
            if not part(node):
                return False
        return True

    return matches_all


def _or(parts: list[Matcher]) -> Matcher:
    return lambda node: not parts or any(part(node) for part in parts)


def _not(parts: list[Matcher]) -> Matcher:
    whole = _and(parts)
    return lambda node: not whole(node)


_OPERATORS: Final[Mapping[str, Callable[[list[Any]], Matcher]]] = {
    "properties": _properties,
    "hostlist": _hostlist,
    "ranks": _ranks,
    "and": _and,
    "or": _or,
    "not": _not,
}


def _require(condition: bool, path: str, problem: str) -> None:
    if not condition:
        raise BadFormat(f"{path} {problem}")
