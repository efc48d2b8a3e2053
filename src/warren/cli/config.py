"""`warren config`: what an instance is configured to do."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from warren.base.errors import UserMistake
from warren.cli.commandgroups import Group
from warren.cli.common import (
    ask_instance,
    json_option,
    print_json,
    require_running,
    statedir_option,
)
from warren.daemons.statedir import StateDir

if TYPE_CHECKING:
    from warren.rpc.message import Handle


@click.group(cls=Group)
def config() -> None:
    """Show the configuration of the running instance, and reload it."""


@config.command("get")
@statedir_option
@click.argument("key", required=False)
def get(statedir: StateDir, key: str | None) -> None:
    """Print the configuration as JSON, or what is at KEY, as in queues.batch.policy.

    Defaults are left out.
    """

    async def query(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("config.get")

    settings: Any = ask_instance(statedir, query)
    print_json(settings if key is None else value_at(settings, key))


@config.command("reload")
@statedir_option
@json_option
@click.argument("file", required=False, type=click.Path(path_type=Path))
def reload(statedir: StateDir, as_json: bool, file: Path | None) -> None:
    """Have the instance take the configuration in FILE, now and at its next start.

    Without FILE it is the one that `warren up --config` was given; where it was given none, it is
    config.toml in the state directory. It prints which settings take effect at the next start only.
    """
    if file is None:
        statedir.check_owner()  # others are not told where it is
    path = Path(require_running(statedir)["config"]) if file is None else file.absolute()
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserMistake(f"{path} cannot be read: {error}.") from error

    async def load(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("config.load", {"toml": text, "name": str(path)})

    result: Any = ask_instance(statedir, load)
    if as_json:
        print_json(result)
        return
    click.echo("The configuration is reloaded." if result["changed"] else "Nothing has changed.")
    if result["later"]:
        click.echo(f"From the next start on: {', '.join(result['later'])}.")


def value_at(config: Mapping[str, Any], key: str) -> Any:
    """Return what is at a dotted path. Raises UserMistake where nothing is."""
    value: Any = config
    for name in key.split("."):
        if not isinstance(value, Mapping) or name not in value:
            raise UserMistake(f"{key} is not configured.")
        value = value[name]
    return value
