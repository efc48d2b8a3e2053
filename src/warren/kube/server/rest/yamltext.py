"""YAML as the API reads it: one document that says what JSON could say.

What YAML has beyond that is refused, not converted: aliases, which let a short text stand for an
endless one; tags; keys that are lists or objects. Dates stay strings. Nothing here recurses, and
no step takes longer than its part of the text is long, so that other threads get their turns.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import yaml

_LOADER: Final[type[Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_STRING: Final = "tag:yaml.org,2002:str"
_NULL: Final = "tag:yaml.org,2002:null"
_BOOL: Final = "tag:yaml.org,2002:bool"
_INT: Final = "tag:yaml.org,2002:int"
_FLOAT: Final = "tag:yaml.org,2002:float"
_NUMBERS: Final = (_INT, _FLOAT)
_SCALARS: Final = frozenset({_STRING, "!", _NULL, _BOOL, *_NUMBERS})
_COLLECTIONS: Final = frozenset({"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})

_MAX_NUMBER_LENGTH: Final = 1000
"""Characters of a number. Reading one takes the square of its length."""


class Malformed(ValueError):
    """A text that is not YAML, or more than JSON can say."""


def load(data: bytes, *, max_depth: int) -> Any:
    """Return the value that a document stands for; None for an empty one.

    Raises Malformed, also where values are nested deeper than that many levels.
    """
    try:
        return _value(_events(data), max_depth)
    except yaml.YAMLError as error:
        raise Malformed(" ".join(str(error).split())) from error


def _events(data: bytes) -> Iterator[yaml.Event]:
    """Return the events between the start and the end of the only document."""
    documents = 0
    for event in yaml.parse(data, Loader=_LOADER):
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise Malformed(f"a second document begins in line {_line(event)}: send one")
            case yaml.NodeEvent() | yaml.CollectionEndEvent():
                yield event


def _value(events: Iterator[yaml.Event], max_depth: int) -> Any:
    roots: list[Any] = []
    open_collections: list[_OpenCollection] = [_OpenCollection(roots)]
    for event in events:
        match event:
            case yaml.AliasEvent():
                raise Malformed(
                    f"line {_line(event)} repeats *{event.anchor}: aliases are not read here, "
                    "write the value out"
                )
            case yaml.ScalarEvent():
                open_collections[-1].add(
                    event, event.value if open_collections[-1].at_key else _scalar(event)
                )
            case yaml.CollectionStartEvent():
                if len(open_collections) > max_depth:
                    raise Malformed(
                        f"in line {_line(event)} values are nested deeper than {max_depth} levels"
                    )
                if event.tag not in (None, "!", *_COLLECTIONS):
                    raise Malformed(f"line {_line(event)}: the tag {event.tag} is not read here")
                inner: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                open_collections[-1].add(event, inner)
                open_collections.append(_OpenCollection(inner))
            case yaml.CollectionEndEvent():
                open_collections.pop()
    return roots[0] if roots else None


class _OpenCollection:
    """A list or an object that is being read."""

    def __init__(self, into: Any) -> None:
        self._into = into
        self._key: str | None = None

    @property
    def at_key(self) -> bool:
        """Whether the key of an object comes next."""
        return isinstance(self._into, dict) and self._key is None

    def add(self, event: yaml.Event, value: Any) -> None:
        if isinstance(self._into, list):
            self._into.append(value)
        elif self._key is not None:
            self._into[self._key], self._key = value, None
        elif isinstance(value, str):
            self._key = value
        else:
            raise Malformed(f"line {_line(event)}: a key is a list or an object, not a string")


_implicit_resolvers: Final = yaml.SafeLoader.yaml_implicit_resolvers
_constructor: Final = yaml.constructor.SafeConstructor()


def _scalar(event: yaml.ScalarEvent) -> Any:
    """Read one value: what its tag says that it is, or what it looks like if it is plain."""
    text, tag = event.value, event.tag
    if tag is None:
        tag = _resolve_tag(text) if event.implicit[0] else _STRING
    if tag not in _SCALARS:
        raise Malformed(f"line {_line(event)}: the tag {tag} is not read here")
    node = yaml.ScalarNode(tag, text)
    try:
        match tag:
            case "tag:yaml.org,2002:null":
                return None
            case "tag:yaml.org,2002:bool":
                return _constructor.construct_yaml_bool(node)
            case "tag:yaml.org,2002:int" | "tag:yaml.org,2002:float":
                return _number(tag, node)
        return text
    except (KeyError, ValueError, IndexError, OverflowError):
        shown = repr(text if len(text) < 40 else f"{text[:40]}...")
        raise Malformed(f"line {_line(event)}: {shown} is no value that JSON can say") from None


def _resolve_tag(text: str) -> str:
    """Return what a plain scalar looks like; what only YAML has, as dates, is a string."""
    for tag, pattern in _implicit_resolvers.get(text[:1], ()):
        if tag in _SCALARS and pattern.match(text):
            return str(tag)
    return _STRING


def _number(tag: str, node: yaml.ScalarNode) -> int | float:
    """Read a number as JSON would: those beyond 64 bits are not exact.

    Raises ValueError, and OverflowError.
    """
    if len(node.value) > _MAX_NUMBER_LENGTH:
        raise ValueError(node.value)
    number: int | float = (
        _constructor.construct_yaml_int(node)
        if tag == _INT
        else _constructor.construct_yaml_float(node)
    )
    if isinstance(number, int) and -(2**63) <= number < 2**64:
        return number
    if not math.isfinite(float(number)):
        raise ValueError(node.value)
    return float(number)


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    return mark.line + 1 if mark is not None else 0
