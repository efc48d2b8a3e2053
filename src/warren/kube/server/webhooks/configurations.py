"""Webhook configurations: which webhook is to be asked about which write. Pure.

What a configuration may say is what `admissionregistration.k8s.io/v1` lets it say, but for
two things. `matchConditions` are refused: they are programs in a language that is not
spoken here, and to pass over them would ask a webhook what it does not want to be asked.
`reinvocationPolicy: IfNeeded` is taken as Never: each webhook sees a write once.
"""

import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from warren.base.objects import Kind, Object
from warren.kube.admission import Review
from warren.kube.client import Refused
from warren.kube.server.builtin import NAMESPACE
from warren.kube.server.selectors import LabelSelector, Operator, Requirement

MUTATING: Final = Kind(
    "admissionregistration.k8s.io",
    "v1",
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    namespaced=False,
)
VALIDATING: Final = replace(
    MUTATING,
    name="ValidatingWebhookConfiguration",
    plural="validatingwebhookconfigurations",
)

REVIEW_VERSION: Final = "v1"
"""The version of AdmissionReview in which webhooks are asked."""


class ServiceReference(msgspec.Struct, frozen=True):
    """A webhook that is behind a Service, and not at a URL of its own."""

    namespace: str
    name: str
    port: int

    @property
    def server_name(self) -> str:
        """The name that its certificate is for."""
        return f"{self.name}.{self.namespace}.svc"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Some writes, by what is done to which resource."""

    operations: frozenset[str]
    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    """With their subresources."""
    scope: str

    def matches(self, review: Review, kind: Kind) -> bool:
        """Return whether a write is one of these, when its object is spelled as `kind`."""
        subresource = "status" if review.through_status else ""
        scope = "Namespaced" if review.key.namespace else "Cluster"
        return (
            _has(self.operations, review.operation)
            and _has(self.groups, kind.group)
            and _has(self.versions, kind.version)
            and self.scope in ("*", scope)
            and any(
                plural in ("*", kind.plural) and sub in ("*", subresource)
                for plural, sub in self.resources
            )
        )


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook, ready for use."""

    name: str
    rules: tuple[Rule, ...]
    namespace_selector: LabelSelector
    object_selector: LabelSelector
    exact: bool
    """Whether it wants no write in a version of its kind that no rule names."""
    required: bool
    """Whether a write that it cannot be asked about is refused."""
    timeout_seconds: int
    """The longest that it may take to answer."""
    service: ServiceReference | None
    url_or_path: str
    """Its URL; or its path, if it is behind a Service."""
    tls: ssl.SSLContext | Literal[True]
    """Trusts the signer of its certificate; True trusts the authorities of this machine."""

    def wanted_kind(
        self, review: Review, served: Sequence[str], namespace_labels: Mapping[str, str] | None
    ) -> Kind | None:
        """Return the kind, in the version, in which it wants to see a write; None if it does not.

        `served` are the versions of the kind, and `namespace_labels` those of the object's
        namespace, None where it is in none.
        """
        if namespace_labels is not None and not self.namespace_selector.matches(namespace_labels):
            return None
        if not any(self.object_selector.matches(labels) for labels in _labels(review)):
            return None
        other_versions = () if self.exact else served
        for version in (review.kind.version, *other_versions):
            kind = replace(review.kind, version=version)
            if any(rule.matches(review, kind) for rule in self.rules):
                return kind
        return None


def is_configuration(kind: Kind) -> bool:
    """Return whether objects of a kind configure webhooks: no webhook is asked about those."""
    return kind.group == MUTATING.group and kind.plural in (MUTATING.plural, VALIDATING.plural)


def namespace_of(review: Review) -> str:
    """Return the namespace that a write is in. A Namespace counts as being in itself."""
    is_namespace = review.kind.plural == NAMESPACE.plural and review.kind.group == NAMESPACE.group
    return review.key.name if is_namespace else review.key.namespace


def read_webhooks(configuration: Object) -> list[Webhook]:
    """Read a configuration, of either kind. Raises Refused with what cannot be read."""
    try:
        form = msgspec.convert(configuration, _Configuration)
    except msgspec.ValidationError as error:
        raise Refused(f"the webhooks cannot be read: {error}") from error
    names = [each.name for each in form.webhooks or ()]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise Refused(f"webhooks[{index}].name: {name} is the name of another one")
    return [_webhook(f"webhooks[{index}]", each) for index, each in enumerate(form.webhooks or ())]


# What is written

_NAME_PATTERN: Final = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?){2,}"
)


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    operations: tuple[Literal["CREATE", "UPDATE", "DELETE", "CONNECT", "*"], ...]
    api_groups: tuple[str, ...]
    api_versions: tuple[str, ...]
    resources: tuple[str, ...]
    scope: Literal["Cluster", "Namespaced", "*"] | None = None


class _Expression(msgspec.Struct, frozen=True):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] | None = None


