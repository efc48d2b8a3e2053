"""Which failed requests are retried, and after how long.

Pure: knows HTTP's answers, and neither a clock nor a connection.
"""

import random
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

_FIRST_DELAY: Final = 0.25
_MAX_DELAY: Final = 4.0
"""Seconds before the first retry, and the most before any: each is doubled up to that."""
_MAX_TRIES: Final = 6
"""About four seconds in all, as a rule: callers are reconcilers, which retry by themselves."""

_MAX_RETRY_AFTER: Final = 60.0
"""Seconds: the longest Retry-After that is followed."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why one try has failed."""

    status: int = 0
    """What the server answered; 0 if it did not."""
    sent: bool = True
    """Whether the server may have seen the request."""
    retry_after: float | None = None
    """The seconds after which the server wants to be asked again, if it said so."""
    final: bool = False
    """Whether a retry by any client would fail as well."""


def retry_delay(method: str, failure: Failure, attempts: int, rng: random.Random) -> float | None:
    """Return the seconds to wait before the next try; None if there should be none.

    Waits double with each try, and each is a random part of that ("full jitter"), so
    that clients that failed together do not retry together.
    """
    if failure.final or attempts >= _MAX_TRIES or not _may_be_repeated(method, failure):
        return None
    jitter = rng.uniform(0.0, min(_MAX_DELAY, _FIRST_DELAY * 2.0 ** (attempts - 1)))
    return (failure.retry_after or 0.0) + jitter


def _may_be_repeated(method: str, failure: Failure) -> bool:
    if not failure.sent or failure.status in (429, 503):
        return True  # nothing was done
    # Else it may have been: to do it twice is for callers to decide, which look first. (aiohttp
    # repeats a DELETE below us, once, when its connection breaks: what is gone stays so.)
    return method == "GET" and (failure.status == 0 or failure.status >= 500)


def retry_after(header: str | None, now: float) -> float | None:
    """Read a Retry-After, seconds or a date, as seconds from `now`; None for anything else."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text)
    else:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER)
