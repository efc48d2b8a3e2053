"""The `config` service: what is configured now, and changes of it while the instance runs.

Some of it has its effect at once, the rest when the instance is started next (ADR 067).
"""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from warren.base import log
from warren.base.errors import UserMistake
from warren.instance import config
from warren.instance.config import Config
from warren.lifecycle.policy import Policy, Queue
from warren.rpc.bus import Method, Methods, StreamingMethod
from warren.rpc.message import Payload, Request, RpcError

_LIVE_TABLES: Final = ("rabbit", "sched", "ingest", "job_list")
"""The tables that hold at once."""
_LIVE_STORAGE_KEYS: Final = ("scale", "most_allocations", "placement")
"""The keys of table `storage` that do."""

Listener = Callable[[Config], None]


def split_change(old: Config, new: Config) -> tuple[Config, list[str]]:
    """Return what holds at once of a new configuration, and the paths of what does later.

    Other queues, and all policy with them, wait for the next start: a job's queue is one that is
    there.
    """
    storage = {name: getattr(new.storage, name) for name in _LIVE_STORAGE_KEYS}
    tables = {name: getattr(new, name) for name in _LIVE_TABLES}
    tables["storage"] = replace(old.storage, **storage)
    if _queues(old) == _queues(new):
        tables |= {"queues": new.queues, "policy": new.policy}
    # What is at its default stays the very default, which is left out where it is written.
    current = replace(
        old, **{key: table for key, table in tables.items() if table != getattr(old, key)}
    )
    return current, sorted(
        set(_differing_paths(config.to_builtins(current), config.to_builtins(new)))
    )


def _queues(settings: Config) -> dict[str, Queue]:
    """Return the queues without their policies."""
    return {name: replace(queue, policy=Policy()) for name, queue in settings.queues.items()}


def _differing_paths(current: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths, of a table and a key in it, at which two configurations differ."""
    for table in current.keys() | new.keys():
        here, there = current.get(table, {}), new.get(table, {})
        yield from (
            f"{table}.{key}"
            for key in here.keys() | there.keys()
            if here.get(key) != there.get(key)
        )


class LiveConfig:
    """The configuration of a running instance."""

    def __init__(self, initial: Config, save: Callable[[str], Awaitable[None]]) -> None:
        """`save` writes a file's text down for the next start, for good."""
        self.current = initial
        self._save = save
        self._listeners: list[Listener] = []
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()

    def listen(self, listener: Listener) -> None:
        """Call `listener` with what holds from then on, whenever that has changed."""
        self._listeners.append(listener)

    def methods(self) -> Methods:
        """Return the `config` service: guests, too, may read the configuration."""
        return {
            "get": Method(self._get, guest=True),
            "load": Method(self._load),
            "watch": StreamingMethod(self._watch),
        }

    async def _get(self, request: Request) -> Payload:
        return config.to_builtins(self.current)

    async def _load(self, request: Request) -> Payload:
        """Take a configuration file's text; answer when it is durable, and holds."""
        text, name = request.payload.get("toml"), request.payload.get("name", "the configuration")
        if not (isinstance(text, str) and isinstance(name, str)):
            raise RpcError(errno.EPROTO, "config.load takes toml, a text, and name")
        try:
            new = config.parse(text, name)
        except UserMistake as mistake:
            raise RpcError(errno.EINVAL, str(mistake)) from mistake
        async with self._lock:
            current, later = split_change(self.current, new)
            try:
                await self._save(text)
            except OSError as error:
                why = f"the configuration cannot be kept, and is as it was: {error.strerror}"
                raise RpcError(error.errno or errno.EIO, why) from error
            changed = current != self.current
            if changed:
                self.current = current
                for listener in self._listeners:
                    listener(current)
                self._changed.set()
                self._changed = asyncio.Event()
        log.info("configuration is reloaded", changed=changed, later=later)
        return {"changed": changed, "later": later}

    async def _watch(self, request: Request) -> AsyncIterator[Payload]:
        """Yield the configuration now, and whenever it has changed."""
        while True:
            changed = self._changed
            yield config.to_builtins(self.current)
            await changed.wait()
