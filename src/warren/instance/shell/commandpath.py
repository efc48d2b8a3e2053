"""Where tasks find the command `warren`: on their PATH, wherever it is installed."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from warren.instance.shell.plugins import RunningShell, ShellPlugin

_COMMAND: Final = "warren"


class CommandPath(ShellPlugin):
    """Adds the directory of the command to the PATH of tasks that would not find it."""

    def __init__(self, directory: Path = Path(sys.executable).parent) -> None:
        """`directory` has the command, and whatever else is installed beside it."""
        self._directory = directory

    async def init(self, shell: RunningShell) -> None:
        path = shell.environment.get("PATH", os.defpath)
        installed = shutil.which(_COMMAND, path=str(self._directory))
        if installed is not None and shutil.which(_COMMAND, path=path) is None:
            # At the end: the Python beside it is no other program's.
            shell.environment["PATH"] = f"{path}{os.pathsep}{self._directory}"
