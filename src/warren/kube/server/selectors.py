"""Selectors: the text in which a client says by labels or by fields which objects it means.

The grammar and the meaning are those of the Kubernetes API. What a label that is not there
means is the surprise in both: `a!=b` and `a notin (b)` select objects without `a`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from warren.base.objects import Object
from warren.kube.client import Refused

FIELDS: Final = ("metadata.name", "metadata.namespace")
"""The fields that every kind can be selected by."""


class Operator(StrEnum):
    """What a requirement asks of one label or field."""

    EQUALS = "="
    NOT_EQUALS = "!="
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    IN = "in"
    NOT_IN = "notin"


class Requirement(msgspec.Struct, frozen=True, order=True):
    """What one term of a label selector asks for."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    """Sorted and without repetition, so that equal requirements are equal."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        match self.operator:
            case Operator.EQUALS | Operator.IN:
                return self.key in labels and labels[self.key] in self.values
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                return self.key not in labels or labels[self.key] not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels

    def __str__(self) -> str:
        match self.operator:
            case Operator.EQUALS | Operator.NOT_EQUALS:
                return f"{self.key}{self.operator}{self.values[0]}"
            case Operator.IN | Operator.NOT_IN:
                # A set of only the empty value needs its comma: `()` would be no set.
                values = "," if self.values == ("",) else ",".join(self.values)
                return f"{self.key} {self.operator} ({values})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"


class LabelSelector(msgspec.Struct, frozen=True):
    """Requirements of which all must hold. None of them selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Return whether an object with these labels is selected; None is no labels."""
        own = labels or {}
        return all(requirement.matches(own) for requirement in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


class FieldTerm(msgspec.Struct, frozen=True, order=True):
    """What one term of a field selector asks for: a field's value, as text, or not that value."""

    path: str
    value: str
    equal: bool = True
    """Whether the field must have the value, and not any other one than that."""

    def matches(self, obj: Object) -> bool:
        return (_field_text(obj, self.path) == self.value) is self.equal

    def __str__(self) -> str:
        value = re.sub(r"[\\,=]", r"\\\g<0>", self.value)
        return f"{self.path}{'=' if self.equal else '!='}{value}"


class FieldSelector(msgspec.Struct, frozen=True):
    """Terms of which all must hold. None of them selects everything."""

    terms: tuple[FieldTerm, ...] = ()

    def required_value(self, path: str) -> str:
        """Return the value that a field must have, or nothing where it may have several."""
        return next((term.value for term in self.terms if term.path == path and term.equal), "")

    def matches(self, obj: Object) -> bool:
        """Return whether an object is selected; a field that is not there is the empty text."""
        return all(term.matches(obj) for term in self.terms)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


def parse_labels(text: str) -> LabelSelector:
    """Read a label selector. Raises Refused with the place of what cannot be read."""
    return LabelSelector(tuple(sorted(set(_LabelParser(text).requirements()))))


def parse_fields(text: str, selectable: Collection[str] = ()) -> FieldSelector:
    """Read a field selector over `FIELDS` and the paths of a definition's `selectableFields`.

    Raises Refused with the place of what cannot be read, or of a field that is not selectable.
    """
    selectable_paths = {*FIELDS, *(path.removeprefix(".") for path in selectable)}
    return FieldSelector(tuple(sorted(set(_terms(text, selectable_paths)))))


# Labels

_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_PREFIX_PATTERN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)
_TOKEN_PATTERN: Final = re.compile(r"\s*(?P<token>==|!=|[=!(),<>]|[^\s=!(),<>]+|$)")
_SIGNS: Final = frozenset({"=", "==", "!=", "!", "(", ")", ",", "<", ">", ""})


