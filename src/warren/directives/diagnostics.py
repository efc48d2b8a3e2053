"""A mistake in a directive: where it is, what it is, what would be right."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from typing import Final

import msgspec

from warren.base.errors import UserMistake

MAX_SHOWN: Final = 20
"""Mistakes that are told at once where an answer has to stay small."""


class Mistake(UserMistake):
    """One mistake, with its place in the directive's text.

    `str()` is the sentence alone; `text_with_carets` puts the directive and a caret above it.
    """

    def __init__(
        self, text: str, start: int, end: int, sentence: str, suggestion: str | None = None
    ) -> None:
        super().__init__(sentence if suggestion is None else f"{sentence} {suggestion}")
        self.text = text
        self.start = start
        self.end = max(end, start + 1)
        self.sentence = sentence
        self.suggestion = suggestion

    @property
    def text_with_carets(self) -> str:
        """Three lines for a person: the directive, carets under the mistake, the sentence."""
        # A tab is as wide above as below.
        indent = "".join("\t" if each == "\t" else " " for each in self.text[: self.start])
        return f"{self.text}\n{indent.ljust(self.start)}{'^' * (self.end - self.start)}\n{self}"


class Finding(msgspec.Struct, frozen=True):
    """A mistake, and which directive of a job it is in."""

    directive_index: int
    mistake: Mistake

    def overlaps(self, other: "Finding") -> bool:
        """Return whether both are in the same words of one directive."""
        mine, its = self.mistake, other.mistake
        return (
            self.directive_index == other.directive_index
            and mine.start < its.end
            and its.start < mine.end
        )


class Mistakes(UserMistake):
    """The first `MAX_SHOWN` mistakes of a job's directives; `str()` has one on each line."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        shown_mistakes = [found.mistake for found in findings[:MAX_SHOWN]]
        left_count = len(findings) - len(shown_mistakes)
        more_lines = (
            [f"There {'is' if left_count == 1 else 'are'} {left_count} more."] if left_count else []
        )
        super().__init__("\n".join([*map(str, shown_mistakes), *more_lines]))
        self.text_with_carets = "\n".join(
            [*(mistake.text_with_carets for mistake in shown_mistakes), *more_lines]
        )


def raise_mistakes(findings: Sequence[Finding]) -> None:
    """Raise the mistakes that there are: the only one, or Mistakes."""
    if len(findings) == 1:
        raise findings[0].mistake
    if findings:
        raise Mistakes(findings)


_MAX_CANDIDATES: Final = 64
"""Known words among which a near one is looked for: each costs as much as the rest of a check."""


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Suggest the known word that is nearest, if one is near. Of many, the first are tried."""
    return (
        _nearest(word, tuple(islice(known, _MAX_CANDIDATES)))
        if len(word) <= _MAX_WORD_LENGTH
        else None
    )


_MAX_WORD_LENGTH: Final = 128
"""Characters of a word for which a near one is looked for."""


@lru_cache(maxsize=1024)
def _nearest(word: str, known: tuple[str, ...]) -> str | None:
    near = get_close_matches(word, known, n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else None


def alternatives(words: Iterable[str]) -> str:
    """Write words as a person would list them: `raw, xfs or gfs2`."""
    *first_words, last_word = list(words) or ["nothing"]
    return f"{', '.join(first_words)} or {last_word}" if first_words else last_word
