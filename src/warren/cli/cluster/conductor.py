"""`warren conductor`."""

from pathlib import Path

import click

from warren.cli.cluster.audit import audit
from warren.cli.cluster.fluxconductor import flux
from warren.cli.cluster.runconductor import cluster_options, open_metrics_socket, run_conductor
from warren.cli.commandgroups import Group
from warren.cli.common import socket_of, statedir_option
from warren.daemons.statedir import StateDir


@click.group(cls=Group, invoke_without_command=True)
@statedir_option
@cluster_options
@click.pass_context
def conductor(
    ctx: click.Context,
    statedir: StateDir,
    kubeconfig: Path | None,
    context: str | None,
    metrics_port: int | None,
    metrics_address: str,
) -> None:
    """Create and advance the Workflows of an instance's jobs, as its owner, until stopped.

    The instance is that of FLUX_URI, or of a state directory (`warren up --separate
    --no-conductor`). The cluster has the kinds of DWS (deploy/crds), and lets this user do what the
    role dws-workload-manager allows (deploy/rbac).
    """
    if ctx.invoked_subcommand is None:
        from warren.daemons.conductor import EMBEDDED_CONNECTOR

        metrics_socket = open_metrics_socket(metrics_port, metrics_address)
        run_conductor(socket_of(statedir), EMBEDDED_CONNECTOR, kubeconfig, context, metrics_socket)


conductor.add_command(audit)
conductor.add_command(flux)
