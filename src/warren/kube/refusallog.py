"""Logs what an API refuses: once when that begins, and once when it is over.

A client that is refused asks again, maybe thousands of times: a server that has just started
refuses all until it has read its roles, and a role that lacks stays away until an admin makes it.
"""

from collections.abc import Hashable

from warren.base import log


class RefusalLog:
    """The refusals of one client, which asks for several things again and again."""

    def __init__(self) -> None:
        self._reason_by_request: dict[Hashable, str] = {}
        """By what was asked for: why not."""

    @property
    def is_refused(self) -> bool:
        """Whether anything is refused, as far as is known."""
        return bool(self._reason_by_request)

    def note_refusal(self, about: Hashable, why: str) -> None:
        """Log a refusal, unless it is the one that was logged last, of this or of another."""
        # Which object it was about comes first, and is no news if others were refused alike.
        reason_without_object = why.partition("forbidden: ")[2] or why
        if reason_without_object not in self._reason_by_request.values():
            log.warning("the API refuses, and is asked again", about=str(about), reason=why)
        self._reason_by_request[about] = reason_without_object

    def note_success(self, about: Hashable) -> None:
        """Note that a request was not refused, and log it if no other is refused any more."""
        if about not in self._reason_by_request:
            return
        del self._reason_by_request[about]
        if not self._reason_by_request:
            log.info("the API refuses no more", about=str(about))
