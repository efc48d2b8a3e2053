"""Lists of hosts as text: `node[01-03,7]` (RFC 29).

Order and repetition are kept, and the zero padding of the first id of a bracket
holds for the whole bracket, which the libraries of the field get wrong.
"""

import re
from collections.abc import Iterable

from warren.rfc.errors import BadFormat

_EXPRESSION = re.compile(
    r"(?P<prefix>[^\[\],\s]*)(?:\[(?P<ids>[^\[\]]*)\](?P<suffix>[^\[\],\s]*))?"
)
_RANGE = re.compile(r"([0-9]{1,253})(?:-([0-9]{1,253}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]+)")


def decode(text: str) -> list[str]:
    """Give the hosts in order. Raises BadFormat where RFC 29 is not met."""
    hosts: list[str] = []
    position = 0
    while position < len(text):
        match = _EXPRESSION.match(text, position)
        assert match is not None  # the expression also matches nothing at all
        position = match.end()
        if position < len(text) and text[position] != ",":
            raise BadFormat(f"hostlist {text!r}: unexpected {text[position]!r} at {position}")
        position += 1
        if match["ids"] is None:
            if match["prefix"]:
                hosts.append(match["prefix"])
        else:
            suffix = match["suffix"] or ""
            hosts.extend(match["prefix"] + number + suffix for number in _ids(text, match["ids"]))
    return hosts


def _ids(text: str, ids: str) -> Iterable[str]:
    width: int | None = None
    for element in ids.split(","):
        match = _RANGE.fullmatch(element)
        if match is None:
            raise BadFormat(f"hostlist {text!r}: {element!r} is neither a number nor a range")
        if width is None:
            width = len(match[1]) if match[1].startswith("0") else 0
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise BadFormat(f"hostlist {text!r}: the range {element!r} does not ascend")
        for number in range(first, last + 1):
            yield f"{number:0{width}d}"


def encode(hosts: Iterable[str]) -> str:
    """Write the hosts in order, neighbours that differ in their last number in one bracket."""
    parts: list[str] = []
    group: _Group | None = None
    for host in hosts:
        if group is not None and group.take(host):
            continue
        if group is not None:
            parts.append(group.text())
        match = _NUMBERED.fullmatch(host)
        if match is None:
            group = None
            parts.append(host)
        else:
            group = _Group(match[1], match[2])
    if group is not None:
        parts.append(group.text())
    return ",".join(parts)


class _Group:
    """Hosts of one prefix, with the padding of the first of them."""

    def __init__(self, prefix: str, number: str) -> None:
        self._prefix = prefix
        self._first = number
        self._width = len(number) if number.startswith("0") else 0
        self._runs = [[int(number), int(number)]]

    def take(self, host: str) -> bool:
        match = _NUMBERED.fullmatch(host)
        if match is None or match[1] != self._prefix:
            return False
        number = int(match[2])
        if f"{number:0{self._width}d}" != match[2]:
            return False
        if number == self._runs[-1][1] + 1:
            self._runs[-1][1] = number
        else:
            self._runs.append([number, number])
        return True

    def text(self) -> str:
        if len(self._runs) == 1 and self._runs[0][0] == self._runs[0][1]:
            return self._prefix + self._first
        spelled = (
            f"{first:0{self._width}d}"
            if first == last
            else f"{first:0{self._width}d}-{last:0{self._width}d}"
            for first, last in self._runs
        )
        return f"{self._prefix}[{','.join(spelled)}]"
