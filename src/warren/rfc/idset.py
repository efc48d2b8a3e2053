"""Sets of small numbers as text: `0,3-5` (RFC 22).

Ids go from 0 to `LARGEST`. A text of a few characters can name billions of them, so
no more than `MOST_IDS` are read from one text, unless the caller sets another limit.
"""

import re
from collections.abc import Iterable
from reprlib import repr as brief
from typing import Final

from warren.rfc.errors import BadFormat

LARGEST: Final = 2**32 - 2
MOST_IDS: Final = 2**20

_NUMBER = "(0|[1-9][0-9]{0,9})"
_ELEMENT_PATTERN = re.compile(f"{_NUMBER}(?:-{_NUMBER})?")


def decode(text: str, *, limit: int = MOST_IDS) -> tuple[int, ...]:
    """Return the ids in ascending order; none for the empty text and for `[]`.

    Raises BadFormat for anything RFC 22 forbids: ids that descend or repeat, leading
    zeros, blanks, a bracket alone. Also for more than `limit` ids.
    """
    bracketed = text.startswith("[") and text.endswith("]")
    body = text[1:-1] if bracketed else text
    if not body:
        return ()
    if body.count(",") >= limit:
        raise BadFormat(f"idset {brief(text)}: it holds more than {limit} ids")
    ids: list[int] = []
    previous = -1
    position = int(bracketed)
    for element in body.split(","):
        match = _ELEMENT_PATTERN.fullmatch(element)
        if match is None:
            raise BadFormat(f"idset {brief(text)}: {_mistake(element, position)}")
        low, high = match.groups()
        first = int(low)
        if first <= previous:
            raise BadFormat(f"idset {brief(text)}: {first} at {position} does not ascend")
        last = first if high is None else int(high)
        if high is not None and last <= first:
            raise BadFormat(
                f"idset {brief(text)}: the range '{element}' at {position} does not ascend"
            )
        if last - first >= limit - len(ids):
            raise BadFormat(f"idset {brief(text)}: it holds more than {limit} ids")
        ids.extend(range(first, last + 1))
        if last > LARGEST:
            raise BadFormat(f"idset {brief(text)}: {last} at {position} is larger than {LARGEST}")
        previous = last
        position += len(element) + 1
    return tuple(ids)


def _mistake(element: str, position: int) -> str:
    if not element:
        return f"a number is missing at {position}"
    return f"{brief(element)} at {position} is neither a number nor a range"


def encode(ids: Iterable[int], *, brackets: bool = False) -> str:
    """Write the ids in the shortest form; `brackets` go around more than one."""
    numbers = sorted(set(ids))
    if not numbers:
        return ""
    first, last = numbers[0], numbers[-1]
    if first < 0 or last > LARGEST:
        wrong = first if first < 0 else last
        raise BadFormat(f"{wrong} is in no idset: ids go from 0 to {LARGEST}")
    if first == last:
        return str(first)
    # Most sets have no gap: all cores of a node, all ranks of a job.
    text = f"{first}-{last}" if last - first == len(numbers) - 1 else _runs(numbers)
    return f"[{text}]" if brackets else text


def _runs(numbers: list[int]) -> str:
    parts: list[str] = []
    first = last = numbers[0]
    for number in [*numbers[1:], -1]:  # -1 goes on from nothing, and so ends the last run
        if number == last + 1:
            last = number
            continue
        parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = number
    return ",".join(parts)
