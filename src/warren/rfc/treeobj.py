"""KVS values as they travel: tree objects (RFC 11). Only inline values so far."""

import base64
from collections.abc import Mapping
from typing import Any

from warren.rfc.errors import BadFormat


def val(data: bytes) -> dict[str, Any]:
    """Write a value."""
    return {"ver": 1, "type": "val", "data": base64.b64encode(data).decode()}


def read_val(obj: Any) -> bytes:
    """Read a value. Raises BadFormat for any other tree object."""
    if not isinstance(obj, Mapping) or obj.get("ver") != 1 or obj.get("type") != "val":
        raise BadFormat("a tree object of type val is expected")
    try:
        return base64.b64decode(obj["data"], validate=True)
    except (KeyError, TypeError, ValueError):
        raise BadFormat("the data of a tree object is not base64") from None
