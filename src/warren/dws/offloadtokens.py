"""The token that comes with a request for a copy: whose it says it is, and whether it is.

It is the token of a Workflow (`dws.containerauth`), which names that in its header, as `kid`: one
service has requests of all jobs. What is in a token is not believed before its signature is seen
to be made with that Workflow's key.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

import msgspec

from warren.base.objects import Key, Object
from warren.dws import containerauth, kinds
from warren.dws.objects.decoding import Malformed, read_json
from warren.dws.objects.workflows import Workflow

_MAX_TOKEN_LENGTH: Final = 2048
"""Characters of a token."""

_BEARER_PATTERN: Final = re.compile(r"bearer +(\S+)", re.IGNORECASE)
_PART_PATTERN: Final = re.compile(r"[A-Za-z0-9_-]*")
_KID_PATTERN: Final = re.compile(r"([a-z0-9][a-z0-9.-]{0,252})/([a-z0-9][a-z0-9.-]{0,252})")


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str


class _Claims(msgspec.Struct, frozen=True):
    sub: str
    iat: int


def of_header(authorization: str) -> str | None:
    """Return the token that the header `Authorization` has; None where it has none."""
    match = _BEARER_PATTERN.fullmatch(authorization.strip())
    return match[1] if match and len(match[1]) <= _MAX_TOKEN_LENGTH else None


def workflow_key_of(token: str) -> Key | None:
    """Return the key of the Workflow whose token it says it is; None for what is no such token."""
    parts = _parts(token)
    if parts is None:
        return None
    try:
        header = read_json(parts[0], _Header)
    except Malformed:
        return None
    match = _KID_PATTERN.fullmatch(header.kid)
    if match is None or match[1] != kinds.DEFAULT_NAMESPACE or header.alg != "HS256":
        return None
    return Key(match[1], match[2])


def is_valid(token: str, workflow: Workflow, secret: Object) -> bool:
    """Return whether a token is the Workflow's, by the Secret with its key."""
    parts, key = _parts(token), containerauth.signing_key(workflow, secret)
    if parts is None or key is None or workflow_key_of(token) != workflow.metadata.key:
        return False
    signed_part = token.rpartition(".")[0].encode()
    if not hmac.compare_digest(parts[2], hmac.digest(key, signed_part, hashlib.sha256)):
        return False
    try:
        return read_json(parts[1], _Claims).sub == containerauth.SUBJECT
    except Malformed:
        return False


def _parts(token: str) -> tuple[bytes, bytes, bytes] | None:
    """Return header, claims and signature; None where these are not three parts in base64url."""
    texts = token.split(".") if len(token) <= _MAX_TOKEN_LENGTH else []
    if len(texts) != len(("header", "claims", "signature")):
        return None
    if not all(_PART_PATTERN.fullmatch(text) for text in texts):
        return None
    try:
        header, claims, signature = (
            base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)) for text in texts
        )
    except (binascii.Error, ValueError):
        return None
    return header, claims, signature
