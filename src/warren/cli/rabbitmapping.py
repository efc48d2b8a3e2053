"""`warren rabbitmapping`: writes down which compute nodes are wired to which rabbit."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from warren.base.errors import UserMistake
from warren.cli.common import run

if TYPE_CHECKING:
    from warren.base.objects import Object
    from warren.dws.rabbits.rabbitmapping import RabbitMapping
    from warren.kube.kubeconfig import ClusterAccess


@click.command("rabbitmapping")
@click.option("-k", "--kubeconfig", type=click.Path(path_type=Path), metavar="FILE",
              help="The cluster (default: KUBECONFIG, the pod's, or ~/.kube/config).")  # fmt: skip
@click.option("--context", metavar="NAME", help="The kubeconfig's context to use.")
@click.option("-i", "--indent", type=click.IntRange(min=0), metavar="N",
              help="Indent the JSON document by N.")  # fmt: skip
@click.option("--nosort", is_flag=True, help="Do not sort keys.")
@click.option("--ignore-external-allocations", "ignore_external", is_flag=True,
              help="Print the whole capacity, whatever is allocated outside of Flux.")  # fmt: skip
def rabbitmapping(
    kubeconfig: Path | None,
    context: str | None,
    indent: int | None,
    nosort: bool,
    ignore_external: bool,
) -> None:
    """Print which compute nodes are wired to which rabbit, and the capacity of each, as JSON.

    `rabbit.mapping` names a file of it, which getrabbit and dws2jgf read.
    """
    from warren.kube import kubeconfig as kubeconfigs

    mapping = _read_mapping(kubeconfigs.find(kubeconfig, context), ignore_external)
    document = {
        "computes": dict(mapping.computes),
        "rabbits": {
            name: {"capacity": each.capacity, "hostlist": each.hostlist}
            for name, each in mapping.rabbits.items()
        },
    }
    click.echo(json.dumps(document, indent=indent, sort_keys=not nosort), nl=False)


def _read_mapping(access: "ClusterAccess", ignore_external: bool) -> "RabbitMapping":
    """Return the mapping of a cluster. Raises UserMistake without a SystemConfiguration."""
    from warren.dws import kinds
    from warren.dws.objects.assignments import Servers
    from warren.dws.objects.decoding import read
    from warren.dws.objects.storages import Storage
    from warren.dws.objects.systemconfiguration import SystemConfiguration
    from warren.dws.rabbits import rabbitmapping as mappings
    from warren.kube import versions
    from warren.kube.http import connect

    group = kinds.STORAGE.group
    listed_kinds = [
        kinds.SYSTEM_CONFIGURATION,
        kinds.STORAGE,
        *([] if ignore_external else [kinds.SERVERS]),
    ]

    async def list_all() -> list[Sequence["Object"]]:
        async with connect(access, component="rabbitmapping") as client:
            version_by_group = await versions.choose(client, {group: kinds.versions()[group]})
            versioned = client.with_versions(version_by_group)
            # As flux-coral2 does: what Flux may use is in this namespace.
            return [
                (await versioned.list(kind, kinds.DEFAULT_NAMESPACE)).items for kind in listed_kinds
            ]

    configurations, storages, *servers = run(list_all())
    if not configurations:
        raise UserMistake(
            f"{access.server} has no SystemConfiguration: it says which nodes are wired to which "
            "rabbit, so create it first."
        )
    return mappings.mapping_of(
        read(configurations[0], SystemConfiguration),
        [read(each, Storage) for each in storages],
        [read(each, Servers) for items in servers for each in items],
    )
