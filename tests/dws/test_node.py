"""What nodes say: trouble, and how far they are."""

import pytest

from warren.dws.node import NodeTrouble, Progress


def test_trouble_of_a_node_is_major_unless_trying_again_will_not_help() -> None:
    assert NodeTrouble("busy").as_error()["severity"] == "Major"
    assert NodeTrouble("no such type", fatal=True).as_error()["severity"] == "Fatal"


@pytest.mark.parametrize(
    ("done", "total", "seconds", "percent", "rate"),
    [(0, 0, 0, 100, 0), (0, 10, 0, 0, 0), (1, 3, 2, 33, 0.5), (3, 3, 3, 100, 1), (4, 3, 1, 100, 4)],
)
def test_progress_is_a_percentage_and_a_rate(
    done: int, total: int, seconds: float, percent: int, rate: float
) -> None:
    progress = Progress(bytes=done, total_bytes=total, files=0, total_files=0, seconds=seconds)
    assert (progress.percent, progress.rate) == (percent, rate)