class _Selector(msgspec.Struct, frozen=True, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: tuple[_Expression, ...] | None = None


class _Service(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    path: str | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    url: str | None = None
    service: _Service | None = None
    ca_bundle: bytes | None = None


class _Webhook(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    client_config: _ClientConfig
    side_effects: Literal["None", "NoneOnDryRun"]
    admission_review_versions: tuple[str, ...]
    rules: tuple[_Rule, ...] | None = None
    failure_policy: Literal["Fail", "Ignore"] | None = None
    match_policy: Literal["Exact", "Equivalent"] | None = None
    namespace_selector: _Selector | None = None
    object_selector: _Selector | None = None
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=30)] | None = None
    reinvocation_policy: Literal["Never", "IfNeeded"] | None = None
    match_conditions: tuple[Any, ...] | None = None


class _Configuration(msgspec.Struct, frozen=True):
    webhooks: tuple[_Webhook, ...] | None = None


def _webhook(path: str, form: _Webhook) -> Webhook:
    if not _NAME_PATTERN.fullmatch(form.name):
        raise Refused(
            f"{path}.name: {form.name!r} is not a domain name of three parts or more, "
            "like workflows.example.com"
        )
    if REVIEW_VERSION not in form.admission_review_versions:
        raise Refused(f"{path}.admissionReviewVersions: this server speaks {REVIEW_VERSION} alone")
    if form.match_conditions:
        raise Refused(
            f"{path}.matchConditions: this server does not evaluate CEL; say with rules, "
            "namespaceSelector and objectSelector what the webhook is to be asked"
        )
    service, url_or_path = _service_and_url_or_path(f"{path}.clientConfig", form.client_config)
    return Webhook(
        name=form.name,
        rules=tuple(map(_rule, form.rules or ())),
        namespace_selector=_selector(f"{path}.namespaceSelector", form.namespace_selector),
        object_selector=_selector(f"{path}.objectSelector", form.object_selector),
        exact=form.match_policy == "Exact",
        required=form.failure_policy != "Ignore",
        timeout_seconds=form.timeout_seconds or 10,
        service=service,
        url_or_path=url_or_path,
        tls=_tls_context(f"{path}.clientConfig.caBundle", form.client_config.ca_bundle),
    )


def _rule(form: _Rule) -> Rule:
    resources = (resource.partition("/") for resource in form.resources)
    return Rule(
        operations=frozenset(form.operations),
        groups=frozenset(form.api_groups),
        versions=frozenset(form.api_versions),
        resources=tuple((plural, subresource) for plural, _, subresource in resources),
        scope=form.scope or "*",
    )


_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}


def _selector(path: str, form: _Selector | None) -> LabelSelector:
    if form is None:
        return LabelSelector()
    requirements = [
        Requirement(key, Operator.EQUALS, (value,))
        for key, value in (form.match_labels or {}).items()
    ]
    for each in form.match_expressions or ():
        if bool(each.values) is not (each.operator in ("In", "NotIn")):
            raise Refused(f"{path}: In and NotIn have values, {each.key} {each.operator} differs")
        requirements.append(
            Requirement(each.key, _OPERATORS[each.operator], tuple(sorted(each.values or ())))
        )
    return LabelSelector(tuple(requirements))


def _service_and_url_or_path(path: str, form: _ClientConfig) -> tuple[ServiceReference | None, str]:
    if (form.url is None) is (form.service is None):
        raise Refused(f"{path}: a webhook has a url or a service, one of the two")
    if form.service is not None:
        url_path = form.service.path or ""
        if url_path and (not url_path.startswith("/") or set("?# ") & {*url_path}):
            raise Refused(f"{path}.service.path: {url_path!r} is not a path")
        port = form.service.port or 443
        return ServiceReference(form.service.namespace, form.service.name, port), url_path
    assert form.url is not None
    try:
        parts = urlsplit(form.url)
        is_plain = not (parts.username or parts.password or parts.query or parts.fragment)
        # Reading the port raises for one that is none.
        is_valid = parts.scheme == "https" and parts.hostname and parts.port != 0 and is_plain
    except ValueError:
        is_valid = False
    if not is_valid:
        raise Refused(
            f"{path}.url: {form.url!r} is not of the form https://host:port/path, "
            "without a user, a query or a fragment"
        )
    return None, form.url


def _tls_context(path: str, bundle: bytes | None) -> ssl.SSLContext | Literal[True]:
    # A blank bundle is what tools leave for an injector to fill.
    if bundle is None or not bundle.strip():
        return True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise Refused(f"{path}: these are no certificates in PEM: {error}") from error
    return context


def _has(names: frozenset[str], name: str) -> bool:
    return name in names or "*" in names


def _labels(review: Review) -> Iterator[Mapping[str, str]]:
    """Return the labels of the object: of the one that is there, and of the one that is to be."""
    for obj in (review.new, review.old):
        if obj is not None:
            yield obj["metadata"].get("labels") or {}
