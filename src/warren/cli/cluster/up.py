"""`warren up` and `warren down`."""

from collections.abc import Mapping
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Final, Literal

import click

from warren.base.bytesize import format_bytes
from warren.base.errors import UserMistake
from warren.base.words import plural
from warren.cli.common import open_port, print_json, run, statedir_option
from warren.daemons.statedir import StateDir
from warren.dws.node import NodeTrouble

if TYPE_CHECKING:
    from warren.daemons.clustershape import ClusterShape
    from warren.daemons.down import MachineResources


_FLASH_KINDS: Final[Mapping[str, Literal["directory", "image", "simulated"] | None]] = {
    "auto": None,
    "directory": "directory",
    "image": "image",
    "simulated": "simulated",
}


@click.command()
@statedir_option
@click.option("--rabbits", type=click.IntRange(1, 64), metavar="N",
              help="How many rabbits. They may become more.  [at first: 2]")  # fmt: skip
@click.option("--computes-per-rabbit", type=click.IntRange(1, 64), metavar="M",
              help="How many compute nodes are wired to each.  [at first: 4]")  # fmt: skip
@click.option("--rabbit-capacity", metavar="SIZE",
              help="Flash on each rabbit. It may grow.  [at first: 144GiB]")  # fmt: skip
@click.option("--flash", type=click.Choice(list(_FLASH_KINDS)), default="auto",
              help="What volumes are: plain directories; loop devices on a sparse disk image, "
              "with file systems made on them, which takes root; or directories whose nodes have "
              "simulated times and faults. auto is image if possible, else directory.  "
              "[at first: auto]",
              )  # fmt: skip
@click.option("--faults", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Times and faults of --flash simulated, in TOML.  [at first: none]",
              )  # fmt: skip
@click.option("--rabbit-device", "devices", multiple=True, metavar="RABBIT=DEVICE|vg:NAME|image",
              help="What a rabbit uses instead of an image: a block device, and what is on it is "
              "lost; or an LVM volume group, for volumes beside those that are there; "
              "or an image again. Repeatable.")  # fmt: skip
@click.option("--global", "global_paths", multiple=True, metavar="PATH",
              help="A directory that copy_in and copy_out may reach. Repeatable: the directories "
              "given replace those that were.")  # fmt: skip
@click.option("--no-global", "no_global", is_flag=True,
              help="Let copies reach no directory any more.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), metavar="PORT",
              help="Port of the API server on 127.0.0.1; 0 is the last one if it is free, or any."
              "  [at first: 0]")  # fmt: skip
@click.option("--namespaces/--no-namespaces", "isolated", default=None,
              help="Whether nodes have mount namespaces.  [at first: if possible]")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Configuration of the instance, in TOML: queues, policy, access, ... It is "
              "kept in the state directory.")  # fmt: skip
@click.option("--separate/--together", default=None,
              help="Run API server, controllers, instance, conductor and the service for copies as "
              "a process each, which meet over HTTPS and may do what their own roles allow; or as "
              "one."
              "  [at first: as one]")  # fmt: skip
@click.option("--conductor/--no-conductor", default=None,
              help="Whether it has a conductor. Without one, which takes --separate, jobs with "
              "directives wait for `warren conductor`.  [at first: with]")  # fmt: skip
@click.option("--agents/--no-agents", default=None,
              help="Whether it has the agents of its rabbits and compute nodes. Without them "
              "storage waits for `warren agent`.  [at first: with]")  # fmt: skip
@click.option("--metrics-port", type=click.IntRange(1, 65535), metavar="PORT",
              help="Serve /metrics, /healthz and /readyz there; not with --separate (default: "
              "nowhere).")  # fmt: skip
@click.option("--metrics-address", default="127.0.0.1", show_default=True, metavar="ADDRESS",
              help="On which address; without authentication.")  # fmt: skip
