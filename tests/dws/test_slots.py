"""Whose copy is next: slots are shared fairly between users."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from warren.base.objects import Key
from warren.dws.copies.slots import WaitingCopy, next_copies


def copies(*users: int) -> list[WaitingCopy]:
    return [WaitingCopy(Key("rabbit", str(number)), user) for number, user in enumerate(users)]


def users(given_: list[WaitingCopy]) -> list[int]:
    return [each.userid for each in given_]


def test_a_user_alone_may_have_all_slots_in_the_order_of_its_copies() -> None:
    waiting = copies(1, 1, 1, 1)

    assert next_copies(waiting, [1], {}, 4) == waiting[:3]


def test_the_first_copy_of_each_user_comes_before_the_second_of_any() -> None:
    assert users(next_copies(copies(1, 1, 1, 2, 3, 2), [], {}, 5)) == [1, 2, 3, 1, 2]


def test_a_slot_goes_to_the_user_with_the_fewest_copies_at_work() -> None:
    assert users(next_copies(copies(1, 2), [1, 1, 2], {1: 3, 2: 4}, 4)) == [2]


def test_of_two_with_as_many_it_goes_to_the_one_whose_last_turn_is_longer_ago() -> None:
    assert users(next_copies(copies(1, 2), [1, 2], {1: 7, 2: 4}, 3)) == [2]


def test_where_all_slots_are_taken_no_user_gets_a_second_copy() -> None:
    assert next_copies(copies(1, 2), [1, 2], {}, 2) == []


def test_no_user_waits_for_the_copies_of_another_however_long_these_take() -> None:
    assert users(next_copies(copies(1, 2, 2, 3), [1, 1], {}, 2)) == [2, 3]


some_users = st.lists(st.integers(0, 4), max_size=12)


@given(some_users, some_users, st.integers(1, 8))
def test_no_slot_stays_free_while_a_copy_waits_and_none_is_given_twice(
    waiting: list[int], running: list[int], slots: int
) -> None:
    asked = copies(*waiting)
    found = next_copies(asked, running, {}, slots)

    first = {user for user in waiting if user not in running}
    assert len(found) == max(len(first), min(len(asked), max(0, slots - len(running))))
    assert len(set(found)) == len(found)
    assert set(found) <= set(asked)


@given(some_users, some_users, st.integers(1, 8))
def test_no_user_waits_while_another_is_given_more_copies_than_it_has(
    waiting: list[int], running: list[int], slots: int
) -> None:
    asked = copies(*waiting)
    found = next_copies(asked, running, {}, slots)
    counts, left = Counter(running), Counter(waiting)
    for each in found:
        assert all(counts[each.userid] <= counts[user] for user in left if left[user])
        counts[each.userid] += 1
        left[each.userid] -= 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=60), st.integers(1, 3))
def test_a_user_who_waits_is_passed_by_each_other_user_once_at_the_most(
    arrivals: list[tuple[int, int]], slots: int
) -> None:
    """Of those that have no copy at work: copies arrive and end, for a while, as they like."""
    waiting: list[WaitingCopy] = []
    running: list[tuple[WaitingCopy, int]] = []
    last_slot: dict[int, int] = {}
    passed: dict[int, Counter[int]] = {}
    for moment in range(len(arrivals) * 6 + 1):
        running = [(copy, end) for copy, end in running if end > moment]
        if moment < len(arrivals):
            user, lasts = arrivals[moment]
            waiting.append(WaitingCopy(Key(str(lasts), str(moment)), user))
        for copy in next_copies(waiting, [each.userid for each, _ in running], last_slot, slots):
            waiting.remove(copy)
            running.append((copy, moment + int(copy.key.namespace)))
            last_slot[copy.userid] = max(last_slot.values(), default=0) + 1
            passed.pop(copy.userid, None)
            at_work = {each.userid for each, _ in running}
            for user in {each.userid for each in waiting} - at_work:
                by = passed.setdefault(user, Counter())
                by[copy.userid] += 1
                assert by[copy.userid] <= 1, (user, copy)
    assert not waiting
