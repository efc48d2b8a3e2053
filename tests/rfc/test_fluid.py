"""Job ids and their spellings (RFC 19)."""

import importlib.util
import sys
from collections.abc import Callable
from itertools import pairwise

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rfc.vectors import vector
from warren.rfc import fluid
from warren.rfc.errors import BadFormat

LARGEST = 2**64 - 1
WORDS = importlib.util.find_spec("mnemonicode") is not None
WRITTEN = {name: spell for name, spell in fluid.SPELLINGS.items() if WORDS or name != "words"}

ids = st.integers(0, LARGEST)


@pytest.mark.parametrize(
    ("number", "digits"),
    [
        (0, "1"),
        (57, "z"),
        (1234, "NH"),
        (3364, "211"),
        (65535, "LUv"),
        (4294967295, "7YXq9G"),
        (6731191091817518, "uZZybuNNy"),
        (LARGEST, "jpXCZedGfVQ"),
    ],
)
def test_base_58_has_the_published_digits(number: int, digits: str) -> None:
    assert fluid.f58(number) == "ƒ" + digits
    assert fluid.f58plain(number) == "f" + digits
    assert fluid.parse("ƒ" + digits) == fluid.parse("f" + digits) == number


@pytest.mark.parametrize(
    "spelling",
    [
        "6731191091817518",
        "0x17e9fb8df16c2e",
        "0017.e9fb.8df1.6c2e",
        "17.E9FB.8df1.6c2e",
        "job.0017.e9fb.8df1.6c2e",
        "ƒuZZybuNNy",
        "fuZZybuNNy",
        "f11uZZybuNNy",
        "  fuZZybuNNy\n",
        "\u3000👩💅📓😸👑🚓",
        "😃👩💅📓😸👑🚓",
        "0" * 5000 + "6731191091817518",
        "0x" + "0" * 5000 + "17e9fb8df16c2e",
    ],
)
def test_all_spellings_of_an_id_are_read(spelling: str) -> None:
    assert fluid.parse(spelling) == 6731191091817518


@pytest.mark.parametrize(
    ("number", "spellings"),
    [
        (0x000EDAF97D000000, ["0xedaf97d000000", "000e.daf9.7d00.0000", "ƒZemgA8Bzf"]),
        (0x001D2DE90A000000, ["ƒ278oEf7zGf"]),
        (0x0071CC92E2000000, ["🚹💂🙌😳💱🏃"]),
        (0x008CB1B460000000, ["😄😹🎇📥🏧🙉🔞"]),
        (0x0071CCA7B2000000, ["🚹💂🈳💰🎩🏃"]),
    ],
)
def test_the_examples_of_the_rfc_are_read_and_written(number: int, spellings: list[str]) -> None:
    written = {spell(number) for spell in WRITTEN.values()}
    assert {fluid.parse(each) for each in spellings} == {number}
    assert written >= set(spellings)


def test_the_emoji_are_those_of_the_rfc_in_its_order() -> None:
    table = orjson.loads(vector("rfc/spec_19/basemoji.json").read_bytes())
    assert list(fluid.EMOJI) == table


@pytest.mark.parametrize(
    ("number", "pictures"), [(0, "😃"), (1, "😄"), (575, "🎌"), (576, "😄😃"), (577, "😄😄")]
)
def test_emoji_count_in_base_576(number: int, pictures: str) -> None:
    assert fluid.emoji(number) == pictures


def test_zeros_in_front_do_not_count() -> None:
    assert fluid.parse("0" * 5000) == fluid.parse("ƒ11") == fluid.parse("😃😃") == 0


def test_short_groups_of_hexadecimal_digits_are_filled_up() -> None:
    assert fluid.parse("1.2.3.4") == 0x0001_0002_0003_0004


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "f", "ƒ", "f0", "fO", "fI", "fl", "f" + "1" * 13, "ƒ1 ƒ1"),
        *("-1", "+1", "1e3", "٣", "0x", "0xg", "0x-1", "9" * 5000),
        *("1.2.3", "1.2.3.4.5", "1..3.4", "12345.0.0.0", "g.0.0.0", "job.", "job"),
        *("job.job.1.2.3.4", "0X10", "😃1", "😃" * 8, "\U0001f000", "\U0001ffff", "😃 😃", "ƒ😃"),
    ],
)
def test_what_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(BadFormat, match="is not a job id"):
        fluid.parse(text)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "'' is not a job id: a digit is missing at 0"),
        (" 12a4 ", "'12a4' is not a job id: 'a' at 2 is no digit"),
        ("ƒ", "'ƒ' is not a job id: a digit of base 58 is missing at 1"),
        ("fOO", "'fOO' is not a job id: 'O' at 1 is no digit of base 58"),
        ("0x1g", "'0x1g' is not a job id: 'g' at 3 is no hexadecimal digit"),
        ("😃x", "'😃x' is not a job id: 'x' at 1 is no emoji of RFC 19"),
        ("job.1.2.z.4", "'job.1.2.z.4' is not a job id: 'z' at 8 is no hexadecimal digit"),
        (
            "job.1.2.3",
            "'job.1.2.3' is not a job id: from 4 on, it has not four groups of hexadecimal digits",
        ),
        (
            "1.2..4",
            "'1.2..4' is not a job id: the group at 4 has not one to four hexadecimal digits",
        ),
        (
            "reform-remote",
            "'reform-remote' is not a job id: words are three and three, as in a-b-c--d-e-f",
        ),
    ],
)
def test_a_refusal_names_the_place_of_the_mistake(text: str, mistake: str) -> None:
    with pytest.raises(BadFormat) as refused:
        fluid.parse(text)
    assert str(refused.value) == mistake


