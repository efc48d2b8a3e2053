"""The commands of `warren kvs` that only read."""

import errno
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click
import orjson

from warren.base.printable import printable, printable_value
from warren.cli.common import ask_instance, json_option, print_json, statedir_option
from warren.cli.kvs.common import (
    RequestRefused,
    at_option,
    lookup,
    name_in_refusal,
    namespace_option,
    values,
)
from warren.daemons.statedir import StateDir
from warren.rfc import treeobj
from warren.rfc.kvsflags import (
    READDIR,
    READLINK,
    STREAM,
    TREEOBJ,
    WAITCREATE,
    WATCH,
    WATCH_APPEND,
    WATCH_FULL,
    WATCH_UNIQ,
)

if TYPE_CHECKING:
    from warren.rpc.message import Handle


@click.command("get")
@statedir_option
@namespace_option
@at_option
@json_option
@click.option(
    "-t", "--treeobj", "as_object", is_flag=True, help="Print the tree object of the key."
)
@click.option("-r", "--raw", is_flag=True, help="Print the bytes of the value, without a newline.")
@click.option("-l", "--label", is_flag=True, help="Print KEY= before each value.")
@click.option(
    "-w", "--watch", is_flag=True, help="Print the value again whenever the key is written."
)
@click.option("-W", "--waitcreate", is_flag=True, help="Wait for a key that does not exist yet.")
@click.option("-u", "--uniq", is_flag=True, help="With --watch: print only values that differ.")
@click.option("-f", "--full", is_flag=True, help="With --watch: notice every change of the key.")
@click.option("-A", "--append", is_flag=True, help="With --watch: print only what is appended.")
@click.option("-S", "--stream", is_flag=True, help="Read long values in parts.")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="End after N values.")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def get(
    statedir: StateDir,
    namespace: str,
    at: dict[str, Any] | None,
    as_json: bool,
    as_object: bool,
    raw: bool,
    label: bool,
    count: int | None,
    keys: tuple[str, ...],
    **switches: bool,
) -> None:
    """Print values."""
    flags_by_option = {
        "watch": WATCH, "waitcreate": WAITCREATE, "uniq": WATCH_UNIQ, "full": WATCH_FULL,
        "append": WATCH_APPEND, "stream": STREAM,
    }  # fmt: skip
    flags = sum(flag for option, flag in flags_by_option.items() if switches[option])
    if flags and at is not None:
        raise click.UsageError(
            "--at names a root that does not change: there is nothing to wait for."
        )
    if flags & (WATCH_UNIQ | WATCH_FULL | WATCH_APPEND) and not flags & WATCH:
        raise click.UsageError("--uniq, --full and --append are ways to --watch.")
    if len(keys) > 1 and flags & WATCH:
        raise click.UsageError("--watch takes one key.")
    if as_object:
        flags |= TREEOBJ

    async def print_values(handle: "Handle") -> None:
        for key in keys:
            values_left = count
            async with aclosing(values(handle, namespace, key, flags, at)) as answers:
                async for value in answers:
                    _print_value(
                        key, value, as_object=as_object, as_json=as_json, raw=raw, label=label
                    )
                    values_left = values_left and values_left - 1
                    if values_left == 0:
                        break

    ask_instance(statedir, print_values)


def _print_value(
    key: str, obj: dict[str, Any], *, as_object: bool, as_json: bool, raw: bool, label: bool
) -> None:
    value = orjson.dumps(obj) if as_object else treeobj.read_val(obj)
    if as_json:
        print_json({"key": key, "value": obj if as_object else _text(value)})
    else:
        end = b"" if raw or value.endswith(b"\n") else b"\n"
        sys.stdout.buffer.write((f"{key}=".encode() if label else b"") + value + end)
        sys.stdout.buffer.flush()


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


@click.command("ls")
@statedir_option
@namespace_option
@json_option
@click.option("-R", "--recursive", is_flag=True, help="List what is below directories, too.")
@click.option(
    "-d",
    "--directory",
    "only_itself",
    is_flag=True,
    help="List directories themselves, not what they hold.",
)
@click.option("-F", "--classify", is_flag=True, help="Print . after directories, @ after links.")
@click.option("-1", "one", is_flag=True, help="Print one name a line, which is the default.")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
def ls(
    statedir: StateDir,
    namespace: str,
    as_json: bool,
    recursive: bool,
    only_itself: bool,
    classify: bool,
    one: bool,
    keys: tuple[str, ...],
) -> None:
    """List the names in directories."""
    marks = {"dir": ".", "symlink": "@"} if classify else {}

    async def list_entries(handle: "Handle") -> list[tuple[str, str, str]]:
        entries = []
        for key in keys or (".",):
            async for directory_key, name, kind in _list_entries(
                handle, namespace, key, recursive, only_itself
            ):
                entries.append((directory_key, name, kind))
        return entries

    entries = ask_instance(statedir, list_entries)
    if as_json:
        print_json(
            [
                {"key": _join_key(directory_key, name), "type": kind}
                for directory_key, name, kind in entries
            ]
        )
        return
    for directory_key, name, kind in entries:
        key_text = printable(_join_key(directory_key, name) if recursive else name)
        click.echo(key_text + marks.get(kind, ""))


