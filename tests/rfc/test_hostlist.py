"""Lists of hosts (RFC 29)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import hostlist
from warren.rfc.errors import BadFormat


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("login", ["login"]),
        ("b,a,b", ["b", "a", "b"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[0]", ["n0"]),
        ("n[00-2]", ["n00", "n01", "n02"]),
        ("n[005,4,11-13]", ["n005", "n004", "n011", "n012", "n013"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[3,1,3]", ["n3", "n1", "n3"]),
        ("n[01-2,100]", ["n01", "n02", "n100"]),
        ("foo[1,3]-bar", ["foo1-bar", "foo3-bar"]),
        ("[1-2]", ["1", "2"]),
        ("a1,n[1-2],z.example", ["a1", "n1", "n2", "z.example"]),
        ("a,,b,", ["a", "b"]),
    ],
)
def test_hosts_are_read_in_order_with_the_padding_of_the_first(text: str, hosts: list[str]) -> None:
    assert hostlist.decode(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        *("n[", "n]", "n[]", "n[1", "n1]", "n[1-]", "n[-1]", "n[3-1]", "n[a]", "n[1,,2]"),
        *("n[[1]]", "n[1]m[2]", "n[1 2]", "a b", "n[1-2-3]", "n[١]", "n[" + "9" * 5000 + "]"),
    ],
)
def test_what_is_no_hostlist_is_refused(text: str) -> None:
    with pytest.raises(BadFormat, match="hostlist"):
        hostlist.decode(text)


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n01", "n02", "n03", "n07"], "n[01-03,07]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n99", "n100"], "n[99-100]"),
        (["n2", "n1", "n1"], "n[2,1,1]"),
        (["n1", "n01"], "n1,n01"),
        (["foo1-bar", "foo3-bar"], "foo1-bar,foo3-bar"),
        (["a1", "b1", "a2"], "a1,b1,a2"),
        (["login", "n1", "n2", "login"], "login,n[1-2],login"),
        (["rack1n1", "rack1n2", "rack2n1"], "rack1n[1-2],rack2n1"),
    ],
)
def test_neighbours_that_differ_in_their_last_number_share_a_bracket(
    hosts: list[str], text: str
) -> None:
    assert hostlist.encode(hosts) == text


names = st.from_regex(r"[a-z.-]{0,3}(0{0,2}[0-9]{1,2})?", fullmatch=True).filter(bool)
anything = st.text("ab01-._~(é", min_size=1, max_size=6)


@given(st.lists(names | anything, max_size=12))
def test_a_list_reads_back_with_its_order_and_repetitions(hosts: list[str]) -> None:
    assert hostlist.decode(hostlist.encode(hosts)) == hosts


@given(st.text("n019,-[] ", max_size=8))
def test_every_text_is_read_or_refused(text: str) -> None:
    try:
        hosts = hostlist.decode(text)
    except BadFormat:
        return
    assert hostlist.decode(hostlist.encode(hosts)) == hosts
