"""Signed job requests: HEADER.PAYLOAD.SIGNATURE (RFC 15, 38, 39).

Header and payload are in base64. The header is a series of `key\\0<T>value\\0`, T being
s for a text, i for an integer of 64 bits, d for a double, b for a truth and t for a time;
it holds version, userid and mechanism.

Mechanism `none` proves nothing by itself: it is accepted only from a connection
whose peer credential is the user it claims. With mechanism `munge` the signature is a
credential of MUNGE over a digest of HEADER.PAYLOAD. This module makes and judges what goes
into the credential and comes out of it; `rpc.munge` encodes and decodes one.
"""

import binascii
import hashlib
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from warren.base.errors import UserMistake
from warren.rfc.errors import BadFormat

MECHANISMS: Final = ("none", "munge")
MAX_HEADER: Final = 4096
"""Bytes of a header, decoded. Nothing that is in one is long."""
MAX_TOKEN: Final = 16 * 2**20
"""Characters of a request: no message is longer."""

CREDENTIAL_PATTERN: Final = re.compile(r"MUNGE:[A-Za-z0-9+/]+={0,2}:")
"""How a credential of MUNGE looks, from its first to its last character."""

Value = str | int | float | bool | datetime

_LARGEST_USERID: Final = 2**32 - 2
_SHA256: Final = b"\x01"
_USUAL_HEADER_PATTERN: Final = re.compile(
    rb"version\0i1\0userid\0i(0|[1-9][0-9]{0,9})\0mechanism\0s(none|munge)\0"
)
_BASE64_PATTERN: Final = re.compile(r"[A-Za-z0-9+/]*")
_INTEGER_PATTERN: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_DOUBLE_PATTERN: Final = re.compile(r"-?(?:[0-9]{1,309}\.[0-9]{6}|inf|nan)")
_TIME_PATTERN: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"


class NotProven(UserMistake):
    """The signature does not prove what the request claims."""


class SignedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a request claims, and what is to prove it."""

    userid: int
    mechanism: str
    payload: bytes
    signed_part: str
    """HEADER.PAYLOAD, which the signature is over."""
    signature: str


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """What MUNGE says of a credential: which user has encoded what, and when."""

    userid: int
    payload: bytes
    encoded_at: float
    """Seconds since the epoch."""


# Whole requests


def wrap(payload: bytes, userid: int) -> str:
    """Wrap `payload` for `userid` with mechanism `none`."""
    return f"{signed_part(payload, userid, 'none')}.none"


def signed_part(payload: bytes, userid: int, mechanism: str) -> str:
    """Write HEADER.PAYLOAD, which is to be signed; a full stop and the signature follow it."""
    # In the order in which flux-core writes them.
    header = f"version\0i1\0userid\0i{userid}\0mechanism\0s{mechanism}\0"
    return f"{_encode_base64(header.encode())}.{_encode_base64(payload)}"


def unwrap(
    token: str,
    *,
    userid: int | None = None,
    mechanisms: Collection[str] = ("none",),
    longest: int = MAX_TOKEN,
) -> SignedRequest:
    """Take a request apart, refusing mechanisms other than `mechanisms`.

    The caller compares the claimed user with the connection's, or has it done by giving
    `userid`; and verifies a signature of `munge` by `verify`. Raises BadFormat with the place of
    the mistake, and NotProven for another user's request.
    """
    if len(token) > longest:
        raise BadFormat(f"the signed request has {len(token)} characters, over {longest}")
    parts = token.split(".")
    if len(parts) != 3:
        raise BadFormat("the signed request is not of the form HEADER.PAYLOAD.SIGNATURE")
    claimed, mechanism = _claims(_decode_base64(parts[0], "header"))
    if mechanism not in mechanisms:
        allowed = " or ".join(map(repr, mechanisms))
        raise BadFormat(f"the request is signed by a mechanism other than {allowed}: {mechanism!r}")
    if mechanism == "none" and parts[2] != "none":
        raise BadFormat("the signature of a request signed by mechanism 'none' is not 'none'")
    if mechanism == "munge" and not CREDENTIAL_PATTERN.fullmatch(parts[2]):
        raise BadFormat("the signature of a request signed by mechanism 'munge' is no credential")
    if userid is not None and claimed != userid:
        raise NotProven(f"the request is signed by user {claimed}, not by user {userid}")
    return SignedRequest(
        userid=claimed,
        mechanism=mechanism,
        payload=_decode_base64(parts[1], "payload"),
        signed_part=f"{parts[0]}.{parts[1]}",
        signature=parts[2],
    )


def _claims(header: bytes) -> tuple[int, str]:
    """Return the user that the header names as the signer, and the mechanism."""
    usual = _USUAL_HEADER_PATTERN.fullmatch(header)
    if usual is not None and int(usual[1]) <= _LARGEST_USERID:
        return int(usual[1]), usual[2].decode()
    fields = decode_pairs(header)
    if fields.keys() != {"version", "userid", "mechanism"}:
        raise BadFormat(
            "the signed request's header holds not version, userid, mechanism, "
            f"but {', '.join(fields) or 'nothing'}"
        )
    version, userid, mechanism = fields["version"], fields["userid"], fields["mechanism"]
    if type(version) is not int or version != 1:
        raise BadFormat(f"the signed request's version is {version!r}, not 1")
    if type(userid) is not int or not 0 <= userid <= _LARGEST_USERID:
        raise BadFormat(f"the signed request's userid is not a number of a user: {userid!r}")
    if type(mechanism) is not str or mechanism not in MECHANISMS:
        raise BadFormat(f"the signed request's mechanism is unknown: {mechanism!r}")
    return userid, mechanism


# Mechanism munge


def credential_payload(signed_part: str) -> bytes:
    """Return what a credential over HEADER.PAYLOAD carries: the kind of digest, and the digest."""
    return _SHA256 + hashlib.sha256(signed_part.encode()).digest()


def verify(request: SignedRequest, credential: Credential, *, now: float, ttl: float) -> None:
    """Return if the decoded signature of a request proves it at `now`, else raise NotProven.

    `ttl` is how many seconds a request holds, as the site has set it. MUNGE's own, shorter
    one is not asked: jobs wait for longer.
    """
    if credential.payload != credential_payload(request.signed_part):
        raise NotProven("the signature is not over this request")
    if credential.userid != request.userid:
        raise NotProven(
            f"the request claims user {request.userid}, and user {credential.userid} has signed it"
        )
    age = now - credential.encoded_at
    if age > ttl:
        raise NotProven(f"the request was signed {age:.0f} s ago, and holds for {ttl:.0f} s")


# Pairs of keys and values (RFC 38)


def encode_pairs(pairs: Mapping[str, Value]) -> bytes:
    """Write typed pairs in their order. Times are written in UTC, by the second.

    Raises BadFormat for an empty key, a NUL, an integer of over 64 bits, a time without
    zone.
    """
    pieces: list[str] = []
    for key, value in pairs.items():
        if not key:
            raise BadFormat("a pair has an empty key")
        pieces += key, "\0", _encode_value(key, value), "\0"
        if "\0" in key or "\0" in pieces[-2]:
            raise BadFormat(f"the pair {key!r} holds a NUL")
    try:
        return "".join(pieces).encode()
    except UnicodeEncodeError as error:
        raise BadFormat(f"the pairs cannot be written: {error}") from None


def _encode_value(key: str, value: Value) -> str:
    match value:
        case bool():
            return "btrue" if value else "bfalse"
        case int():
            if not -(2**63) <= value < 2**63:
                raise BadFormat(f"the pair {key!r}: {value} does not fit 64 bits")
            return f"i{value}"
        case float():
            return f"d{value:.6f}"
        case str():
            return f"s{value}"
        case datetime():
            if value.tzinfo is None:
                raise BadFormat(f"the pair {key!r}: the time {value} has no zone")
            # Not strftime() for the year: it does not fill up those before 1000.
            return f"t{value.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat()}Z"


def decode_pairs(data: bytes, *, limit: int = MAX_HEADER) -> dict[str, Value]:
    """Read typed pairs, each as the type it is written as.

    Raises BadFormat with the place, in bytes, for what is no pair, a key that comes again, what
    is cut off or is longer than `limit` bytes.
    """
    if len(data) > limit:
        raise BadFormat(f"the header has {len(data)} bytes, over {limit}")
    found: dict[str, Value] = {}
    position = 0
    while position < len(data):
        key_end = data.find(b"\0", position)
        end = data.find(b"\0", key_end + 1) if key_end >= 0 else -1
        if end < 0:
            raise BadFormat(f"the header is cut off in the pair at byte {position}")
        try:
            key, typed = data[position:key_end].decode(), data[key_end + 1 : end].decode()
        except UnicodeDecodeError:
            raise BadFormat(f"the header's pair at byte {position} is not UTF-8") from None
        if not key:
            raise BadFormat(f"the header's pair at byte {position} has an empty key")
        if key in found:
            raise BadFormat(f"the header's {key} comes again at byte {position}")
        found[key] = _decode_value(typed, f"the header's {key} at byte {key_end + 1}")
        position = end + 1
    return found


def _decode_value(typed: str, where: str) -> Value:
    kind, text = typed[:1], typed[1:]
    if kind == "s":
        return text
    if kind == "i" and _INTEGER_PATTERN.fullmatch(text) and -(2**63) <= int(text) < 2**63:
        return int(text)
    if kind == "b" and text in ("true", "false"):
        return text == "true"
    if kind == "d" and _DOUBLE_PATTERN.fullmatch(text):
        return float(text)
    if kind == "t" and _TIME_PATTERN.fullmatch(text):
        try:
            return datetime.strptime(text, _TIME_FORMAT).replace(tzinfo=UTC)
        except ValueError:
            pass
    type_names = {"i": "an integer", "b": "true or false", "d": "a double", "t": "a time"}
    if kind not in type_names:
        raise BadFormat(f"{where} has a type other than s, i, d, b, t: {kind!r}")
    raise BadFormat(f"{where} is not {type_names[kind]}: {text[:40]!r}")


# Base64


def _encode_base64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode()


def _decode_base64(text: str, part: str) -> bytes:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        match = _BASE64_PATTERN.match(text)
        assert match is not None  # it also matches nothing at all
        raise BadFormat(
            f"the signed request's {part} is not base64 from {match.end()} on: {error}"
        ) from None
    # Unused bits of the last digit: two texts of one meaning are one too many in what is signed.
    if text and _encode_base64(data[-(len(data) % 3 or 3) :]) != text[-4:]:
        raise BadFormat(f"the signed request's {part} is not base64 as it is written: {text[-4:]}")
    return data
