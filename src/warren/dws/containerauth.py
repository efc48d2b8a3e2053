"""The token of a Workflow, by which a job and the containers beside it know each other.

Of two Secrets one has the key, which the containers are given, and the other one the token that is
signed with it, which the job is given (dws-spec section 12.2). What is random comes from outside.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from warren.base.objects import Create, Object
from warren.directives.parse import Directive, parse
from warren.dws import children, kinds
from warren.dws.faults import Fault
from warren.dws.objects.workflows import State, Workflow
from warren.dws.offload import copyservice

REQUIRES_WORD: Final = "user-container-auth"
"""The word of `requires` by which a user asks for it: no daemon has it for its name."""

_AUTH_REQUIREMENT: Final = "container-auth"
_REQUIREMENTS_BY_WORD: Final[Mapping[str, tuple[str, ...]]] = {
    copyservice.REQUIRES_WORD: (copyservice.REQUIRES_WORD, _AUTH_REQUIREMENT),
    REQUIRES_WORD: (_AUTH_REQUIREMENT,),
}
"""What a Workflow says for the words of its directives."""

TLS_SECRET: Final = "nnf-dm-usercontainer-server-tls"
"""The Secret with the certificate of containers: an admin's, where there is one."""

_TLS_VOLUME: Final = "usercontainer-tls"
_TLS_PATH: Final = "/etc/usercontainer-tls"
_KEY_VOLUME: Final = "usercontainer-token"
_KEY_PATH: Final = "/etc/usercontainer-token"
VOLUMES: Final = (_TLS_VOLUME, _KEY_VOLUME)
_KEY_ENTRY: Final = "token.key"
_TOKEN_ENTRY: Final = "token"
SUBJECT: Final = "user-container"
"""For whom tokens are made."""
_PEM_LABEL: Final = "EC PRIVATE KEY"


@dataclass(frozen=True, kw_only=True)
class TokenSecrets:
    """The Secrets of a Workflow that are there. What they hold is never shown."""

    key: Object | None = field(default=None, repr=False)
    """The one with the key."""
    token: Object | None = field(default=None, repr=False)
    """The one with the token."""
    new_key: bytes = field(default=b"", repr=False)
    """A key that was never used, as PKCS8 in DER: for the case that there is none."""


def requirements(directives: Iterable[Directive]) -> list[str]:
    """Return what a Workflow requires beyond storage, by the words of its directives."""
    required = [
        requirement
        for directive in directives
        for word in (directive.values.get("requires") or "").split(",")
        for requirement in _REQUIREMENTS_BY_WORD.get(word, ())
    ]
    return list(dict.fromkeys(required))


def has_token(directives: Iterable[str]) -> bool:
    """Return whether a job with such directives has a token: for containers, or for copies."""
    parsed = [parse(each) for each in directives]
    has_containers = any(each.command.text == "container" for each in parsed)
    return (
        _AUTH_REQUIREMENT in requirements(parsed) and has_containers
    ) or copyservice.is_requested(parsed)


def is_enabled(workflow: Workflow) -> bool:
    """Return whether the containers of a Workflow have a key."""
    return _AUTH_REQUIREMENT in workflow.status.requires


def needs_secrets(workflow: Workflow) -> bool:
    """Return whether the Secrets of a Workflow are looked at: in Setup, and when it is entered.

    There they are made.
    """
    status = workflow.status
    if not is_enabled(workflow) or workflow.spec.desired_state is not State.SETUP:
        return False
    if status.state is State.SETUP and status.ready:
        return False
    return has_token(workflow.spec.dw_directives)


def key_name(workflow: Workflow) -> str:
    """Return the name of the Secret with the key."""
    return f"{workflow.metadata.name}-token-server"


def token_name(workflow: Workflow) -> str:
    """Return the name of the Secret with the token."""
    return f"{workflow.metadata.name}-token"


# Making them


def has_both_secrets(workflow: Workflow, secrets: TokenSecrets) -> bool:
    """Return whether both Secrets are there, and are the Workflow's own."""
    return all(
        each is not None and _is_own(workflow, each) for each in (secrets.key, secrets.token)
    )


def next_secret(workflow: Workflow, secrets: TokenSecrets, now: float) -> Create | None:
    """Return the Secret that is to be made next; None when both are there.

    The token is signed with a key that was read, never with one that is only about to be written:
    another process may have written its own first. Raises Fault where a name is taken.
    """
    for each in (secrets.key, secrets.token):
        if each is not None and not _is_own(workflow, each):
            name = each["metadata"]["name"]
            raise Fault(f"the Secret {name} is not this Workflow's: delete it", severity="Major")
    if secrets.key is None:
        return _create(workflow, key_name(workflow), _KEY_ENTRY, _pem(secrets.new_key))
    if secrets.token is None:
        key = _der(base64.b64decode(secrets.key["data"][_KEY_ENTRY]))
        # For copies there is one service, which has to be told whose token it is.
        kid = str(workflow.metadata.key) if copyservice.is_enabled(workflow) else None
        return _create(workflow, token_name(workflow), _TOKEN_ENTRY, signed_token(key, now, kid))
    return None


