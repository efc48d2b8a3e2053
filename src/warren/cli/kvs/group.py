"""`warren kvs`: look into the key-value store of the instance, and change it.

The commands are spelled as those of `flux kvs`. They stand by their subject: `read` has
what only reads, `change` what changes keys; namespaces and eventlogs have their own.
"""

from typing import Final

import click

from warren.cli.commandgroups import LazyGroup

_COMMANDS: Final = {
    "dir": ("warren.cli.kvs.read", "dir_", "Print the keys and values in a directory."),
    "eventlog": ("warren.cli.kvs.eventlog", "eventlog", "Read and append to eventlogs."),
    "get": ("warren.cli.kvs.read", "get", "Print values."),
    "getroot": (
        "warren.cli.kvs.read",
        "getroot",
        "Print the root of a namespace.",
    ),
    "link": ("warren.cli.kvs.change", "link", "Make LINKNAME a link to the key TARGET."),
    "ls": ("warren.cli.kvs.read", "ls", "List the names in directories."),
    "mkdir": ("warren.cli.kvs.change", "mkdir", "Create empty directories."),
    "namespace": ("warren.cli.kvs.namespace", "namespace", "Create, list and remove namespaces."),
    "put": ("warren.cli.kvs.change", "put", "Set values, all or none."),
    "readlink": ("warren.cli.kvs.read", "readlink", "Print the targets of links."),
    "unlink": ("warren.cli.kvs.change", "unlink", "Remove keys."),
}


@click.group(cls=LazyGroup, table=_COMMANDS)
def kvs() -> None:
    """Read and write the key-value store.

    Keys are names with dots between them; . is the root. A job is at job.JOBID.
    """