def up(
    statedir: StateDir,
    rabbits: int | None,
    computes_per_rabbit: int | None,
    rabbit_capacity: str | None,
    flash: str,
    faults: Path | None,
    devices: tuple[str, ...],
    global_paths: tuple[str, ...],
    no_global: bool,
    port: int | None,
    isolated: bool | None,
    separate: bool | None,
    conductor: bool | None,
    agents: bool | None,
    config: Path | None,
    metrics_port: int | None,
    metrics_address: str,
) -> None:
    """Run a cluster on this machine until it is stopped.

    API server, controllers, rabbits with their compute nodes, Flux instance and
    conductor. Stop it with Ctrl-C or `warren down`; run it again with the same state
    directory, and it goes on where it was: options that are not given are as they were.
    """
    from warren.daemons.faults import load as load_faults
    from warren.daemons.options import RequestedOptions
    from warren.daemons.up import RunningCluster
    from warren.daemons.up import up as run_cluster

    if global_paths and no_global:
        raise click.UsageError("--global and --no-global do not go together.")
    requested = RequestedOptions(
        rabbits=rabbits,
        computes_per_rabbit=computes_per_rabbit,
        capacity=_parse_capacity(rabbit_capacity),
        flash=_FLASH_KINDS[flash],
        faults=None if faults is None else load_faults(faults),
        devices=dict(map(_parse_device, devices)),
        global_file_systems=tuple(map(_parse_directory, global_paths))
        if global_paths or no_global
        else None,
        port=port,
        isolated=isolated,
        separate=separate,
        conductor=conductor,
        agents=agents,
    )

    def on_ready(cluster: RunningCluster) -> None:
        shape = cluster.shape
        click.echo(f"warren is up: {_size_text(shape)}")
        if not shape.agents:
            click.echo(
                "  rabbits and compute nodes: `warren agent`, "
                f"with mounts = {str(statedir.mounts)!r} "
                f"and the kubeconfigs in {statedir.user_kubeconfig('').parent}"
            )
        elif shape.flash == "image":
            click.echo("  flash: disk images with loop devices; file systems are real")
            image_bytes = shape.capacity * (shape.rabbits - len(shape.devices))
            free_bytes = disk_usage(statedir.path).free
            if image_bytes > free_bytes:
                click.echo(
                    f"  the images have {format_bytes(image_bytes)} together, and their file "
                    f"system has room for {format_bytes(free_bytes)}: users' volumes wait when "
                    "that is taken"
                )
            for rabbit, device in shape.devices.items():
                click.echo(f"  flash of {rabbit}: {device}")
        elif shape.flash == "simulated":
            click.echo(
                "  flash: simulated, in plain directories; sizes are accounted for, and not "
                "enforced"
            )
            for action in sorted({*shape.faults} - {"seed"}):
                click.echo(f"  {action}: {_fault_text(shape.faults[action])}")
        else:
            click.echo(
                "  flash: plain directories; sizes are accounted for, and not enforced "
                f"({cluster.why_no_images})"
            )
        if cluster.why_not_isolated and shape.agents:
            click.echo(
                f"  nodes share one mount namespace, and each has paths of its own "
                f"({cluster.why_not_isolated})"
            )
        for path in shape.global_file_systems:
            click.echo(f"  global file system: {path}")
        click.echo(f"  state directory: {statedir.path}")
        click.echo(f"  kubectl --kubeconfig {statedir.kubeconfig} get workflows")
        click.echo("Ctrl-C or 'warren down' stops it.")

    metrics_socket = None
    if metrics_port is not None:
        metrics_socket = open_port("--metrics-port", metrics_address, metrics_port)
    run(
        run_cluster(
            statedir, requested, config.absolute() if config else None, on_ready, metrics_socket
        )
    )
    click.echo("warren is down")


def _size_text(shape: "ClusterShape") -> str:
    return (
        f"{plural(shape.rabbits, 'rabbit')} of {format_bytes(shape.capacity)}, "
        f"{plural(shape.rabbits * shape.computes_per_rabbit, 'compute node')}"
    )


def _fault_text(action: Mapping[str, float]) -> str:
    """Say how one action of simulated flash goes."""
    parts = [f"{action.get('seconds', 0):g} s"]
    if action.get("fails"):
        parts.append(f"{action['fails']:.3g} of 1 fail")
    return ", ".join(parts)


def _parse_capacity(text: str | None) -> int | None:
    from warren.directives import capacity

    if text is None:
        return None
    size = capacity.parse(text)
    if size < 2**30:
        raise UserMistake(f"--rabbit-capacity {text}: a rabbit has at least 1GiB.")
    return size


def _parse_device(text: str) -> tuple[str, str]:
    """Read RABBIT=DEVICE, RABBIT=vg:NAME or RABBIT=image."""
    from warren.daemons.options import IMAGE
    from warren.node import volumegroup

    rabbit, _, device = text.partition("=")
    if device == IMAGE:
        return rabbit, device
    if device.startswith(volumegroup.PREFIX):
        try:
            groups = run(volumegroup.volume_group_names())
        except NodeTrouble as trouble:
            raise UserMistake(f"--rabbit-device {text}: {trouble}.") from trouble
        name = device.removeprefix(volumegroup.PREFIX)
        if name not in groups:
            raise UserMistake(f"--rabbit-device {text}: there is no volume group {name!r}.")
        return rabbit, device
    if not Path(device).is_block_device():
        raise UserMistake(f"--rabbit-device {text}: {device!r} is not a block device.")
    return rabbit, str(Path(device).resolve())


def _parse_directory(path: str) -> str:
    directory = Path(path).resolve()
    if not directory.is_dir():
        raise UserMistake(f"--global {path}: there is no such directory.")
    return str(directory)


@click.command()
@statedir_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def down(statedir: StateDir, as_json: bool) -> None:
    """Stop the cluster of a state directory. Its state stays, for the next `warren up`."""
    from warren.daemons.down import down as stop

    result = run(stop(statedir))
    if as_json:
        print_json(
            {
                "stopped": result.stopped,
                "statedir": str(statedir.path),
                "removed": result.removed.counts(),
                "left": result.remaining.counts(),
            }
        )
        return
    if result.stopped:
        click.echo(f"stopped the cluster in {statedir.path}")
    else:
        click.echo(f"no cluster was running in {statedir.path}")
    if removed := _counts_text(result.removed):
        click.echo(f"  ended what one that was killed had left: {removed}")
    if remaining := _counts_text(result.remaining):
        click.echo(f"  still there, for something uses it: {remaining}")


def _counts_text(resources: "MachineResources") -> str:
    """Write numbers of things, as `3 processes, 1 mount and 2 loop devices`; none as nothing."""
    counts = (
        (len(resources.processes), "process", "processes"),
        (len(resources.mounts), "mount", "mounts"),
        (len(resources.loops), "loop device", "loop devices"),
    )
    *first_texts, last_text = [plural(*each) for each in counts if each[0]] or [""]
    return f"{', '.join(first_texts)} and {last_text}" if first_texts else last_text
