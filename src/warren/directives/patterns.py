r"""Regular expressions of a site's rules, matched in time that is linear in the text.

Rules are written for Go, whose expressions have no look-around and no back references, and never
backtrack. Python's do: `^(\w+-?)+$` takes years over a value of forty letters and a comma. So a
pattern is stepped through with the set of all places where it may be (Thompson's construction). A
pattern with one repetition at most, of what has no choice in it, is left to Python, which takes
no longer than the square of the text and is quicker.
"""

import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Final

import msgspec

from warren.base.errors import UserMistake

MAX_PROGRAM_STEPS: Final = 2000
"""Steps of a program: a counted repetition, such as `x{500}`, is written out."""

_FLAGS: Final = re.ASCII  # as Go means \d and \w


class BadPattern(UserMistake):
    """A pattern that is none, or one that Go does not know."""


def occurs(pattern: str, text: str) -> bool:
    """Return whether a pattern is found anywhere in a text. Raises BadPattern."""
    return _searcher(pattern)(text)


@lru_cache(maxsize=1024)
def _searcher(pattern: str) -> Callable[[str], bool]:
    parser = _Parser(pattern)
    program = (*parser.program(), _Match())
    if parser.is_simple:
        with suppress(re.error):
            compiled = _compile(pattern, _FLAGS)
            return lambda text: compiled.search(text) is not None
    return lambda text: _search(program, text)


def _compile(pattern: str, flags: int) -> re.Pattern[str]:
    with warnings.catch_warnings():
        # Of what Python may read in another way one day.
        warnings.simplefilter("ignore")
        return re.compile(pattern, flags)


class _Character(msgspec.Struct, frozen=True):
    """One character, which the expression matches."""

    expression: re.Pattern[str]


class _Assertion(msgspec.Struct, frozen=True):
    """A place between characters: `^`, `$`, and those of words."""

    symbol: str


class _Fork(msgspec.Struct, frozen=True):
    """Go on at any of these steps, counted from this one."""

    offsets: tuple[int, ...]


class _Match(msgspec.Struct, frozen=True):
    """The end of the pattern."""


_Step = _Character | _Assertion | _Fork | _Match
_Program = tuple[_Step, ...]


def _search(program: _Program, text: str) -> bool:
    step_indices: set[int] = set()
    for text_index in range(len(text) + 1):
        # A match may begin at every character.
        reached_indices = _closure(program, [*step_indices, 0], text, text_index)
        if len(program) - 1 in reached_indices:
            return True
        if text_index < len(text):
            character = text[text_index]
            step_indices = {
                step_index + 1
                for step_index in reached_indices
                if isinstance(step := program[step_index], _Character)
                and step.expression.match(character)
            }
    return False


def _closure(program: _Program, pending: list[int], text: str, text_index: int) -> set[int]:
    """Return all steps to which the `pending` ones lead without taking a character."""
    reached_indices: set[int] = set()
    while pending:
        step_index = pending.pop()
        if step_index in reached_indices:
            continue
        reached_indices.add(step_index)
        match program[step_index]:
            case _Fork(offsets):
                pending += [step_index + each for each in offsets]
            case _Assertion(symbol) if _ASSERTIONS[symbol](text, text_index):
                pending.append(step_index + 1)
            case _:
                pass
    return reached_indices


def _is_word_boundary(text: str, index: int) -> bool:
    before, after = text[index - 1 : index] if index else "", text[index : index + 1]
    return bool(re.match(r"\w", before, _FLAGS)) != bool(re.match(r"\w", after, _FLAGS))


_ASSERTIONS: Final[dict[str, Callable[[str, int], bool]]] = {
    "^": lambda text, at: at == 0,
    "\\A": lambda text, at: at == 0,
    "$": lambda text, at: at == len(text),
    "\\z": lambda text, at: at == len(text),
    "\\b": _is_word_boundary,
    "\\B": lambda text, at: not _is_word_boundary(text, at),
}

_COUNT_PATTERN: Final = re.compile(r"\{(\d{1,4})(?:(,)(\d{0,4}))?\}")
_CLASS_PATTERN: Final = re.compile(r"\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]", re.DOTALL)
_POSIX_CLASSES: Final = {
    "[:alpha:]": "a-zA-Z", "[:digit:]": "0-9", "[:alnum:]": "a-zA-Z0-9", "[:lower:]": "a-z",
    "[:upper:]": "A-Z", "[:word:]": r"\w", "[:space:]": r"\s", "[:xdigit:]": "0-9a-fA-F",
}  # fmt: skip


