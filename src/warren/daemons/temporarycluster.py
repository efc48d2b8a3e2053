"""A cluster that lasts no longer than its starter: `python -m warren.daemons.temporarycluster`.

Standard input is a pipe whose other end the starter holds. A line starts the cluster, another
one stops it; the end of the pipe, whichever way the starter has ended, stops it and removes
its directory. Standard output is closed once nothing of the cluster is left but files.
"""

import asyncio
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from warren.daemons.statedir import StateDir

_END_SECONDS: Final = 30.0
"""Seconds that a cluster may take to stop before it is killed, and swept."""

_KEEP: Final = "keep"
_REMOVE: Final = "remove"


class TemporaryCluster:
    """The starter's end of the pipe. The cluster does not outlive it by more than seconds."""

    def __init__(self, directory: Path, options: Sequence[str], *, keep: bool) -> None:
        """`directory` may be made later, and is removed with the cluster, unless `keep`.

        `options` are those of `warren up`.
        """
        self._directory = directory
        self._keep = keep
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "warren.daemons.temporarycluster",
             str(directory), _KEEP if keep else _REMOVE, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # What ends the starter, from a terminal or by its group, is not to end this.
            start_new_session=True,
        )  # fmt: skip

    @property
    def state_dir(self) -> StateDir:
        return _state_dir(self._directory)

    def output(self) -> str:
        """Return what `warren up` has said."""
        try:
            return _output_file(self.state_dir).read_text()
        except FileNotFoundError:
            return ""

    def up(self) -> None:
        """Begin to start the cluster."""
        self.state_dir.prepare()
        self._send_line()

    def wait_ended(self, seconds: float = 0.0) -> bool:
        """Wait for nothing of the cluster to be left but files; return whether that is so."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], seconds)[0])

    def down(self) -> None:
        """Stop the cluster, and leave its files."""
        self._send_line()
        self.wait_ended(2 * _END_SECONDS)

    def close(self) -> None:
        """Stop the cluster, if it runs, and remove its files."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        if self._process.wait() == 0:
            return
        # It was killed: the cluster has been told to stop by that.
        from warren.daemons.down import down

        asyncio.run(down(self.state_dir))
        if not self._keep:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _send_line(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has been killed: `wait_ended` tells
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()


@contextmanager
def temporary_cluster(
    directory: Path, options: Sequence[str], *, keep: bool
) -> Iterator[TemporaryCluster]:
    """Have a cluster and a directory for no longer than a block, however it is left."""
    cluster = TemporaryCluster(directory, options, keep=keep)
    try:
        yield cluster
    finally:
        cluster.close()


def _state_dir(directory: Path) -> StateDir:
    return StateDir(directory / "state")


def _output_file(state_dir: StateDir) -> Path:
    return state_dir.logs / "up.out"


async def main(directory: Path, options: Sequence[str], *, keep: bool) -> None:
    """Do what the starter says, until it is gone."""
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    if await commands.readline():
        await _run_cluster(_state_dir(directory), options, commands)
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())
    while await commands.readline():
        pass
    if not keep:
        shutil.rmtree(directory, ignore_errors=True)


async def _run_cluster(
    state_dir: StateDir, options: Sequence[str], commands: asyncio.StreamReader
) -> None:
    """Have the cluster until the starter says otherwise, or it ends; and leave nothing of it."""
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    with _output_file(state_dir).open("wb") as output:
        control = await asyncio.create_subprocess_exec(
            # Should this process be killed, the cluster stops in order.
            *("setpriv", "--pdeathsig", "TERM"),
            *(
                sys.executable,
                "-P",
                "-m",
                "warren",
                "up",
                "--statedir",
                str(state_dir.path),
                *options,
            ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    # Not before: it takes a while, in which the cluster starts.
    from warren.daemons.down import down

    end_tasks = [
        asyncio.ensure_future(each)
        for each in (commands.readline(), terminated.wait(), control.wait())
    ]
    await asyncio.wait(end_tasks, return_when=asyncio.FIRST_COMPLETED)
    with suppress(ProcessLookupError):
        control.terminate()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await control.wait()
    except TimeoutError:
        control.kill()
        await control.wait()
    # It may have been killed, or told to end before it could listen.
    await down(state_dir)
    for each in end_tasks:
        each.cancel()
    await asyncio.wait(end_tasks)


if __name__ == "__main__":
    for ignored in (signal.SIGHUP, signal.SIGINT):
        signal.signal(ignored, signal.SIG_IGN)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[3:], keep=sys.argv[2] == _KEEP))
