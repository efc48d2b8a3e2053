"""Directives taken apart: `#DW command key=value key`, each word with its place.

There is no quoting: a directive is split on white space, and an argument at its
first `=`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from warren.directives.diagnostics import Mistake

_SENTINEL_PATTERN = re.compile(r"(?<!\S)#DW(?=\s|$)")
_WORD_PATTERN = re.compile(r"\S+")

LINE_CONTINUES: Final = re.compile(r"\\\s*$")
"""The end of a line whose directive goes on in the next one."""

NEXT_LINE_PREFIX: Final = re.compile(r"\s*(?:#DW(?=\s|$)|#)?\s*")
"""What may stand before the words with which a directive goes on."""

_LINE_BREAK_PATTERN = re.compile(r"\\[ \t\r]*\n[ \t]*(?:#DW(?=\s|$)|#)?")


class Token(msgspec.Struct, frozen=True):
    """A word and where it stands in its directive's text."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Argument(msgspec.Struct, frozen=True):
    """`key=value`, or a bare `key` whose value is None."""

    key: Token
    value: Token | None

    @property
    def end(self) -> int:
        return (self.value or self.key).end


class Directive(msgspec.Struct, frozen=True):
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


class ParseResult(msgspec.Struct, frozen=True):
    """A text as a directive, with every mistake of its form.

    The directive is None where too little of it can be told; where it is there, its mistakes do
    not make others.
    """

    directive: Directive | None
    mistakes: tuple[Mistake, ...] = ()


MAX_WORD_LENGTH: Final = 4096
"""Characters of an argument, about as many as a path may have (PATH_MAX).

Together with patterns that take linear time it bounds what a check may cost.
"""


def parse(text: str) -> Directive:
    """Take one directive apart. Raises the first Mistake where it is none."""
    result = try_parse(text)
    if result.mistakes:
        raise result.mistakes[0]
    assert result.directive is not None
    return result.directive


def try_parse(text: str) -> ParseResult:
    """Take one directive apart, and find all that is wrong with its form."""
    words = [Token(match[0], match.start()) for match in _WORD_PATTERN.finditer(text)]
    form_mistake = _form_mistake(text, words)
    if form_mistake is not None:
        return ParseResult(None, (form_mistake,))
    arguments: dict[str, Argument] = {}
    mistakes: list[Mistake] = []
    for word in words[2:]:
        argument = _argument(word)
        key = argument.key.text
        if not key:
            sentence = "An argument has a name before its '='."
        elif key in arguments:
            sentence = f"The argument {key} is repeated."
        elif key == "command":
            sentence = "No argument is named command: the command is the word after #DW."
        else:
            arguments[key] = argument
            continue
        mistakes.append(Mistake(text, word.start, word.end, sentence))
    directive = Directive(text, words[1], tuple(arguments.values()))
    return ParseResult(directive, tuple(mistakes))


def _form_mistake(text: str, words: Sequence[Token]) -> Mistake | None:
    """Say why a text cannot be told apart into a command and its arguments."""
    if not words or words[0].text != "#DW":
        start, end = (words[0].start, words[0].end) if words else (0, 0)
        sentence = "A directive starts with #DW and a space."
        return Mistake(text, start, end, sentence, _suggest_start(words))
    if len(words) == 1:
        sentence = "A command is missing after #DW."
        return Mistake(text, words[0].start, words[0].end, sentence, "Try jobdw.")
    for word in words:
        if len(word.text) > MAX_WORD_LENGTH:
            sentence = f"A word has {MAX_WORD_LENGTH} characters at most, as a path has."
            return Mistake(text, word.start, word.start + 1, sentence, "Use a shorter path.")
    for word, following in pairwise(words):
        _, equals, value = word.text.partition("=")
        quote = value[:1] if value[:1] in ("'", '"') else ""
        if word.text.endswith("\\") or (equals and quote and not value[1:].endswith(quote)):
            return Mistake(
                text, word.start, following.end,
                "A directive knows no quotes, and a value ends at the first space.",
                "Use a path without spaces, such as that of a link.",
            )  # fmt: skip
    return None


def _suggest_start(words: Sequence[Token]) -> str | None:
    """Suggest how a text begins that is nearly a directive."""
    first_word = words[0].text if words else ""
    if first_word[:3].upper() != "#DW":
        return None
    return f"Try #DW {first_word[3:]}." if first_word[3:] else "Try #DW, in capitals."


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
    block = LINE_CONTINUES.sub("", _LINE_BREAK_PATTERN.sub(" ", block))
    starts = [match.start() for match in _SENTINEL_PATTERN.finditer(block)]
    if not starts or block[: starts[0]].strip():
        starts.insert(0, 0)
    for start, end in zip(starts, [*starts[1:], len(block)], strict=True):
        piece = " ".join(block[start:end].split())
        if piece:
            yield piece
