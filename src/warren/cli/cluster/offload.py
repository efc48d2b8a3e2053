"""`warren copy-offload`."""

import socket
from pathlib import Path

import click

from warren.cli.common import open_port, run


@click.command("copy-offload")
@click.option("--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
              help="The cluster (default: KUBECONFIG, the pod's, or ~/.kube/config).")  # fmt: skip
@click.option("--context", metavar="NAME", help="The kubeconfig's context to use.")
@click.option("--port", type=click.IntRange(1, 65535), default=4000, show_default=True,
              metavar="PORT", help="Where running jobs ask for copies.")  # fmt: skip
@click.option("--address", default="", metavar="ADDRESS",
              help="On which address (default: all of the machine).")  # fmt: skip
@click.option("--cert", type=click.Path(path_type=Path, exists=True), required=True,
              metavar="FILE", help="The certificate of the service, as PEM.")  # fmt: skip
@click.option("--key", type=click.Path(path_type=Path, exists=True), required=True,
              metavar="FILE", help="The key of that certificate.")  # fmt: skip
@click.option("--name", metavar="HOST",
              help="Its name for compute nodes (default: that of the machine).")  # fmt: skip
@click.option("--node-cert", default="/etc/nnf-dm-usercontainer/cert.pem", show_default=True,
              metavar="PATH",
              help="Where compute nodes have the certificate that vouches for it.")  # fmt: skip
def copy_offload(
    kubeconfig: Path | None,
    context: str | None,
    port: int,
    address: str,
    cert: Path,
    key: Path,
    name: str | None,
    node_cert: str,
) -> None:
    """Make the copies that running jobs ask for, in any Kubernetes cluster, until stopped.

    The cluster has the kinds of DWS and NNF (deploy/crds), and lets this user do what
    the role warren-copy-offload allows (deploy/rbac).
    """
    from warren.daemons import logs, offload
    from warren.dws.offload.copyservice import OffloadService
    from warren.kube import kubeconfig as kubeconfigs

    listener = open_port("--port", address, port)
    logs.configure()
    host = name or socket.gethostname()
    service = OffloadService(host=host, port=port, certificate=node_cert)
    access = kubeconfigs.find(kubeconfig, context)
    settings = offload.cluster_settings(access, listener, cert, key, service)
    run(
        offload.run_until_stopped(
            settings, lambda: click.echo(f"running jobs may ask {host}:{port} for copies")
        )
    )
