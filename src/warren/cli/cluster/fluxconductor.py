"""`warren conductor flux`: in place of flux-coral2's service."""

import os
from pathlib import Path

import click

from warren.cli.cluster.runconductor import cluster_options, open_metrics_socket, run_conductor
from warren.cli.common import socket_at

_SYSTEM_BROKER = "local:///run/flux/local"
"""The broker of a system that packages have installed."""


@click.command("flux")
@cluster_options
@click.option("-m", "--min-allocation-size", type=click.IntRange(min=0), metavar="GIB",
              help="Minimum size of one allocation (default: 4).")  # fmt: skip
@click.option("--disable-fluxion", is_flag=True,
              help="Leave resources of jobs alone: the scheduler gives them no flash.")  # fmt: skip
@click.option("--drain-queues", multiple=True, metavar="QUEUE",
              help="Drain nodes of these queues alone, when they lose their rabbit.")  # fmt: skip
@click.option("-w", "--watch-interval", type=float, hidden=True)
@click.option("--retry-delay", type=float, hidden=True)
@click.option("-v", "--verbose", count=True, hidden=True)
def flux(
    kubeconfig: Path | None,
    context: str | None,
    metrics_port: int | None,
    metrics_address: str,
    min_allocation_size: int | None,
    disable_fluxion: bool,
    drain_queues: tuple[str, ...],
    watch_interval: float | None,
    retry_delay: float | None,
    verbose: int,
) -> None:
    """Create and advance the Workflows of the jobs of a Flux broker, as its owner.

    Runs until it is stopped. The broker is that of FLUX_URI, or that of the system
    (/run/flux/local), and has the plugin dws-jobtap loaded: that of Warren or of flux-coral2. Table
    `rabbit` of its configuration is that of flux-coral2. Options of flux-coral2 that are not shown
    here are accepted, and have no effect.
    """
    from warren.base.bytesize import GIB
    from warren.daemons import fluxconductor

    min_gib = (
        fluxconductor.MIN_ALLOCATION_GIB if min_allocation_size is None else min_allocation_size
    )
    instance_connector = fluxconductor.broker_connector(
        min_allocation=min_gib * GIB, use_fluxion=not disable_fluxion, drain_queues=drain_queues
    )
    remedy = "run the conductor on the node of the broker of rank 0"
    broker_socket = socket_at(os.environ.get("FLUX_URI") or _SYSTEM_BROKER, remedy)
    run_conductor(
        broker_socket,
        instance_connector,
        kubeconfig,
        context,
        open_metrics_socket(metrics_port, metrics_address),
    )
