"""Keys as users write them.

Names are parted by dots; dots at the ends and next to each other mean nothing, but for
the last: what is asked for with one is to be a directory. `.` is the root.

A job is at `job.` and its id in four groups of hexadecimal digits. RFC 16 says `jobs.ID`
and `job.ID`, and a reader may write that, with any spelling of the id that has no dot,
as long as nothing else is there.
"""

import errno
import re
from collections.abc import Sequence
from typing import Any, Final

from warren.instance.kvs.operations import PRIMARY
from warren.instance.kvs.store import Kvs
from warren.instance.kvs.tree import MAX_DEPTH
from warren.rfc import fluid
from warren.rfc.errors import BadFormat
from warren.rpc.message import RpcError

_LONGEST_KEY: Final = 4096
_GROUP_PATTERN: Final = re.compile(r"[0-9a-f]{4}")


def parse_key(key: Any, what: str = "key") -> list[str]:
    """Read a key. Raises RpcError: EPROTO, or EINVAL for one that is too long or too deep."""
    if not isinstance(key, str):
        raise RpcError(errno.EPROTO, f"{what} is not a string")
    # Before it is parted: names without number would take long, and much memory.
    names = [name for name in key.split(".") if name] if len(key) <= _LONGEST_KEY else []
    if len(key) > _LONGEST_KEY or len(names) > MAX_DEPTH:
        raise RpcError(
            errno.EINVAL, f"{what} has more than {_LONGEST_KEY} characters or {MAX_DEPTH} names"
        )
    return names


def writable_key(key: Any) -> str:
    """Read a key that is to be written. Raises RpcError(EINVAL) for the root."""
    names = parse_key(key)
    if not names:
        raise RpcError(errno.EINVAL, "the root itself is not written: name a key")
    return ".".join(names)


def resolve(kvs: Kvs, names: Sequence[str], namespace: str) -> Sequence[str]:
    """Return the names by which the store knows a key: those of a job's directory for its id."""
    if namespace != PRIMARY or len(names) < 2 or names[0] not in ("job", "jobs"):
        return names
    if all(map(_GROUP_PATTERN.fullmatch, names[1:5])) and len(names) > 4:
        return names
    if names[1] in kvs.names(names[0]):
        return names
    try:
        job = fluid.parse(names[1])
    except BadFormat:
        return names
    return [*fluid.kvs(job).split("."), *names[2:]]
