"""Jobs whose execution is simulated: `attributes.system.exec.test`.

No process is started. Such a job takes its time and has its status, and its events are
those of any other one, but for what shells and tasks would have written.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance.shell.signals import TASK_SIGNAL_OFFSET
from warren.rfc import duration
from warren.rfc import jobspec as jobspecs
from warren.rfc.errors import BadFormat
from warren.rfc.fluid import JobId

_DEFAULT_SECONDS: Final = 1e-5
"""Seconds that a job takes by default."""

_PATH: Final = "attributes.system.exec.test"
_KEYS: Final = ("run_duration", "wait_status", "mock_exception")
_NOTE_BY_EXCEPTION: Final = {
    "init": "mock initialization exception generated",
    "run": "mock run exception generated",
}


class MockRun(msgspec.Struct, frozen=True, kw_only=True):
    """How the execution of a job is mocked."""

    seconds: float
    wait_status: int = 0
    init_exception: str | None = None
    """The note of an exception that comes instead of a start."""
    run_exception: str | None = None
    """The note of an exception that comes after it."""


def read_mock_run(jobspec: Mapping[str, Any], *, by_owner: bool) -> MockRun | None:
    """Read what a jobspec asks for; None for a job that is to be run. Raises UserMistake.

    `by_owner` says whether the job is the instance owner's: others may not ask for it.
    """
    system = jobspecs.system(jobspec)
    execution = system.get("exec")
    test = execution.get("test") if isinstance(execution, Mapping) else None
    if test is None:
        return None
    if not by_owner:
        raise UserMistake(f"{_PATH} is for the instance's owner only.")
    if not isinstance(test, Mapping):
        raise UserMistake(f"{_PATH} is {test!r}: make it an object.")
    for name in test:
        if name not in _KEYS:
            raise UserMistake(f"{_PATH}.{name} is not offered here: use {', '.join(_KEYS)}.")
    exception, status = test.get("mock_exception"), test.get("wait_status", 0)
    if exception is not None and exception not in [*_NOTE_BY_EXCEPTION]:
        raise UserMistake(f"{_PATH}.mock_exception is {exception!r}: make it init or run.")
    if not isinstance(status, int) or not 0 <= status <= 0xFFFF:
        raise UserMistake(f"{_PATH}.wait_status is {status!r}: make it a number up to 65535.")
    seconds = _seconds(test.get("run_duration"))
    return MockRun(
        seconds=seconds or float(system.get("duration") or _DEFAULT_SECONDS),
        wait_status=status,
        init_exception=_NOTE_BY_EXCEPTION["init"] if exception == "init" else None,
        run_exception=_NOTE_BY_EXCEPTION["run"] if exception == "run" else None,
    )


def _seconds(run_duration: Any) -> float:
    try:
        return duration.parse(str(run_duration)) if run_duration is not None else 0.0
    except BadFormat as error:
        raise UserMistake(f"{_PATH}.run_duration: {error}") from error


class SimulatedShells:
    """The `Shells` of one job, simulated: they only take time.

    When they end follows from when they began: a later life of the instance finds them again.
    """

    def __init__(self, clock: Clock, mock: MockRun, started_at: float) -> None:
        self._clock = clock
        self._mock = mock
        self._ends_at = started_at + mock.seconds
        self._killed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        return None

    async def wait(self, job: JobId, rank: int) -> int:
        try:
            async with asyncio.timeout(self._ends_at - self._clock.now()):
                return await asyncio.shield(self._killed)
        except TimeoutError:
            return self._mock.wait_status

    async def kill(self, job: JobId, signum: int) -> None:
        if not self._killed.done():
            self._killed.set_result(
                signum - TASK_SIGNAL_OFFSET if signum > TASK_SIGNAL_OFFSET else int(signum)
            )
