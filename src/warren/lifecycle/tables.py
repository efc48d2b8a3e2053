"""How configurations are written: TOML in tables of known keys, with lengths of time.

What a table says belongs to whoever reads it. Here is only what all of them have in common.
"""

import tomllib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from warren.base.errors import UserMistake
from warren.rfc import duration
from warren.rfc.errors import BadFormat

T = TypeVar("T")


class Table(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="kebab",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """A table of a configuration. A key that nobody knows is a mistake."""


Duration = str | float
"""A length of time: FSD, or a number of seconds."""


def seconds(value: Duration) -> float:
    """Give a length of time in seconds, perhaps infinitely many. Raises BadFormat."""
    if isinstance(value, str):
        return duration.parse(value)
    if not value >= 0:
        raise BadFormat(f"{value} is not a duration: it is a number of seconds of at least 0")
    return float(value)


def demand(name: str, read: Callable[[T], object], value: T) -> None:
    """Raise ValueError, which msgspec tells with the path, unless `value` can be read."""
    try:
        read(value)
    except BadFormat as error:
        raise ValueError(f"{name}: {error}") from None


def demand_durations(table: Table, *names: str) -> None:
    """Raise ValueError, which msgspec tells with the path, unless these are durations or None."""
    for name in names:
        value = getattr(table, name)
        if value is not None:
            demand(name.replace("_", "-"), seconds, value)


def parse(text: str, shape: type[T], name: str) -> T:
    """Read a configuration of a shape. Raises UserMistake with `name` and the path."""
    tables = decode(text, name)
    try:
        return msgspec.convert(tables, shape)
    except msgspec.ValidationError as error:
        problem, place = told(error)
        raise UserMistake(f"{name}: {place}: {problem}." if place else f"{name}: {problem}.") from (
            error
        )


def decode(text: str, name: str) -> Mapping[str, Any]:
    """Read TOML. Raises UserMistake with `name`."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserMistake(f"{name} is not TOML: {error}.") from error


def told(error: msgspec.ValidationError) -> tuple[str, str]:
    """Give the problem, and the path, which msgspec names last and with a `$`."""
    problem, _, path = str(error).partition(" - at `$.")
    return problem, path.removesuffix("`")
