"""The commands of `warren kvs` that change keys."""

import errno
import sys
from typing import TYPE_CHECKING, Any

import click

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, json_option, statedir_option
from warren.cli.kvs.common import RequestRefused, commit, lookup, namespace_option, operation
from warren.daemons.statedir import StateDir
from warren.rfc import treeobj
from warren.rfc.errors import BadFormat
from warren.rfc.kvsflags import TREEOBJ, TXN_APPEND

if TYPE_CHECKING:
    from warren.rpc.message import Handle


@click.command("put")
@statedir_option
@namespace_option
@json_option
@click.option("-a", "-A", "--append", is_flag=True, help="Append to the value.")
@click.option("-t", "--treeobj", "as_object", is_flag=True, help="Take values as tree objects.")
@click.option("-r", "--raw", is_flag=True, help="Take values as they are, which is the default.")
@click.option("-b", "--blobref", is_flag=True, help="Print the new root.")
@click.option("-s", "--sequence", is_flag=True, help="Print the new version.")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
def put(
    statedir: StateDir,
    namespace: str,
    as_json: bool,
    append: bool,
    as_object: bool,
    raw: bool,
    blobref: bool,
    sequence: bool,
    pairs: tuple[str, ...],
) -> None:
    """Set values, all of them or none; a value - is read from standard input."""
    operations = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"{pair!r} is not KEY=VALUE.")
        data = sys.stdin.buffer.read() if value == "-" else value.encode(errors="surrogateescape")
        dirent = _parse_treeobj(data) if as_object else treeobj.val(data)
        operations.append(operation(key, dirent, TXN_APPEND if append else 0))
    commit(statedir, namespace, operations, as_json, print_blobref=blobref, print_sequence=sequence)


def _parse_treeobj(data: bytes) -> dict[str, Any]:
    try:
        return treeobj.decode(data)
    except BadFormat as error:
        raise UserMistake(f"{error}.") from error


@click.command("link")
@statedir_option
@namespace_option
@click.option("-T", "--target-namespace", metavar="NAME",
              help="The namespace of the target.")  # fmt: skip
@click.argument("target")
@click.argument("linkname")
def link(
    statedir: StateDir, namespace: str, target_namespace: str | None, target: str, linkname: str
) -> None:
    """Make LINKNAME a link to the key TARGET."""
    commit(statedir, namespace, [operation(linkname, treeobj.symlink(target, target_namespace))])


@click.command("unlink")
@statedir_option
@namespace_option
@click.option("-R", "--recursive", is_flag=True, help="Remove directories with all that they hold.")
@click.option("-f", "--force", is_flag=True, help="Ignore keys that do not exist.")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def unlink(
    statedir: StateDir, namespace: str, recursive: bool, force: bool, keys: tuple[str, ...]
) -> None:
    """Remove keys."""

    async def remove_keys(handle: "Handle") -> None:
        operations = []
        for key in keys:
            try:
                obj = await lookup(handle, namespace, key, TREEOBJ)
            except RequestRefused as refused:
                if force and refused.errnum == errno.ENOENT:
                    continue
                raise
            if obj["type"] in ("dir", "dirref") and not recursive:
                entries = await handle.rpc("kvs.list", {"namespace": namespace, "key": key})
                if entries["entries"]:
                    raise UserMistake(f"{key} is a directory that is not empty: add -R.")
            operations.append(operation(key, None))
        await handle.rpc(
            "kvs.commit", {"namespace": namespace, "ops": operations, "rootref": False}
        )

    ask_instance(statedir, remove_keys)


@click.command("mkdir")
@statedir_option
@namespace_option
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def mkdir(statedir: StateDir, namespace: str, keys: tuple[str, ...]) -> None:
    """Create empty directories."""
    commit(statedir, namespace, [operation(key, treeobj.directory({})) for key in keys])
