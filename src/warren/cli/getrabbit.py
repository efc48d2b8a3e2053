"""`warren getrabbit`: which rabbits compute nodes or jobs have, and which nodes rabbits have."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warren.base.errors import UserMistake
from warren.cli.common import LOCAL_SCHEME, ask_flux, json_option, print_json, statedir_option
from warren.daemons.statedir import StateDir

if TYPE_CHECKING:
    from warren.dws.rabbits.rabbitmapping import RabbitMapping
    from warren.rpc.message import Handle


@click.command("getrabbit")
@statedir_option
@json_option
@click.option("-c", "--computes", multiple=True, metavar="HOSTS", help="Rabbits of these nodes.")
@click.option("-j", "--jobids", multiple=True, metavar="JOBID", help="Rabbits of these jobs.")
@click.argument("rabbits", nargs=-1, metavar="[RABBIT]...")
def getrabbit(
    statedir: StateDir,
    as_json: bool,
    computes: Sequence[str],
    jobids: Sequence[str],
    rabbits: Sequence[str],
) -> None:
    """Print the compute nodes of RABBITs, or the rabbits of nodes and jobs, as a hostlist.

    Without arguments it prints all rabbits. It reads the file that rabbit.mapping names.
    """
    from warren.rfc import hostlist

    if rabbits and (computes or jobids):
        raise UserMistake(
            "Both rabbits and computes or jobids cannot be looked up at the same time: name "
            "either, or ask twice."
        )
    mapping, rabbits_of_jobs = _read_mapping(statedir, jobids)
    if rabbits:
        names = mapping.computes_of(_decode_hostlists(rabbits))
    elif computes or jobids:
        names = list(
            dict.fromkeys([*mapping.rabbits_of(_decode_hostlists(computes)), *rabbits_of_jobs])
        )
    else:
        names = list(mapping.rabbits)
    if as_json:
        print_json(names)
    else:
        click.echo(hostlist.encode(names))


def _decode_hostlists(texts: Sequence[str]) -> list[str]:
    from warren.rfc import hostlist

    return [name for text in texts for name in hostlist.decode(text)]


def _read_mapping(statedir: StateDir, jobids: Sequence[str]) -> tuple["RabbitMapping", list[str]]:
    """Ask the instance, or the broker, where the mapping is, and which rabbits jobs have."""
    from warren.rfc import fluid, hostlist
    from warren.rpc.message import RpcError

    async def query(handle: "Handle") -> tuple[str | None, list[str]]:
        mapping_path = await _configured_mapping_path(handle)
        rabbits_of_jobs: list[str] = []
        for text in jobids:
            request = {"id": fluid.parse(text), "attrs": ["annotations"]}
            try:
                answer = await handle.rpc("job-list.list-id", request)
            except RpcError as error:
                raise UserMistake(f"Could not find job {text}: {error}.") from error
            user = answer["job"].get("annotations", {}).get("user", {})
            if not isinstance(user.get("rabbits"), str):  # or its user has set another note
                raise UserMistake(f"No rabbits found for job {text}: it has none so far.")
            rabbits_of_jobs += hostlist.decode(user["rabbits"])
        return mapping_path, rabbits_of_jobs

    path, rabbits_of_jobs = ask_flux(statedir, query)
    if path is None:
        raise UserMistake(
            "rabbit.mapping is not configured: give the cluster a file that says which nodes are "
            'wired to which rabbit, as [rabbit] mapping = "/PATH".'
        )
    return read_mapping(Path(path)), rabbits_of_jobs


async def _configured_mapping_path(handle: "Handle") -> str | None:
    """Return the file that `rabbit.mapping` names, here or in an instance that this is part of."""
    from warren.rpc import brokerclient
    from warren.rpc.message import RpcError

    settings: Any = await handle.rpc("config.get")
    mapping_path: str | None = settings.get("rabbit", {}).get("mapping")
    if mapping_path is not None:
        return mapping_path
    try:
        uri = (await handle.rpc("attr.get", {"name": "parent-uri"}))["value"]
    except RpcError:  # it is part of no other, or is none of Flux's
        return None
    path = uri.removeprefix(LOCAL_SCHEME)
    if path == uri:
        return None  # on another machine
    async with brokerclient.connect(Path(path)) as parent:
        return await _configured_mapping_path(parent)


def read_mapping(path: Path) -> "RabbitMapping":
    """Read a mapping. Raises UserMistake."""
    from warren.dws.rabbits import rabbitmapping

    try:
        return rabbitmapping.parse(path.read_bytes(), str(path))
    except OSError as error:
        raise UserMistake(f"{path} cannot be read: {error.strerror}.") from error
