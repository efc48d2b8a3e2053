"""`warren conductor`."""

import os
from pathlib import Path

import click

from warren.base.errors import UserMistake
from warren.cli.cluster.audit import audit
from warren.cli.common import listening, run, socket_of, statedir_option
from warren.cli.lazy import Group
from warren.daemons.statedir import StateDir

_NO_KUBECONFIG = 3
"""The exit code after which systemd need not start it again: an admin has to do something."""


@click.group(cls=Group, invoke_without_command=True)
@statedir_option
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
              help="The cluster (default: KUBECONFIG, the instance's rabbit.kubeconfig, the pod's, "
              "or ~/.kube/config).")  # fmt: skip
@click.option("--context", metavar="NAME", help="The kubeconfig's context to use.")
@click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Serve /metrics, /healthz and /readyz there (default: nowhere).")  # fmt: skip
@click.option("--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="On which address; without authentication.")  # fmt: skip
@click.pass_context
def conductor(
    context_: click.Context,
    state: StateDir,
    kubeconfig: Path | None,
    context: str | None,
    metrics_port: int | None,
    metrics_address: str,
) -> None:
    """Lead the Workflows of an instance's jobs, as its owner, until stopped.

    The instance is that of FLUX_URI, or of a state directory (`warren up --separate
    --no-conductor`). The cluster has the kinds of DWS (deploy/crds), and lets this user do what the
    role dws-workload-manager allows (deploy/rbac).
    """
    if context_.invoked_subcommand is not None:
        return
    from warren.base import systemd
    from warren.daemons import conductor as conductors
    from warren.daemons import logs
    from warren.kube import kubeconfig as kubeconfigs

    place = socket_of(state)
    if kubeconfig is None and not os.environ.get("KUBECONFIG"):
        named = run(conductors.configured(place)).kubeconfig
        kubeconfig = Path(named) if named else None
    try:
        access = kubeconfigs.find(kubeconfig, context)
    except UserMistake as mistake:
        click.echo(f"warren: {mistake}", err=True)
        raise click.exceptions.Exit(_NO_KUBECONFIG) from mistake
    exposed = None
    if metrics_port is not None:
        exposed = listening("--metrics-port", metrics_address, metrics_port)
    logs.configure()

    def ready() -> None:
        systemd.notify("READY=1")
        click.echo(f"leading the jobs of {place}")

    settings = conductors.Settings(access=access, instance=place, exposed=exposed)
    run(conductors.run_until_stopped(settings, ready))
    click.echo("the conductor has stopped")


conductor.add_command(audit)
