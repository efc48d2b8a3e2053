"""The id by which an instance knows its Workflows from others: kept with its jobs, in its KVS."""

import base64
import errno
from typing import Final

import orjson

from warren.rpc.message import Handle, RpcError

KEY: Final = "warren.instance"


async def find_instance_id(handle: Handle) -> str:
    """Return the id of the instance; empty while it has none. Raises RpcError."""
    try:
        request = {"key": KEY, "namespace": "primary", "flags": 0}
        answer = await handle.rpc("kvs.lookup", request)
    except RpcError as error:
        if error.errnum != errno.ENOENT:
            raise
        return ""
    instance_id: str = orjson.loads(base64.b64decode(answer["val"]["data"]))
    return instance_id