def _is_own(workflow: Workflow, secret: Object) -> bool:
    owners = secret["metadata"].get("ownerReferences") or ()
    return any(each.get("uid") == workflow.metadata.uid for each in owners)


def _create(workflow: Workflow, name: str, entry: str, content: bytes) -> Create:
    secret = {
        "metadata": children.metadata(workflow, name),
        "type": "Opaque",
        "immutable": True,
        "data": {entry: base64.b64encode(content).decode()},
    }
    return Create(kind=kinds.SECRET, object=secret)


def _pem(key: bytes) -> bytes:
    body = base64.b64encode(key).decode()
    lines = [body[first : first + 64] for first in range(0, len(body), 64)]
    return "\n".join(
        [f"-----BEGIN {_PEM_LABEL}-----", *lines, f"-----END {_PEM_LABEL}-----", ""]
    ).encode()


def _der(pem: bytes) -> bytes:
    return base64.b64decode(b"".join(pem.strip().splitlines()[1:-1]))


def signed_token(key: bytes, now: float, kid: str | None = None) -> bytes:
    """Return a JSON Web Token that is signed with a key (HS256), which it may name, issued now."""
    header = _encoded_part({"alg": "HS256", "typ": "JWT"} | ({"kid": kid} if kid else {}))
    claims = _encoded_part({"sub": SUBJECT, "iat": int(now)})
    signed_part = header + b"." + claims
    return signed_part + b"." + _base64url(hmac.digest(key, signed_part, hashlib.sha256))


def _encoded_part(content: Mapping[str, Any]) -> bytes:
    return _base64url(json.dumps(content, separators=(",", ":")).encode())


def _base64url(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def signing_key(workflow: Workflow, secret: Object) -> bytes | None:
    """Return the key that a Secret has; None where it has none, or is not the Workflow's."""
    pem = (secret.get("data") or {}).get(_KEY_ENTRY)
    if not pem or not _is_own(workflow, secret):
        return None
    try:
        # With an empty one any user could have signed.
        return _der(base64.b64decode(pem)) or None
    except ValueError:
        return None


def token_of(secret: Object) -> str | None:
    """Return the token that a Secret has; None where it has none."""
    return _entry(secret, _TOKEN_ENTRY)


def certificate_of(secret: Object) -> str | None:
    """Return the certificate of containers that `TLS_SECRET` has; None where it has none."""
    return _entry(secret, "tls.crt")


def _entry(secret: Object, name: str) -> str | None:
    content = (secret.get("data") or {}).get(name)
    return base64.b64decode(content).decode() if content else None


# What is told of it


def token_status(
    workflow: Workflow, directives: Iterable[Directive], secrets: TokenSecrets | None
) -> Object:
    """Return what the status says: in Proposal what is required, in Setup where the token is."""
    if workflow.status.state is State.PROPOSAL:
        required = requirements(directives)
        return {"requires": required} if required else {}
    if secrets is None or not has_both_secrets(workflow, secrets):
        return {}
    reference = {"secretName": token_name(workflow), "secretNamespace": workflow.metadata.namespace}
    return {"workflowToken": reference}


# What containers have of it


def variables(workflow: Workflow) -> dict[str, str]:
    """Return the variables of containers (dws-spec section 12.3)."""
    if not is_enabled(workflow):
        return {}
    return {
        "TLS_CERT_PATH": f"{_TLS_PATH}/tls.crt",
        "TLS_KEY_PATH": f"{_TLS_PATH}/tls.key",
        "TOKEN_KEY_PATH": f"{_KEY_PATH}/{_KEY_ENTRY}",
    }


def volumes(workflow: Workflow) -> Iterator[Object]:
    """Return the volumes of the pods of a Workflow's containers."""
    if is_enabled(workflow):
        # A cluster without the admin's certificate runs them all the same.
        yield {"name": _TLS_VOLUME, "secret": {"secretName": TLS_SECRET, "optional": True}}
        yield {"name": _KEY_VOLUME, "secret": {"secretName": key_name(workflow)}}


def mounts(workflow: Workflow) -> Iterator[Object]:
    """Return the mounts of each of a Workflow's containers."""
    if is_enabled(workflow):
        yield {"name": _TLS_VOLUME, "mountPath": _TLS_PATH, "readOnly": True}
        yield {"name": _KEY_VOLUME, "mountPath": _KEY_PATH, "readOnly": True}
