"""Text of others on a terminal."""

import json

import pytest

from warren.base.printable import printable, printable_json


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


@pytest.mark.parametrize("indent", [None, 2])
def test_json_says_the_same_without_what_is_not_printed(indent: int | None) -> None:
    value = {"ƒ8 日本": ["\x1b[31m", "\x9b2J\x7f", "right\u202eleft", "\U000e0001", "\udc80", "\n"]}
    text = printable_json(json.dumps(value, indent=indent, ensure_ascii=False))

    assert json.loads(text) == value
    assert "ƒ8 日本" in text
    assert text.replace("\n", "").isprintable()
