"""Signals to tasks: those that are asked for, and the one before the time limit."""

import asyncio
import errno
import signal
from contextlib import aclosing, suppress
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
instance's when they have started."""

_WATCH_RETRY_DELAY: Final = 1.0
"""Seconds until what the instance does not answer is asked again."""


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
        signum, task_ranks = request.payload.get("signum"), request.payload.get("ranks")
        if not isinstance(signum, int) or not 0 < signum < signal.NSIG:
            raise RpcError(errno.EPROTO, "a signal is a number from 1 to 64")
        try:
            chosen_ranks = None if task_ranks in (None, "all") else idset.decode(str(task_ranks))
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
    """Sends a signal some time before the time limit (shell option `signal`).

    The limit may change, go and come back while the job runs. As with flux-shell, each limit has
    its signal: where that is due already, at once.
    """

    def __init__(self) -> None:
        self._expiration = 0.0
        """When the job's time is up; 0 for never."""
        self._told = asyncio.Event()
        """Set when the instance has said when that is."""

    async def start(self, shell: RunningShell) -> None:
        if shell.info.options.signal is not None:
            self._expiration = shell.info.expiration
            shell.background(self._watch_expiration(shell))
            shell.background(self._signal_before_expiration(shell, *shell.info.options.signal))

    async def _watch_expiration(self, shell: RunningShell) -> None:
        """Follow the job's expiration until the job is over, also over restarts of the instance."""
        request = {"id": shell.info.job, "key": "R"}
        while True:
            updates = shell.handle.stream("job-info.update-watch", request)
            try:
                async with aclosing(updates) as answers:  # type: ignore[type-var]
                    async for answer in answers:
                        self._expiration = float(answer["R"]["execution"].get("expiration") or 0.0)
                        self._told.set()
            except RpcError as error:
                if not (error.unserved or error.busy):
                    return  # the job goes on, with the limit that is known
            else:
                return
            await asyncio.sleep(_WATCH_RETRY_DELAY)

    async def _signal_before_expiration(
        self, shell: RunningShell, signum: int, seconds: float
    ) -> None:
        # What the shell has read is the limit that the job was given: it may be another one by now.
        await self._wait_told(_ANSWER_TIMEOUT)
        signalled_expiration = 0.0
        while True:
            self._told.clear()
            expiration = self._expiration
            if expiration in (0.0, signalled_expiration):
                await self._told.wait()
            elif (wait := expiration - seconds - shell.clock.now()) > 0:
                await self._wait_told(wait)
            else:
                await self._signal(shell, signum, expiration)
                signalled_expiration = expiration

    async def _wait_told(self, seconds: float) -> None:
        """Wait until the instance has said when the time is up, for so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._told.wait()

    async def _signal(self, shell: RunningShell, signum: int, expiration: float) -> None:
        # First of all: the log waits for the instance, which may be away.
        shell.signal(signum)
        if shell.info.rank == 0:
            name = signal.Signals(signum).name if signum in set(signal.Signals) else str(signum)
            left = round(expiration - shell.clock.now())
            await shell.log(NOTICE, f"{left} seconds are left: {name} is sent to the tasks")
