"""What a job waits for: dependencies, as objects and as text (RFC 26).

As text a dependency is `scheme:value?key=value&key=value`; nothing in it is escaped.
Schemes of others are passed on unread: whether one is served is for the job manager.
"""

import json
import math
import re
from collections.abc import Mapping
from enum import Enum, auto
from reprlib import repr as brief
from typing import Any, Final

import msgspec

from warren.rfc import fluid
from warren.rfc.errors import BadFormat

MOST_DEPENDENCIES: Final = 1000
"""Dependencies of one job."""


class ValueKind(Enum):
    """What a scheme's value is."""

    JOB = auto()
    TIME = auto()
    NOTHING = auto()
    NAME = auto()


class Scheme(msgspec.Struct, frozen=True):
    """A scheme of the RFC, and how the job's eventlog describes a dependency of it.

    `description_format` takes the value; it is None for schemes that the RFC reserves and no plugin
    serves.
    """

    value_kind: ValueKind
    description_format: str | None


SCHEMES: Final[Mapping[str, Scheme]] = {
    "after": Scheme(ValueKind.JOB, "after-start={}"),
    "afterstart": Scheme(ValueKind.JOB, "after-start={}"),
    "afterany": Scheme(ValueKind.JOB, "after-finish={}"),
    "afterok": Scheme(ValueKind.JOB, "after-success={}"),
    "afternotok": Scheme(ValueKind.JOB, "after-failure={}"),
    "afterexcept": Scheme(ValueKind.JOB, "after-except={}"),
    "begin-time": Scheme(ValueKind.TIME, "begin-time={}"),
    "singleton": Scheme(ValueKind.NOTHING, "singleton"),
    "string": Scheme(ValueKind.NAME, None),
    "fluid": Scheme(ValueKind.NAME, None),
}
_OPENMP_OPTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "type": ("in", "out", "inout"),
    "scope": ("user", "global"),
}
_SCHEME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


class Dependency(msgspec.Struct, frozen=True):
    """One thing to wait for. `options` are the further keys of its object."""

    scheme: str
    value: str
    options: Mapping[str, Any] = msgspec.field(default_factory=dict)


def parse(text: str) -> Dependency:
    """Read the text form. A scheme that takes no value may stand alone: `singleton`.

    Raises BadFormat where it is none, or where a scheme of the RFC cannot have the value.
    """
    scheme, colon, rest = text.partition(":")
    known_scheme = SCHEMES.get(scheme)
    if not _SCHEME_PATTERN.fullmatch(scheme):
        raise BadFormat(f"dependency {brief(text)}: {scheme!r} at 0 is not a scheme")
    if not colon and (known_scheme is None or known_scheme.value_kind is not ValueKind.NOTHING):
        raise BadFormat(f"dependency {brief(text)}: a ':' is missing at {len(text)}")
    value, question_mark, query = rest.partition("?")
    options: dict[str, str] = {}
    position = len(scheme) + len(value) + 2
    for piece in re.split("[&;]", query) if question_mark else ():
        key, equals, option_value = piece.partition("=")
        if not key or not equals:
            raise BadFormat(
                f"dependency {brief(text)}: {brief(piece)} at {position} is not key=value"
            )
        if key in options or key in ("scheme", "value"):
            raise BadFormat(f"dependency {brief(text)}: {key!r} at {position} is given twice")
        options[key] = option_value
        position += len(piece) + 1
    parsed = Dependency(scheme, value, options)
    problem = _problem(parsed)
    if problem is not None:
        raise BadFormat(f"dependency {brief(text)}: {problem[1]}")
    return parsed


def to_text(dependency: Dependency) -> str:
    """Write the text form. Raises BadFormat for what has none, such as a value with a `?`."""
    pairs = [f"{key}={value}" for key, value in dependency.options.items()]
    written = f"{dependency.scheme}:{dependency.value}"
    if pairs:
        written += "?" + "&".join(pairs)
    if parse(written) != dependency:
        raise BadFormat(f"dependency {written!r}: the text means something else")
    return written


def decode(entry: Any, path: str = "dependency") -> Dependency:
    """Read the object form. Raises BadFormat with the path of the mistake."""
    _require(isinstance(entry, Mapping), path, "is not an object")
    for key in ("scheme", "value"):
        _require(key in entry, f"{path}.{key}", "is missing")
        _require(isinstance(entry[key], str), f"{path}.{key}", "is not a string")
    options = {key: value for key, value in entry.items() if key not in ("scheme", "value")}
    decoded = Dependency(entry["scheme"], entry["value"], options)
    problem = _problem(decoded)
    if problem is not None:
        raise BadFormat(f"{path}.{problem[0]}: {problem[1]}")
    return decoded


def encode(dependency: Dependency) -> dict[str, Any]:
    """Write the object form."""
    return {"scheme": dependency.scheme, "value": dependency.value, **dependency.options}


def decode_list(entries: Any, path: str = "dependencies") -> list[Dependency]:
    """Read the list in a jobspec. It is left out rather than empty, and has nothing twice.

    Raises BadFormat with the path of the mistake, which starts with `path`.
    """
    _require(isinstance(entries, list) and bool(entries), path,
             "is not a list of at least one dependency")  # fmt: skip
    _require(
        len(entries) <= MOST_DEPENDENCIES, path, f"holds more than {MOST_DEPENDENCIES} dependencies"
    )
    dependencies: list[Dependency] = []
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        decoded = decode(entry, f"{path}[{index}]")
        spelled = json.dumps(encode(decoded), sort_keys=True)
        _require(spelled not in seen, f"{path}[{index}]", "is there before")
        seen.add(spelled)
        dependencies.append(decoded)
    return dependencies


def description(dependency: Dependency) -> str:
    """Return the description for `dependency-add`: `after-success=ƒuZZybuNNy`.

    Raises BadFormat for a scheme that is not served.
    """
    scheme = SCHEMES.get(dependency.scheme)
    if scheme is None or scheme.description_format is None:
        raise BadFormat(f'dependency scheme "{dependency.scheme}" not supported')
    if scheme.value_kind is ValueKind.TIME:
        return scheme.description_format.format(f"{float(dependency.value):.3f}")
    return scheme.description_format.format(dependency.value)


def _problem(dependency: Dependency) -> tuple[str, str] | None:
    """Say which key is wrong, and how; None if the dependency is right."""
    scheme = SCHEMES.get(dependency.scheme)
    value_kind = None if scheme is None else scheme.value_kind
    value = dependency.value
    if not dependency.scheme:
        return "scheme", "it is empty"
    match value_kind:
        case ValueKind.JOB:
            try:
                fluid.parse(value)
            except BadFormat as error:
                return "value", str(error)
        case ValueKind.TIME if _parse_time(value) is None:
            return "value", f"{brief(value)} is not a time in seconds since the epoch"
        case ValueKind.NOTHING if value:
            return "value", f"{dependency.scheme} takes no value, not {brief(value)}"
        case ValueKind.NAME:
            return _openmp_problem(dependency)
    return None


def _openmp_problem(dependency: Dependency) -> tuple[str, str] | None:
    for key, choices in _OPENMP_OPTIONS.items():
        if dependency.options.get(key) not in choices:
            return key, f"{dependency.scheme} takes a {key} of {', '.join(choices)}"
    for key in dependency.options:
        if key not in _OPENMP_OPTIONS:
            return key, f"{dependency.scheme} has no {key}"
    return None


def _parse_time(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _require(condition: bool, path: str, problem: str) -> None:
    if not condition:
        raise BadFormat(f"{path} {problem}")
