"""The key-value store: namespaces of keys in directories, values that can be appended to.

- `operations`: what can be done to it, and the records in which the journal has that.
- `tree`: directories, values and links, and how one namespace changes.
- `packs`: directories that were not used for long, compressed.
- `snapshot`: the records of a whole store, made while it changes.
- `watches`: the clients that wait for keys.
- `refs`: tree objects, blobs and their digests, made on demand.
- `spelling`: keys as users write them.
- `quota`: what guests' jobs hold, by user; `cost`: what a guest's operations are counted for.
- `store`: all of it together.
- `service`, `watchservice`: what may be asked of it over the bus.
"""

from warren.instance.kvs.operations import (
    PRIMARY,
    Operation,
    append,
    create_namespace,
    graft,
    link,
    put,
    unlink,
)
from warren.instance.kvs.quota import Quota
from warren.instance.kvs.store import Kvs

__all__ = [
    "PRIMARY",
    "Kvs",
    "Operation",
    "Quota",
    "append",
    "create_namespace",
    "graft",
    "link",
    "put",
    "unlink",
]
