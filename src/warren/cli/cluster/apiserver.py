"""`warren apiserver`: the embedded API server alone."""

import click

from warren.base.errors import UserMistake
from warren.cli.common import run, statedir_option
from warren.daemons.statedir import StateDir


@click.command()
@statedir_option
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Port on 127.0.0.1 (default: the last one, or any that is free).")  # fmt: skip
@click.option("--user", "users", multiple=True, metavar="NAME",
              help="Write a kubeconfig for a user, who may do what roles that are bound to this "
              "name allow. Repeatable.")  # fmt: skip
@click.option("--bare", is_flag=True, help="Do not define the kinds of DWS and NNF.")
@click.option("--plain", is_flag=True,
              help="No built-in rules for Workflows and profiles (webhooks have them), no pods "
              "of Jobs, and no Nodes that become Unknown.")  # fmt: skip
def apiserver(
    statedir: StateDir, port: int | None, users: tuple[str, ...], bare: bool, plain: bool
) -> None:
    """Serve the Kubernetes API on this machine, from a state directory, until stopped.

    It is for one machine: for tests, for development, for trying things out. kubectl
    and Kubernetes clients use it as they use any cluster; what is acknowledged is on disk.
    """
    from warren.daemons import apiserver as servers
    from warren.daemons import clusterobjects, logs
    from warren.daemons.statedir import hold_lock, lock_holder
    from warren.kube.client import Client

    for name in users:
        if not name or "/" in name or name.rpartition(":")[2] in ("", ".", ".."):
            raise UserMistake(f"--user {name}: a user's name ends in a word without slashes.")

    async def define_kinds(client: Client) -> None:
        if not bare:
            await clusterobjects.apply_definitions(client)

    async def serve() -> None:
        endpoint = servers.open_endpoint(statedir, port, users)

        def on_ready() -> None:
            click.echo(f"serving the Kubernetes API at {endpoint.admin_access.server}")
            click.echo(f"  state directory: {statedir.path}")
            click.echo(f"  kubectl --kubeconfig {statedir.kubeconfig} api-resources")
            for name in users:
                click.echo(f"  for {name}: {statedir.user_kubeconfig(name)}")
            click.echo("Ctrl-C stops it.")

        await servers.serve_until_stopped(statedir, endpoint, define_kinds, on_ready, plain=plain)

    statedir.prepare()
    logs.configure_file(statedir.logs / "apiserver.log")
    try:
        with hold_lock(statedir.lock):
            run(serve())
    except BlockingIOError:
        raise UserMistake(
            f"The state directory {statedir.path} is in use by process "
            f"{lock_holder(statedir.lock)}: choose another with --statedir."
        ) from None
    click.echo("the API server has stopped")