class _LabelParser:
    """Reads a label selector token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._token_start = 0
        self._token = ""
        self._advance()

    def requirements(self) -> Iterator[Requirement]:
        if not self._token:
            return
        yield self._requirement()
        while self._token:
            self._expect(",")
            yield self._requirement()

    def _requirement(self) -> Requirement:
        if self._accept("!"):
            return Requirement(self._key(), Operator.DOES_NOT_EXIST)
        key = self._key()
        if self._accept("=") or self._accept("=="):
            return Requirement(key, Operator.EQUALS, (self._value(),))
        if self._accept("!="):
            return Requirement(key, Operator.NOT_EQUALS, (self._value(),))
        for operator in (Operator.IN, Operator.NOT_IN):
            if self._accept(operator):
                return Requirement(key, operator, self._values())
        if self._token not in (",", ""):
            raise self._mistake("an operator (=, ==, !=, in, notin), a comma or the end")
        return Requirement(key, Operator.EXISTS)

    def _key(self) -> str:
        if self._token in _SIGNS:
            raise self._mistake("the name of a label")
        prefix, slash, name = self._token.rpartition("/")
        if slash and (len(prefix) > 253 or not _PREFIX_PATTERN.fullmatch(prefix)):
            raise self._mistake("a label's prefix that is a domain name")
        if not _NAME_PATTERN.fullmatch(name):
            raise self._mistake(
                "a label's name of at most 63 letters, digits, '-', '_' and '.', "
                "with a letter or a digit at each end"
            )
        return self._advance()

    def _value(self) -> str:
        """Read a value; where none stands, it is the empty one."""
        if self._token in (",", ")", ""):
            return ""
        if not _NAME_PATTERN.fullmatch(self._token):
            raise self._mistake(
                "a value of at most 63 letters, digits, '-', '_' and '.', "
                "with a letter or a digit at each end"
            )
        return self._advance()

    def _values(self) -> tuple[str, ...]:
        self._expect("(")
        if self._token == ")":
            raise self._mistake("at least one value")
        values = {self._value()}
        while self._accept(","):
            values.add(self._value())
        self._expect(")")
        return tuple(sorted(values))

    def _accept(self, token: str) -> bool:
        if self._token != token:
            return False
        self._advance()
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._mistake(f"'{token}'")

    def _advance(self) -> str:
        """Go on to the next token; return the one that was read."""
        token = self._token
        match = _TOKEN_PATTERN.match(self._text, self._end)
        assert match is not None  # the pattern knows every character, and the end
        self._token, self._token_start, self._end = (
            match["token"],
            match.start("token"),
            match.end(),
        )
        return token

    def _mistake(self, expected: str) -> Refused:
        found_text = _quoted(self._token) if self._token else "the end"
        position = self._token_start + 1
        return Refused(
            f"label selector, character {position}: found {found_text}, expected {expected}"
        )


# Fields

_TERM_PATTERN: Final = re.compile(r"(?:[^\\,]|\\.|\\$)+", re.DOTALL)
_OPERATOR_PATTERN: Final = re.compile(r"!=|==|=")
_VALUE_PATTERN: Final = re.compile(r"(?:[^\\,=]|\\[\\,=])*")


def _terms(text: str, selectable_paths: Collection[str]) -> Iterator[FieldTerm]:
    for term in _TERM_PATTERN.finditer(text):
        operator = _OPERATOR_PATTERN.search(term[0])
        if operator is None:
            raise _misread(term.start(), term[0], "is not of the form field=value")
        path, value = term[0][: operator.start()], term[0][operator.end() :]
        if path not in selectable_paths:
            raise _misread(term.start(), path, "is no field to select by")
        if not _VALUE_PATTERN.fullmatch(value):
            raise _misread(
                term.start() + operator.end(), value, r"needs a \ before each \, comma and ="
            )
        yield FieldTerm(path, re.sub(r"\\(.)", r"\1", value), operator[0] != "!=")


def _misread(position: int, text: str, why: str) -> Refused:
    return Refused(f"field selector, character {position + 1}: {_quoted(text)} {why}")


def _field_text(obj: Object, path: str) -> str:
    value: Any = obj
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    match value:
        case bool():
            return "true" if value else "false"
        case str() | int():
            return str(value)
        case _:
            return ""


def _quoted(text: str) -> str:
    return repr(text if len(text) <= 70 else f"{text[:70]}...")
