"""What objects, labels, annotations and finalizers may be called. Pure.

The rules are those that every Kubernetes API has, so that what is taken here is taken there.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from warren.base.objects import Kind
from warren.kube.server.schemas.causes import Cause

_DNS_LABEL_PATTERN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN_PATTERN: Final = re.compile(
    rf"{_DNS_LABEL_PATTERN.pattern}(\.{_DNS_LABEL_PATTERN.pattern})*"
)
_QUALIFIED_PATTERN: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_RBAC: Final = "rbac.authorization.k8s.io"
_MAX_ANNOTATION_BYTES: Final = 256 * 2**10
"""Bytes that all annotations of an object may add up to."""


def violations(kind: Kind, metadata: Mapping[str, Any]) -> list[Cause]:
    """Return what is wrong with the names in an object's metadata, which has the right types."""
    return [
        *_name_violations(kind, metadata),
        *_label_violations(metadata),
        *_annotation_violations(metadata),
    ]


def _name_violations(kind: Kind, metadata: Mapping[str, Any]) -> Iterator[Cause]:
    name = metadata.get("name") or ""
    if not name:
        why = "Required value: name or generateName is required"
        yield Cause("metadata.name", "FieldValueRequired", why)
    elif kind.group == _RBAC:
        pass  # any part of a path will do, and has been looked at: `system:node` is one
    elif (kind.group, kind.plural) == ("", "namespaces"):
        yield from _causes("metadata.name", name, _dns_label_complaint(name))
    else:
        yield from _causes("metadata.name", name, _subdomain_complaint(name))


def _label_violations(metadata: Mapping[str, Any]) -> Iterator[Cause]:
    for name, value in (metadata.get("labels") or {}).items():
        yield from _causes("metadata.labels", name, _qualified_complaint(name))
        if value:
            yield from _causes("metadata.labels", value, _part_complaint(value, "a valid label"))


def _annotation_violations(metadata: Mapping[str, Any]) -> Iterator[Cause]:
    annotations = metadata.get("annotations") or {}
    for name in annotations:
        # Their capitals do not matter, unlike those of labels.
        yield from _causes("metadata.annotations", name, _qualified_complaint(name.lower()))
    if (
        sum(len(f"{name}{value}".encode()) for name, value in annotations.items())
        > _MAX_ANNOTATION_BYTES
    ):
        why = f"Too long: may not be more than {_MAX_ANNOTATION_BYTES} bytes"
        yield Cause("metadata.annotations", "FieldValueTooLong", why)


def _causes(field: str, value: str, why: str) -> Iterator[Cause]:
    if why:
        message = f"Invalid value: {orjson.dumps(value).decode()}: {why}"
        yield Cause(field, "FieldValueInvalid", message)


# Each says what is wrong, or nothing


def _complaint_maker(limit: int, pattern: re.Pattern[str], why: str) -> Callable[[str], str]:
    def complaint(text: str) -> str:
        if len(text) > limit:
            return f"must be no more than {limit} characters"
        return "" if pattern.fullmatch(text) else why

    return complaint


_ENDS: Final = "and must start and end with an alphanumeric character"
_dns_label_complaint: Final = _complaint_maker(
    63,
    _DNS_LABEL_PATTERN,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters "
    f"or '-', {_ENDS}",
)
_subdomain_complaint: Final = _complaint_maker(
    253,
    _SUBDOMAIN_PATTERN,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    f"'-' or '.', {_ENDS}",
)


def _part_complaint(text: str, what: str) -> str:
    if len(text) > 63:
        return f"{what} must be no more than 63 characters"
    if _QUALIFIED_PATTERN.fullmatch(text):
        return ""
    return f"{what} must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"


def _qualified_complaint(text: str) -> str:
    prefix, slash, name = text.rpartition("/")
    if slash and (why := _subdomain_complaint(prefix)):
        return f"prefix part {why}"
    return _part_complaint(name, "name part")
