"""What killed each mutant, kept from one run to the next."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.mutants.changes import ROOT, Mutant, digest
from tools.mutants.covering import CACHE, file_of


class Results:
    """What killed each mutant, as far as that still holds."""

    def __init__(self, directory: Path = CACHE) -> None:
        self._file = directory / "results.jsonl"
        self._texts: dict[str, str] = {}
        self._known: dict[str, dict[str, Any]] = {}
        if self._file.exists():
            for line in self._file.read_text().splitlines():
                one = json.loads(line)
                self._known[one["key"]] = one

    def holds(self, mutant: Mutant, tests: Sequence[str]) -> bool:
        one = self._known.get(mutant.key)
        return one is not None and one["tests"] == self._about(one["killer"], tests)

    def killer(self, mutant: Mutant) -> str | None:
        """Return what killed a mutant; None is for those that survive."""
        return self._known[mutant.key]["killer"]  # type: ignore[no-any-return]

    def add(self, mutant: Mutant, tests: Sequence[str], killer: str | None) -> None:
        one = {"key": mutant.key, "killer": killer, "tests": self._about(killer, tests)}
        self._known[mutant.key] = one
        with self._file.open("a") as file:
            file.write(json.dumps(one) + "\n")

    def _about(self, killer: str | None, tests: Sequence[str]) -> str:
        """Return what a result depends on: the test that killed, or all that did not."""
        files = sorted({file_of(test) for test in tests} if killer is None else {file_of(killer)})
        return digest(*map(self._text, files))

    def _text(self, file: str) -> str:
        if file not in self._texts:
            path = ROOT / file
            self._texts[file] = path.read_text() if path.is_file() else ""
        return self._texts[file]
