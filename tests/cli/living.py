"""An instance on a socket of its own, in a thread, for commands to talk to."""

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from click.testing import CliRunner

from tests.instance.lives import Life, alive
from warren.base.errors import WarrenError
from warren.cli.main import cli
from warren.daemons.statedir import StateDir, hold_lock
from warren.instance.config import Config
from warren.instance.jobs.service import JobManagerService
from warren.rfc import fluid
from warren.rfc.fluid import JobId
from warren.rpc import server
from warren.rpc.bus import Method, MethodHandler
from warren.rpc.server import AccessPolicy

T = TypeVar("T")

US = os.getuid()
SOMEBODY = US + 1
DEFAULTS: Final = Config()


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    refusal: str
    """The one sentence; empty where nothing was refused."""

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Cluster:
    """A job manager with paper around it, and the command line."""

    def __init__(self, state: StateDir, loop: asyncio.AbstractEventLoop, life: Life) -> None:
        self.state = state
        self.life = life
        self._loop = loop

    def __call__(self, *arguments: str, stdin: str | None = None) -> Done:
        """Run a command as `warren` does."""
        environment = {"WARREN_STATEDIR": str(self.state.path)}
        done = CliRunner().invoke(cli, arguments, input=stdin, env=environment)
        if isinstance(done.exception, WarrenError):
            return Done(1, done.stdout, str(done.exception))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something in the instance's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def submit(self, number: int, userid: int = US, **options: Any) -> str:
        """Have a job accepted, and wait until it waits, for resources or for nothing."""
        job = JobId(number << 24)
        self.do(self.life.accept(job, userid, **options))
        self.do(self.life.until(job, "priority"))
        return fluid.f58(job)

    def give(self, id_: str, until: str = "clean") -> str:
        """Give a job its resources, and wait for an event; return what came of it."""
        self.do(self.life.scheduler.give(fluid.parse(id_)))
        self.do(self.life.until(fluid.parse(id_), until))
        return id_

    def events(self, id_: str) -> list[str]:
        return [event.name for event in self.life.log(fluid.parse(id_))]

    def serve(self, **answers: MethodHandler) -> None:
        """Have methods of the job manager answered by the test."""
        own = JobManagerService(self.life.manager, self.life.execution).methods()
        fakes: Mapping[str, Method] = {
            name: Method(answer, guest=True) for name, answer in answers.items()
        }
        self.life.bus.unregister("job-manager")
        self.life.bus.register("job-manager", {**own, **fakes})


@contextmanager
def cluster(
    path: Path, *, owner: int = US, seconds: float = 0.01, config: Config = DEFAULTS
) -> Iterator[Cluster]:
    """A cluster for the length of a block; its jobs take `seconds` once they have resources."""
    state = StateDir(path)
    begun = threading.Event()
    made: list[Cluster] = []
    failures: list[BaseException] = []
    stop = asyncio.Event()

    async def live() -> None:
        async with alive(generous=False, seconds=seconds, config=config) as life:
            life.bus.owner = owner
            serving = asyncio.create_task(
                server.serve(life.bus, state.socket, AccessPolicy(allow_guests=True))
            )
            await asyncio.sleep(0)
            made.append(Cluster(state, asyncio.get_running_loop(), life))
            begun.set()
            await stop.wait()
            serving.cancel()
            await asyncio.wait([serving])

    def run() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            failures.append(error)
        finally:
            begun.set()

    with hold_lock(state.lock):
        state.announce(pid=os.getpid())
        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        try:
            if made:
                yield made[0]
        finally:
            if made and thread.is_alive():
                made[0]._loop.call_soon_threadsafe(stop.set)
            thread.join()
    if failures:
        raise failures[0]
