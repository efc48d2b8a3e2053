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
        ("n[5,004,006-7]", ["n5", "n004", "n006", "n007"]),
        ("n[01,002]", ["n01", "n002"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("rack[1-2]-a,rack[1-2]-b", ["rack1-a", "rack2-a", "rack1-b", "rack2-b"]),
        # The RFC's own
        ("foox,fooy,fooz", ["foox", "fooy", "fooz"]),
        ("[1-3,5-6]", ["1", "2", "3", "5", "6"]),
        ("foo[1-5]", ["foo1", "foo2", "foo3", "foo4", "foo5"]),
        ("foo[0-4]-eth2", [f"foo{n}-eth2" for n in range(5)]),
        ("foo1,foo1,foo1", ["foo1", "foo1", "foo1"]),
        ("[00-02]", ["00", "01", "02"]),
        ("[00-2]", ["00", "01", "02"]),
        ("foo[1,1,2,1]", ["foo1", "foo1", "foo2", "foo1"]),
    ],
)
def test_hosts_are_read_in_order_with_the_padding_of_the_first(text: str, hosts: list[str]) -> None:
    assert hostlist.decode(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        *("n[", "n]", "n[]", "n[1", "n1]", "n[1-]", "n[-1]", "n[3-1]", "n[a]", "n[1,,2]"),
        *("n[[1]]", "n[1]m[2]", "n[1 2]", "a b", "n[1-2-3]", "n[١]", "n[" + "9" * 5000 + "]"),
        *("é", "a\x7f", "a\n", "n[1]\n", " ", "n" * 254, "[" + "9" * 254 + "-" + "9" * 254 + "]"),
    ],
)
def test_what_is_no_hostlist_is_refused(text: str) -> None:
    with pytest.raises(BadFormat, match="hostlist"):
        hostlist.decode(text)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("a,b]", "hostlist 'a,b]': unexpected ']' at 3"),
        ("a b", "hostlist 'a b': unexpected ' ' at 1"),
        ("a,n[1-2", "hostlist 'a,n[1-2': the bracket at 3 is not closed"),
        ("a,n[1;2]", "hostlist 'a,n[1;2]': unexpected ';' at 5, in the bracket of 3"),
        (
            "r[1]n[2]",
            "hostlist 'r[1]n[2]': a second bracket at 5, where a name has one at most",
        ),
        ("n[1,,2]", "hostlist 'n[1,,2]': a number is missing at 4"),
        ("n[1,2-]", "hostlist 'n[1,2-]': '2-' at 4 is neither a number nor a range"),
        ("n[1,3-2]", "hostlist 'n[1,3-2]': the range '3-2' at 4 does not ascend"),
        ("n[0-999999999999]", "hostlist 'n[0-999999999999]': it names more than 262144 hosts"),
        (
            "a,n[0-1]" + "x" * 252,
            "hostlist 'a,n[0-1]xxxx...xxxxxxxxxxxxx': the name at 2 has more than 253 characters",
        ),
    ],
)
def test_a_refusal_names_the_place_of_the_mistake(text: str, mistake: str) -> None:
    with pytest.raises(BadFormat) as refused:
        hostlist.decode(text)
    assert str(refused.value) == mistake


@pytest.mark.parametrize("text", ["a,b,c,d", "n[0-3]", "n[0,1,2,3]", "a,n[0-2]", "n[0-1],n[0-1]"])
def test_no_more_hosts_than_the_limit_are_read(text: str) -> None:
    with pytest.raises(BadFormat, match="it names more than 3 hosts"):
        hostlist.decode(text, limit=3)


@pytest.mark.parametrize("text", ["a,b,c", "n[0-2]", "n[0,1,2]", "a,n[0-1]", "n[0],n[0-1]"])
def test_as_many_hosts_as_the_limit_are_read(text: str) -> None:
    assert len(hostlist.decode(text, limit=3)) == 3


@pytest.mark.parametrize(
    "text",
    ["n[" + "0" * 253 + "-1]", "p" * 252 + "[9-10]", "p" * 250 + "[0000,1]", "[0-1]" + "s" * 253],
)
def test_names_do_not_grow_beyond_253_characters(text: str) -> None:
    with pytest.raises(BadFormat, match="has more than 253 characters"):
        hostlist.decode(text)


@pytest.mark.parametrize(
    "host", ["", "a b", "a,b", "n[1]", "é", "n\n", "x" * 254, "n" * 252 + "10"]
)
def test_a_name_that_could_not_be_read_back_is_not_written(host: str) -> None:
    with pytest.raises(BadFormat, match="is no name of a host"):
        hostlist.encode(["n1", host])


@pytest.mark.parametrize("digits", [17, 18, 19, 253])
def test_names_with_many_digits_read_back(digits: int) -> None:
    hosts = ["9" * digits, "0" * digits, "1" * digits, "1" * (digits - 1) + "2"]
    assert hostlist.decode(hostlist.encode(hosts)) == hosts


def test_every_host_is_given_once_by_name_and_number() -> None:
    hosts = ["n10", "n2", "login", "n2", "n02", "m3", "n1"]
    assert hostlist.sorted_unique(hosts) == ["login", "m3", "n1", "n02", "n2", "n10"]


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
        (["n1", "n", "n2", "n", "n"], "n1,n,n2,n,n"),
        (["n0", "n1", "n01"], "n[0-1],n01"),
        (["n09", "n10", "n011"], "n[09-10],n011"),
        (["1", "2", "03"], "[1-2],03"),
        (["n5", "n0"], "n[5,0]"),
        (["n010", "n9", "n11"], "n010,n[9,11]"),
    ],
)
def test_neighbours_that_differ_in_their_last_number_share_a_bracket(
    hosts: list[str], text: str
) -> None:
    assert hostlist.encode(hosts) == text


names = st.from_regex(r"[a-z.-]{0,3}(0{0,2}[0-9]{1,2})?", fullmatch=True).filter(bool)
anything = st.text("ab01-._~(", min_size=1, max_size=6)


@given(st.lists(names | anything, max_size=12))
def test_a_list_reads_back_with_its_order_and_repetitions(hosts: list[str]) -> None:
    assert hostlist.decode(hostlist.encode(hosts)) == hosts


@given(st.text("n019,-[] ", max_size=30) | st.text())
def test_every_text_is_read_or_refused(text: str) -> None:
    try:
        hosts = hostlist.decode(text, limit=10_000)
    except BadFormat as refused:
        said = str(refused)
    else:
        assert hostlist.decode(hostlist.encode(hosts)) == hosts
        said = ""
    assert len(said) < 200
