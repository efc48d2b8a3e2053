"""Text of others on a terminal."""

import pytest

from warren.base.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Grüße, 日本, ƒ8", "plain, Grüße, 日本, ƒ8"),
        ("", ""),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("two\nlines\tand\r", r"two\nlines\tand\r"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("right\u202eleft\udc80", r"right\u202eleft\udc80"),
    ],
)
def test_what_is_not_printed_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown
