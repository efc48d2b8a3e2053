"""The `content` service: blobs by their digests (RFC 10). Only the owner may ask.

Payloads are JSON on our wire, so blobs travel in base64, and go by their blobrefs:

- `content.store {data}` returns `{ref}`; EFBIG for more than a blob may have.
- `content.load {ref}` returns `{data}`; ENOENT.
- `content.validate {ref}` returns nothing; ENOENT.
- `content.flush` is refused with ENOSYS, as where no store is behind the cache: blobs are
  in memory. What is committed by its digest is copied and safe on disk with its commit.

Which blobs are known, and how long, is said in `kvs.refs`.
"""

import base64
import errno
from typing import Any

from warren.instance.kvs.refs import LARGEST_BLOB
from warren.instance.kvs.store import Kvs
from warren.rfc import treeobj
from warren.rfc.errors import BadFormat
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError


class Content:
    """The `content` service."""

    def __init__(self, kvs: Kvs) -> None:
        self._kvs = kvs

    def methods(self) -> Methods:
        return {
            "store": Method(self._store),
            "load": Method(self._load),
            "validate": Method(self._validate),
            "flush": Method(self._flush),
        }

    async def _store(self, request: Request) -> Payload:
        blob = _decode_base64(request.payload.get("data"))
        if len(blob) > LARGEST_BLOB:
            raise RpcError(errno.EFBIG, f"a blob has at most {LARGEST_BLOB} bytes")
        return {"ref": self._kvs.refs.store(blob)}

    async def _load(self, request: Request) -> Payload:
        return {"data": base64.b64encode(self._requested_blob(request)).decode()}

    async def _validate(self, request: Request) -> Payload:
        self._requested_blob(request)
        return {}

    async def _flush(self, request: Request) -> Payload:
        raise RpcError(errno.ENOSYS, "blobs are in memory: commit what is to last")

    def _requested_blob(self, request: Request) -> bytes:
        """Return the blob that a request names. Raises RpcError."""
        try:
            ref = treeobj.check_blobref(request.payload.get("ref"), "ref")
        except BadFormat as error:
            raise RpcError(errno.EPROTO, str(error)) from None
        blob = self._kvs.blob(ref)
        if blob is None:
            raise RpcError(errno.ENOENT, f"there is no blob {ref}")
        return blob


def _decode_base64(data: Any) -> bytes:
    if not isinstance(data, str):
        raise RpcError(errno.EPROTO, "data is not a string")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError as error:
        raise RpcError(errno.EPROTO, f"data is not base64: {error}") from None
