"""What containers beside a job have printed, read for its record: bounded in size and in time."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Final

from warren.base import log
from warren.base.errors import WarrenError
from warren.dws.pods import podsummary
from warren.dws.pods.podsummary import LogRef
from warren.kube.client import LogReader

_TIMEOUT: Final = 10.0
"""Seconds that a job's Teardown waits for all logs together."""

_MAX_CONCURRENT_READS: Final = 8


class LogTails:
    """Reads the ends of logs."""

    def __init__(self, reader: LogReader, seconds: float = _TIMEOUT) -> None:
        self._reader = reader
        self._seconds = seconds

    async def text(self, logs: Sequence[LogRef]) -> str:
        """Return what is kept of some logs: of one that cannot be read, why not."""
        max_characters = podsummary.max_characters_of_each(logs)
        deadline = asyncio.get_running_loop().time() + self._seconds
        slots = asyncio.Semaphore(_MAX_CONCURRENT_READS)

        async def read(each: LogRef) -> str:
            try:
                async with asyncio.timeout_at(deadline), slots:
                    return await self._tail(each, max_characters)
            except (WarrenError, TimeoutError) as error:
                reason = str(error) or f"it did not come within {self._seconds:g} s"
                log.warning("log not read", pod=str(each.pod), reason=reason)
                return f"(not read: {reason})"

        texts = await asyncio.gather(*map(read, logs))
        return podsummary.join_logs(dict(zip(logs, texts, strict=True)))

    async def _tail(self, log_ref: LogRef, max_characters: int) -> str:
        """Return the last characters of a log, which are in no more than so many lines."""
        tail = b""
        pieces = self._reader.log(log_ref.pod, log_ref.container, max_characters)
        async with aclosing(pieces) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                # UTF-8 has no character of more than four bytes.
                tail = (tail + chunk)[-4 * max_characters :]
        return tail.decode(errors="replace")[-max_characters:]
