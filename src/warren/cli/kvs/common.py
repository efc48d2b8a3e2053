"""What the commands of `warren kvs` have in common: their options, and what they ask."""

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, print_json
from warren.daemons.statedir import StateDir
from warren.rfc import treeobj
from warren.rfc.errors import BadFormat
from warren.rfc.kvsflags import TREEOBJ
from warren.rpc.message import RpcError

if TYPE_CHECKING:
    from warren.rpc.message import Handle

F = TypeVar("F", bound=Callable[..., Any])

NAMESPACE_VARIABLE: Final = "FLUX_KVS_NAMESPACE"
"""Names the namespace of a task's job."""


def namespace_option(command: F) -> F:
    """Add --namespace. Tasks have that of their job: what they write is no other job's concern."""
    return click.option("-N", "--namespace", default="primary", metavar="NAME",
                        envvar=NAMESPACE_VARIABLE,
                        help=f"The namespace of the keys (or {NAMESPACE_VARIABLE}).",
                        )(command)  # fmt: skip


def at_option(command: F) -> F:
    return click.option("-a", "--at", metavar="ROOT",
                        callback=lambda _ctx, _param, at: _parse_root(at),
                        help="Read the store as it was at ROOT: a blobref, or a tree object.",
                        )(command)  # fmt: skip


def _parse_root(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        return treeobj.decode(text) if text.startswith("{") else treeobj.dirref(
            treeobj.check_blobref(text)
        )  # fmt: skip
    except BadFormat as error:
        raise UserMistake(f"--at: {error}.") from error


# Asking


class RequestRefused(UserMistake):
    """What the instance refuses, with the key that it is about."""

    def __init__(self, about: str, error: RpcError) -> None:
        super().__init__(f"{about}: {error}")
        self.errnum = error.errnum


@contextmanager
def name_in_refusal(about: str) -> Iterator[None]:
    """Name what a request is about where it is refused."""
    try:
        yield
    except RpcError as error:
        if error.unserved:
            raise
        raise RequestRefused(about, error) from error


async def values(
    handle: "Handle", namespace: str, key: str, flags: int, at: dict[str, Any] | None
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the value of a key, and with flags of watches also later ones, as tree objects."""
    request = {"namespace": namespace, "key": key, "flags": flags}
    with name_in_refusal(key):
        if flags & ~TREEOBJ:
            answers = handle.stream("kvs-watch.lookup", request)
            async with aclosing(answers) as watching:  # type: ignore[type-var]
                async for answer in watching:
                    yield answer["val"]
        else:
            yield await lookup(handle, namespace, key, flags, at)


async def lookup(
    handle: "Handle", namespace: str, key: str, flags: int, at: dict[str, Any] | None = None
) -> dict[str, Any]:
    request: dict[str, Any] = {"namespace": namespace, "key": key, "flags": flags}
    if at is not None:
        request["rootdir"] = at
    with name_in_refusal(key):
        value: dict[str, Any] = (await handle.rpc("kvs.lookup", request))["val"]
    return value


def operation(key: str, dirent: Mapping[str, Any] | None, flags: int = 0) -> dict[str, Any]:
    """Return an operation of a commit; a `dirent` of None removes the key."""
    return {"key": key, "flags": flags, "dirent": dirent}


def commit(
    statedir: StateDir,
    namespace: str,
    operations: Sequence[Mapping[str, Any]],
    as_json: bool = False,
    *,
    print_blobref: bool = False,
    print_sequence: bool = False,
) -> None:
    """Commit operations, and print the new root as it is asked for."""
    request = {"namespace": namespace, "ops": operations, "rootref": print_blobref}

    async def send(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("kvs.commit", request)

    answer = ask_instance(statedir, send)
    if as_json:
        print_json(answer)
    elif print_blobref:
        click.echo(answer["rootref"])
    elif print_sequence:
        click.echo(answer["rootseq"])
