"""How configurations are written: TOML in tables of known keys, with lengths of time.

What a table says belongs to its reader. Here is only what all of them have in common.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import reduce
from operator import getitem
from typing import Any, Final, TypeVar, get_args

import msgspec
from msgspec.structs import fields

from warren.base.errors import UserMistake
from warren.directives.diagnostics import alternatives
from warren.rfc import duration
from warren.rfc.errors import BadFormat

T = TypeVar("T")

_PROBLEM_AT_PATH: Final = re.compile(r"(.*) - at (`key` in )?`\$\.(.*)`", re.DOTALL)
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class Table(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="kebab",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A table of a configuration. An unknown key is a mistake."""


Duration = str | float
"""A length of time: FSD, or a number of seconds."""


def seconds(value: Duration) -> float:
    """Return a length of time in seconds, perhaps infinitely many. Raises BadFormat."""
    if isinstance(value, str):
        return duration.parse(value)
    if not value >= 0:
        raise BadFormat(f"{value} is not a duration: it is a number of seconds of at least 0")
    return float(value)


def check_value(name: str, read: Callable[[T], object], value: T) -> None:
    """Raise ValueError, which msgspec tells with the path, unless `value` can be read."""
    try:
        read(value)
    except BadFormat as error:
        raise ValueError(f"{name}: {error}") from None


def check_durations(table: Table, *names: str) -> None:
    """Raise ValueError, which msgspec tells with the path, unless these are durations or None."""
    for name in names:
        value = getattr(table, name)
        if value is not None:
            check_value(name.replace("_", "-"), seconds, value)


def check_kill_timeout(kill_timeout: Duration) -> None:
    """Raise ValueError, which msgspec tells with the path, for processes without time to end."""
    if seconds(kill_timeout) == 0:
        raise ValueError("kill-timeout is 0: processes need a moment to end, make it longer")


def check_absolute(name: str, path: str | None) -> None:
    """Raise ValueError, which msgspec tells with the path, for a path that is relative."""
    if path is not None and not path.startswith("/"):
        raise ValueError(f"{name}: {path!r} is not an absolute path")


def parse(text: str, table_type: type[T], name: str) -> T:
    """Read a configuration as a `table_type`. Raises UserMistake with its `name`, and the path."""
    tables = decode(text, name)
    try:
        return msgspec.convert(tables, table_type)
    except msgspec.ValidationError as error:
        problem, path = explain(error, table_type, tables)
        raise UserMistake(f"{name}: {path}: {problem}." if path else f"{name}: {problem}.") from (
            error
        )


def decode(text: str, name: str) -> Mapping[str, Any]:
    """Read TOML. Raises UserMistake with the configuration's `name`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserMistake(f"{name} is not TOML: {error}.") from error
    except RecursionError:
        raise UserMistake(f"{name} is not TOML: it is nested too deep.") from None


def explain(
    error: msgspec.ValidationError, table_type: Any, tables: Mapping[str, Any] | None = None
) -> tuple[str, str]:
    """Return the problem, and the path, which msgspec names last and with a `$`.

    Of keys that a site chooses it says no more than `[...]`: they are found in the `tables`.
    """
    message = str(error)
    match = _PROBLEM_AT_PATH.fullmatch(message)
    if match is None:
        problem, path, of_key = message, "", False
    else:
        problem, path, of_key = match[1], match[3], match[2] is not None
    unknown = _UNKNOWN_FIELD.fullmatch(problem)
    if unknown is not None:
        known = _keys(table_type, path)
        close_matches = get_close_matches(unknown[1], known, n=1)
        hint = (
            f", but there is {close_matches[0]!r}"
            if close_matches
            else f": it is one of {alternatives(known)}"
        )
        problem = f"there is no key {unknown[1]!r} here{hint}"
    if of_key:
        problem = f"the key: {problem}"
    if tables is not None:
        path = _name_key(f"{path}[...]" if of_key else path, message, tables, table_type)
    return problem, path


def _name_key(path: str, message: str, tables: Any, table_type: Any) -> str:
    """Return a path with the first key of which msgspec says that, in place of `[...]`.

    `[...]` comes once at most: tables under keys of a site have no keys of a site.
    """
    before, placeholder, after = path.partition("[...]")
    if not placeholder:
        return path
    keys_before = before.split(".")
    site_keys = reduce(getitem, keys_before, tables)
    key = next(
        key
        for key in site_keys
        if _complaint(_keep_one_key(tables, keys_before, key), table_type) == message
    )
    return f"{before}.{key}{after}"


def _keep_one_key(tables: Mapping[str, Any], keys: Sequence[str], key: str) -> Mapping[str, Any]:
    """Return tables of which the one at a path has but one of its keys."""
    if not keys:
        return {key: tables[key]}
    head, *rest = keys
    return {**tables, head: _keep_one_key(tables[head], rest, key)}


def _complaint(tables: Any, table_type: Any) -> str | None:
    try:
        msgspec.convert(tables, table_type)
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _keys(table_type: Any, path: str) -> list[str]:
    """Return the keys that a table may have, at a path as msgspec writes it."""
    # Of several in a row, `[0]` or `[...]`, each is of the same kind.
    for name in filter(None, re.sub(r"\[[^]]*\]", "", path).split(".")):
        table_type = next(
            field.type for field in fields(_table(table_type)) if field.encode_name == name
        )
    return [field.encode_name for field in fields(_table(table_type))]


def _table(table_type: Any) -> Any:
    """Find the table in a type, which may be a list or a mapping of tables, or one or None."""
    if isinstance(table_type, type) and issubclass(table_type, msgspec.Struct):
        return table_type
    return next(filter(None, map(_table, get_args(table_type))), None)
