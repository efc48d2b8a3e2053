"""Rules in CEL, which a definition may have, and which are not evaluated here (ADR 034). Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from warren.base.objects import Object

_RULES_KEYWORD: Final = "x-kubernetes-validations"
_SCHEMA_KEYWORDS: Final = ("items", "additionalProperties", "not")
_SCHEMA_LIST_KEYWORDS: Final = ("allOf", "anyOf", "oneOf")
_MAX_PATHS: Final = 3
"""How many paths a warning names: definitions of others have hundreds."""


def warnings(crd: Object) -> list[str]:
    """Return what the author of a definition is to be warned of."""
    paths = [*_rule_paths(crd)]
    if not paths:
        return []
    more_text = f" and {len(paths) - _MAX_PATHS} more" if len(paths) > _MAX_PATHS else ""
    return [
        f"{', '.join(paths[:_MAX_PATHS])}{more_text}: rules in CEL are not evaluated here: "
        "what they alone forbid is let in"
    ]


def _rule_paths(crd: Object) -> Iterator[str]:
    for number, version in enumerate(crd["spec"]["versions"]):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        yield from _paths_below(schema, f"spec.versions[{number}].schema.openAPIV3Schema")


def _paths_below(schema: Any, path: str) -> Iterator[str]:
    """Return the paths of rules in a schema, which is known to be one that can be served."""
    if not isinstance(schema, Mapping):
        return
    if schema.get(_RULES_KEYWORD):
        yield f"{path}.{_RULES_KEYWORD}"
    for key, inner in (schema.get("properties") or {}).items():
        yield from _paths_below(inner, f"{path}.properties[{key}]")
    for name in _SCHEMA_KEYWORDS:
        yield from _paths_below(schema.get(name), f"{path}.{name}")
    for name in _SCHEMA_LIST_KEYWORDS:
        for number, inner in enumerate(schema.get(name) or ()):
            yield from _paths_below(inner, f"{path}.{name}[{number}]")
