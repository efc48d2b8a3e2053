"""Events on their way from a module to the log."""

import asyncio
import re
import subprocess
import sys

from tests.harness.logs import capture_logs
from warren.base import log


def told(**values: object) -> str:
    """Return what a line of the log says of these values."""
    text = log.logfmt_line("info", {**values, "event": "copied"})
    assert re.match(
        r"timestamp=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z level=info event=copied", text
    )
    return text.partition("event=copied ")[2]


def test_a_line_has_time_level_and_event_first_and_then_the_values_in_logfmt() -> None:
    assert told(key="a", bytes=3, seconds=0.5) == "key=a bytes=3 seconds=0.5"
    assert told(reason="no room: a=b") == 'reason="no room: a=b"'
    assert told(reason='he said "no"') == r'reason="he said \"no\""'
    assert told(a="two\nlines", b=r"\d", c=r"\d \w") == r'a=two\nlines b=\d c="\\d \\w"'
    assert told(none=None, yes=True, no=False) == "none= yes no=false"


def test_no_value_of_an_event_is_taken_for_its_level_or_time() -> None:
    assert told(level="high", timestamp="1", key="a") == "key=a"


def test_events_below_the_level_are_not_told() -> None:
    with capture_logs("warning") as logged:
        log.debug("a")
        log.info("b")
        log.warning("c")
        log.error("d")
    assert [(each["log_level"], each["event"]) for each in logged] == [
        ("warning", "c"),
        ("error", "d"),
    ]


def test_a_bug_is_told_with_its_traceback_in_one_line() -> None:
    with capture_logs() as logged:
        try:
            raise ZeroDivisionError("of a test")
        except ZeroDivisionError as error:
            log.exception("failed", key="a")
            log.error("failed", raised=error, key="a")
    first, second = logged
    assert first == second
    assert (first["log_level"], first["event"], first["key"]) == ("error", "failed", "a")
    assert first["exception"].startswith("Traceback (most recent call last):\n")
    assert first["exception"].endswith("\nZeroDivisionError: of a test")
    assert "\n" not in log.logfmt_line("error", first)


def test_what_a_task_binds_stands_with_its_own_events_alone() -> None:
    async def work(key: str) -> None:
        log.bind(reconciler="test")
        log.bind(key=key)
        await asyncio.sleep(0)
        log.error("done")

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))
        log.error("over")

    with capture_logs() as logged:
        asyncio.run(both())
    assert [each.get("key") for each in logged] == ["a", "b", None]
    assert [each.get("reconciler") for each in logged] == ["test", "test", None]


def test_where_nothing_is_configured_errors_are_told_on_standard_error() -> None:
    program = "from warren.base import log; log.info('a'); log.error('b')"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [ended.stderr.strip()]
    assert ended.stderr.endswith(" level=error event=b\n")
