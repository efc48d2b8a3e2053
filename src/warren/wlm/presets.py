"""A site's names for directives, which jobs may say in their place (coral2-spec section 13)."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from warren.base.errors import UserMistake
from warren.directives.diagnostics import alternatives


class Presets:
    """A frobnicator of ingest: replaces names of presets in `dw` by their directives.

    This is done at submission, so that later changes of a preset touch no job that was accepted.
    """

    def __init__(self, presets: Mapping[str, Sequence[str]]) -> None:
        self._presets = presets

    def configure(self, presets: Mapping[str, Sequence[str]]) -> None:
        """Take other presets from now on."""
        self._presets = presets

    def __call__(self, spec: Any) -> Any:
        """Return a jobspec with the directives that it names, its form unchecked as yet.

        Raises UserMistake for a text that is neither a preset nor a directive.
        """
        dw = _dw_attribute(spec)
        blocks = [dw] if isinstance(dw, str) else dw
        if not self._presets or not isinstance(blocks, list):
            return spec
        expanded: list[Any] = []
        for block in blocks:
            expanded += self._expand(block) if isinstance(block, str) else [block]
        if expanded == blocks:
            return spec
        attributes = spec["attributes"]
        system = {**attributes["system"], "dw": expanded}
        return {**spec, "attributes": {**attributes, "system": system}}

    def _expand(self, block: str) -> Sequence[str]:
        name = block.strip()
        if name in self._presets:
            return self._presets[name]
        if name and "#" not in name:
            nearest = get_close_matches(name, self._presets, n=1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"take {self._known_presets()}."
            raise UserMistake(f"{name!r} is neither a #DW directive nor a preset: {hint}")
        return [block]

    def _known_presets(self) -> str:
        return alternatives(sorted(self._presets))


def _dw_attribute(spec: Any) -> Any:
    """Return a jobspec's `dw` attribute; None where it has none, or is no jobspec."""
    for key in ("attributes", "system", "dw"):
        spec = spec.get(key) if isinstance(spec, Mapping) else None
    return spec
