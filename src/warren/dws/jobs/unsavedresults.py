"""What becomes of what a job has written, where it is cancelled: its own choice (ADR 073)."""

from enum import StrEnum
from typing import Final


class UnsavedPolicy(StrEnum):
    """What becomes of results that are not copied out yet when a job is cancelled."""

    FLUSH = "flush"
    """It is copied out, however the job has ended; a cancel while it is stops that."""
    DROP = "drop"
    """A cancel gives it up. Where the job has failed or its time was up, it is copied out."""


CANCEL: Final = "cancel"
"""The type of exception by which users and admins end a job."""


def is_dropped(chosen: UnsavedPolicy | None, default: UnsavedPolicy, *, cancelled: bool) -> bool:
    """Return whether what a job has written is given up; `chosen` is None where it does not say."""
    return cancelled and (chosen or default) is UnsavedPolicy.DROP
