"""Submission directives: options that stand in a script, on lines such as `# flux: -N4` (RFC 36).

The first line that has nothing but punctuation and blanks before `flux:` or `FLUX:` sets
the sentinel. The directives are on the lines that start with it, up to the first line
that does not even start with its punctuation; a directive elsewhere is a mistake.
"""

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from warren.rfc.errors import BadFormat

_SENTINEL_PATTERN = re.compile(r"([^\w]*+)(?:flux|FLUX):")
_UNQUOTED_PATTERN = re.compile(r"[^\s\\'\"#]+")
_QUOTES: Final = ('"""', "'''")
_ESCAPED_IN_QUOTES: Final = '$`"\\'


class BadDirective(BadFormat):
    """A mistake in a script's directives, and where. Lines and columns count from 1."""

    def __init__(self, source_line: str, line: int, column: int, problem: str) -> None:
        super().__init__(f"line {line}, column {column}: {problem}")
        self.line = line
        self.column = column
        self._source_line = source_line

    @property
    def text_with_carets(self) -> str:
        """Three lines for a person: the script's line, a caret, the sentence."""
        return f"{self._source_line}\n{' ' * (self.column - 1)}^\n{self}"


class Word(msgspec.Struct, frozen=True):
    """One argument, its quotes taken off, and where it starts."""

    text: str
    line: int
    column: int


class Submission(msgspec.Struct, frozen=True):
    """What a script asks for, in order. `sentinel` is None where it has no directives."""

    sentinel: str | None
    words: tuple[Word, ...]

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the words as a command line has them."""
        return tuple(word.text for word in self.words)

    @property
    def attributes(self) -> dict[str, Any]:
        """Return what `-S` and `--setattr` set, as the jobspec's `attributes` have it.

        Raises BadDirective where a setting is none.
        """
        found: dict[str, Any] = {}
        for setting in _settings(self.words):
            _set(found, setting)
        return found


def parse(script: str) -> Submission:
    """Read the directives of a script. Raises BadDirective where there is a mistake."""
    return _Reader(script).read()


# Lines

_Line = tuple[int, str, int]
"""A line's number, its text, and how much of it is the sentinel."""


class _Reader:
    """Reads one script, line by line."""

    def __init__(self, script: str) -> None:
        self._lines = [line.removesuffix("\r") for line in script.split("\n")]
        self._sentinel: str | None = None
        self._words: list[Word] = []

    def read(self) -> Submission:
        lines = self._directives()
        for number, line, start in lines:
            words = _DirectiveReader(number, line, start, lines).read()
            if words and not words[0].text.startswith("-"):
                problem = f"{words[0].text!r} is not an option: directives start with '-'"
                raise BadDirective(self._lines[number - 1], number, words[0].column, problem)
            self._words += words
        return Submission(self._sentinel, tuple(self._words))

    def _directives(self) -> Iterator[_Line]:
        prefix = ""
        end_line = 0
        for number, line in enumerate(self._lines, 1):
            match = _SENTINEL_PATTERN.match(line)
            if match is not None and end_line:
                self._refuse(
                    number, match, f"this directive comes after line {end_line}, which ends them"
                )
            if match is None:
                if self._sentinel is not None and line.strip() and not line.startswith(prefix):
                    end_line = end_line or number
                continue
            if self._sentinel is None:
                self._sentinel, prefix = match[0], match[1]
            elif match[0] != self._sentinel:
                problem = f"this directive starts with {match[0]!r}, not with {self._sentinel!r}"
                self._refuse(number, match, problem)
            yield number, line, match.end()

    def _refuse(self, number: int, match: re.Match[str], problem: str) -> None:
        raise BadDirective(match.string, number, match.end(1) + 1, problem)


# Words


