"""Live reads, for decisions for which what informers have seen may be too old.

Each kind is watched by itself, so what is seen of one may be older than what is
seen of another.
"""

from collections.abc import Sequence
from typing import Final

from warren.base.objects import Key, Kind, Object, Remove, key_of
from warren.kube.client import Client, NotFound

REQUEUE_DELAY: Final = 5.0
"""After how many seconds to look again where something was found that was not seen before. Events
of it may never come: an informer that has not seen a thing does not see it go."""


async def read_live(client: Client, kind: Kind, key: Key) -> Object | None:
    """Return an object as it is by now; None where there is none."""
    try:
        return await client.get(kind, key)
    except NotFound:
        return None


async def orphan_removals(
    client: Client, owner_kind: Kind, owner_key: Key, kind: Kind, objects: Sequence[Object]
) -> list[Remove]:
    """Return the removals of an owner's objects, where no owner is seen, and there is none.

    What is owned across namespaces is owned by labels alone, and no garbage collector knows
    of it. It is left over when the request that makes it arrives late: after its maker has
    given the request up, and has let go of an owner that has nothing any more.
    """
    remaining = [obj for obj in objects if not obj["metadata"].get("deletionTimestamp")]
    if not remaining:
        return []
    if await read_live(client, owner_kind, owner_key) is not None:
        return []
    return [Remove(kind=kind, key=key_of(obj)) for obj in remaining]
