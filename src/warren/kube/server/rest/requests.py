"""The query parameters of a request: flags, numbers, and the options of a write."""

from collections.abc import Mapping
from typing import Any, Final, get_args

from aiohttp import web
from msgspec.structs import replace

from warren.base.objects import Object
from warren.kube.admission import User
from warren.kube.server.writing import Propagation, WriteOptions

_TRUE_TEXTS: Final = ("true", "True", "1")


class RequestError(Exception):
    """A request that cannot be served: an HTTP status, a reason, and a sentence."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


def flag(request: web.Request, parameter: str) -> bool:
    """Return whether a parameter is set to true."""
    return request.query.get(parameter) in _TRUE_TEXTS


def number_text(request: web.Request, parameter: str) -> str:
    """Read a parameter that is a whole number, or not there."""
    text = request.query.get(parameter, "")
    if text and not text.isdecimal():
        raise RequestError(400, "BadRequest", f"{parameter}: {text!r} is not a number")
    return text


class WriteRequest:
    """The options of a request that writes, and the warnings that go back with its answer."""

    def __init__(self, request: web.Request, user: User, *, through_status: bool = False) -> None:
        dry_run = request.query.getall("dryRun", [])
        if any(each != "All" for each in dry_run):
            raise RequestError(400, "BadRequest", f"dryRun: {', '.join(dry_run)} is not All")
        self._validation = request.query.get("fieldValidation", "Warn")
        if self._validation not in ("Ignore", "Warn", "Strict"):
            known = "Ignore, Warn or Strict"
            raise RequestError(
                400, "BadRequest", f"fieldValidation: {self._validation} is not {known}"
            )
        self.warnings: list[str] = []
        self.options = WriteOptions(
            user=user,
            through_status=through_status,
            dry_run=bool(dry_run),
            manager=request.query.get("fieldManager", ""),
            report_unknown=self._report_unknown,
            warn=self._warn,
        )

    def delete_options(self, request: web.Request, options: Mapping[str, Any]) -> WriteOptions:
        """Return how something is to be deleted, by the body's options and the parameters."""
        policy = options.get("propagationPolicy") or request.query.get("propagationPolicy")
        if options.get("orphanDependents"):  # what older clients say
            policy = "Orphan"
        preconditions = options.get("preconditions") or {}
        if not isinstance(preconditions, dict):
            raise RequestError(400, "BadRequest", "preconditions: this is not an object")
        dry_run = self.options.dry_run or options.get("dryRun") == ["All"]
        return replace(
            self.options,
            propagation=_propagation(policy),
            uid=preconditions.get("uid"),
            resource_version=preconditions.get("resourceVersion"),
            dry_run=dry_run,
        )

    def _warn(self, warning: str) -> None:
        if warning not in self.warnings:  # a write that is tried again is admitted again
            self.warnings.append(warning)

    def _report_unknown(self, fields: list[str]) -> None:
        warnings = [f'unknown field "{field}"' for field in fields]
        if self._validation == "Strict":
            raise RequestError(400, "BadRequest", f"strict decoding error: {', '.join(warnings)}")
        if self._validation == "Warn":
            self.warnings += warnings


def _propagation(policy: Any) -> Propagation | None:
    match policy:
        case None | "Background" | "Foreground" | "Orphan":
            return policy
        case _:
            known = ", ".join(get_args(Propagation))
            raise RequestError(
                400, "BadRequest", f"propagationPolicy: {policy!r} is not one of {known}"
            )


def check_type(obj: Object, kind: str, api_version: str) -> None:
    """Raise RequestError where an object is of another kind or version than its address."""
    for name, expected in (("apiVersion", api_version), ("kind", kind)):
        if obj.get(name, expected) != expected:
            raise RequestError(400, "BadRequest", f"{name}: {obj[name]!r} is not {expected!r}")
