"""Copying in and out: what the paths of a directive name, and where each copy goes.

The path rules are those of NNF's data movement (dws-spec section 2.3, dws-spec section 11):
node-local storage has one copy for each allocation, and what comes back from several of
them is kept apart in index directories, `<rabbit>-<n>`.
"""

import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:  # the copier imports this module, and starts faster without the rest
    from warren.directives.parse import Directive
    from warren.dws.objects.lustrefilesystems import LustreFileSystem

COMMANDS: Final = ("copy_in", "copy_out")

STORAGE_ARGUMENT_BY_COMMAND: Final = {"copy_in": "destination", "copy_out": "source"}
"""The argument of each command that is a path in storage of the job."""

_STORAGE_PATTERN = re.compile(r"\$DW_(JOB|PERSISTENT)_([^/]+)(/.*)?")


class StagingPath(msgspec.Struct, frozen=True):
    """A source or destination: a path in a named storage, or a global path."""

    storage: str | None
    lifetime: str
    path: str


def parse(text: str) -> StagingPath:
    """Read a staging argument: `$DW_JOB_my_fs/a` is (`my-fs`, `/a`), anything else is global."""
    match = _STORAGE_PATTERN.fullmatch(text)
    if match is None:
        return StagingPath(None, "", text)
    return StagingPath(match[2].replace("_", "-"), match[1].lower(), match[3] or "")


_LIFETIME_BY_COMMAND: Final = {"jobdw": "job", "persistentdw": "persistent"}


def indexes_by_storage(directives: Sequence["Directive"]) -> dict[tuple[str, str], int]:
    """Return the indexes of the directives that name storage, by its lifetime and name."""
    return {
        (_LIFETIME_BY_COMMAND[directive.command.text], directive.values.get("name", "")): index
        for index, directive in enumerate(directives)
        if directive.command.text in _LIFETIME_BY_COMMAND
    }


def file_system_of(
    path: str, file_systems: Sequence["LustreFileSystem"]
) -> "LustreFileSystem | None":
    """Find the global file system that contains a path. `..` leads out of every one."""
    if ".." in path.split("/"):
        return None
    for file_system in file_systems:
        root = file_system.spec.mount_root.rstrip("/")
        if path == root or path.startswith(root + "/"):
            return file_system
    return None


def path_inside(root: str, path: str) -> str:
    """Return the path that `path` has under `root`, with a trailing slash, which means something.

    A path that climbs out with `..` stays inside.
    """
    cleaned = posixpath.normpath("/" + path.lstrip("/"))
    joined = root.rstrip("/") + ("" if cleaned == "/" else cleaned)
    return joined + "/" if path.endswith("/") else joined


class Plan(msgspec.Struct, frozen=True):
    """What a copy does: make the directory `top`, then copy `source` to `parts` below it.

    `top` is a path as the user names it, and may lead through links; `parts` are names, each in
    the directory before it, and the last is that of the copy. `contents_only` says that a
    directory's contents are meant, not the directory itself: all of `parts` are directories for
    them.
    """

    source: str
    top: str
    parts: tuple[str, ...]
    contents_only: bool


def plan(
    source: str,
    destination: str,
    *,
    source_is_file: bool,
    destination_is_file: bool,
    destination_is_directory: bool,
    index: str | None,
) -> Plan:
    """Decide where a copy goes. The facts are of the file systems, as the user sees them.

    `index` is the index directory of the source's allocation when it is node-local storage.
    """
    to_file = source_is_file and (
        destination_is_file or not (destination_is_directory or destination.endswith("/"))
    )
    top = posixpath.dirname(destination) if to_file else destination.rstrip("/") or "/"
    name = posixpath.basename(destination) if to_file else posixpath.basename(source.rstrip("/"))
    index_directories = (
        (index,) if index is not None and posixpath.basename(source) != index else ()
    )
    if source.endswith("/") and not source_is_file:
        return Plan(source, top, index_directories, contents_only=True)
    return Plan(source, top, (*index_directories, name), contents_only=False)
