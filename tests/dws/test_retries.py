"""Whether a copy that has failed is made again."""

import pytest

from warren.dws.copies.retries import Retries

RETRIES = Retries(tries=3, pause=5.0)


@pytest.mark.parametrize(
    ("command", "told", "restarts", "again"),
    [
        ("copy_in", False, 0, True),
        ("copy_in", False, 1, True),
        ("copy_in", False, 2, False),
        ("copy_in", True, 0, False),
        ("copy_out", False, 0, True),
        ("copy_out", True, 0, True),
        ("copy_out", True, 1, True),
        ("copy_out", True, 2, False),
        ("copy_out", False, 9, False),
        ("", True, 0, False),
    ],
)
def test_a_copy_is_tried_so_often_unless_a_job_that_has_not_begun_can_hear_of_a_mistake(
    command: str, told: bool, restarts: int, again: bool
) -> None:
    assert RETRIES.should_retry(command, restarts, by_copier=told) is again


def test_one_try_is_no_retry() -> None:
    assert not Retries(tries=1).should_retry("copy_out", 0, by_copier=False)


@pytest.mark.parametrize(
    ("restarts", "since", "wait"),
    [
        (0, 0.0, 0.0),
        (1, 0.0, 5.0),
        (1, 4.0, 1.0),
        (1, 60.0, 0.0),
        (2, 0.0, 10.0),
        (3, 0.0, 20.0),
        (2, -3600.0, 10.0),
    ],
)
def test_each_pause_is_longer_and_no_clock_that_is_set_back_prolongs_it(
    restarts: int, since: float, wait: float
) -> None:
    assert RETRIES.delay(restarts, since) == wait
