"""The user's terminal while it shows that of a job: raw, and then as it was."""

import asyncio
import os
import signal
import termios
import threading
import tty
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

from warren.rfc import jobspec

_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""What ends a command that does nothing about it, and would leave a raw terminal behind."""


def is_foreground(descriptor: int) -> bool:
    """Return whether a descriptor is the terminal that this process may use now."""
    try:
        return os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


def size_of(descriptor: int) -> tuple[int, int] | None:
    """Return the rows and columns of a terminal; None where it is none, or does not know."""
    try:
        rows, columns = termios.tcgetwinsize(descriptor)
    except termios.error:
        return None
    return (rows, columns) if rows and columns else None


def set_pty_size(spec: Mapping[str, Any], descriptor: int = 0) -> None:
    """Have the terminal of an interactive job begin in the size of the user's.

    Where the job says nothing else: a program that looks once, when it begins, finds no other.
    """
    pty = jobspec.system(spec).get("shell", {}).get("options", {}).get("pty")
    size = size_of(descriptor)
    if isinstance(pty, MutableMapping) and pty.get("interactive") and size is not None:
        pty.setdefault("size", f"{size[0]}x{size[1]}")


class UserTerminal:
    """The terminal that a descriptor is, if it is one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._saved_attributes: Any = None
        """How the terminal was; None while it is not raw."""
        self._is_restored = False
        self._handled_signals: list[int] = []
        self.resized = asyncio.Event()
        """Set when the size may have changed."""

    def make_raw(self) -> bool:
        """Make the terminal raw, so that keys are passed on as they are typed, until `restore`.

        Return whether it is raw: not where there is none, or it is not this process's to use.
        """
        if self._is_restored or not is_foreground(self._descriptor):
            return False
        try:
            self._saved_attributes = termios.tcgetattr(self._descriptor)
            tty.setraw(self._descriptor, termios.TCSANOW)
        except termios.error:  # it has just gone
            return False
        if threading.current_thread() is threading.main_thread():
            self._handle(signal.SIGWINCH, self.resized.set)
            self._handle(signal.SIGCONT, self._on_continue)
            for signum in _ENDING_SIGNALS:
                if signal.getsignal(signum) is signal.SIG_DFL:
                    self._handle(signum, self._restore_and_end, signum)
        return True

    def restore(self) -> None:
        """Make the terminal what it was before `make_raw`, for good. May be repeated."""
        self._is_restored = True
        if self._saved_attributes is None:
            return
        # In the background it is what the user's shell has made of it.
        if is_foreground(self._descriptor):
            with suppress(termios.error):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._saved_attributes)
        self._saved_attributes = None
        for signum in self._handled_signals:
            asyncio.get_running_loop().remove_signal_handler(signum)
        self._handled_signals.clear()

    def size(self) -> tuple[int, int] | None:
        """Return the rows and columns, if they are known."""
        return size_of(self._descriptor)

    def _handle(self, signum: int, handler: Any, *arguments: Any) -> None:
        asyncio.get_running_loop().add_signal_handler(signum, handler, *arguments)
        self._handled_signals.append(signum)

    def _on_continue(self) -> None:
        """The process was stopped, and the user's shell has used the terminal meanwhile."""
        if is_foreground(self._descriptor):
            with suppress(termios.error):
                tty.setraw(self._descriptor, termios.TCSANOW)
        self.resized.set()

    def _restore_and_end(self, signum: int) -> None:
        self.restore()
        os.kill(os.getpid(), signum)
