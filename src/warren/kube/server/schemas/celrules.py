"""Rules in CEL, which a definition may have, and which are not evaluated here (ADR 034). Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from warren.base.objects import Object

_RULES: Final = "x-kubernetes-validations"
_SINGLE: Final = ("items", "additionalProperties", "not")
_LISTED: Final = ("allOf", "anyOf", "oneOf")
_MOST_PLACES: Final = 3
"""How many places a warning names: definitions of others have hundreds."""


def warnings(crd: Object) -> list[str]:
    """Return what the author of a definition is to be warned of."""
    places = [*_places(crd)]
    if not places:
        return []
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    return [
        f"{', '.join(places[:_MOST_PLACES])}{more}: rules in CEL are not evaluated here: "
        "what they alone forbid is let in"
    ]


def _places(crd: Object) -> Iterator[str]:
    for number, version in enumerate(crd["spec"]["versions"]):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        yield from _below(schema, f"spec.versions[{number}].schema.openAPIV3Schema")


def _below(schema: Any, where: str) -> Iterator[str]:
    """Return the places of rules in a schema, which is known to be one that can be served."""
    if not isinstance(schema, Mapping):
        return
    if schema.get(_RULES):
        yield f"{where}.{_RULES}"
    for key, inner in (schema.get("properties") or {}).items():
        yield from _below(inner, f"{where}.properties[{key}]")
    for name in _SINGLE:
        yield from _below(schema.get(name), f"{where}.{name}")
    for name in _LISTED:
        for number, inner in enumerate(schema.get(name) or ()):
            yield from _below(inner, f"{where}.{name}[{number}]")
