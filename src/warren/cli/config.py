"""`warren config`: what an instance is configured to do."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, print_json, statedir_option
from warren.cli.lazy import Group
from warren.daemons.statedir import StateDir

if TYPE_CHECKING:
    from warren.rpc.message import Handle


@click.group(cls=Group)
def config() -> None:
    """Show the configuration of the running instance."""


@config.command("get")
@statedir_option
@click.argument("key", required=False)
def get(state: StateDir, key: str | None) -> None:
    """Print the configuration as JSON, or what is at KEY, as in queues.batch.policy.

    What is as it would be without a configuration is left out.
    """

    async def asked(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("config.get")

    found: Any = ask_instance(state, asked)
    print_json(found if key is None else value(found, key))


def value(config: Mapping[str, Any], key: str) -> Any:
    """Return what is at a dotted path. Raises UserMistake where nothing is."""
    found: Any = config
    for name in key.split("."):
        if not isinstance(found, Mapping) or name not in found:
            raise UserMistake(f"{key} is not configured.")
        found = found[name]
    return found
