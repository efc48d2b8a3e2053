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
    words: str


def check_server(name: str) -> Iterator[Check]:
    """Look at what PBS's server has: the hook, and what stands in its way."""
    try:
        server = Qmgr()
        found = hooksetup.read_hook(server, name)
    except QmgrUnavailable as reason:
        yield Check("server", None, str(reason))
        return
    except UserMistake as mistake:
        yield Check("server", False, str(mistake))
        return
    if found is None:
        yield Check("hook", False, f"no hook {name} is registered: run 'warren pbs install'")
        return
    yield from check_hook(name, found)
    both = found.enabled and hooksetup.is_shipped_hook_enabled(server)
    words = (
        f"{hooksetup.BOTH_ENABLED}."
        if both
        else f"PBS's own {hookfile.SHIPPED_HOOK} is not in the way"
    )
    yield Check("shipped hook", not both, words)
    yield from _check_vnodes(name)


def check_hook(name: str, found: RegisteredHook) -> Iterator[Check]:
    """Judge a hook as it is registered. Pure."""
    if not hookfile.is_ours(found.source):
        yield Check("hook", False, f"the hook {name} is another one: choose a name with --name")
        return
    yield Check(
        "hook",
        found.enabled,
        f"{name} is enabled"
        if found.enabled
        else f"{name} is registered, but not enabled: run 'warren pbs install --enable'",
    )
    current = found.source == hookfile.source()
    yield Check(
        "source",
        current,
        "as it comes with this Warren"
        if current
        else "of another version than this Warren's: run 'warren pbs install'",
    )
    yield from _check_attributes(found.attributes)
    try:
        config = hookfile.read_config(found.config or b"{}", "the configuration")
    except UserMistake as mistake:
        yield Check("configuration", False, str(mistake))
        return
    yield Check("configuration", True, "valid")
    yield _check_alarm(found.attributes, config)


def _check_attributes(found: Mapping[str, str]) -> Iterator[Check]:
    wanted = hookfile.attributes()
    events = set(found.get("event", "").replace(" ", "").split(","))
    missing = sorted(set(wanted["event"].split(",")) - events)
    yield Check(
        "events",
        not missing,
        wanted["event"] if not missing else f"{', '.join(missing)} missing: set event again",
    )
    user = found.get("user", "")
    yield Check(
        "user",
        user == wanted["user"],
        user if user == wanted["user"] else f"{user}: ATOM answers root; set user={wanted['user']}",
    )
    offlines = "offline_vnodes" in found.get("fail_action", "")
    yield Check(
        "fail_action",
        offlines,
        "offline_vnodes"
        if offlines
        else "a job that cannot begin on a node would be sent there again and again: set "
        "fail_action=offline_vnodes",
    )


def _check_alarm(found: Mapping[str, str], config: Mapping[str, Any]) -> Check:
    """Judge whether the alarm leaves the time that the requests of a begin may take."""
    alarm = float(found.get("alarm", "30"))
    short = hookfile.places_over_alarm(config, alarm)
    if not short:
        return Check("alarm", True, f"{alarm:g} s, time for all requests of a begin")
    places = ", ".join(place or "all nodes" for place in short)
    return Check(
        "alarm",
        False,
        f"{alarm:g} s is too short for two POSTs and two DELETEs ({places}), which are cut short: "
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
        ran = subprocess.run(
            [pbsnodes, "-a", "-F", "json"],
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
        )
        nodes: Mapping[str, Mapping[str, Any]] = json.loads(ran.stdout)["nodes"]
    except (OSError, subprocess.TimeoutExpired, ValueError, LookupError, TypeError) as error:
        yield Check("nodes", None, f"pbsnodes does not tell: {error}")
        return
    by_us = f"offlined by hook '{name}'"
    offline = sorted(
        vnode for vnode, reported in nodes.items() if by_us in str(reported.get("comment", ""))
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

    hook: Path
    config: Path | None


def hook_on_mom(name: str) -> HookOnMom | None:
    """Find the hook as the mom here has it; None without a mom, or without the hook."""
    home = qmgr.settings().get("PBS_HOME", "/var/spool/pbs")
    place = Path(home, "mom_priv", "hooks")
    hook, config = place / f"{name}.PY", place / f"{name}.CF"
    try:
        if not hook.exists():
            return None
        return HookOnMom(hook=hook, config=config if config.exists() else None)
    except PermissionError:
        raise UserMistake(f"{place} cannot be read: root can.") from None


def check_node(name: str) -> Iterator[Check]:
    """Look at this node, if it has a mom: the hook's copy, and ATOM's socket."""
    place = Path(qmgr.settings().get("PBS_HOME", "/var/spool/pbs"), "mom_priv")
    try:
        if not place.is_dir():
            return
        found = hook_on_mom(name)
    except (PermissionError, UserMistake):
        yield Check("mom", False, f"{place} cannot be read: root can")
        return
    if found is None:
        yield Check("mom", False, f"the mom of this node does not have the hook {name}")
        return
    same = found.hook.read_bytes() == hookfile.source()
    yield Check(
        "mom",
        same,
        "has the hook as it comes with this Warren" if same else "has another version of the hook",
    )
    try:
        text = found.config.read_bytes() if found.config else b"{}"
        config = hookfile.read_config(text, str(found.config))
    except UserMistake as mistake:
        yield Check("mom's configuration", False, str(mistake))
        return
    if "vn_type" in config:
        words = "where it is depends on the vnode's vntype: see warren pbs test --vntype TYPE"
        yield Check("ATOM", None, words)
    else:
        yield check_socket(hookfile.settings_for(config, qmgr.node_name())["unix_socket_file"])


def check_socket(place: Any) -> Check:
    """Judge whether ATOM can be asked at a path."""
    if place is None:
        return Check("ATOM", True, "none is configured for this node")
    try:
        if sockets.is_served(Path(str(place))):
            return Check("ATOM", True, f"{place} is listened at")
        words = "no process listens there"
    except OSError as error:
        words = error.strerror or str(error)
    return Check("ATOM", False, f"{place}: {words}. Start ATOM, or 'warren atomd'")
