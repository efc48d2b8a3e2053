"""`warren kvs`: look into the key-value store of the instance, and change it."""

import errno
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import orjson

from warren.base.clock import SystemClock
from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, json_option, print_json, print_table, statedir_option
from warren.daemons.statedir import StateDir
from warren.rfc import eventlog as eventlogs
from warren.rfc import treeobj
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rpc.message import RpcError

if TYPE_CHECKING:
    from warren.rpc.message import Handle

F = TypeVar("F", bound=Callable[..., Any])

_READDIR: Final = 1
_READLINK: Final = 2
_WATCH: Final = 4
_WAITCREATE: Final = 8
_TREEOBJ: Final = 16
_TXN_APPEND: Final = 32
_FULL: Final = 64
_UNIQ: Final = 128
_APPEND: Final = 256
_STREAM: Final = 512


def _namespace_option(command: F) -> F:
    return click.option("-N", "--namespace", "space", default="primary", metavar="NAME",
                        help="The namespace of the keys.")(command)  # fmt: skip


def _at_option(command: F) -> F:
    return click.option("-a", "--at", metavar="ROOT", callback=lambda _ctx, _param, at: _root(at),
                        help="As things were at a root: a blobref, or a tree object.",
                        )(command)  # fmt: skip


def _root(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return treeobj.decode(text) if text.startswith("{") else treeobj.dirref(
            treeobj.check_blobref(text)
        )  # fmt: skip
    except BadFormat as error:
        raise UserMistake(f"--at: {error}.") from error


@click.group()
def kvs() -> None:
    """Read and write the key-value store.

    Keys are names with dots between them; . is the root. A job is at job.JOBID.
    """


@kvs.command("get")
@statedir_option
@_namespace_option
@_at_option
@json_option
@click.option("-t", "--treeobj", "as_object", is_flag=True, help="The tree object of the key.")
@click.option("-r", "--raw", is_flag=True, help="The bytes of the value, and nothing after them.")
@click.option("-l", "--label", is_flag=True, help="KEY= before each value.")
@click.option("-w", "--watch", is_flag=True, help="Again, whenever it is written.")
@click.option("-W", "--waitcreate", is_flag=True, help="Wait for a key that is not there.")
@click.option("-u", "--uniq", is_flag=True, help="With --watch: only what is new.")
@click.option("-f", "--full", is_flag=True, help="With --watch: whatever it changes by.")
@click.option("-A", "--append", is_flag=True, help="With --watch: only what is appended.")
@click.option("-S", "--stream", is_flag=True, help="Long values in parts.")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="End after N values.")
@click.argument("names", nargs=-1, required=True, metavar="KEY...")
def get(
    state: StateDir,
    space: str,
    at: dict[str, Any] | None,
    as_json: bool,
    as_object: bool,
    raw: bool,
    label: bool,
    count: int | None,
    names: tuple[str, ...],
    **chosen: bool,
) -> None:
    """Print values."""
    ways = {"watch": _WATCH, "waitcreate": _WAITCREATE, "uniq": _UNIQ, "full": _FULL,
            "append": _APPEND, "stream": _STREAM}  # fmt: skip
    flags = sum(flag for way, flag in ways.items() if chosen[way])
    if flags and at is not None:
        raise click.UsageError("--at is of the past: there is nothing to wait for.")
    if flags & (_UNIQ | _FULL | _APPEND) and not flags & _WATCH:
        raise click.UsageError("--uniq, --full and --append are ways to --watch.")
    if len(names) > 1 and flags & _WATCH:
        raise click.UsageError("--watch takes one key.")
    if as_object:
        flags |= _TREEOBJ

    async def shown(handle: "Handle") -> None:
        for key in names:
            left = count
            async with aclosing(_values(handle, space, key, flags, at)) as values:
                async for found in values:
                    _show(key, found, as_object=as_object, as_json=as_json, raw=raw, label=label)
                    left = left and left - 1
                    if left == 0:
                        break

    ask_instance(state, shown)


