"""Job ids: FLUIDs and their spellings (RFC 19).

An id is 64 bits: 40 of timestamp (milliseconds), 14 of generator id, 10 of sequence, so that
ids of one generator sort by time. The list behind ids in words is mnemonicode's, and
comes with its package where they are wanted.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from reprlib import repr as brief
from typing import Any, Final, NewType

from warren.rfc.errors import BadFormat

JobId = NewType("JobId", int)


class NoWords(BadFormat):
    """The package with the list of words for ids is not installed here."""


ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""The digits of base 58, in which `f58` is spelled."""

# The digits of base 576, in the order of the RFC's table.
EMOJI = (
    "😃😄😁😆😅😂😉😊😍😘😚😋😜😝😏😒😌😔😪😷😵😲😳😨😰😥😢😭😱😖😣😞😓😩😫😤"
    "😡😠👿💀💩👹👺👻👽👾😺😸😹😻😼😽🙀😿😾🙈🙉🙊💌💘💝💖💗💓💞💕💟💔💛💚💙💜"
    "💋💯💢💥💫💦💨💬💤👋👌👈👉👆👇👍👎👊👏🙌👐🙏💅💪👂👃👀👅👄👶👦👧👱👨👩👴"
    "👵🙍🙎🙅🙆💁🙋🙇👮💂👷👸👳👲👰👼🎅💆💇🚶🏃💃👯🏂🏄🏊🛀👫💏💑👪👤👣🐵🐒🐶"
    "🐩🐺🐱🐯🐴🐎🐮🐷🐗🐽🐑🐫🐘🐭🐹🐰🐻🐨🐼🐾🐔🐣🐤🐥🐦🐧🐸🐢🐍🐲🐳🐬🐟🐠🐡🐙"
    "🐚🐌🐛🐜🐝🐞💐🌸💮🌹🌺🌻🌼🌷🌱🌴🌵🌾🌿🍀🍁🍂🍃🍄🍇🍈🍉🍊🍌🍍🍎🍏🍑🍒🍓🍅"
    "🍆🌽🌰🍞🍖🍗🍔🍟🍕🍳🍲🍱🍘🍙🍚🍛🍜🍝🍠🍢🍣🍤🍥🍡🍦🍧🍨🍩🍪🎂🍰🍫🍬🍭🍮🍯"
    "🍵🍶🍷🍸🍹🍺🍻🍴🔪🌏🗾🌋🗻🏠🏡🏢🏣🏥🏦🏨🏩🏪🏫🏬🏭🏯🏰💒🗼🗽🌁🌃🌄🌅🌆🌇"
    "🌉🎠🎡🎢💈🎪🚃🚄🚅🚇🚉🚌🚑🚒🚓🚕🚗🚙🚚🚲🚏🚨🚥🚧🚤🚢💺🚀🕛🕐🕑🕒🕓🕔🕕🕖"
    "🕗🕘🕙🕚🌑🌓🌔🌕🌙🌛🌟🌠🌌🌀🌈🌂🔥💧🌊🎃🎄🎆🎇🎈🎉🎊🎋🎍🎎🎏🎐🎑🎀🎁🎫🏆"
    "🏀🏈🎾🎳🎣🎽🎿🎯🔫🎱🔮🎮🎰🎲🃏🀄🎴🎭🎨👓👔👕👖👗👘👙👚👛👜👝🎒👞👟👠👡👢"
    "👑👒🎩🎓💄💍💎🔊📢📣🔔🎼🎵🎶🎤🎧📻🎷🎸🎹🎺🎻📱📲📞📟📠🔋🔌💻💽💾💿📀🎥🎬"
    "📺📷📹📼🔍🔎💡🔦🏮📔📕📖📗📘📙📚📓📒📃📜📄📰📑🔖💰💴💵💸💳💹📧📨📩📤📥📦"
    "📫📪📮📝💼📁📂📅📆📇📈📉📊📋📌📍📎📏📐🔒🔓🔏🔐🔑🔨💣🔧🔩🔗📡💉💊🚪🚽🚬🗿"
    "🏧🚹🚺🚻🚼🚾🚫🚭🔞🔃🔙🔚🔛🔜🔝🔯🔼🔽🎦📶📳📴💱💲🔱📛🔰🔟🔠🔡🔢🔣🔤🆎🆑🆒"
    "🆓🆔🆕🆖🆗🆘🆙🆚🈁🈶🈯🉐🈹🈚🈲🉑🈸🈴🈳🈺🈵🔴🔵🔶🔷🔸🔹🔺🔻💠🔘🔳🔲🏁🚩🎌"
)

