"""The ListOptions by which a list or a watch asks for a state: the newest, or that of a version.

What cannot be asked for together is refused in Kubernetes' words, which clients look for.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from aiohttp import web

from warren.kube.server.resources import ObjectInvalid
from warren.kube.server.rest.requests import RequestError, number_text
from warren.kube.server.schemas.causes import Cause

_EXACT: Final = "Exact"
_NOT_OLDER: Final = "NotOlderThan"

_MATCH: Final = "resourceVersionMatch"
_INITIAL: Final = "sendInitialEvents"


class ListVersion(msgspec.Struct, frozen=True):
    """What a list is to show."""

    min_version: int
    """The version that what is shown must have reached; 0 for any."""
    is_exact: bool
    """Whether it is to be shown as it was in that very version."""


class WatchStart(msgspec.Struct, frozen=True):
    """What a watch begins with."""

    since: str
    """The version after which changes are told; empty for the newest."""
    send_initial: bool
    """Whether what is there already is told first."""
    initial_bookmark: bool
    """Whether the client wants to hear when all of that has been told."""


def list_version(request: web.Request) -> ListVersion:
    """Read what a list asks for. Raises ObjectInvalid, and RequestError."""
    _raise_if_invalid([*_list_violations(request)])
    version = number_text(request, "resourceVersion")
    min_version = int(version or 0)
    if min_version and request.query.get("continue"):
        message = "specifying resource version is not allowed when using continue"
        raise RequestError(400, "BadRequest", message)
    match = request.query.get(_MATCH, "")
    # A list in pages from a version on, without a match, is exact in Kubernetes.
    paged = not match and int(number_text(request, "limit") or 0) > 0
    return ListVersion(min_version, is_exact=min_version > 0 and (match == _EXACT or paged))


def watch_start(request: web.Request) -> WatchStart:
    """Read what a watch asks for. Raises ObjectInvalid, and RequestError."""
    _raise_if_invalid([*_watch_violations(request)])
    version = number_text(request, "resourceVersion")
    since = "" if version == "0" else version
    send_initial = _send_initial(request)
    return WatchStart(
        since,
        send_initial=not since if send_initial is None else send_initial,
        initial_bookmark=send_initial is True,
    )


def _send_initial(request: web.Request) -> bool | None:
    """Return whether what is there is asked for; None where nothing is said."""
    text = request.query.get(_INITIAL)
    return None if text is None else text.lower() not in ("false", "0")


def _list_violations(request: web.Request) -> Iterator[Cause]:
    match, version = request.query.get(_MATCH, ""), request.query.get("resourceVersion", "")
    if match:
        if not version:
            yield _forbidden(_MATCH, f"{_MATCH} is forbidden unless resourceVersion is provided")
        yield from _continue_violations(request)
        if match not in (_EXACT, _NOT_OLDER):
            yield _unsupported(match, _EXACT, _NOT_OLDER, "")
        if match == _EXACT and version == "0":
            message = f'{_MATCH} "exact" is forbidden for resourceVersion "0"'
            yield _forbidden(_MATCH, message)
    if _send_initial(request) is not None:
        yield _forbidden(_INITIAL, f"{_INITIAL} is forbidden for list")


def _watch_violations(request: web.Request) -> Iterator[Cause]:
    match, send_initial = request.query.get(_MATCH, ""), _send_initial(request)
    if send_initial is not None and match != _NOT_OLDER:
        yield _forbidden(_MATCH, f"{_INITIAL} requires setting {_MATCH} to {_NOT_OLDER}")
    if match:
        if send_initial is None:
            message = f"{_MATCH} is forbidden for watch unless {_INITIAL} is provided"
            yield _forbidden(_MATCH, message)
        if match != _NOT_OLDER:
            yield _unsupported(match, _NOT_OLDER)
        yield from _continue_violations(request)


def _continue_violations(request: web.Request) -> Iterator[Cause]:
    if request.query.get("continue"):
        yield _forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided")


def _forbidden(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def _unsupported(value: str, *known: str) -> Cause:
    supported = ", ".join(f'"{each}"' for each in known)
    message = f'Unsupported value: "{value}": supported values: {supported}'
    return Cause(_MATCH, "FieldValueNotSupported", message)


def _raise_if_invalid(causes: list[Cause]) -> None:
    if causes:
        raise ObjectInvalid("meta.k8s.io", "ListOptions", "", causes)
