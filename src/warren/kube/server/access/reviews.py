"""SubjectAccessReviews and their like: objects that a client posts, and gets back with a status.

They are kinds that are never stored. A review that does not have the form of its kind is refused
with all that is wrong with it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from warren.base.objects import Kind, Object
from warren.kube.admission import User
from warren.kube.server.access.authorization import Attributes, Authorizer
from warren.kube.server.access.grants import PolicyRule
from warren.kube.server.resources import ObjectInvalid
from warren.kube.server.schemas import schema
from warren.kube.server.schemas.causes import Cause, required_cause

_AUTHORIZATION: Final = "authorization.k8s.io"
_AUTHENTICATION: Final = "authentication.k8s.io"


def _review_kind(group: str, name: str, *, namespaced: bool = False) -> Kind:
    return Kind(group, "v1", name, f"{name.lower()}s", namespaced)


SELF_ACCESS: Final = _review_kind(_AUTHORIZATION, "SelfSubjectAccessReview")
ACCESS_REVIEW: Final = _review_kind(_AUTHORIZATION, "SubjectAccessReview")
LOCAL_ACCESS: Final = _review_kind(_AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True)
SELF_RULES: Final = _review_kind(_AUTHORIZATION, "SelfSubjectRulesReview")
SELF_REVIEW: Final = _review_kind(_AUTHENTICATION, "SelfSubjectReview")

REVIEW_KINDS: Final = (SELF_ACCESS, ACCESS_REVIEW, LOCAL_ACCESS, SELF_RULES, SELF_REVIEW)
REVIEW_VERBS: Final = ("create",)
"""All that can be done with these kinds."""


def answer(plural: str, body: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
    """Return a review that a user has posted, with its answer as its status.

    `plural` is that of one of `REVIEW_KINDS`. A LocalSubjectAccessReview has its namespace in its
    metadata. Raises ObjectInvalid, which is Refused, for a review that does not have its form.
    """
    kind = _BY_PLURAL[plural]
    compiled = _COMPILED_SCHEMAS[plural]
    review = compiled.apply_defaults(compiled.prune(body)[0])
    # What no schema says is asked only of a review of which the schema has nothing to say.
    causes = compiled.violations(review) or _VIOLATIONS_BY_PLURAL.get(plural, _no_violations)(
        review
    )
    if causes:
        raise ObjectInvalid(kind.group, kind.name, "", causes)
    return {
        **review,
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": review.get("metadata") or {},
        "status": _STATUS_BY_PLURAL[plural](review, user, authorizer),
    }


# Answers


def _own_access_status(review: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
    return _access_status(review["spec"], user, authorizer)


def _named_access_status(review: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
    spec = review["spec"]
    return _access_status(
        spec, User(spec.get("user", ""), frozenset(spec.get("groups", ()))), authorizer
    )


def _access_status(spec: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
    attributes = _attributes(spec)
    allowed = authorizer.allows(user, attributes)
    reason = authorizer.reason(user, attributes)
    return {"allowed": allowed, **({"reason": reason} if reason else {})}


def _attributes(spec: Object) -> Attributes:
    if "nonResourceAttributes" in spec:
        attributes = spec["nonResourceAttributes"]
        return Attributes(verb=attributes.get("verb", ""), path=attributes.get("path", ""))
    attributes = spec["resourceAttributes"]
    return Attributes(
        verb=attributes.get("verb", ""),
        group=attributes.get("group", ""),
        resource=attributes.get("resource", ""),
        subresource=attributes.get("subresource", ""),
        name=attributes.get("name", ""),
        namespace=attributes.get("namespace", ""),
    )


def _own_rules_status(review: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
    rules = authorizer.rules(user, review["spec"]["namespace"])
    return {
        "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
        "nonResourceRules": [
            {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.non_resource_urls)}
            for rule in rules
            if rule.non_resource_urls
        ],
        "incomplete": False,
    }


def _resource_rule(rule: PolicyRule) -> dict[str, Any]:
    names = {"resourceNames": list(rule.resource_names)} if rule.resource_names else {}
    return {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
        **names,
    }


def _own_user_status(review: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
    return {"userInfo": {"username": user.name, "groups": sorted(user.groups)}}


_STATUS_BY_PLURAL: Final[Mapping[str, Callable[[Object, User, Authorizer], dict[str, Any]]]] = {
    SELF_ACCESS.plural: _own_access_status,
    ACCESS_REVIEW.plural: _named_access_status,
    LOCAL_ACCESS.plural: _named_access_status,
    SELF_RULES.plural: _own_rules_status,
    SELF_REVIEW.plural: _own_user_status,
}


# Schemas

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _object_schema(*needed: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(needed)}


_ATTRIBUTES: Final = {
    "resourceAttributes": _object_schema(
        namespace=_TEXT,
        verb=_TEXT,
        group=_TEXT,
        version=_TEXT,
        resource=_TEXT,
        subresource=_TEXT,
        name=_TEXT,
        fieldSelector=_ANYTHING,
        labelSelector=_ANYTHING,
    ),
    "nonResourceAttributes": _object_schema(path=_TEXT, verb=_TEXT),
}
_SUBJECT: Final = {
    "user": _TEXT,
    "groups": _TEXTS,
    "uid": _TEXT,
    "extra": {"type": "object", "additionalProperties": _TEXTS},
}
_METADATA: Final = {"type": "object", "nullable": True}

SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    SELF_ACCESS.plural: _object_schema(
        "spec", metadata=_METADATA, spec=_object_schema(**_ATTRIBUTES)
    ),
    ACCESS_REVIEW.plural: _object_schema(
        "spec", metadata=_METADATA, spec=_object_schema(**_ATTRIBUTES, **_SUBJECT)
    ),
    LOCAL_ACCESS.plural: _object_schema(
        "spec", metadata=_METADATA, spec=_object_schema(**_ATTRIBUTES, **_SUBJECT)
    ),
    SELF_RULES.plural: _object_schema(
        "spec", metadata=_METADATA, spec=_object_schema(namespace=_TEXT)
    ),
    SELF_REVIEW.plural: _object_schema(metadata=_METADATA),
}
"""What a client posts, by plural."""

_COMPILED_SCHEMAS: Final = {plural: schema.compile(each) for plural, each in SCHEMAS.items()}
_BY_PLURAL: Final = {kind.plural: kind for kind in REVIEW_KINDS}


# What no schema says


def _no_violations(review: Object) -> list[Cause]:
    return []


def _attributes_violations(review: Object) -> list[Cause]:
    """Return what is wrong with a review that asks for nothing, or for two things."""
    spec = review["spec"]
    match "resourceAttributes" in spec, "nonResourceAttributes" in spec:
        case True, True:
            complaint = "cannot be specified in combination with resourceAttributes"
            return [_invalid("nonResourceAttributes", spec["nonResourceAttributes"], complaint)]
        case False, False:
            complaint = (
                "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            )
            return [_invalid("resourceAttributes", None, complaint)]
        case _:
            return []


def _subject_violations(review: Object) -> list[Cause]:
    """Return what is wrong with a review that names no user or group, or is unclear."""
    spec = review["spec"]
    if spec.get("user") or spec.get("groups"):
        return _attributes_violations(review)
    complaint = "at least one of user or group must be specified"
    return [*_attributes_violations(review), _invalid("user", spec.get("user", ""), complaint)]


def _namespace_violations(review: Object) -> list[Cause]:
    """Return what is wrong with a review that asks for what is not in its namespace."""
    spec = review["spec"]
    namespace = (review.get("metadata") or {}).get("namespace", "")
    if "nonResourceAttributes" in spec:
        complaint = "disallowed on this kind of request"
        return [_invalid("nonResourceAttributes", spec["nonResourceAttributes"], complaint)]
    causes = _subject_violations(review)
    requested_namespace = spec.get("resourceAttributes", {}).get("namespace", "")
    if not causes and (not requested_namespace or requested_namespace != namespace):
        complaint = f"must match namespace: {namespace}"
        return [_invalid("resourceAttributes.namespace", requested_namespace, complaint)]
    return causes


def _missing_namespace_violations(review: Object) -> list[Cause]:
    return [] if review["spec"].get("namespace") else [required_cause("spec.namespace")]


_VIOLATIONS_BY_PLURAL: Final[Mapping[str, Callable[[Object], list[Cause]]]] = {
    SELF_ACCESS.plural: _attributes_violations,
    ACCESS_REVIEW.plural: _subject_violations,
    LOCAL_ACCESS.plural: _namespace_violations,
    SELF_RULES.plural: _missing_namespace_violations,
}


def _invalid(field: str, value: Any, complaint: str) -> Cause:
    message = f"Invalid value: {orjson.dumps(value).decode()}: {complaint}"
    return Cause(f"spec.{field}", "FieldValueInvalid", message)
