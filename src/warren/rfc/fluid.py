"""Job ids: FLUIDs and their spellings (RFC 19).

An id is 64 bits: 40 of milliseconds, 14 of generator id, 10 of sequence, so that
ids of one generator sort by time.
"""

from typing import NewType

from warren.rfc.errors import BadFormat

JobId = NewType("JobId", int)

ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_DIGIT = {letter: value for value, letter in enumerate(ALPHABET)}
_LIMIT = 2**64
_SEQUENCES = 2**10


def f58(job: int) -> str:
    """Spell an id as people read it: `ƒuZZybuNNy`."""
    return "ƒ" + _base58(job)


def f58plain(job: int) -> str:
    """Spell an id in ASCII: `fuZZybuNNy`."""
    return "f" + _base58(job)


def dothex(job: int) -> str:
    """Spell an id as four groups of hexadecimal digits: `0017.e9fb.8df1.6c2e`."""
    digits = f"{job:016x}"
    return ".".join(digits[start : start + 4] for start in range(0, 16, 4))


def kvs(job: int) -> str:
    """Give the job's directory in the KVS: `job.0017.e9fb.8df1.6c2e`."""
    return "job." + dothex(job)


def parse(text: str) -> JobId:
    """Read an id in any of its spellings: dec, hex, dothex, kvs, f58 and f58plain."""
    word = text.strip()
    try:
        value = _value(word)
    except (ValueError, KeyError):
        raise BadFormat(f"{text!r} is not a job id") from None
    if not 0 <= value < _LIMIT:
        raise BadFormat(f"{text!r} is not a job id: it does not fit 64 bits")
    return JobId(value)


def _value(word: str) -> int:
    if "." in word:
        groups = word.removeprefix("job.").split(".")
        if len(groups) != 4 or not all(0 < len(group) <= 4 for group in groups):
            raise ValueError(word)
        return int("".join(_hex(group).rjust(4, "0") for group in groups), 16)
    if word.startswith(("ƒ", "f")):
        if not 0 < len(word) - 1 <= 12:
            raise ValueError(word)
        value = 0
        for letter in word[1:]:
            value = value * 58 + _DIGIT[letter]
        return value
    if word.startswith("0x"):
        return int(_hex(word[2:]), 16)
    if not (word.isascii() and word.isdigit()):
        raise ValueError(word)
    return int(word)


def _hex(digits: str) -> str:
    if not digits or not set(digits) <= set("0123456789abcdefABCDEF"):
        raise ValueError(digits)
    return digits


def _base58(value: int) -> str:
    if not 0 <= value < _LIMIT:
        raise BadFormat(f"{value} is not a job id: it does not fit 64 bits")
    letters: list[str] = []
    while value or not letters:
        value, digit = divmod(value, 58)
        letters.append(ALPHABET[digit])
    return "".join(reversed(letters))


class Generator:
    """Makes ids that never repeat, not even over restarts.

    Give it the greatest id ever made: its successors count on from the next
    millisecond, whatever the clock says now.
    """

    def __init__(self, now_ms: int, latest: int = 0, generator: int = 0) -> None:
        self._offset = (latest >> 24) + 1 - now_ms
        self._generator = generator
        self._latest = (latest >> 24, _SEQUENCES - 1)

    def next(self, now_ms: int) -> JobId:
        """Make an id. When a millisecond is used up, or time steps back, borrow the next one."""
        stamp, sequence = now_ms + self._offset, 0
        if stamp <= self._latest[0]:
            stamp, sequence = self._latest[0], self._latest[1] + 1
        if sequence == _SEQUENCES:
            stamp, sequence = stamp + 1, 0
        self._latest = (stamp, sequence)
        return JobId(stamp << 24 | self._generator << 10 | sequence)
