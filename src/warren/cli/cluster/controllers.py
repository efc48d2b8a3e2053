"""`warren controllers`: the storage controllers alone, for any Kubernetes cluster."""

import socket
import uuid
from pathlib import Path

import click

from warren.cli.common import open_port, run


@click.command()
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
              help="The cluster (default: KUBECONFIG, the pod's, or ~/.kube/config).")  # fmt: skip
@click.option("--context", metavar="NAME", help="The kubeconfig's context to use.")
@click.option("--mount-prefix", default="/mnt/nnf", show_default=True, metavar="PATH",
              help="Where jobs find their storage on compute nodes.")  # fmt: skip
@click.option("--leader-elect/--no-leader-elect", default=True, show_default=True,
              help="Work only while leading, by a Lease: there may be replicas.")  # fmt: skip
@click.option("--identity", metavar="NAME",
              help="Its name in the Lease (default: the host and a new UUID).")  # fmt: skip
@click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Serve /metrics, /healthz and /readyz there (default: nowhere).")  # fmt: skip
@click.option("--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="The address to serve them on, without authentication.")  # fmt: skip
@click.option("--webhook-port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Answer there what the API asks about Workflows (deploy/webhooks).")  # fmt: skip
@click.option("--webhook-cert", type=click.Path(path_type=Path, exists=True), metavar="FILE",
              help="The webhook's certificate, as PEM.")  # fmt: skip
@click.option("--webhook-key", type=click.Path(path_type=Path, exists=True), metavar="FILE",
              help="The key of that certificate.")  # fmt: skip
def controllers(
    kubeconfig: Path | None,
    context: str | None,
    mount_prefix: str,
    leader_elect: bool,
    identity: str | None,
    metrics_port: int | None,
    metrics_address: str,
    webhook_port: int | None,
    webhook_cert: Path | None,
    webhook_key: Path | None,
) -> None:
    """Run the storage controllers, for any Kubernetes cluster, until stopped.

    The cluster has the kinds of DWS and NNF (deploy/crds), and lets this user do what
    the role warren-controllers allows (deploy/rbac).
    """
    from warren.daemons import controllers as controllers_daemon
    from warren.daemons import logs
    from warren.kube import kubeconfig as kubeconfigs

    webhook = None
    if webhook_port is not None:
        if webhook_cert is None or webhook_key is None:
            raise click.UsageError("--webhook-port needs --webhook-cert and --webhook-key.")
        listener = open_port("--webhook-port", "", webhook_port)
        webhook = controllers_daemon.Webhook(
            listener=listener, certificate=webhook_cert, key=webhook_key
        )
    metrics_listener = None
    if metrics_port is not None:
        metrics_listener = open_port("--metrics-port", metrics_address, metrics_port)
    logs.configure()
    lease_identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
    settings = controllers_daemon.Settings(
        access=kubeconfigs.find(kubeconfig, context),
        mount_prefix=mount_prefix,
        identity=lease_identity if leader_elect else None,
        metrics_socket=metrics_listener,
        webhook=webhook,
    )
    run(controllers_daemon.run_until_stopped(settings))
