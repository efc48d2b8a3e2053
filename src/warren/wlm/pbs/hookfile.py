"""The hook as it comes with Warren: its file, the attributes it wants, and its configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import warren
from warren.base.errors import UserMistake
from warren.wlm.pbs import simulatedmom

NAME: Final = "cray_atom"
"""What the hook is called where it is registered. PBS keeps names with `PBS` before for itself."""

SHIPPED_HOOK: Final = "PBS_cray_atom"
"""What PBS calls the one that it brings along."""

_FILE_STEM: Final = "PBS_cray_atom"
"""The name of our hook's files, without the extension."""

_BEGINNING: Final = b'"""PBS_cray_atom: tell ATOM'
"""How the file begins, in whatever version."""


def _directory() -> Path:
    """Return the hook's files: beside the source, or installed with the program."""
    package = Path(warren.__file__).parent
    for directory in (package.parents[1] / "hooks" / "pbs", package / "hooks" / "pbs"):
        if (directory / f"{_FILE_STEM}.PY").exists():
            return directory
    raise UserMistake("The hook's files are not installed: install warren again.")


def path() -> Path:
    """Return the file of the hook."""
    return _directory() / f"{_FILE_STEM}.PY"


def source() -> bytes:
    return path().read_bytes()


def default_config() -> bytes:
    return (_directory() / f"{_FILE_STEM}.CF").read_bytes()


def attributes() -> Mapping[str, str]:
    """Return the attributes of the .HK file, but for the type, which PBS gives."""
    lines = (_directory() / f"{_FILE_STEM}.HK").read_text().split()
    pairs = dict(line.split("=", 1) for line in lines)
    del pairs["type"]
    return pairs


def is_ours(content: bytes) -> bool:
    """Return whether some hook's source is this hook, perhaps of another version."""
    return content.startswith(_BEGINNING)


def check_ours(content: bytes, name: str) -> None:
    """Raise UserMistake unless a hook is this one."""
    if not is_ours(content):
        raise UserMistake(f"The hook {name} is another one: choose a name with --name.")


def read_config(content: bytes, name: str) -> Mapping[str, Any]:
    """Read a configuration by the hook's own rules. Raises UserMistake with `name`.

    Also for what the hook would ignore, with a line in the log of every mom for every job.
    """
    try:
        config: Mapping[str, Any]
        config, ignored = _hook_globals()["parsed"](content.decode())
    except ValueError as error:
        raise UserMistake(f"{name} cannot be used: {error}.") from error
    if ignored:
        raise UserMistake(f"{name} says what the hook ignores: {'; '.join(ignored)}.")
    return config


def settings_for(config: Mapping[str, Any], node: str, vntype: str = "") -> Mapping[str, Any]:
    """Return what a configuration says for a node of a type, by the hook's own rules."""
    settings = _hook_globals()["resolved"](config, node, lambda: vntype.split(","))
    return dict(vars(settings))


def tables_over_alarm(config: Mapping[str, Any], alarm: float) -> list[str]:
    """Return the tables where a configuration allows requests more time than an alarm does.

    Tables are named by their path, and the top level "".
    """
    hook_globals = _hook_globals()
    usable_part, reserved_part = 1 - hook_globals["MARGIN"], hook_globals["RESERVE"]
    settings_by_table = {"": settings_for(config, "")}
    settings_by_table |= {
        f"nodes.{name}": settings_for(config, name) for name in config.get("nodes", {})
    }
    vnode_types = config.get("vn_type", {})
    settings_by_table |= {f"vn_type.{name}": settings_for(config, "", name) for name in vnode_types}

    return [
        table
        for table, settings in settings_by_table.items()
        # All that a begin may ask; and the last POST, which leaves time to be taken back.
        if 2 * (settings["post_timeout"] + settings["delete_timeout"]) > usable_part * alarm
        or 2 * settings["post_timeout"] + settings["delete_timeout"]
        > (usable_part - reserved_part) * alarm
    ]


def _hook_globals() -> Mapping[str, Any]:
    """Return what the hook's file defines: it is run for an event that is none of its own."""
    scenario = simulatedmom.Scenario(
        hook="", hook_name=NAME, event="", job=simulatedmom.JobFields(id="", euser="", place=None),
        node="", vnodes=None, config=None, alarm=1.0,
    )  # fmt: skip
    hook_run = simulatedmom.HookRun(scenario, lambda report: None)
    hook_run.run(simulatedmom.compile_hook(str(path())))
    return hook_run.globals