async def _values(
    handle: "Handle", space: str, key: str, flags: int, at: dict[str, Any] | None
) -> AsyncGenerator[dict[str, Any], None]:
    request = {"namespace": space, "key": key, "flags": flags}
    with _about(key):
        if flags & ~_TREEOBJ:
            answers = handle.stream("kvs-watch.lookup", request)
            async with aclosing(answers) as watching:  # type: ignore[type-var]
                async for answer in watching:
                    yield answer["val"]
        else:
            yield await _lookup(handle, space, key, flags, at)


async def _lookup(
    handle: "Handle", space: str, key: str, flags: int, at: dict[str, Any] | None = None
) -> dict[str, Any]:
    request: dict[str, Any] = {"namespace": space, "key": key, "flags": flags}
    if at is not None:
        request["rootdir"] = at
    with _about(key):
        found: dict[str, Any] = (await handle.rpc("kvs.lookup", request))["val"]
    return found


def _show(
    key: str, found: dict[str, Any], *, as_object: bool, as_json: bool, raw: bool, label: bool
) -> None:
    value = orjson.dumps(found) if as_object else treeobj.read_val(found)
    if as_json:
        print_json({"key": key, "value": found if as_object else _text(value)})
    else:
        end = b"" if raw or value.endswith(b"\n") else b"\n"
        sys.stdout.buffer.write((f"{key}=".encode() if label else b"") + value + end)
        sys.stdout.buffer.flush()


def _text(value: bytes) -> str:
    return value.decode(errors="replace")


@kvs.command("put")
@statedir_option
@_namespace_option
@json_option
@click.option("-a", "-A", "--append", is_flag=True, help="Add to what is there.")
@click.option("-t", "--treeobj", "as_object", is_flag=True, help="Values are tree objects.")
@click.option("-r", "--raw", is_flag=True, help="Values are taken as they are, as always.")
@click.option("-b", "--blobref", is_flag=True, help="Print the new root.")
@click.option("-s", "--sequence", is_flag=True, help="Print the new version.")
@click.argument("pairs", nargs=-1, required=True, metavar="KEY=VALUE...")
def put(
    state: StateDir,
    space: str,
    as_json: bool,
    append: bool,
    as_object: bool,
    raw: bool,
    blobref: bool,
    sequence: bool,
    pairs: tuple[str, ...],
) -> None:
    """Set values, all of them or none; a value - is read from standard input."""
    steps = []
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.UsageError(f"{pair!r} is not KEY=VALUE.")
        data = sys.stdin.buffer.read() if value == "-" else value.encode(errors="surrogateescape")
        dirent = _object(data) if as_object else treeobj.val(data)
        steps.append(_step(key, dirent, _TXN_APPEND if append else 0))
    _commit(state, space, steps, as_json, blobref=blobref, sequence=sequence)


def _object(data: bytes) -> dict[str, Any]:
    try:
        return treeobj.decode(data)
    except BadFormat as error:
        raise UserMistake(f"{error}.") from error


def _step(key: str, dirent: Mapping[str, Any] | None, flags: int = 0) -> dict[str, Any]:
    return {"key": key, "flags": flags, "dirent": dirent}


