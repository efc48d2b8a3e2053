r"""The `#DW` lines of a batch script: which they are, and which only look as if they were.

Directives stand among the first comments of a script, each at the beginning of its line. A line
that ends in `\` goes on in the next one, with `#DW`, `#` or nothing before what follows.
"""

import re
from dataclasses import dataclass
from typing import Final

from warren.directives.diagnostics import Mistake
from warren.directives.parse import CONTINUATION, CONTINUED

_DIRECTIVE: Final = re.compile(r"#DW(?=\s|$)")
_ALIKE: Final = re.compile(r"\s*(#\s*DW)\s+\w+\s.*\w=\S", re.IGNORECASE)
"""What nobody writes as a comment: the word, in whatever letters, a command, and an argument."""

_CR: Final = "\r"


@dataclass(frozen=True)
class Remark:
    """What an author would want to know of a line, and where in the script it stands."""

    line: int
    mistake: Mistake

    def shown(self, script: str) -> str:
        """Write it for a person: the place, the line, carets under the words, the sentence."""
        return f"{script}, line {self.line}:\n{self.mistake.shown}"


@dataclass(frozen=True)
class Script:
    """The directives of a script, and what is to be said of its lines."""

    directives: tuple[str, ...]
    remarks: tuple[Remark, ...]


def read(text: str) -> Script:
    """Read the directives of a script. A program that is no text has none."""
    if "\0" in text:
        return Script((), ())
    lines = text.split("\n")
    directives: list[str] = []
    remarks: list[Remark] = []
    if lines[0].startswith("#!") and lines[0].endswith(_CR):
        first = lines[0].removesuffix(_CR)
        remarks.append(_remark(1, first, 2, len(first), _WINDOWS, _CONVERT))
    comments = True
    at = 0
    while at < len(lines):
        line, number = lines[at].removesuffix(_CR), at + 1
        at += 1
        if _DIRECTIVE.match(line) and comments:
            words = line
            while CONTINUED.search(words):
                words = CONTINUED.sub("", words).rstrip()
                if at == len(lines) or not (following := _following(lines[at])):
                    break
                if not lines[at].lstrip().startswith("#"):
                    shown = lines[at].removesuffix(_CR)
                    start = len(shown) - len(shown.lstrip())
                    remarks.append(
                        _remark(at + 1, shown, start, len(shown), _A_COMMAND, _AS_COMMENT)
                    )
                words = f"{words} {following}"
                at += 1
            directives.append(words.strip())
        elif _DIRECTIVE.match(line):
            remarks.append(_remark(number, line, 0, 3, _LATE, "Move it above them."))
        elif comments and (alike := _ALIKE.match(line)):
            start, end = alike.span(1)
            remarks.append(_remark(number, line, start, end, _NONE, _WHOLE))
        elif line.strip() and not line.lstrip().startswith("#"):
            comments = False
    return Script(tuple(directives), tuple(remarks))


def _following(line: str) -> str:
    """Return what a line adds to the directive before it; nothing, and the directive has ended."""
    return CONTINUATION.sub("", line.removesuffix(_CR), count=1).rstrip()


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
_NONE: Final = "This is a comment and no directive."
_WHOLE: Final = "Write #DW, in capitals, without a space in it, at the beginning of the line."
