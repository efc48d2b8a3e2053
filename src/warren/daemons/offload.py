"""The service that running jobs ask for copies: on one machine, and in any cluster (ADR 092)."""

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from warren.base import systemd
from warren.controllers.offload import ApiPath, Offload
from warren.daemons import apiserver
from warren.daemons.foreground import until_stopped
from warren.daemons.offloadserver import OffloadServer
from warren.daemons.rungroup import RunGroup
from warren.daemons.statedir import StateDir
from warren.dws import kinds
from warren.dws.offload import copyservice
from warren.dws.offload.copyservice import OffloadService
from warren.journal import files
from warren.kube import http, serving, versions, webhook
from warren.kube.client import Client
from warren.kube.connections import ConnectionLimits
from warren.kube.informer import Informers
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.perform import perform
from warren.kube.server.access import tls

_VERSIONS_TIMEOUT: Final = 60.0
"""Seconds for which a server that refuses all requests is asked for its API versions."""

_MOST_CONNECTIONS: Final = 4096
_MOST_PER_ADDRESS: Final = 512
"""Connections at a time from one address: where nodes are machines, their users are not known."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the service is reached."""

    listener: socket.socket
    tls: ssl.SSLContext
    service: OffloadService
    api_path: ApiPath = lambda node, path: path
    """Returns the path by which the API knows a path of a task on a node."""
    make_limits: Callable[[], ConnectionLimits] = ConnectionLimits
    """Makes the limits of its clients' connections."""

    async def announce(self, client: Client) -> None:
        """Say in the API where it is, for jobs that are to come."""
        await perform(client, [copyservice.announce(self.service)])

    async def serve(self, client: Client, informers: Informers) -> None:
        """Serve until cancelled, with informers that run."""
        server = OffloadServer(Offload(client, informers, self.api_path))
        limits = self.make_limits()
        await serving.serve(
            server.app(),
            self.listener,
            self.tls,
            limits=limits,
            idle_timeout=serving.CLIENT_TIMEOUT,
        )


def open_endpoint(state_dir: StateDir) -> Endpoint:
    """Take a port of this machine, the last one if it is free; write it and the CA certificate.

    The keys are those of the API server, which are there.
    """
    listener = _listen(state_dir.offload_port_file)
    port = listener.getsockname()[1]
    files.replace(state_dir.offload_port_file, str(port).encode())
    files.replace(state_dir.offload_certificate_file, tls.authority(state_dir.pki))
    # Tasks of all users read it, who pass through the directory.
    state_dir.offload_certificate_file.chmod(0o644)

    def api_path(node: str, path: str) -> str:
        # Without mount namespaces each node has paths of its own.
        root = f"{state_dir.nodes}/{node}/root"
        return path.removeprefix(root) if path.startswith(f"{root}/") else path

    return Endpoint(
        listener=listener,
        tls=serving.tls_server(state_dir.pki / "server.crt", state_dir.pki / "server.key"),
        service=OffloadService(
            host=apiserver.HOST, port=port, certificate=str(state_dir.offload_certificate_file)
        ),
        api_path=api_path,
    )


def _listen(port_file: Path) -> socket.socket:
    with suppress(OSError, ValueError):
        # Tasks that outlived the last start know it.
        return socket.create_server((apiserver.HOST, int(port_file.read_text())))
    return socket.create_server((apiserver.HOST, 0))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the service's process."""

    access: ClusterAccess
    endpoint: Endpoint


def cluster_settings(
    access: ClusterAccess,
    listener: socket.socket,
    certificate: Path,
    key: Path,
    service: OffloadService,
) -> Settings:
    """Return the settings for any cluster. The certificate may be replaced at any time."""
    endpoint = Endpoint(
        listener=listener,
        tls=webhook.rotating_context(certificate, key),
        service=service,
        make_limits=lambda: ConnectionLimits(
            per_user=_MOST_PER_ADDRESS, total=_MOST_CONNECTIONS, interval=0.0, by_address=True
        ),
    )
    return Settings(access=access, endpoint=endpoint)


async def run(settings: Settings, on_ready: Callable[[], None] = lambda: None) -> None:
    """Serve until cancelled. Raises UnsupportedVersions where the cluster lacks our kinds."""
    async with http.connect(settings.access, component="copy-offload") as unversioned:
        client = unversioned.with_versions(
            await versions.choose_when_allowed(
                unversioned, kinds.VERSIONS, seconds=_VERSIONS_TIMEOUT
            )
        )
        informers = Informers(client)
        endpoint = settings.endpoint

        async def report_ready() -> None:
            await endpoint.announce(client)
            systemd.notify("READY=1")
            on_ready()

        await RunGroup(
            runnables={
                "informers": informers.run,
                "copy offload": lambda: endpoint.serve(client, informers),
            },
            wait_ready=report_ready,
        ).run()


async def run_until_stopped(settings: Settings, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT."""
    await until_stopped(run(settings, on_ready))
