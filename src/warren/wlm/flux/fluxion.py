"""Tells Fluxion which flash it may give to jobs, and which nodes are out of a rabbit's reach.

What is wanted is compared with what was told last, and the difference is told, one request after
the other, until Fluxion has taken it: a broker that is busy, or a module that is reloaded, loses
nothing. What Fluxion refuses of one ssd or node is logged, and tried again at the next news of it.
Of a rabbit of which nothing is known, the graph says what is up. A `health.Scheduler`
(coral2-spec section 8).
"""

import asyncio
import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Final

from warren.base import log
from warren.rfc.fluid import JobId
from warren.rpc.message import Handle, Payload, RpcError
from warren.scheduling.external import ExistingStorage, StorageAccounts
from warren.scheduling.tags import TAG
from warren.wlm.flux.graph import FlashGraph

_SERVICE: Final = "sched-fluxion-resource"
_RETRY_DELAY: Final = 5.0
"""Seconds after which Fluxion is told again what it has not taken."""

_ABSENT_RETRY_DELAY: Final = 60.0
"""Seconds after which it is looked for again where there is none."""

_REFUSAL_ERRNUMS: Final = frozenset({errno.EINVAL, errno.ENOENT})
"""Errors about one ssd or node, which another try does not change."""

_TAG_VALUE: Final = "bad"
"""The value of the tag: a property of Fluxion's must have one."""