@pytest.mark.parametrize(
    "text",
    [str(2**64), "9" * 5000, "0x1" + "0" * 16, "0x" + "f" * 5000, "fzzzzzzzzzzz", "🎌" * 7],
)
def test_an_id_of_more_than_64_bits_is_refused_as_such(text: str) -> None:
    with pytest.raises(BadFormat, match="does not fit 64 bits"):
        fluid.parse(text)


@pytest.mark.parametrize("number", [-1, 2**64])
@pytest.mark.parametrize("spell", [fluid.f58, fluid.f58plain, fluid.emoji, fluid.dothex, fluid.kvs])
def test_what_does_not_fit_64_bits_is_not_written(spell: Callable[[int], str], number: int) -> None:
    with pytest.raises(BadFormat, match="does not fit 64 bits"):
        spell(number)


@given(ids, st.sampled_from(list(WRITTEN.values())))
def test_every_spelling_reads_back(number: int, spell: Callable[[int], str]) -> None:
    assert fluid.parse(spell(number)) == number


LISTED = pytest.mark.skipif(not WORDS, reason="the package mnemonicode is not installed")
SPELLED = "reform-remote-galileo--heart-package-academy"


@LISTED
def test_an_id_is_spelled_in_words_and_read_back() -> None:
    assert fluid.words(6731191091817518) == SPELLED
    assert fluid.parse(SPELLED) == 6731191091817518


@LISTED
def test_words_that_are_in_no_list_are_refused() -> None:
    with pytest.raises(BadFormat, match="one of the words is not in the list"):
        fluid.parse(SPELLED.replace("reform", "warren"))


def test_who_has_no_list_of_words_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mnemonicode", None)

    for action in (lambda: fluid.words(1), lambda: fluid.parse(SPELLED)):
        with pytest.raises(fluid.NoWords, match="package mnemonicode: install it"):
            action()


parts = st.sampled_from(["ƒ", "f", "0x", "job.", ".", "-", " ", "😃", "🎌", "1", "z", "0", "O"])


@given(st.lists(parts).map("".join) | st.text())
def test_every_text_is_an_id_or_refused(text: str) -> None:
    try:
        job = fluid.parse(text)
    except BadFormat as refused:
        said = str(refused)
    else:
        assert fluid.parse(fluid.f58(job)) == job
        said = ""
    assert len(said) < 200


@given(ids, ids)
def test_directories_of_jobs_sort_as_their_ids_do(one: int, other: int) -> None:
    assert (fluid.kvs(one) < fluid.kvs(other)) == (one < other)


def test_an_id_is_made_of_time_generator_and_sequence() -> None:
    generator = fluid.JobIdGenerator(now_ms=1000, latest_id=41 << 24, generator_id=5)

    made = [generator.next(1000), generator.next(1000), generator.next(1003)]

    assert made == [42 << 24 | 5 << 10, 42 << 24 | 5 << 10 | 1, 45 << 24 | 5 << 10]


def test_a_millisecond_holds_1024_ids_and_then_borrows_from_the_next() -> None:
    generator = fluid.JobIdGenerator(now_ms=0)

    made = [generator.next(0) for _ in range(1026)]

    stamps = [each >> 24 for each in made]
    assert stamps == [1] * 1024 + [2] * 2


steps = st.lists(st.integers(-5, 5) | st.just("restart"), max_size=60)


@given(steps, st.integers(0, 10**12), st.integers(0, 16367))
def test_ids_ascend_over_clock_steps_and_restarts(
    steps: list[int | str], now: int, number: int
) -> None:
    generator, made = fluid.JobIdGenerator(now, generator_id=number), [0]
    for step in steps:
        if isinstance(step, str):
            generator = fluid.JobIdGenerator(now, latest_id=made[-1], generator_id=number)
        else:
            now = max(0, now + step)
            made.append(generator.next(now))
    assert all(one < other for one, other in pairwise(made))
    assert all(each >> 10 & 0x3FFF == number for each in made[1:])
