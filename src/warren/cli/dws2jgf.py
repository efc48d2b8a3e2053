"""`warren dws2jgf`: adds to an R the graph of a system with rabbits, for Fluxion."""

import re
import socket
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warren.base.errors import UserMistake, WarrenError
from warren.cli.common import ask_flux, statedir_option
from warren.daemons.statedir import StateDir

if TYPE_CHECKING:
    from warren.rfc.resource_set import ResourceSet
    from warren.rpc.message import Handle
    from warren.scheduling.resourceconfig import Configuration
    from warren.scheduling.topology import ChassisTopology

_NO_CONFIG_WARNING = "Unable to fetch `resource.exclude` from config"
"""As flux-coral2 says it, where no broker can be asked what is excluded."""


@click.command("dws2jgf")
@statedir_option
@click.option("--no-validate", is_flag=True,
              help="Leave out mapped compute nodes that R does not have.")  # fmt: skip
@click.option("-c", "--chunks-per-nnf", "ssd_count", type=click.IntRange(min=1), default=36,
              show_default=True, metavar="N",
              help="Divide each rabbit into N ssds for Fluxion.")  # fmt: skip
@click.option("--cluster-name", metavar="NAME", default=None,
              help="The cluster's name (default: the host's without digits).")  # fmt: skip
@click.option("--from-config", "config_file", type=click.Path(path_type=Path), metavar="TOML",
              help="Take R from the tables resource.config of a configuration.")  # fmt: skip
@click.option("--only-sched", is_flag=True, help="Print the key `scheduling` of R alone.")
@click.argument("file", type=click.Path(path_type=Path), required=False)
def dws2jgf(
    statedir: StateDir,
    no_validate: bool,
    ssd_count: int,
    cluster_name: str | None,
    config_file: Path | None,
    only_sched: bool,
    file: Path | None,
) -> None:
    """Read R from standard input, and print it with the graph that Fluxion needs.

    FILE is what rabbitmapping prints; by default that which rabbit.mapping names. Nodes that
    resource.exclude names are not in the graph.
    """
    import orjson

    from warren.rfc import resource_set
    from warren.scheduling import rabbitgraph

    configuration = (
        _read_configuration(statedir) if config_file is None else _read_config_file(config_file)
    )
    r, source = _read_r(configuration, config_file)
    resources = resource_set.decode_all(r)
    path = file or _configured_mapping_path(configuration)
    chassis = _read_chassis(path)
    if not no_validate:
        _check_same_nodes(chassis, resources, path, source)
    exclude = None if configuration is None else configuration.resource.exclude
    graph = rabbitgraph.encode_graph(
        _cluster_name(cluster_name),
        chassis,
        resources,
        ssd_count=ssd_count,
        excluded=() if exclude is None else rabbitgraph.excluded_hosts(exclude, resources),
    )
    if only_sched:
        click.echo(graph)
    else:
        click.echo(orjson.dumps(r)[:-1] + b',"scheduling":' + graph + b"}")


def _read_configuration(statedir: StateDir) -> "Configuration | None":
    """Return what the instance or the broker is configured to; None where there is none."""
    from warren.scheduling import resourceconfig

    async def query(handle: "Handle") -> Any:
        return await handle.rpc("config.get")

    try:
        return resourceconfig.read(ask_flux(statedir, query), "The broker's configuration")
    except WarrenError:
        click.echo(_NO_CONFIG_WARNING, err=True)
        return None


def _read_config_file(path: Path) -> "Configuration":
    from warren.scheduling import resourceconfig

    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise UserMistake(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # of TOML, and of UTF-8
        raise UserMistake(f"{path} is not TOML: {error}.") from error
    except RecursionError:
        raise UserMistake(f"{path} is not TOML: it is nested too deep.") from None
    return resourceconfig.read(tables, str(path))


def _read_r(
    configuration: "Configuration | None", config_file: Path | None
) -> tuple[dict[str, Any], str]:
    """Return R without a graph, and where it is from. Raises UserMistake."""
    import orjson

    from warren.rfc import resource_set
    from warren.scheduling import resourceconfig

    if config_file is not None:
        assert configuration is not None
        return resourceconfig.resource_set_of(configuration, str(config_file)), str(config_file)
    try:
        r = orjson.loads(sys.stdin.buffer.read())
    except ValueError as error:
        raise UserMistake(
            f"Standard input is not an R: {error}: give what `flux R encode` prints, or "
            "--from-config."
        ) from error
    return resource_set.without_scheduling(r) if isinstance(r, dict) else r, "R"


def _configured_mapping_path(configuration: "Configuration | None") -> Path:
    if configuration is None or configuration.rabbit.mapping is None:
        raise UserMistake(
            "rabbit.mapping is not configured: name a FILE that `warren rabbitmapping` has printed."
        )
    return Path(configuration.rabbit.mapping)


def _read_chassis(path: Path) -> list["ChassisTopology"]:
    from warren.dws.rabbits import rabbitmapping
    from warren.scheduling.topology import ChassisTopology

    try:
        mapping = rabbitmapping.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UserMistake(f"{path} cannot be read: {error.strerror}.") from error
    return [
        ChassisTopology(
            rabbit=name, capacity_bytes=mapping.rabbits[name].capacity, hosts=tuple(hosts)
        )
        for name, hosts in mapping.computes_by_rabbit().items()
    ]


def _check_same_nodes(
    chassis: Sequence["ChassisTopology"], resources: "ResourceSet", path: Path, source: str
) -> None:
    from warren.rfc import hostlist
    from warren.scheduling import rabbitgraph

    missing = rabbitgraph.missing_nodes(chassis, resources)
    if missing:
        raise UserMistake(
            f"{hostlist.encode(missing)}: in {path} and not in {source}: correct either, or leave "
            "such nodes out with --no-validate."
        )


def _cluster_name(name_option: str | None) -> str:
    """Return the cluster's name. Raises UserMistake where no path can have it."""
    name = (
        re.sub(r"\d", "", socket.gethostname()).rstrip("-") if name_option is None else name_option
    )
    if not name or "/" in name:
        raise UserMistake(f"{name!r} names no cluster: give one with --cluster-name NAME.")
    return name
