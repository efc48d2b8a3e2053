"""Faults of storage, as statuses report them: type, severity and messages."""

from typing import Any, Final

from warren.base.errors import WarrenError
from warren.dws.objects.meta import Error

STATUS_BY_SEVERITY: Final = {"Minor": "Running", "Major": "TransientCondition", "Fatal": "Error"}
"""How a Workflow shows an error of each severity."""


class Fault(WarrenError):
    """A piece of work that cannot go on. `severity` is Minor, Major or Fatal.

    `argument` names the argument of the directive that is wrong, if it is one.
    """

    def __init__(
        self,
        message: str,
        *,
        severity: str = "Fatal",
        type: str = "Internal",
        debug: str = "",
        argument: str = "",
    ) -> None:
        super().__init__(message)
        self.severity = severity
        self.type = type
        self.debug = debug or message
        self.argument = argument

    @property
    def workflow_message(self) -> str:
        """What a Workflow's message says."""
        return f"{self.type} error: {self}"

    def as_error(self) -> dict[str, Any]:
        """Write it as the `error` of a status."""
        return {
            "userMessage": str(self),
            "debugMessage": self.debug,
            "type": self.type,
            "severity": self.severity,
        }


def raise_for(error: Error | None, where: str = "") -> None:
    """Raise the fault that a status reports, if it does, with the place it comes from."""
    if error is not None:
        message = error.user_message or error.debug_message
        raise Fault(
            f"{where}: {message}" if where else message,
            severity=error.severity,
            type=error.type,
            debug=error.debug_message,
        )
