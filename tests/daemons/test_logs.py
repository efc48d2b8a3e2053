"""Logs of long-running processes."""

import io

import structlog

from warren.daemons import logs


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def test_a_log_that_cannot_be_written_stops_nobody() -> None:
    before = structlog.get_config()
    try:
        logs.configure(Full())
        structlog.get_logger().info("lost")
    finally:
        structlog.configure(**before)
