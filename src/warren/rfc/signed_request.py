"""Signed job requests: HEADER.PAYLOAD.SIGNATURE (RFC 15, 38, 39).

Mechanism `none` proves nothing by itself: it is accepted only from a connection
whose peer credential is the user it claims.
"""

import base64
import binascii
import re
from dataclasses import dataclass

from warren.rfc.errors import BadFormat

_USERID = re.compile(r"i[0-9]{1,19}")


@dataclass(frozen=True, kw_only=True)
class Unwrapped:
    """What a request claims."""

    userid: int
    mechanism: str
    payload: bytes


def wrap(payload: bytes, userid: int) -> str:
    """Wrap `payload` for `userid` with mechanism `none`."""
    header = f"version\0i1\0userid\0i{userid}\0mechanism\0snone\0"
    return f"{_encode(header.encode())}.{_encode(payload)}.none"


def unwrap(token: str) -> Unwrapped:
    """Take a request apart. Whoever calls compares the claimed user with the connection's."""
    parts = token.split(".")
    if len(parts) != 3:
        raise BadFormat("the signed request is not of the form HEADER.PAYLOAD.SIGNATURE")
    header = _header(_decode(parts[0], "header"))
    if header.keys() != {"version", "userid", "mechanism"} or header["version"] != "i1":
        raise BadFormat("the signed request's header does not hold version 1, userid, mechanism")
    userid, mechanism = header["userid"], header["mechanism"]
    if not _USERID.fullmatch(userid):
        raise BadFormat("the signed request's userid is not a number")
    if mechanism != "snone" or parts[2] != "none":
        raise BadFormat("the request is signed by a mechanism other than 'none'")
    return Unwrapped(userid=int(userid[1:]), mechanism="none", payload=_decode(parts[1], "payload"))


def _header(data: bytes) -> dict[str, str]:
    fields = data.decode("utf-8", "replace").split("\0")
    if len(fields) % 2 != 1 or fields[-1]:
        raise BadFormat("the signed request's header is cut off")
    return dict(zip(fields[0:-1:2], fields[1::2], strict=True))


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str, part: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadFormat(f"the signed request's {part} is not base64") from None
