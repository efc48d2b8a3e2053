"""What the real controllers wrote, as `../shared/vectors/nnf-objects` has it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from tests.rfc.vectors import ROOT

PLACE = ROOT / "nnf-objects"


def cases() -> list[str]:
    """Return the names of all cases; none where the vectors are missing."""
    return sorted(each.name for each in PLACE.glob("*") if each.is_dir())


@cache
def dump(path: Path) -> Mapping[str, Sequence[Any]]:
    """Return the objects of a file by kind, with the short forms filled in."""
    found: dict[str, list[Any]] = {}
    # What stands for UIDs could be no label.
    for kind, objects in json.loads(path.read_text().replace("<uid>", "uid")).items():
        found[kind] = []
        for obj in objects if isinstance(objects, list) else ():
            if "same-as" not in obj:
                found[kind].append(obj)
                continue
            base = dump((path.parent / obj["same-as"]).resolve())[kind]
            if "all" in obj:
                found[kind] += base
                continue
            named = [each for each in base if _place(each["metadata"]) == _place(obj)]
            found[kind].append(_changed(named[0], obj))
    return found


def profiles(kind: str = "NnfStorageProfile") -> dict[str, Any]:
    """Return the profiles that there were, by name."""
    made: dict[str, Any] = {}
    for each in json.loads((PLACE / "profiles.json").read_text())[kind]:
        if "like" not in each:
            made[each["metadata"]["name"]] = each
            continue
        one = _changed(made[each["like"]], each)
        one["metadata"] = {**one["metadata"], "name": each["name"]}
        made[each["name"]] = one
    return made


def breakdowns() -> Iterator[tuple[str, Path]]:
    """Return where each DirectiveBreakdown is seen first: its name, and the file."""
    for case in cases():
        known = set()
        for path in sorted((PLACE / case).glob("[0-9][0-9]-*.json")):
            if path.name[:2] in ("00", "99"):
                continue
            for obj in dump(path).get("DirectiveBreakdown", ()):
                name = obj["metadata"]["name"]
                if name not in known:
                    known.add(name)
                    yield name, path


def _place(meta: Mapping[str, Any]) -> tuple[str, str | None]:
    return meta["name"], meta.get("namespace")


def _changed(base: Any, form: Mapping[str, Any]) -> Any:
    made = deepcopy(base)
    for pointer, value in form.get("except", {}).items():
        *path, last = _steps(pointer)
        place = made
        for step in path:
            place = place[int(step) if isinstance(place, list) else step]
        place[int(last) if isinstance(place, list) else last] = value
    for pointer in form.get("gone", ()):
        *path, last = _steps(pointer)
        place = made
        for step in path:
            place = place[int(step) if isinstance(place, list) else step]
        del place[last]
    return made


def _steps(pointer: str) -> list[str]:
    return [each.replace("~1", "/").replace("~0", "~") for each in pointer.split("/")[1:]]
