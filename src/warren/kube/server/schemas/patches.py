"""JSON Patch (RFC 6902): a list of operations, done to an object one after the other.

What the operations do is the library's; this module numbers the refusals and sets bounds.
Merge patches are `warren.base.objects.merge_patch`.
"""

from collections.abc import Mapping
from typing import Any, Final

import jsonpatch
import jsonpointer
import orjson

from warren.base.objects import Object
from warren.kube.client import Refused

_MAX_OPERATIONS: Final = 10_000
_MAX_COPIED_BYTES: Final = 3 * 2**20
"""Bytes that all copies of one patch may add up to: each could double the object."""

_MAX_MESSAGE_LENGTH: Final = 200
"""The library quotes values, which may be the whole object."""


def json_patch(obj: Object, operations: Any) -> Object:
    """Return the object after all operations; neither argument is modified, and nothing is shared.

    Raises Refused with the number of the first operation (from 1) that cannot be done, for
    what is no list of operations, and for a result that is no object or cannot be written.
    The bounds on operations and copies are those of the Kubernetes API server.
    """
    if not isinstance(operations, list):
        raise Refused("a JSON patch is a list of operations")
    if len(operations) > _MAX_OPERATIONS:
        raise Refused(
            f"a JSON patch has at most {_MAX_OPERATIONS} operations, not {len(operations)}"
        )
    result: Any = orjson.loads(_encode(obj))
    bytes_left = _MAX_COPIED_BYTES
    for number, operation in enumerate(operations, start=1):
        try:
            bytes_left -= _copied_bytes(result, operation)
            if bytes_left < 0:
                raise Refused(f"the patch copies more than {_MAX_COPIED_BYTES} bytes")
            result = jsonpatch.JsonPatch([operation]).apply(result, in_place=True)
        except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException) as error:
            raise Refused(f"operation {number}: {_shortened(error)}") from error
        except Refused as error:
            raise Refused(f"operation {number}: {error}") from error
        except RecursionError as error:
            raise Refused(f"operation {number}: values are nested too deeply") from error
    if not isinstance(result, Mapping):
        raise Refused("the patch leaves no object")
    _encode(result)
    return result


def _copied_bytes(document: Any, operation: Any) -> int:
    """Return the bytes by which an operation multiplies what is there already."""
    match operation:
        case {"op": "copy", "from": str(source)}:
            return len(_encode(jsonpointer.resolve_pointer(document, source)))
        case _:
            return 0


def _encode(value: Any) -> bytes:
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError as error:
        raise Refused(f"this cannot be written: {error}") from error


def _shortened(error: Exception) -> str:
    text = str(error)
    return text if len(text) <= _MAX_MESSAGE_LENGTH else f"{text[:_MAX_MESSAGE_LENGTH]}..."