_ID_LIMIT = 2**64
_SEQUENCES_PER_MS = 2**10
_HEX_DIGITS = "0123456789abcdefABCDEF"
_DIGIT_VALUES = {letter: value for value, letter in enumerate(ALPHABET)}
_WORDS_PATTERN = re.compile(r"[a-z]+-[a-z]+-[a-z]+--[a-z]+-[a-z]+-[a-z]+")
_GROUP = r"([0-9a-fA-F]{1,4})"
_DOTHEX_PATTERN = re.compile(rf"(?:job\.)?{_GROUP}\.{_GROUP}\.{_GROUP}\.{_GROUP}")


def f58(job_id: int) -> str:
    """Spell an id as people read it: `ƒuZZybuNNy`."""
    return "ƒ" + _spell(job_id, ALPHABET)


def f58plain(job_id: int) -> str:
    """Spell an id in ASCII: `fuZZybuNNy`."""
    return "f" + _spell(job_id, ALPHABET)


def emoji(job_id: int) -> str:
    """Spell an id in one to seven pictures: `👩💅📓😸👑🚓`."""
    return _spell(job_id, EMOJI)


def dothex(job_id: int) -> str:
    """Spell an id as four groups of hexadecimal digits: `0017.e9fb.8df1.6c2e`."""
    if not 0 <= job_id < _ID_LIMIT:
        raise _too_large(job_id)
    digits = f"{job_id:016x}"
    return f"{digits[:4]}.{digits[4:8]}.{digits[8:12]}.{digits[12:]}"


def kvs(job_id: int) -> str:
    """Return the job's directory in the KVS: `job.0017.e9fb.8df1.6c2e`."""
    return "job." + dothex(job_id)


def words(job_id: int) -> str:
    """Spell an id in six words: `reform-remote-galileo--heart-package-academy`.

    Raises NoWords where this machine has no list of them.
    """
    if not 0 <= job_id < _ID_LIMIT:
        raise _too_large(job_id)
    spelled: str = _mnemonicode().mnformat(job_id.to_bytes(8, "little"))
    return spelled


# Every spelling by the name that `flux job id --to` has for it.
SPELLINGS: Final[Mapping[str, Callable[[int], str]]] = {
    "dec": str,
    "hex": hex,
    "kvs": kvs,
    "dothex": dothex,
    "f58": f58,
    "f58plain": f58plain,
    "emoji": emoji,
    "words": words,
}


def _spell(value: int, digits: str) -> str:
    if not 0 <= value < _ID_LIMIT:
        raise _too_large(value)
    base = len(digits)
    text = ""
    while value or not text:
        value, digit = divmod(value, base)
        text = digits[digit] + text
    return text


def _too_large(value: int) -> BadFormat:
    return BadFormat(f"{value:#x} is not a job id: it does not fit 64 bits")


def parse(text: str) -> JobId:
    """Read an id in any of `SPELLINGS`, told apart as RFC 19 says; blanks around it do not count.

    Raises BadFormat for anything else, and for an id of more than 64 bits.
    """
    spelling = text.strip()
    value = _value(spelling)
    if value >= _ID_LIMIT:
        raise _not_an_id(spelling, "it does not fit 64 bits")
    return JobId(value)


def _value(spelling: str) -> int:
    if spelling.isascii() and spelling.isdigit():
        # More than 64 bits in any case; and Python reads no number of thousands of digits.
        return int(spelling if len(spelling) <= 20 else spelling.lstrip("0")[:21] or "0")
    if "." in spelling:
        return _from_dothex(spelling)
    if "-" in spelling:
        return _from_words(spelling)
    if spelling.startswith(("ƒ", "f")):
        return _from_f58(spelling)
    if "\U0001f000" <= spelling[:1] <= "\U0001ffff":
        return _from_emoji(spelling)
    if spelling.startswith("0x"):
        if len(spelling) == 2 or spelling[2:].strip(_HEX_DIGITS):
            raise _wrong_character(spelling, 2, _HEX_DIGITS, "hexadecimal digit")
        return int(spelling[2:], 16)
    raise _wrong_character(spelling, 0, "0123456789", "digit")