async def _list_entries(
    handle: "Handle", namespace: str, key: str, recursive: bool = False, only_itself: bool = False
) -> AsyncIterator[tuple[str, str, str]]:
    """Return what is at a key: the directory that it is in, its name, and what it is."""
    request = {"namespace": namespace, "key": key}
    try:
        with name_in_refusal(key):
            entries = (await handle.rpc("kvs.list", request))["entries"]
    except RequestRefused as refused:
        if refused.errnum != errno.ENOTDIR:
            raise
        kind = (await lookup(handle, namespace, key, TREEOBJ))["type"]
        yield "", key, "symlink" if kind == "symlink" else "val"
        return
    if only_itself:
        yield "", key, "dir"
        return
    directory_key = "" if key == "." else key
    for name, kind in entries.items():
        yield directory_key, name, kind
        if recursive and kind == "dir":
            async for each in _list_entries(
                handle, namespace, _join_key(directory_key, name), recursive
            ):
                yield each


def _join_key(directory_key: str, name: str) -> str:
    return f"{directory_key}.{name}" if directory_key else name


@click.command("dir")
@statedir_option
@namespace_option
@at_option
@json_option
@click.option("-R", "--recursive", is_flag=True, help="List what is below directories, too.")
@click.option(
    "-d", "--directory", "without_values", is_flag=True, help="Print keys without their values."
)
@click.argument("key", default=".")
def dir_(
    statedir: StateDir,
    namespace: str,
    at: dict[str, Any] | None,
    as_json: bool,
    recursive: bool,
    without_values: bool,
    key: str,
) -> None:
    """Print the keys and values in a directory."""

    async def entries(handle: "Handle") -> list[tuple[str, str, str]]:
        return [each async for each in walk(handle, "" if key == "." else key)]

    async def walk(handle: "Handle", directory_key: str) -> AsyncIterator[tuple[str, str, str]]:
        directory_object = await lookup(handle, namespace, directory_key or ".", READDIR, at)
        for name, obj in sorted(directory_object["data"].items()):
            child_key = _join_key(directory_key, name)
            if obj["type"] in ("dir", "dirref"):
                yield child_key, "dir", ""
                if recursive:
                    async for each in walk(handle, child_key):
                        yield each
            elif obj["type"] == "symlink":
                target_namespace = obj["data"].get("namespace")
                target = obj["data"]["target"]
                yield (
                    child_key,
                    "symlink",
                    f"{target_namespace}::{target}" if target_namespace else target,
                )
            else:
                value_object = (
                    None if without_values else await lookup(handle, namespace, child_key, 0, at)
                )
                yield (
                    child_key,
                    "val",
                    _text(treeobj.read_val(value_object)) if value_object else "",
                )

    rows = ask_instance(statedir, entries)
    if as_json:
        print_json([{"key": each, "type": kind, "value": value} for each, kind, value in rows])
        return
    for each, kind, value in rows:
        key_text = printable(each)
        if kind == "dir":
            click.echo(f"{key_text}.")
        elif kind == "symlink":
            click.echo(f"{key_text} -> {printable(value)}")
        else:
            click.echo(
                key_text if without_values else f"{key_text} = {printable_value(value.rstrip())}"
            )


@click.command("getroot")
@statedir_option
@namespace_option
@json_option
@click.option("-s", "--sequence", is_flag=True, help="Print the version alone.")
@click.option("-o", "--owner", is_flag=True, help="Print the owner alone.")
@click.option("-b", "--blobref", is_flag=True, help="Print the blobref alone.")
def getroot(
    statedir: StateDir, namespace: str, as_json: bool, sequence: bool, owner: bool, blobref: bool
) -> None:
    """Print the root of a namespace, as a tree object."""

    async def query(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("kvs.getroot", {"namespace": namespace})

    root = ask_instance(statedir, query)
    if as_json:
        print_json(root)
    elif sequence or owner or blobref:
        field = "rootseq" if sequence else "owner" if owner else "rootref"
        click.echo(root[field])
    else:
        click.echo(orjson.dumps(treeobj.dirref(root["rootref"])))


@click.command("readlink")
@statedir_option
@namespace_option
@at_option
@json_option
@click.option("-o", "--namespace-only", is_flag=True, help="Print the namespace alone.")
@click.option("-k", "--key-only", is_flag=True, help="Print the key alone.")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def readlink(
    statedir: StateDir,
    namespace: str,
    at: dict[str, Any] | None,
    as_json: bool,
    namespace_only: bool,
    key_only: bool,
    keys: tuple[str, ...],
) -> None:
    """Print the targets of links."""

    async def query(handle: "Handle") -> list[dict[str, Any]]:
        return [(await lookup(handle, namespace, key, READLINK, at))["data"] for key in keys]

    for data in ask_instance(statedir, query):
        target_namespace, target = data.get("namespace"), data["target"]
        if as_json:
            print_json(data)
        elif namespace_only:
            click.echo(target_namespace or "")
        else:
            click.echo(
                target if key_only or not target_namespace else f"{target_namespace}::{target}"
            )
