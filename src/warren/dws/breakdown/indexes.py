"""What DirectiveBreakdowns wait for: the names of instances and of profiles, as indexes."""

from collections.abc import Mapping

from warren.base.objects import Object
from warren.directives.diagnostics import Mistake
from warren.directives.parse import parse


def named_instance_keys(obj: Object) -> tuple[str, ...]:
    """Index DirectiveBreakdowns by the persistent storage that they name: `namespace/name`."""
    spec = obj.get("spec")
    text = spec.get("directive") if isinstance(spec, Mapping) else None
    if not isinstance(text, str) or "persistent" not in text:
        return ()
    try:
        directive = parse(text)
    except Mistake:
        return ()
    name = directive.values.get("name")
    if directive.command.text not in ("create_persistent", "persistentdw") or name is None:
        return ()
    return (f"{obj['metadata']['namespace']}/{name}",)


def named_profiles(obj: Object) -> tuple[str, ...]:
    """Index DirectiveBreakdowns that are not ready by the profile that they name.

    That is the empty name where they take the default. No others have use for events of a profile.
    """
    spec, status = obj.get("spec"), obj.get("status")
    text = spec.get("directive") if isinstance(spec, Mapping) else None
    ready = isinstance(status, Mapping) and status.get("ready")
    if not isinstance(text, str) or ready:
        return ()
    try:
        directive = parse(text)
    except Mistake:
        return ()
    if directive.command.text not in ("jobdw", "create_persistent"):
        return ()
    return (directive.values.get("profile", ""),)
