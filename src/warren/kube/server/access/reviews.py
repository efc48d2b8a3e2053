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
from warren.kube.server.access.grants import Rule
from warren.kube.server.resources import Invalid
from warren.kube.server.schemas import schema
from warren.kube.server.schemas.causes import Cause, required

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
    metadata. Raises Invalid, which is Refused, for a review that does not have its form.
    """
    kind = _BY_PLURAL[plural]
    compiled = _COMPILED_SCHEMAS[plural]
    review = compiled.apply_defaults(compiled.prune(body)[0])
    # What no schema says is asked only of a review of which the schema has nothing to say.
    causes = compiled.violations(review) or _CHECKS.get(plural, _no_causes)(review)
    if causes:
        raise Invalid(kind.group, kind.name, "", causes)
    return {
        **review,
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": review.get("metadata") or {},
        "status": _STATUS_BY_PLURAL[plural](review, user, authorizer),
    }


# Answers


def _own_access(review: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
    return _access(review["spec"], user, authorizer)


def _named_access(review: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
    spec = review["spec"]
    return _access(spec, User(spec.get("user", ""), frozenset(spec.get("groups", ()))), authorizer)


def _access(spec: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
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


def _own_rules(review: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
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


def _resource_rule(rule: Rule) -> dict[str, Any]:
    names = {"resourceNames": list(rule.resource_names)} if rule.resource_names else {}
    return {
        "verbs": list(rule.verbs),
        "apiGroups": list(rule.api_groups),
        "resources": list(rule.resources),
        **names,
    }


def _own_user(review: Object, user: User, authorizer: Authorizer) -> dict[str, Any]:
    return {"userInfo": {"username": user.name, "groups": sorted(user.groups)}}


_STATUS_BY_PLURAL: Final[Mapping[str, Callable[[Object, User, Authorizer], dict[str, Any]]]] = {
    SELF_ACCESS.plural: _own_access,
    ACCESS_REVIEW.plural: _named_access,
    LOCAL_ACCESS.plural: _named_access,
    SELF_RULES.plural: _own_rules,
    SELF_REVIEW.plural: _own_user,
}


# Forms

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _object(*needed: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(needed)}


_ATTRIBUTES: Final = {
    "resourceAttributes": _object(
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
    "nonResourceAttributes": _object(path=_TEXT, verb=_TEXT),
}
_SUBJECT: Final = {
    "user": _TEXT,
    "groups": _TEXTS,
    "uid": _TEXT,
    "extra": {"type": "object", "additionalProperties": _TEXTS},
}
_METADATA: Final = {"type": "object", "nullable": True}

SCHEMAS: Final[Mapping[str, Mapping[str, Any]]] = {
    SELF_ACCESS.plural: _object("spec", metadata=_METADATA, spec=_object(**_ATTRIBUTES)),
    ACCESS_REVIEW.plural: _object(
        "spec", metadata=_METADATA, spec=_object(**_ATTRIBUTES, **_SUBJECT)
    ),
    LOCAL_ACCESS.plural: _object(
        "spec", metadata=_METADATA, spec=_object(**_ATTRIBUTES, **_SUBJECT)
    ),
    SELF_RULES.plural: _object("spec", metadata=_METADATA, spec=_object(namespace=_TEXT)),
    SELF_REVIEW.plural: _object(metadata=_METADATA),
}
"""What a client posts, by plural."""

_COMPILED_SCHEMAS: Final = {plural: schema.compile(each) for plural, each in SCHEMAS.items()}
_BY_PLURAL: Final = {kind.plural: kind for kind in REVIEW_KINDS}


# What no schema says


def _no_causes(review: Object) -> list[Cause]:
    return []


def _check_attributes(review: Object) -> list[Cause]:
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


def _check_user(review: Object) -> list[Cause]:
    """Return what is wrong with a review that names no user or group, or is unclear."""
    spec = review["spec"]
    if spec.get("user") or spec.get("groups"):
        return _check_attributes(review)
    complaint = "at least one of user or group must be specified"
    return [*_check_attributes(review), _invalid("user", spec.get("user", ""), complaint)]


def _check_same_namespace(review: Object) -> list[Cause]:
    """Return what is wrong with a review that asks for what is not in its namespace."""
    spec = review["spec"]
    namespace = (review.get("metadata") or {}).get("namespace", "")
    if "nonResourceAttributes" in spec:
        complaint = "disallowed on this kind of request"
        return [_invalid("nonResourceAttributes", spec["nonResourceAttributes"], complaint)]
    causes = _check_user(review)
    requested_namespace = spec.get("resourceAttributes", {}).get("namespace", "")
    if not causes and (not requested_namespace or requested_namespace != namespace):
        complaint = f"must match namespace: {namespace}"
        return [_invalid("resourceAttributes.namespace", requested_namespace, complaint)]
    return causes


def _check_namespace_given(review: Object) -> list[Cause]:
    return [] if review["spec"].get("namespace") else [required("spec.namespace")]


_CHECKS: Final[Mapping[str, Callable[[Object], list[Cause]]]] = {
    SELF_ACCESS.plural: _check_attributes,
    ACCESS_REVIEW.plural: _check_user,
    LOCAL_ACCESS.plural: _check_same_namespace,
    SELF_RULES.plural: _check_namespace_given,
}


def _invalid(field: str, value: Any, complaint: str) -> Cause:
    message = f"Invalid value: {orjson.dumps(value).decode()}: {complaint}"
    return Cause(f"spec.{field}", "FieldValueInvalid", message)
