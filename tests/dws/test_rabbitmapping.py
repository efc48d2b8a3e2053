"""Which nodes are wired to which rabbit, as `rabbit.mapping` says it."""

import pytest

from warren.base.errors import UserMistake
from warren.dws import rabbitmapping

FILE = b"""{"computes": {"n1": "r1", "n2": "r1", "n10": "r2"},
 "rabbits": {"r1": {"capacity": 5, "hostlist": "n[1-2]"}, "r2": {"hostlist": "n10"}}}"""


def test_nodes_are_found_by_rabbit_and_rabbits_by_node() -> None:
    mapping = rabbitmapping.parse(FILE, "it")

    assert mapping.computes_of(["r1"]) == ["n1", "n2"]
    assert mapping.rabbits_of(["n2", "n10", "n1"]) == ["r1", "r2"]
    with pytest.raises(UserMistake, match=r"^Could not find rabbit r3: the mapping has r\[1-2\]"):
        mapping.computes_of(["r3"])
    with pytest.raises(UserMistake, match=r"^Could not find compute r1: the mapping has n"):
        mapping.rabbits_of(["r1"])


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b'{"computes": {}}', b'{"computes": 1}', b"\xff"]
)
def test_what_is_no_mapping_is_refused_with_its_name(text: bytes) -> None:
    with pytest.raises(UserMistake, match=r"^it is no rabbit mapping: .*: write it anew\.$"):
        rabbitmapping.parse(text, "it")