class _DirectiveReader:
    """Reads one directive: POSIX quotes, comments, and texts in three quotes.

    A text in three quotes may go on over the `lines` that follow.
    """

    def __init__(self, number: int, line: str, start: int, lines: Iterator[_Line]) -> None:
        self._number = number
        self._line = line
        self._position = start
        self._lines = lines

    def read(self) -> list[Word]:
        words: list[Word] = []
        while True:
            while self._line[self._position : self._position + 1].isspace():
                self._position += 1
            if self._position == len(self._line) or self._line[self._position] == "#":
                return words
            number, column = self._number, self._position + 1
            words.append(Word(self._word(), number, column))

    def _word(self) -> str:
        pieces: list[str] = []
        while self._position < len(self._line) and not self._line[self._position].isspace():
            character = self._line[self._position]
            if character == "#":
                # Shells read on, the RFC starts a comment: its author means one of them.
                self._refuse("a '#' inside a word: quote it, or put a blank before the comment")
            pieces.append(self._piece(character))
        return "".join(pieces)

    def _piece(self, character: str) -> str:
        start = self._position
        if self._line.startswith(_QUOTES, start):
            return self._three_quotes(character * 3)
        if character == "'":
            end = self._line.find("'", start + 1)
            if end < 0:
                self._refuse("this quote is not closed")
            self._position = end + 1
            return self._line[start + 1 : end]
        if character == '"':
            return self._double_quotes()
        if character == "\\":
            if start + 1 == len(self._line):
                self._refuse("nothing comes after this backslash")
            self._position += 2
            return self._line[start + 1]
        match = _UNQUOTED_PATTERN.match(self._line, start)
        assert match is not None  # every other letter has had its case
        self._position = match.end()
        return match[0]

    def _double_quotes(self) -> str:
        characters: list[str] = []
        position = self._position + 1
        while position < len(self._line):
            character = self._line[position]
            if character == '"':
                self._position = position + 1
                return "".join(characters)
            next_character = self._line[position + 1 : position + 2]
            if character == "\\" and next_character and next_character in _ESCAPED_IN_QUOTES:
                character, position = next_character, position + 1
            characters.append(character)
            position += 1
        self._refuse("this quote is not closed")
        raise AssertionError  # pragma: no cover - _refuse never returns

    def _three_quotes(self, quotes: str) -> str:
        opened = self._number, self._line, self._position + 1
        start = self._position + 3
        end = self._line.find(quotes, start)
        if end >= 0:
            self._position = end + 3
            return self._line[start:end]
        self._position = start
        if self._line[start:].strip():
            self._refuse("a text of several lines starts on the line after its quotes")
        lines: list[str] = []
        previous = self._number
        for number, line, text_start in self._lines:
            if number != previous + 1:
                break
            previous = number
            end = line.find(quotes, text_start)
            if end < 0:
                lines.append(line[text_start:])
                continue
            self._number, self._line, self._position = number, line, end + 3
            self._expect_the_end()
            last = line[text_start:end]
            text = "".join(f"{each}\n" for each in lines)
            return textwrap.dedent(text + last if last.strip() else text)
        number, line, column = opened
        problem = "these quotes are not closed on the directives right below"
        raise BadDirective(line, number, column, problem)

    def _expect_the_end(self) -> None:
        rest = self._line[self._position :]
        if rest.strip() and not re.match(r"\s+#", rest):
            self._position += len(rest) - len(rest.lstrip())
            self._refuse("nothing may come after the quotes that end a text of several lines")

    def _refuse(self, problem: str) -> None:
        raise BadDirective(self._line, self._number, self._position + 1, problem)


# Settings


def _settings(words: tuple[Word, ...]) -> Iterator[Word]:
    """Return the words after `-S` and `--setattr`, or what stands in them."""
    remaining = iter(words)
    for word in remaining:
        if word.text in ("-S", "--setattr"):
            setting = next(remaining, None)
            if setting is None:
                raise _bad_setting(word, f"a setting is missing after {word.text}")
            yield setting
        else:
            for option in ("--setattr=", "-S"):
                if word.text.startswith(option):
                    yield Word(word.text.removeprefix(option), word.line, word.column)
                    break


def _set(attributes: dict[str, Any], setting: Word) -> None:
    key, equals, text = setting.text.partition("=")
    if key.startswith("^"):
        raise _bad_setting(
            setting, f"{key!r} is to be read from a file, which a script cannot have"
        )
    if key.startswith("."):
        key = key[1:]
    elif key.partition(".")[0] not in ("system", "user"):
        key = f"system.{key}"
    *parents, last = key.split(".")
    if not all((*parents, last)):
        raise _bad_setting(setting, f"{setting.text!r} is not KEY=VALUE")
    target = attributes
    for parent in parents:
        target = target.setdefault(parent, {})
        if not isinstance(target, dict):
            raise _bad_setting(setting, f"{key!r} lies in {parent!r}, which has a value of its own")
    target[last] = _value(text) if equals else 1


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _bad_setting(word: Word, problem: str) -> BadDirective:
    return BadDirective(word.text.partition("\n")[0], word.line, word.column, problem)
