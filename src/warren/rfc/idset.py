"""Sets of small numbers as text: `0,3-5` (RFC 22)."""

import re
from collections.abc import Iterable

from warren.rfc.errors import BadFormat

_NUMBER = r"(?:0|[1-9][0-9]{0,18})"
_ELEMENT = re.compile(rf"({_NUMBER})(?:-({_NUMBER}))?")
_LARGEST = 2**32 - 2


def decode(text: str) -> tuple[int, ...]:
    """Give the ids in ascending order. Raises BadFormat for anything RFC 22 forbids."""
    body = text
    if text.startswith("[") and text.endswith("]") and len(text) > 1:
        body = text[1:-1]
    if not body:
        return ()
    ids: list[int] = []
    for element in body.split(","):
        match = _ELEMENT.fullmatch(element)
        if match is None:
            raise BadFormat(f"idset {text!r}: {element!r} is neither a number nor a range")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if match[2] is not None and last <= first:
            raise BadFormat(f"idset {text!r}: the range {element!r} does not ascend")
        if ids and first <= ids[-1]:
            raise BadFormat(f"idset {text!r}: {first} does not ascend")
        if last > _LARGEST:
            raise BadFormat(f"idset {text!r}: {last} is larger than {_LARGEST}")
        ids.extend(range(first, last + 1))
    return tuple(ids)


def encode(ids: Iterable[int], *, brackets: bool = False) -> str:
    """Write the ids in the shortest form; `brackets` go around more than one."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(ids)):
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    single = len(runs) == 1 and runs[0][0] == runs[0][1]
    return f"[{text}]" if brackets and runs and not single else text
