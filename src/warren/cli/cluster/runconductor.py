"""What `warren conductor` and `warren conductor flux` have in common."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from warren.base.errors import UserMistake
from warren.cli.common import open_port, run

if TYPE_CHECKING:
    from warren.daemons.conductor import InstanceConnector

_NO_KUBECONFIG = 3
"""The exit code after which systemd need not start it again: an admin has to do something."""

Command = TypeVar("Command", bound=Callable[..., object])

_OPTIONS = (
    click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
                 help="The cluster (default: KUBECONFIG, the instance's rabbit.kubeconfig, the "
                 "pod's, or ~/.kube/config)."),
    click.option("--context", metavar="NAME", help="The kubeconfig's context to use."),
    click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="PORT",
                 help="Serve /metrics, /healthz and /readyz there (default: nowhere)."),
    click.option("--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
                 help="The address to serve them on, without authentication."),
)  # fmt: skip


def cluster_options(command: Command) -> Command:
    """Give a command the options for its cluster and its metrics."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def open_metrics_socket(port: int | None, address: str) -> socket.socket | None:
    """Listen where metrics are served, if anywhere."""
    return None if port is None else open_port("--metrics-port", address, port)


def run_conductor(
    socket_path: Path,
    instance_connector: "InstanceConnector",
    kubeconfig: Path | None,
    context: str | None,
    metrics_socket: socket.socket | None,
) -> None:
    """Run the conductor of the instance at a socket until stopped.

    Exits with 3 where there is no kubeconfig.
    """
    from warren.base import systemd
    from warren.daemons import conductor as conductors
    from warren.daemons import logs
    from warren.kube import kubeconfig as kubeconfigs

    logs.configure()
    if kubeconfig is None and not os.environ.get("KUBECONFIG"):
        configured_path = run(
            conductors.read_rabbit_table(socket_path, instance_connector)
        ).kubeconfig
        kubeconfig = Path(configured_path) if configured_path else None
    try:
        access = kubeconfigs.find(kubeconfig, context)
    except UserMistake as mistake:
        click.echo(f"warren: {mistake}", err=True)
        raise click.exceptions.Exit(_NO_KUBECONFIG) from mistake

    def on_ready() -> None:
        systemd.notify("READY=1")
        click.echo(f"the conductor of {socket_path} is ready")

    settings = conductors.Settings(
        access=access,
        instance_socket=socket_path,
        instance_connector=instance_connector,
        metrics_socket=metrics_socket,
    )
    run(conductors.run_until_stopped(settings, on_ready))
    click.echo("the conductor has stopped")
