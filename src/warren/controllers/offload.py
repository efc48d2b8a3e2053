"""Copies that running jobs ask for: their requests, as writes to the API (ADR 092).

What a request is worth is decided in `dws.offloadtokens`, `dws.offload.requests` and
`dws.offload.movements`. Nothing is kept here: all that is known of copies stands in their objects.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final
from weakref import WeakSet, WeakValueDictionary

import msgspec

from warren.base.objects import Change, Key, Object, Remove, key_of
from warren.dws import containerauth, kinds, labels, offloadtokens
from warren.dws.objects.decoding import read, read_other
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.workflows import State, Workflow
from warren.dws.offload import copyservice, movements, requests
from warren.dws.offload.requests import (
    FORBIDDEN,
    NOT_FOUND,
    TOO_MANY,
    UNAUTHORIZED,
    CopyRequest,
    Refusal,
)
from warren.kube.client import Client, NotFound
from warren.kube.informer import Informers
from warren.kube.perform import perform

MAX_REQUESTS: Final = 256
"""Requests of one job that are being answered: those that wait for the end of a copy, mostly."""

_POLL_SECONDS: Final = 1.0
"""Seconds after which it is seen that a client waits no more."""
_POLLS_PER_READ: Final = 15
"""So many later a copy is asked for also without an event of it: a watch may be behind."""

ApiPath = Callable[[str, str], str]
"""Returns the path by which the API knows a path of a task on a node."""


class _Job(msgspec.Struct, weakref=True):
    """The requests of one job."""

    open_requests: int = 0
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """By which its copies are counted for one request after the other."""


class Offload:
    """Answers the requests of all jobs."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        api_path: ApiPath = lambda node, path: path,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        self._client = client
        self._api_path = api_path
        self._max_requests = max_requests
        # Each is there for as long as a request has it.
        self._jobs: WeakValueDictionary[str, _Job] = WeakValueDictionary()
        self._change_events: WeakValueDictionary[Key, WeakSet[asyncio.Event]] = (
            WeakValueDictionary()
        )
        informers.of(kinds.NNF_DATA_MOVEMENT).listen(self._movement_changed)

    @asynccontextmanager
    async def authenticate(self, authorization: str) -> AsyncIterator[Workflow]:
        """Find out whose request it is, by its header, and answer it in this block.

        Raises Refusal.
        """
        workflow = await self._check_token(authorization)
        with self._count_request(workflow):
            yield workflow

    async def _check_token(self, authorization: str) -> Workflow:
        token = offloadtokens.of_header(authorization)
        key = offloadtokens.workflow_key_of(token) if token is not None else None
        # In the same words whatever is wrong: they tell nothing of which Workflows there are.
        if token is None or key is None:
            raise Refusal(UNAUTHORIZED, "unauthorized")
        try:
            workflow = read(await self._client.get(kinds.WORKFLOW, key), Workflow)
            name = containerauth.key_name(workflow)
            secret = await self._client.get(kinds.SECRET, Key(key.namespace, name))
        except NotFound:
            raise Refusal(UNAUTHORIZED, "unauthorized") from None
        if not offloadtokens.is_valid(token, workflow, secret):
            raise Refusal(UNAUTHORIZED, "unauthorized")
        if workflow.spec.desired_state is State.TEARDOWN or workflow.metadata.deleting:
            raise Refusal(UNAUTHORIZED, "the token ended with its job")
        if not copyservice.is_enabled(workflow):
            raise Refusal(
                FORBIDDEN, f"the job's directives do not say requires={copyservice.REQUIRES_WORD}"
            )
        return workflow

    @contextmanager
    def _count_request(self, workflow: Workflow) -> Iterator[None]:
        job = self._job(workflow)
        if job.open_requests >= self._max_requests:
            raise Refusal(TOO_MANY, f"{self._max_requests} requests of this job are being answered")
        job.open_requests += 1
        try:
            yield
        finally:
            job.open_requests -= 1

    def _job(self, workflow: Workflow) -> _Job:
        return self._jobs.setdefault(workflow.metadata.uid, _Job())

    async def create(self, workflow: Workflow, body: bytes) -> str:
        """Have a copy made; return its name. Raises Refusal."""
        parsed = requests.parse(body)
        movements.check_running(workflow)
        request = msgspec.structs.replace(
            parsed,
            source_path=self._api_path(parsed.compute_name, parsed.source_path),
            destination_path=self._api_path(parsed.compute_name, parsed.destination_path),
        )
        movement = await self._new_movement(workflow, request)
        job = self._job(workflow)
        async with job.lock:
            existing = await self._list_movements(workflow)
            movements.check_below_limit(existing)
            kind = kinds.NNF_DATA_MOVEMENT
            removals = [
                Remove(kind=kind, key=key) for key in movements.movements_to_forget(existing)
            ]
            await perform(self._client, removals)
            await self._client.create(kind, movement)
        await self._check_still_running(workflow, key_of(movement))
        return movements.name_of(movement)

    async def _new_movement(self, workflow: Workflow, request: CopyRequest) -> Object:
        owner_labels = labels.of_workflow(workflow)
        mounts, node = kinds.CLIENT_MOUNT, request.compute_name
        on_compute = (await self._client.list(mounts, node, owner_labels)).items
        file_systems = (await self._client.list(kinds.LUSTRE_FILE_SYSTEM)).items
        ends = requests.find_ends(
            request, on_compute, [read_other(obj, LustreFileSystem) for obj in file_systems]
        )
        namespace, selector = movements.rabbit_mounts_selector(workflow, ends)
        on_rabbits = (await self._client.list(mounts, namespace, selector)).items
        profiles = (await self._client.list(kinds.COPY_PROFILE, kinds.PROFILES_NAMESPACE)).items
        profile_by_name = {obj["metadata"]["name"]: obj for obj in profiles}
        suffix = secrets.token_hex(5)
        return movements.movement(request, ends, workflow, on_rabbits, profile_by_name, suffix)

    async def _check_still_running(self, workflow: Workflow, movement: Key) -> None:
        """Raise Refusal, and take a copy back, where its job has ended before it was written.

        PostRun looks for copies once it is asked for. If that is still to come, it finds this one.
        """
        try:
            workflow_now = read(
                await self._client.get(kinds.WORKFLOW, workflow.metadata.key), Workflow
            )
            movements.check_running(workflow_now)
        except BaseException:
            removal = Remove(kind=kinds.NNF_DATA_MOVEMENT, key=movement)
            with suppress(NotFound):
                await asyncio.shield(self._client.delete(removal))
            raise

    async def running_names(self, workflow: Workflow) -> list[str]:
        """Return the names of a job's copies that go on."""
        requested = await self._list_movements(workflow)
        return sorted(
            movements.name_of(each) for each in requested if not movements.is_finished(each)
        )

    async def _list_movements(self, workflow: Workflow) -> list[Object]:
        owner_labels = {**labels.of_workflow(workflow), labels.TEARDOWN_STATE: State.POST_RUN.value}
        objects = (await self._client.list(kinds.NNF_DATA_MOVEMENT, labels=owner_labels)).items
        return [each for each in objects if movements.belongs_to(each, workflow)]

    async def cancel(self, workflow: Workflow, name: str) -> None:
        """Have a copy ended; one that has ended stays as it is. Raises Refusal."""
        try:
            movement = await self._read_movement(workflow, name)
        except Refusal as refusal:
            raise Refusal(refusal.status, f"unable to cancel request: {refusal}") from None
        if not movements.is_finished(movement):
            key, patch = key_of(movement), {"spec": {"cancel": True}}
            change = Change(kind=kinds.NNF_DATA_MOVEMENT, key=key, patch=patch)
            await perform(self._client, [change])

    async def status(
        self,
        workflow: Workflow,
        name: str,
        wait_seconds: float | None = 0.0,
        is_connected: Callable[[], bool] = lambda: True,
    ) -> Object:
        """Return the NnfDataMovement of a copy: once it has ended, or after `wait_seconds`.

        With None it is waited for without a limit. `is_connected` tells whether its client is still
        there. Raises Refusal.
        """
        movement = await self._read_movement(workflow, name)
        key = key_of(movement)
        changed = asyncio.Event()
        events = self._change_events.setdefault(key, WeakSet())
        events.add(changed)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                # Asked for anew: it may have ended before its events were listened for.
                while is_connected() and not movements.is_finished(
                    movement := await self._read_movement(workflow, name)
                ):
                    await _wait_changed(changed, is_connected)
        return movement

    def _movement_changed(self, obj: Object) -> None:
        for each in self._change_events.get(key_of(obj), ()):
            each.set()

    async def _read_movement(self, workflow: Workflow, name: str) -> Object:
        key = movements.key_by_name(name)
        if key is None:
            raise Refusal(NOT_FOUND, "request not found")
        try:
            movement = await self._client.get(kinds.NNF_DATA_MOVEMENT, key)
        except NotFound:
            raise Refusal(NOT_FOUND, "request not found") from None
        # Not even whether there is one of another job.
        if not movements.belongs_to(movement, workflow):
            raise Refusal(NOT_FOUND, "request not found")
        return movement


async def _wait_changed(changed: asyncio.Event, is_connected: Callable[[], bool]) -> None:
    """Return when something has changed, or its client has gone, or after a while."""
    for _ in range(_POLLS_PER_READ):
        if changed.is_set() or not is_connected():
            break
        with suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await changed.wait()
    changed.clear()
