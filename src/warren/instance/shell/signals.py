"""Signals to tasks: those that are asked for, and the one before the time limit."""

import asyncio
import errno
import signal
from contextlib import suppress
from typing import Final

from warren.instance.shell.plugins import NOTICE, RunningShell, ShellPlugin
from warren.rfc import idset
from warren.rfc.errors import BadFormat
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request, RpcError

TASK_SIGNAL_OFFSET: Final = 33
"""Added to a signal for the tasks on its way to their shell, which takes those below for itself.

Real-time signals begin there: no other program sends them to shells.
"""


TASK_SIGNALS: Final = frozenset(range(TASK_SIGNAL_OFFSET + 1, signal.NSIG))
"""Signals for tasks: they are blocked in a new shell until it can handle them."""


_ANSWER_TIMEOUT: Final = 5.0
"""Seconds that a shell waits for an answer: for its own when its tasks have ended, and for the
instance's when a signal is due."""


class Kill(ShellPlugin):
    """Serves `<service>.kill {signum, ranks?}`. The leader passes it on to all shells.

    A signal that ends the tasks is answered before the shell leaves.
    """

    def __init__(self) -> None:
        self._request_count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def init(self, shell: RunningShell) -> None:
        shell.serve("kill", Method(lambda request: self._serve(shell, request), guest=True))

    async def _serve(self, shell: RunningShell, request: Request) -> Payload:
        shell.check_permitted(request)
        signum, ranks = request.payload.get("signum"), request.payload.get("ranks")
        if not isinstance(signum, int) or not 0 < signum < signal.NSIG:
            raise RpcError(errno.EPROTO, "a signal is a number from 1 to 64")
        try:
            chosen_ranks = None if ranks in (None, "all") else idset.decode(str(ranks))
        except BadFormat as error:
            raise RpcError(errno.EPROTO, f"kill: {error}") from None
        self._request_count += 1
        self._idle.clear()
        try:
            shell.signal(signum, chosen_ranks)
            if shell.info.rank == 0:
                await _pass_on(shell, request.payload)
        finally:
            self._request_count -= 1
            if not self._request_count:
                self._idle.set()
        return {}

    async def finish(self, shell: RunningShell) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_TIMEOUT):
                await self._idle.wait()


async def _pass_on(shell: RunningShell, payload: Payload) -> None:
    """Have all other shells serve a request. Raises the first RpcError when all were asked."""
    others = range(1, len(shell.info.hosts))
    answers = await asyncio.gather(
        *(shell.peers.ask(rank, "kill", payload) for rank in others), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


class SignalBeforeExpiration(ShellPlugin):
    """Sends a signal some time before the time limit (shell option `signal`)."""

    async def start(self, shell: RunningShell) -> None:
        if shell.info.options.signal is not None and shell.info.expiration:
            shell.background(self._warn(shell, *shell.info.options.signal))

    async def _warn(self, shell: RunningShell, signum: int, seconds: float) -> None:
        expiration = shell.info.expiration
        while (wait := expiration - seconds - shell.clock.now()) > 0:
            await asyncio.sleep(wait)
            expiration = await _current_expiration(shell, expiration)
            if not expiration:
                return
        if shell.info.rank == 0:
            name = signal.Signals(signum).name if signum in set(signal.Signals) else str(signum)
            left = round(expiration - shell.clock.now())
            await shell.log(NOTICE, f"{left} seconds are left: {name} is sent to the tasks")
        shell.signal(signum)


async def _current_expiration(shell: RunningShell, known: float) -> float:
    """Return when the job's time is up, which may be another moment by now; 0 for never.

    Where the instance is away, it is the one that was `known` before.
    """
    with suppress(RpcError, TimeoutError):
        async with asyncio.timeout(_ANSWER_TIMEOUT):
            request = {"id": shell.info.job, "key": "R"}
            answer = await shell.handle.rpc("job-info.update-lookup", request)
        return float(answer["R"]["execution"].get("expiration") or 0.0)
    return known
