"""A mistake in a directive: where it is, what it is, what would be right."""

from collections.abc import Iterable
from difflib import get_close_matches

from warren.base.errors import UserMistake


class Mistake(UserMistake):
    """One mistake, with its place in the directive's text.

    `str()` is the sentence alone; `shown` puts the directive and a caret above it.
    """

    def __init__(
        self, text: str, start: int, end: int, sentence: str, suggestion: str | None = None
    ) -> None:
        super().__init__(sentence if suggestion is None else f"{sentence} {suggestion}")
        self.text = text
        self.start = start
        self.end = max(end, start + 1)

    @property
    def shown(self) -> str:
        """Three lines for a person: the directive, carets under the mistake, the sentence."""
        carets = " " * self.start + "^" * (self.end - self.start)
        return f"{self.text}\n{carets}\n{self}"


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Suggest the known word that is nearest, if one is near."""
    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else None


def listed(words: Iterable[str]) -> str:
    """Write words as a person would list them: `raw, xfs or gfs2`."""
    *most, last = list(words) or ["nothing"]
    return f"{', '.join(most)} or {last}" if most else last
