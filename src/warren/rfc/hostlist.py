"""Lists of hosts as text: `node[01-03,7]` (RFC 29).

Order and repetition are kept, and the zero padding of the first id of a bracket
holds for the whole bracket, which the libraries of the field get wrong. An id that
spells zeros of its own keeps them, too: reading never renames a host.

A text of a few characters can name billions of hosts, so no more than `MOST_HOSTS` are read
from one text, unless the caller sets another limit, and none of more than `LONGEST_NAME`
characters.
"""

import re
from collections.abc import Iterable
from reprlib import repr as brief
from typing import Final

from warren.rfc.errors import BadFormat

MOST_HOSTS: Final = 2**18
LONGEST_NAME: Final = 253

_DIGITS = "0123456789"
_NAME = r"[!-+\--Z\\^-~]*+"  # what is printable in ASCII, but for blanks, commas and brackets
_IDS = "[0-9,-]*+"
_EXPRESSION_PATTERN = re.compile(rf"({_NAME})(?:\[({_IDS})\]({_NAME}))?(?:,|\Z)")
_RANGE_PATTERN = re.compile(r"([0-9]{1,253})-([0-9]{1,253})")
_NAME_PATTERN = re.compile(_NAME)
_IDS_PATTERN = re.compile(_IDS)

# A number at the end of a name has at most so many digits, or is not taken for one.
_MOST_DIGITS = 18


def decode(text: str, *, limit: int = MOST_HOSTS) -> list[str]:
    """Return the hosts in order. Raises BadFormat where RFC 29 is not met, and for too many."""
    hosts: list[str] = []
    position = 0
    while position < len(text):
        match = _EXPRESSION_PATTERN.match(text, position)
        if match is None:
            raise BadFormat(f"hostlist {brief(text)}: {_mistake(text, position)}")
        prefix = match[1]
        if match[2] is not None:
            _extend(hosts, match, limit)
        elif len(prefix) > LONGEST_NAME:
            raise _too_long(text, position)
        elif prefix:  # nothing at all between two commas is left out
            hosts.append(prefix)
        if len(hosts) > limit:
            raise _too_many(text, limit)
        position = match.end()
    return hosts


def _extend(hosts: list[str], match: re.Match[str], limit: int) -> None:
    text = match.string
    prefix, ids, suffix = match.groups()
    position = match.start(2)
    longest_id = LONGEST_NAME - len(prefix) - len(suffix)
    if ids.count(",") >= limit - len(hosts):
        raise _too_many(text, limit)
    width: int | None = None
    for element in ids.split(","):
        if width is None:
            width = _width(element)
        if element.isdigit():
            if len(element) > longest_id:
                raise _too_long(text, match.start())
            hosts.append(f"{prefix}{element.zfill(width)}{suffix}")
        else:
            range_match = _RANGE_PATTERN.fullmatch(element)
            if range_match is None:
                raise BadFormat(f"hostlist {brief(text)}: {_bad_element(element, position)}")
            first, last = int(range_match[1]), int(range_match[2])
            if last < first:
                raise BadFormat(
                    f"hostlist {brief(text)}: the range {brief(element)} at {position} "
                    "does not ascend"
                )
            if last - first >= limit - len(hosts):
                raise _too_many(text, limit)
            padded_width = max(width, _width(element))
            if max(padded_width, len(str(last))) > longest_id:
                raise _too_long(text, match.start())
            if padded_width <= len(str(first)):
                hosts.extend([f"{prefix}{each}{suffix}" for each in range(first, last + 1)])
            else:
                hosts.extend(
                    [f"{prefix}{each:0{padded_width}d}{suffix}" for each in range(first, last + 1)]
                )
        position += len(element) + 1


def _width(element: str) -> int:
    return len(element.partition("-")[0]) if element.startswith("0") else 0


def _mistake(text: str, start: int) -> str:
    """Say what is wrong with the first expression from `start` on, and where."""
    position = _end(_NAME_PATTERN, text, start)
    if text[position] == "[":
        end = _end(_IDS_PATTERN, text, position + 1)
        if end == len(text):
            return f"the bracket at {position} is not closed"
        if text[end] != "]":
            return f"unexpected {text[end]!r} at {end}, in the bracket of {position}"
        position = _end(_NAME_PATTERN, text, end + 1)
        if text[position] == "[":
            return f"a second bracket at {position}, where a name has one at most"
    return f"unexpected {text[position]!r} at {position}"


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    assert match is not None  # the patterns also match nothing at all
    return match.end()


def _bad_element(element: str, position: int) -> str:
    if not element:
        return f"a number is missing at {position}"
    return f"{brief(element)} at {position} is neither a number nor a range"


def _too_many(text: str, limit: int) -> BadFormat:
    return BadFormat(f"hostlist {brief(text)}: it names more than {limit} hosts")


def _too_long(text: str, position: int) -> BadFormat:
    return BadFormat(
        f"hostlist {brief(text)}: the name at {position} has more than {LONGEST_NAME} characters"
    )


def encode(hosts: Iterable[str]) -> str:
    """Write the hosts in order, neighbours that differ in their last number in one bracket.

    Raises BadFormat for a name that could not be read back.
    """
    groups: list[_Group] = []
    group: _Group | None = None
    for host in hosts:
        prefix, digits = _split(host)
        if group is None or not group.add(prefix, digits):
            if not host or len(prefix) > LONGEST_NAME or _NAME_PATTERN.fullmatch(prefix) is None:
                raise BadFormat(f"hostlist: {brief(host)} is no name of a host")
            group = _Group(prefix, digits)
            groups.append(group)
    return ",".join([group.text() for group in groups])


def _split(host: str) -> tuple[str, str]:
    """Part a host's name from the number at its end; the number is empty where there is none."""
    prefix = host.rstrip(_DIGITS)
    digits = host[len(prefix) :]
    if len(digits) > _MOST_DIGITS or len(prefix) > LONGEST_NAME - _MOST_DIGITS:
        return host, ""
    return prefix, digits


class _Group:
    """Hosts of one prefix, with the padding of the first of them; or one host without a number."""

    __slots__ = ("_last", "_prefix", "_runs", "_width")

    def __init__(self, prefix: str, digits: str) -> None:
        self._prefix = prefix
        self._width = len(digits) if digits.startswith("0") else 0
        self._last = int(digits or -1)
        self._runs = [[digits, digits]]

    def add(self, prefix: str, digits: str) -> bool:
        if not digits or prefix != self._prefix or self._last < 0:
            return False
        # Of a number with zeros in front only one width will do, of others any that is no wider.
        length, width = len(digits), self._width
        if length < width or (digits[0] == "0" and length != (width or 1)):
            return False
        number = int(digits)
        if number == self._last + 1:
            self._runs[-1][1] = digits
        else:
            self._runs.append([digits, digits])
        self._last = number
        return True

    def text(self) -> str:
        runs = self._runs
        if len(runs) == 1 and runs[0][0] == runs[0][1]:
            return self._prefix + runs[0][0]
        ranges = [low if low == high else f"{low}-{high}" for low, high in runs]
        return f"{self._prefix}[{','.join(ranges)}]"


def sorted_unique(hosts: Iterable[str]) -> list[str]:
    """Return each host once, sorted by name and then by number: `n2` before `n10`."""
    return sorted(set(hosts), key=_sort_key)


def _sort_key(host: str) -> tuple[str, int, str]:
    prefix, digits = _split(host)
    return prefix, int(digits or -1), digits
