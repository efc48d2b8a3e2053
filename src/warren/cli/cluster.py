"""`warren up` and `warren down`."""

from pathlib import Path
from typing import Literal

import click

from warren.base.bytesize import human
from warren.base.errors import UserMistake
from warren.cli.common import print_json, run, statedir_option
from warren.daemons.statedir import StateDir
from warren.dws.node import NodeTrouble


@click.command()
@statedir_option
@click.option("--rabbits", type=click.IntRange(1, 64), default=2, show_default=True, metavar="N",
              help="How many rabbits.")  # fmt: skip
@click.option("--computes-per-rabbit", type=click.IntRange(1, 64), default=4, show_default=True,
              metavar="M", help="How many compute nodes are wired to each.")  # fmt: skip
@click.option("--rabbit-capacity", default="144GiB", show_default=True, metavar="SIZE",
              help="Flash on each rabbit.")  # fmt: skip
@click.option("--flash", type=click.Choice(["auto", "directory", "image"]), default="auto",
              show_default=True,
              help="What volumes are: plain directories; or loop devices on a sparse disk image, "
              "with file systems made on them, which takes root.")  # fmt: skip
@click.option("--rabbit-device", "devices", multiple=True, metavar="RABBIT=DEVICE|vg:NAME",
              help="What a rabbit uses instead of an image: a block device, and what is on it is "
              "lost; or an LVM volume group, for volumes beside those that are there. "
              "Repeatable.")  # fmt: skip
@click.option("--global", "paths", multiple=True, metavar="PATH",
              help="A directory that copy_in and copy_out may reach. Repeatable.")  # fmt: skip
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Port of the API server on 127.0.0.1 (default: any that is free).")  # fmt: skip
@click.option("--namespaces/--no-namespaces", "isolated", default=None,
              help="Whether nodes have mount namespaces (default: if they can).")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Configuration of the instance, in TOML: queues, policy, access, ... It is "
              "kept in the state directory (default: the one that was given last).")  # fmt: skip
@click.option("--separate", is_flag=True,
              help="Run API server, controllers, instance and conductor as a process each, which "
              "meet over HTTPS and may do what their own roles allow.")  # fmt: skip
def up(
    state: StateDir,
    rabbits: int,
    computes_per_rabbit: int,
    rabbit_capacity: str,
    flash: str,
    devices: tuple[str, ...],
    paths: tuple[str, ...],
    port: int | None,
    isolated: bool | None,
    separate: bool,
    config: Path | None,
) -> None:
    """Run a cluster on this machine until it is stopped.

    API server, controllers, rabbits with their compute nodes, Flux instance and
    conductor. Stop it with Ctrl-C or `warren down`; run it again with the same state
    directory, and it goes on where it was.
    """
    from warren.daemons import logs
    from warren.daemons.site import Site
    from warren.daemons.up import Cluster, Wanted
    from warren.daemons.up import up as run_cluster
    from warren.directives import capacity

    size = capacity.parse(rabbit_capacity)
    if size < 2**30:
        raise UserMistake(f"--rabbit-capacity {rabbit_capacity}: a rabbit has at least 1GiB.")
    wanted = Wanted(
        site=Site(
            rabbits=rabbits,
            computes_per_rabbit=computes_per_rabbit,
            capacity=size,
            devices=dict(_device(each, rabbits) for each in devices),
            global_file_systems=tuple(_directory(path) for path in paths),
        ),
        flash=_chosen(flash, devices),
        port=port,
        isolated=isolated,
        separate=separate,
        config=config,
    )

    def ready(cluster: Cluster) -> None:
        site = cluster.site
        click.echo(
            f"warren is up: {site.rabbits} rabbits of {human(site.capacity)}, "
            f"{site.rabbits * site.computes_per_rabbit} compute nodes"
        )
        if site.flash == "image":
            click.echo("  flash: disk images with loop devices; file systems are real")
            for rabbit, device in site.devices.items():
                click.echo(f"  flash of {rabbit}: {device}")
        else:
            click.echo(
                "  flash: plain directories; sizes are accounted for, and not enforced "
                f"({cluster.why_no_images})"
            )
        if cluster.why_not_isolated:
            click.echo(
                f"  nodes share one mount namespace, and each has paths of its own "
                f"({cluster.why_not_isolated})"
            )
        for path in site.global_file_systems:
            click.echo(f"  global file system: {path}")
        click.echo(f"  state directory: {state.path}")
        click.echo(f"  kubectl --kubeconfig {state.kubeconfig} get workflows")
        click.echo("Ctrl-C or 'warren down' stops it.")

    state.prepare()
    logs.configure_file(state.logs / "control.log")
    run(run_cluster(state, wanted, ready))
    click.echo("warren is down")


def _chosen(flash: str, devices: tuple[str, ...]) -> Literal["directory", "image"] | None:
    if flash == "directory":
        if devices:
            raise UserMistake("--rabbit-device: plain directories need no device.")
        return "directory"
    return "image" if devices or flash == "image" else None


def _device(text: str, rabbits: int) -> tuple[str, str]:
    """Read RABBIT=DEVICE or RABBIT=vg:NAME."""
    from warren.node import volumegroup

    rabbit, _, device = text.partition("=")
    known = [f"rabbit-{number}" for number in range(rabbits)]
    if rabbit not in known:
        raise UserMistake(f"--rabbit-device {text}: the rabbits are {', '.join(known)}.")
    if device.startswith(volumegroup.PREFIX):
        try:
            groups = run(volumegroup.names())
        except NodeTrouble as trouble:
            raise UserMistake(f"--rabbit-device {text}: {trouble}.") from trouble
        name = device.removeprefix(volumegroup.PREFIX)
        if name not in groups:
            raise UserMistake(f"--rabbit-device {text}: there is no volume group {name!r}.")
        return rabbit, device
    if not Path(device).is_block_device():
        raise UserMistake(f"--rabbit-device {text}: {device!r} is not a block device.")
    return rabbit, str(Path(device).resolve())


def _directory(path: str) -> str:
    found = Path(path).resolve()
    if not found.is_dir():
        raise UserMistake(f"--global {path}: there is no such directory.")
    return str(found)


@click.command()
@statedir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def down(state: StateDir, as_json: bool) -> None:
    """Stop the cluster of a state directory. Its state stays, for the next `warren up`."""
    from warren.daemons.sweep import down as stop

    stopped = run(stop(state))
    if as_json:
        print_json({"stopped": stopped, "statedir": str(state.path)})
    elif stopped:
        click.echo(f"stopped the cluster in {state.path}")
    else:
        click.echo(f"no cluster was running in {state.path}")
