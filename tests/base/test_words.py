"""Numbers in sentences."""

import pytest

from warren.base.words import number_asked_for, plural


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 copies"), (1, "1 copy"), (2, "2 copies"), (100, "100 copies")]
)
def test_one_of_a_thing_is_not_many(count: int, text: str) -> None:
    assert plural(count, "copy", "copies") == text


def test_the_verb_goes_with_the_number() -> None:
    assert number_asked_for(1, "node") == "1 node is asked for"
    assert number_asked_for(2, "node", " with a rabbit") == "2 nodes with a rabbit are asked for"
