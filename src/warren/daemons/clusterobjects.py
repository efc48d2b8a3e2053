"""The objects that a cluster starts with: definitions, rules, profiles, nodes, file systems."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

import warren
from warren.base.errors import UserMistake
from warren.base.objects import Change, Kind, Object, Remove, key_of
from warren.daemons.clustershape import ClusterShape
from warren.dws import containerauth, kinds
from warren.dws.offload import copyservice
from warren.kube.client import AlreadyExists, Client
from warren.kube.server.builtin import CRD, NAMESPACE

_GLOBAL_LABEL: Final = "warren.cluster/global-file-system"
"""Labels the file systems that come from `--global`, and go with it."""


@cache
def manifests(name: str) -> Sequence[Object]:
    """Read a file of manifests below `deploy`; of a directory, all of its files."""
    path = _deploy_directory() / name
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [obj for file in files for obj in yaml.load_all(file.read_text(), Loader=loader)]


def definitions() -> Sequence[Object]:
    """Return the CustomResourceDefinition of every kind."""
    return manifests("crds")


def _deploy_directory() -> Path:
    """Return the directory of the manifests: beside the source, or installed with the program."""
    package = Path(warren.__file__).parent
    for path in (package.parents[1] / "deploy", package / "deploy"):
        if (path / "rules.yaml").exists():
            return path
    raise UserMistake("The manifests of the cluster are not installed: install warren again.")


async def apply_definitions(client: Client) -> None:
    """Bring the definitions of all kinds to what they should be."""
    await apply_all(client, ((CRD, crd) for crd in definitions()))


async def establish(client: Client, shape: ClusterShape, daemons: Collection[str] = ()) -> None:
    """Bring the cluster's own objects to what they should be. May be repeated at any time.

    `daemons` are those that directives may name with `requires`.
    """
    await apply_definitions(client)
    await apply_all(client, _objects(shape, daemons))
    if copyservice.REQUIRES_WORD in daemons:
        # The site's own daemon serves the copies that `requires` asks for; before that was
        # configured, ours may have, whose announcement is still there.
        await client.patch(copyservice.announce(None))
    wanted_names = {f"global-{number}" for number in range(len(shape.global_file_systems))}
    for obj in (await client.list(kinds.LUSTRE_FILE_SYSTEM, labels={_GLOBAL_LABEL: "true"})).items:
        if obj["metadata"]["name"] not in wanted_names:
            await client.delete(Remove(kind=kinds.LUSTRE_FILE_SYSTEM, key=key_of(obj)))


def _objects(shape: ClusterShape, daemons: Collection[str]) -> Iterator[tuple[Kind, Object]]:
    chassis = shape.chassis()
    nodes = [name for each in chassis for name in (each.rabbit, *each.hosts)]
    system_namespaces = (kinds.DEFAULT_NAMESPACE, kinds.RULES_NAMESPACE, kinds.PROFILES_NAMESPACE)
    for name in (*system_namespaces, *nodes):
        yield NAMESPACE, {"metadata": {"name": name}}
    by_name = {kind.name: kind for kind in kinds.ALL}
    for obj in manifests("rules.yaml"):
        kind = by_name[obj["kind"]]
        yield kind, _with_required_words(obj, daemons) if kind == kinds.DIRECTIVE_RULE else obj
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
    for number, path in enumerate(shape.global_file_systems):
        metadata = {
            "name": f"global-{number}",
            "namespace": kinds.DEFAULT_NAMESPACE,
            "labels": {_GLOBAL_LABEL: "true"},
        }
        spec = {"name": f"global{number}"[:8], "mgsNids": "127.0.0.1@tcp", "mountRoot": path}
        yield kinds.LUSTRE_FILE_SYSTEM, {"metadata": metadata, "spec": spec}


def _with_required_words(rule: Object, daemons: Collection[str]) -> Object:
    """Return a rule whose commands take these words with `requires`, where they take any.

    Neither the token for containers nor copies that running jobs ask for need a daemon.
    """
    words = {*daemons, containerauth.REQUIRES_WORD, copyservice.REQUIRES_WORD}
    patterns = [f"^{name}$" for name in sorted(words)]
    spec = [
        {
            **command,
            "ruleDefs": [
                {**each, "patterns": patterns} if each["key"] == "^requires$" else each
                for each in command["ruleDefs"]
            ],
        }
        for command in rule["spec"]
    ]
    return {**rule, "spec": spec}


_PATCHED_FIELDS: Final = ("spec", "data", "rules", "subjects")
"""The fields in which an existing object is patched."""


_FILLED_IN_FIELDS: Final = {kinds.PORT_MANAGER: "allocations"}
"""The field of its spec that others fill in, which is left as it is in an existing object."""


async def apply_all(client: Client, objects: Iterable[tuple[Kind, Object]]) -> None:
    """Make objects, or bring them to what they should be: namespaces, then all others at once."""
    pairs = list(objects)
    namespaces = [each for each in pairs if each[0] == NAMESPACE]
    for group in (namespaces, [each for each in pairs if each[0] != NAMESPACE]):
        async with asyncio.TaskGroup() as tasks:
            for kind, obj in group:
                tasks.create_task(apply(client, kind, obj))


async def apply(client: Client, kind: Kind, obj: Object) -> None:
    """Make an object, or bring the one that is there to what it should be."""
    try:
        await client.create(kind, obj)
    except AlreadyExists:
        patch: dict[str, Any] = {name: obj[name] for name in _PATCHED_FIELDS if name in obj}
        if kind in _FILLED_IN_FIELDS:
            patch["spec"] = {k: v for k, v in obj["spec"].items() if k != _FILLED_IN_FIELDS[kind]}
        if patch:
            await client.patch(Change(kind=kind, key=key_of(obj), patch=patch))