def _from_words(spelling: str) -> int:
    if not _WORDS_PATTERN.fullmatch(spelling):
        raise _not_an_id(spelling, "words are three and three, as in a-b-c--d-e-f")
    try:
        return int.from_bytes(_mnemonicode().mnparse(spelling), "little")
    except ValueError:
        raise _not_an_id(spelling, "one of the words is not in the list") from None


def _mnemonicode() -> Any:
    try:
        return importlib.import_module("mnemonicode")
    except ImportError:
        raise NoWords(
            "ids in words take the Python package mnemonicode: install it, or spell the id "
            "in another way"
        ) from None


def _from_dothex(spelling: str) -> int:
    match = _DOTHEX_PATTERN.fullmatch(spelling)
    if match is None:
        raise _not_an_id(spelling, _dothex_mistake(spelling))
    one, two, three, four = match.groups()
    return int(one, 16) << 48 | int(two, 16) << 32 | int(three, 16) << 16 | int(four, 16)


def _dothex_mistake(spelling: str) -> str:
    start = len("job.") if spelling.startswith("job.") else 0
    position = len(spelling) - len(spelling[start:].lstrip(_HEX_DIGITS + "."))
    if position < len(spelling):
        return f"{spelling[position]!r} at {position} is no hexadecimal digit"
    if spelling.count(".", start) != 3:
        return f"from {start} on, it has not four groups of hexadecimal digits"
    groups = spelling[start:].split(".")
    wrong_group = next(index for index, group in enumerate(groups) if not 0 < len(group) <= 4)
    position = start + sum(len(group) + 1 for group in groups[:wrong_group])
    return f"the group at {position} has not one to four hexadecimal digits"


def _from_f58(spelling: str) -> int:
    if len(spelling) > 13:
        raise _not_an_id(spelling, "more than 12 digits follow the first letter")
    value = 0
    try:
        for letter in spelling[1:]:
            value = value * 58 + _DIGIT_VALUES[letter]
    except KeyError:
        raise _wrong_character(spelling, 1, ALPHABET, "digit of base 58") from None
    if len(spelling) == 1:
        raise _wrong_character(spelling, 1, ALPHABET, "digit of base 58")
    return value


def _from_emoji(spelling: str) -> int:
    if len(spelling) > 7:
        raise _not_an_id(spelling, "it has more than 7 emoji")
    value = 0
    for letter in spelling:
        digit = EMOJI.find(letter)
        if digit < 0:
            raise _wrong_character(spelling, 0, EMOJI, "emoji of RFC 19")
        value = value * 576 + digit
    return value


def _wrong_character(spelling: str, start: int, allowed: str, name: str) -> BadFormat:
    position = len(spelling) - len(spelling[start:].lstrip(allowed))
    if position == len(spelling):
        return _not_an_id(spelling, f"a {name} is missing at {position}")
    return _not_an_id(spelling, f"{spelling[position]!r} at {position} is no {name}")


def _not_an_id(spelling: str, reason: str) -> BadFormat:
    return BadFormat(f"{brief(spelling)} is not a job id: {reason}")


class JobIdGenerator:
    """Makes ids that never repeat, not even over restarts.

    Give it the greatest id ever made: its successors count on from the next
    millisecond, whatever the clock says now.
    """

    def __init__(self, now_ms: int, latest_id: int = 0, generator_id: int = 0) -> None:
        self._offset_ms = (latest_id >> 24) + 1 - now_ms
        self._generator_id = generator_id
        self._latest = (latest_id >> 24, _SEQUENCES_PER_MS - 1)
        """The timestamp and the sequence number of the last id."""

    def next(self, now_ms: int) -> JobId:
        """Make an id. When a millisecond is used up, or time steps back, borrow the next one."""
        timestamp_ms, sequence = now_ms + self._offset_ms, 0
        if timestamp_ms <= self._latest[0]:
            timestamp_ms, sequence = self._latest[0], self._latest[1] + 1
        if sequence == _SEQUENCES_PER_MS:
            timestamp_ms, sequence = timestamp_ms + 1, 0
        self._latest = (timestamp_ms, sequence)
        return JobId(timestamp_ms << 24 | self._generator_id << 10 | sequence)
