"""ATOM: the service as a process, and PBS's hook against an empty one."""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import Result, median_ms, percentile
from warren.daemons.atomd import MAX_CONNECTIONS
from warren.wlm.pbs import hookfile
from warren.wlm.pbs.trial import Trial

RATE = 500
SECONDS = 5
ROUNDS = 5
JOBS = 100_000


@contextmanager
def service() -> Iterator[tuple[int, Path]]:
    """Have a service run, as a process, and return its id and its socket."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "sock"
        command = [
            sys.executable, "-m", "warren", "atomd", "--socket", str(place),
            "--statedir", directory,
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving")
        try:
            yield process.pid, place
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


class Client:
    """Asks over connections that it keeps, with as little work of its own as can be."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def post(self, number: int) -> None:
        """Register a job."""
        body = b'{"jobid":"%d.pbshost","uid":1000,"exclusive":false}' % number
        await self.ask(b"POST", body)

    async def ask(self, method: bytes, body: bytes = b"") -> bytes:
        """Ask, and return the answer's body, whose length it must tell. Raises AssertionError."""
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_unix_connection(self._place)
        head = b"%s /rm/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % (method, len(body)) + body)
        said = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in said
        length = int(said.partition(b"content-length:")[2].split()[0])
        answer = await reader.readexactly(length)
        self._idle.append((reader, writer))
        return answer

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def _load(place: Path, first: int) -> list[float]:
    """Send requests at their moments, whether or not those before are answered."""
    taken: list[float] = []
    async with asyncio.TaskGroup() as group:
        client = Client(place)

        # A machine that is slower than the rate would have more connections than are served, with
        # those of the round before; its requests wait here, and that counts.
        turns = asyncio.Semaphore(MAX_CONNECTIONS // 2)

        async def timed(number: int, moment: float) -> None:
            async with turns:
                await client.post(first + number)
            taken.append((time.perf_counter() - moment) * 1000)

        began = time.perf_counter()
        for number in range(RATE * SECONDS):
            moment = began + number / RATE
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            group.create_task(timed(number, max(moment, time.perf_counter())))
    client.close()
    return taken


def answers() -> Iterator[Result]:
    """POSTs at a rate, each from its moment to its answer, on disk: the middle of some rounds."""
    rounds: list[list[float]] = []
    with service() as (pid, place):
        before = _cpu(pid)
        for number in range(ROUNDS):
            rounds.append(asyncio.run(_load(place, number * RATE * SECONDS)))
        spent = (_cpu(pid) - before) / (ROUNDS * RATE * SECONDS) * 1e6
    for fraction, budget in ((0.5, None), (0.99, 5.0)):
        yield Result(
            name=f"atomd: POST at {RATE}/s, p{fraction * 100:g}",
            value=statistics.median(percentile(taken, fraction) for taken in rounds),
            unit="ms",
            budget=budget,
        )
    yield Result(name="atomd: one POST", value=spent, unit="CPU-µs")


async def _fill(place: Path) -> None:
    client = Client(place)
    for first in range(0, JOBS, 64):
        numbers = range(first, min(first + 64, JOBS))
        await asyncio.gather(*(client.post(number) for number in numbers))
    client.close()


def memory() -> Iterator[Result]:
    """What 100,000 jobs weigh, and how long all of them take to be listed."""
    with service() as (pid, place):
        asyncio.run(_fill(place))
        status = Path(f"/proc/{pid}/status").read_text()
        most = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        yield Result(
            name="atomd: 100,000 jobs, at most", value=int(most.split()[1]) / 1024, unit="MiB",
            budget=200,
        )  # fmt: skip
        began = time.perf_counter()
        asyncio.run(_list(place))
        yield Result(
            name="atomd: list of 100,000 jobs", value=(time.perf_counter() - began) * 1000,
            unit="ms",
        )  # fmt: skip


async def _list(place: Path) -> None:
    """The list has no length beforehand, and the last byte closes it."""
    reader, writer = await asyncio.open_unix_connection(place)
    writer.write(b"GET /rm/v1/jobs HTTP/1.0\r\n\r\n")
    said = await reader.read()
    assert said.count(b"jobid") == JOBS
    writer.close()


def hook() -> Iterator[Result]:
    """The hook's process at a begin, against that of a hook that accepts and no more."""
    with service() as (_, place):
        directory = place.parent
        config = directory / "CF"
        config.write_text(json.dumps({"unix_socket_file": str(place)}))
        empty = directory / "empty.PY"
        empty.write_text("import pbs\npbs.event().accept()\n")

        def taken(source: Path) -> float:
            trial = Trial(
                hook=source, hook_name="cray_atom", config=config, node="node", jobid="1.pbshost",
                user="root", place="pack", sharing="default_shared", vntype=None,
                alarm=300.0,
            )  # fmt: skip

            def begin() -> None:
                assert next(iter(trial.run_events())).accepted

            return median_ms(begin, 15)

        more = taken(hookfile.path()) - taken(empty)
        yield Result(name="PBS's hook, more than an empty one", value=more, unit="ms", budget=40)


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


ALL = {"atomd answers": answers, "atomd memory": memory, "pbs hook": hook}