class _Parser:
    """Makes a program of a pattern, by recursive descent."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._repetitions = 0
        self._choices = 0
        self._flags: int = _FLAGS
        self.is_simple = True
        """Whether Python's own matcher is good enough; known when the program is made."""

    def program(self) -> _Program:
        """Return the program, without its end. Raises BadPattern."""
        if self._accept("(?i)"):
            self._flags |= re.IGNORECASE
            self.is_simple = False
        program = self._choice(0)
        if self._position < len(self._pattern):
            raise self._bad("has a ')' too many")
        self.is_simple = self.is_simple and self._repetitions <= 1
        return program

    def _bad(self, why: str) -> BadPattern:
        return BadPattern(f"the pattern {self._pattern!r} {why}, at {self._position}")

    def _accept(self, word: str) -> bool:
        is_there = self._pattern.startswith(word, self._position)
        self._position += len(word) if is_there else 0
        return is_there

    def _choice(self, depth: int) -> _Program:
        if depth > 50:
            raise self._bad("is more than 50 groups deep")
        program = self._sequence(depth)
        while self._accept("|"):
            self._choices += 1
            other = self._sequence(depth)
            # Either of them, and over the other one.
            program = (_Fork((1, len(program) + 2)), *program, _Fork((len(other) + 1,)), *other)
            self._check_small(program)
        return program

    def _sequence(self, depth: int) -> _Program:
        program: list[_Step] = []
        while self._position < len(self._pattern) and self._pattern[self._position] not in "|)":
            counters_before = (self._repetitions, self._choices)
            program += self._repeated(self._atom(depth), counters_before)
            self._check_small(program)
        return tuple(program)

    def _check_small(self, program: list[_Step] | _Program) -> None:
        if len(program) > MAX_PROGRAM_STEPS:
            raise self._bad(f"comes to more than {MAX_PROGRAM_STEPS} steps")

    def _repeated(self, atom: _Program, counters_before: tuple[int, int]) -> _Program:
        count = self._count()
        if count is None:
            return atom
        # What has a choice in it may be repeated in more ways than one: Python would try all.
        self.is_simple = self.is_simple and (self._repetitions, self._choices) == counters_before
        self._repetitions += 1
        if self._accept("?"):  # a short match first: found or not, it is the same
            pass
        if self._count() is not None:
            raise self._bad("repeats a repetition")
        min_count, max_count = count
        size = len(atom)
        if size * max(min_count, max_count or 0) > MAX_PROGRAM_STEPS:
            raise self._bad(f"comes to more than {MAX_PROGRAM_STEPS} steps")
        program = list(atom * min_count)
        if max_count is None:
            program += (_Fork((1, size + 2)), *atom, _Fork((-size - 1,)))
        else:
            program += (_Fork((1, size + 1)), *atom) * (max_count - min_count)
        return tuple(program)

    def _count(self) -> tuple[int, int | None] | None:
        for sign, count in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return count
        match = _COUNT_PATTERN.match(self._pattern, self._position)
        if match is None:
            return None
        self._position = match.end()
        min_count = int(match[1])
        if not match[2]:
            return min_count, min_count
        return min_count, int(match[3]) if match[3] else None

    def _atom(self, depth: int) -> _Program:
        if self._accept("("):
            if self._accept("?") and not self._accept(":") and not self._accept_group_name():
                raise self._bad("has what only Python's expressions have, or Perl's")
            program = self._choice(depth + 1)
            if not self._accept(")"):
                raise self._bad("has a '(' that is not closed")
            return program
        if self._pattern[self._position] in "*+?":
            raise self._bad("repeats nothing")
        for symbol in _ASSERTIONS:
            if self._accept(symbol):
                self.is_simple = self.is_simple and symbol in "^$"
                return (_Assertion(symbol),)
        return (_Character(self._character()),)

    def _accept_group_name(self) -> bool:
        match = re.compile(r"P?<\w+>").match(self._pattern, self._position)
        self._position = match.end() if match else self._position
        self.is_simple = False
        return match is not None

    def _character(self) -> re.Pattern[str]:
        start = self._position
        match = _CLASS_PATTERN.match(self._pattern, start)
        if match is not None:
            source = match[0]
            for name, letters in _POSIX_CLASSES.items():
                self.is_simple = self.is_simple and name not in source
                source = source.replace(name, letters)
        else:
            source = self._pattern[start : start + 2 if self._pattern[start] == "\\" else start + 1]
        self._position = start + len(match[0] if match else source)
        if re.fullmatch(r"\\[1-9]", source):
            raise self._bad("has a back reference")
        try:
            return _compile(re.escape(source) if source in "{}]" else source, self._flags)
        except re.error as error:
            raise self._bad(f"is no regular expression ({error})") from error
