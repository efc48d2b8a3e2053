"""Errors of the API server as HTTP answers with a Kubernetes Status."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from aiohttp import web

from warren.base.objects import Kind, Object
from warren.kube.admission import Denied
from warren.kube.client import (
    AlreadyExists,
    Conflict,
    Expired,
    NotFound,
    Refused,
    Unavailable,
)
from warren.kube.server.access.impersonation import ImpersonationForbidden
from warren.kube.server.resources import ObjectInvalid
from warren.kube.server.rest.requests import RequestError
from warren.kube.server.schemas.apply import ApplyConflict
from warren.kube.server.schemas.causes import Cause
from warren.kube.server.storeerrors import (
    AddressMismatch,
    DiskFull,
    LogNotAvailable,
    ObjectAlreadyExists,
    ObjectConflict,
    ObjectNotFound,
    ResourceVersionTooLarge,
)
from warren.kube.server.webhooks.calls import CallFailed, Rejected


class Failure(NamedTuple):
    """The answer to a request that failed."""

    code: int
    reason: str
    message: str
    details: Mapping[str, Any] = {}

    @property
    def headers(self) -> dict[str, str]:
        """Return the HTTP headers of the answer."""
        seconds = self.details.get("retryAfterSeconds")
        return {"Retry-After": str(seconds)} if seconds else {}

    def status(self) -> dict[str, Any]:
        """Return the Status object."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": self.details} if self.details else {}),
            "code": self.code,
        }


def failure(error: Exception) -> Failure | None:
    """Return the answer to a request that has raised an error; None where the error is a bug."""
    match error:
        case web.HTTPException():
            reason = "RequestEntityTooLarge" if error.status == 413 else "BadRequest"
            return Failure(error.status, reason, error.reason)
        case RequestError():
            return Failure(error.code, error.reason, str(error))
        case ObjectNotFound():
            return Failure(404, "NotFound", str(error), _object_details(error))
        case ObjectAlreadyExists():
            return Failure(409, "AlreadyExists", str(error), _object_details(error))
        case ObjectConflict():
            return Failure(409, "Conflict", str(error), _object_details(error))
        case AddressMismatch() | LogNotAvailable():
            return Failure(400, "BadRequest", str(error))
        case NotFound():
            return Failure(404, "NotFound", str(error))
        case AlreadyExists():
            return Failure(409, "AlreadyExists", str(error))
        case ApplyConflict():
            return Failure(409, "Conflict", str(error), {"causes": _conflict_causes(error)})
        case Conflict():
            return Failure(409, "Conflict", str(error))
        case Expired():
            return Failure(410, "Expired", str(error))
        case Rejected():
            denied = f'admission webhook "{error.webhook}" denied the request: {error}'
            return Failure(error.code, error.reason, denied)
        case Denied():
            denied_by = (
                f'admission webhook "{error.webhook}" denied the request: ' if error.webhook else ""
            )
            return Failure(403, "Forbidden", f"{denied_by}{error}")
        case ImpersonationForbidden():
            return Failure(403, "Forbidden", str(error))
        case ObjectInvalid():
            return Failure(422, "Invalid", str(error), _invalid_details(error))
        case Refused():
            return Failure(422, "Invalid", str(error))
        case CallFailed():
            return Failure(500, "InternalError", f"Internal error occurred: {error}")
        case DiskFull():
            return Failure(507, "InsufficientStorage", str(error))
        case ResourceVersionTooLarge():
            return Failure(504, "Timeout", str(error), _TOO_LARGE_DETAILS)
        case Unavailable():
            return Failure(503, "ServiceUnavailable", str(error))
        case _:
            return None


_TOO_LARGE_DETAILS: Final[Mapping[str, Any]] = {
    "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
    "retryAfterSeconds": 1,
}
"""Tells client-go to list or watch again without a resourceVersion."""


def deletion_status(kind: Kind, obj: Object) -> dict[str, Any]:
    """Return the Status that answers the deletion of an object."""
    metadata = obj["metadata"]
    group = {"group": kind.group} if kind.group else {}
    details = {"name": metadata["name"], **group, "kind": kind.plural, "uid": metadata["uid"]}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def _object_details(error: ObjectNotFound | ObjectAlreadyExists | ObjectConflict) -> dict[str, Any]:
    """Return the details of a Status that name the object."""
    group = {"group": error.kind.group} if error.kind.group else {}
    return {"name": error.name, **group, "kind": error.kind.plural}


def _invalid_details(error: ObjectInvalid) -> dict[str, Any]:
    """Return the details of a Status for an object that is invalid: each field, and why."""
    causes = _causes(error.causes)
    return {"name": error.name, "group": error.group, "kind": error.kind, "causes": causes}


def _causes(causes: Iterable[Cause]) -> list[dict[str, str]]:
    return [
        {"reason": each.reason, "message": each.message, "field": each.field} for each in causes
    ]


def _conflict_causes(error: ApplyConflict) -> list[dict[str, str]]:
    """Return the causes of an apply conflict: the fields that other managers own."""
    return [
        {"reason": "FieldManagerConflict", "message": each.message, "field": each.field}
        for each in error.causes
    ]