class Fluxion:
    """The flash and the nodes of one broker. `run` tells Fluxion until cancelled."""

    def __init__(
        self, handle: Handle, graph: FlashGraph, holds_resources: Callable[[int], bool]
    ) -> None:
        """`holds_resources` says whether a job has its resources."""
        self._handle = handle
        self._graph = graph
        self._holds_resources = holds_resources
        self._flash_states: dict[str, tuple[bool, int | None]] = {}
        """Whether the flash of a rabbit may be given out, and how many GiB it has."""
        self._storage_accounts = StorageAccounts()
        self._external_gib: dict[str, int] = {}
        """How many GiB of each rabbit storage takes that is in no job's R."""
        self._hosts_by_source: dict[str, frozenset[str]] = {}
        """The hosts that each source has tagged."""
        self._sent: dict[str, bool] = {}
        """Whether an ssd is up, and whether a node is tagged, by their paths, as told last."""
        self._refused: set[str] = set()
        """The ssds and nodes of which Fluxion has refused what it was told last, by their paths."""
        self._changed_rabbits: set[str] = set()
        """The rabbits whose flash has changed."""
        self._changed_hosts: set[str] = set()
        """The hosts whose tags have changed."""
        self._news = asyncio.Event()

    def set_rabbit(
        self,
        rabbit: str,
        *,
        up: bool,
        state: str = "",
        capacity_gib: int | None = None,
        labels: Iterable[str] | None = None,
    ) -> None:
        """Set whether a rabbit's flash may be given to jobs, and how much it has.

        Fluxion has no words for its `state` and its `labels`.
        """
        self._flash_states[rabbit] = (up, capacity_gib)
        self._mark_changed({rabbit})

    def set_storage(
        self, name: str, bytes_by_rabbit: Mapping[str, int] | None, job: JobId | None = None
    ) -> None:
        """Set what storage there is of a name; None if there is none any more.

        While `job` has its resources, its R counts for the storage.
        """
        is_allocated = job is not None and self._holds_resources(job)
        storage = (
            None
            if bytes_by_rabbit is None
            else ExistingStorage(bytes_by_rabbit=bytes_by_rabbit, job=job)
        )
        self._update_external(self._storage_accounts.set(name, storage, allocated=is_allocated))

    def set_badrabbit_nodes(self, source: str, hosts: Iterable[str]) -> None:
        """Set which nodes one source has tagged, in place of those that it had before."""
        before, now = self._hosts_by_source.get(source, frozenset()), frozenset(hosts)
        self._hosts_by_source[source] = now
        self._changed_hosts |= before ^ now
        self._news.set()

    def job_changed(self, job: int) -> None:
        """Look again whether a job has its resources."""
        self._update_external(
            self._storage_accounts.set_allocated(JobId(job), allocated=self._holds_resources(job))
        )

    async def run(self) -> None:
        """Tell Fluxion what it is to do until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow_reloads())
            tasks.create_task(self._send_when_changed())

    async def _follow_reloads(self) -> None:
        """Have all told again to a Fluxion that was loaded anew: it has the graph as it was."""
        while True:
            try:
                stream = self._handle.stream(f"{_SERVICE}.notify")
                async with aclosing(stream) as answers:  # type: ignore[type-var]
                    has_answered = False
                    async for _ in answers:
                        if not has_answered:
                            self._resend_all()
                        has_answered = True
            except RpcError as error:
                log.info("Fluxion is not there", reason=str(error))
                if error.errnum == errno.ENOSYS:
                    await asyncio.sleep(_ABSENT_RETRY_DELAY)
            await asyncio.sleep(_RETRY_DELAY)

    def _resend_all(self) -> None:
        self._sent.clear()
        self._changed_rabbits.update(self._flash_states)
        self._changed_hosts.update(self._graph.path_by_host)
        self._news.set()

    async def _send_when_changed(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._send_changes()
            except RpcError as error:
                is_absent = error.errnum == errno.ENOSYS
                log.warning("Fluxion was not told of flash", reason=str(error))
                await asyncio.sleep(_ABSENT_RETRY_DELAY if is_absent else _RETRY_DELAY)
                self._news.set()

    def _update_external(self, external_gib: Mapping[str, int]) -> None:
        self._external_gib.update(external_gib)
        self._mark_changed(external_gib)

    def _mark_changed(self, rabbits: Iterable[str]) -> None:
        self._changed_rabbits.update(rabbits)
        self._news.set()

    async def _send_changes(self) -> None:
        while self._changed_rabbits:
            rabbit = self._changed_rabbits.pop()
            try:
                for path, up in self._ssd_changes(rabbit):
                    status = "up" if up else "down"
                    request = {"resource_path": path, "status": status}
                    await self._set(path, up, "set_status", request)
            except BaseException:
                self._changed_rabbits.add(rabbit)
                raise
        tagged_hosts = frozenset[str]().union(*self._hosts_by_source.values())
        while self._changed_hosts:
            host = self._changed_hosts.pop()
            try:
                await self._tag(host, tagged=host in tagged_hosts)
            except BaseException:
                self._changed_hosts.add(host)
                raise

    def _ssd_changes(self, rabbit: str) -> Iterator[tuple[str, bool]]:
        """Return the ssds of a rabbit that are to be told otherwise, those first that go down."""
        ssds = self._graph.ssds_by_rabbit.get(rabbit)
        if ssds is None:
            return
        up, capacity_gib = self._flash_states.get(rabbit, (False, None))
        up_count = ssds.usable_count(capacity_gib, self._external_gib.get(rabbit, 0)) if up else 0
        # The first ones go down first: Fluxion gives jobs the last ones.
        down_count = len(ssds.paths) - up_count
        up_by_path = {path: position >= down_count for position, path in enumerate(ssds.paths)}
        changed_paths = [path for path in up_by_path if self._sent.get(path) != up_by_path[path]]
        for path in sorted(changed_paths, key=lambda path: up_by_path[path]):
            yield path, up_by_path[path]

    async def _tag(self, host: str, *, tagged: bool) -> None:
        path = self._graph.path_by_host.get(host)
        if path is None or self._sent.get(path) == tagged:
            return
        if tagged:
            request = {"sp_resource_path": [path], "sp_keyval": f"{TAG}={_TAG_VALUE}"}
            await self._set(path, tagged, "set_property", request)
        else:
            request = {"resource_path": [path], "key": TAG}
            await self._set(path, tagged, "remove_property", request)

    async def _set(self, path: str, value: bool, method: str, request: Payload) -> None:
        """Have Fluxion set one thing, or say that it refuses it. Raises RpcError otherwise."""
        try:
            await self._handle.rpc(f"{_SERVICE}.{method}", request)
        except RpcError as error:
            if error.errnum not in _REFUSAL_ERRNUMS:
                raise
            if path not in self._refused:
                log.error("Fluxion has refused", method=method, path=path, reason=str(error))
            self._refused.add(path)
            return
        self._refused.discard(path)
        self._sent[path] = value
