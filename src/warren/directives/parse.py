"""Directives taken apart: `#DW command key=value key`, each word with its place.

There is no quoting: a directive is split on white space, and an argument at its
first `=`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from warren.directives.diagnostics import Mistake

_SENTINEL = re.compile(r"(?<!\S)#DW(?=\s|$)")
_WORD = re.compile(r"\S+")

CONTINUED: Final = re.compile(r"\\\s*$")
"""The end of a line whose directive goes on in the next one."""

CONTINUATION: Final = re.compile(r"\s*(?:#DW(?=\s|$)|#)?\s*")
"""What may stand before the words with which a directive goes on."""

_LINE_BREAK = re.compile(r"\\[ \t\r]*\n[ \t]*(?:#DW(?=\s|$)|#)?")


@dataclass(frozen=True)
class Token:
    """A word and where it stands in its directive's text."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class Argument:
    """`key=value`, or a bare `key` whose value is None."""

    key: Token
    value: Token | None

    @property
    def end(self) -> int:
        return (self.value or self.key).end


@dataclass(frozen=True)
class Directive:
    """One `#DW` line."""

    text: str
    command: Token
    arguments: tuple[Argument, ...]

    def argument(self, key: str) -> Argument | None:
        """Find an argument by its key."""
        return next((found for found in self.arguments if found.key.text == key), None)

    @property
    def values(self) -> Mapping[str, str]:
        """Return the arguments as strings; a bare key means `true`."""
        return {
            each.key.text: "true" if each.value is None else each.value.text
            for each in self.arguments
        }

    def mistake(
        self, at: Token | Argument, sentence: str, suggestion: str | None = None
    ) -> Mistake:
        """Make the mistake that stands at a token or argument of this directive."""
        start = at.start if isinstance(at, Token) else at.key.start
        return Mistake(self.text, start, at.end, sentence, suggestion)


def parse(text: str) -> Directive:
    """Take one directive apart. Raises Mistake where it is none."""
    words = [Token(match[0], match.start()) for match in _WORD.finditer(text)]
    if not words or words[0].text != "#DW":
        end = words[0].end if words else 0
        raise Mistake(text, 0, end, "A directive starts with #DW and a space.")
    if len(words) == 1:
        raise Mistake(
            text, words[0].start, words[0].end, "A command is missing after #DW.", "Try jobdw."
        )
    _demand_no_quoting(text, words)
    arguments: dict[str, Argument] = {}
    for word in words[2:]:
        argument = _argument(word)
        key = argument.key.text
        if not key:
            raise Mistake(text, word.start, word.end, "An argument has a name before its '='.")
        if key in arguments:
            raise Mistake(text, word.start, word.end, f"The argument {key} is repeated.")
        arguments[key] = argument
    return Directive(text, words[1], tuple(arguments.values()))


def _demand_no_quoting(text: str, words: Sequence[Token]) -> None:
    """Raise Mistake where a space was meant to be part of a value."""
    for word, following in pairwise(words):
        _, equals, value = word.text.partition("=")
        quote = value[:1] if value[:1] in ("'", '"') else ""
        if word.text.endswith("\\") or (equals and quote and not value[1:].endswith(quote)):
            raise Mistake(
                text, word.start, following.end,
                "A directive knows no quotes, and a value ends at the first space.",
                "Use a path without spaces, such as that of a link.",
            )  # fmt: skip


def _argument(word: Token) -> Argument:
    key, equals, value = word.text.partition("=")
    if not equals:
        return Argument(word, None)
    return Argument(Token(key, word.start), Token(value, word.start + len(key) + 1))


def split(block: str) -> Iterator[str]:
    """Cut a text that holds several directives, on lines or on one line, into each.

    A line that ends in `\\` goes on in the next one, with `#DW`, `#` or nothing before what
    follows. Text before the first `#DW` comes out as it is, for `parse` to refuse.
    """
    block = CONTINUED.sub("", _LINE_BREAK.sub(" ", block))
    starts = [match.start() for match in _SENTINEL.finditer(block)]
    if not starts or block[: starts[0]].strip():
        starts.insert(0, 0)
    for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
        piece = " ".join(block[start:end].split())
        if piece:
            yield piece
