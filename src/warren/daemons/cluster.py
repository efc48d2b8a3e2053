"""The objects that a cluster starts with: definitions, rules, profiles, nodes, file systems."""

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, Final

import yaml

from warren.base.objects import Change, Kind, Object, Remove, key_of
from warren.daemons.site import Site
from warren.dws import kinds
from warren.kube.client import AlreadyExists, Client
from warren.kube.server.resources import CRD, NAMESPACE

_OURS: Final = "warren.cluster/global-file-system"
"""Labels the file systems that come from `--global`, and go with it."""


@cache
def manifests(name: str) -> list[Object]:
    """Read a file of manifests that is installed with the program."""
    text = resources.files(__package__).joinpath("manifests", name).read_text()
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return list(yaml.load_all(text, Loader=loader))


async def establish(client: Client, site: Site) -> None:
    """Bring the cluster's own objects to what they should be. May be repeated at any time."""
    for name in ("crds-dws.yaml", "crds-nnf.yaml", "crds-lus.yaml"):
        for crd in manifests(name):
            await _apply(client, CRD, crd)
    for kind, obj in _objects(site):
        await _apply(client, kind, obj)
    wanted = {f"global-{number}" for number in range(len(site.global_file_systems))}
    for obj in (await client.list(kinds.LUSTRE, labels={_OURS: "true"})).items:
        if obj["metadata"]["name"] not in wanted:
            await client.delete(Remove(kind=kinds.LUSTRE, key=key_of(obj)))


def _objects(site: Site) -> Iterator[tuple[Kind, Object]]:
    chassis = site.chassis()
    nodes = [name for each in chassis for name in (each.rabbit, *each.hosts)]
    system = (kinds.DEFAULT_NAMESPACE, kinds.RULES_NAMESPACE, kinds.PROFILES_NAMESPACE)
    for name in (*system, *nodes):
        yield NAMESPACE, {"metadata": {"name": name}}
    by_name = {kind.name: kind for kind in kinds.ALL}
    for obj in manifests("rules.yaml"):
        yield by_name[obj["kind"]], _without_raw(obj) if site.flash == "directory" else obj
    storage_nodes = [
        {
            "type": "Rabbit",
            "name": each.rabbit,
            "computesAccess": [
                {"name": host, "index": index} for index, host in enumerate(each.hosts)
            ],
        }
        for each in chassis
    ]
    yield (
        kinds.SYSTEM_CONFIGURATION,
        {
            "metadata": {"name": "default", "namespace": kinds.DEFAULT_NAMESPACE},
            "spec": {"storageNodes": storage_nodes},
        },
    )
    for number, path in enumerate(site.global_file_systems):
        metadata = {
            "name": f"global-{number}",
            "namespace": kinds.DEFAULT_NAMESPACE,
            "labels": {_OURS: "true"},
        }
        spec = {"name": f"global{number}"[:8], "mgsNids": "127.0.0.1@tcp", "mountRoot": path}
        yield kinds.LUSTRE, {"metadata": metadata, "spec": spec}


def _without_raw(obj: Object) -> Object:
    """Take raw volumes out of the rules, where there are no block devices."""
    if obj["kind"] != kinds.RULE.name:
        return obj
    spec = [
        {
            **command,
            "ruleDefs": [
                {**rule, "pattern": rule["pattern"].replace("raw|", "")}
                if rule["key"] == "^type$"
                else rule
                for rule in command["ruleDefs"]
            ],
        }
        for command in obj["spec"]
    ]
    return {**obj, "spec": spec}


async def _apply(client: Client, kind: Kind, obj: Object) -> None:
    try:
        await client.create(kind, obj)
    except AlreadyExists:
        patch: dict[str, Any] = {
            name: value for name, value in obj.items() if name in ("spec", "data")
        }
        if patch:
            await client.patch(Change(kind=kind, key=key_of(obj), patch=patch))
