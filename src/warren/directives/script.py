r"""The `#DW` lines of a batch script: which they are, and which only look as if they were.

Directives stand among the first comments of a script, each at the beginning of its line. A line
that ends in `\` goes on in the next one, with `#DW`, `#` or nothing before what follows.
"""

import re
import string
from collections.abc import Iterable
from typing import Final

import msgspec

from warren.directives.diagnostics import Mistake
from warren.directives.parse import LINE_CONTINUES, NEXT_LINE_PREFIX

_DIRECTIVE_PATTERN: Final = re.compile(r"#DW(?=\s|$)")
_LOOKALIKE_PATTERN: Final = re.compile(r"\s*(#\s*DW)\s+\w+\s.*\w=\S", re.IGNORECASE)
"""What no user writes as a comment: the word, in whatever letters, a command, and an argument."""

_CR: Final = "\r"
_SPACE_AND_BACKSLASH: Final = f"{string.whitespace}\\"
"""What is taken off the end of a line that goes on."""


class Remark(msgspec.Struct, frozen=True):
    """What an author would want to know of a line, and where in the script it stands."""

    line: int
    mistake: Mistake

    def text_with_carets(self, script_name: str) -> str:
        """Write it for a person: the place, the line, carets under the words, the sentence."""
        return f"{script_name}, line {self.line}:\n{self.mistake.text_with_carets}"


class Word(msgspec.Struct, frozen=True):
    """A word, and where its script has it."""

    text: str
    line: int
    """From 1."""
    column: int
    """From 0."""
    length: int
    """Characters there: fewer or more than here if it came from a variable."""


class Script(msgspec.Struct, frozen=True):
    """The directives of a script, and what is to be said of its lines."""

    directives: tuple[str, ...]
    remarks: tuple[Remark, ...]
    words: tuple[Word, ...] = ()
    """The words of all directives."""
    lines: tuple[str, ...] = ()


class LocatedDirective(msgspec.Struct, frozen=True):
    """One directive, and where its words are in the script."""

    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The directive as rules see it."""
        return " ".join(word.text for word in self.words)

    def line_and_columns(self, start: int, end: int) -> tuple[int, int, int]:
        """Return line, first column and the one behind the last, of a part of the text.

        Of a part that goes on in the next line, it is what stands in the first.
        """
        offset = 0
        parts: list[tuple[int, int, int]] = []
        for word in self.words:
            if offset < end and start < offset + len(word.text):
                first, last = max(start - offset, 0), min(end - offset, len(word.text))
                if word.length != len(word.text):  # a variable's: all of its place
                    first, last = 0, word.length
                parts.append((word.line, word.column + first, word.column + last))
            offset += len(word.text) + 1
        if not parts:
            return self.words[0].line, self.words[0].column, self.words[0].column + 1
        line, column, _ = parts[0]
        return line, column, [last for part_line, _, last in parts if part_line == line][-1]


def locate_directives(words: Iterable[Word]) -> list[LocatedDirective]:
    """Divide words into directives, of which a line may have several."""
    directives: list[list[Word]] = []
    for word in words:
        if word.text == "#DW" or not directives:
            directives.append([])
        directives[-1].append(word)
    return [LocatedDirective(tuple(each)) for each in directives]


def read(text: str) -> Script:
    """Read the directives of a script. A program that is no text has none."""
    if "\0" in text:
        return Script((), ())
    lines = text.split("\n")
    directives: list[str] = []
    words: list[Word] = []
    remarks: list[Remark] = []
    if lines[0].startswith("#!") and lines[0].endswith(_CR):
        first_line = lines[0].removesuffix(_CR)
        remarks.append(_remark(1, first_line, 2, len(first_line), _WINDOWS, _CONVERT))
    in_comments = True
    index = 0
    while index < len(lines):
        line, number = lines[index].removesuffix(_CR), index + 1
        index += 1
        if _DIRECTIVE_PATTERN.match(line) and in_comments:
            parts = [line]
            words += _words(line, number, 0)
            while LINE_CONTINUES.search(parts[-1]):
                parts[-1] = parts[-1].rstrip(_SPACE_AND_BACKSLASH)
                words = _without_backslash(words)
                following = lines[index].removesuffix(_CR) if index < len(lines) else ""
                words_start = _words_start(following)
                if not following[words_start:].rstrip():
                    break
                if not following.lstrip().startswith("#"):
                    start = len(following) - len(following.lstrip())
                    remarks.append(
                        _remark(
                            index + 1, following, start, len(following), _A_COMMAND, _AS_COMMENT
                        )
                    )
                parts.append(following[words_start:].rstrip())
                words += _words(parts[-1], index + 1, words_start)
                index += 1
            directives.append(" ".join(filter(None, parts)).strip())
        elif _DIRECTIVE_PATTERN.match(line):
            remarks.append(_remark(number, line, 0, 3, _LATE, "Move it above them."))
        elif in_comments and (lookalike := _LOOKALIKE_PATTERN.match(line)):
            start, end = lookalike.span(1)
            remarks.append(_remark(number, line, start, end, _IS_COMMENT, _WRITE_DW))
        elif line.strip() and not line.lstrip().startswith("#"):
            in_comments = False
    return Script(tuple(directives), tuple(remarks), tuple(words), tuple(lines))


def _words(text: str, line: int, column: int) -> list[Word]:
    return [
        Word(match[0], line, column + match.start(), len(match[0]))
        for match in re.finditer(r"\S+", text)
    ]


def _without_backslash(words: list[Word]) -> list[Word]:
    """Take the backslash off that a line ends with, and what is left of its word if nothing is."""
    while words and words[-1].text.endswith("\\"):
        last_word = words.pop()
        text = last_word.text.rstrip("\\")
        if text:
            words.append(Word(text, last_word.line, last_word.column, len(text)))
    return words


def _words_start(line: str) -> int:
    """Return where in a line that is the next of a directive its words begin."""
    match = NEXT_LINE_PREFIX.match(line)
    assert match is not None  # it may be empty
    return match.end()


def _remark(line: int, text: str, start: int, end: int, sentence: str, remedy: str) -> Remark:
    return Remark(line, Mistake(text, start, end, sentence, remedy))


_WINDOWS: Final = (
    "The lines end as those of Windows do (CR LF), so that the carriage return becomes part of "
    "the interpreter's name, which is not found then."
)
_CONVERT: Final = r"Convert the script with sed -i 's/\r$//'."
_A_COMMAND: Final = (
    "This line belongs to the directive above it, and the script's interpreter reads it, too, as "
    "a command."
)
_AS_COMMENT: Final = "Begin it with #DW."
_LATE: Final = "Directives stand before the script's commands: this one is not read."
_IS_COMMENT: Final = "This is a comment and no directive."
_WRITE_DW: Final = "Write #DW, in capitals, without a space in it, at the beginning of the line."
