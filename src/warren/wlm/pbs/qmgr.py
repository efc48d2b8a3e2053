"""Talking to PBS's server through qmgr, as its administrator does."""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from warren.base.errors import UserMistake

_TIMEOUT: Final = 60.0
"""How long PBS may take for one directive."""
_NOT_FOUND: Final = "hook not found"
_UNAUTHORIZED: Final = "is unauthorized to access hooks data"
_PREFIX_PATTERN: Final = re.compile(r"qmgr obj=\S* svr=\S*: ")
_CLOSING_LINES: Final = ("qmgr: hook error returned from server", "qmgr: Error (")

HOOK_NAME_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
"""Names of hooks: with others, a directive could say something else than was meant."""


class DirectiveRefused(UserMistake):
    """PBS has refused a directive. The words are its own."""


class QmgrUnavailable(UserMistake):
    """The server cannot be asked from here, or not by this user."""


def pbs_conf() -> Mapping[str, str]:
    """Return what PBS's own configuration on this machine says."""
    config_path = Path(os.environ.get("PBS_CONF_FILE", "/etc/pbs.conf"))
    try:
        lines = config_path.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def node_name() -> str:
    """Return this node's name, as its mom has it."""
    return pbs_conf().get("PBS_MOM_NODE_NAME") or socket.gethostname().partition(".")[0]


def program(name: str) -> Path:
    """Find one of PBS's programs. Raises QmgrUnavailable."""
    directories = [Path(pbs_conf().get("PBS_EXEC", "/opt/pbs"), "bin"), Path("/opt/pbs/bin")]
    found = shutil.which(name) or next(
        (
            str(directory / name)
            for directory in directories
            if os.access(directory / name, os.X_OK)
        ),
        None,
    )
    if found is None:
        raise QmgrUnavailable(
            f"{name} is not installed here: run this where PBS's commands are, with them in PATH "
            "or PBS_CONF_FILE set."
        )
    return Path(found)


class Qmgr:
    """The administrator's way to the server."""

    def __init__(self) -> None:
        self._program = program("qmgr")

    def run(self, directive: str, content: bytes = b"") -> bytes:
        """Run a directive, with what it reads as `-`, and return what is printed.

        Raises DirectiveRefused, and QmgrUnavailable.
        """
        try:
            result = subprocess.run(
                [self._program, "-c", directive],
                input=content,
                capture_output=True,
                timeout=_TIMEOUT,
                check=False,
            )
        except OSError as error:
            raise QmgrUnavailable(f"{self._program} cannot be run: {error.strerror}.") from error
        except subprocess.TimeoutExpired:
            raise DirectiveRefused(
                f"PBS's server has not answered qmgr within {_TIMEOUT:g} s."
            ) from None
        output = (result.stderr + result.stdout).decode(errors="replace")
        # What root alone may see is refused with the exit code 0.
        if _UNAUTHORIZED in output:
            raise QmgrUnavailable("PBS lets only root on its server's host see or change hooks.")
        if result.returncode:
            raise DirectiveRefused(_sentence(output) or f"qmgr exits with {result.returncode}")
        return result.stdout

    def attributes(self, object_type: str, name: str) -> Mapping[str, str] | None:
        """Return the attributes of a hook, a `hook` of the site's or a `pbshook`; None without."""
        try:
            listing = self.run(f"list {object_type} {name}")
        except DirectiveRefused as refusal:
            if _NOT_FOUND in str(refusal):
                return None
            raise
        text = listing.decode(errors="replace").replace("\n\t", "")
        lines = (line.split("=", 1) for line in text.splitlines() if "=" in line)
        return {key.strip(): value.strip().strip('"') for key, value in lines}

    def export(self, object_type: str, name: str, content_type: str) -> bytes:
        """Return what has been imported: `x-python` or `x-config`. Empty where nothing has."""
        return self.run(f"export {object_type} {name} application/{content_type} default")


def _sentence(output: str) -> str:
    lines = [_PREFIX_PATTERN.sub("", line).strip() for line in output.splitlines()]
    return " ".join(line for line in lines if line and not line.startswith(_CLOSING_LINES))
