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
    """There is no list of words here."""


ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

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
_SEQUENCES = 2**10
_HEXADECIMAL = "0123456789abcdefABCDEF"
_DIGIT_VALUES = {letter: value for value, letter in enumerate(ALPHABET)}
_WORDS_PATTERN = re.compile(r"[a-z]+-[a-z]+-[a-z]+--[a-z]+-[a-z]+-[a-z]+")
_GROUP = r"([0-9a-fA-F]{1,4})"
_DOTHEX_PATTERN = re.compile(rf"(?:job\.)?{_GROUP}\.{_GROUP}\.{_GROUP}\.{_GROUP}")


def f58(job: int) -> str:
    """Spell an id as people read it: `ƒuZZybuNNy`."""
    return "ƒ" + _spell(job, ALPHABET)


def f58plain(job: int) -> str:
    """Spell an id in ASCII: `fuZZybuNNy`."""
    return "f" + _spell(job, ALPHABET)


def emoji(job: int) -> str:
    """Spell an id in one to seven pictures: `👩💅📓😸👑🚓`."""
    return _spell(job, EMOJI)


def dothex(job: int) -> str:
    """Spell an id as four groups of hexadecimal digits: `0017.e9fb.8df1.6c2e`."""
    if not 0 <= job < _ID_LIMIT:
        raise _too_large(job)
    digits = f"{job:016x}"
    return f"{digits[:4]}.{digits[4:8]}.{digits[8:12]}.{digits[12:]}"


def kvs(job: int) -> str:
    """Return the job's directory in the KVS: `job.0017.e9fb.8df1.6c2e`."""
    return "job." + dothex(job)


def words(job: int) -> str:
    """Spell an id in six words: `reform-remote-galileo--heart-package-academy`.

    Raises NoWords where this machine has no list of them.
    """
    if not 0 <= job < _ID_LIMIT:
        raise _too_large(job)
    spelled: str = _mnemonicode().mnformat(job.to_bytes(8, "little"))
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
    word = text.strip()
    value = _value(word)
    if value >= _ID_LIMIT:
        raise _not_an_id(word, "it does not fit 64 bits")
    return JobId(value)


def _value(word: str) -> int:
    if word.isascii() and word.isdigit():
        # More than 64 bits in any case; and Python reads no number of thousands of digits.
        return int(word if len(word) <= 20 else word.lstrip("0")[:21] or "0")
    if "." in word:
        return _from_dothex(word)
    if "-" in word:
        return _from_words(word)
    if word.startswith(("ƒ", "f")):
        return _from_f58(word)
    if "\U0001f000" <= word[:1] <= "\U0001ffff":
        return _from_emoji(word)
    if word.startswith("0x"):
        if len(word) == 2 or word[2:].strip(_HEXADECIMAL):
            raise _wrong_character(word, 2, _HEXADECIMAL, "hexadecimal digit")
        return int(word[2:], 16)
    raise _wrong_character(word, 0, "0123456789", "digit")


def _from_words(word: str) -> int:
    if not _WORDS_PATTERN.fullmatch(word):
        raise _not_an_id(word, "words are three and three, as in a-b-c--d-e-f")
    try:
        return int.from_bytes(_mnemonicode().mnparse(word), "little")
    except ValueError:
        raise _not_an_id(word, "one of the words is not in the list") from None


def _mnemonicode() -> Any:
    try:
        return importlib.import_module("mnemonicode")
    except ImportError:
        raise NoWords(
            "ids in words take the Python package mnemonicode: install it, or spell the id "
            "in another way"
        ) from None


def _from_dothex(word: str) -> int:
    match = _DOTHEX_PATTERN.fullmatch(word)
    if match is None:
        raise _not_an_id(word, _dothex_mistake(word))
    one, two, three, four = match.groups()
    return int(one, 16) << 48 | int(two, 16) << 32 | int(three, 16) << 16 | int(four, 16)


def _dothex_mistake(word: str) -> str:
    start = len("job.") if word.startswith("job.") else 0
    position = len(word) - len(word[start:].lstrip(_HEXADECIMAL + "."))
    if position < len(word):
        return f"{word[position]!r} at {position} is no hexadecimal digit"
    if word.count(".", start) != 3:
        return f"from {start} on, it has not four groups of hexadecimal digits"
    groups = word[start:].split(".")
    wrong_group = next(index for index, group in enumerate(groups) if not 0 < len(group) <= 4)
    position = start + sum(len(group) + 1 for group in groups[:wrong_group])
    return f"the group at {position} has not one to four hexadecimal digits"


def _from_f58(word: str) -> int:
    if len(word) > 13:
        raise _not_an_id(word, "more than 12 digits follow the first letter")
    value = 0
    try:
        for letter in word[1:]:
            value = value * 58 + _DIGIT_VALUES[letter]
    except KeyError:
        raise _wrong_character(word, 1, ALPHABET, "digit of base 58") from None
    if len(word) == 1:
        raise _wrong_character(word, 1, ALPHABET, "digit of base 58")
    return value


def _from_emoji(word: str) -> int:
    if len(word) > 7:
        raise _not_an_id(word, "it has more than 7 emoji")
    value = 0
    for letter in word:
        digit = EMOJI.find(letter)
        if digit < 0:
            raise _wrong_character(word, 0, EMOJI, "emoji of RFC 19")
        value = value * 576 + digit
    return value


def _wrong_character(word: str, start: int, allowed: str, name: str) -> BadFormat:
    position = len(word) - len(word[start:].lstrip(allowed))
    if position == len(word):
        return _not_an_id(word, f"a {name} is missing at {position}")
    return _not_an_id(word, f"{word[position]!r} at {position} is no {name}")


def _not_an_id(word: str, reason: str) -> BadFormat:
    return BadFormat(f"{brief(word)} is not a job id: {reason}")


class Generator:
    """Makes ids that never repeat, not even over restarts.

    Give it the greatest id ever made: its successors count on from the next
    millisecond, whatever the clock says now.
    """

    def __init__(self, now_ms: int, latest_id: int = 0, generator_id: int = 0) -> None:
        self._offset_ms = (latest_id >> 24) + 1 - now_ms
        self._generator_id = generator_id
        self._latest = (latest_id >> 24, _SEQUENCES - 1)
        """The timestamp and the sequence number of the last id."""

    def next(self, now_ms: int) -> JobId:
        """Make an id. When a millisecond is used up, or time steps back, borrow the next one."""
        timestamp, sequence = now_ms + self._offset_ms, 0
        if timestamp <= self._latest[0]:
            timestamp, sequence = self._latest[0], self._latest[1] + 1
        if sequence == _SEQUENCES:
            timestamp, sequence = timestamp + 1, 0
        self._latest = (timestamp, sequence)
        return JobId(timestamp << 24 | self._generator_id << 10 | sequence)
