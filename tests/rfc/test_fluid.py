"""Job ids and their spellings (RFC 19)."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.rfc import fluid
from warren.rfc.errors import BadFormat

LARGEST = 2**64 - 1
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
    ],
)
def test_all_spellings_of_an_id_are_read(spelling: str) -> None:
    assert fluid.parse(spelling) == 6731191091817518


def test_short_groups_of_hexadecimal_digits_are_filled_up() -> None:
    assert fluid.parse("1.2.3.4") == 0x0001_0002_0003_0004


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "f", "ƒ", "f0", "fO", "fI", "fl", "f" + "1" * 13, "ƒ1 ƒ1"),
        *("-1", "+1", "1e3", "٣", "0x", "0xg", "0x-1", "9" * 5000),
        *("1.2.3", "1.2.3.4.5", "1..3.4", "12345.0.0.0", "g.0.0.0", "job.", "job"),
    ],
)
def test_what_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(BadFormat, match="is not a job id"):
        fluid.parse(text)


@pytest.mark.parametrize("text", [str(2**64), "0x1" + "0" * 16, "fzzzzzzzzzzz"])
def test_an_id_of_more_than_64_bits_is_refused_as_such(text: str) -> None:
    with pytest.raises(BadFormat, match="does not fit 64 bits"):
        fluid.parse(text)


@given(ids, st.sampled_from([str, hex, fluid.dothex, fluid.kvs, fluid.f58, fluid.f58plain]))
def test_every_spelling_reads_back(number: int, spell: Callable[[int], str]) -> None:
    assert fluid.parse(spell(number)) == number


@given(ids, ids)
def test_directories_of_jobs_sort_as_their_ids_do(one: int, other: int) -> None:
    assert (fluid.kvs(one) < fluid.kvs(other)) == (one < other)


def test_an_id_is_made_of_time_generator_and_sequence() -> None:
    generator = fluid.Generator(now_ms=1000, latest=41 << 24, generator=5)

    made = [generator.next(1000), generator.next(1000), generator.next(1003)]

    assert made == [42 << 24 | 5 << 10, 42 << 24 | 5 << 10 | 1, 45 << 24 | 5 << 10]


def test_a_millisecond_holds_1024_ids_and_then_borrows_from_the_next() -> None:
    generator = fluid.Generator(now_ms=0)

    made = [generator.next(0) for _ in range(1026)]

    stamps = [each >> 24 for each in made]
    assert stamps == [1] * 1024 + [2] * 2


steps = st.lists(st.integers(-5, 5) | st.just("restart"), max_size=60)


@given(steps, st.integers(0, 10**12), st.integers(0, 16367))
def test_ids_ascend_over_clock_steps_and_restarts(
    steps: list[int | str], now: int, number: int
) -> None:
    generator, made = fluid.Generator(now, generator=number), [0]
    for step in steps:
        if isinstance(step, str):
            generator = fluid.Generator(now, latest=made[-1], generator=number)
        else:
            now = max(0, now + step)
            made.append(generator.next(now))
    assert all(one < other for one, other in pairwise(made))
    assert all(each >> 10 & 0x3FFF == number for each in made[1:])