def _commit(
    state: StateDir,
    space: str,
    steps: Sequence[Mapping[str, Any]],
    as_json: bool = False,
    *,
    blobref: bool = False,
    sequence: bool = False,
) -> None:
    request = {"namespace": space, "ops": steps, "rootref": blobref}

    async def committed(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("kvs.commit", request)

    answer = ask_instance(state, committed)
    if as_json:
        print_json(answer)
    elif blobref:
        click.echo(answer["rootref"])
    elif sequence:
        click.echo(answer["rootseq"])


@kvs.command("ls")
@statedir_option
@_namespace_option
@json_option
@click.option("-R", "--recursive", is_flag=True, help="What is below directories, too.")
@click.option("-d", "--directory", is_flag=True, help="Directories themselves, not what they hold.")
@click.option("-F", "--classify", is_flag=True, help="A . after directories, an @ after links.")
@click.option("-1", "one", is_flag=True, help="One name on a line, as always.")
@click.argument("names", nargs=-1, metavar="[KEY]...")
def ls(
    state: StateDir,
    space: str,
    as_json: bool,
    recursive: bool,
    directory: bool,
    classify: bool,
    one: bool,
    names: tuple[str, ...],
) -> None:
    """List the names in directories."""
    marks = {"dir": ".", "symlink": "@"} if classify else {}

    async def listed(handle: "Handle") -> list[tuple[str, str, str]]:
        found = []
        for key in names or (".",):
            async for place, name, kind in _entries(handle, space, key, recursive, directory):
                found.append((place, name, kind))
        return found

    found = ask_instance(state, listed)
    if as_json:
        print_json([{"key": _joined(place, name), "type": kind} for place, name, kind in found])
        return
    for place, name, kind in found:
        click.echo((_joined(place, name) if recursive else name) + marks.get(kind, ""))


async def _entries(
    handle: "Handle", space: str, key: str, recursive: bool = False, itself: bool = False
) -> AsyncIterator[tuple[str, str, str]]:
    """Give what is at a key: the directory that it is in, its name, and what it is."""
    request = {"namespace": space, "key": key}
    try:
        with _about(key):
            entries = (await handle.rpc("kvs.list", request))["entries"]
    except _Refused as refused:
        if refused.errnum != errno.ENOTDIR:
            raise
        kind = (await _lookup(handle, space, key, _TREEOBJ))["type"]
        yield "", key, "symlink" if kind == "symlink" else "val"
        return
    if itself:
        yield "", key, "dir"
        return
    place = "" if key == "." else key
    for name, kind in entries.items():
        yield place, name, kind
        if recursive and kind == "dir":
            async for each in _entries(handle, space, _joined(place, name), recursive):
                yield each


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


@kvs.command("dir")
@statedir_option
@_namespace_option
@_at_option
@json_option
@click.option("-R", "--recursive", is_flag=True, help="What is below directories, too.")
@click.option("-d", "--directory", is_flag=True, help="Keys, without their values.")
@click.argument("key", default=".")
def dir_(
    state: StateDir,
    space: str,
    at: dict[str, Any] | None,
    as_json: bool,
    recursive: bool,
    directory: bool,
    key: str,
) -> None:
    """Print the keys and values in a directory."""

    async def told(handle: "Handle") -> list[tuple[str, str, str]]:
        return [each async for each in lines(handle, "" if key == "." else key)]

    async def lines(handle: "Handle", place: str) -> AsyncIterator[tuple[str, str, str]]:
        listed = await _lookup(handle, space, place or ".", _READDIR, at)
        for name, obj in sorted(listed["data"].items()):
            below = _joined(place, name)
            if obj["type"] in ("dir", "dirref"):
                yield below, "dir", ""
                if recursive:
                    async for each in lines(handle, below):
                        yield each
            elif obj["type"] == "symlink":
                elsewhere = obj["data"].get("namespace")
                target = obj["data"]["target"]
                yield below, "symlink", f"{elsewhere}::{target}" if elsewhere else target
            else:
                found = None if directory else await _lookup(handle, space, below, 0, at)
                yield below, "val", _text(treeobj.read_val(found)) if found else ""

    found = ask_instance(state, told)
    if as_json:
        print_json([{"key": each, "type": kind, "value": value} for each, kind, value in found])
        return
    for each, kind, value in found:
        if kind == "dir":
            click.echo(f"{each}.")
        elif kind == "symlink":
            click.echo(f"{each} -> {value}")
        else:
            click.echo(each if directory else f"{each} = {value.rstrip()}")


@kvs.command("getroot")
@statedir_option
@_namespace_option
@json_option
@click.option("-s", "--sequence", is_flag=True, help="The version alone.")
@click.option("-o", "--owner", is_flag=True, help="The owner alone.")
@click.option("-b", "--blobref", is_flag=True, help="The blobref alone.")
def getroot(
    state: StateDir, space: str, as_json: bool, sequence: bool, owner: bool, blobref: bool
) -> None:
    """Print the root of a namespace, as a tree object."""

    async def asked(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("kvs.getroot", {"namespace": space})

    found = ask_instance(state, asked)
    if as_json:
        print_json(found)
    elif sequence or owner or blobref:
        shown = "rootseq" if sequence else "owner" if owner else "rootref"
        click.echo(found[shown])
    else:
        click.echo(orjson.dumps(treeobj.dirref(found["rootref"])))


@kvs.command("readlink")
@statedir_option
@_namespace_option
@_at_option
@json_option
@click.option("-o", "--namespace-only", is_flag=True, help="The namespace alone.")
@click.option("-k", "--key-only", is_flag=True, help="The key alone.")
@click.argument("names", nargs=-1, required=True, metavar="KEY...")
def readlink(
    state: StateDir,
    space: str,
    at: dict[str, Any] | None,
    as_json: bool,
    namespace_only: bool,
    key_only: bool,
    names: tuple[str, ...],
) -> None:
    """Print where links lead."""

    async def asked(handle: "Handle") -> list[dict[str, Any]]:
        return [(await _lookup(handle, space, key, _READLINK, at))["data"] for key in names]

    for data in ask_instance(state, asked):
        elsewhere, target = data.get("namespace"), data["target"]
        if as_json:
            print_json(data)
        elif namespace_only:
            click.echo(elsewhere or "")
        else:
            click.echo(target if key_only or not elsewhere else f"{elsewhere}::{target}")


@kvs.command("link")
@statedir_option
@_namespace_option
@click.option("-T", "--target-namespace", "elsewhere", metavar="NAME", help="Of the target.")
@click.argument("target")
@click.argument("linkname")
def link(state: StateDir, space: str, elsewhere: str | None, target: str, linkname: str) -> None:
    """Let the key LINKNAME lead to the key TARGET."""
    _commit(state, space, [_step(linkname, treeobj.symlink(target, elsewhere))])


@kvs.command("unlink")
@statedir_option
@_namespace_option
@click.option("-R", "--recursive", is_flag=True, help="Directories with all that they hold.")
@click.option("-f", "--force", is_flag=True, help="Pass over keys that are not there.")
@click.argument("names", nargs=-1, required=True, metavar="KEY...")
def unlink(
    state: StateDir, space: str, recursive: bool, force: bool, names: tuple[str, ...]
) -> None:
    """Remove keys."""

    async def removed(handle: "Handle") -> None:
        steps = []
        for key in names:
            try:
                found = await _lookup(handle, space, key, _TREEOBJ)
            except _Refused as refused:
                if force and refused.errnum == errno.ENOENT:
                    continue
                raise
            if found["type"] in ("dir", "dirref") and not recursive:
                entries = await handle.rpc("kvs.list", {"namespace": space, "key": key})
                if entries["entries"]:
                    raise UserMistake(f"{key} is a directory that is not empty: add -R.")
            steps.append(_step(key, None))
        await handle.rpc("kvs.commit", {"namespace": space, "ops": steps, "rootref": False})

    ask_instance(state, removed)


@kvs.command("mkdir")
@statedir_option
@_namespace_option
@click.argument("names", nargs=-1, required=True, metavar="KEY...")
def mkdir(state: StateDir, space: str, names: tuple[str, ...]) -> None:
    """Make empty directories."""
    _commit(state, space, [_step(key, treeobj.directory({})) for key in names])


@kvs.group("namespace")
def namespace() -> None:
    """Make, list and remove namespaces."""


@namespace.command("create")
@statedir_option
@click.option("-o", "--owner", type=click.IntRange(0), metavar="UID", help="Who may use it.")
@click.option("-r", "--rootref", metavar="BLOBREF", help="A directory that it begins with.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def namespace_create(
    state: StateDir, owner: int | None, rootref: str | None, names: tuple[str, ...]
) -> None:
    """Make namespaces."""
    chosen = {"owner": owner, "rootref": rootref}
    more = {name: value for name, value in chosen.items() if value is not None}

    async def made(handle: "Handle") -> None:
        for name in names:
            with _about(name):
                await handle.rpc("kvs.namespace-create", {"namespace": name, "flags": 0, **more})

    ask_instance(state, made)


@namespace.command("remove")
@statedir_option
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def namespace_remove(state: StateDir, names: tuple[str, ...]) -> None:
    """Remove namespaces with all that they hold."""

    async def removed(handle: "Handle") -> None:
        for name in names:
            with _about(name):
                await handle.rpc("kvs.namespace-remove", {"namespace": name})

    ask_instance(state, removed)


@namespace.command("list")
@statedir_option
@json_option
def namespace_list(state: StateDir, as_json: bool) -> None:
    """List the namespaces that you may use."""

    async def asked(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("kvs.namespace-list")

    found = ask_instance(state, asked)
    if as_json:
        print_json(found)
        return
    rows = [(each["namespace"], each["owner"], f"0x{each['flags']:08x}")
            for each in found["namespaces"]]  # fmt: skip
    print_table(("NAMESPACE", "OWNER", "FLAGS"), rows, right="OWNER FLAGS")


@kvs.group("eventlog")
def eventlog() -> None:
    """Read eventlogs, and append to them."""


@eventlog.command("get")
@statedir_option
@_namespace_option
@json_option
@click.option("-w", "--watch", is_flag=True, help="What is appended from now on, too.")
@click.option("-W", "--waitcreate", is_flag=True, help="Wait for a log that is not there.")
@click.option("-u", "--unformatted", is_flag=True, help="The events as they are stored.")
@click.option("-c", "--count", type=click.IntRange(1), metavar="N", help="End after N events.")
@click.argument("key")
def eventlog_get(
    state: StateDir,
    space: str,
    as_json: bool,
    watch: bool,
    waitcreate: bool,
    unformatted: bool,
    count: int | None,
    key: str,
) -> None:
    """Print the events of a log."""
    flags = _STREAM | (_WATCH | _APPEND if watch else 0) | (_WAITCREATE if waitcreate else 0)

    async def told(handle: "Handle") -> None:
        told, left = 0, b""
        async with aclosing(_values(handle, space, key, flags, None)) as values:
            async for found in values:
                *lines, left = (left + treeobj.read_val(found)).split(b"\n")
                for line in lines:
                    click.echo(_line(line.decode(), as_stored=unformatted or as_json))
                    told += 1
                    if told == count:
                        return

    ask_instance(state, told)


def _line(text: str, *, as_stored: bool) -> str:
    try:
        event = eventlogs.decode_line(text)
    except BadFormat as error:
        raise UserMistake(f"{error}.") from error
    if as_stored:
        return text
    context = "".join(
        f" {name}={orjson.dumps(value).decode()}" for name, value in event.context.items()
    )
    return f"{event.timestamp:.6f} {event.name}{context}"


@eventlog.command("append")
@statedir_option
@_namespace_option
@click.option("-t", "--timestamp", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="When it happened, if not now.")  # fmt: skip
@click.argument("key")
@click.argument("name")
@click.argument("context", nargs=-1)
def eventlog_append(
    state: StateDir,
    space: str,
    timestamp: float | None,
    key: str,
    name: str,
    context: tuple[str, ...],
) -> None:
    """Append an event to a log. CONTEXT is a JSON object."""
    try:
        read = orjson.loads(" ".join(context)) if context else {}
        if not isinstance(read, dict):
            raise UserMistake("The context of an event is a JSON object.")
        moment = SystemClock().now() if timestamp is None else timestamp
        text = eventlogs.encode(Event(moment, name, read))
        eventlogs.decode(text)
    except orjson.JSONDecodeError as error:
        raise UserMistake(f"The context is not JSON: {error}.") from error
    except BadFormat as error:
        raise UserMistake(f"{error}.") from error
    _commit(state, space, [_step(key, treeobj.val(text.encode()), _TXN_APPEND)])


# Asking


class _Refused(UserMistake):
    """What the instance refuses, with the key that it is about."""

    def __init__(self, about: str, error: RpcError) -> None:
        super().__init__(f"{about}: {error}")
        self.errnum = error.errnum


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Name what a request is about where it is refused."""
    try:
        yield
    except RpcError as error:
        if error.lost:
            raise
        raise _Refused(what, error) from error
