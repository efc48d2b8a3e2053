"""Text of others as a terminal may show it."""

import json
import re
from typing import Final

_DELETE: Final = "\x7f"
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7e]")
"""What JSON leaves as it is: in a JSON text it stands in strings alone."""


def printable(text: str) -> str:
    r"""Return `text` with every character escaped that is not printed: ESC is `\x1b`.

    What one user writes could move the cursor or change the colors of another one's terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def printable_json(text: str) -> str:
    r"""Return a JSON text that says the same with letters that are printed, such as `\u202e`.

    JSON escapes but some of those that are not.
    """
    return _NOT_ASCII.sub(
        lambda match: match[0] if match[0].isprintable() else _escaped(match[0]), text
    )


def printable_value(text: str) -> str:
    r"""Return a stored text with all letters escaped that are neither printed nor a tab or newline.

    A JSON text says the same: ESC is `\u001b`.
    """
    return "".join(
        each if each.isprintable() or each in "\n\t" else _escaped(each) for each in text
    )


def _escaped(letter: str) -> str:
    return json.dumps(letter)[1:-1] if letter != _DELETE else r"\u007f"
