"""Registering the hook with PBS: what is there, and what is still to be said to qmgr.

Decided from what PBS has, never from what was done before: an admin who is stopped in the middle
runs it again. A hook that is there keeps the attributes and the configuration that its
administrator gave it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from warren.base.errors import UserMistake
from warren.wlm.pbs import hookfile
from warren.wlm.pbs.qmgr import HOOK_NAME_PATTERN, Qmgr

BOTH_ENABLED: Final = (
    f"PBS's own hook {hookfile.SHIPPED_HOOK} is enabled, and jobs would be registered twice: run "
    f"qmgr -c 'set pbshook {hookfile.SHIPPED_HOOK} enabled=false'"
)


@dataclass(frozen=True, kw_only=True)
class RegisteredHook:
    """A hook as PBS has it."""

    attributes: Mapping[str, str]
    source: bytes
    config: bytes

    @property
    def enabled(self) -> bool:
        return self.attributes.get("enabled") == "true"


@dataclass(frozen=True)
class QmgrDirective:
    """A directive for qmgr, and what it reads with it."""

    command: str
    content: bytes = b""


def read_hook(qmgr: Qmgr, name: str) -> RegisteredHook | None:
    """Look at what PBS has under a name. Raises DirectiveRefused, and QmgrUnavailable."""
    attributes = qmgr.attributes("hook", name)
    if attributes is None:
        return None
    return RegisteredHook(
        attributes=attributes,
        source=qmgr.export("hook", name, "x-python"),
        config=qmgr.export("hook", name, "x-config"),
    )


def is_shipped_hook_enabled(qmgr: Qmgr) -> bool:
    """Return whether the hook that PBS brings along is enabled."""
    shipped = qmgr.attributes("pbshook", hookfile.SHIPPED_HOOK)
    return shipped is not None and shipped.get("enabled") == "true"


def check_shipped_hook_off(qmgr: Qmgr) -> None:
    """Raise UserMistake where PBS's own hook would register each job a second time."""
    if is_shipped_hook_enabled(qmgr):
        raise UserMistake(f"{BOTH_ENABLED} first.")


def check_name(name: str) -> None:
    """Raise UserMistake unless PBS would take a name for a hook of a site's."""
    if not HOOK_NAME_PATTERN.fullmatch(name):
        raise UserMistake(f"--name {name}: letters, digits, '_', '.' and '-' make a hook's name.")
    if name.startswith("PBS"):
        raise UserMistake(f"--name {name}: PBS keeps names that begin with PBS for its own hooks.")


def install_directives(
    name: str, registered: RegisteredHook | None, config: bytes | None, enable: bool | None
) -> list[QmgrDirective]:
    """Return what is still to be said. `config` and `enable` are None where nothing is asked for.

    Raises UserMistake where another hook has the name.
    """
    directives: list[QmgrDirective] = []
    # What was created and no more, by a command that was stopped, is not another's.
    is_unfinished = registered is None or not registered.source
    if registered is None:
        directives.append(QmgrDirective(f"create hook {name}"))
    elif not is_unfinished and not hookfile.is_ours(registered.source):
        raise UserMistake(
            f"A hook {name} is registered and is another one: choose a name with --name, or "
            "delete it."
        )
    if is_unfinished:
        directives += [
            QmgrDirective(f"set hook {name} {key}={_quote(value)}")
            for key, value in _install_order(hookfile.attributes())
        ]
        config = config if config is not None else hookfile.default_config()
    if config is not None and (registered is None or registered.config != config):
        directives.append(
            QmgrDirective(f"import hook {name} application/x-config default -", config)
        )
    source = hookfile.source()
    if registered is None or registered.source != source:
        directives.append(
            QmgrDirective(f"import hook {name} application/x-python default -", source)
        )
    enabled = registered is not None and registered.enabled and not is_unfinished
    if enable is not None and enable != enabled:
        directives.append(QmgrDirective(f"set hook {name} enabled={str(enable).lower()}"))
    return directives


def uninstall_directives(name: str, registered: RegisteredHook | None) -> list[QmgrDirective]:
    """Return what removes the hook: it is off before it is gone. Raises UserMistake."""
    if registered is None:
        return []
    if registered.source and not hookfile.is_ours(registered.source):
        raise UserMistake(f"The hook {name} is another one, and is left alone.")
    off = [QmgrDirective(f"set hook {name} enabled=false")] if registered.enabled else []
    return [*off, QmgrDirective(f"delete hook {name}")]


def _install_order(attributes: Mapping[str, str]) -> list[tuple[str, str]]:
    """Put first what PBS enables it with, then the events that its fail_action depends on."""
    first = ("enabled", "event")
    return sorted(attributes.items(), key=lambda pair: (pair[0] not in first, pair[0]))


def _quote(value: str) -> str:
    return f"'{value}'" if "," in value else value
