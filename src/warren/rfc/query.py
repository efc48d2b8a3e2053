"""Constraints as people write them: `(fast|big) -host:n[1-4]` (RFC 35).

A query is terms joined by `and` (also `&`, `&&`, or nothing), `or` (`|`, `||`), `not`
and parentheses; `or` binds loosest, then `and`, then `not`. A term is `operator:operand`,
either side of which may be quoted; there are no escapes. What operators there are, and
which one a bare operand has, is a dialect.
"""

import re
from collections.abc import Mapping
from reprlib import repr as brief
from typing import Any, Final, NoReturn

import msgspec

from warren.rfc import constraint
from warren.rfc.errors import BadFormat


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How terms are to be read.

    `default_operator` is the operator of operands that come without one; without it, all must
    have one. Operands of operators in `list_operators` are lists with commas, and neighbours
    of the same such operator under `and` become one. `operators` are all operators, if
    they are limited.
    """

    default_operator: str | None = None
    aliases: Mapping[str, str]
    list_operators: frozenset[str] = frozenset()
    operators: frozenset[str] | None = None


PLAIN: Final = Dialect(aliases={})
REQUIRES: Final = Dialect(
    default_operator="properties",
    aliases={"host": "hostlist", "hosts": "hostlist", "rank": "ranks"},
    list_operators=frozenset({"properties"}),
    operators=frozenset({"properties", "hostlist", "ranks"}),
)
"""Of `flux submit --requires`."""


class BadQuery(BadFormat):
    """A text that is no query, and where. `text_with_carets` points at it."""

    def __init__(self, text: str, offset: int, problem: str) -> None:
        super().__init__(f"query {brief(text)}: {problem} at {offset}")
        self.text = text
        self.offset = offset
        """Characters before the mistake; as long as the text if something is missing at its end."""

    @property
    def text_with_carets(self) -> str:
        """Three lines for a person: the query, a caret under the mistake, the sentence."""
        return f"{self.text}\n{' ' * self.offset}^\n{self}"


def parse(text: str, dialect: Dialect = PLAIN) -> dict[str, Any]:
    """Read a query as a constraint. Raises BadQuery where it is none.

    Chains are flat: `a b c` is one `and` of three. Parentheses stay as they are, so
    `a (b c)` is an `and` in an `and`.
    """
    return _Reader(text, dialect).query()


def encode(tree: Mapping[str, Any], dialect: Dialect = PLAIN) -> str:
    """Write a constraint as a query, of which `parse` makes the same constraint.

    The one surprise: where a dialect joins neighbours, it joins these, too. Raises
    BadFormat for what no query makes: an empty constraint, several values where no
    list may be, a value with both kinds of quotes.
    """
    return _write(tree, dialect, _OUTERMOST)


# Reading

_DEEPEST: Final = 100
_LEXEME_PATTERN = re.compile(
    r"""(?P<space>\s+)
    | (?P<negate>-)
    | (?P<not>not\b)
    | (?P<and>&{1,2}|and\b)
    | (?P<or>\|{1,2}|or\b)
    | (?P<open>\()
    | (?P<close>\))
    | (?P<quote>'[^']*'|"[^"]*")
    | (?P<word>[^()|&\s"']+)
    """,
    re.VERBOSE,
)
_OPERATOR_PATTERN = re.compile(r"[\w.+@-]+")


class _Lexeme(msgspec.Struct, frozen=True):
    kind: str
    text: str
    start: int
    end: int


class _Reader:
    """Walks over one text. The next lexeme is always at hand; at the end its kind is `end`."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self._text = text
        self._dialect = dialect
        self._depth = 0
        self._last: _Lexeme | None = None
        self._next = self._lexeme(0)

    def query(self) -> dict[str, Any]:
        found = self._or()
        if self._next.kind == "close":
            self._refuse("this ')' closes nothing")
        return found

    def _or(self) -> dict[str, Any]:
        parts = [self._and()]
        while self._next.kind == "or":
            self._take()
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else {"or": parts}

    def _and(self) -> dict[str, Any]:
        parts = [self._not()]
        while self._next.kind not in ("or", "close", "end"):
            if self._next.kind == "and":
                self._take()
            parts.append(self._not())
        parts = self._join_lists(parts)
        return parts[0] if len(parts) == 1 else {"and": parts}

    def _join_lists(self, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        joined = parts[:1]
        for part in parts[1:]:
            ((operator, values),) = part.items()
            if operator in self._dialect.list_operators and operator in joined[-1]:
                joined[-1] = {operator: joined[-1][operator] + values}
            else:
                joined.append(part)
        return joined

    def _not(self) -> dict[str, Any]:
        self._depth += 1
        if self._depth > _DEEPEST:
            self._refuse(f"the query is nested more than {_DEEPEST} deep")
        found: dict[str, Any]
        match self._next.kind:
            case "not":
                self._take()
                found = {"not": [self._not()]}
            case "negate":
                self._take()
                if self._next.kind not in ("word", "quote"):
                    self._refuse("'-' stands before one term only: write not")
                found = {"not": [self._term()]}
            case "open":
                opened = self._take()
                found = self._or()
                if self._kind() != "close":
                    raise BadQuery(self._text, opened.start, "this '(' is not closed")
                self._take()
            case _:
                found = self._term()
        self._depth -= 1
        return found

    def _term(self) -> dict[str, Any]:
        if self._next.kind not in ("word", "quote"):
            self._refuse("a term is missing")
        first = self._take()
        value, start = _unquote(first), first.start + (first.kind == "quote")
        operator, colon, operand = value.partition(":")
        position = start + len(operator) + 1
        if not colon:
            if self._dialect.default_operator is None:
                raise BadQuery(self._text, first.start, f"{value!r} has no operator")
            operator, operand, position = self._dialect.default_operator, value, start
        elif not operand and first.kind == "word":
            if self._next.kind not in ("word", "quote"):
                self._refuse(f"the operand of {operator!r} is missing")
            second = self._take()
            operand, position = _unquote(second), second.start + (second.kind == "quote")
        if not _OPERATOR_PATTERN.fullmatch(operator) or operator in ("and", "or", "not"):
            raise BadQuery(self._text, first.start, f"{operator!r} is not an operator")
        return self._make_term(operator, operand, start, position)

    def _make_term(self, operator: str, operand: str, start: int, position: int) -> dict[str, Any]:
        operator = self._dialect.aliases.get(operator, operator)
        operators = self._dialect.operators
        if operators is not None and operator not in operators:
            known_operators = ", ".join(sorted(operators | set(self._dialect.aliases)))
            raise BadQuery(self._text, start, f"{operator!r} is not one of {known_operators}")
        values = operand.split(",") if operator in self._dialect.list_operators else [operand]
        for value in values:
            # Only limited dialects are about nodes; others may call anything `ranks`.
            problem = operators and constraint.problem(operator, value)
            if problem:
                raise BadQuery(self._text, position, problem)
            position += len(value) + 1
        return {operator: values}

    def _take(self) -> _Lexeme:
        lexeme = self._next
        self._last = lexeme
        self._next = self._lexeme(lexeme.end)
        return lexeme

    def _lexeme(self, position: int) -> _Lexeme:
        if position == len(self._text):
            return _Lexeme("end", "", position, position)
        match = _LEXEME_PATTERN.match(self._text, position)
        if match is None:
            raise BadQuery(self._text, position, "this quote is not closed")
        kind = str(match.lastgroup)
        if kind == "space":
            return self._lexeme(match.end())
        found = _Lexeme(kind, match[0], match.start(), match.end())
        if self._last is not None and self._last.end == position and _runs_on(self._last, found):
            raise BadQuery(self._text, position, "a quote starts or ends inside a word")
        return found

    def _kind(self) -> str:
        return self._next.kind

    def _refuse(self, problem: str) -> NoReturn:
        raise BadQuery(self._text, self._next.start, problem)


def _runs_on(last: _Lexeme, next_: _Lexeme) -> bool:
    # Only a word such as `host:` goes on in what follows; a quote ends in its quote.
    joins = last.text.find(":") == len(last.text) - 1
    return not joins and {last.kind, next_.kind} <= {"word", "quote"}


def _unquote(lexeme: _Lexeme) -> str:
    return lexeme.text[1:-1] if lexeme.kind == "quote" else lexeme.text


# Writing

_OUTERMOST, _OR, _AND, _NOT = range(4)
_SEPARATORS: Final = {"or": (_OR, "|"), "and": (_AND, " ")}
_WORD_PATTERN = re.compile(r"[^()|&\s\"']+")
_BARE_PATTERN = re.compile(r"[^()|&\s\"':]+")
_KEYWORD_PATTERN = re.compile(r"-|(?:and|or|not)\b")


def _write(tree: Mapping[str, Any], dialect: Dialect, outer_precedence: int) -> str:
    if len(tree) != 1:
        raise BadFormat(f"constraint {brief(tree)}: there is no query for it")
    ((operator, values),) = tree.items()
    if operator == "not" and len(values) == 1:
        return f"not {_write(values[0], dialect, _NOT)}"
    if operator in _SEPARATORS and len(values) > 1:
        precedence, separator = _SEPARATORS[operator]
        text = separator.join(_write(value, dialect, precedence) for value in values)
        return f"({text})" if outer_precedence >= precedence else text
    operators = dialect.operators or {operator}
    if operator in ("and", "or", "not") or operator not in operators or operator in dialect.aliases:
        raise BadFormat(f"constraint {brief(tree)}: there is no query for it")
    if not _OPERATOR_PATTERN.fullmatch(operator) or not values:
        raise BadFormat(f"constraint {brief(tree)}: there is no query for it")
    is_list = operator in dialect.list_operators
    if any("," in value for value in values) if is_list else len(values) > 1:
        raise BadFormat(f"constraint {brief(tree)}: its values cannot be told apart in a query")
    operand = ",".join(values)
    if (
        operator == dialect.default_operator
        and _BARE_PATTERN.fullmatch(operand)
        and not _KEYWORD_PATTERN.match(operand)
    ):
        return operand
    is_misread = _KEYWORD_PATTERN.match(operator) is not None
    if not is_misread and _WORD_PATTERN.fullmatch(operand):
        return f"{operator}:{operand}"
    quote = next((each for each in "'\"" if each not in operand), None)
    if quote is None:
        raise BadFormat(f"constraint {brief(tree)}: {brief(operand)} holds both kinds of quotes")
    if is_misread:
        return f"{quote}{operator}:{operand}{quote}"
    return f"{operator}:{quote}{operand}{quote}"
