"""Whether the hook can do its work: what the server has, and what this node has."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.rpc import sockets
from warren.wlm.pbs import hookfile, hooksetup, qmgr
from warren.wlm.pbs.hooksetup import RegisteredHook
from warren.wlm.pbs.qmgr import Qmgr, QmgrUnavailable

_TIMEOUT: Final = 30.0


@dataclass(frozen=True)
class Check:
    """One thing that must be so, whether it is, and in words what is or what to do."""

    name: str
    met: bool | None
    """None where that cannot be told from here."""
    message: str


def check_server(name: str) -> Iterator[Check]:
    """Look at what PBS's server has: the hook, and what stands in its way."""
    try:
        server = Qmgr()
        hook = hooksetup.read_hook(server, name)
    except QmgrUnavailable as reason:
        yield Check("server", None, str(reason))
        return
    except UserMistake as mistake:
        yield Check("server", False, str(mistake))
        return
    if hook is None:
        yield Check("hook", False, f"no hook {name} is registered: run 'warren pbs install'")
        return
    yield from check_hook(name, hook)
    both_enabled = hook.enabled and hooksetup.is_shipped_hook_enabled(server)
    message = (
        f"{hooksetup.BOTH_ENABLED}."
        if both_enabled
        else f"PBS's own {hookfile.SHIPPED_HOOK} is not in the way"
    )
    yield Check("shipped hook", not both_enabled, message)
    yield from _check_vnodes(name)


def check_hook(name: str, hook: RegisteredHook) -> Iterator[Check]:
    """Judge a hook as it is registered. Pure."""
    if not hookfile.is_ours(hook.source):
        yield Check("hook", False, f"the hook {name} is another one: choose a name with --name")
        return
    yield Check(
        "hook",
        hook.enabled,
        f"{name} is enabled"
        if hook.enabled
        else f"{name} is registered, but not enabled: run 'warren pbs install --enable'",
    )
    is_current = hook.source == hookfile.source()
    yield Check(
        "source",
        is_current,
        "as it comes with this Warren"
        if is_current
        else "of another version than this Warren's: run 'warren pbs install'",
    )
    yield from _check_attributes(hook.attributes)
    try:
        config = hookfile.read_config(hook.config or b"{}", "the configuration")
    except UserMistake as mistake:
        yield Check("configuration", False, str(mistake))
        return
    yield Check("configuration", True, "valid")
    yield _check_alarm(hook.attributes, config)


def _check_attributes(registered: Mapping[str, str]) -> Iterator[Check]:
    wanted = hookfile.attributes()
    events = set(registered.get("event", "").replace(" ", "").split(","))
    missing = sorted(set(wanted["event"].split(",")) - events)
    yield Check(
        "events",
        not missing,
        wanted["event"] if not missing else f"{', '.join(missing)} missing: set event again",
    )
    user = registered.get("user", "")
    yield Check(
        "user",
        user == wanted["user"],
        user if user == wanted["user"] else f"{user}: ATOM answers root; set user={wanted['user']}",
    )
    takes_offline = "offline_vnodes" in registered.get("fail_action", "")
    yield Check(
        "fail_action",
        takes_offline,
        "offline_vnodes"
        if takes_offline
        else "a job that cannot begin on a node would be sent there again and again: set "
        "fail_action=offline_vnodes",
    )


def _check_alarm(attributes: Mapping[str, str], config: Mapping[str, Any]) -> Check:
    """Judge whether the alarm leaves the time that the requests of a begin may take."""
    alarm = float(attributes.get("alarm", "30"))
    tables_cut_short = hookfile.tables_over_alarm(config, alarm)
    if not tables_cut_short:
        return Check("alarm", True, f"{alarm:g} s, time for all requests of a begin")
    text = ", ".join(table or "all nodes" for table in tables_cut_short)
    return Check(
        "alarm",
        False,
        f"{alarm:g} s is too short for two POSTs and two DELETEs ({text}), which are cut short: "
        "raise alarm, or lower post_timeout and delete_timeout",
    )


def _check_vnodes(name: str) -> Iterator[Check]:
    """Name the vnodes that the hook has taken offline."""
    try:
        pbsnodes = qmgr.program("pbsnodes")
    except QmgrUnavailable as reason:
        yield Check("nodes", None, str(reason))
        return
    try:
        result = subprocess.run(
            [pbsnodes, "-a", "-F", "json"],
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
        nodes: Mapping[str, Mapping[str, Any]] = json.loads(result.stdout)["nodes"]
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError, TypeError) as error:
        yield Check("nodes", None, f"pbsnodes does not tell: {error}")
        return
    our_comment = f"offlined by hook '{name}'"
    offline = sorted(
        vnode
        for vnode, reported in nodes.items()
        if our_comment in str(reported.get("comment", ""))
    )
    yield Check(
        "nodes",
        not offline,
        "none is offline because of the hook"
        if not offline
        else f"offline because of the hook: {', '.join(offline)}. Their moms' logs say why; then "
        "run pbsnodes -r -C '' NODE",
    )


@dataclass(frozen=True, kw_only=True)
class HookOnMom:
    """What the mom of this node has of the hook."""

    file: Path
    config_file: Path | None


def hook_on_mom(name: str) -> HookOnMom | None:
    """Find the hook as the mom here has it; None without a mom, or without the hook."""
    home = qmgr.pbs_conf().get("PBS_HOME", "/var/spool/pbs")
    directory = Path(home, "mom_priv", "hooks")
    file, config_file = directory / f"{name}.PY", directory / f"{name}.CF"
    try:
        if not file.exists():
            return None
        return HookOnMom(file=file, config_file=config_file if config_file.exists() else None)
    except PermissionError:
        raise UserMistake(f"{directory} cannot be read: root can.") from None


def check_node(name: str) -> Iterator[Check]:
    """Look at this node, if it has a mom: the hook's copy, and ATOM's socket."""
    directory = Path(qmgr.pbs_conf().get("PBS_HOME", "/var/spool/pbs"), "mom_priv")
    try:
        if not directory.is_dir():
            return
        hook = hook_on_mom(name)
        hook_text = hook.file.read_bytes() if hook else b""
        config_text = hook.config_file.read_bytes() if hook and hook.config_file else b"{}"
    except (PermissionError, UserMistake):
        yield Check("mom", False, f"{directory} cannot be read: root can")
        return
    if hook is None:
        yield Check("mom", False, f"the mom of this node does not have the hook {name}")
        return
    is_current = hook_text == hookfile.source()
    yield Check(
        "mom",
        is_current,
        "has the hook as it comes with this Warren"
        if is_current
        else "has another version of the hook",
    )
    try:
        config = hookfile.read_config(config_text, str(hook.config_file))
    except UserMistake as mistake:
        yield Check("mom's configuration", False, str(mistake))
        return
    if "vn_type" in config:
        message = "where it is depends on the vnode's vntype: see warren pbs test --vntype TYPE"
        yield Check("ATOM", None, message)
    else:
        yield check_socket(hookfile.settings_for(config, qmgr.node_name())["unix_socket_file"])


def check_socket(path: Any) -> Check:
    """Judge whether ATOM can be asked at a path."""
    if path is None:
        return Check("ATOM", True, "none is configured for this node")
    try:
        if sockets.is_served(Path(str(path))):
            return Check("ATOM", True, f"{path} is listened at")
        reason = "no process listens there"
    except OSError as error:
        reason = error.strerror or str(error)
    return Check("ATOM", False, f"{path}: {reason}. Start ATOM, or 'warren atomd'")
