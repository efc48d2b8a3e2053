"""Asking containers to end, while PostRun waits for them (decided in `dws.containers.shutdowns`).

Beside the reconciles of Workflows: a container that does not answer delays none of them.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

import aiohttp

from warren.base import log
from warren.base.objects import Key, Object, key_of
from warren.controllers.users import user_getter
from warren.dws import children, containerauth, kinds
from warren.dws.containers import containerprofiles, shutdowns
from warren.dws.containers import ports as port_managers
from warren.dws.containers.ports import NnfPortManager
from warren.dws.containers.shutdowns import ShutdownRequest
from warren.dws.faults import Fault
from warren.dws.objects.decoding import Malformed, read
from warren.dws.objects.workflows import Workflow
from warren.dws.pods.batchjobs import BatchJob
from warren.dws.workflow import containersteps
from warren.kube.client import Client, NotFound
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler

_TIMEOUT: Final = 1.0
"""Seconds that a container has to answer."""

_MAX_CONCURRENT: Final = 16
"""Containers of one Workflow that are asked at a time."""


class ShutdownClient(Protocol):
    """The way to containers."""

    async def request_shutdowns(
        self, requests: Sequence[ShutdownRequest], ca_certificate: str, token: str | None
    ) -> None:
        """Ask containers to end; `ca_certificate` is the certificate that vouches for theirs.

        Failures are logged, and no more.
        """
        ...


class HttpsShutdownClient:
    """A `ShutdownClient` over HTTPS."""

    def __init__(self, seconds: float = _TIMEOUT, max_concurrent: int = _MAX_CONCURRENT) -> None:
        self._timeout = aiohttp.ClientTimeout(total=seconds)
        self._max_concurrent = max_concurrent

    async def request_shutdowns(
        self, requests: Sequence[ShutdownRequest], ca_certificate: str, token: str | None
    ) -> None:
        # As strict as other users of such certificates, which trust one that signed itself.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=ca_certificate)
        except (ssl.SSLError, ValueError) as error:
            log.warning(
                "no certificate in the Secret", secret=containerauth.TLS_SECRET, reason=str(error)
            )
            return
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ssl=context, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=shutdowns.headers(token),
                timeout=self._timeout,
            ) as session,
            asyncio.TaskGroup() as tasks,
        ):
            remaining = iter(requests)
            for _ in range(min(self._max_concurrent, len(requests))):
                tasks.create_task(self._post_all(session, remaining))

    async def _post_all(
        self, session: aiohttp.ClientSession, remaining: Iterator[ShutdownRequest]
    ) -> None:
        for each in remaining:
            await self._post(session, each)

    async def _post(self, session: aiohttp.ClientSession, request: ShutdownRequest) -> None:
        try:
            # What it answers is not read: any application may be there.
            async with session.post(
                shutdowns.url(request),
                json=shutdowns.BODY,
                server_hostname=request.rabbit,
                allow_redirects=False,
            ) as answer:
                answer_text = str(answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            answer_text = repr(error)  # that of a timeout has no words of its own
        log.debug("asked to end", rabbit=request.rabbit, port=request.port, answer=answer_text)


class ShutdownController:
    """Asks containers to end: those of each Workflow in PostRun that waits for their end."""

    def __init__(
        self, client: Client, informers: Informers, shutdown_client: ShutdownClient | None = None
    ) -> None:
        self._client = client
        self._informers = informers
        self._shutdown_client = shutdown_client or HttpsShutdownClient()
        self._next_index: dict[Key, int] = {}
        """Where the next turn begins, of Workflows with more containers than one turn has."""
        workflows = informers.of(kinds.WORKFLOW)
        self.reconciler: Reconciler[Key] = Reconciler(
            "shutdown", self.reconcile, user=user_getter(workflows)
        )
        workflows.listen(self._workflow_changed)
        for kind in (kinds.BATCH_JOB, kinds.CONTAINER_PROFILE, kinds.PORT_MANAGER, kinds.NODE):
            informers.of(kind)

    def _workflow_changed(self, obj: Object) -> None:
        status = obj.get("status") or {}
        is_waiting = status.get("state") == "PostRun" and not status.get("ready")
        if is_waiting and containersteps.may_have_containers(obj["spec"].get("dwDirectives") or ()):
            self.reconciler.add(key_of(obj))

    async def reconcile(self, key: Key) -> float | None:
        """Ask the containers of a Workflow to end; return when to ask again."""
        raw = self._informers.of(kinds.WORKFLOW).get(key)
        workflow = read(raw, Workflow) if raw is not None else None
        requests = self._requests(workflow) if workflow is not None else []
        if workflow is None or not requests:
            self._next_index.pop(key, None)
            return None
        ca_certificate = await self._read_secret(
            Key(key.namespace, containerauth.TLS_SECRET), containerauth.certificate_of
        )
        if ca_certificate is None:
            return None  # without an admin's certificate no container has one to show
        token_reference = workflow.status.workflow_token
        token = (
            await self._read_secret(token_reference.key, containerauth.token_of)
            if token_reference
            else None
        )
        batch, self._next_index[key] = shutdowns.next_batch(requests, self._next_index.get(key, 0))
        await self._shutdown_client.request_shutdowns(batch, ca_certificate, token)
        return shutdowns.RETRY_DELAY

    def _requests(self, workflow: Workflow) -> list[ShutdownRequest]:
        index = containersteps.container_index(workflow.spec.dw_directives)
        if index is None:
            return []
        profile_key = Key(workflow.metadata.namespace, children.name(workflow, index))
        pinned_profile = self._informers.of(kinds.CONTAINER_PROFILE).get(profile_key)
        manager = self._informers.of(kinds.PORT_MANAGER).get(port_managers.MANAGER_KEY)
        if pinned_profile is None or manager is None:
            return []
        try:
            profile = containerprofiles.decode(pinned_profile)
            assigned_ports = port_managers.assigned_ports(
                read(manager, NnfPortManager), workflow, profile.port_count
            )
        except (Fault, Malformed):  # told by the Workflow's own reconciles
            return []
        raw_jobs = self._informers.of(kinds.BATCH_JOB).by_index(
            "workflow", str(workflow.metadata.key)
        )
        jobs = [read(obj, BatchJob) for obj in raw_jobs]
        nodes = self._informers.of(kinds.NODE)
        return shutdowns.decide(
            workflow, profile, jobs, assigned_ports, lambda name: nodes.get(Key("", name))
        )

    async def _read_secret(
        self, key: Key, read_value: Callable[[Object], str | None]
    ) -> str | None:
        try:
            return read_value(await self._client.get(kinds.SECRET, key))
        except NotFound:
            return None
        except ValueError as error:  # an admin has written what is no text
            log.warning("damaged Secret", secret=key.name, reason=str(error))
            return None
